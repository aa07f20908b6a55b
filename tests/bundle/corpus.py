"""Broken bundles: the small valid one with ONE fault planted, and what lint must say of it.

Each fault names its rule, its file, a word of the message, and text on the line it is reported for
(empty where a file has no line to point at). Nothing else may be found.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

Plant = Callable[[Path], object]


class Fault(NamedTuple):
    """One planted fault and the one finding it must give.

    Attributes:
        plant: Breaks the draft at the given path.
        rule: Id of the rule.
        path: File the finding names.
        word: A part of its message.
        on: A part of the line it names; empty: it names no line.
        count: How often it is reported.
    """

    plant: Plant
    rule: str
    path: str
    word: str = ""
    on: str = ""
    count: int = 1


def text(name: str, old: str, new: str) -> Plant:
    def do(draft: Path) -> None:
        path = draft / name
        before = path.read_text("utf-8")
        assert old in before, f"{old!r} is not in {name}"
        path.write_text(before.replace(old, new, 1), "utf-8", newline="")

    return do


def data(name: str, *keys: str | int, value: Any) -> Plant:
    """Set a JSON value; `...` deletes it, and `"+"` as the last key appends to a list."""

    def do(draft: Path) -> None:
        path = draft / name
        whole = json.loads(path.read_text("utf-8"))
        node = whole
        for key in keys[:-1]:
            node = node[key]
        if keys[-1] == "+":
            node.append(value)
        elif value is ...:
            del node[keys[-1]]
        else:
            node[keys[-1]] = value
        path.write_text(json.dumps(whole, ensure_ascii=False, indent=2) + "\n", "utf-8")

    return do


def raw(name: str, content: bytes) -> Plant:
    def do(draft: Path) -> None:
        path = draft / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    return do


def both(*plants: Plant) -> Plant:
    """Plant a fault that takes several edits."""

    def do(draft: Path) -> None:
        for plant in plants:
            plant(draft)

    return do


def gone(name: str) -> Plant:
    return lambda draft: (draft / name).unlink()


def linked(name: str, target: str) -> Plant:
    return lambda draft: (draft / name).symlink_to(target)


def manifest(*keys: str | int, value: Any) -> Plant:
    return data("manifest.json", *keys, value=value)


FILTER = "prompts/event_sector_filter.md"
EXPLAIN = "prompts/pick_explanation.md"
ENGINE = "code/signal_engine.py"
SECTORS = "code/helpers/offline_sectors.py"
REASON = "code/helpers/offline_reason.py"
MCP = ("env_lock", "required_mcps", 0)
RULES = ("degradation_policy", "rules")
OFFLINE = "## Offline Quantization Equivalent"
RANK = "5. **Rank and cut**: sort by `score` ascending and keep the first `limit`.\n"
SCREEN = (
    "4. **Screen**: call `code/signal_engine.py::SignalEngine.screen_today` with the sectors.\n"
)
OTHER_SERVER = both(
    manifest(*MCP, "name", value="vibe-trading"),
    text("SKILL.md", "trading-data-cn.get_bars", "vibe-trading.get_bars"),
)


def other_prompt(draft: Path) -> None:
    prompt = (draft / FILTER).read_text("utf-8").replace("event_sector_filter", "other", 1)
    (draft / "prompts/other.md").write_text(prompt, "utf-8")


def before_above(code: str) -> Plant:
    return text(ENGINE, "ABOVE = 0.03", f"{code}\nABOVE = 0.03")


def schema(word: str, *keys: str | int, value: Any, on: str = "") -> Fault:
    """A manifest whose shape is wrong at one key."""
    plant = manifest(*keys, value=value)
    return Fault(plant=plant, rule="manifest.schema", path="manifest.json", word=word, on=on)


def gate(code: str, word: str) -> Fault:
    """An engine with one line that the peer's gate refuses."""
    on = next(line for line in code.split("\n") if line)
    return Fault(plant=before_above(code), rule="code.gate", path=ENGINE, word=word, on=on)


