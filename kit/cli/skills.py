"""`kit skills`: active versions where agents look for skills."""

from __future__ import annotations

import click

from kit.cli import output

_INVALID = 3


@click.group(epilog="Example: kit skills sync")
def skills() -> None:
    """Copy active versions to where agents load skills."""


@skills.command(epilog="Example: kit skills sync --target claude --target agents")
@click.option(
    "--target",
    "targets",
    metavar="NAME|DIR",
    multiple=True,
    help="claude, opencode, agents, vibe-trading, or a directory; may be repeated [claude].",
)
@click.option("--dry-run", is_flag=True, help="Say what would change; change nothing.")
@output.json_option
@click.pass_obj
def sync(session: output.Session, targets: tuple[str, ...], dry_run: bool, as_json: bool) -> int:
    """Bring the copies of every active version, and of the authoring skill, up to date.

    A copy of a strategy that is no longer active goes; a folder that this command did not make, or
    that was changed since, is never touched.
    """
    from kit.bundle.skills_sync import sync_skills

    workspace = session.workspace()
    done = [sync_skills(workspace, name, dry_run=dry_run) for name in targets or ("claude",)]
    ok = all(target.ok for target in done)
    if as_json:
        output.emit_json({"dry_run": dry_run, "targets": [target.to_dict() for target in done]})
        return 0 if ok else _INVALID
    for target in done:
        place = workspace.relative(target.folder)
        rows = [(copy.name, copy.ref, copy.state, copy.detail) for copy in target.copies]
        output.table(("skill", "from", "state", "why"), rows)
        output.say(f"{place}: {len(rows)} skills{', nothing changed' if dry_run else ''}")
    return 0 if ok else _INVALID
