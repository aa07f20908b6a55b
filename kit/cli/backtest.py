"""`kit backtest`, `kit validate` and `kit sweep`: how a rule did, and whether to believe it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kit.cli import output
from kit.clock import SystemClock, parse_date

if TYPE_CHECKING:
    from kit.workspace import Workspace

_REFUSED = 4
_CENT = 0.01


_source = click.option(
    "--source",
    default="sample",
    show_default=True,
    help="Where bars come from: sample, parquet (the store), or a source of config/data.json.",
)


@click.command(epilog="Example: kit backtest ma250-pullback@0.3.1 --end 2019-12-31")
@click.argument("ref", metavar="ID[@VERSION|@draft]")
@click.option("--start", help="First date, YYYY-MM-DD [default: the bundle's config].")
@click.option("--end", help="Last date, YYYY-MM-DD [default: the bundle's config].")
@click.option(
    "--symbols", help="Symbols to trade, joined by commas [default: the bundle's config]."
)
@_source
@click.option("--label", help="Name of the evidence folder [default: iter-N].")
@click.option(
    "--engine",
    "simulator",
    type=click.Choice(["kit", "vibe-trading"]),
    default="kit",
    show_default=True,
    help="Run the real Vibe-Trading too, on a scratch copy, and compare.",
)
@output.force_channel_option
@output.json_option
@click.pass_obj
def backtest(
    session: output.Session,
    ref: str,
    start: str | None,
    end: str | None,
    symbols: str | None,
    source: str,
    label: str | None,
    simulator: str,
    force_channel_mismatch: bool,
    as_json: bool,
) -> None:
    """Backtest a draft or a version."""
    from kit.backtest.evidence import Evidence
    from kit.backtest.verdicts import BLOCKING
    from kit.jobs.backtest import backtest as run

    workspace = session.workspace()
    window: dict[str, Any] = {
        "start": None if start is None else parse_date(start),
        "end": None if end is None else parse_date(end),
        "symbols": None if symbols is None else symbols.split(","),
        "source": source,
        "progress": output.progress_to_stderr(),
    }
    if simulator != "kit":
        _compare(workspace, ref, window, as_json=as_json)
        return
    result, evidence = run(
        workspace,
        ref,
        **window,
        label=label,
        forced_by=output.login_name() if force_channel_mismatch else None,
        clock=SystemClock(),
    )
    engine = Evidence.read(evidence).engine
    guards, partial = engine["guards"], engine.get("partial", [])
    if as_json:
        place = workspace.relative(evidence)
        body = {**result.to_dict(), "guards": guards, "partial": partial, "evidence": place}
        output.emit_json(body)
        return
    for name in (guard for guard in BLOCKING if not guards[guard]["ok"]):
        output.say(f"⛔ {name}: not passed; the numbers below cannot be believed, see report.html")
    output.say(result.summary())
    output.say(f"1 of {guards['trials']['tried']} tried")
    if partial:
        output.say(f"partial: other {' and '.join(partial)} than config.json; no freeze takes it")
    output.say(f"report: {workspace.relative(evidence / 'report.html')}")
    output.message(f"evidence: {workspace.relative(evidence)}")


def _compare(workspace: Workspace, ref: str, window: dict[str, Any], *, as_json: bool) -> None:
    from kit.jobs.peer import compare_with_peer

    found = compare_with_peer(workspace, ref, **window)
    body = {**found.to_dict(), "folder": workspace.relative(found.folder)}
    if as_json:
        output.emit_json(body)
        return
    output.say(
        f"fills: {body['fills_same']} the same, {body['fills_different']} different; "
        f"final value {body['final_value']:.2f} here, {body['final_value_peer']:.2f} there"
    )
    rows = found.rows()
    if rows:
        output.table(("time", "symbol", "side", "size", "there", "price", "there"), rows)
    if rows or abs(body["final_value"] - body["final_value_peer"]) >= _CENT:
        # The same fills may still have cost another fee.
        output.say("why they may differ: docs/backtests.md, Against Vibe-Trading")
    output.message(f"what Vibe-Trading wrote: {body['folder']}")


@click.command(epilog="Example: kit validate ma250-pullback@0.3.1")
@click.argument("ref", metavar="ID[@VERSION|@draft]")
@_source
@output.json_option
@click.pass_obj
def validate(session: output.Session, ref: str, source: str, as_json: bool) -> int:
    """Run every guard on a draft or a version.

    Lookahead and warm-up refuse (exit code 4); costs, trials, folds and the random control inform.
    """
    from kit.jobs.validate import validate as run

    found = run(
        session.workspace(),
        ref,
        source=source,
        clock=SystemClock(),
        progress=output.progress_to_stderr(),
    )
    if as_json:
        output.emit_json(found.to_dict())
        return 0 if found.ok else _REFUSED
    output.table(("guard", "result", "found"), found.rows())
    if found.leak is not None:
        leak = found.leak
        output.say(f"\n{leak.output} of {leak.symbol}, first bad date {leak.first_bad_date}:")
        output.say(f"  {leak.detail}\n\nto see it, in Python:\n")
        output.say(found.snippet)
    output.say(f"{found.ref}: {'no guard refuses' if found.ok else 'REFUSED'}")
    return 0 if found.ok else _REFUSED


@click.command(epilog="Example: kit sweep ma250-pullback --param near_pct=2,3,4")
@click.argument("ref", metavar="ID[@VERSION|@draft]")
@click.option(
    "--param",
    "params",
    multiple=True,
    required=True,
    metavar="NAME=VALUES",
    help="Values (2,3,4) or first:last:step (200:260:10); repeat for more parameters.",
)
@click.option("--start", help="First date, YYYY-MM-DD [default: the bundle's config].")
@click.option("--end", help="Last date, YYYY-MM-DD [default: the bundle's config].")
@click.option("--symbols", help="Symbols, joined by commas [default: the bundle's config].")
@_source
@click.option("--jobs", type=click.IntRange(min=1), default=1, show_default=True)
@click.option("--dask", metavar="URL", help="Address of a Dask scheduler to run on.")
@output.json_option
@click.pass_obj
def sweep(
    session: output.Session,
    ref: str,
    params: tuple[str, ...],
    start: str | None,
    end: str | None,
    symbols: str | None,
    source: str,
    jobs: int,
    dask: str | None,
    as_json: bool,
) -> None:
    """Backtest a grid of parameters; every cell is a trial."""
    from kit.backtest.sweep import METRICS
    from kit.jobs.sweep import sweep as run

    workspace = session.workspace()
    found = run(
        workspace,
        ref,
        params,
        start=None if start is None else parse_date(start),
        end=None if end is None else parse_date(end),
        symbols=None if symbols is None else symbols.split(","),
        source=source,
        jobs=jobs,
        dask=dask,
        clock=SystemClock(),
        progress=output.progress_to_stderr(),
    )
    place = workspace.relative(found.folder)
    if as_json:
        output.emit_json({**found.to_dict(), "folder": place})
        return
    output.table(
        (*found.grid, *METRICS, "error"),
        [
            (*cell.params.values(), *map(_figure, map(cell.metrics.get, METRICS)), cell.error)
            for cell in found.cells
        ],
    )
    if found.best is not None and found.trials is not None:
        deflated = _figure(found.trials.deflated_sharpe)
        output.say(f"best: {found.best.name}")
        output.say(f"1 of {found.trials.tried} tried; deflated Sharpe ratio {deflated}")
    for way in ("walk_forward", "purged"):
        if way in found.unseen:
            unseen = _figure(found.unseen[way]["out_of_sample"])
            output.say(f"{way}: Sharpe ratio of the picked cells on unseen bars {unseen}")
    output.say(f"report: {place}/report.html")


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