LAYOUT = {
    "no-skill": Fault(plant=gone("SKILL.md"), rule="layout.required", path="SKILL.md"),
    "no-manifest": Fault(
        plant=gone("manifest.json"), rule="layout.required", path="manifest.json"),
    "no-config": Fault(plant=gone("config.json"), rule="layout.required", path="config.json"),
    "no-engine": Fault(plant=gone(ENGINE), rule="layout.required", path=ENGINE),
    "link": Fault(
        plant=linked("references/link.md", "../SKILL.md"), rule="layout.links",
        path="references/link.md"),
    "link-out": Fault(
        plant=linked("references/out", "/etc"), rule="layout.links", path="references/out"),
    "link-to-nothing": Fault(
        plant=linked("references/x", "nowhere"), rule="layout.links", path="references/x"),
    "case-twins": Fault(
        plant=raw("references/GLOSSARY.md", b"x"), rule="layout.names",
        path="references/glossary.md", word="case"),
    "composed-twins": Fault(
        plant=both(raw("references/e\u0301.md", b"x"), raw("references/\u00e9.md", b"x")),
        rule="layout.names", path="references/\u00e9.md", word="composition"),
    "line-break-in-name": Fault(
        plant=raw("references/a\nb.md", b"x"), rule="layout.names", path="references/a\nb.md"),
    "backslash-in-name": Fault(
        plant=raw("references/a\\b.md", b"x"), rule="layout.names", path="references/a\\b.md"),
    "name-without-encoding": Fault(
        plant=raw(os.fsdecode(b"references/\xff.md"), b"x"), rule="layout.names",
        path=os.fsdecode(b"references/\xff.md")),
    "pipe": Fault(
        plant=lambda draft: os.mkfifo(draft / "references/pipe"), rule="layout.names",
        path="references/pipe"),
    "bom": Fault(
        plant=raw("reason_template.md", b"\xef\xbb\xbfx\n"), rule="layout.text",
        path="reason_template.md", word="BOM", on="x"),
    "bom-in-skill": Fault(
        plant=text("SKILL.md", "---\nname", "\ufeff---\nname"), rule="layout.text",
        path="SKILL.md", word="BOM", on="---"),
    "crlf": Fault(
        plant=raw("reason_template.md", b"a\nb\r\n"), rule="layout.text",
        path="reason_template.md", word="CRLF", on="b"),
    "nul": Fault(
        plant=raw("notes.md", b"a\n\0\n"), rule="layout.text", path="notes.md",
        word="NUL", on="\0"),
    "gbk": Fault(
        plant=raw("reason_template.md", "a\n模板\n".encode("gbk")), rule="layout.text",
        path="reason_template.md", word="UTF-8", on="\ufffd"),
    "folders-without-end": Fault(
        plant=raw(f"references/{'a/' * 40}x.md", b"x"), rule="layout.names",
        path="references/" + "a/" * 15 + "a"),
    "name-too-long": Fault(
        plant=raw(f"references/{'长' * 70}.md", b"x"), rule="layout.names",
        path=f"references/{'长' * 70}.md"),
    "terminal-escape": Fault(
        plant=text("SKILL.md", "a little above", "a little \x1b[31mabove"), rule="layout.text",
        path="SKILL.md", word="U+001B", on="\x1b[31m"),
    "text-turned-round": Fault(
        plant=raw("code/helpers/turned.py", "x = 1\ny = 2  # \u202e1\n".encode()),
        rule="layout.text", path="code/helpers/turned.py", word="U+202E", on="y = 2"),
    "key": Fault(
        plant=text("SKILL.md", "a little above", f"a little (`sk-{'a1' * 12}`) above"),
        rule="layout.secrets", path="SKILL.md", word="key", on="a1a1"),
    "password-in-address": Fault(
        plant=raw("references/db.md", b"# Data\npostgres://lin:hunter22@db/x\n"),
        rule="layout.secrets", path="references/db.md", word="password", on="hunter22"),
    "huge-prompt": Fault(
        plant=raw(FILTER, b"x" * (10 << 20)), rule="layout.text", path=FILTER, word="10,485,760"),
    "json-twice": Fault(
        plant=text("config.json", '"engine": "daily",', '"engine": "daily",\n "engine": "daily",'),
        rule="layout.json", path="config.json", word="twice"),
    "json-broken": Fault(
        plant=text("config.json", '"engine": "daily",', '"engine": "daily",,'),
        rule="layout.json", path="config.json", on='"daily",,'),
    "json-nan": Fault(
        plant=text("config.json", "1000000", "NaN"), rule="layout.json", path="config.json",
        word="NaN"),
    "json-too-deep": Fault(
        plant=raw("config.json", b"[" * 200_000 + b"]" * 200_000), rule="layout.json",
        path="config.json", word="recursion"),
}  # fmt: skip

