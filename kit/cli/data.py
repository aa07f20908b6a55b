"""`kit data`: bars into the store, what it holds, what is wrong with it."""

from __future__ import annotations

from pathlib import Path

import click

from kit.cli import output
from kit.clock import SystemClock, parse_date

_CHECK_FAILED = 3
_SHOWN = 40


@click.group(epilog="Example: kit data import bars/ --market cn --volume-unit shares")
def data() -> None:
    """Import, fetch and check bars."""


_market = click.option("--market", required=True, metavar="M", help="cn, hk or us.")


@data.command(
    "import", epilog="Example: kit data import 600000.SH.csv --market cn --volume-unit lots"
)
@click.argument("path", type=click.Path(exists=True, path_type=Path), metavar="FILE|DIR")
@_market
@click.option("--interval", default="1d", show_default=True, help="Spacing of the bars.")
@click.option("--volume-unit", type=click.Choice(["shares", "lots"]), help="What volume counts.")
@click.option(
    "--amount-unit",
    type=click.Choice(["currency", "thousand"]),
    default="currency",
    show_default=True,
)
@click.option(
    "--adjust",
    type=click.Choice(["none", "split", "qfq"]),
    default="none",
    show_default=True,
    help="What the prices carry already.",
)
@click.option("--dry-run", is_flag=True, help="Read and check only.")
@output.json_option
@click.pass_obj
def import_(
    session: output.Session,
    path: Path,
    market: str,
    interval: str,
    volume_unit: str | None,
    amount_unit: str,
    adjust: str,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Import CSV or Parquet files, after checking columns and units."""
    from kit.jobs.data import import_files

    done = import_files(
        session.workspace(),
        path,
        market=market,
        interval=interval,
        volume_unit=volume_unit,
        amount_unit=amount_unit,
        adjust=adjust,
        clock=SystemClock(),
        dry_run=dry_run,
    )
    if as_json:
        output.emit_json({"dry_run": dry_run, "files": [file.to_dict() for file in done]})
        return
    output.table(
        ("file", "symbols", "rows", "first", "last"),
        [(f.file, len(f.symbols), f.rows, f.first, f.last) for f in done],
    )
    output.message("nothing was written (--dry-run)" if dry_run else "next: kit data check")


@data.command(epilog="Example: kit data sync --source yfinance --market us --symbols AAPL,MSFT")
@click.option("--source", required=True, help="A source of config/data.json.")
@_market
@click.option("--symbols", help="Symbols, joined by commas.")
@click.option(
    "--universe", type=click.Choice(["store", "sample"]), help="All the store or the sample knows."
)
@click.option("--start", help="First day, YYYY-MM-DD [default: as far back as the source goes].")
@output.json_option
@click.pass_obj
def sync(
    session: output.Session,
    source: str,
    market: str,
    symbols: str | None,
    universe: str | None,
    start: str | None,
    as_json: bool,
) -> int:
    """Fetch daily bars; what is current is skipped, so it can be interrupted."""
    from kit.jobs.data import sync_bars
    from kit.market.sync import BEGIN

    outcomes = sync_bars(
        session.workspace(),
        source,
        market=market,
        symbols=symbols.split(",") if symbols else [],
        universe=universe,
        start=parse_date(start) if start else BEGIN,
        clock=SystemClock(),
        progress=output.progress_to_stderr(),
    )
    late = [o for o in outcomes if o.status in {"failed", "stale", "not_tried"}]
    if as_json:
        output.emit_json([outcome.to_dict() for outcome in outcomes])
    else:
        counts = {o.status: sum(p.status == o.status for p in outcomes) for o in outcomes}
        output.say(", ".join(f"{number} {status}" for status, number in counts.items()))
        output.table(
            ("symbol", "status", "stored until", "code", "why"),
            [(o.symbol, o.status, o.last, o.code, o.message) for o in late[:_SHOWN]],
        )
        if len(late) > _SHOWN:
            output.message(f"and {len(late) - _SHOWN} more: --json names them all")
    fresh = sum(outcome.status in {"fetched", "current"} for outcome in outcomes)
    return (
        _CHECK_FAILED if any(o.status in {"failed", "not_tried"} for o in late) or not fresh else 0
    )


@data.command(epilog="Example: kit data status")
@output.json_option
@click.pass_obj
def status(session: output.Session, as_json: bool) -> None:
    """Show what the store holds."""
    from kit.jobs.data import status as held

    rows = held(session.workspace())
    if as_json:
        output.emit_json(rows)
        return
    if not rows:
        output.message("the store is empty; next: kit data import FILE --market cn")
        return
    output.table(tuple(rows[0]), [tuple(row.values()) for row in rows])


@data.command(epilog="Example: kit data check --market cn")
@click.option("--market", metavar="M", help="Only this market.")
@click.option("--symbols", help="Only these, joined by commas.")
@output.json_option
@click.pass_obj
def check(session: output.Session, market: str | None, symbols: str | None, as_json: bool) -> int:
    """Look for what is wrong with the stored bars; exit 3 on errors."""
    from kit.jobs.data import check as inspect

    report = inspect(
        session.workspace(),
        market=market,
        symbols=symbols.split(",") if symbols else [],
        clock=SystemClock(),
    )
    if as_json:
        output.emit_json(report.to_dict())
    else:
        warnings = len(report.findings) - len(report.errors)
        output.say(
            f"{report.series} series, {report.rows} bars: "
            f"{len(report.errors)} errors, {warnings} warnings"
        )
        ordered = sorted(report.findings, key=lambda finding: finding.severity)
        output.table(
            ("severity", "symbol", "kind", "first", "last", "what"),
            [(f.severity, f.symbol, f.kind, f.first, f.last, f.message) for f in ordered[:_SHOWN]],
        )
        if len(ordered) > _SHOWN:
            output.message(f"and {len(ordered) - _SHOWN} more: --json names them all")
    return _CHECK_FAILED if report.errors else 0
