"""Ask a signal engine for its target weights, and check what it answers.

An engine gets copies: nothing it does to a frame can change what is executed. What it returns is
checked before anything is simulated, and every complaint names the symbol, the date and the mend.
"""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from kit.errors import BundleError, KitError
from kit.schemas import suggestion

if TYPE_CHECKING:
    from kit.market import MarketPanel

__all__ = ["Weights", "call_engine", "target_weights"]

Floats = NDArray[np.float64]
_SLACK = 1e-9  # a weight of 1 that was summed up from parts may exceed it by rounding


@dataclass(frozen=True, kw_only=True)
class Weights:
    """Target weights on the panel's calendar.

    Attributes:
        values: `[T, N]`, finite; a symbol without a bar keeps its last weight, 0 before its first.
        form: `generate` or `generate_panel`, whichever was asked.
        silent: Symbols the engine said nothing about; their weights are 0.
    """

    values: Floats
    form: str
    silent: tuple[str, ...]


def target_weights(
    engine: Any, panel: MarketPanel, *, warmup_bars: int = 0, form: str | None = None
) -> Weights:
    """Return the weights an engine decides at the close of each bar of a panel.

    `generate_panel(panel)` is used when the engine has it, else `generate(data_map)`.

    Args:
        engine: A signal engine.
        panel: Bars, T by N.
        warmup_bars: Bars a symbol needs before its weights count; before, they are 0 and NaN is
            accepted.
        form: Ask this form instead of the preferred one.

    Raises:
        BundleError: `backtest.engine_failed` when the engine raises, `backtest.bad_weights` when
            the answer has a wrong type, an unknown symbol or date, NaN, infinity, or a weight
            outside [-1, 1].
    """
    chosen = form or (
        "generate_panel" if callable(getattr(engine, "generate_panel", None)) else "generate"
    )
    dates = panel.dates
    traded = panel.wide_raw("close").notna().to_numpy()
    settled = np.cumsum(traded, axis=0) >= max(warmup_bars, 1)
    if chosen == "generate_panel":
        matrix, silent = _from_panel(call_engine(engine, chosen, panel), panel, dates)
    else:
        # Context is shown too; only the panel's own symbols can be given a weight.
        frames = {symbol: panel[symbol] for symbol in panel}
        indexes = {symbol: frames[symbol].index for symbol in panel.symbols}
        matrix, silent = _from_map(call_engine(engine, chosen, frames), indexes, dates)
    _check(matrix, traded & settled, panel.symbols, dates, chosen)
    matrix[~settled] = 0.0
    return Weights(values=_carried(matrix), form=chosen, silent=silent)


def call_engine(engine: Any, method: str, *arguments: Any, **named: Any) -> Any:
    """Call a method of an engine; whatever it raises becomes an error that names the line.

    Raises:
        BundleError: `backtest.engine_failed`.
    """
    try:
        # Standard output is for results: what a rule prints must not end up among them.
        with contextlib.redirect_stdout(sys.stderr):
            return getattr(engine, method)(*arguments, **named)
    except KitError:
        raise
    except (Exception, SystemExit) as error:  # strategy code may raise anything at all
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{frame.filename.rpartition('/')[2]}:{frame.lineno}"
        raise BundleError(
            "backtest.engine_failed",
            f"{type(engine).__name__}.{method} failed: {type(error).__name__}: {error}",
            where=where,
            remedy="mend the signal code at that line and run the backtest again",
        ) from error


def _from_map(
    answer: Any, indexes: Mapping[str, pd.Index], dates: pd.DatetimeIndex
) -> tuple[Floats, tuple[str, ...]]:
    """Lay a `generate` answer out on the calendar; NaN where a symbol has no bar."""
    if not isinstance(answer, Mapping):
        raise _bad(
            f"generate returned {type(answer).__name__}, not a dict",
            "return {symbol: pd.Series(weights, index=frame.index)}",
        )
    matrix = np.full((len(dates), len(indexes)), np.nan)
    places = {symbol: place for place, symbol in enumerate(indexes)}
    for symbol, series in answer.items():
        if symbol not in places:
            raise _bad(
                f"generate returned weights of {symbol!r}, which is not in the data",
                suggestion(str(symbol), places) or "return only symbols of data_map",
            )
        matrix[dates.get_indexer(indexes[symbol]), places[symbol]] = _column(
            symbol, series, indexes[symbol]
        )
    return matrix, tuple(symbol for symbol in indexes if symbol not in answer)


