"""The bars store as a person sees it: import, sync, status, check."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date
from pathlib import Path
from typing import Any, Final

import polars as pl

from kit.clock import Clock
from kit.errors import DataError, UsageError
from kit.market import SampleSource, calendar, market_info
from kit.market.adapters import open_adapter
from kit.market.bars import BAR_COLUMNS, check_bars, collect, conform
from kit.market.intake import ColumnMap, declared_unit, find_columns, read_table, to_bars
from kit.market.live import due_sessions
from kit.market.quality import Finding, inspect_bars
from kit.market.sources import ParquetSource
from kit.market.store import BarStore
from kit.market.symbols import normal_symbol
from kit.market.sync import Outcome, Terms, sync
from kit.workspace import Workspace

__all__ = ["CheckReport", "Imported", "check", "import_files", "status", "sync_bars"]

_ENDINGS: Final = (".csv", ".csv.gz", ".parquet")


@dataclass(frozen=True, kw_only=True)
class Imported:
    """One file that was imported.

    Attributes:
        file: Its path.
        symbols: Whose bars it held.
        rows: How many.
        first: Oldest bar.
        last: Newest bar.
    """

    file: str
    symbols: tuple[str, ...]
    rows: int
    first: date
    last: date

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON."""
        span = {"first": self.first.isoformat(), "last": self.last.isoformat()}
        return {**vars(self), "symbols": list(self.symbols), **span}


@dataclass(frozen=True, kw_only=True)
class CheckReport:
    """What a check looked at and found.

    Attributes:
        series: Symbols looked at.
        rows: Bars looked at.
        findings: Everything that is wrong.
    """

    series: int
    rows: int
    findings: tuple[Finding, ...]

    @property
    def errors(self) -> tuple[Finding, ...]:
        """Findings that make numbers wrong."""
        return tuple(finding for finding in self.findings if finding.severity == "error")

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "series": self.series,
            "rows": self.rows,
            "errors": len(self.errors),
            "findings": [finding.to_dict() for finding in self.findings],
        }


def import_files(
    workspace: Workspace,
    path: Path,
    *,
    market: str,
    interval: str,
    volume_unit: str | None,
    amount_unit: str,
    adjust: str,
    clock: Clock,
    dry_run: bool = False,
) -> list[Imported]:
    """Import CSV or Parquet files into the store; a symbol's series is replaced as a whole.

    Every file is read and checked before anything is written: one bad file stops the import.

    Args:
        workspace: Where.
        path: A file, or a folder of them.
        market: Market of the symbols.
        interval: Spacing of the bars: `1d`, `1m`, `5m`, ...
        volume_unit: `shares` or `lots`; None is only fine for the store's own columns.
        amount_unit: `currency` or `thousand`.
        adjust: What the prices carry: `none`, `split` or `qfq`.
        clock: Time of the import.
        dry_run: Read and check only.

    Raises:
        UsageError: `market.unknown`, `data.unit_undeclared`.
        DataError: `data.unreadable`, `data.no_bars`, or what `to_bars` raises, naming the file.
    """
    market_info(workspace, market)
    paths = [path] if path.is_file() else sorted(p for p in path.glob("*") if _is_table(p))
    if not paths:
        raise DataError(
            "data.no_bars",
            "there is no CSV or Parquet file there",
            where=str(path),
            remedy=f"name a file or a folder with files that end in {', '.join(_ENDINGS)}",
        )
    as_of = clock.now().astimezone(UTC).replace(tzinfo=None)
    done, seen = [], dict[str, str]()
    frames = []
    for file in paths:
        raw = read_table(file)
        if set(BAR_COLUMNS) <= set(raw.columns) and file.name.endswith(".parquet"):
            bars = collect(conform(raw.lazy(), where=str(file)))
            check_bars(bars, where=str(file))
        else:
            mapping = ColumnMap(
                columns=find_columns(raw.columns, where=str(file)),
                volume_unit=declared_unit(volume_unit, where=str(file)),
                amount_unit=amount_unit,
                adjust=adjust,
            )
            symbol = None if "symbol" in mapping.columns else _stem(file)
            source = f"import {file.name}"
            bars = to_bars(
                raw,
                mapping,
                market=market,
                source=source,
                as_of=as_of,
                symbol=symbol,
                where=str(file),
            )
        symbols = tuple(bars.get_column("symbol").unique().sort())
        for symbol in symbols:
            if symbol in seen:
                raise DataError(
                    "data.bad_bars",
                    f"{symbol} stands in {seen[symbol]} as well",
                    where=str(file),
                    remedy="one file a symbol: join them, or import one of them",
                )
            seen[symbol] = file.name
        times = bars.get_column("time").dt.date().sort().to_list()
        frames.append(bars)
        done.append(
            Imported(
                file=str(file), symbols=symbols, rows=len(bars), first=times[0], last=times[-1]
            )
        )
    if not dry_run:
        # All at once: a write reads and replaces whole parts of the store.
        BarStore(workspace.market_dir).write(market, interval, pl.concat(frames))
    return done


