"""What is wrong with stored bars, each thing named; nothing is dropped and nothing repaired.

`find_problems` looks at single bars. This adds what only a series, a calendar or the clock can
tell: missing sessions, bars on closed days, a unit that is wrong or changes by a hundred, a price
that jumps like a split without a factor, and a tail that stopped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from kit.market.bars import find_problems
from kit.market.calendars import Calendar
from kit.market.intake import unit_problem

__all__ = ["Finding", "inspect_bars"]

Days = npt.NDArray[np.datetime64]

_SPLIT_LOW, _SPLIT_HIGH = 0.6, 1.67  # a day's move without news this large is a split or a mistake
_STEP_LOW, _STEP_HIGH = 30.0, 300.0  # around the 100 of lots against shares
_WINDOW: Final = 20  # bars on each side of a step in volume


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing wrong with one symbol.

    Attributes:
        symbol: Whose bars.
        kind: `gap`, `off_calendar`, `stale_tail`, `unit`, `unit_jump`, `split_gap`, or a kind of
            `find_problems`.
        severity: `error` when numbers would be wrong, `warning` when something may be missing.
        first: Where it begins.
        last: Where it ends.
        message: What is wrong, in a sentence.
    """

    symbol: str
    kind: str
    severity: str
    first: date
    last: date
    message: str

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {**vars(self), "first": self.first.isoformat(), "last": self.last.isoformat()}


def inspect_bars(
    bars: pl.DataFrame, book: Calendar, *, expected: date | None, stale_sessions: int
) -> tuple[Finding, ...]:
    """Look at daily or intraday bars of one market.

    Args:
        bars: Rows in the order stored.
        book: The market's calendar; days it does not know are not judged.
        expected: The last session that should be there, None to leave tails alone.
        stale_sessions: Sessions a tail may be behind.

    Returns:
        Findings by symbol: those of single bars first.
    """
    found = [
        Finding(
            symbol=problem.symbol,
            kind=problem.kind,
            severity="error",
            first=problem.time.date(),
            last=problem.time.date(),
            message=problem.message,
        )
        for problem in find_problems(bars)
    ]
    sessions = book.dates_array()
    for (symbol,), series in bars.sort("time", maintain_order=True).group_by(
        "symbol", maintain_order=True
    ):
        found += _series(str(symbol), series, book, sessions, expected, stale_sessions)
    return tuple(sorted(found, key=lambda finding: finding.symbol))


def _series(
    symbol: str,
    series: pl.DataFrame,
    book: Calendar,
    sessions: Days,
    expected: date | None,
    stale_sessions: int,
) -> Iterator[Finding]:
    days = np.unique(series.get_column("time").dt.date().to_numpy().astype("datetime64[D]"))
    judged = days[
        (days >= np.datetime64(book.known_from)) & (days <= np.datetime64(book.known_until))
    ]
    yield from _days(symbol, judged, sessions)
    if expected is not None and len(judged):
        behind = int(((sessions > judged[-1]) & (sessions <= np.datetime64(expected))).sum())
        if behind > stale_sessions:
            last = _day(judged[-1])
            yield Finding(
                symbol=symbol,
                kind="stale_tail",
                severity="warning",
                first=last,
                last=expected,
                message=f"the last bar is {last}, {behind} sessions before {expected}",
            )
    yield from _units(symbol, series)
    yield from _splits(symbol, series)


def _days(symbol: str, days: Days, sessions: Days) -> Iterator[Finding]:
    """Compare the days of a series with the sessions between its first and its last."""
    for day in days[~np.isin(days, sessions)]:
        yield Finding(
            symbol=symbol,
            kind="off_calendar",
            severity="warning",
            first=_day(day),
            last=_day(day),
            message="there is a bar on a day the exchange was closed",
        )
    if not len(days):
        return
    due = sessions[(sessions >= days[0]) & (sessions <= days[-1])]
    absent = np.flatnonzero(~np.isin(due, days))
    for run in np.split(absent, np.flatnonzero(np.diff(absent) > 1) + 1) if len(absent) else ():
        first, last = _day(due[run[0]]), _day(due[run[-1]])
        yield Finding(
            symbol=symbol,
            kind="gap",
            severity="warning",
            first=first,
            last=last,
            message=f"{len(run)} sessions without a bar (halted, or missing at the source)",
        )


def _units(symbol: str, series: pl.DataFrame) -> Iterator[Finding]:
    whole = "" if series["adjust"][0] == "qfq" else unit_problem(series)
    first, last = _span(series)
    if whole:
        yield Finding(
            symbol=symbol, kind="unit", severity="error", first=first, last=last, message=whole
        )
        return
    traded = series.filter(pl.col("volume") > 0)
    if len(traded) < 2 * _WINDOW:
        return
    volume = pl.col("volume")
    step = traded.select(
        pl.col("time"),
        (
            volume.reverse().rolling_median(_WINDOW).reverse()
            / volume.rolling_median(_WINDOW).shift(1)
        ).alias("ratio"),
        (volume / volume.shift(1)).log().abs().alias("edge"),
    ).with_columns(pl.col("ratio").log().abs().exp().alias("size"))
    level = step.filter(pl.col("size").is_between(_STEP_LOW, _STEP_HIGH)).sort("edge")
    if len(level):
        # Around the step the medians of many days show it; the step itself is the sharpest edge.
        worst = level.row(-1, named=True)
        day = worst["time"].date()
        yield Finding(
            symbol=symbol,
            kind="unit_jump",
            severity="error",
            first=day,
            last=last,
            message=f"from here on the volume is {worst['ratio']:.3g} times what it was: "
            "lots and shares are mixed",
        )


def _splits(symbol: str, series: pl.DataFrame) -> Iterator[Finding]:
    whole = pl.col("close") * pl.col("adj_factor")
    moves = series.filter(pl.col("close") > 0).select(
        "time",
        (whole / whole.shift(1)).alias("move"),
        pl.col("close").shift(1).alias("before"),
        "close",
    )
    for row in moves.filter(
        (pl.col("move") < _SPLIT_LOW) | (pl.col("move") > _SPLIT_HIGH)
    ).iter_rows(named=True):
        day = row["time"].date()
        yield Finding(
            symbol=symbol,
            kind="split_gap",
            severity="error",
            first=day,
            last=day,
            message=f"the close goes from {row['before']:g} to {row['close']:g}, like a split, "
            "and the factor does not follow",
        )


def _span(series: pl.DataFrame) -> tuple[date, date]:
    times: Sequence[datetime] = series.get_column("time").to_list()
    return times[0].date(), times[-1].date()


def _day(day: np.datetime64) -> date:
    found: date = day.astype("datetime64[D]").astype(date)
    return found
