"""Fixtures of the lock's tests: small bundles with any lock, and servers that say anything."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kit import schemas
from kit.bundle import Bundle
from kit.envlock import LockAnswer, check_lock
from kit.mcp import ServerPool, load_servers
from kit.workspace import Workspace

TESTS = Path(__file__).parent.parent
SCRIPTED = TESTS / "mcp" / "servers" / "scripted.py"
SOURCE = "pip:bars-mcp==1.4.0"

Locked = Callable[..., Bundle]
Checked = Callable[..., LockAnswer]


@pytest.fixture
def locked(workspace: Workspace) -> Locked:
    """`locked(mcps=[...], env=[...], db=[...])` writes a draft with that lock and opens it."""
    path = TESTS / "bundle" / "builder.py"
    spec = importlib.util.spec_from_file_location("bundle_builder", path)
    assert spec is not None
    assert spec.loader is not None
    builder = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(builder)

    def make(
        mcps: list[dict[str, Any]] | None = None,
        env: list[dict[str, Any]] | None = None,
        db: list[dict[str, Any]] | None = None,
    ) -> Bundle:
        root = builder.make_draft(workspace, "tiny-screen")
        value = json.loads((root / "manifest.json").read_text("utf-8"))
        value["env_lock"] = {
            "required_mcps": mcps or [],
            "required_env": env or [],
            "required_db": db or [],
        }
        (root / "manifest.json").write_text(json.dumps(value), "utf-8")
        return Bundle.open(root)

    return make


@pytest.fixture
def lock_of() -> Callable[..., dict[str, Any]]:
    """`lock_of("bars", get_bars={...})`: an entry of required_mcps."""

    def entry(name: str = "bars", *, tools: dict[str, Any] | None = None, **more: Any) -> Any:
        used = tools if tools is not None else {"get_bars": {}}
        return {
            "name": name,
            "min_version": "1.0",
            "source": SOURCE,
            "tools_used": [
                {
                    "tool_name": tool,
                    "required_input_fields": ["codes"],
                    "required_output_fields": ["close"],
                    **about,
                }
                for tool, about in used.items()
            ],
            **more,
        }

    return entry


@pytest.fixture
def serve(
    workspace: Workspace, described_server: Callable[..., dict[str, Any]], tmp_path: Path
) -> Callable[..., None]:
    """`serve("bars", tools=[...], version=...)` configures a server that says so.

    `serve("bars", how="hangs-at-start")` configures one that misbehaves; `entry=` is taken as it
    stands in config/mcp.json.
    """

    def put(
        name: str = "bars",
        *,
        how: str = "",
        more: tuple[str, ...] = (),
        entry: dict[str, Any] | None = None,
        channel: str | None = None,
        **about: Any,
    ) -> None:
        if how:
            args = ["-S", "-E", str(SCRIPTED), how, "", *more]
            entry = {"command": sys.executable, "args": args}
        elif entry is None:
            entry = described_server(tmp_path, name, **about)
        path = workspace.config_dir / "mcp.json"
        value = json.loads(path.read_text("utf-8"))
        value["servers"][name] = {**entry, **({"channel": channel} if channel else {})}
        path.write_text(json.dumps(value), "utf-8")

    return put


@pytest.fixture
def checked(workspace: Workspace) -> Checked:
    """`checked(bundle)` checks its lock against the workspace; the answer's shape is checked."""

    def check(
        bundle: Bundle, *, start_sec: float = 10.0, databases: Any = None, **options: Any
    ) -> LockAnswer:
        known = {"databases": databases or {}}
        with ServerPool(load_servers(workspace), deadline_sec=start_sec) as pool:
            answer = check_lock(bundle, pool, known, **options)
        assert schemas.validate("lock-answer", answer.to_dict()) == []
        return answer

    return check


def bars_tool(**changes: Any) -> dict[str, Any]:
    """A tool that declares what it answers: a list of bars under `bars`."""
    fields: dict[str, Any] = {"symbol": {"type": "string"}, "date": {"type": "string"},
              "close": {"type": "number"}, "volume": {"type": "number"},
              "volume_unit": {"type": "string", "const": "shares"}}  # fmt: skip
    fields |= changes.pop("fields", {})
    fields = {name: schema for name, schema in fields.items() if schema is not None}
    inputs = {"codes": {"type": "array", "items": {"type": "string"}}, **changes.pop("inputs", {})}
    return {
        "name": "get_bars",
        "description": "Daily bars.",
        "inputSchema": {
            "type": "object",
            "properties": inputs,
            "required": ["codes", *changes.pop("required", [])],
        },
        "outputSchema": {
            "type": "object",
            "properties": {
                "bars": {"type": "array", "items": {"type": "object", "properties": fields}}
            },
        },
        **changes,
    }


@pytest.fixture
def bars() -> Callable[..., dict[str, Any]]:
    """`bars(fields={"close": None})`: the tool, changed."""
    return bars_tool
