"""Lint rules on `SKILL.md`: an agent that follows it must end where the screen ends."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from kit.bundle import layout
from kit.bundle.flow import daily_stages, stage_of
from kit.bundle.lint_context import Context, Hit, Rule, line_in
from kit.bundle.markdown import code_spans, is_stub
from kit.bundle.skill import SECTIONS
from kit.schemas import suggestion

__all__ = ["RULES"]

_FILE = re.compile(r"(?:[\w.-]+/)*[\w.-]+\.(?:md|json|jsonl|py|txt|ipynb|csv|html)", re.ASCII)
_FOLDER = re.compile(r"(?:[\w.-]+/)+", re.ASCII)
_TOOL = re.compile(r"([a-z][a-z0-9]*(?:-[a-z0-9]+)*)\.([a-z_][a-z0-9_]*)", re.ASCII)
_METHOD = re.compile(r"([A-Z]\w*)\.([A-Za-z_]\w*)", re.ASCII)
# Written at freeze, by a run, or only present once the strategy has been worked on.
_GENERATED = (
    "picks.json", "card.json", "run.json", "report.html",
    "backtests/", "conversations/", "schemas/", "REGISTRY.md", "INDEX.json",
    layout.CHANGELOG, layout.CHECKSUMS, layout.NOTEBOOK,
)  # fmt: skip


def _front_matter(context: Context) -> Iterator[Hit]:
    error = context.problems.get(layout.SKILL)
    if error is not None and error.code in {"bundle.skill", "bundle.front_matter"}:
        yield _hit(error.message, line_in(error))


def _names(context: Context) -> Iterator[Hit]:
    skill = context.skill
    if skill is None:
        return
    if skill.name != context.strategy_id:
        message = f"name is {skill.name!r}, the strategy {context.strategy_id!r}"
        yield _hit(message, skill.lines.get("name"))
    version = layout.version_of(context.root)
    if not context.draft and version is not None and skill.version != str(version):
        message = f"version is {skill.version}, the directory {version}"
        yield _hit(message, skill.lines.get("version"))


def _sections(context: Context) -> Iterator[Hit]:
    skill = context.skill
    for key in SECTIONS if skill else ():
        if skill and skill.section(key) is None:
            yield _hit(f"section {key!r} is missing", None)


def _stubs(context: Context) -> Iterator[Hit]:
    skill = context.skill
    for key in SECTIONS if skill else ():
        section = skill.section(key) if skill else None
        if section is not None and is_stub(section.text):
            yield _hit(f"section {section.title!r} says nothing yet", section.line)


def _flow(context: Context) -> Iterator[Hit]:
    skill, manifest = context.skill, context.manifest
    if skill is None or manifest is None:
        return
    stages = daily_stages(manifest)
    order = " -> ".join(stage.name for stage in stages if stage.required)
    flow = skill.daily_flow
    if flow is None or not skill.daily_steps:
        yield _hit("How to Invoke has no numbered daily flow", flow.line if flow else None)
        return
    last = -1
    listed = set()
    for item in skill.daily_steps:
        stage = stage_of(item, stages)
        if stage is None:
            yield _hit(
                f"entry {item.number} of the daily flow names no stage",
                item.line,
                "begin it with the stage in bold, or name its prompt or method in backticks; "
                f"the stages: {', '.join(stage.name for stage in stages)}",
            )
            continue
        position = stages.index(stage)
        if stage.name in listed:
            yield _hit(f"stage {stage.name} is listed twice", item.line)
        elif position < last:
            before = stages[last].name
            yield _hit(f"stage {stage.name} comes after {before}", item.line, f"order: {order}")
        last = max(last, position)
        listed.add(stage.name)
        if not code_spans(item.text):
            yield _hit(
                f"entry {item.number} of the daily flow names no tool, prompt or function",
                item.line,
                "name in backticks what carries it out",
            )
    for stage in stages:
        if stage.required and stage.name not in listed:
            yield _hit(f"the daily flow lacks stage {stage.name}", flow.line, f"order: {order}")


def _backtest(context: Context) -> Iterator[Hit]:
    skill, manifest = context.skill, context.manifest
    if skill is None or manifest is None:
        return
    flow = skill.backtest_flow
    if flow is None:
        yield _hit("How to Invoke has no backtest flow", None)
        return
    spans = [span for _, span in code_spans(flow.text)]
    method = manifest.execution.entry_method
    if not any(re.search(rf"\b(?:{re.escape(method)}|backtest)\b", span) for span in spans):
        message = f"the backtest flow names neither `{method}` nor a backtest command or tool"
        yield _hit(message, flow.line)


def _references(context: Context) -> Iterator[Hit]:
    for line, span in context.skill.spans if context.skill else ():
        problem = _unknown(context, span.partition("(")[0])
        if problem:
            yield _hit(problem, line)


def _unknown(context: Context, span: str) -> str | None:
    """Say what is wrong with a code span that names a file, a tool or a method; None if nothing."""
    path, double, name = span.partition("::")
    if _FILE.fullmatch(path):
        if path not in context.tree.files:
            if path.startswith(_GENERATED) or path in _owed(context):
                return None  # not written yet, or layout.required and manifest.paths say so
            hint = suggestion(path, context.tree.files)
            return f"{path} is not in the bundle{'; ' if hint else ''}{hint}"
        owed = name in _entries(context)
        if double and not owed and not _defines(context.trees.get(path), name):
            return f"{path} defines no {name}"
        return None
    if _FOLDER.fullmatch(span):
        there = any(file.startswith(span) for file in context.tree.files)
        return None if there or span.startswith(_GENERATED) else f"{span} is not in the bundle"
    method = _METHOD.fullmatch(span)
    if method:
        tree = context.trees.get(layout.ENGINE)
        known = tree is None or not _defines(tree, method[1]) or _defines(tree, span)
        known = known or span in _entries(context)
        return None if known else f"class {method[1]} has no {method[2]}"
    tool = _TOOL.fullmatch(span)
    return _unknown_tool(context, tool[1], tool[2]) if tool else None


def _owed(context: Context) -> set[str]:
    """Files whose absence another rule reports."""
    steps = context.manifest.llm_steps.values() if context.manifest else ()
    return {*layout.DRAFT_FILES, *(step.prompt_path for step in steps)}


def _entries(context: Context) -> set[str]:
    """Methods whose absence `code.engine` reports."""
    if context.manifest is None:
        return set()
    run = context.manifest.execution
    return {f"{run.entry_class}.{name}" for name in (run.entry_method, run.screen_method)}


def _unknown_tool(context: Context, server: str, tool: str) -> str | None:
    if context.manifest is None:
        return None
    locked = {mcp.name: mcp for mcp in context.manifest.env_lock.required_mcps}
    if server in locked:
        names = [used.tool_name for used in locked[server].tools_used]
        if tool in names:
            return None
        return f"the lock of {server} has no tool {tool}; {suggestion(tool, names)}".rstrip("; ")
    # A dotted word without a hyphen may be anything (`numpy.nan`); servers carry hyphens.
    return f"{server} is not in env_lock.required_mcps" if "-" in server else None


def _defines(tree: ast.Module | None, name: str) -> bool:
    """Whether a module defines a (dotted) name; a file that does not parse is another rule's."""
    if tree is None:
        return True
    body: list[ast.stmt] = tree.body
    for part in name.split("."):
        node = next(
            (
                node
                for node in body
                if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
                and node.name == part
            ),
            None,
        )
        if node is None:
            return False
        body = node.body
    return True