MANIFEST = {
    "unknown-key": schema("env_lock", "env_lck", value={}, on='"env_lck"'),
    "unknown-key-in-lock": schema(
        "tools_used", *MCP, "tools_usd", value=[], on='"tools_usd"'),
    "unknown-key-in-step": schema(
        "timeout_sec", "llm_steps", "pick_explanation", "timeout_secs", value=5,
        on='"timeout_secs"'),
    "unknown-key-in-contract": schema(
        "history_days", "data_contract", "histry_days", value=3, on='"histry_days"'),
    "unknown-key-in-limits": schema("", "limits", "max_runtime", value=3, on='"max_runtime"'),
    "unknown-key-in-policy": schema(
        "action", *RULES, 0, "acton", value="skip_step", on='"acton"'),
    "missing-key": schema("limits", "limits", value=..., on="{"),
    "missing-policy": schema("degradation_policy", "degradation_policy", value=..., on="{"),
    "wrong-type": schema(
        "production_max_llm_calls", "limits", "production_max_llm_calls", value="20", on='"20"'),
    "not-an-object": Fault(
        plant=raw("manifest.json", b"[]\n"), rule="manifest.schema", path="manifest.json",
        on="[]"),
    "nothing-at-all": Fault(
        plant=raw("manifest.json", b"null\n"), rule="manifest.schema", path="manifest.json",
        on="null"),
    "newer-schema": schema("schema_version", "schema_version", value="2.0", on='"2.0"'),
    "unknown-zone": schema(
        "zone", "data_contract", "asof_time", value="T 16:30 Asia/Shangha", on="Shangha"),
    "limit-of-no-step": schema(
        "event_sector_filter", "limits", "per_step_max_llm_calls", "event_sector_filtr", value=1,
        on="event_sector_filtr"),
    "same-bar-fill": schema(
        "waiver", "execution", "fill", value="same_close", on='"same_bar_waiver"'),
    "prompt-outside": schema(
        "prompt_path", "llm_steps", "pick_explanation", "prompt_path", value="../x.md",
        on='"../x.md"'),
    "concurrent-without-limit": schema(
        "concurrency_limit", "llm_steps", "pick_explanation", "concurrency_limit", value=...,
        on='"pick_explanation"'),
    "other-id": Fault(
        plant=manifest("strategy_id", value="other-one"), rule="manifest.names",
        path="manifest.json", word="other-one", on='"other-one"'),
    "other-class": Fault(
        plant=manifest("execution", "entry_class", value="Engine"), rule="manifest.names",
        path="manifest.json", word="SignalEngine", on='"Engine"'),
    "no-prompt-file": Fault(
        plant=gone(FILTER), rule="manifest.paths", path="manifest.json", word=FILTER, on=FILTER),
    "no-template": Fault(
        plant=gone("reason_template.md"), rule="manifest.paths", path="manifest.json",
        word="reason_template.md", on='"fallback_template_path"'),
    "no-channel": Fault(
        plant=OTHER_SERVER, rule="manifest.channel", path="manifest.json",
        word="none is assumed", on="{"),
    "other-channel": Fault(
        plant=both(OTHER_SERVER, manifest(*MCP, "channel", value="internal")),
        rule="manifest.channel", path="manifest.json", word="'internal'", on='"channel"'),
    "channel-too-many": Fault(
        plant=manifest(*MCP, "channel", value="x"), rule="manifest.channel",
        path="manifest.json", word="no channels", on='"channel"'),
    "branch-pin": Fault(
        plant=manifest(*MCP, "source", value="git:o/r@main"), rule="manifest.source",
        path="manifest.json", word="pinned", on="@main"),
    "loose-pip": Fault(
        plant=manifest(*MCP, "source", value="pip:x>=1.0.0"), rule="manifest.source",
        path="manifest.json", word="pinned", on="pip:x"),
    "bad-min": Fault(
        plant=manifest(*MCP, "min_version", value="newest"), rule="manifest.min_version",
        path="manifest.json", word="newest", on='"newest"'),
    "bad-baseline": Fault(
        plant=manifest(*MCP, "upstream_baseline", value="0.1.7 or so"),
        rule="manifest.min_version", path="manifest.json", word="specifier", on="or so"),
    "mcp-twice": Fault(
        plant=lambda draft: manifest(
            "env_lock", "required_mcps", "+",
            value=json.loads((draft / "manifest.json").read_text())["env_lock"]["required_mcps"][0],
        )(draft),
        rule="manifest.mcp_twice", path="manifest.json", word="twice", on="trading-data-cn"),
    "llm-key": Fault(
        plant=manifest("env_lock", "required_env", "+",
                       value={"name": "DEEPSEEK_API_KEY", "purpose": "x"}),
        rule="manifest.llm_key", path="manifest.json", word="DEEPSEEK_API_KEY",
        on='"DEEPSEEK_API_KEY"'),
    "unknown-trigger": Fault(
        plant=manifest(*RULES, "+", value={"trigger": "llm_step_faild", "action": "skip_step"}),
        rule="manifest.policy", path="manifest.json", word="llm_step_failed", on="llm_step_faild"),
    "unknown-action": Fault(
        plant=manifest(*RULES, "+", value={"trigger": "news_not_fetched", "action": "ignore"}),
        rule="manifest.policy", path="manifest.json", word="ignore", on='"ignore"'),
    "missing-rule": Fault(
        plant=manifest(*RULES, 5, value=...), rule="manifest.policy", path="manifest.json",
        word="data_freshness_violation", on='"rules"'),
    "no-source": Fault(
        plant=data("config.json", "source", value=...), rule="config.schema", path="config.json",
        word="source", on="{"),
    "kit-typo": Fault(
        plant=data("config.json", "_kit", "parms", value={}), rule="config.schema",
        path="config.json", word="params", on='"parms"'),
    "params-nested": Fault(
        plant=data("config.json", "_kit", "params", "deep", value={"a": 1}), rule="config.schema",
        path="config.json", word="deep", on='"deep"'),
    "no-date": Fault(
        plant=data("config.json", "start_date", value="2023-02-30"), rule="config.dates",
        path="config.json", word="2023-02-30", on='"start_date"'),
    "backwards": Fault(
        plant=data("config.json", "end_date", value="2022-01-01"), rule="config.dates",
        path="config.json", word="after", on='"start_date"'),
}  # fmt: skip