def _is_table(path: Path) -> bool:
    return path.is_file() and path.name.endswith(_ENDINGS)


def _stem(path: Path) -> str:
    ending = next(
        ending for ending in (".csv.gz", ".csv", ".parquet") if path.name.endswith(ending)
    )
    return path.name.removesuffix(ending)


def sync_bars(
    workspace: Workspace,
    source: str,
    *,
    market: str,
    symbols: Sequence[str],
    universe: str | None,
    start: date,
    clock: Clock,
    progress: Callable[[str], None],
) -> list[Outcome]:
    """Fetch daily bars into the store; see `kit.market.sync`.

    Args:
        workspace: Where.
        source: A source of `config/data.json`.
        market: Market of the symbols.
        symbols: Whom to fetch, in any spelling.
        universe: `store` for all that the store knows of the market, `sample` for the embedded
            sample's names; None with `symbols`.
        start: First day wanted.
        clock: Time.
        progress: Told a line a symbol.

    Raises:
        UsageError: `data.unknown_source`, `market.unknown`, `data.no_symbols`.
        ConfigError: `source.not_installed`, `source.no_token`.
    """
    market_info(workspace, market)
    terms = Terms.load(workspace, source)
    wanted = [normal_symbol(symbol, market) for symbol in symbols]
    if universe == "sample":
        wanted += [s.symbol for s in SampleSource().securities(market)]
    elif universe == "store":
        wanted += [s.symbol for s in ParquetSource(workspace.market_dir).securities(market)]
    if not wanted:
        raise UsageError(
            "data.no_symbols",
            "nobody said which symbols",
            remedy="--symbols 600000.SH,000001.SZ or --universe store",
        )
    with open_adapter(workspace, source, terms.options) as adapter:
        if market not in adapter.markets:
            raise UsageError(
                "data.unknown_source",
                f"{source} serves {', '.join(adapter.markets)}, not {market}",
                remedy="choose another source or market",
            )
        return list(
            sync(
                adapter,
                BarStore(workspace.market_dir),
                wanted,
                market=market,
                due=due_sessions(workspace, market, clock),
                terms=terms,
                clock=clock,
                start=start,
                progress=progress,
            )
        )


def status(workspace: Workspace) -> list[dict[str, Any]]:
    """Return what the store holds, one row a market, interval and source."""
    store, rows = BarStore(workspace.market_dir), []
    for market, interval in store.shelves():
        by_source: dict[str, list[Any]] = {}
        for series in store.series(market, interval).values():
            by_source.setdefault(series.source.split(" ")[0], []).append(series)
        for source, members in sorted(by_source.items()):
            fetched = [series.as_of for series in members if series.as_of is not None]
            rows.append(
                {
                    "market": market,
                    "interval": interval,
                    "source": source,
                    "symbols": len(members),
                    "rows": sum(series.rows for series in members),
                    "first": min(series.first for series in members).date().isoformat(),
                    "last": max(series.last for series in members).date().isoformat(),
                    "oldest_tail": min(series.last for series in members).date().isoformat(),
                    "fetched": max(fetched).isoformat(timespec="seconds") if fetched else None,
                }
            )
    return rows


def check(
    workspace: Workspace, *, market: str | None, symbols: Sequence[str], clock: Clock
) -> CheckReport:
    """Look for everything that is wrong with the stored bars.

    Args:
        workspace: Whose store.
        market: Only this one.
        symbols: Only these.
        clock: Time, for tails.

    Raises:
        UsageError: `market.unknown`.
        DataError: `data.store_missing` when there is nothing to look at.
    """
    if market is not None:
        market_info(workspace, market)
    store, findings = BarStore(workspace.market_dir), list[Finding]()
    series = rows = 0
    stale = workspace.config("data")["stale_sessions"]
    for found, interval in store.shelves():
        if market is not None and found != market:
            continue
        scan = store.scan(found, interval)
        if scan is None:
            continue
        bars = collect(scan)
        if symbols:
            bars = bars.filter(bars.get_column("symbol").is_in(list(symbols)))
        if bars.is_empty():
            continue
        due = due_sessions(workspace, found, clock)
        series += bars.get_column("symbol").n_unique()
        rows += len(bars)
        findings += inspect_bars(
            bars,
            calendar(workspace, found),
            expected=due.until if due.sessions else None,
            stale_sessions=stale,
        )
    if not rows:
        raise DataError(
            "data.store_missing",
            f"the store holds no bars of {', '.join(symbols) or market or 'any market'}",
            where=str(workspace.market_dir),
            remedy="kit data import FILE --market cn, or kit data sync --source S --market cn",
        )
    return CheckReport(series=series, rows=rows, findings=tuple(findings))
