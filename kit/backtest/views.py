"""A panel as guards look at it: cut at a date or begun late, and what an engine says on it."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import Any, Final

import numpy as np
import pandas as pd

from kit.errors import GuardError
from kit.market import MarketPanel

__all__ = [
    "TOLERANCE",
    "View",
    "ask_screen",
    "ask_weights",
    "bars_of",
    "differ",
    "differing_bars",
    "differing_rows",
]

TOLERANCE: Final = 1e-9
"""Two numbers are equal when they differ by less, absolutely, or relatively above one."""

Panel = Mapping[str, pd.DataFrame]


class View:
    """A panel, whatever its kind, with the few cuts that guards make.

    Args:
        panel: A `MarketPanel`, or plain frames by symbol.

    Attributes:
        panel: The same.
        sessions: Distinct dates with a bar of any symbol, ascending.
        rows: Bars of all symbols together.
    """

    def __init__(self, panel: Panel) -> None:
        self.panel = panel
        if isinstance(panel, MarketPanel):
            index = panel.dates
            self.rows = len(index) * len(panel.symbols)
        else:
            indexes = [frame.index for frame in panel.values()]
            index = pd.DatetimeIndex(np.concatenate(indexes)) if indexes else pd.DatetimeIndex([])
            self.rows = len(index)
        self.sessions: list[date] = [day.date() for day in index.normalize().unique().sort_values()]

    def whole(self) -> Panel:
        """Return the panel for one engine: its frames are copies."""
        if isinstance(self.panel, MarketPanel):
            return self.panel
        return {symbol: frame.copy() for symbol, frame in self.panel.items()}

    def upto(self, day: date, *, reanchor: bool = False) -> Panel:
        """Return what was known at the end of a day."""
        if isinstance(self.panel, MarketPanel):
            return self.panel.upto(day, reanchor=reanchor)
        return self.between(None, day)

    def between(self, first: date | None, last: date) -> Panel:
        """Return frames of the bars from `first` to `last`, both included."""
        start = None if first is None else pd.Timestamp(first)
        stop = pd.Timestamp(last) + pd.Timedelta(days=1)
        frames = {}
        for symbol in self.panel:
            frame = self.panel[symbol]
            low = 0 if start is None else int(frame.index.searchsorted(start))
            high = int(frame.index.searchsorted(stop))
            if high > low:
                frames[symbol] = frame.iloc[low:high].copy()
        return frames

    def levels_move(self) -> bool:
        """Say whether a forward-adjusted level depends on the date it is looked at from."""
        if not isinstance(self.panel, MarketPanel) or self.panel.adjustment != "forward":
            return False
        factors = self.panel.wide_raw("adj_factor")
        return bool((factors.max() > factors.min()).any())


def ask_weights(engine: Any, name: str, panel: Panel) -> dict[str, pd.Series]:
    """Call `generate` or `generate_panel`; return weights by symbol.

    Raises:
        GuardError: `lookahead.engine_failed`, with what the engine raised or returned.
    """
    if name == "generate":
        panel = {symbol: panel[symbol] for symbol in panel}  # a dict, as a backtest hands it over
    found = _call(lambda: getattr(engine, name)(panel), name)
    if isinstance(found, pd.DataFrame):
        found = {str(symbol): found[symbol] for symbol in found.columns}
    if not isinstance(found, Mapping):
        raise _failed(f"{name} returned {type(found).__name__}, not weights by symbol")
    for symbol, series in found.items():
        if not isinstance(series, pd.Series):
            raise _failed(f"{name} returned {type(series).__name__} for {symbol}, not a series")
        if len(series) and not isinstance(series.index, pd.DatetimeIndex):
            raise _failed(f"{name} returned weights for {symbol} that have no bar times")
    return {
        symbol: series if series.dtype == np.float64 else series.astype("float64")
        for symbol, series in found.items()
    }


def ask_screen(engine: Any, name: str, panel: Panel, day: date, limit: int) -> list[Any]:
    """Call `screen_today` or `screen_panel` for one date; return its picks.

    Raises:
        GuardError: `lookahead.engine_failed`.
    """
    found = _call(lambda: getattr(engine, name)(panel, day, None, limit), name)
    if not isinstance(found, list | tuple):
        raise _failed(f"{name} returned {type(found).__name__}, not a list of picks")
    return list(found)


def _call(ask: Callable[[], Any], name: str) -> Any:
    try:
        # The backtest has shown what it prints; here it is asked a hundred times.
        with contextlib.redirect_stdout(_Nowhere()):
            return ask()
    except (Exception, SystemExit) as error:  # a bundle's code may raise anything
        raise _failed(f"{name} raised {type(error).__name__}: {error}") from error


class _Nowhere(io.TextIOBase):
    def write(self, text: str) -> int:
        return len(text)


def _failed(message: str) -> GuardError:
    return GuardError(
        "lookahead.engine_failed",
        message,
        where="code/signal_engine.py",
        remedy="mend the code: it must do with the bars up to any date, and with any first bar",
    )


def bars_of(*weights: pd.Series | None) -> pd.DatetimeIndex:
    """Return every bar that some of the series has, ascending."""
    index = pd.DatetimeIndex([])
    for series in weights:
        if series is not None and not series.index.equals(index):
            own = pd.DatetimeIndex(series.index)
            index = own.unique() if index.empty else index.union(own).unique()
    return index


def differing_bars(
    full: pd.Series | None, part: pd.Series | None, end: pd.Timestamp, tolerance: float
) -> pd.DatetimeIndex:
    """Return the bars before `end` at which two weight series are not the same.

    Arguments and equality are those of `differing_rows`.
    """
    if full is not None and part is not None:
        ahead = int(full.index.searchsorted(end)) if full.index.is_monotonic_increasing else -1
        # Nearly always one is the beginning of the other: compare numbers, not labels.
        if ahead == len(part) and np.array_equal(full.index.values[:ahead], part.index.values):
            a, b = full.to_numpy()[:ahead], part.to_numpy()
            if np.array_equal(a, b, equal_nan=True) and part.index.is_unique:
                return pd.DatetimeIndex([])
    index = bars_of(full, part)
    return differing_rows(full, part, index[index < end], tolerance)


def differing_rows(
    full: pd.Series | None, part: pd.Series | None, index: pd.DatetimeIndex, tolerance: float
) -> pd.DatetimeIndex:
    """Return the bars of `index` at which two weight series are not the same.

    NaN equals NaN. Where a series says nothing (no such symbol, no such bar) it holds nothing,
    which both zero and NaN equal.

    Args:
        full: Weights from all bars, None when the symbol is absent.
        part: Weights from a cut panel, None when the symbol is absent.
        index: Bars to look at.
        tolerance: Largest difference that counts as none.
    """
    a, a_said = _values(full, index)
    b, b_said = _values(part, index)
    same = np.isclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)
    silent = ~a_said | ~b_said
    same |= silent & np.isclose(np.nan_to_num(a), np.nan_to_num(b), rtol=0, atol=tolerance)
    return pd.DatetimeIndex(index[~same])


def _values(series: pd.Series | None, index: pd.DatetimeIndex) -> tuple[Any, Any]:
    if series is None:
        return np.full(len(index), np.nan), np.zeros(len(index), dtype=bool)
    last = series[~series.index.duplicated(keep="last")]
    return last.reindex(index).to_numpy(dtype="float64"), index.isin(last.index)


def differ(one: Sequence[Any], other: Sequence[Any], tolerance: float) -> tuple[str, str] | None:
    """Compare two lists of picks.

    Returns:
        The first symbol that differs and how, or None when all is the same.
    """
    a, b = ({str(pick.symbol): pick for pick in picks} for picks in (one, other))
    for symbol in [*a, *(symbol for symbol in b if symbol not in a)]:
        if symbol not in b:
            return symbol, "picked with the later bars, and not without them"
        if symbol not in a:
            return symbol, "picked without the later bars, and not with them"
        facts = [
            {"score": p.score, **dict(p.fields), "matched_rules": sorted(map(str, p.matched_rules))}
            for p in (a[symbol], b[symbol])
        ]
        for name in dict.fromkeys([*facts[0], *facts[1]]):
            left, right = (fact.get(name) for fact in facts)
            if not _alike(left, right, tolerance):
                return symbol, f"{name} is {left} with the later bars, {right} without them"
    if list(a) != list(b):
        moved = next(s for s, t in zip(a, b, strict=True) if s != t)
        return moved, "ranked differently with the later bars"
    return None


def _alike(left: Any, right: Any, tolerance: float) -> bool:
    try:
        near = np.isclose(float(left), float(right), rtol=tolerance, atol=tolerance, equal_nan=True)
    except (TypeError, ValueError):
        return bool(left == right)
    return bool(near)
