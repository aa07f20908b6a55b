"""Drafts: the editable copy a researcher works in, made from a frozen version or a template."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path

from kit import files
from kit.bundle.layout import (
    CHANGELOG,
    CHECKSUMS,
    DRAFT,
    MANIFEST,
    MAX_ID_LENGTH,
    SKILL,
    check_id,
    walk,
)
from kit.bundle.leftovers import claim, discard, process_suffix
from kit.bundle.model import resolve
from kit.bundle.rebuild import version_dirs
from kit.bundle.registry import known_ids, read_index, strategy_dir
from kit.bundle.text import read_bundle_json, read_bundle_text
from kit.errors import RegistryError, StorageError, UsageError
from kit.schemas import suggestion
from kit.workspace import Workspace, template_root

__all__ = [
    "FIRST_VERSION",
    "TEMPLATES",
    "near_ids",
    "new_draft",
    "refuse_twin",
    "settle_draft",
    "template_dir",
    "with_front_matter",
]

FIRST_VERSION = "0.1.0"
"""Version of a strategy's first freeze, unless another is asked for."""

TEMPLATES = ("pullback", "event-driven")
"""What a draft can start from beside a frozen version."""

# Evidence and compiled schemas belong to the version they were made for.
_LEFT_BEHIND = ("backtests/", "schemas/")


def new_draft(
    workspace: Workspace, id_: str, from_ref: str | None = None, *, template: str | None = None
) -> Path:
    """Make `strategies/<id>/draft/` from a frozen version or from a template, writable.

    Conversations and the changelog come along; evidence and compiled schemas do not. Taken from
    another strategy or a template, the copy gets the new id and starts a history of its own.

    Args:
        workspace: The workspace.
        id_: Strategy the draft is for.
        from_ref: `id`, `id@1.2.3`; None takes the strategy's own latest version.
        template: One of `TEMPLATES`, instead of a version.

    Returns:
        The draft's directory.

    Raises:
        UsageError: `bundle.bad_id`, `draft.unknown_template`.
        RegistryError: `draft.exists`, `draft.id_taken`, `draft.nothing_to_copy`; what `resolve`
            raises for the source.
        BundleError: The source is tampered with.
    """
    check_id(id_)
    refuse_twin(workspace, id_)
    root = strategy_dir(workspace, id_) / DRAFT
    if root.exists() or root.is_symlink():
        raise _has_draft(workspace, root)
    if template is not None:
        source, origin = template_dir(template), {"x-template": template}
    else:
        bundle = resolve(workspace, from_ref or _latest(workspace, id_))
        source = bundle.root
        origin = {"x-forked-from": bundle.ref} if bundle.id != id_ else {}
    index = read_index(workspace)
    if origin and (id_ in index.strategies or any(root.parent.glob("[!.]*"))):
        raise _taken(id_, id_, "is a strategy already", known_ids(workspace, index))
    # Made aside and renamed, so that a draft is never half a copy.
    staging = root.with_name(f".draft.new-{process_suffix()}")
    try:
        claim(staging)
        _copy(source, staging)
        _settle(staging, source, id_, origin)
        files.publish_dir(staging, root)
    except StorageError as error:
        if error.code == "file.exists":  # another `kit new` was first
            raise _has_draft(workspace, root) from error
        raise
    finally:
        discard(staging)
    return root


def near_ids(workspace: Workspace, id_: str) -> list[str]:
    """Return the ids of other strategies that one could mistake for `id_`."""
    known = [other for other in known_ids(workspace, read_index(workspace)) if other != id_]
    return difflib.get_close_matches(id_, known, cutoff=0.85)


def template_dir(name: str) -> Path:
    """Return the directory of a template.

    Raises:
        UsageError: `draft.unknown_template`.
    """
    if name not in TEMPLATES:
        raise UsageError(
            "draft.unknown_template",
            f"there is no template {name!r}; {suggestion(name, TEMPLATES)}".rstrip("; "),
            remedy=f"name one of {', '.join(TEMPLATES)}",
        )
    return template_root() / "prompts" / "strategy-skill-author" / "templates" / name


