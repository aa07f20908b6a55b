from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kit.bundle.findings import Finding, errors_of
from kit.bundle.freeze import FrozenVersion
from kit.bundle.lint import RULES, lint

Breaker = Callable[[Path], None]


def text(name: str, old: str, new: str) -> Breaker:
    def do(draft: Path) -> None:
        path = draft / name
        before = path.read_text("utf-8")
        assert old in before, f"{old!r} is not in {name}"
        path.write_text(before.replace(old, new, 1), "utf-8", newline="")

    return do


def data(name: str, *keys: str | int, value: Any) -> Breaker:
    def do(draft: Path) -> None:
        path = draft / name
        whole = json.loads(path.read_text("utf-8"))
        node = whole
        for key in keys[:-1]:
            node = node[key]
        if value is ...:
            del node[keys[-1]]
        else:
            node[keys[-1]] = value
        path.write_text(json.dumps(whole, ensure_ascii=False, indent=2) + "\n", "utf-8")

    return do


def raw(name: str, content: bytes) -> Breaker:
    def do(draft: Path) -> None:
        path = draft / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    return do


def gone(name: str) -> Breaker:
    return lambda draft: (draft / name).unlink()


def linked(name: str) -> Breaker:
    return lambda draft: (draft / name).symlink_to("SKILL.md")


FILTER = "prompts/event_sector_filter.md"
EXPLAIN = "prompts/pick_explanation.md"
MCP = ("env_lock", "required_mcps", 0)

