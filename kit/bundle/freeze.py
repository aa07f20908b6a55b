"""Freeze: cut an immutable version from a draft, or leave everything as it was.

The order: lint; the version number; the injected checks; a complete copy staged beside its place;
then, under the registry's lock, one rename, read-only modes, the activation log and INDEX.json. A
failure before the end takes the version away again; a crash after the rename is found by
`kit verify` and mended by `kit registry rebuild`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kit import files
from kit.bundle.activations import Activation
from kit.bundle.conversation import conversation_files, read_conversation
from kit.bundle.diff import BUMPS, Bump, Change, VersionDiff, content_digest, diff
from kit.bundle.draft import FIRST_VERSION, settle_draft
from kit.bundle.findings import Finding, errors_of
from kit.bundle.layout import DRAFT, Level, Version, check_id
from kit.bundle.lint import lint
from kit.bundle.model import Bundle, resolve
from kit.bundle.rebuild import entry_of, rebuild, strategy_value, version_dirs
from kit.bundle.registry import VersionEntry, commit, locked, read_index, strategy_dir
from kit.bundle.stage import Plan, clean_stale, stage
from kit.clock import Clock, iso
from kit.errors import AlreadyDone, BundleError, GuardError, KitError, StorageError, UsageError
from kit.workspace import Workspace

__all__ = ["Check", "CheckResult", "FreezeChecks", "FrozenVersion", "freeze"]


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """What one check of a draft said.

    Attributes:
        name: Short name, such as `evidence`.
        ok: Whether it passed.
        detail: What it found, one sentence.
        mend: What to do when it did not pass.
        blocking: Whether a failure stops the freeze; other failures are shown.
        artifacts: Relative path -> bytes to put into the version, such as the executed notebook.
    """

    name: str
    ok: bool
    detail: str
    mend: str = ""
    blocking: bool = True
    artifacts: Mapping[str, bytes] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the shape `--json` prints (artifacts by name)."""
        value = {key: item for key, item in vars(self).items() if key != "artifacts"}
        return {**value, "artifacts": sorted(self.artifacts)}


Check = Callable[[Bundle], CheckResult]


@dataclass(frozen=True, kw_only=True)
class FreezeChecks:
    """The checks that need rooms above this one; the job that freezes hands them in.

    Attributes:
        evidence: A backtest exists whose fingerprints equal the draft's.
        lookahead: The lookahead guard passed on that same code.
        warmup: The manifest's warm-up covers what was measured.
        notebook: The authoring notebook re-executes clean; may return the executed copy.
        advisory: Further checks; their own `blocking` decides.
    """

    evidence: Check
    lookahead: Check
    warmup: Check
    notebook: Check
    advisory: tuple[Check, ...] = ()

    @property
    def all(self) -> tuple[Check, ...]:
        """Every check, in the order in which they run."""
        return (self.evidence, self.lookahead, self.warmup, self.notebook, *self.advisory)


@dataclass(frozen=True, kw_only=True)
class FrozenVersion:
    """A version that was just cut.

    Attributes:
        id: Strategy id.
        version: Its number.
        root: Its directory.
        digest: SHA-256 of its checksums.txt.
        parent_version: Version it was compared with; None for a first version.
        bump: Bump taken; `first` for a first version.
        computed_bump: Bump the differences demand; `first` for a first version.
        changes: Differences to the parent.
        checks: What each check said.
        warnings: Lint findings that do not block.
        activated: Whether it is now the active version.
        notes: What happened beside the freeze itself.
    """

    id: str
    version: str
    root: Path
    digest: str
    parent_version: str | None
    bump: str
    computed_bump: str
    changes: tuple[Change, ...]
    checks: tuple[CheckResult, ...]
    warnings: tuple[Finding, ...] = ()
    activated: bool = False
    notes: tuple[str, ...] = ()

    @property
    def ref(self) -> str:
        """`id@version`."""
        return f"{self.id}@{self.version}"

    def to_dict(self) -> dict[str, Any]:
        """Return the shape `--json` prints."""
        return {
            **vars(self),
            "ref": self.ref,
            "root": str(self.root),
            "changes": [dict(vars(change)) for change in self.changes],
            "checks": [check.to_dict() for check in self.checks],
            "warnings": [finding.to_dict() for finding in self.warnings],
            "notes": list(self.notes),
        }


@dataclass(frozen=True, kw_only=True)
class _Number:
    """The version number decided on, and why."""

    version: Version
    parent: Path | None
    bump: str
    computed: str
    changes: tuple[Change, ...]
    known: frozenset[str]