def _has_draft(workspace: Workspace, root: Path) -> RegistryError:
    return RegistryError(
        "draft.exists",
        f"{root.parent.name} has a draft already",
        where=workspace.relative(root),
        remedy="work in it, or move it away first",
    )


def settle_draft(draft: Path, version: Path) -> None:
    """Let a draft go on from the version just cut from it: its parent, and its changelog.

    Raises:
        StorageError: The disk refused; the version stands all the same.
    """
    manifest = read_bundle_json(draft, MANIFEST)
    manifest["provenance"] = {**manifest["provenance"], "parent_version": version.name}
    files.write_json(draft / MANIFEST, manifest)
    files.write_text(draft / CHANGELOG, read_bundle_text(version, CHANGELOG))


def refuse_twin(workspace: Workspace, id_: str) -> None:
    """Refuse an id that another strategy's differs from only by case.

    Raises:
        RegistryError: `draft.id_taken`, proposing free ids.
    """
    known = known_ids(workspace, read_index(workspace))
    for other in known:
        if other != id_ and other.casefold() == id_.casefold():
            raise _taken(id_, other, f"differs from {id_} only by case", known)


def _taken(id_: str, other: str, why: str, known: Sequence[str]) -> RegistryError:
    used = {name.casefold() for name in known}
    base = id_[: MAX_ID_LENGTH - len("-next")].rstrip("-")
    free = [name for name in (f"{base}-2", f"{base}-3", f"{base}-next") if name not in used]
    return RegistryError(
        "draft.id_taken",
        f"{other} {why}",
        where=f"strategies/{other}",
        remedy=f"choose another id; {', '.join(free) or 'these'} are free",
        details={"free": free},
    )


def _latest(workspace: Workspace, id_: str) -> str:
    folder = workspace.strategies / id_
    roots = version_dirs(folder) if folder.is_dir() else []
    if not roots:
        raise RegistryError(
            "draft.nothing_to_copy",
            f"{id_} has no frozen version to start from",
            where=workspace.relative(folder),
            remedy=f"start from a template or another strategy: kit new {id_} --template "
            f"{TEMPLATES[0]}, kit new {id_} --from ID@VERSION",
        )
    return f"{id_}@{roots[0].name}"


def _copy(source: Path, target: Path) -> None:
    files.make_dir(target)
    for path in walk(source).files:
        if path != CHECKSUMS and not path.startswith(_LEFT_BEHIND):
            files.make_dir((target / path).parent)
            files.copy_file(source / path, target / path)


def _settle(draft: Path, source: Path, id_: str, origin: Mapping[str, str]) -> None:
    """Let a copy be a draft of `id_`: the next of its own versions, or the first of a new line."""
    manifest = read_bundle_json(draft, MANIFEST)
    if not origin:
        parent = None if source.name == DRAFT else source.name
        manifest["provenance"] = {**manifest["provenance"], "parent_version": parent}
        files.write_json(draft / MANIFEST, manifest)
        return
    manifest["strategy_id"] = id_
    manifest["version"] = FIRST_VERSION
    manifest["provenance"] = dict(origin)
    files.write_json(draft / MANIFEST, manifest)
    skill = read_bundle_text(draft, SKILL)
    files.write_text(draft / SKILL, with_front_matter(skill, name=id_, version=FIRST_VERSION))
    files.write_text(draft / CHANGELOG, "# Changelog\n")
    files.remove_tree(draft / "conversations")


def with_front_matter(text: str, **values: str) -> str:
    """Return a text with one-line front matter keys set to `values`; the rest stays as it is."""
    lines = text.split("\n")
    end = next(i for i, line in enumerate(lines[1:], start=1) if line.rstrip() == "---")
    for key, value in values.items():
        at = next((i for i in range(1, end) if lines[i].startswith(f"{key}:")), None)
        if at is None:
            lines.insert(end, f"{key}: {value}")
            end += 1
        else:
            lines[at] = f"{key}: {value}"
    return "\n".join(lines)