BROKEN: dict[str, tuple[Breaker, str, str, str]] = {
    # name: (breaker, rule, path, word of the message)
    "no-skill": (gone("SKILL.md"), "layout.required", "SKILL.md", "missing"),
    "no-config": (gone("config.json"), "layout.required", "config.json", "missing"),
    "no-engine": (gone("code/signal_engine.py"), "layout.required", "code/signal_engine.py", ""),
    "link": (linked("references/link.md"), "layout.links", "references/link.md", "link"),
    "case-twins": (raw("references/GLOSSARY.md", b"x"), "layout.names",
                   "references/glossary.md", "case"),
    "line-break-in-name": (raw("references/a\nb.md", b"x"), "layout.names",
                           "references/a\nb.md", "plain"),
    "bom": (raw("reason_template.md", b"\xef\xbb\xbfx\n"), "layout.text",
            "reason_template.md", "BOM"),
    "crlf": (raw("reason_template.md", b"x\r\n"), "layout.text", "reason_template.md", "CRLF"),
    "nul": (raw("prompts/notes.md", b"x\0"), "layout.text", "prompts/notes.md", "NUL"),
    "gbk": (raw("reason_template.md", "模板\n".encode("gbk")), "layout.text",
            "reason_template.md", "UTF-8"),
    "huge-prompt": (raw(FILTER, b"x" * (10 << 20)), "layout.text", FILTER, "10,485,760"),
    "json-twice": (raw("config.json", b'{"codes": [],\n "codes": []}'), "layout.json",
                   "config.json", "twice"),
    "json-broken": (raw("manifest.json", b"{\n"), "layout.json", "manifest.json", ""),
    "unknown-key": (data("manifest.json", "env_lck", value={}), "manifest.schema",
                    "manifest.json", "env_lock"),
    "wrong-type": (data("manifest.json", "limits", "production_max_llm_calls", value="20"),
                   "manifest.schema", "manifest.json", "production_max_llm_calls"),
    "other-id": (data("manifest.json", "strategy_id", value="other-one"), "manifest.names",
                 "manifest.json", "other-one"),
    "other-class": (data("manifest.json", "execution", "entry_class", value="Engine"),
                    "manifest.names", "manifest.json", "SignalEngine"),
    "no-prompt-file": (gone(FILTER), "manifest.paths", "manifest.json", FILTER),
    "no-template": (gone("reason_template.md"), "manifest.paths", "manifest.json",
                    "reason_template.md"),
    "no-channel": (data("manifest.json", *MCP, "name", value="vibe-trading"), "manifest.channel",
                   "manifest.json", "none is assumed"),
    "bad-channel": (data("manifest.json", *MCP, "channel", value="x"), "manifest.channel",
                    "manifest.json", "no channels"),
    "branch-pin": (data("manifest.json", *MCP, "source", value="git:o/r@main"),
                   "manifest.source", "manifest.json", "pinned"),
    "loose-pip": (data("manifest.json", *MCP, "source", value="pip:x>=1.0.0"),
                  "manifest.source", "manifest.json", "pinned"),
    "bad-min": (data("manifest.json", *MCP, "min_version", value="newest"),
                "manifest.min_version", "manifest.json", "newest"),
    "bad-baseline": (data("manifest.json", *MCP, "upstream_baseline", value="0.1.7 or so"),
                     "manifest.min_version", "manifest.json", "specifier"),
    "llm-key": (data("manifest.json", "env_lock", "required_env",
                     value=[{"name": "DEEPSEEK_API_KEY", "purpose": "x"}]),
                "manifest.llm_key", "manifest.json", "DEEPSEEK_API_KEY"),
    "unknown-trigger": (data("manifest.json", "degradation_policy", "rules", 0, "trigger",
                             value="llm_step_faild"),
                        "manifest.policy", "manifest.json", "llm_step_failed"),
    "unknown-action": (data("manifest.json", "degradation_policy", "rules", 0, "action",
                            value="ignore"),
                       "manifest.policy", "manifest.json", "ignore"),
    "missing-rule": (data("manifest.json", "degradation_policy", "rules", 5, value=...),
                     "manifest.policy", "manifest.json", "data_freshness_violation"),
    "no-source": (data("config.json", "source", value=...), "config.schema", "config.json",
                  "source"),
    "kit-typo": (data("config.json", "_kit", "parms", value={}), "config.schema", "config.json",
                 "params"),
    "no-date": (data("config.json", "start_date", value="2023-02-30"), "config.dates",
                "config.json", "2023-02-30"),
    "backwards": (data("config.json", "end_date", value="2022-01-01"), "config.dates",
                  "config.json", "after"),
    "skill-yaml-twice": (text("SKILL.md", "category:", "name: x\ncategory:"),
                         "skill.front_matter", "SKILL.md", "twice"),
    "skill-category": (text("SKILL.md", "category: strategy", "category: x"),
                       "skill.front_matter", "SKILL.md", "category"),
    "skill-name": (text("SKILL.md", "name: tiny-pullback", "name: other"), "skill.names",
                   "SKILL.md", "other"),
    "no-purpose": (text("SKILL.md", "## Purpose", "## Goal"), "skill.section", "SKILL.md",
                   "purpose"),
    "stub": (text("SKILL.md", "Bars of the universe go in; a list of `Pick` comes out, at most "
                  "`limit` of them.", "TODO"),
             "skill.stub", "SKILL.md", "says nothing"),
    "lost-stage": (text("SKILL.md", "5. **Rank and cut**: sort by `score` ascending and keep the "
                        "first `limit`.\n", ""),
                   "skill.flow", "SKILL.md", "rank"),
    "wrong-order": (text("SKILL.md", "1. **Data**", "1. **Report**"), "skill.flow", "SKILL.md",
                    "after"),
    "unknown-stage": (text("SKILL.md", "2. **News**: collect the news", "2. **Dream**: collect it"),
                      "skill.flow", "SKILL.md", "names no stage"),
    "stage-without-tool": (text("SKILL.md", "sort by `score` ascending and keep the first `limit`",
                                "sort and keep the first few"),
                           "skill.flow", "SKILL.md", "names no tool"),
    "no-backtest-flow": (text("SKILL.md", "### Backtest flow", "### Other"), "skill.backtest",
                         "SKILL.md", "backtest"),
    "dead-reference": (text("SKILL.md", "prompts/pick_explanation.md", "prompts/explain.md"),
                       "skill.reference", "SKILL.md", "prompts/explain.md"),
    "dead-method": (text("SKILL.md", "SignalEngine.screen_today", "SignalEngine.screen"),
                    "skill.reference", "SKILL.md", "screen"),
    "unlocked-server": (text("SKILL.md", "trading-data-cn.get_bars", "historical-news-cn.get_bars"),
                        "skill.reference", "SKILL.md", "historical-news-cn"),
    "unlocked-tool": (text("SKILL.md", "trading-data-cn.get_bars", "trading-data-cn.get_bar"),
                      "skill.reference", "SKILL.md", "get_bars"),
    "prompt-yaml": (text(FILTER, "output_schema:", "input_schema:"), "prompt.front_matter", FILTER,
                    "twice"),
    "prompt-shorthand": (text(FILTER, "news_summary: string", "news_summary: strin"),
                         "prompt.front_matter", FILTER, "news_summary"),
    "prompt-id": (text(FILTER, "prompt_id: event_sector_filter", "prompt_id: sector_filter"),
                  "prompt.names", FILTER, "sector_filter"),
    "prompt-mode": (text(EXPLAIN, "invocation_mode: per_pick_concurrent",
                         "invocation_mode: single"),
                    "prompt.names", EXPLAIN, "invocation_mode"),
    "prompt-unused": (lambda draft: raw("prompts/other.md", (draft / FILTER).read_bytes())(draft),
                      "prompt.unused", "prompts/other.md", "no LLM step"),
    "no-offline": (text(FILTER, "## Offline Quantization Equivalent", "## Offline"),
                   "prompt.section", FILTER, "offline quantization equivalent"),
    "no-task": (text(FILTER, "## Task", "## Job"), "prompt.section", FILTER, "task"),
    "prompt-stub": (text(FILTER, "A JSON object with the summary of the news and the markets to "
                         "look at.", "TBD"),
                    "prompt.section", FILTER, "says nothing"),
    "bad-example": (text(FILTER, '"focus_sectors": ["航天"]', '"focus_sectors": "航天"'),
                    "prompt.example", FILTER, "focus_sectors"),
    "no-quality": (text(FILTER, "quality: approximate\n", ""), "prompt.offline", FILTER, "quality"),
    "odd-quality": (text(FILTER, "quality: approximate", "quality: good"), "prompt.offline", FILTER,
                    "good"),
    "no-callable": (text(FILTER, "callable: `code/helpers/offline_sectors.py::sectors_in_news`\n",
                         ""),
                    "prompt.offline", FILTER, "callable"),
    "no-differences": (text(FILTER, "- It counts words, and sees no meaning.\n", ""),
                       "prompt.offline", FILTER, "differences"),
    "dead-callable": (text(FILTER, "::sectors_in_news", "::sectors_in_new"), "prompt.callable",
                      FILTER, "sectors_in_news"),
    "callable-import": (text("code/helpers/offline_sectors.py", "SECTORS =",
                             "import nowhere\nSECTORS ="),
                        "prompt.callable", FILTER, "nowhere"),
    "callable-raises": (text("code/helpers/offline_reason.py", 'inputs["pick"]', 'inputs["pck"]'),
                        "prompt.callable", "code/helpers/offline_reason.py", "KeyError"),
    "callable-off-schema": (text("code/helpers/offline_reason.py", '"medium"', '"Medium"'),
                            "prompt.callable", EXPLAIN, "confidence"),
    "syntax": (text("code/signal_engine.py", "ABOVE = 0.03", "ABOVE = = 0.03"), "code.syntax",
               "code/signal_engine.py", "syntax"),
    "helper-syntax": (raw("code/helpers/bad.py", b"def f(:\n"), "code.syntax",
                      "code/helpers/bad.py", "syntax"),
    "decorator": (text("code/signal_engine.py", "class Pick",
                       "import functools\n\n\n@functools.cache\n"
                       "def cached():\n    return 1\n\n\nclass Pick"),
                  "code.gate", "code/signal_engine.py", "decorator"),
    "main-block": (text("code/signal_engine.py", "ABOVE = 0.03",
                        'if __name__ == "__main__":\n    x = 1\n'
                        "ABOVE = 0.03"),
                   "code.gate", "code/signal_engine.py", "if"),
    "sibling": (text("code/signal_engine.py", "import json", "import json\nfrom helpers import x"),
                "code.gate", "code/signal_engine.py", "helpers"),
    "lost-method": (text("code/signal_engine.py", "def screen_today", "def screen_tody"),
                    "code.engine", "code/signal_engine.py", "screen_today"),
    "constructor": (text("code/signal_engine.py", "    def params(self)",
                         "    def __init__(self, x):\n        self.x = x\n\n    def params(self)"),
                    "code.engine", "code/signal_engine.py", "failed"),
}  # fmt: skip