def freeze(
    workspace: Workspace,
    id: str,  # noqa: A002 - the word of the house
    *,
    checks: FreezeChecks,
    clock: Clock,
    bump: str = "auto",
    first_version: str | None = None,
    slug: str | None = None,
    activate: bool = False,
    who: str | None = None,
    why: str = "",
    progress: Callable[[str], None] = lambda _message: None,
) -> FrozenVersion:
    """Cut the next version of a strategy from its draft.

    Args:
        workspace: The workspace.
        id: Strategy id.
        checks: The checks to run.
        clock: Gives the time of the freeze.
        bump: `auto` takes the computed bump; `patch`, `minor`, `major` may only be higher.
        first_version: Number of a first version, instead of 0.1.0.
        slug: New name of the newest conversation.
        activate: Whether to make the version the active one.
        who: Person or program; the draft's `provenance.created_by`, or `kit`, when None.
        why: Reason, for the activation log.
        progress: Called with the name of each stage.

    Raises:
        UsageError: `bundle.bad_id`, `bundle.bad_version`, `freeze.bad_bump`, `freeze.not_first`.
        BundleError: `freeze.lint`, with every finding in `details`.
        GuardError: `freeze.checks`, `freeze.bump_too_low`, `freeze.identical`.
        AlreadyDone: `freeze.version_exists`: another freeze was first, and which version it cut.
        StorageError: The disk refused; nothing was changed.
    """
    check_id(id)
    notes = _healed(workspace, strategy_dir(workspace, id), clock)
    bundle, warnings = _linted(workspace, id, progress)
    author = who or bundle.manifest.provenance.created_by or "kit"
    number = _decide(workspace, bundle, bump, first_version)
    results = _run_checks(bundle, checks, progress)
    progress("stage")
    plan = Plan(
        version=number.version,
        parent=number.parent,
        bump=number.bump,
        changes=number.changes,
        created_by=author,
        created_at=iso(clock.now()),
        slug=slug,
        artifacts={k: v for result in results for k, v in result.artifacts.items()},
    )
    staging, digest = stage(bundle, plan)
    try:
        progress("publish")
        reason = why or (f"freeze --slug {slug}" if slug else "freeze")
        with locked(workspace):
            root = _publish(workspace, bundle, staging, number, author, reason, activate, clock)
    finally:
        files.remove_tree(staging)
    try:
        settle_draft(bundle.root, root)
    except KitError as error:
        notes.append(f"the draft still names its old parent: {error}")
    return FrozenVersion(
        id=id,
        version=str(number.version),
        root=root,
        digest=digest,
        parent_version=number.parent.name if number.parent else None,
        bump=number.bump,
        computed_bump=number.computed,
        changes=number.changes,
        checks=tuple(results),
        warnings=warnings,
        activated=activate,
        notes=tuple(notes),
    )


def _healed(workspace: Workspace, folder: Path, clock: Clock) -> list[str]:
    """Clean up after freezes that were killed, and list a version they could not register."""
    notes = [
        f"removed {name}, left by a dead process"
        for place in (workspace.root, folder)
        for name in clean_stale(place)
    ]
    strategy = read_index(workspace).strategies.get(folder.name)
    listed = {entry.version for entry in strategy.versions} if strategy else set()
    roots = version_dirs(folder) if folder.is_dir() else []
    if all(root.name in listed for root in roots):
        return notes
    return [*notes, *rebuild(workspace, who="kit freeze", clock=clock).notes]


def _linted(
    workspace: Workspace, id_: str, progress: Callable[[str], None]
) -> tuple[Bundle, tuple[Finding, ...]]:
    progress("lint")
    draft = workspace.strategies / id_ / DRAFT
    if not draft.is_dir():
        return resolve(workspace, f"{id_}@draft"), ()  # raises, naming what there is
    findings = lint(draft, draft=True, index=read_index(workspace).raw)
    blocking = errors_of(findings)
    if blocking:
        shown = "; ".join(f"{f.where} {f.message}" for f in blocking[:3])
        more = f"; and {len(blocking) - 3} more" if len(blocking) > 3 else ""
        raise BundleError(
            "freeze.lint",
            f"lint found {len(blocking)} error(s): {shown}{more}",
            where=workspace.relative(draft),
            remedy=f"see them all: kit lint {id_}",
            details={"findings": [finding.to_dict() for finding in findings]},
        )
    return Bundle.open(draft), tuple(findings)