def _hit(message: str, line: int | None, mend: str | None = None) -> Hit:
    return Hit(path=layout.SKILL, message=message, line=line, mend=mend)


RULES = (
    Rule(
        id="skill.front_matter",
        severity="error",
        what="SKILL.md has front matter: name, description, category: strategy, version.",
        mend="mend the front matter",
        check=_front_matter,
    ),
    Rule(
        id="skill.names",
        severity="error",
        what="Name and version in SKILL.md equal the directories.",
        mend="make SKILL.md and the directory agree",
        check=_names,
    ),
    Rule(
        id="skill.section",
        severity="error",
        what="Purpose, When to Use, How to Invoke, Inputs / Outputs, Dependencies, Provenance.",
        mend="add the section as a second-level heading",
        check=_sections,
    ),
    Rule(
        id="skill.stub",
        severity="error",
        what="Each section says something.",
        mend="write what an agent needs to know there",
        check=_stubs,
    ),
    Rule(
        id="skill.flow",
        severity="error",
        what="The daily flow lists the stages of the screen, in the screen's order.",
        mend="list each stage once, as a numbered entry under How to Invoke",
        check=_flow,
    ),
    Rule(
        id="skill.backtest",
        severity="error",
        what="How to Invoke says how to backtest.",
        mend="add a `### Backtest flow` that names `generate` or `kit backtest`",
        check=_backtest,
    ),
    Rule(
        id="skill.reference",
        severity="error",
        what="Every file, tool and method that SKILL.md names exists.",
        mend="mend the name, or add what it names to the bundle or the lock",
        check=_references,
    ),
)
