"""What changed between two versions, and the smallest version bump that says so.

What freeze writes by itself does not count: version fields, provenance, checksums, evidence,
conversations, CHANGELOG.md, compiled schemas, notebook outputs.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from kit import files
from kit.bundle import layout
from kit.bundle.diff_code import changed_names, compare_code, method_signature
from kit.bundle.diff_values import MISSING, value_changes
from kit.bundle.frontmatter import split
from kit.bundle.layout import label
from kit.bundle.markdown import sections
from kit.bundle.skill import HOW_TO_INVOKE
from kit.bundle.text import read_bundle_json, read_bundle_text
from kit.errors import BundleError, DataError

__all__ = ["BUMPS", "Bump", "Change", "VersionDiff", "content_digest", "diff"]

Bump = Literal["none", "patch", "minor", "major"]
BUMPS: tuple[Bump, ...] = ("none", "patch", "minor", "major")
"""Bumps from the smallest to the largest."""

_GENERATED = ("backtests/", "conversations/", "schemas/")
_GENERATED_FILES = {layout.CHANGELOG, layout.CHECKSUMS}
_MAJOR_KEYS = ("env_lock", "execution", "data_contract")
_MINOR_KEYS = ("llm_steps", "limits", "degradation_policy", "schema_version")
_IGNORED_KEYS = {"version", "provenance", "strategy_id", "checksums_path"}
_AREAS = {
    "env_lock": "lock",
    "execution": "execution",
    "data_contract": "data",
    "llm_steps": "steps",
    "limits": "limits",
    "degradation_policy": "policy",
}
_PATCH_CONFIG = {"codes", "start_date", "end_date", "evaluation_start_date"}


@dataclass(frozen=True, kw_only=True)
class Change:
    """One difference.

    Attributes:
        area: `lock`, `execution`, `data`, `rules`, `parameters`, `prompts`, `steps`, `limits`,
            `policy`, `flow`, `manifest`, `config`, `wording`, or `files`.
        level: The bump this change alone demands.
        text: What changed, such as `ma_window 250 -> 248`.
    """

    area: str
    level: Bump
    text: str

    def __str__(self) -> str:
        return f"{self.text}: {self.level.upper()}"


@dataclass(frozen=True, kw_only=True)
class VersionDiff:
    """All differences; `bump` is the largest level among them, `none` when there is none."""

    bump: Bump
    changes: tuple[Change, ...]

    @property
    def forcing(self) -> tuple[Change, ...]:
        """The changes that demand this bump."""
        return tuple(change for change in self.changes if change.level == self.bump)


def diff(old_root: Path, new_root: Path) -> VersionDiff:
    """Compare two bundle directories.

    Args:
        old_root: The parent version.
        new_root: The draft, or a later version.

    Raises:
        BundleError: A file of either side cannot be read.
    """
    changes = [
        *_manifest(old_root, new_root),
        *_config(old_root, new_root),
        *_skill(old_root, new_root),
        *_files(old_root, new_root),
    ]
    order = {bump: position for position, bump in enumerate(BUMPS)}
    changes.sort(key=lambda change: (-order[change.level], change.area))
    return VersionDiff(
        bump=changes[0].level if changes else "none",
        changes=tuple(changes),
    )


def content_digest(root: Path) -> str:
    """Return a digest of everything an author writes: equal digests mean the same content.

    Raises:
        BundleError: A file cannot be read.
    """
    manifest = read_bundle_json(root, layout.MANIFEST)
    front = split(read_bundle_text(root, layout.SKILL), label(root, layout.SKILL))
    named = {key: value for key, value in front.values.items() if key != "version"}
    parts: dict[str, Any] = {
        layout.MANIFEST: {k: v for k, v in manifest.items() if k not in _IGNORED_KEYS},
        layout.CONFIG: read_bundle_json(root, layout.CONFIG),
        layout.SKILL: [named, front.body.strip("\n")],
    }
    for path in _authored(root):
        if path == layout.NOTEBOOK:
            parts[path] = _cells(root)
        elif path not in parts:
            parts[path] = files.sha256_file(root / path)
    return files.sha256_bytes(files.canonical_json(parts))


def _authored(root: Path) -> list[str]:
    return [
        path
        for path in layout.walk(root).files
        if not path.startswith(_GENERATED) and path not in _GENERATED_FILES
    ]


def _manifest(old_root: Path, new_root: Path) -> Iterator[Change]:
    old, new = (read_bundle_json(root, layout.MANIFEST) for root in (old_root, new_root))
    for key in sorted({*old, *new} - _IGNORED_KEYS):
        level: Bump = "patch"
        if key in _MAJOR_KEYS:
            level = "major"
        elif key in _MINOR_KEYS:
            level = "minor"
        for text in value_changes(key, old.get(key, MISSING), new.get(key, MISSING)):
            # Warm-up is measured from the code, so it follows a changed number, and is no contract.
            measured = text.startswith("data_contract.warmup_bars ")
            area = _AREAS.get(key, "manifest")
            yield Change(area=area, level="patch" if measured else level, text=text)


def _config(old_root: Path, new_root: Path) -> Iterator[Change]:
    old, new = (read_bundle_json(root, layout.CONFIG) for root in (old_root, new_root))
    old_kit, new_kit = old.get("_kit", {}), new.get("_kit", {})
    for area, before, after in (
        ("parameters", old_kit.get("params", {}), new_kit.get("params", {})),
        ("config", _without(old_kit, "params"), _without(new_kit, "params")),
        ("config", _without(old, "_kit"), _without(new, "_kit")),
    ):
        for key in sorted({*before, *after}):
            was, now = before.get(key, MISSING), after.get(key, MISSING)
            numeric = _are_numbers(was, now)
            loose = area == "config" and key in _PATCH_CONFIG
            name = key.replace("_", " ") if area == "parameters" else key
            for text in value_changes(name, was, now):
                yield Change(area=area, level="patch" if numeric or loose else "minor", text=text)


def _skill(old_root: Path, new_root: Path) -> Iterator[Change]:
    old, new = (
        split(read_bundle_text(root, layout.SKILL), label(root, layout.SKILL))
        for root in (old_root, new_root)
    )
    for key in sorted({*old.values, *new.values} - {"version", "name"}):
        if old.values.get(key) != new.values.get(key):
            yield Change(area="wording", level="patch", text=f"SKILL.md: {key} reworded")
    before, after = _sections(old.body), _sections(new.body)
    for key in sorted({*before, *after}):
        if before.get(key) == after.get(key):
            continue
        flow = key == HOW_TO_INVOKE
        yield Change(
            area="flow" if flow else "wording",
            level="minor" if flow else "patch",
            text=f"SKILL.md: section {key!r} {_verb(key, before, after)}",
        )
    if before == after and _folded(old.body) != _folded(new.body):
        yield Change(area="wording", level="patch", text="SKILL.md: text outside sections reworded")


def _files(old_root: Path, new_root: Path) -> Iterator[Change]:
    apart = {layout.MANIFEST, layout.CONFIG, layout.SKILL}
    old, new = set(_authored(old_root)) - apart, set(_authored(new_root)) - apart
    for path in sorted(new - old):
        yield Change(area=_area(path), level=_whole_file(path), text=f"{path} added")
    for path in sorted(old - new):
        yield Change(area=_area(path), level=_whole_file(path), text=f"{path} removed")
    for path in sorted(old & new):
        if files.sha256_file(old_root / path) != files.sha256_file(new_root / path):
            yield from _file(path, old_root, new_root)


def _file(path: str, old_root: Path, new_root: Path) -> Iterator[Change]:
    if path.endswith(".py"):
        yield from _python(path, old_root, new_root)
    elif path.startswith("prompts/"):
        text = f"{path}: {', '.join(_prompt_parts(path, old_root, new_root))}"
        yield Change(area="prompts", level="minor", text=text)
    elif path == layout.NOTEBOOK:
        if _cells(old_root) != _cells(new_root):
            yield Change(area="wording", level="patch", text=f"{path}: cells changed")
    else:
        level = _whole_file(path)
        verb = "reworded" if level == "patch" else "changed"
        yield Change(area=_area(path), level=level, text=f"{path} {verb}")


def _prompt_parts(path: str, old_root: Path, new_root: Path) -> list[str]:
    """Say which front matter keys and sections of a prompt changed."""
    try:
        old, new = (split(read_bundle_text(root, path), path) for root in (old_root, new_root))
    except BundleError:
        return ["changed"]
    keys = sorted({*old.values, *new.values})
    parts = [
        text
        for key in keys
        for text in value_changes(key, old.values.get(key, MISSING), new.values.get(key, MISSING))
    ]
    before, after = _sections(old.body), _sections(new.body)
    parts += [
        f"section {key!r} {_verb(key, before, after)}"
        for key in sorted({*before, *after})
        if before.get(key) != after.get(key)
    ]
    return parts or ["text changed"]


def _sections(body: str) -> dict[str, str]:
    return {s.key: _folded(s.text) for s in sections(body, 1) if s.level == 2}


def _verb(key: str, before: Mapping[str, str], after: Mapping[str, str]) -> str:
    if key in before and key in after:
        return "reworded"
    return "removed" if key in before else "added"


def _python(path: str, old_root: Path, new_root: Path) -> Iterator[Change]:
    old, new = _parse(old_root, path), _parse(new_root, path)
    if old is None or new is None:
        yield Change(area="rules", level="minor", text=f"{path}: changed")
        return
    if path == layout.ENGINE:
        yield from _interface(old, new, old_root)
    literals = compare_code(old, new)
    if literals is None:
        names = ", ".join(changed_names(old, new)) or "rules"
        yield Change(area="rules", level="minor", text=f"{path}: {names} changed")
    elif not literals:
        yield Change(area="wording", level="patch", text=f"{path}: comments or layout changed")
    for literal in literals or ():
        yield Change(area="parameters", level="patch", text=f"{path}: {literal}")


def _interface(old: ast.Module, new: ast.Module, root: Path) -> Iterator[Change]:
    execution = read_bundle_json(root, layout.MANIFEST).get("execution", {})
    for key in ("entry_method", "screen_method"):
        name, method = str(execution.get("entry_class")), str(execution.get(key))
        was, now = (method_signature(tree, name, method) for tree in (old, new))
        if was != now:
            text = f"{name}.{method}({was}) -> ({now})" if now else f"{name}.{method} removed"
            yield Change(area="execution", level="major", text=text)


def _parse(root: Path, path: str) -> ast.Module | None:
    try:
        return ast.parse(read_bundle_text(root, path))
    except (SyntaxError, ValueError, RecursionError, MemoryError, BundleError):
        return None


def _area(path: str) -> str:
    if path.startswith("code/"):
        return "rules"
    if path.startswith("prompts/"):
        return "prompts"
    return "wording" if path.endswith((".md", ".txt")) else "files"


def _whole_file(path: str) -> Bump:
    return "minor" if path.startswith(("code/", "prompts/")) else "patch"


def _cells(root: Path) -> list[Any]:
    """Return the notebook's cells without outputs and counters."""
    try:
        notebook = files.parse_json((root / layout.NOTEBOOK).read_text("utf-8"))
        return [[cell["cell_type"], _joined(cell["source"])] for cell in notebook["cells"]]
    except (DataError, KeyError, TypeError, UnicodeDecodeError):
        return [files.sha256_file(root / layout.NOTEBOOK)]


def _joined(source: Any) -> str:
    return "".join(source) if isinstance(source, list) else str(source)


def _without(value: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {name: item for name, item in value.items() if name != key}


def _are_numbers(old: Any, new: Any) -> bool:
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(_are_numbers, old, new))
    return type(old) in {int, float} and type(new) in {int, float}


def _folded(text: str) -> str:
    """Fold white space: rewrapping a paragraph is no change."""
    return re.sub(r"\s+", " ", text).strip()
