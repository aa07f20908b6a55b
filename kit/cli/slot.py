"""`kit slot`: intraday slots."""

from __future__ import annotations

from typing import Any

import click

from kit.cli import output
from kit.clock import SystemClock, parse_instant
from kit.errors import AlreadyDone

__all__ = ["perform", "slot"]


@click.group(epilog="Example: kit slot run --market cn --now 2024-09-18T10:03+08:00")
def slot() -> None:
    """Run an intraday slot and deliver its card."""


@slot.command(epilog="Example: kit slot run --market cn --now 2024-09-18T10:03+08:00")
@click.option("--market", type=click.Choice(["cn", "hk", "us"]), required=True)
@click.option("--now", help="Instant to run as of, ISO 8601 with offset [default: now].")
@click.option(
    "--mode",
    type=click.Choice(["auto", "live", "offline"]),
    default="auto",
    show_default=True,
    help="auto is live when the model's key is configured, offline otherwise.",
)
@click.option("--again", is_flag=True, help="Run once more although it is done: a new attempt.")
@click.option("--deliver/--no-deliver", default=True, help="Send the card.", show_default=True)
@click.option("--if-due", is_flag=True, help="Do nothing unless the schedule wants it now.")
@click.option("--cron", is_flag=True, help="Unattended: implies --if-due, exit 0 once it is told.")
@output.json_option
@click.pass_obj
def run(
    session: output.Session,
    market: str,
    now: str | None,
    mode: str,
    again: bool,
    deliver: bool,
    if_due: bool,
    cron: bool,
    as_json: bool,
) -> int:
    """Run the slot that an instant belongs to."""
    return perform(
        session,
        market,
        now=now,
        mode=mode,
        again=again,
        deliver=deliver,
        if_due=if_due,
        cron=cron,
        as_json=as_json,
    )


def perform(
    session: output.Session, market: str, *, now: str | None, as_json: bool, **options: Any
) -> int:
    """Run the slot and show what became of it; `kit rerun` calls this too."""
    from kit.jobs.slot import run_slot
    from kit.state import Store

    workspace = session.workspace()
    try:
        done = run_slot(
            workspace,
            market,
            now=None if now is None else parse_instant(now),
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
    head = {
        "status": done.status,
        "market": done.market,
        "slot": done.slot.id if done.slot else None,
        "reason": done.reason,
    }
    return output.show_outcome(
        head, done.run, None, done.error(), as_json=as_json, workspace=workspace
    )