SKILL = {
    "skill-no-front-matter": Fault(
        plant=text("SKILL.md", "---\nname", "name"), rule="skill.front_matter", path="SKILL.md",
        word="front matter", on="name"),
    "skill-yaml-twice": Fault(
        plant=text("SKILL.md", "category:", "name: x\ncategory:"), rule="skill.front_matter",
        path="SKILL.md", word="twice", on="name: x"),
    "skill-yaml-anchor": Fault(
        plant=text("SKILL.md", "category: strategy", "category: &a strategy\nx: *a"),
        rule="skill.front_matter", path="SKILL.md", word="anchors", on="*a"),
    "skill-yaml-control": Fault(
        plant=text("SKILL.md", "category: strategy", "category: stra\x01tegy"),
        rule="skill.front_matter", path="SKILL.md", word="special characters", on="category"),
    "skill-category": Fault(
        plant=text("SKILL.md", "category: strategy", "category: x"), rule="skill.front_matter",
        path="SKILL.md", word="category", on="category"),
    "skill-name": Fault(
        plant=text("SKILL.md", "name: tiny-pullback", "name: other"), rule="skill.names",
        path="SKILL.md", word="other", on="name: other"),
    "no-purpose": Fault(
        plant=text("SKILL.md", "## Purpose", "## Goal"), rule="skill.section", path="SKILL.md",
        word="purpose"),
    "no-provenance": Fault(
        plant=text("SKILL.md", "## Provenance", "### Provenance"), rule="skill.section",
        path="SKILL.md", word="provenance"),
    "stub": Fault(
        plant=text("SKILL.md", "Bars of the universe go in; a list of `Pick` comes out, at most "
                   "`limit` of them.", "TODO"),
        rule="skill.stub", path="SKILL.md", word="says nothing", on="## Inputs / Outputs"),
    "lost-stage": Fault(
        plant=text("SKILL.md", RANK, ""), rule="skill.flow", path="SKILL.md", word="rank",
        on="### Daily flow"),
    "wrong-order": Fault(
        plant=text("SKILL.md", SCREEN + RANK, RANK + SCREEN), rule="skill.flow", path="SKILL.md",
        word="screen comes after rank", on="4. **Screen**"),
    "stage-twice": Fault(
        plant=text("SKILL.md", RANK, RANK + RANK), rule="skill.flow", path="SKILL.md",
        word="twice", on="**Rank and cut**"),
    "unknown-stage": Fault(
        plant=text("SKILL.md", RANK, RANK + "6. **Dream**: of `limit`.\n"), rule="skill.flow",
        path="SKILL.md", word="names no stage", on="**Dream**"),
    "stage-without-tool": Fault(
        plant=text("SKILL.md", "sort by `score` ascending and keep the first `limit`",
                   "sort and keep the first few"),
        rule="skill.flow", path="SKILL.md", word="names no tool", on="first few"),
    "no-backtest-flow": Fault(
        plant=text("SKILL.md", "### Backtest flow", "### Other"), rule="skill.backtest",
        path="SKILL.md", word="backtest"),
    "dead-reference": Fault(
        plant=text("SKILL.md", "a little above", "a little (`docs/rule.txt`) above"),
        rule="skill.reference", path="SKILL.md", word="docs/rule.txt",
        on="docs/rule.txt"),
    "dead-paper": Fault(
        plant=text("SKILL.md", "a little above", "a little (`references/none.md`) above"),
        rule="skill.reference", path="SKILL.md", word="references/none.md",
        on="references/none.md"),
    "dead-prompt": Fault(
        plant=text("SKILL.md", "a little above", "a little (`prompts/explain.md`) above"),
        rule="skill.reference", path="SKILL.md", word="prompts/explain.md",
        on="prompts/explain.md"),
    "dead-function": Fault(
        plant=text("SKILL.md", "a little above", "a little (`code/signal_engine.py::gap`) above"),
        rule="skill.reference", path="SKILL.md", word="defines no gap", on="::gap"),
    "dead-method": Fault(
        plant=text("SKILL.md", "a little above", "a little (`SignalEngine.screen`) above"),
        rule="skill.reference", path="SKILL.md", word="screen", on="SignalEngine.screen"),
    "unlocked-server": Fault(
        plant=text("SKILL.md", "trading-data-cn.get_bars", "historical-news-cn.get_bars"),
        rule="skill.reference", path="SKILL.md", word="historical-news-cn", on="1. **Data**"),
    "unlocked-tool": Fault(
        plant=text("SKILL.md", "trading-data-cn.get_bars", "trading-data-cn.get_bar"),
        rule="skill.reference", path="SKILL.md", word="get_bars", on="1. **Data**"),
}  # fmt: skip

