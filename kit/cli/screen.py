"""`kit screen`."""

from __future__ import annotations

from typing import Any

import click

from kit.cli import output
from kit.clock import SystemClock
from kit.errors import AlreadyDone

__all__ = ["perform", "screen"]


@click.command(epilog="Example: kit screen ma250-pullback@0.3.1 --date 2020-02-27 --json")
@click.argument("ref", metavar="ID[@VERSION|@draft]")
@click.option("--date", help="Trade date, YYYY-MM-DD [default: the latest complete session].")
@click.option(
    "--mode",
    type=click.Choice(["auto", "live", "offline"]),
    default="auto",
    show_default=True,
    help="auto is live when the model's key is configured, offline otherwise.",
)
@click.option("--limit", type=int, help="Most picks [default: the bundle's own].")
@click.option("--again", is_flag=True, help="Run once more although it is done: a new attempt.")
@click.option(
    "--deliver/--no-deliver", default=None, help="Send the card [drafts: no, versions: yes]."
)
@click.option("--cron", is_flag=True, help="Unattended: only when due, exit 0 once it is told.")
@output.force_channel_option
@output.json_option
@click.pass_obj
def screen(
    session: output.Session,
    ref: str,
    date: str | None,
    mode: str,
    limit: int | None,
    again: bool,
    deliver: bool | None,
    cron: bool,
    force_channel_mismatch: bool,
    as_json: bool,
) -> int:
    """Run a daily screen and deliver its card."""
    return perform(
        session,
        ref,
        date=date,
        mode=mode,
        limit=limit,
        again=again,
        deliver=deliver,
        cron=cron,
        forced_by=output.login_name() if force_channel_mismatch else None,
        as_json=as_json,
    )


def perform(session: output.Session, ref: str, *, as_json: bool, **options: Any) -> int:
    """Run the screen and show what became of it; `kit rerun` calls this too."""
    from kit.jobs.screen import run_screen
    from kit.state import Store

    workspace = session.workspace()
    try:
        done = run_screen(
            workspace,
            ref,
            clock=SystemClock(),
            store=Store(workspace.state_path),
            stream=output.card_stream(as_json=as_json),
            progress=output.run_progress(),
            **options,
        )
    except AlreadyDone as error:
        # Unattended, a second fire is as it should be.
        if not options.get("cron"):
            raise output.with_again(error) from None
        return output.show_already(error, as_json=as_json)
    head = {"status": done.status, "ref": done.ref, "date": str(done.day), "reason": done.reason}
    return output.show_outcome(
        head, done.run, done.result, done.error(), as_json=as_json, workspace=workspace
    )
