"""`kit runs`, `kit show` and `kit rerun`: what ran, and what became of it."""

from __future__ import annotations

import click

from kit.cli import output
from kit.clock import parse_date
from kit.text import one_line


@click.command(epilog="Example: kit runs --date 2020-02-27")
@click.option("--date", "trade_date", help="Only this trade date, YYYY-MM-DD.")
@click.option("--kind", type=click.Choice(["screen", "screens", "slot"]), help="Only this kind.")
@click.option("--subject", help="Only subjects that begin with this.")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True)
@click.option("--files", is_flag=True, help="Name the files to open.")
@click.option("--latest", is_flag=True, help="Only the latest run of each kind.")
@output.json_option
@click.pass_obj
def runs(
    session: output.Session,
    trade_date: str | None,
    kind: str | None,
    subject: str | None,
    limit: int,
    files: bool,
    latest: bool,
    as_json: bool,
) -> None:
    """List runs."""
    from kit.jobs.runs import list_runs

    if trade_date is not None:
        parse_date(trade_date)
    workspace = session.workspace()
    rows = list_runs(
        workspace,
        trade_date=trade_date,
        kind=kind,
        subject=subject,
        limit=None if latest else limit,
    )
    if latest:
        newest = {}
        for row in sorted(rows, key=lambda row: row.started_at):
            newest[row.kind] = row
        rows = list(newest.values())
    if as_json:
        output.emit_json([row.to_dict() for row in rows])
        return
    if not rows:
        asked = trade_date or kind or subject
        output.message(
            "no run fits; all of them: kit runs"
            if asked
            else "no runs yet; next: kit screen ma250-pullback --date 2020-02-27"
        )
        return
    if files:
        for row in rows:
            folder = workspace.runs / row.run_id
            for path in sorted(folder.rglob("*")):
                if path.name in _TO_OPEN:
                    output.say(f"  {workspace.relative(path)}")
        return
    output.table(
        ("run", "status", "started", "seconds", "delivered", "note"),
        [
            (
                row.run_id,
                row.status,
                row.started_at,
                None if row.seconds is None else f"{row.seconds:.1f}",
                ", ".join(f"{channel}: {state}" for channel, state in row.receipts.items()),
                row.note,
            )
            for row in rows
        ],
    )


_TO_OPEN = {"card.md", "card.txt", "degradation.json", "notebook.ipynb", "picks.json"}


@click.command(epilog="Example: kit show 2020-02-27/screen-ma250-pullback@0.3.1/1")
@click.argument("run", metavar="RUN")
@output.json_option
@click.pass_obj
def show(session: output.Session, run: str, as_json: bool) -> None:
    """Show one run: card, report, receipts, files."""
    from kit.card import render_card
    from kit.jobs.runs import show_run
    from kit.state import Store

    workspace = session.workspace()
    store = Store(workspace.state_path) if workspace.state_path.is_file() else None
    details = show_run(workspace, store, run)
    if as_json:
        output.emit_json(details.to_dict())
        return
    output.say(f"{details.run_id}: {details.status}")
    if details.problem:
        output.say(details.problem)
    if details.card is not None:
        output.say(f"\n{render_card(details.card, 'plain')}")
    click.echo()
    output.table(
        ("channel", "state", "attempts", "detail"),
        [(r["channel"], r["state"], r["attempts"], r["detail"]) for r in details.receipts],
    )
    click.echo()
    output.say(f"files in {details.folder}:")
    for name in details.files:
        output.say(f"  {one_line(name)}")
    if details.next_command:
        output.message(f"next: {details.next_command}")


@click.command(epilog="Example: kit rerun 2020-02-27/screen-ma250-pullback@0.3.1/1")
@click.argument("run", metavar="RUN")
@output.json_option
@click.pass_obj
def rerun(session: output.Session, run: str, as_json: bool) -> int:
    """Run again with the parameters of a past run.

    It makes a new attempt beside the old one, with a card of its own.
    """
    from kit.cli import screen, slot
    from kit.errors import UsageError
    from kit.jobs.runs import show_run

    record = show_run(session.workspace(), None, run).record
    if record is None:
        raise UsageError(
            "run.no_record",
            f"{run} left no record to run again from",
            remedy="run the original command again with --again",
        )
    parameters = record["parameters"]
    if record["key"]["kind"] == "screens":
        return screen.perform_all(
            session,
            date=record["key"]["trade_date"],
            mode=parameters["mode"],
            limit=parameters.get("limit"),
            again=True,
            as_json=as_json,
        )
    if record["key"]["kind"] == "screen":
        return screen.perform(
            session,
            record["key"]["subject"],
            date=record["key"]["trade_date"],
            mode=parameters["mode"],
            limit=parameters["limit"],
            again=True,
            as_json=as_json,
        )
    return slot.perform(
        session,
        record["key"]["subject"],
        now=parameters["now"],
        mode=parameters["mode"],
        again=True,
        as_json=as_json,
    )