def _decide(workspace: Workspace, draft: Bundle, bump: str, first_version: str | None) -> _Number:
    """Choose the version number from the differences to the parent."""
    if bump != "auto" and bump not in BUMPS[1:]:
        raise UsageError(
            "freeze.bad_bump",
            f"{bump!r} is not a bump",
            remedy=f"use auto, {', '.join(BUMPS[1:])}",
        )
    roots = version_dirs(draft.root.parent)
    known = frozenset(root.name for root in roots)
    if not roots:
        return _Number(
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
    return _Number(
        version=version,
        parent=parent,
        bump=level,
        computed=found.bump,
        changes=found.changes,
        known=known,
    )


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
        remedy=f"change something, or use that version: kit registry activate {draft.id} {version}",
        details={"version": version},
    )


def _run_checks(
    bundle: Bundle, checks: FreezeChecks, progress: Callable[[str], None]
) -> list[CheckResult]:
    """Run every check, then refuse once with all that failed."""
    progress("conversation")
    results = [_conversation(bundle)]
    for check in checks.all:
        result = check(bundle)
        progress(result.name)
        results.append(result)
    failed = [result for result in results if result.blocking and not result.ok]
    if failed:
        raise GuardError(
            "freeze.checks",
            "; ".join(f"{result.name}: {result.detail}" for result in failed),
            where=bundle.ref,
            remedy="; ".join(result.mend for result in failed if result.mend),
            details={"checks": [result.to_dict() for result in results]},
        )
    return results


def _conversation(bundle: Bundle) -> CheckResult:
    mend = f"write down how it came to be: %kit_note in a notebook, with {bundle.id} open"
    try:
        events = sum(len(read_conversation(path)) for path in conversation_files(bundle.root))
    except BundleError as error:
        return CheckResult(
            name="conversation", ok=False, detail=f"{error.where}: {error.message}", mend=mend
        )
    return CheckResult(
        name="conversation",
        ok=events > 0,
        detail=f"{events} event(s) recorded",
        mend=mend,
    )


def _publish(
    workspace: Workspace,
    draft: Bundle,
    staging: Path,
    number: _Number,
    author: str,
    why: str,
    activate: bool,
    clock: Clock,
) -> Path:
    """Put the staged version into place and into the registry; the caller holds the lock."""
    folder = draft.root.parent
    there = {root.name for root in version_dirs(folder)}
    if there != number.known:
        newer = ", ".join(sorted(there - number.known)) or "another"
        raise _lost_race(draft, newer)
    root = folder / str(number.version)
    index = read_index(workspace)
    try:
        files.publish_dir(staging, root)
    except StorageError as error:
        if error.code == "file.exists":
            raise _lost_race(draft, root.name) from error
        if not staging.exists():  # the rename is done, and what came after it failed
            files.remove_tree(root)
        raise
    try:
        files.set_readonly(root)
        _register(workspace, root, index.raw, author, why, activate, clock)
    except BaseException:
        files.remove_tree(root)
        raise
    return root


def _register(
    workspace: Workspace,
    root: Path,
    raw: Mapping[str, Any],
    author: str,
    why: str,
    activate: bool,
    clock: Clock,
) -> None:
    id_ = root.parent.name
    entry = entry_of(root, is_active=activate)
    old = raw["strategies"].get(id_, {"latest_active_version": None, "all_versions": []})
    keys = ("version", "created_at", "channel", "is_active", "digest")
    kept = [
        VersionEntry(**{key: value[key] for key in keys if key in value})
        for value in old["all_versions"]
    ]
    if activate:
        kept = [VersionEntry(**{**vars(other), "is_active": False}) for other in kept]
    strategies = {**raw["strategies"], id_: {**old, **strategy_value([*kept, entry])}}
    ordered = {name: strategies[name] for name in sorted(strategies)}
    now = iso(clock.now())
    events = [
        Activation(
            ts=now, event="freeze", version=root.name, digest=entry.digest, who=author, why=why
        )
    ]
    if activate:
        events.append(Activation(ts=now, event="activate", version=root.name, who=author, why=why))
    commit(workspace, id_, events, {**raw, "strategies": ordered}, clock)


def _lost_race(draft: Bundle, version: str) -> AlreadyDone:
    return AlreadyDone(
        "freeze.version_exists",
        f"another freeze was first: {draft.id}@{version} exists now",
        where=draft.ref,
        remedy=f"look at what it holds: kit registry show {draft.id}",
        details={"version": version},
    )
