"""Freeze: cut an immutable version from a draft, or leave everything as it was.

The order: lint; the version number; the injected checks; a complete copy staged beside its place;
then, under the registry's lock, one rename, read-only modes, the activation log and INDEX.json. A
failure before the end takes the version away again; a crash after the rename is found by
`kit verify` and mended by `kit registry rebuild`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kit.bundle.conversation import conversation_files, read_conversation, slugify
from kit.bundle.draft import settle_draft
from kit.bundle.findings import Finding, errors_of
from kit.bundle.frozen import Check, CheckResult, FreezeChecks, FrozenVersion
from kit.bundle.landing import heal, land
from kit.bundle.layout import DRAFT, check_id
from kit.bundle.leftovers import discard
from kit.bundle.lint import lint
from kit.bundle.model import Bundle, resolve
from kit.bundle.numbering import Number, decide
from kit.bundle.rebuild import version_dirs
from kit.bundle.registry import locked, read_index, strategy_dir
from kit.bundle.stage import Plan, stage
from kit.clock import Clock, iso
from kit.errors import AlreadyDone, BundleError, GuardError, KitError, StorageError
from kit.workspace import Workspace

__all__ = ["Check", "CheckResult", "FreezeChecks", "FrozenVersion", "freeze"]


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
        UsageError: `bundle.bad_id`, `bundle.bad_version`, `conversation.bad_slug`,
            `freeze.bad_bump`, `freeze.not_first`.
        BundleError: `freeze.lint`, with every finding in `details`.
        GuardError: `freeze.checks`, `freeze.bump_too_low`, `freeze.identical`.
        AlreadyDone: `freeze.version_exists`: another freeze was first, and which version it cut.
        StorageError: The disk refused; nothing was changed.
    """
    check_id(id)
    slug = slugify(slug) if slug is not None else None
    notes = heal(workspace, strategy_dir(workspace, id), who="kit freeze", clock=clock)
    bundle, warnings = _linted(workspace, id, progress)
    author = who or bundle.manifest.provenance.created_by or "kit"
    number = decide(workspace, bundle, bump, first_version)
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
        discard(staging)
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
            remedy="; ".join(dict.fromkeys(result.mend for result in failed if result.mend)),
            details={"checks": [result.to_dict() for result in results]},
        )
    return results


def _conversation(bundle: Bundle) -> CheckResult:
    mend = f"write down how it came to be: kit note {bundle.id} 'why this change'"
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
    number: Number,
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
    try:
        land(
            workspace,
            staging,
            root,
            event="freeze",
            who=author,
            why=why,
            activate=activate,
            clock=clock,
        )
    except StorageError as error:
        if error.code == "file.exists":
            raise _lost_race(draft, root.name) from error
        raise
    return root


def _lost_race(draft: Bundle, version: str) -> AlreadyDone:
    return AlreadyDone(
        "freeze.version_exists",
        f"another freeze was first: {draft.id}@{version} exists now",
        where=draft.ref,
        remedy=f"look at what it holds: kit registry show {draft.id}",
        details={"version": version},
    )
