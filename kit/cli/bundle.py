"""`kit new`, `lint`, `diff`, `freeze` and `verify`: a bundle from draft to frozen version."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kit.cli import output
from kit.clock import SystemClock
from kit.errors import UsageError

if TYPE_CHECKING:
    from kit.bundle import FrozenVersion
    from kit.workspace import Workspace

_INVALID = 3


@click.command(epilog="Example: kit new quiet-pullback --template pullback")
@click.argument("strategy_id", metavar="ID")
@click.option(
    "--from",
    "origin",
    metavar="ID@VERSION",
    help="Version to start from [default: the strategy's own latest].",
)
@click.option("--template", metavar="NAME", help="Start from `pullback` or `event-driven` instead.")
@output.json_option
@click.pass_obj
def new(
    session: output.Session,
    strategy_id: str,
    origin: str | None,
    template: str | None,
    as_json: bool,
) -> None:
    """Start a draft from a version or a template."""
    from kit import bundle

    if origin and template:
        raise click.UsageError("--from and --template exclude each other")
    workspace = session.workspace()
    draft = bundle.new_draft(workspace, strategy_id, origin, template=template)
    near = bundle.near_ids(workspace, strategy_id)
    if as_json:
        output.emit_json({"id": strategy_id, "draft": workspace.relative(draft), "near": near})
        return
    output.say(f"draft ready: {workspace.relative(draft)}")
    if near:
        output.message(f"warning: easily mistaken for {', '.join(near)}")
    output.message(f"next: edit it, then kit lint {strategy_id} and kit backtest {strategy_id}")


@click.command(epilog="Example: kit note quiet-pullback 'near_pct 5: too few picks at 4'")
@click.argument("strategy_id", metavar="ID")
@click.argument("text")
@output.json_option
@click.pass_obj
def note(session: output.Session, strategy_id: str, text: str, as_json: bool) -> None:
    """Record a decision into a draft's conversation.

    Freeze asks for one: a version carries the reasons that led to it.
    """
    from kit import bundle

    workspace = session.workspace()
    bundle.check_id(strategy_id)
    draft = workspace.strategies / strategy_id / "draft"
    path = bundle.record_note(draft, text, clock=SystemClock())
    if as_json:
        output.emit_json({"id": strategy_id, "conversation": workspace.relative(path)})
    else:
        output.say(f"noted in {workspace.relative(path)}")


@click.command(epilog="Example: kit lint ma250-pullback")
@click.argument("ref", metavar="ID[@VERSION]")
@output.json_option
@click.pass_obj
def lint(session: output.Session, ref: str, as_json: bool) -> int:
    """Check a draft or a version against every rule."""
    from kit.bundle import errors_of, read_index
    from kit.bundle.lint import lint as find
    from kit.jobs.agreement import exact_findings

    workspace = session.workspace()
    root = _root(workspace, ref)
    is_draft = root.name == "draft"
    findings = find(root, draft=is_draft, index=read_index(workspace).raw)
    findings += exact_findings(workspace, root)
    errors = len(errors_of(findings))
    if as_json:
        listed = [finding.to_dict() for finding in findings]
        output.emit_json({"bundle": workspace.relative(root), "errors": errors, "findings": listed})
        return _INVALID if errors else 0
    for finding in findings:
        output.say(f"{workspace.relative(root)}/{finding}")
        output.say(f"  → {finding.mend}")
    output.say(f"{workspace.relative(root)}: {errors} errors, {len(findings) - errors} warnings")
    return _INVALID if errors else 0


@click.command(epilog="Example: kit diff ma250-pullback 0.3.0 0.3.1")
@click.argument("strategy_id", metavar="ID")
@click.argument("old", metavar="[OLD]", required=False)
@click.argument("new_", metavar="[NEW]", required=False)
@output.json_option
@click.pass_obj
def diff(
    session: output.Session, strategy_id: str, old: str | None, new_: str | None, as_json: bool
) -> None:
    """Explain what changed between two versions.

    OLD defaults to what NEW was made from, NEW to the draft.
    """
    from kit.bundle import resolve
    from kit.bundle.diff import diff as compare
    from kit.bundle.numbering import origin_of

    workspace = session.workspace()
    target = resolve(workspace, f"{strategy_id}@{new_ or 'draft'}")
    named = resolve(workspace, f"{strategy_id}@{old}").root if old else None
    origin = named or origin_of(workspace, target)
    if origin is None:
        raise UsageError(
            "bundle.no_parent",
            f"{strategy_id} has no frozen version to compare with",
            remedy=f"cut the first one: kit freeze {strategy_id}",
        )
    found = compare(origin, target.root)
    same = origin.parent == target.root.parent
    name = origin.name if same else f"{origin.parent.name}/{origin.name}"
    if as_json:
        changes = [dict(vars(change)) for change in found.changes]
        output.emit_json(
            {"old": name, "new": target.root.name, "bump": found.bump, "changes": changes}
        )
        return
    output.say(f"{strategy_id}: {name} → {target.root.name}: {found.bump.upper()}")
    for area, changes_of in groupby(found.changes, key=lambda change: change.area):
        output.say(area)
        for change in changes_of:
            output.say(f"  {change}")


@click.command(epilog="Example: kit freeze ma250-pullback --bump auto --activate")
@click.argument("strategy_id", metavar="ID")
@click.option(
    "--bump",
    type=click.Choice(["auto", "patch", "minor", "major"]),
    default="auto",
    show_default=True,
    help="auto takes what the differences demand; a lower one is refused.",
)
@click.option("--first-version", metavar="X.Y.Z", help="Number of a first version [0.1.0].")
@click.option("--slug", help="New name of the newest conversation, three or four words.")
@click.option("--activate/--no-activate", default=False, help="Make it the version cron runs.")
@click.option("--why", default="", help="Reason, for the activation log.")
@output.json_option
@click.pass_obj
def freeze(
    session: output.Session,
    strategy_id: str,
    bump: str,
    first_version: str | None,
    slug: str | None,
    activate: bool,
    why: str,
    as_json: bool,
) -> None:
    """Cut an immutable version from a draft."""
    from kit.jobs.freeze import freeze_draft

    frozen = freeze_draft(
        session.workspace(),
        strategy_id,
        bump=bump,
        first_version=first_version,
        slug=slug,
        activate=activate,
        who=output.login_name(),
        why=why,
        clock=SystemClock(),
        progress=output.progress_to_stderr(),
    )
    if as_json:
        output.emit_json(frozen.to_dict())
    else:
        _show_frozen(frozen, session.workspace())


def _show_frozen(frozen: FrozenVersion, workspace: Workspace) -> None:
    output.table(
        ("check", "result", "found"),
        [
            (c.name, "ok" if c.ok else "refused" if c.blocking else "note", c.detail)
            for c in frozen.checks
        ],
    )
    for change in frozen.changes:
        output.say(f"  {change}")
    for warning in frozen.warnings:
        output.message(f"warning: {warning}")
    for note in frozen.notes:
        output.message(f"note: {note}")
    output.say(f"frozen: {frozen.ref} ({frozen.bump}) at {workspace.relative(frozen.root)}")
    output.say(f"sha256 of its checksums.txt: {frozen.digest}")
    if frozen.activated:
        output.message("it is the active version now")
    else:
        output.message(f"to run it from cron: kit registry activate {frozen.ref} --why '...'")


@click.command(epilog="Example: kit verify ma250-pullback@0.3.1")
@click.argument("ref", metavar="[ID[@VERSION]]", required=False)
@click.option("--fix", is_flag=True, help="Set the read-only modes again (git keeps none).")
@output.json_option
@click.pass_obj
def verify(session: output.Session, ref: str | None, fix: bool, as_json: bool) -> int:
    """Re-hash every frozen version."""
    from kit.bundle.verify import verify as check

    found = check(session.workspace(), ref, fix=fix)
    if as_json:
        output.emit_json(found.to_dict())
        return 0 if found.ok else _INVALID
    real = [row for row in found.rows if not row.advice]
    if real:
        output.table(
            ("version", "file", "kind", "detail"),
            [(row.ref, row.path, row.kind, row.detail) for row in real],
        )
        output.message("  → restore the files from git or from an export; a fix is a new version")
    advice = len(found.rows) - len(real)
    if advice:
        output.message(f"{advice} modes are not read-only (git keeps none); kit verify --fix")
    for name in found.fixed:
        output.message(f"read-only again: {name}")
    output.say(f"{len(found.checked)} versions re-hashed: {'intact' if found.ok else 'NOT INTACT'}")
    return 0 if found.ok else _INVALID


def _root(workspace: Workspace, ref: str) -> Path:
    """Return the directory to lint without opening the bundle: it may be too broken to open."""
    from kit.bundle import parse_ref, resolve

    parsed = parse_ref(ref)
    if parsed.version is None:
        draft = workspace.strategies / parsed.id / "draft"
        if draft.is_dir():
            return draft
    elif (workspace.strategies / parsed.id / str(parsed.version)).is_dir():
        return workspace.strategies / parsed.id / str(parsed.version)
    return resolve(workspace, ref, verify=False).root
