"""What the servers say of themselves: on disk, in the README, and as the lock will look for it."""

from __future__ import annotations

import json
import re
from importlib import metadata
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from kit.serve import SERVERS
from kit.serve.desk import Desk
from kit.serve.entry import build

_SPEC = spec_from_file_location("published", Path(__file__).with_name("published.py"))
assert _SPEC is not None
assert _SPEC.loader is not None
published = module_from_spec(_SPEC)
_SPEC.loader.exec_module(published)

# The fields each tool owes, from the contract.
OWED = {
    "get_security_meta": "symbol name industry is_st listed_date board",
    "get_universe": "symbols",
    "query_news": "news_id title summary categories published_at",
    "get_bars": "symbol date open high low close close_adj low_adj volume volume_unit",
}
TOOLS = {
    "trading-data-cn": {"get_security_meta", "get_universe", "get_bars"},
    "historical-news-cn": {"query_news"},
    "kit": {
        "list_skills",
        "load_skill",
        "check_lock",
        "screen_today",
        "backtest",
        "intraday_reference",
    },
}


def deref(schema: dict[str, Any], root: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in schema:
        target = root["$defs"][schema["$ref"].rpartition("/")[2]]
        assert isinstance(target, dict)
        return target
    return schema


def records(schema: dict[str, Any]) -> dict[str, Any]:
    """Properties of the answer and of the records in its lists."""
    found = dict(schema["properties"])
    for field in schema["properties"].values():
        found |= deref(field.get("items", {}), schema).get("properties", {})
    return found


@pytest.mark.parametrize("name", SERVERS)
class TestServer:
    def test_the_schemas_on_disk_are_what_it_publishes(self, name: str) -> None:
        folder = published.folder_of(name) / "schemas"
        stored = {path.name: json.loads(path.read_text("utf-8")) for path in folder.iterdir()}
        assert stored == published.schemas_of(name), "run: python tests/serve/published.py"

    def test_its_tools(self, name: str) -> None:
        tools = {about["name"]: about for about in published.schemas_of(name).values()}
        assert tools.keys() == TOOLS[name]
        for tool, about in tools.items():
            assert len(about["description"]) > 30
            assert re.fullmatch(r"\d+\.\d+\.\d+", about["_meta"]["version"])
            assert about["annotations"]["destructiveHint"] is False
            writes = tool in {"screen_today", "backtest"}
            assert about["annotations"]["readOnlyHint"] is not writes
            assert about["inputSchema"]["additionalProperties"] is False
            fields = records(about["outputSchema"])
            assert set(OWED.get(tool, "").split()) <= fields.keys()

    def test_its_version_is_its_own(self, name: str) -> None:
        version = build(name, Desk()).version
        assert re.fullmatch(r"1\.\d+\.\d+", version)
        assert version != metadata.version("mcp")

    def test_readme_and_changelog(self, name: str) -> None:
        folder = published.folder_of(name)
        readme = (folder / "README.md").read_text("utf-8")
        assert set(re.findall(r"^\| `(\w+)`", readme, re.MULTILINE)) == TOOLS[name]
        changelog = (folder / "CHANGELOG.md").read_text("utf-8")
        assert re.findall(r"^## (\S+)", changelog, re.MULTILINE)[0] == build(name, Desk()).version


def test_units_stand_in_the_schema() -> None:
    bar = published.schemas_of("trading-data-cn")["get_bars.json"]["outputSchema"]["$defs"]["Bar"]
    fields = bar["properties"]
    assert fields["volume_unit"]["const"] == "shares"
    assert "volume_unit" in bar["required"]
    for name in ("open", "high", "low", "close", "close_adj", "low_adj"):
        assert "CNY" in fields[name]["description"]
    assert "shares" in fields["volume"]["description"]


def test_the_shipped_bundle_finds_what_it_locked(repository: Path) -> None:
    manifest = json.loads(
        (repository / "strategies/ma250-pullback/0.3.1/manifest.json").read_text()
    )
    (locked,) = manifest["env_lock"]["required_mcps"]
    schemas = published.schemas_of(locked["name"])
    assert Version(build(locked["name"], Desk()).version) >= Version(locked["min_version"])
    for tool in locked["tools_used"]:
        about = schemas[f"{tool['tool_name']}.json"]
        taken = about["inputSchema"]
        assert set(tool["required_input_fields"]) <= taken["properties"].keys()
        assert set(taken["required"]) <= set(tool["required_input_fields"])
        fields = records(about["outputSchema"])
        assert set(tool["required_output_fields"]) <= fields.keys()
        for name, value in tool.get("required_values", {}).items():
            assert fields[name]["const"] == value
