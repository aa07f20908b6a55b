"""Quotes at an instant: what a market's last known prices were, and how fresh.

The sample serves them from its minute bars: the price at an instant is the close of the last bar
whose END is not after it, so nothing that was still trading is seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any, Final, Protocol

import polars as pl

from kit.errors import DataError, UsageError
from kit.market.bars import collect, is_synthetic
from kit.market.calendars import Calendar, calendar
from kit.market.markets import MarketInfo, market_info
from kit.market.sources import BarSource, Security, market_of
from kit.workspace import Workspace

__all__ = ["Quote", "QuoteBatch", "QuoteSource", "sample_quotes"]

_INTERVALS: Final = ("1m", "5m")  # finest first


@dataclass(frozen=True, kw_only=True)
class Quote:
    """One symbol's prices at an instant.

    Attributes:
        symbol: Its code.
        name: Its name.
        price: Last traded price, in the market's currency.
        prev_close: Close of the session before the quote's own, as it traded.
        open: First price of the quote's session.
        high: Highest so far.
        low: Lowest so far.
        volume: Shares so far.
        time: When the price was known, aware, exchange zone.
        source: Who served it.
        stale: Whether it is older than the market's limit, or of an earlier session.
        synthetic: Whether the price was generated rather than observed.
    """

    symbol: str
    name: str
    price: float
    prev_close: float
    open: float
    high: float
    low: float
    volume: float
    time: datetime
    source: str
    stale: bool
    synthetic: bool = False

    @property
    def change(self) -> float:
        """Return against the previous close, as a fraction."""
        return self.price / self.prev_close - 1


@dataclass(frozen=True, kw_only=True)
class QuoteBatch:
    """The answer for several symbols.

    Attributes:
        at: The instant asked for.
        quotes: Quotes by symbol, in the order asked.
        missing: Reason in Chinese by symbol for every other one.
    """

    at: datetime
    quotes: Mapping[str, Quote]
    missing: Mapping[str, str]

    @property
    def stale(self) -> tuple[str, ...]:
        """Symbols whose quote is stale."""
        return tuple(symbol for symbol, quote in self.quotes.items() if quote.stale)

    @property
    def synthetic(self) -> bool:
        """Whether any quote was generated rather than observed."""
        return any(quote.synthetic for quote in self.quotes.values())


class QuoteSource(Protocol):
    """Something that serves quotes."""

    @property
    def name(self) -> str:
        """Name for records and messages."""
        ...

    def quotes(self, symbols: Sequence[str], at: datetime) -> QuoteBatch:
        """Return quotes as they stood at an aware instant."""
        ...


class BarQuotes:
    """Quotes out of a bar source's minute bars. Made by `sample_quotes`."""

    def __init__(self, source: BarSource, workspace: Workspace) -> None:
        self._source = source
        self._workspace = workspace
        self.name = source.name

    def quotes(self, symbols: Sequence[str], at: datetime) -> QuoteBatch:
        """Return quotes as they stood at an aware instant.

        Raises:
            UsageError: `time.bad_instant` for an instant without a zone.
        """
        if at.tzinfo is None:
            raise UsageError(
                "time.bad_instant",
                f"{at} has no zone, so the exchange's time cannot be told",
                remedy="give an instant with an offset",
            )
        wanted = list(dict.fromkeys(symbols))
        found: dict[str, Quote] = {}
        missing: dict[str, str] = {}
        for market in dict.fromkeys(market_of(symbol) for symbol in wanted):
            members = [symbol for symbol in wanted if market_of(symbol) == market]
            self._of_market(market, members, at, found, missing)
        return QuoteBatch(
            at=at,
            quotes={symbol: found[symbol] for symbol in wanted if symbol in found},
            missing={symbol: missing[symbol] for symbol in wanted if symbol in missing},
        )

    def _of_market(
        self,
        market: str,
        members: list[str],
        at: datetime,
        found: dict[str, Quote],
        missing: dict[str, str],
    ) -> None:
        info = market_info(self._workspace, market)
        known = {security.symbol: security for security in self._source.securities(market)}
        local = at.astimezone(info.zone).replace(tzinfo=None)
        asked = [symbol for symbol in members if symbol in known]
        days = self._sessions(asked, local)
        book = calendar(self._workspace, market) if days else None
        for symbol in members:
            if symbol not in known:
                missing[symbol] = "数据源没有该代码"
            elif symbol not in days:
                missing[symbol] = f"{local:%Y-%m-%d %H:%M} 及以前没有分钟行情"
            elif days[symbol]["prev_close"] is None:
                missing[symbol] = "没有前收盘价"
            elif book is not None:
                found[symbol] = self._quote(known[symbol], days[symbol], info, book, at)

    def _quote(
        self,
        security: Security,
        row: Mapping[str, Any],
        info: MarketInfo,
        book: Calendar,
        at: datetime,
    ) -> Quote:
        time = row["time"].replace(tzinfo=info.zone)
        return Quote(
            symbol=security.symbol,
            name=security.name,
            price=row["close"],
            prev_close=row["prev_close"],
            open=row["open"],
            high=row["high"],
            low=row["low"],
            volume=row["volume"],
            time=time,
            source=self.name,
            stale=_is_stale(book, time, at, info.quote_stale_minutes),
            synthetic=row["synthetic"],
        )

    def _sessions(self, symbols: list[str], local: datetime) -> dict[str, dict[str, Any]]:
        """Return each symbol's last session up to a local instant, with the close before it."""
        days: dict[str, dict[str, Any]] = {}
        for interval in _INTERVALS:
            rest = [symbol for symbol in symbols if symbol not in days]
            if rest:
                days |= self._last_days(rest, local, interval)
        if not days:
            return {}
        ends = pl.LazyFrame(
            {"symbol": list(days), "_day": [row["time"].date() for row in days.values()]}
        )
        closes = collect(
            self._source.bars(list(days), date.min, local.date())
            .join(ends, on="symbol")
            .filter(pl.col("time").dt.date() < pl.col("_day"))
            .group_by("symbol")
            .agg(pl.col("close").sort_by("time").last())
        )
        before = dict(zip(closes["symbol"].to_list(), closes["close"].to_list(), strict=True))
        return {symbol: {**row, "prev_close": before.get(symbol)} for symbol, row in days.items()}

    def _last_days(
        self, symbols: list[str], local: datetime, interval: str
    ) -> dict[str, dict[str, Any]]:
        try:
            bars = self._source.bars(symbols, date.min, local.date(), interval)
        except DataError as error:
            if error.code in {"data.unknown_interval", "data.store_missing"}:
                return {}
            raise
        rows = collect(
            bars.filter(pl.col("time") <= local)
            .filter(pl.col("time").dt.date() == pl.col("time").dt.date().max().over("symbol"))
            .sort("symbol", "time")
            .group_by("symbol")
            .agg(
                pl.col("time").last(),
                pl.col("open").first(),
                pl.col("high").max(),
                pl.col("low").min(),
                pl.col("close").last(),
                pl.col("volume").sum(),
                is_synthetic().any().alias("synthetic"),
            )
        )
        return {row["symbol"]: row for row in rows.iter_rows(named=True)}


def sample_quotes(source: BarSource, workspace: Workspace) -> QuoteSource:
    """Serve quotes from a source's minute bars, with the workspace's calendars and limits."""
    return BarQuotes(source, workspace)


def _is_stale(book: Calendar, time: datetime, at: datetime, limit: int) -> bool:
    """Tell whether a price known at `time` is too old at `at`, counting trading minutes only.

    A lunch break ages nothing, and neither does the night; a price of an earlier session than the
    last one that has opened is stale whatever its age. Without a known calendar the wall clock
    counts.
    """
    day = at.astimezone(book.tz).date()
    if not book.knows(day):
        return at - time > timedelta(minutes=limit)
    session = book.session(day)
    if session is None or at < session.open:
        session = book.session(book.previous(day))
    if session is None:
        return at - time > timedelta(minutes=limit)
    if time.date() != session.date:
        return True
    return session.minutes_traded(time, at) > limit
