"""Lint rules on `manifest.json` and `config.json`: shape, lock, paths, policy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date
from types import MappingProxyType

from kit.bundle import layout
from kit.bundle.gate import ENTRY_CLASS
from kit.bundle.lint_context import Context, Hit, Rule
from kit.bundle.manifest import LockedMcp, Manifest
from kit.errors import BundleError

__all__ = ["CHANNELED_MCPS", "RULES"]

CHANNELED_MCPS = MappingProxyType({"vibe-trading": ("community", "internal-a-share")})
"""Servers that exist in more than one channel: a lock on one must say which."""

_PIN = re.compile(
    r"git:\S+@v\d+(?:\.\d+)*\S*|pip:[A-Za-z0-9][A-Za-z0-9._-]*==\d+\.\d+\.\d+", re.ASCII
)
_LLM_KEY = re.compile(
    r"(?:ANTHROPIC|AZURE|AZURE_OPENAI|COHERE|DASHSCOPE|DEEPSEEK|FIREWORKS|GEMINI|GOOGLE|GROQ"
    r"|HUGGINGFACE|LITELLM|MINIMAX|MISTRAL|MOONSHOT|OPENAI|OPENROUTER|PERPLEXITY|PERPLEXITYAI"
    r"|QWEN|SILICONFLOW|TOGETHER|TOGETHERAI|VOLCENGINE|XAI|ZAI|ZHIPU|ZHIPUAI)_API_(?:KEY|TOKEN)"
)
_POLICY = "degradation_policy"
_PROVENANCE = ("created_by", "created_at", "kit_version", "python", "libraries", "conversations")


def _schema_hits(context: Context, path: str, code: str) -> Iterator[Hit]:
    error = context.problems.get(path)
    if error is None or error.code != code:
        return
    for problem in error.details.get("problems", []):
        hint = f" ({problem['hint']})" if problem["hint"] else ""
        yield Hit(
            path=path,
            message=f"{problem['path'] or 'the value'}: {problem['message']}{hint}",
            line=context.line(path, problem["path"]),
        )


def _shape(context: Context) -> Iterator[Hit]:
    yield from _schema_hits(context, layout.MANIFEST, "bundle.manifest")


def _config_shape(context: Context) -> Iterator[Hit]:
    yield from _schema_hits(context, layout.CONFIG, "bundle.config")


def _config_dates(context: Context) -> Iterator[Hit]:
    read = {}
    for key in ("start_date", "end_date"):
        text = (context.config or {}).get(key)
        try:
            read[key] = date.fromisoformat(text) if text else None
        except ValueError:
            line = context.line(layout.CONFIG, key)
            yield Hit(path=layout.CONFIG, message=f"{key}: {text!r} is not a date", line=line)
    start, end = read.get("start_date"), read.get("end_date")
    if start and end and start > end:
        yield Hit(
            path=layout.CONFIG,
            message=f"start_date {start} lies after end_date {end}",
            line=context.line(layout.CONFIG, "start_date"),
        )


def _names(context: Context) -> Iterator[Hit]:
    manifest = context.manifest
    if manifest is None:
        return
    if manifest.strategy_id != context.strategy_id:
        yield _at(
            context,
            "strategy_id",
            f"strategy_id is {manifest.strategy_id!r}, the directory {context.strategy_id!r}",
        )
    version = layout.version_of(context.root)
    if not context.draft and version is not None and manifest.version != str(version):
        message = f"version is {manifest.version}, the directory {version}"
        yield _at(context, "version", message)
    if manifest.execution.entry_class != ENTRY_CLASS:
        yield _at(
            context,
            "execution.entry_class",
            f"Vibe-Trading enters the class {ENTRY_CLASS} and no other",
        )


def _provenance(context: Context) -> Iterator[Hit]:
    if context.draft or context.manifest is None:
        return
    for key in _PROVENANCE:
        if not getattr(context.manifest.provenance, key):
            yield _at(context, "provenance", f"provenance.{key} is missing in a frozen version")


def _paths(context: Context) -> Iterator[Hit]:
    for name, step in (context.manifest.llm_steps if context.manifest else {}).items():
        for key, path in (
            ("prompt_path", step.prompt_path),
            ("fallback_template_path", step.fallback_template_path),
        ):
            if path is None:
                continue
            dotted = f"llm_steps.{name}.{key}"
            try:
                there = layout.inside(context.root, path).is_file()
            except BundleError as error:
                yield _at(context, dotted, f"{dotted}: {error.message}")
                continue
            if not there:
                yield _at(context, dotted, f"{dotted}: {path} is not in the bundle")


def _channels(context: Context) -> Iterator[Hit]:
    for position, mcp in _mcps(context.manifest):
        dotted = f"env_lock.required_mcps[{position}]"
        channels = CHANNELED_MCPS.get(mcp.name)
        if channels and mcp.channel is None:
            yield _at(
                context,
                dotted,
                f"{mcp.name} has channels and none is declared; none is assumed",
                mend=f"declare `channel`: {' or '.join(channels)}",
            )
        elif channels and mcp.channel not in channels:
            message = f"{mcp.name} has no channel {mcp.channel!r}"
            yield _at(context, f"{dotted}.channel", message, mend=f"use {' or '.join(channels)}")
        elif not channels and mcp.channel is not None:
            yield _at(
                context,
                f"{dotted}.channel",
                f"{mcp.name} has no channels",
                mend="drop `channel`",
            )


def _pins(context: Context) -> Iterator[Hit]:
    for position, mcp in _mcps(context.manifest):
        if not _PIN.fullmatch(mcp.source):
            yield _at(
                context,
                f"env_lock.required_mcps[{position}].source",
                f"{mcp.source!r} of {mcp.name} is not pinned",
            )


def _min_versions(context: Context) -> Iterator[Hit]:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.version import InvalidVersion, Version

    for position, mcp in _mcps(context.manifest):
        dotted = f"env_lock.required_mcps[{position}]"
        try:
            Version(mcp.min_version)
        except InvalidVersion:
            message = f"min_version {mcp.min_version!r} of {mcp.name} is not a version"
            yield _at(context, f"{dotted}.min_version", message)
        try:
            SpecifierSet(mcp.upstream_baseline or "")
        except InvalidSpecifier:
            message = f"upstream_baseline {mcp.upstream_baseline!r} is not a version specifier"
            yield _at(context, f"{dotted}.upstream_baseline", message)


def _twins(context: Context) -> Iterator[Hit]:
    seen: set[str] = set()
    for position, mcp in _mcps(context.manifest):
        if mcp.name in seen:
            dotted = f"env_lock.required_mcps[{position}].name"
            yield _at(context, dotted, f"{mcp.name} is locked twice")
        seen.add(mcp.name)


def _llm_keys(context: Context) -> Iterator[Hit]:
    names = list(context.manifest.env_lock.required_env) if context.manifest else []
    for position, name in enumerate(names):
        if _LLM_KEY.fullmatch(name.upper()):
            dotted = f"env_lock.required_env[{position}].name"
            yield _at(context, dotted, f"{name} is the key of an LLM provider")


def _policy(context: Context) -> Iterator[Hit]:
    from kit.degradation import problems

    raw = context.manifest_raw
    shape = context.problems.get(layout.MANIFEST)
    misshapen = shape.details.get("problems", ()) if shape else ()
    if not isinstance(raw, dict) or any(p["path"].startswith(_POLICY) for p in misshapen):
        return  # manifest.schema says so
    for problem in problems(raw):
        dotted = problem.partition(":")[0]
        yield Hit(path=layout.MANIFEST, message=problem, line=context.line(layout.MANIFEST, dotted))


def _mcps(manifest: Manifest | None) -> Iterator[tuple[int, LockedMcp]]:
    yield from enumerate(manifest.env_lock.required_mcps if manifest else ())


def _at(context: Context, dotted: str, message: str, *, mend: str | None = None) -> Hit:
    line = context.line(layout.MANIFEST, dotted)
    return Hit(path=layout.MANIFEST, message=message, line=line, mend=mend)


RULES = (
    Rule(
        id="manifest.schema",
        severity="error",
        what="manifest.json has the right keys and types, and no unknown key.",
        mend="mend that key; extra notes go under x-* keys",
        check=_shape,
    ),
    Rule(
        id="manifest.names",
        severity="error",
        what="Id and version equal the directories; the entry class is SignalEngine.",
        mend="make manifest.json and the directory agree",
        check=_names,
    ),
    Rule(
        id="manifest.provenance",
        severity="error",
        what="A frozen version says who made it, when and with what.",
        mend="let `kit freeze` write the provenance",
        check=_provenance,
    ),
    Rule(
        id="manifest.paths",
        severity="error",
        what="The prompts and templates that llm_steps name are in the bundle.",
        mend="write the file, or mend the path",
        check=_paths,
    ),
    Rule(
        id="manifest.channel",
        severity="error",
        what="A locked server that has channels says which one.",
        mend="declare `channel`",
        check=_channels,
    ),
    Rule(
        id="manifest.source",
        severity="error",
        what="Every locked server's source is pinned.",
        mend="pin it: git:OWNER/REPO@vX.Y.Z or pip:NAME==X.Y.Z, never a branch or `latest`",
        check=_pins,
    ),
    Rule(
        id="manifest.min_version",
        severity="error",
        what="Versions in the lock can be compared.",
        mend="write a version such as 1.0.3, and a baseline such as >=0.1.7",
        check=_min_versions,
    ),
    Rule(
        id="manifest.mcp_twice",
        severity="error",
        what="No server is locked twice.",
        mend="merge the two entries",
        check=_twins,
    ),
    Rule(
        id="manifest.llm_key",
        severity="error",
        what="LLM provider keys are not part of the lock.",
        mend="remove it: without a key the steps run offline and the report says so",
        check=_llm_keys,
    ),
    Rule(
        id="manifest.policy",
        severity="error",
        what="The degradation policy uses known triggers and actions, and misses none it owes.",
        mend="mend the rule, or add the missing one",
        check=_policy,
    ),
    Rule(
        id="config.schema",
        severity="error",
        what="config.json has the right keys and types; _kit has no unknown key.",
        mend="mend that key",
        check=_config_shape,
    ),
    Rule(
        id="config.dates",
        severity="error",
        what="The backtest window is a window.",
        mend="write start_date and end_date as YYYY-MM-DD, in order",
        check=_config_dates,
    ),
)