def test_the_small_bundle_is_clean(draft: Path) -> None:
    assert lint(draft, draft=True) == []


def test_a_frozen_version_is_clean(frozen: FrozenVersion) -> None:
    assert lint(frozen.root, draft=False) == []


@pytest.mark.parametrize("name", list(BROKEN))
def test_a_planted_fault_is_found(draft: Path, name: str) -> None:
    breaker, rule, path, word = BROKEN[name]
    breaker(draft)
    found = lint(draft, draft=True)
    hits = [f for f in found if f.rule == rule and f.path == path and word in f.message]
    assert hits, "\n".join(map(str, found))
    assert all(finding.message and finding.mend for finding in found)


def test_every_rule_of_a_draft_has_a_planted_fault() -> None:
    planted = {rule for _, rule, _, _ in BROKEN.values()}
    elsewhere = {
        "layout.id", "layout.checksums", "layout.changelog", "manifest.provenance",
        "manifest.mcp_twice",
    }  # fmt: skip
    assert planted | elsewhere == {rule.id for rule in RULES}


def test_rule_ids_are_unique_and_explained() -> None:
    assert len({rule.id for rule in RULES}) == len(RULES)
    assert all(rule.what.endswith(".") and rule.mend for rule in RULES)


def test_findings_come_all_at_once_with_their_lines(draft: Path) -> None:
    BROKEN["unknown-key"][0](draft)
    BROKEN["no-purpose"][0](draft)
    BROKEN["syntax"][0](draft)
    BROKEN["no-quality"][0](draft)
    found = lint(draft, draft=True)
    assert {f.rule for f in found} >= {
        "manifest.schema", "skill.section", "code.syntax", "prompt.offline"
    }  # fmt: skip
    lines = (draft / "manifest.json").read_text("utf-8").splitlines()
    place = next(f for f in found if f.rule == "manifest.schema")
    assert place.line is not None
    assert '"env_lck"' in lines[place.line - 1]


