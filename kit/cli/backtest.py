"""`kit backtest`."""

from __future__ import annotations

import click

from kit.cli import output
from kit.clock import SystemClock, parse_date


@click.command(epilog="Example: kit backtest ma250-pullback@0.3.1 --end 2019-12-31")
@click.argument("ref", metavar="ID[@VERSION|@draft]")
@click.option("--start", help="First date, YYYY-MM-DD [default: the bundle's config].")
@click.option("--end", help="Last date, YYYY-MM-DD [default: the bundle's config].")
@click.option(
    "--symbols", help="Symbols to trade, joined by commas [default: the bundle's config]."
)
@click.option("--label", help="Name of the evidence folder [default: iter-N].")
@output.json_option
@click.pass_obj
def backtest(
    session: output.Session,
    ref: str,
    start: str | None,
    end: str | None,
    symbols: str | None,
    label: str | None,
    as_json: bool,
) -> None:
    """Backtest a draft or a version."""
    from kit.backtest.evidence import Evidence
    from kit.jobs.backtest import backtest as run

    workspace = session.workspace()
    result, evidence = run(
        workspace,
        ref,
        start=None if start is None else parse_date(start),
        end=None if end is None else parse_date(end),
        symbols=None if symbols is None else symbols.split(","),
        label=label,
        clock=SystemClock(),
        progress=output.progress_to_stderr(),
    )
    guards = Evidence.read(evidence).engine["guards"]
    if as_json:
        place = workspace.relative(evidence)
        output.emit_json({**result.to_dict(), "guards": guards, "evidence": place})
        return
    for name in sorted(guard for guard in guards if not guards[guard]["ok"]):
        output.say(f"⛔ {name}: not passed; the numbers below cannot be believed, see report.html")
    output.say(result.summary())
    output.say(f"report: {workspace.relative(evidence / 'report.html')}")
    output.message(f"evidence: {workspace.relative(evidence)}")