PROMPTS = {
    "prompt-yaml": Fault(
        plant=text(FILTER, "output_schema:", "input_schema:"), rule="prompt.front_matter",
        path=FILTER, word="twice", on="input_schema:"),
    "prompt-unknown-key": Fault(
        plant=text(FILTER, "model_default:", "modl: x\nmodel_default:"),
        rule="prompt.front_matter", path=FILTER, word="modl", on="modl: x"),
    "prompt-shorthand": Fault(
        plant=text(FILTER, "news_summary: string", "news_summary: strin"),
        rule="prompt.front_matter", path=FILTER, word="news_summary", on="strin"),
    "prompt-id": Fault(
        plant=text(FILTER, "prompt_id: event_sector_filter", "prompt_id: sector_filter"),
        rule="prompt.names", path=FILTER, word="sector_filter", on="prompt_id:", count=2),
    "prompt-mode": Fault(
        plant=text(EXPLAIN, "invocation_mode: per_pick_concurrent", "invocation_mode: single"),
        rule="prompt.names", path=EXPLAIN, word="invocation_mode", on="invocation_mode:"),
    "prompt-unused": Fault(
        plant=other_prompt, rule="prompt.unused", path="prompts/other.md", word="no LLM step"),
    "no-offline": Fault(
        plant=text(FILTER, OFFLINE, "## Offline"), rule="prompt.section", path=FILTER,
        word="offline quantization equivalent"),
    "no-task": Fault(
        plant=text(FILTER, "## Task", "## Job"), rule="prompt.section", path=FILTER, word="task"),
    "prompt-stub": Fault(
        plant=text(FILTER, "A JSON object with the summary of the news and the markets to look "
                   "at.", "TBD"),
        rule="prompt.section", path=FILTER, word="says nothing", on="## Input Format"),
    "bad-example": Fault(
        plant=text(FILTER, '"focus_sectors": ["航天"]', '"focus_sectors": "航天"'),
        rule="prompt.example", path=FILTER, word="focus_sectors", on="## Output Format"),
    "no-quality": Fault(
        plant=text(FILTER, "quality: approximate\n", ""), rule="prompt.offline", path=FILTER,
        word="quality", on=OFFLINE),
    "odd-quality": Fault(
        plant=text(FILTER, "quality: approximate", "quality: good"), rule="prompt.offline",
        path=FILTER, word="good", on=OFFLINE),
    "no-callable": Fault(
        plant=text(FILTER, f"callable: `{SECTORS}::sectors_in_news`\n", ""),
        rule="prompt.offline", path=FILTER, word="callable", on=OFFLINE),
    "no-differences": Fault(
        plant=text(FILTER, "- It counts words, and sees no meaning.\n", ""),
        rule="prompt.offline", path=FILTER, word="differences", on=OFFLINE),
    "dead-callable": Fault(
        plant=text(FILTER, "::sectors_in_news", "::sectors_in_new"), rule="prompt.callable",
        path=FILTER, word="sectors_in_news", on=OFFLINE),
    "no-helper": Fault(
        plant=gone(SECTORS), rule="prompt.callable", path=FILTER, word="missing", on=OFFLINE),
    "callable-import": Fault(
        plant=text(SECTORS, "SECTORS =", "import nowhere\nSECTORS ="), rule="prompt.callable",
        path=FILTER, word="nowhere", on=OFFLINE),
    "callable-raises": Fault(
        plant=text(REASON, 'inputs["pick"]', 'inputs["pck"]'), rule="prompt.callable",
        path=REASON, word="KeyError", on='inputs["pck"]'),
    "callable-exits": Fault(
        plant=text(REASON, 'inputs["pick"]', "exit(0)"), rule="prompt.callable",
        path=REASON, word="SystemExit", on="exit(0)"),
    "callable-off-schema": Fault(
        plant=text(REASON, '"medium"', '"Medium"'), rule="prompt.callable", path=EXPLAIN,
        word="confidence", on=OFFLINE),
}  # fmt: skip

