"""`kit screen`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from kit.cli import output
from kit.clock import SystemClock
from kit.errors import AlreadyDone
from kit.text import one_line

if TYPE_CHECKING:
    from kit.jobs.screen_outcome import MergedOutcome

__all__ = ["perform", "perform_all", "screen"]


@click.command(epilog="Example: kit screen ma250-pullback@0.3.1 --date 2020-02-27 --json")
@click.argument("ref", metavar="[ID[@VERSION|@draft]]", required=False)
@click.option("--all-active", is_flag=True, help="Every active version, with one card for all.")
@click.option("--date", help="Trade date, YYYY-MM-DD [default: the latest complete session].")
@click.option(
    "--mode",
    type=click.Choice(["auto", "live", "offline", "replay"]),
    default="auto",
    show_default=True,
    help="auto is live when the model's key is configured, offline otherwise; replay does the "
    "latest run over from its record.",
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
    ref: str | None,
    all_active: bool,
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
    if (ref is None) is not all_active:
        raise click.UsageError("name one strategy by its ID, or give --all-active")
    options: dict[str, Any] = {
        "date": date,
        "mode": mode,
        "limit": limit,
        "again": again,
        "deliver": deliver,
        "cron": cron,
        "forced_by": output.login_name() if force_channel_mismatch else None,
    }
    if ref is None:
        if mode == "replay" or force_channel_mismatch:
            raise click.UsageError("--all-active neither replays nor forces a channel")
        del options["forced_by"]
        return perform_all(session, as_json=as_json, **options)
    if mode == "replay":
        from kit.cli import replay
        from kit.jobs.replay import latest_screen

        run = latest_screen(session.workspace(), ref, date)
        return replay.perform(session, run, as_json=as_json)
    return perform(session, ref, as_json=as_json, **options)


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


def perform_all(session: output.Session, *, as_json: bool, **options: Any) -> int:
    """Screen every active version and show what became of each; `kit rerun` calls this too."""
    from kit.jobs.screen_all import run_all_active
    from kit.state import Store

    workspace = session.workspace()
    done = run_all_active(
        workspace,
        clock=SystemClock(),
        store=Store(workspace.state_path),
        stream=output.card_stream(as_json=as_json),
        progress=output.run_progress(),
        **options,
    )
    errors = [error for group in done if (error := group.error())]
    code = errors[0].exit_code if errors else 0
    if as_json:
        output.emit_json(
            {
                "exit_code": code,
                "cards": [group.to_dict() for group in done],
                "error": errors[0].to_dict() if errors else None,
            }
        )
        return code
    for group in done:
        _show_group(group)
    for error in errors:
        output.show_error(error, as_json=False, debug=False)
    return code


def _show_group(group: MergedOutcome) -> None:
    from kit.card import render_card

    own, run = group.merged, group.merged.run
    if run is None:
        output.say(f"{own.ref}: {own.status}: {own.reason}")
        return
    if not run.receipts and run.card is not None:
        output.say(render_card(run.card, "plain"))
    rows = [
        (
            each.status,
            each.ref,
            each.run.run_id if each.run else one_line(each.reason),
            len((each.result or {}).get("picks", ())),
        )
        for each in group.screens
    ]
    output.table(("status", "strategy", "run", "picks"), rows, sys.stderr)
    sent = ", ".join(f"{receipt.channel}: {receipt.state}" for receipt in run.receipts)
    output.message(f"{own.status}: {run.run_id} ({sent or 'not delivered'})")
