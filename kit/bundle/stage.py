"""Prepare a version beside its place: a clean copy of the draft, plus what freeze writes."""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from kit import files
from kit.bundle import checksums
from kit.bundle.conversation import FOLDER, conversation_files, slugify
from kit.bundle.diff import Change
from kit.bundle.draft import with_front_matter
from kit.bundle.layout import (
    CHANGELOG,
    CHECKSUMS,
    MANIFEST,
    NOTEBOOK,
    SKILL,
    Version,
    inside,
    staging_name,
    walk,
)
from kit.bundle.leftovers import claim, discard, in_progress, process_suffix
from kit.bundle.model import Bundle
from kit.bundle.text import read_bundle_json, read_bundle_text
from kit.errors import AlreadyDone, GuardError
from kit.workspace import git_commit

__all__ = ["Plan", "stage"]

_LIBRARIES = (
    "numpy",
    "pandas",
    "polars",
    "numba",
    "vectorbt",
    "litellm",
    "papermill",
    "jsonschema",
)
_UNRELEASED = re.compile(r"^## unreleased\s*$", re.IGNORECASE)
_HEADER = "# Changelog\n"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything decided about a version before it is prepared.

    Attributes:
        version: Its number.
        parent: Directory of the parent version, or None for the first.
        bump: Bump from the parent; `first` for the first version.
        changes: Differences to the parent.
        created_by: Person or program.
        created_at: ISO 8601 with an offset.
        slug: New slug of the newest conversation, or None to leave its name.
        artifacts: Relative path -> bytes to put in, such as the re-executed notebook.
    """

    version: Version
    parent: Path | None
    bump: str
    changes: tuple[Change, ...]
    created_by: str
    created_at: str
    slug: str | None = None
    artifacts: Mapping[str, bytes] = field(default_factory=dict)


def stage(draft: Bundle, plan: Plan) -> tuple[Path, str]:
    """Write the complete version into a sibling staging folder.

    Returns:
        The folder, and the version's digest; `discard` the folder when done with it. On failure
        nothing is left.

    Raises:
        AlreadyDone: `freeze.busy` when this very process prepares that version already.
        GuardError: `freeze.edited` when the draft is no longer what was opened and checked.
        StorageError: The disk refused.
        BundleError: The draft has links or unusable names.
    """
    staging = draft.root.with_name(staging_name(plan.version, process_suffix()))
    if in_progress(staging):
        raise AlreadyDone(
            "freeze.busy",
            f"{draft.id}@{plan.version} is being frozen by this process",
            where=staging.name,
            remedy="wait for it to end",
        )
    try:
        claim(staging)
        _copy(draft.root, staging, plan)
        _require_unedited(draft)
        _write_changelog(draft.root, staging, plan)
        _write_schemas(staging, draft)
        skill = read_bundle_text(staging, SKILL)
        files.write_text(staging / SKILL, with_front_matter(skill, version=str(plan.version)))
        files.write_json(staging / MANIFEST, _manifest(draft, staging, plan))
        return staging, checksums.write(staging)
    except BaseException:
        discard(staging)
        raise


def _copy(draft: Path, staging: Path, plan: Plan) -> None:
    files.make_dir(staging)
    generated = (CHECKSUMS, CHANGELOG)
    renamed = _renamed_conversation(draft, plan.slug)
    for path in walk(draft).files:
        if path not in generated and not path.startswith("schemas/prompts/"):
            target = staging / renamed.get(path, path)
            files.make_dir(target.parent)
            files.copy_file(draft / path, target)
    for path, data in plan.artifacts.items():
        target = inside(staging, path)
        files.make_dir(target.parent)
        files.write_bytes(target, data)


def _require_unedited(draft: Bundle) -> None:
    """Refuse what nobody checked: evidence and guards speak of the draft as it was opened."""
    if checksums.tree_digest(draft.root) != draft.digest:
        raise GuardError(
            "freeze.edited",
            "the draft changed while it was being frozen",
            where=draft.ref,
            remedy=f"freeze again when nobody edits it: kit freeze {draft.id}",
        )


def _renamed_conversation(draft: Path, slug: str | None) -> dict[str, str]:
    """Return the newest conversation's path -> its path under the wanted slug."""
    found = conversation_files(draft)
    if slug is None or not found:
        return {}
    newest = found[-1].name
    wanted = f"{newest[: len('2026-05-15')]}-{slugify(slug)}.jsonl"
    if any(path.name == wanted for path in found):
        return {}
    return {f"{FOLDER}/{newest}": f"{FOLDER}/{wanted}"}


def _write_changelog(draft: Path, staging: Path, plan: Plan) -> None:
    day = plan.created_at[: len("2026-05-15")]
    lines = [f"## {plan.version} - {day}", ""]
    notes = _unreleased(read_bundle_text(draft, CHANGELOG)) if (draft / CHANGELOG).is_file() else ""
    lines += [notes, ""] if notes else []
    if plan.parent is None:
        lines += ["First version.", ""]
    else:
        lines += [f"{plan.bump.capitalize()} change from {plan.parent.name}:", ""]
        lines += [f"- {change.text}" for change in plan.changes] + [""]
    past = _entries(plan.parent)
    files.write_text(staging / CHANGELOG, f"{_HEADER}\n" + "\n".join(lines) + past)


def _unreleased(text: str) -> str:
    """Return what a draft's changelog says under `## Unreleased`."""
    kept: list[str] = []
    inside_it = False
    for line in text.split("\n"):
        if line.startswith("## "):
            inside_it = _UNRELEASED.match(line) is not None
        elif inside_it:
            kept.append(line)
    return "\n".join(kept).strip("\n")


def _entries(parent: Path | None) -> str:
    """Return the entries of the parent's changelog, without its title."""
    if parent is None:
        return ""
    lines = read_bundle_text(parent, CHANGELOG).split("\n")
    first = next((i for i, line in enumerate(lines) if line.startswith("## ")), len(lines))
    past = "\n".join(lines[first:]).strip("\n")
    return f"\n{past}\n" if past else ""


def _write_schemas(staging: Path, draft: Bundle) -> None:
    for name, prompt in draft.prompts.items():
        target = staging / "schemas" / "prompts" / f"{name}.json"
        files.make_dir(target.parent)
        value = {"input": dict(prompt.input_schema), "output": dict(prompt.output_schema)}
        files.write_json(target, value)


def _manifest(draft: Bundle, staging: Path, plan: Plan) -> dict[str, Any]:
    value = read_bundle_json(staging, MANIFEST)
    extra = {k: v for k, v in value["provenance"].items() if k.startswith("x-")}
    value["version"] = str(plan.version)
    value["provenance"] = {
        "created_by": plan.created_by,
        "created_at": plan.created_at,
        "parent_version": plan.parent.name if plan.parent else None,
        "kit_version": metadata.version("kit"),
        "git_commit": git_commit(draft.root),
        "python": platform.python_version(),
        "libraries": _libraries(_LIBRARIES),
        "conversations": [path.stem for path in conversation_files(staging)],
        "notebook": _notebook(staging),
        **extra,
    }
    result: dict[str, Any] = value
    return result


def _libraries(names: Sequence[str]) -> dict[str, str]:
    found = {}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _notebook(staging: Path) -> dict[str, str] | None:
    path = staging / NOTEBOOK
    if not path.is_file():
        return None
    return {"path": NOTEBOOK, "sha256": files.sha256_file(path)}
