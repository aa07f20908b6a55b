"""Where bars come from: one protocol, the embedded sample, and a folder of Parquet files.

A source answers with lazy frames in the schema of `kit.market.bars`; it never adjusts a price and
never fills a gap. What it does not have is an error or an absence that the caller can name.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Protocol

import polars as pl

from kit import files
from kit.clock import parse_date
from kit.errors import DataError, UsageError
from kit.market import sample
from kit.market.bars import BAR_COLUMNS, collect, conform, fingerprint_frame
from kit.workspace import Workspace

__all__ = [
    "SOURCES",
    "BarSource",
    "Coverage",
    "ParquetSource",
    "SampleSource",
    "Security",
    "board_of",
    "market_of",
    "open_source",
]

SOURCES: Final = ("sample", "parquet", "csv", "mcp", "yfinance", "akshare", "baostock", "tushare")
"""Names `open_source` knows."""


@dataclass(frozen=True, kw_only=True)
class Security:
    """One listed thing.

    Attributes:
        symbol: Code with its exchange, such as `600000.SH`, or a bare US ticker.
        name: Short name.
        industry: Industry in words, empty when unknown.
        board: `main`, `star`, `chinext`, `bse`, `index`, or the exchange's own word elsewhere.
        listed_date: First trading day, None when unknown.
        is_st: Whether it is under special treatment now.
        kind: `stock`, `index` or `fund`.
        currency: ISO code.
        market: `cn`, `hk` or `us`.
        lot: Its own board lot in shares, None where the market has one lot for all, or unknown.
    """

    symbol: str
    name: str
    industry: str = ""
    board: str = "main"
    listed_date: date | None = None
    is_st: bool = False
    kind: str = "stock"
    currency: str = "CNY"
    market: str = "cn"
    lot: int | None = None

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> Security:
        """Build one from its JSON form, where `listed_date` is text or null."""
        listed = row.get("listed_date")
        return cls(**{**row, "listed_date": parse_date(listed) if listed else None})


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """What a source holds of a market at one interval.

    Attributes:
        symbols: Symbols with at least one bar, sorted.
        first: Session of the oldest bar.
        last: Session of the newest bar.
    """

    symbols: tuple[str, ...]
    first: date
    last: date


class BarSource(Protocol):
    """Something that serves bars."""

    @property
    def name(self) -> str:
        """Name for records and messages."""
        ...

    def bars(
        self, symbols: Sequence[str], start: date, end: date, interval: str = "1d"
    ) -> pl.LazyFrame:
        """Return bars in `BAR_COLUMNS` of these symbols, both dates included; absent ones lack."""
        ...

    def securities(self, market: str) -> tuple[Security, ...]:
        """Return every security of a market it knows of."""
        ...

    def coverage(self, market: str, interval: str = "1d") -> Coverage:
        """Return what it holds; raises `data.no_bars` when that is nothing."""
        ...

    def fingerprint(self, symbols: Sequence[str], start: date, end: date, interval: str) -> str:
        """Return a digest of exactly these bars."""
        ...


class SampleSource:
    """The real bars that travel inside the package; see `kit/market/sample/provenance.json`."""

    name = "sample"

    @cached_property
    def _securities(self) -> tuple[Security, ...]:
        return tuple(Security.from_dict(row) for row in sample.securities())

    def bars(
        self, symbols: Sequence[str], start: date, end: date, interval: str = "1d"
    ) -> pl.LazyFrame:
        """Return bars; intervals are `1d`, `1m` (three names) and `5m` (000338.SZ)."""
        return _window(sample.bars(interval), symbols, start, end)

    def securities(self, market: str) -> tuple[Security, ...]:
        """Return every security of a market in the sample, indexes included."""
        return tuple(s for s in self._securities if s.market == market)

    def coverage(self, market: str, interval: str = "1d") -> Coverage:
        """Return what the sample holds of a market."""
        members = [s.symbol for s in self.securities(market)]
        bars = sample.bars(interval).filter(pl.col("symbol").is_in(members))
        return _coverage(bars, self.name, market, interval)

    def fingerprint(
        self, symbols: Sequence[str], start: date, end: date, interval: str = "1d"
    ) -> str:
        """Return a digest of exactly these bars."""
        return _fingerprint(self.bars(symbols, start, end, interval))


class ParquetSource:
    """Bars under `<root>/<market>/<interval>/*.parquet`, `securities.json` beside the intervals.

    Args:
        root: The workspace's market store.
    """

    name = "parquet"

    def __init__(self, root: Path) -> None:
        self._root = root

    def _scan(self, interval: str, market: str = "*") -> pl.LazyFrame:
        paths = sorted(self._root.glob(f"{market}/{interval}/*.parquet"))
        if not paths:
            raise DataError(
                "data.store_missing",
                f"the store holds no {interval} bars" + (f" of {market}" if market != "*" else ""),
                where=str(self._root),
                remedy="put Parquet files under runs/market/<market>/<interval>/, "
                "import or fetch some (kit data import, kit data sync), or use the embedded sample",
            )
        return conform(pl.scan_parquet(paths), where=str(self._root))

    def bars(
        self, symbols: Sequence[str], start: date, end: date, interval: str = "1d"
    ) -> pl.LazyFrame:
        """Return bars; raises `data.store_missing` when the store has none at that interval."""
        return _window(self._scan(interval), symbols, start, end)

    def securities(self, market: str) -> tuple[Security, ...]:
        """Return the securities of a market; without a list, one for each symbol with bars."""
        path = self._root / market / "securities.json"
        if path.is_file():
            rows = files.read_json(path)["securities"]
            return tuple(s for row in rows if (s := Security.from_dict(row)).market == market)
        symbols = collect(self._scan("1d", market).select(pl.col("symbol").unique().sort()))
        currency = {"hk": "HKD", "us": "USD"}.get(market, "CNY")
        return tuple(
            Security(
                symbol=symbol, name=symbol, board=board_of(symbol), currency=currency, market=market
            )
            for symbol in symbols["symbol"].to_list()
        )

    def coverage(self, market: str, interval: str = "1d") -> Coverage:
        """Return what the store holds of a market."""
        return _coverage(self._scan(interval, market), self.name, market, interval)

    def fingerprint(
        self, symbols: Sequence[str], start: date, end: date, interval: str = "1d"
    ) -> str:
        """Return a digest of exactly these bars."""
        return _fingerprint(self.bars(symbols, start, end, interval))


def open_source(workspace: Workspace, name: str = "sample") -> BarSource:
    """Open a source by name.

    Raises:
        UsageError: `data.unknown_source`.
    """
    if name == "sample":
        return SampleSource()
    if name == "parquet":
        return ParquetSource(workspace.market_dir)
    if name in SOURCES:
        from kit.market.live import LiveSource

        return LiveSource(workspace, name)
    near = difflib.get_close_matches(name, SOURCES, 1)
    raise UsageError(
        "data.unknown_source",
        f"there is no source {name!r}",
        remedy=(f"did you mean {near[0]}? " if near else "") + f"sources: {', '.join(SOURCES)}",
    )


def board_of(symbol: str) -> str:
    """Tell the board of a mainland symbol from its code; `main` when nothing speaks against it."""
    code, _, exchange = symbol.partition(".")
    if exchange == "BJ":
        return "bse"
    if exchange == "SH" and code.startswith(("688", "689")):
        return "star"
    if exchange == "SZ" and code.startswith(("300", "301", "302")):
        return "chinext"
    return "main"


def market_of(symbol: str) -> str:
    """Tell the market of a symbol from its suffix: SH, SZ, BJ are `cn`, HK is `hk`, none `us`."""
    suffix = symbol.rpartition(".")[2] if "." in symbol else ""
    return {"SH": "cn", "SZ": "cn", "BJ": "cn", "HK": "hk"}.get(suffix, "us")


def _window(bars: pl.LazyFrame, symbols: Iterable[str], start: date, end: date) -> pl.LazyFrame:
    after = datetime.combine(end + timedelta(days=1), time())
    return bars.filter(
        pl.col("symbol").is_in(list(symbols)),
        pl.col("time") >= datetime.combine(start, time()),
        pl.col("time") < after,
    ).select(list(BAR_COLUMNS))


def _coverage(bars: pl.LazyFrame, source: str, market: str, interval: str) -> Coverage:
    row = collect(
        bars.select(
            pl.col("symbol").unique().sort().implode(),
            pl.col("time").min().alias("first"),
            pl.col("time").max().alias("last"),
        )
    )
    if row["first"].is_null().all():
        raise DataError(
            "data.no_bars",
            f"source {source} holds no {interval} bars of market {market!r}",
            remedy="choose another market, interval or source",
        )
    first, last = row["first"][0], row["last"][0]
    return Coverage(symbols=tuple(row["symbol"][0]), first=first.date(), last=last.date())


def _fingerprint(bars: pl.LazyFrame) -> str:
    return fingerprint_frame(collect(bars.sort("symbol", "time")))