CODE = {
    "syntax": Fault(
        plant=text(ENGINE, "ABOVE = 0.03", "ABOVE = = 0.03"), rule="code.syntax", path=ENGINE,
        word="syntax", on="ABOVE = = 0.03"),
    "nested-without-end": Fault(
        plant=raw("code/helpers/deep.py", b"x = " + b"-" * 50_000 + b"1\n"), rule="code.syntax",
        path="code/helpers/deep.py", word="syntax", on="x = "),
    "helper-syntax": Fault(
        plant=raw("code/helpers/bad.py", b"def f(:\n"), rule="code.syntax",
        path="code/helpers/bad.py", word="syntax", on="def f(:"),
    "decorator": Fault(
        plant=before_above("import functools\n\n\n@functools.cache\ndef f():\n    return 1\n"),
        rule="code.gate", path=ENGINE, word="decorator", on="@functools.cache"),
    "module-if": gate('if __name__ == "__main__":\n    x = 1', "if"),
    "module-try": gate("try:\n    import os\nexcept ImportError:\n    pass", "try"),
    "module-call": gate("print(1)", "call"),
    "module-loop": gate("for x in ():\n    pass", "for"),
    "computed-assignment": gate("HALF = 1 / 2", "assignment"),
    "computed-default": gate("def f(x=len('a')):\n    return x", "default"),
    "sibling": gate("from helpers import x", "helpers"),
    "relative-import": gate("from . import x", "relative"),
    "kit-import": gate("import kit", "kit"),
    "other-package": gate("import polars", "polars"),
    "reads-environment": Fault(
        plant=text(ENGINE, "        signals = {}", "        import os\n        os.getenv('x')\n"
                   "        signals = {}"),
        rule="code.gate", path=ENGINE, word="os.getenv", on="os.getenv"),
    "starts-process": Fault(
        plant=text(ENGINE, "        signals = {}", "        import subprocess\n"
                   "        signals = {}"),
        rule="code.gate", path=ENGINE, word="subprocess", on="import subprocess"),
    "lost-method": Fault(
        plant=text(ENGINE, "def screen_today", "def screen_tody"), rule="code.engine",
        path=ENGINE, word="screen_today"),
    "constructor": Fault(
        plant=text(ENGINE, "    def params(self)",
                   "    def __init__(self, x):\n        self.x = x\n\n    def params(self)"),
        rule="code.engine", path=ENGINE, word="failed", on="def __init__"),
    "constructor-raises": Fault(
        plant=text(ENGINE, "    def params(self)",
                   "    def __init__(self):\n        self.x = {}['y']\n\n    def params(self)"),
        rule="code.engine", path=ENGINE, word="KeyError", on="{}['y']"),
}  # fmt: skip

FAULTS: dict[str, Fault] = {**LAYOUT, **MANIFEST, **SKILL, **PROMPTS, **CODE}
