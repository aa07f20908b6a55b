"""Series of other markets beside a panel: read-only, never traded, dated to when they are known.

A rule on Chinese stocks may look at what American ones did. Their sessions have dates of their own,
and lining both up by date is a look into the future: New York closes a day of that name twelve
hours after Shanghai did. So each foreign session is dated to the first session of the panel's own
market that *begins* after the foreign one has *closed*; what stands in a row of that date could be
known before its open. Several foreign sessions may fall into one (after a holiday at home): they
are one bar then, first open, highest, lowest, last close, volumes added. A home session without a
foreign one before it (a holiday abroad) has no bar: nothing new is not the same as no change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import TYPE_CHECKING, Final

import polars as pl

from kit.errors import DataError
from kit.market.bars import BAR_COLUMNS, PRICE_COLUMNS, collect
from kit.market.calendars import Calendar, calendar
from kit.market.columns import BarColumns
from kit.market.panel import MarketPanel
from kit.market.sources import BarSource
from kit.workspace import Workspace

if TYPE_CHECKING:
    from kit.market.sources import Security

__all__ = ["ContextLag", "context_lag", "landing", "load_context", "redate", "with_context"]

# Sessions abroad that fall into the first one of the window are older than it. The longest closure
# of a market in question is eleven days (Shanghai, Chinese New Year 2020).
_BEFORE: Final = timedelta(days=15)


@dataclass(frozen=True, kw_only=True)
class ContextLag:
    """How far a series of another market is behind what is known at a session's open.

    Attributes:
        market: The other market.
        symbols: Those that are behind.
        data_time: Close of the newest session the oldest of them has, aware.
        expected_time: Close of the newest session that was over by then, aware.
    """

    market: str
    symbols: tuple[str, ...]
    data_time: datetime
    expected_time: datetime

    @property
    def minutes(self) -> int:
        """Minutes between the two closes."""
        return round((self.expected_time - self.data_time).total_seconds() / 60)


def landing(home: Calendar, away: Calendar, day: date) -> date:
    """Return the first home session that begins after the away session of a date has closed.

    Raises:
        DataError: `data.off_session` when the away market had no session then;
            `calendar.unknown` when the home calendar does not reach so far.
    """
    session = away.session(day)
    if session is None:
        raise DataError(
            "data.off_session",
            f"there is a bar of {day}, when market {away.market!r} had no session",
            where="data_contract.context",
            remedy="kit data check names such bars; add the day to config/calendars.json if the "
            "market did trade",
        )
    at = session.close.astimezone(home.tz).date()
    same = home.session(at)
    return at if same is not None and same.open > session.close else home.next(at)


def redate(bars: pl.DataFrame, home: Calendar, away: Calendar, last: date) -> pl.DataFrame:
    """Return daily bars of the away market as bars of home sessions up to `last`.

    Prices of sessions that become one bar are brought to the factor of the last of them, so that a
    dividend abroad makes no gap inside a bar.

    Args:
        bars: Bars in `BAR_COLUMNS`, sorted by symbol and time.
        home: Calendar of the panel's market.
        away: Calendar of the bars' market.
        last: Last home session wanted.

    Raises:
        DataError: See `landing`.
    """
    seen: dict[date, date] = {}
    for stamp in bars["time"].unique().sort():
        # What closes after the window is not asked for: it may be beyond the calendar.
        if stamp.date() <= last:
            seen[stamp.date()] = landing(home, away, stamp.date())
    table = pl.DataFrame(
        {
            "_day": pl.Series(list(seen), dtype=pl.Date),
            "_home": pl.Series(list(seen.values()), dtype=pl.Date),
        }
    )
    ratio = pl.col("adj_factor") / pl.col("adj_factor").last().over("symbol", "_home")
    rest = [
        c for c in BAR_COLUMNS if c not in {"symbol", "time", *PRICE_COLUMNS, "volume", "amount"}
    ]
    return (
        bars.with_columns(pl.col("time").cast(pl.Date).alias("_day"))
        .join(table, on="_day", how="inner", maintain_order="left")
        .filter(pl.col("_home") <= last)
        .with_columns(pl.col(name) * ratio for name in PRICE_COLUMNS)
        .group_by("symbol", "_home", maintain_order=True)
        .agg(
            pl.col("open").first(),
            pl.col("high").max(),
            pl.col("low").min(),
            pl.col("close").last(),
            pl.col("volume").sum(),
            pl.when(pl.col("amount").is_not_null().all())
            .then(pl.col("amount").sum())
            .alias("amount"),
            *(pl.col(name).last() for name in rest),
        )
        .with_columns(pl.col("_home").cast(pl.Datetime("us")).alias("time"))
        .select(list(BAR_COLUMNS))
    )


def load_context(
    workspace: Workspace,
    source: BarSource,
    wanted: Mapping[str, Sequence[str]],
    first: date,
    last: date,
    *,
    market: str,
    adjustment: str = "forward",
) -> MarketPanel:
    """Open series of other markets, dated to the sessions of `market` from `first` to `last`.

    Args:
        workspace: Whose calendars.
        source: Where bars come from.
        wanted: Market -> symbols; not empty.
        first: First home session.
        last: Last home session.
        market: The home market.
        adjustment: As the panel's.

    Raises:
        DataError: `data.no_bars`, `data.missing_symbols` naming what has no bar in the window;
            `data.off_session`, `calendar.unknown`.
    """
    home = calendar(workspace, market)
    parts: list[pl.DataFrame] = []
    securities: list[Security] = []
    symbols: list[str] = []
    for name, codes in wanted.items():
        bars = collect(source.bars(codes, first - _BEFORE, last, "1d").sort("symbol", "time"))
        parts.append(redate(bars, home, calendar(workspace, name), last))
        securities += source.securities(name)
        symbols += codes
    frame = pl.concat(parts).filter(pl.col("time") >= datetime.combine(first, time()))
    columns = BarColumns(frame.lazy(), symbols)
    if columns.missing or not columns.symbols:
        raise DataError(
            "data.missing_symbols",
            f"no bar from {first} to {last} of {', '.join(columns.missing or symbols)}",
            where="data_contract.context",
            remedy=f"choose dates that source {source.name} covers, or import the bars",
            details={"missing": list(columns.missing)},
        )
    return MarketPanel(
        columns,
        market="+".join(wanted),
        adjustment=adjustment,
        source=source.name,
        securities=securities,
    )


def with_context(
    panel: MarketPanel,
    workspace: Workspace,
    source: BarSource,
    wanted: Mapping[str, Sequence[str]],
    first: date,
    last: date,
) -> MarketPanel:
    """Return a panel with the context its contract asks for; itself when that is none.

    Raises:
        DataError: See `load_context`.
    """
    if not wanted:
        return panel
    found = load_context(
        workspace, source, wanted, first, last, market=panel.market, adjustment=panel.adjustment
    )
    return panel.beside(found)


def context_lag(
    workspace: Workspace, panel: MarketPanel, wanted: Mapping[str, Sequence[str]], day: date
) -> list[ContextLag]:
    """Say which series of a panel's context lack sessions that were over before `day` opened.

    Raises:
        DataError: `calendar.unknown`.
    """
    home = calendar(workspace, panel.market)
    found = []
    for name, symbols in wanted.items():
        away = calendar(workspace, name)
        due = _newest(home, away, day)
        have = {symbol: _newest(home, away, panel[symbol].index[-1].date()) for symbol in symbols}
        behind = [symbol for symbol in symbols if have[symbol] < due]
        if behind:
            oldest = min(have[symbol] for symbol in behind)
            found.append(
                ContextLag(market=name, symbols=tuple(behind), data_time=oldest, expected_time=due)
            )
    return found


def _newest(home: Calendar, away: Calendar, day: date) -> datetime:
    """Return the close of the newest away session that was over when a home session began."""
    session = home.session(day)
    begins = session.open if session else datetime.combine(day, time(), home.tz)
    at = begins.astimezone(away.tz).date() + timedelta(days=1)
    while True:
        at = away.previous(at)
        found = away.session(at)
        if found is not None and found.close < begins:
            return found.close