def _column(symbol: str, series: Any, index: pd.Index) -> Floats:
    if not isinstance(series, pd.Series):
        raise _bad(
            f"the weights of {symbol} are {type(series).__name__}, not a pandas Series",
            "wrap them: pd.Series(values, index=frame.index)",
        )
    if not series.index.equals(index):
        raise _bad(*_index_problem(symbol, series.index, index))
    return _floats(f"the weights of {symbol}", series)


def _index_problem(symbol: str, got: pd.Index, wanted: pd.Index) -> tuple[str, str]:
    mend = "return a Series on frame.index itself; .reindex(frame.index) aligns one"
    if got.has_duplicates:
        day = _day(got[got.duplicated()][0])
        return f"{symbol} has two weights on {day}", mend
    foreign = got.difference(wanted, sort=False)
    if len(foreign):
        return f"{symbol} has a weight on {_day(foreign[0])}, where it has no bar", mend
    missing = wanted.difference(got, sort=False)
    if len(missing):
        return f"{symbol} has no weight on {_day(missing[0])}, where it has a bar", mend
    return f"the weights of {symbol} are not in date order", f"sort them; {mend}"


def _from_panel(
    answer: Any, panel: MarketPanel, dates: pd.DatetimeIndex
) -> tuple[Floats, tuple[str, ...]]:
    if not isinstance(answer, pd.DataFrame):
        raise _bad(
            f"generate_panel returned {type(answer).__name__}, not a DataFrame",
            "return a frame of dates x symbols, shaped like panel.wide('close')",
        )
    known = set(panel.symbols)
    foreign = [symbol for symbol in answer.columns if symbol not in known]
    if foreign:
        raise _bad(
            f"generate_panel returned weights of {foreign[0]!r}, which is not in the panel",
            suggestion(str(foreign[0]), panel.symbols) or "return only symbols of the panel",
        )
    if answer.columns.has_duplicates:
        twice = answer.columns[answer.columns.duplicated()][0]
        raise _bad(f"generate_panel returned {twice} twice", "return each symbol once")
    if not answer.index.equals(dates):
        raise _bad(*_index_problem("the panel", answer.index, dates))
    silent = tuple(symbol for symbol in panel.symbols if symbol not in answer.columns)
    values = _floats("the weights", answer)
    if answer.columns.equals(pd.Index(panel.symbols)):
        return values, silent
    matrix = np.full((len(dates), len(panel.symbols)), np.nan)
    places = {symbol: place for place, symbol in enumerate(panel.symbols)}
    matrix[:, [places[symbol] for symbol in answer.columns]] = values
    return matrix, silent


def _floats(what: str, values: pd.Series | pd.DataFrame) -> Floats:
    try:
        return np.array(values.to_numpy(), dtype=np.float64, order="C")
    except (TypeError, ValueError) as error:
        raise _bad(f"{what} are not numbers ({error})", "use float or bool values") from error


def _check(
    matrix: Floats,
    needed: NDArray[np.bool_],
    symbols: tuple[str, ...],
    dates: pd.DatetimeIndex,
    form: str,
) -> None:
    """Refuse NaN where a settled symbol has a bar, infinities, and weights outside [-1, 1]."""
    spoken = ~np.isnan(matrix).all(axis=0)
    faults = (
        (np.isinf(matrix), "is infinite", "divide only where the divisor is not 0"),
        (
            np.abs(np.nan_to_num(matrix)) > 1.0 + _SLACK,
            "is outside [-1, 1]",
            "divide the weights by the number of positions, or clip them",
        ),
        (
            np.isnan(matrix) & needed & np.broadcast_to(spoken, matrix.shape),
            "is NaN",
            "fill it: .fillna(0.0) after the last calculation",
        ),
    )
    for fault, what, mend in faults:
        if fault.any():
            row = int(np.argmax(fault.any(axis=1)))
            column = int(np.argmax(fault[row]))
            raise _bad(
                f"{form}: the weight of {symbols[column]} on {_day(dates[row])} {what}"
                + (f" ({matrix[row, column]:g})" if "outside" in what else "")
                + f"; {int(fault.sum())} value(s) in all",
                mend,
            )


def _carried(matrix: Floats) -> Floats:
    """Fill NaN with the value above it, 0 at the top."""
    if not np.isnan(matrix).any():
        return np.ascontiguousarray(matrix)
    filled = pd.DataFrame(matrix).ffill().fillna(0.0).to_numpy()
    return np.ascontiguousarray(filled, dtype=np.float64)


def _day(stamp: Any) -> str:
    return f"{pd.Timestamp(stamp):%Y-%m-%d}" if stamp is not None else "?"


def _bad(message: str, remedy: str) -> BundleError:
    return BundleError(
        "backtest.bad_weights", message, where="code/signal_engine.py", remedy=remedy
    )
