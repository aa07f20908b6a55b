from __future__ import annotations

import copy
import json
from datetime import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kit.bundle.manifest import Manifest
from kit.bundle.prompt import Prompt
from kit.bundle.skill import SkillDoc
from kit.errors import BundleError


@pytest.fixture
def value(builder: ModuleType) -> dict[str, Any]:
    return copy.deepcopy(builder.manifest("tiny-pullback"))


def put(value: dict[str, Any], dotted: str, new: Any) -> None:
    node: Any = value
    *parents, last = [int(p) if p.isdigit() else p for p in dotted.split(".")]
    for part in parents:
        node = node[part]
    if new is ...:
        del node[last]
    else:
        node[last] = new


def test_a_manifest_becomes_types(value: dict[str, Any]) -> None:
    manifest = Manifest.from_dict(value)
    assert manifest.execution.entry_method == "generate"
    assert manifest.env_lock.required_mcps[0].tools_used[0].tool_name == "get_bars"
    assert manifest.env_lock.channel is None
    step = manifest.llm_steps["pick_explanation"]
    assert (step.per_pick, step.concurrency_limit, step.timeout_sec) == (True, 7, 20)
    assert not manifest.llm_steps["event_sector_filter"].per_pick
    assert manifest.limits.max_calls("pick_explanation") == 10
    assert manifest.limits.max_calls("other") == 20
    assert manifest.data_contract.market == "cn"
    assert manifest.data_contract.selector == {"kind": "sample"}
    moment, zone = manifest.data_contract.asof
    assert (moment, zone.key) == (time(16, 30), "Asia/Shanghai")


@pytest.mark.parametrize(
    ("word", "zone"),
    [("CST", "Asia/Shanghai"), ("HKT", "Asia/Hong_Kong"), ("ET", "America/New_York")],
)
def test_short_zone_words(value: dict[str, Any], word: str, zone: str) -> None:
    put(value, "data_contract.asof_time", f"T 16:30 {word}")
    assert Manifest.from_dict(value).data_contract.asof[1].key == zone


@pytest.mark.parametrize(
    ("dotted", "new", "path", "word"),
    [
        ("env_lock.required_mcps.0.min_versoin", "1", "env_lock.required_mcps[0].min_versoin",
         "min_version"),
        ("env_lock.required_mcp", [], "env_lock.required_mcp", "required_mcps"),
        ("env_lock.required_mcps", ..., "env_lock.required_mcps", "missing"),
        ("env_lock.required_mcps.0.tools_used", [], "env_lock.required_mcps[0].tools_used", ""),
        ("version", "1.0", "version", "match"),
        ("version", 1.0, "version", "string"),
        ("strategy_id", "Tiny", "strategy_id", "match"),
        ("schema_version", "2.0", "schema_version", "1.0"),
        ("limits.production_max_llm_calls", True, "limits.production_max_llm_calls", "integer"),
        ("limits.production_runtime_sec", 0, "limits.production_runtime_sec", "minimum"),
        ("limits.per_step_max_llm_calls", {"pick_explanatio": 1},
         "limits.per_step_max_llm_calls.pick_explanatio", "pick_explanation"),
        ("llm_steps.pick_explanation.prompt_path", "../x.md",
         "llm_steps.pick_explanation.prompt_path", ""),
        ("llm_steps.pick_explanation.prompt_path", "/etc/passwd",
         "llm_steps.pick_explanation.prompt_path", ""),
        ("llm_steps.pick_explanation.concurrency_limit", ...,
         "llm_steps.pick_explanation.concurrency_limit", "missing"),
        ("llm_steps.pick_explanation.timeout_sec", ..., "llm_steps.pick_explanation.timeout_sec",
         "missing"),
        ("execution.fill", "same_close", "execution.same_bar_waiver", "string"),
        ("execution.entry_module", "code/x.py", "execution.entry_module", ""),
        ("data_contract.asof_time", "T 25:00 CST", "data_contract.asof_time", ""),
        ("data_contract.asof_time", "T 16:30 Asia/Shangha", "data_contract.asof_time", "Shanghai"),
        ("data_contract.universe.bords", ["主板"], "data_contract.universe.bords", "boards"),
        ("provenance.git_comit", "x", "provenance.git_comit", "git_commit"),
        ("checksums_path", "sums.txt", "checksums_path", ""),
        ("degradation_policy.rules.0.tigger", "x", "degradation_policy.rules[0].tigger", "trigger"),
    ],
)  # fmt: skip
def test_every_mistake_has_a_dotted_path(
    value: dict[str, Any], dotted: str, new: Any, path: str, word: str
) -> None:
    put(value, dotted, new)
    with pytest.raises(BundleError) as error:
        Manifest.from_dict(value)
    assert error.value.code == "bundle.manifest"
    problems = error.value.details["problems"]
    assert [problem["path"] for problem in problems] == [path]
    assert word in problems[0]["message"] + problems[0]["hint"]


def test_all_mistakes_come_at_once(value: dict[str, Any]) -> None:
    put(value, "version", "x")
    put(value, "limits.nope", 1)
    put(value, "skill", ...)
    with pytest.raises(BundleError) as error:
        Manifest.from_dict(value)
    paths = {problem["path"] for problem in error.value.details["problems"]}
    assert paths == {"version", "limits.nope", "skill"}


