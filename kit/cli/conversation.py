"""`kit conversation`: session logs of agents become part of a draft's history."""

from __future__ import annotations

from pathlib import Path

import click

from kit.cli import output
from kit.errors import UsageError
from kit.workspace import Workspace


@click.group(epilog="Example: kit conversation import session.jsonl --draft quiet-pullback")
def conversation() -> None:
    """Import an agent's session log."""


@conversation.command(
    name="import",
    epilog="Example: kit conversation import session.jsonl --draft quiet-pullback",
)
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option(
    "--format",
    "format_",
    type=click.Choice(["auto", "claude-code", "opencode", "jsonl"]),
    default="auto",
    show_default=True,
    help="Whose log it is; opencode's is what `opencode export SESSION` prints.",
)
@click.option("--draft", "strategy_id", metavar="ID", help="Whose draft [default: the only one].")
@click.option("--slug", help="Name of the conversation [default: three or four words of its own].")
@click.option(
    "--mode",
    type=click.Choice(["auto", "live", "offline"]),
    default="auto",
    show_default=True,
    help="Who finds the name: a model, or its offline equivalent.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be added; write nothing.")
@output.json_option
@click.pass_obj
def import_(
    session: output.Session,
    file: Path,
    format_: str,
    strategy_id: str | None,
    slug: str | None,
    mode: str,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Import a session log of Claude Code or opencode into a draft.

    Messages, tool calls and their results keep their roles and times. Secrets are masked, long
    outputs become a digest. Importing a session again adds only what is new in it.
    """
    from kit.jobs.conversation import import_session

    workspace = session.workspace()
    done = import_session(
        workspace,
        strategy_id or _only_draft(workspace),
        file,
        format_=format_,
        slug=slug,
        mode=mode,
        dry_run=dry_run,
    )
    path = workspace.relative(done.path)
    for finding in done.log.findings:
        output.message(f"{finding}")
    for notice in done.log.notices:
        output.message(f"note: {notice}")
    if as_json:
        output.emit_json({"conversation": path, "dry_run": dry_run, **done.to_dict()})
        return
    verb = "would be added" if dry_run else "added"
    output.say(f"{path}: {done.added} events {verb}, {done.known} known before")


def _only_draft(workspace: Workspace) -> str:
    drafts = sorted(path.parent.name for path in workspace.strategies.glob("*/draft"))
    if len(drafts) == 1:
        return drafts[0]
    raise UsageError(
        "draft.missing",
        f"there are {len(drafts)} drafts: {', '.join(drafts) or 'none'}",
        remedy="say which one: --draft ID" if drafts else "make one: kit new ID",
    )