def test_a_typo_hides_no_other_finding(draft: Path) -> None:
    for name in ("unknown-key", "branch-pin", "lost-stage", "unlocked-tool"):
        BROKEN[name][0](draft)
    data("manifest.json", *MCP, "tools_usd", value=[])(draft)
    assert [f.rule for f in lint(draft, draft=True)] == [
        "skill.flow", "skill.reference", "manifest.source", "manifest.schema", "manifest.schema"
    ]  # fmt: skip


def test_a_wrong_type_brings_no_follow_up_findings(draft: Path) -> None:
    BROKEN["wrong-type"][0](draft)
    assert {f.rule for f in lint(draft, draft=True)} == {"manifest.schema"}


def test_a_locked_server_stands_once(draft: Path, builder: ModuleType) -> None:
    mcp = builder.manifest("tiny-pullback")["env_lock"]["required_mcps"][0]
    data("manifest.json", "env_lock", "required_mcps", value=[mcp, mcp])(draft)
    assert [f.rule for f in lint(draft, draft=True)] == ["manifest.mcp_twice"]


@pytest.mark.parametrize(
    "source", ["git:owner/mcps/trading-data-cn@v1.0.3", "pip:trading-data-cn==1.0.3"]
)
def test_pinned_sources_pass(draft: Path, source: str) -> None:
    data("manifest.json", *MCP, "source", value=source)(draft)
    assert lint(draft, draft=True) == []