def test_x_keys_pass_everywhere(value: dict[str, Any]) -> None:
    for place in (
        "x-note",
        "env_lock.x-a",
        "env_lock.required_mcps.0.x-b",
        "llm_steps.pick_explanation.x-c",
        "data_contract.x-d",
        "provenance.x-e",
    ):
        put(value, place, {"free": 1})
    assert Manifest.from_dict(value).raw["x-note"] == {"free": 1}


@pytest.mark.parametrize("wrong", [None, [], "x", 1])
def test_a_manifest_must_be_an_object(wrong: Any) -> None:
    with pytest.raises(BundleError):
        Manifest.from_dict(wrong)


def test_a_prompt_is_read(draft: Path) -> None:
    prompt = Prompt.parse(draft / "prompts/pick_explanation.md")
    assert prompt.prompt_id == "pick_explanation"
    assert prompt.body.startswith("# Explanation\n")
    assert prompt.fallback_template == "reason_template.md"
    assert prompt.output_schema["properties"]["confidence"]["enum"] == ["high", "medium", "low"]
    assert prompt.offline is not None
    assert prompt.offline.quality == "exact"
    assert prompt.offline.reference == "code/helpers/offline_reason.py::reason"
    other = Prompt.read(draft, "prompts/event_sector_filter.md")
    assert other.offline is not None
    assert other.offline.differences == ("It counts words, and sees no meaning.",)


@pytest.mark.parametrize(
    ("old", "new", "code", "line"),
    [
        ("model_default:", "model_defalt:", "bundle.prompt", 9),
        ("  rationale: string", "  rationale: sting", "prompt.shorthand", 8),
        ("prompt_id: event_sector_filter", "prompt_id: Event Filter", "bundle.prompt", 2),
        ("---\nprompt_id", "prompt_id", "bundle.front_matter", 1),
    ],
)
def test_a_bad_prompt_names_its_line(draft: Path, old: str, new: str, code: str, line: int) -> None:
    path = draft / "prompts/event_sector_filter.md"
    path.write_text(path.read_text("utf-8").replace(old, new, 1), "utf-8")
    with pytest.raises(BundleError) as error:
        Prompt.read(draft, "prompts/event_sector_filter.md")
    assert error.value.code == code
    assert error.value.where == f"tiny-pullback/draft/prompts/event_sector_filter.md:{line}"


@pytest.mark.parametrize(
    ("fallback", "expected"),
    [
        ("reason_template.md", "reason_template.md"),
        ("../reason_template.md", "reason_template.md"),
        ("{path: ../reason_template.md}", "reason_template.md"),
        ("./x.md", "prompts/x.md"),
        ("../../x.md", "../x.md"),
    ],
)
def test_fallback_paths_are_made_relative_to_the_bundle(
    draft: Path, fallback: str, expected: str
) -> None:
    path = draft / "prompts/pick_explanation.md"
    text = path.read_text("utf-8").replace("../reason_template.md", fallback, 1)
    path.write_text(text, "utf-8")
    assert Prompt.parse(path).fallback_template == expected


def test_a_skill_is_read(draft: Path) -> None:
    skill = SkillDoc.parse(draft / "SKILL.md")
    assert (skill.name, skill.version, skill.title) == ("tiny-pullback", "0.1.0", "小战法")
    assert [item.number for item in skill.daily_steps] == [1, 2, 3, 4, 5, 6, 7]
    assert skill.backtest_flow is not None
    assert skill.section("inputs / outputs") is not None
    assert any(span == "picks.json" for _, span in skill.spans)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("category: strategy", "category: data"),
        ("version: 0.1.0", "version: 0.1"),
        ("name: tiny-pullback\n", ""),
        ("name: tiny-pullback", "name: tiny-pullback\nauthor: me"),
    ],
)
def test_a_bad_skill_is_refused(draft: Path, old: str, new: str) -> None:
    path = draft / "SKILL.md"
    path.write_text(path.read_text("utf-8").replace(old, new, 1), "utf-8")
    with pytest.raises(BundleError) as error:
        SkillDoc.read(draft)
    assert error.value.code == "bundle.skill"


def test_the_shipped_schemas_agree_with_the_small_bundle(value: dict[str, Any]) -> None:
    assert Manifest.from_dict(json.loads(json.dumps(value))).raw == value


def test_context_names_the_series_of_other_markets(value: dict[str, Any]) -> None:
    assert Manifest.from_dict(value).data_contract.context == {}
    put(value, "data_contract.context", [{"market": "us", "symbols": ["AAPL", "NVDA"]}])
    assert Manifest.from_dict(value).data_contract.context == {"us": ("AAPL", "NVDA")}


@pytest.mark.parametrize(
    ("context", "place"),
    [
        ([{"market": "cn", "symbols": ["600000.SH"]}], "data_contract.context[0].market"),
        ([{"market": "us", "symbols": ["A"]}] * 2, "data_contract.context[1].market"),
        ([{"market": "jp", "symbols": ["A"]}], "data_contract.context[0].market"),
        ([{"market": "us", "symbols": []}], "data_contract.context[0].symbols"),
        ([{"market": "us", "symbol": ["A"]}], "data_contract.context[0]"),
    ],
)
def test_a_context_that_cannot_be_is_named(
    value: dict[str, Any], context: list[dict[str, Any]], place: str
) -> None:
    put(value, "data_contract.context", context)
    with pytest.raises(BundleError) as caught:
        Manifest.from_dict(value)
    assert any(found["path"].startswith(place) for found in caught.value.details["problems"])
