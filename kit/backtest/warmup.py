"""Measure how much history an engine needs before what it says about a bar stops changing.

Bars are taken away from the old end: what an engine says about a recent date is asked again with
only the last n sessions up to that date, and compared with what it says on everything up to it.
The smallest n that changes nothing is the warm-up. A rule with a fading memory (an exponential
mean) needs as many bars as it takes to fade below the tolerance; a rule with an endless one (an
expanding mean, a sum since the beginning) never settles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from kit.backtest.views import (
    TOLERANCE,
    Panel,
    View,
    ask_screen,
    ask_weights,
    bars_of,
    differ,
    differing_rows,
)
from kit.errors import DataError, GuardError

if TYPE_CHECKING:
    from kit.bundle import SignalEngine

__all__ = ["History", "measure_history", "needed_history"]

_DATES: Final = 8
_LEAST: Final = 10


@dataclass(frozen=True, kw_only=True)
class History:
    """How much history an engine needs.

    Attributes:
        bars: Sessions up to and with the one asked about; the length of the panel when `settled`
            is false.
        settled: Whether the outputs do stop changing on this panel.
        dates: The dates at which that was measured.
    """

    bars: int
    settled: bool
    dates: tuple[date, ...]


def needed_history(
    make_engine: Callable[[], SignalEngine],
    panel: Panel,
    *,
    tolerance: float = TOLERANCE,
    screen: bool = True,
) -> int:
    """Return `measure_history(...).bars`: the sessions an engine needs, today's included.

    An engine whose outputs never settle needs the whole panel, so its length is returned.

    Raises:
        DataError: `warmup.too_short`.
        GuardError: `lookahead.engine_failed` when the engine fails on the whole panel.
    """
    return measure_history(make_engine, panel, tolerance=tolerance, screen=screen).bars


def measure_history(
    make_engine: Callable[[], SignalEngine],
    panel: Panel,
    *,
    tolerance: float = TOLERANCE,
    screen: bool = True,
) -> History:
    """Find the smallest history that gives the outputs of the full one, by bisection.

    Measured at several dates of the panel's last quarter, those first at which weights change or
    are held: where a rule says nothing, any history agrees. The answer is confirmed with longer
    histories, since a short one may agree by chance.

    Args:
        make_engine: Gives a new engine; each run gets its own.
        panel: A `MarketPanel`, or frames by symbol.
        tolerance: Largest difference that counts as none, absolute, or relative above one.
        screen: Compare the picks of `screen_today` as well.

    Raises:
        DataError: `warmup.too_short` with fewer than ten sessions.
        GuardError: `lookahead.engine_failed` when the engine fails on the whole panel.
    """
    view = View(panel)
    sessions = view.sessions
    if len(sessions) < _LEAST:
        raise DataError(
            "warmup.too_short",
            f"{len(sessions)} sessions are too few to measure a warm-up",
            remedy=f"give a panel of {_LEAST} sessions or more, better of some years",
        )
    probe = _Probe(make_engine, view, tolerance, screen=screen)
    most = min(probe.places) + 1
    needed = _smallest(probe.agrees, 1, most)
    while needed is not None:
        # A longer history that disagrees shows that the agreement was luck.
        longer = sorted({needed + 1, needed + 2, needed + 5, needed * 5 // 4, needed * 2, most})
        luck = next((n for n in longer if needed < n <= most and not probe.agrees(n)), None)
        if luck is None:
            break
        needed = _smallest(probe.agrees, luck + 1, most)
    return History(
        bars=len(sessions) if needed is None else needed,
        settled=needed is not None,
        dates=tuple(sessions[place] for place in probe.places),
    )


def _smallest(agrees: Callable[[int], bool], low: int, high: int) -> int | None:
    """Return the smallest number in [low, high] that agrees, None when the largest does not."""
    if low > high or not agrees(high):
        return None
    while low < high:
        middle = (low + high) // 2
        if agrees(middle):
            high = middle
        else:
            low = middle + 1
    return low


class _Probe:
    """Outputs on full histories at some dates, and whether shorter ones agree with them."""

    def __init__(
        self, make_engine: Callable[[], Any], view: View, tolerance: float, *, screen: bool
    ) -> None:
        self._make = make_engine
        self._view = view
        self._tolerance = tolerance
        self._screen = screen and callable(getattr(make_engine(), "screen_today", None))
        whole = ask_weights(make_engine(), "generate", view.whole())
        self.places = _probed(whole, view.sessions)
        self._full = {place: self._outputs(place, None) for place in self.places}
        self._known: dict[int, bool] = {}

    def _outputs(self, place: int, count: int | None) -> tuple[dict[str, pd.Series], list[Any]]:
        """Return the weights and picks of a date, from its last `count` sessions or from all."""
        sessions, day = self._view.sessions, self._view.sessions[place]
        first = None if count is None else sessions[place + 1 - count]
        cut = self._view.between(first, day)
        weights = ask_weights(self._make(), "generate", cut)
        recent = {symbol: series.loc[pd.Timestamp(day) :] for symbol, series in weights.items()}
        if not self._screen:
            return recent, []
        again = self._view.between(first, day)
        return recent, ask_screen(self._make(), "screen_today", again, day, len(self._view.panel))

    def agrees(self, count: int) -> bool:
        if count not in self._known:
            # The latest date has the most history to lose, so it tells soonest.
            self._known[count] = all(self._same(place, count) for place in self.places[::-1])
        return self._known[count]

    def _same(self, place: int, count: int) -> bool:
        weights, picks = self._full[place]
        try:
            less, fewer = self._outputs(place, count)
        except GuardError:  # too short a history for the engine to run at all
            return False
        for symbol in {*weights, *less}:
            a, b = weights.get(symbol), less.get(symbol)
            index = bars_of(a, b)
            if len(differing_rows(a, b, index, self._tolerance)):
                return False
        return differ(picks, fewer, self._tolerance) is None


def _probed(weights: dict[str, pd.Series], sessions: Sequence[date]) -> list[int]:
    """Choose sessions of the last quarter: its ends, then changes, then positions, then any."""
    index = pd.DatetimeIndex(list(sessions))
    changed, held = np.zeros(len(index), dtype=bool), np.zeros(len(index), dtype=bool)
    for series in weights.values():
        days = pd.DatetimeIndex(series.index).normalize()
        known = series.fillna(0.0)
        changed |= index.isin(days[known.diff().fillna(0.0).abs() > TOLERANCE])
        held |= index.isin(days[known.abs() > TOLERANCE])
    begin, end = len(sessions) * 3 // 4, len(sessions) - 1
    chosen = dict.fromkeys((begin, end))
    for wanted in (changed, held, np.ones(len(index), dtype=bool)):
        places = begin + np.flatnonzero(wanted[begin:])
        room = _DATES - len(chosen)
        if room > 0 and len(places):
            spread = np.linspace(0, len(places) - 1, min(room, len(places))).round().astype(int)
            chosen |= dict.fromkeys(int(places[k]) for k in spread)
    return sorted(chosen)
