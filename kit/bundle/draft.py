"""Drafts: the editable copy a researcher works in, made from a frozen version."""

from __future__ import annotations

from pathlib import Path

from kit import files
from kit.bundle.layout import (
    CHANGELOG,
    CHECKSUMS,
    DRAFT,
    MANIFEST,
    SKILL,
    check_id,
    walk,
)
from kit.bundle.leftovers import claim, discard, process_suffix
from kit.bundle.model import Bundle, resolve
from kit.bundle.rebuild import version_dirs
from kit.bundle.registry import known_ids, read_index, strategy_dir
from kit.bundle.text import read_bundle_json, read_bundle_text
from kit.errors import RegistryError, StorageError
from kit.workspace import Workspace

__all__ = ["FIRST_VERSION", "new_draft", "settle_draft", "with_front_matter"]

FIRST_VERSION = "0.1.0"
"""Version of a strategy's first freeze, unless another is asked for."""

# Evidence and compiled schemas belong to the version they were made for.
_LEFT_BEHIND = ("backtests/", "schemas/")


def new_draft(workspace: Workspace, id_: str, from_ref: str | None = None) -> Path:
    """Copy a frozen version into `strategies/<id>/draft/`, writable.

    Conversations and the changelog come along; evidence and compiled schemas do not. Taken from
    another strategy, the copy gets the new id and starts a history of its own.

    Args:
        workspace: The workspace.
        id_: Strategy the draft is for.
        from_ref: `id`, `id@1.2.3`; None takes the strategy's own latest version.

    Returns:
        The draft's directory.

    Raises:
        UsageError: `bundle.bad_id`.
        RegistryError: `draft.exists`, `draft.id_taken`, `draft.nothing_to_copy`; what `resolve`
            raises for the source.
        BundleError: The source is tampered with.
    """
    check_id(id_)
    _refuse_twin(workspace, id_)
    root = strategy_dir(workspace, id_) / DRAFT
    if root.exists() or root.is_symlink():
        raise _has_draft(workspace, root)
    source = resolve(workspace, from_ref or _latest(workspace, id_))
    # Made aside and renamed, so that a draft is never half a copy.
    staging = root.with_name(f".draft.new-{process_suffix()}")
    try:
        claim(staging)
        _copy(source, staging)
        _rename(staging, source, id_)
        files.publish_dir(staging, root)
    except StorageError as error:
        if error.code == "file.exists":  # another `kit new` was first
            raise _has_draft(workspace, root) from error
        raise
    finally:
        discard(staging)
    return root


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


def _refuse_twin(workspace: Workspace, id_: str) -> None:
    for other in known_ids(workspace, read_index(workspace)):
        if other != id_ and other.casefold() == id_.casefold():
            raise RegistryError(
                "draft.id_taken",
                f"{other} differs from {id_} only by case",
                where=f"strategies/{other}",
                remedy="choose another id",
            )


def _latest(workspace: Workspace, id_: str) -> str:
    folder = workspace.strategies / id_
    roots = version_dirs(folder) if folder.is_dir() else []
    if not roots:
        raise RegistryError(
            "draft.nothing_to_copy",
            f"{id_} has no frozen version to start from",
            where=workspace.relative(folder),
            remedy=f"name one of another strategy: kit new {id_} --from ID@VERSION",
        )
    return f"{id_}@{roots[0].name}"


def _copy(source: Bundle, target: Path) -> None:
    files.make_dir(target)
    for path in walk(source.root).files:
        if path != CHECKSUMS and not path.startswith(_LEFT_BEHIND):
            files.make_dir((target / path).parent)
            files.copy_file(source.root / path, target / path)


def _rename(draft: Path, source: Bundle, id_: str) -> None:
    manifest = read_bundle_json(draft, MANIFEST)
    if source.id == id_:
        parent = None if source.is_draft else source.version
        manifest["provenance"] = {**manifest["provenance"], "parent_version": parent}
        files.write_json(draft / MANIFEST, manifest)
        return
    manifest["strategy_id"] = id_
    manifest["version"] = FIRST_VERSION
    manifest["provenance"] = {"x-forked-from": source.ref}
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