def test_a_declared_channel_passes(draft: Path) -> None:
    data("manifest.json", *MCP, "name", value="vibe-trading")(draft)
    data("manifest.json", *MCP, "channel", value="internal-a-share")(draft)
    text("SKILL.md", "trading-data-cn.get_bars", "vibe-trading.get_bars")(draft)
    assert lint(draft, draft=True) == []


def test_an_id_is_unique_whatever_the_case(draft: Path) -> None:
    index = {"strategies": {"TINY-pullback": {}, "tiny-pullback": {}}}
    assert [f.rule for f in lint(draft, draft=True, index=index)] == ["layout.id"]


def test_a_directory_with_a_bad_id_is_named(draft: Path) -> None:
    moved = draft.parent.with_name("Bad_Name")
    draft.parent.rename(moved)
    rules = {f.rule for f in lint(moved / "draft", draft=True)}
    assert rules == {"layout.id", "manifest.names", "skill.names"}


def test_a_frozen_version_owes_more(frozen: FrozenVersion) -> None:
    root = frozen.root
    root.chmod(0o755)
    for name in ("CHANGELOG.md", "manifest.json"):
        (root / name).chmod(0o644)
    (root / "CHANGELOG.md").write_text("# Changelog\n")
    data("manifest.json", "provenance", "created_at", value=...)(root)
    data("manifest.json", "version", value="0.1.1")(root)
    rules = {f.rule for f in lint(root, draft=False)}
    assert rules == {
        "layout.changelog",
        "layout.checksums",
        "manifest.provenance",
        "manifest.names",
    }


def test_the_example_in_the_prompt_is_the_sample_input(draft: Path) -> None:
    text(
        FILTER,
        "A JSON object with the summary of the news and the markets to look at.",
        'An object:\n```json\n{"news_summary": "航天", "reference_markets": ["US"]}\n```\n',
    )(draft)
    text(
        "code/helpers/offline_sectors.py",
        "    found =",
        '    assert inputs["reference_markets"] == ["US"]\n    found =',
    )(draft)
    assert lint(draft, draft=True) == []


def test_a_warning_does_not_block(draft: Path) -> None:
    BROKEN["prompt-unused"][0](draft)
    found = lint(draft, draft=True)
    unused = [f for f in found if f.rule == "prompt.unused"]
    assert unused
    assert unused[0] not in errors_of(found)


def test_a_finding_reads_as_a_line_and_as_json() -> None:
    finding = Finding(
        rule="a.b", severity="error", path="x.md", line=3, message="is wrong", mend="mend it"
    )
    assert str(finding) == "x.md:3: error a.b: is wrong"
    assert finding.to_dict()["line"] == 3


def test_nothing_that_the_gate_refuses_is_executed(draft: Path, tmp_path: Path) -> None:
    mark = tmp_path / "executed"
    text(
        "code/signal_engine.py", "ABOVE = 0.03", f"open({str(mark)!r}, 'w').close()\nABOVE = 0.03"
    )(draft)
    assert "code.gate" in {f.rule for f in lint(draft, draft=True)}
    assert not mark.exists()


def test_linting_writes_nothing(draft: Path) -> None:
    before = {p: p.stat().st_mtime_ns for p in draft.rglob("*")}
    lint(draft, draft=True)
    assert {p: p.stat().st_mtime_ns for p in draft.rglob("*")} == before
