"""A version as an Agent Skill: what the files of its copy hold.

Agent Skills want the directory named like the skill and only their own front matter keys. Two
hosts show the body alone, so the body says which version it is and what to check first.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

from kit import files
from kit.bundle.frontmatter import split
from kit.bundle.layout import CHECKSUMS, SKILL, walk
from kit.bundle.manifest import LockedMcp
from kit.bundle.model import Bundle
from kit.bundle.skill import SkillDoc
from kit.bundle.text import read_bundle_text
from kit.text import clip, one_line

__all__ = ["OPENAI", "bundle_copy", "plain_copy"]

OPENAI = "agents/openai.yaml"
_MOST_DESCRIPTION = 1024
_SHORT = range(25, 65)  # what Codex shows under a skill's name, in characters

Contents = dict[str, bytes]


def bundle_copy(bundle: Bundle, *, openai: bool) -> Contents:
    """Return path -> bytes of a frozen version's copy.

    `SKILL.md` differs from the version's own, so `checksums.txt` is that of the copy.

    Args:
        bundle: A frozen version, verified.
        openai: Whether `agents/openai.yaml` is wanted.
    """
    contents = {name: (bundle.root / name).read_bytes() for name in walk(bundle.root).files}
    text = f"{_front_matter(bundle)}\n{_notice(bundle)}\n{bundle.skill.body.lstrip()}"
    contents[SKILL] = text.encode("utf-8")
    if openai:
        contents[OPENAI] = _openai(bundle).encode("utf-8")
    contents.pop(CHECKSUMS)
    lines = [f"{files.sha256_bytes(contents[name])}  {name}\n" for name in sorted(contents)]
    contents[CHECKSUMS] = "".join(lines).encode("ascii")
    return contents


def plain_copy(root: Path) -> Contents:
    """Return path -> bytes of a skill that is one already, without its templates.

    The templates hold a SKILL.md each, and some hosts load whatever bears that name.
    """
    names = [name for name in walk(root).files if not name.startswith("templates/")]
    return {name: (root / name).read_bytes() for name in names}


def _notice(bundle: Bundle) -> str:
    tools = [
        f"`{mcp.name}` ({', '.join(tool.tool_name for tool in mcp.tools_used)})"
        for mcp in bundle.manifest.env_lock.required_mcps
    ]
    needs = f" It needs {'; '.join(tools)}." if tools else ""
    return (
        f"> `{bundle.ref}`. Check the lock first: compare `env_lock` in `manifest.json` with the "
        f"tools, variables and databases you have; when one is missing, stop and say so.{needs} "
        "This is a copy for agents: `checksums.txt` covers it as it stands here, and "
        f"`kit verify {bundle.ref}` the version it was made from.\n"
    )


def _front_matter(bundle: Bundle) -> str:
    own = split(read_bundle_text(bundle.root, SKILL), SKILL).values
    description = clip(_plain(bundle.skill.description), _MOST_DESCRIPTION)
    lines = [f"name: {bundle.id}", f"description: {description}"]
    lines += [f"{key}: {_plain(own[key])}" for key in ("license", "compatibility") if key in own]
    metadata = {**own.get("metadata", {}), "version": bundle.version, "category": "strategy"}
    lines += ["metadata:", *(f"  {_plain(key)}: {_plain(metadata[key])}" for key in metadata)]
    return "\n".join(["---", *lines, "---", ""])


def _plain(value: Any) -> str:
    """Return a value as one line that YAML reads back without quotes."""
    text = re.sub(r"-{3,}", "--", one_line(str(value)))  # a reader may split at three hyphens
    if not _is_plain(text):
        text = re.sub(r":(?=\s|$)", ",", text).replace(" #", " ").lstrip("-?:,[]{}#&*!|>'\"%@` ")
    return text if _is_plain(text) else json.dumps(text, ensure_ascii=False)


def _is_plain(text: str) -> bool:
    try:
        read = yaml.safe_load(f"k: {text}")
    except yaml.YAMLError:
        return False
    value = read.get("k") if isinstance(read, dict) else None
    return value == text if isinstance(value, str) else isinstance(value, bool | int | float)


def _openai(bundle: Bundle) -> str:
    quoted = {
        "display_name": clip(bundle.skill.title, _SHORT.stop - 1),
        "short_description": _short(bundle.skill),
        "default_prompt": f"Use ${bundle.id} to run today's screen.",
    }
    lines = ["interface:", *(f"  {key}: {_quote(text)}" for key, text in quoted.items())]
    servers = bundle.manifest.env_lock.required_mcps
    lines += ["dependencies:", "  tools:"] if servers else []
    for mcp in servers:
        lines += ['    - type: "mcp"', f"      value: {_quote(mcp.name)}"]
        lines += [f"      description: {_quote(_purpose(mcp))}"]
    return "\n".join(lines) + "\n"


def _short(skill: SkillDoc) -> str:
    first = re.split(r"(?<=[.。])\s|[.。]$", one_line(skill.description))[0]
    text = first if len(first) in _SHORT else clip(first, _SHORT.stop - 1)
    return text if len(text) >= _SHORT.start else f"Trading strategy: {text}"


def _purpose(mcp: LockedMcp) -> str:
    tools = ", ".join(tool.tool_name for tool in mcp.tools_used)
    channel = f", channel {mcp.channel}" if mcp.channel else ""
    return f"{tools}; {mcp.min_version} or newer, {mcp.source}{channel}"


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
