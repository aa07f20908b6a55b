"""Choose the number of the next version: never lower than the differences demand."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kit.bundle.diff import BUMPS, Bump, Change, VersionDiff, content_digest, diff
from kit.bundle.draft import FIRST_VERSION, template_dir
from kit.bundle.layout import Level, Version
from kit.bundle.model import Bundle, resolve
from kit.bundle.rebuild import version_dirs
from kit.errors import AlreadyDone, GuardError, UsageError
from kit.workspace import Workspace

__all__ = ["Number", "decide", "origin_of"]


@dataclass(frozen=True, kw_only=True)
class Number:
    """The version number decided on, and why.

    Attributes:
        version: The number.
        parent: Directory of the version it is compared with; None for a first version.
        bump: Bump taken; `first` for a first version.
        computed: Bump the differences demand; `first` for a first version.
        changes: Differences to the parent.
        known: Versions there were when the number was chosen.
    """

    version: Version
    parent: Path | None
    bump: str
    computed: str
    changes: tuple[Change, ...]
    known: frozenset[str]


def decide(workspace: Workspace, draft: Bundle, bump: str, first_version: str | None) -> Number:
    """Choose the version number from the differences to the parent.

    Args:
        workspace: The workspace.
        draft: The opened draft.
        bump: `auto`, `patch`, `minor` or `major`.
        first_version: Number of a first version, instead of 0.1.0.

    Raises:
        UsageError: `freeze.bad_bump`, `freeze.not_first`, `bundle.bad_version`.
        GuardError: `freeze.bump_too_low`, `freeze.identical`.
        AlreadyDone: `freeze.version_exists`: the draft's parent has that successor already.
    """
    if bump != "auto" and bump not in BUMPS[1:]:
        raise UsageError(
            "freeze.bad_bump",
            f"{bump!r} is not a bump",
            remedy=f"use auto, {', '.join(BUMPS[1:])}",
        )
    roots = version_dirs(draft.root.parent)
    known = frozenset(root.name for root in roots)
    if not roots:
        return Number(
            version=Version.parse(first_version or FIRST_VERSION),
            parent=None,
            bump="first",
            computed="first",
            changes=(),
            known=known,
        )
    if first_version is not None:
        raise UsageError(
            "freeze.not_first",
            f"{draft.id} has versions already, {roots[0].name} the latest",
            remedy="drop --first-version",
        )
    parent = _parent(draft, roots)
    _refuse_identical(draft, roots)
    found = diff(parent, draft.root)
    if found.bump == "none":
        raise _identical(draft, parent.name)
    level = _level(draft, bump, found, parent.name)
    version = Version.parse(parent.name).bumped(level)
    if str(version) in known:
        raise AlreadyDone(
            "freeze.version_exists",
            f"{draft.id}@{version} exists already, and the draft was made from {parent.name}",
            where=workspace.relative(draft.root),
            remedy=f"ask for a larger bump, or start again from {draft.id}@{roots[0].name}",
        )
    return Number(
        version=version,
        parent=parent,
        bump=level,
        computed=found.bump,
        changes=found.changes,
        known=known,
    )


def origin_of(workspace: Workspace, bundle: Bundle) -> Path | None:
    """Return the directory that a bundle is compared with when nobody names one.

    That is its parent version, or the newest other one; for the first of a line what it was forked
    from, another strategy's version or a template; None when it was written from nothing.

    Raises:
        RegistryError: What it was forked from is not there any more; see `resolve`.
    """
    folder = bundle.root.parent
    roots = [root for root in version_dirs(folder) if root != bundle.root]
    if roots:
        return _parent(bundle, roots)
    provenance = bundle.manifest.raw["provenance"]
    if "x-template" in provenance:
        return template_dir(str(provenance["x-template"]))
    forked = provenance.get("x-forked-from")
    return resolve(workspace, str(forked)).root if forked else None


def _parent(draft: Bundle, roots: list[Path]) -> Path:
    named = draft.manifest.provenance.parent_version
    return next((root for root in roots if root.name == named), roots[0])


def _level(draft: Bundle, bump: str, found: VersionDiff, parent: str) -> Level:
    levels: dict[str, Level] = {"patch": "patch", "minor": "minor", "major": "major"}
    if bump == "auto":
        return levels[found.bump]
    if _rank(bump) < _rank(found.bump):
        forcing = "; ".join(change.text for change in found.forcing)
        raise GuardError(
            "freeze.bump_too_low",
            f"the changes from {parent} demand {found.bump}, not {bump}: {forcing}",
            where=draft.ref,
            remedy=f"freeze with --bump {found.bump} or auto, or undo those changes",
            details={"computed": found.bump, "forcing": [c.text for c in found.forcing]},
        )
    return levels[bump]


def _rank(bump: Bump | str) -> int:
    return [str(known) for known in BUMPS].index(bump)


def _refuse_identical(draft: Bundle, roots: list[Path]) -> None:
    mine = content_digest(draft.root)
    for root in roots:
        if content_digest(root) == mine:
            raise _identical(draft, root.name)


def _identical(draft: Bundle, version: str) -> GuardError:
    return GuardError(
        "freeze.identical",
        f"the draft holds nothing that {draft.id}@{version} does not",
        where=draft.ref,
        remedy=f"change something, or activate that version: "
        f"kit registry activate {draft.id}@{version} --why '...'",
        details={"version": version},
    )
