"""A grid of parameters: how it is written, what came of its cells, and what that is worth.

`near_pct=2,3,4` lists values, `window=200:260:10` counts from the first to the last, both
included. The best cell of a grid is the best of so many tries: beside the table stands what picking
it was worth on bars that the picking had not seen, and every cell counts as a trial.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from kit.backtest.folds import FOLDS, chosen, purged, walk_forward
from kit.backtest.result import BacktestResult
from kit.errors import UsageError
from kit.schemas import suggestion

__all__ = [
    "METRICS",
    "Cell",
    "Grid",
    "cell_of",
    "combinations",
    "heat",
    "out_of_sample",
    "parse_grid",
    "table",
]

Floats = npt.NDArray[np.float64]
Grid = Mapping[str, tuple[Any, ...]]

METRICS: Final = ("sharpe", "total_return", "annual_return", "max_drawdown", "trades", "turnover")
_MOST: Final = 10_000


@dataclass(frozen=True, kw_only=True, eq=False)
class Cell:
    """One backtest of a grid.

    Attributes:
        params: The values that were varied.
        metrics: Metric -> value, of `METRICS`; empty when it failed.
        returns: Returns of the graded bars.
        longest: Bars of the longest trade.
        error: Why it failed, or empty.
    """

    params: Mapping[str, Any]
    metrics: Mapping[str, float | None]
    returns: Floats
    longest: int = 0
    error: str = ""

    @property
    def name(self) -> str:
        """`near_pct=3 window=200`."""
        return " ".join(f"{key}={value}" for key, value in self.params.items())

    def to_dict(self) -> dict[str, Any]:
        """Return parameters, metrics and error."""
        return {"params": dict(self.params), **dict(self.metrics), "error": self.error}


def parse_grid(options: Sequence[str], params: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """Read `name=values` options against the parameters a bundle has.

    Raises:
        UsageError: `sweep.bad_param`, `sweep.too_large`, or `sweep.unknown_param` with the
            nearest name.
    """
    grid: dict[str, tuple[Any, ...]] = {}
    for option in options:
        name, equals, text = option.partition("=")
        name = name.strip()
        if not equals or not text.strip() or name in grid:
            raise _bad(option, "is not name=values, once for each parameter")
        if name not in params:
            hint = suggestion(name, params) or f"parameters: {', '.join(params) or 'none'}"
            raise UsageError(
                "sweep.unknown_param",
                f"the bundle has no parameter {name!r}; {hint}",
                where="config.json: _kit.params",
                remedy="name a key of _kit.params",
            )
        values = [_typed(option, value, params[name]) for value in _values(option, text)]
        grid[name] = tuple(dict.fromkeys(values))
    if not grid:
        raise UsageError(
            "sweep.bad_param", "no parameter is varied", remedy="give --param near_pct=2,3,4"
        )
    cells = int(np.prod([len(values) for values in grid.values()]))
    if cells > _MOST:
        raise UsageError(
            "sweep.too_large",
            f"the grid has {cells:,} cells, more than {_MOST:,}",
            remedy="take wider steps: every cell is a trial that counts against the best one",
        )
    return grid


def _values(option: str, text: str) -> list[str]:
    parts = text.split(":")
    if len(parts) == 1:
        return [part.strip() for part in text.split(",")]
    try:
        first, last, step = map(Decimal, parts)
        count = int((last - first) / step)
    except (ValueError, InvalidOperation, ArithmeticError) as error:
        raise _bad(option, "is not first:last:step in numbers") from error
    if count < 0 or count > _MOST:
        raise _bad(option, "counts to nowhere, or too far")
    return [str(first + step * k) for k in range(count + 1)]


def _typed(option: str, text: str, current: Any) -> Any:
    """Return a value of the kind the parameter has now; any JSON scalar where that is null."""
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if isinstance(current, bool) or value is None or current is None:
        fits = current is None or value is None or isinstance(value, bool)
    elif isinstance(current, int | float):
        fits = number and (isinstance(current, float) or value == int(value))
        value = type(current)(value) if fits else value
    else:
        fits = isinstance(current, str)
        value = text
    if not fits or isinstance(value, list | dict):
        raise _bad(option, f"holds {text!r} where the bundle has {current!r}")
    return value


def _bad(option: str, why: str) -> UsageError:
    return UsageError(
        "sweep.bad_param",
        f"--param {option}: {why}",
        remedy="write near_pct=2,3,4 or window=200:260:10",
    )


def combinations(grid: Grid) -> list[dict[str, Any]]:
    """Return the parameters of every cell, the last one varying fastest."""
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def cell_of(result: BacktestResult, params: Mapping[str, Any]) -> Cell:
    """Return what a sweep keeps of a backtest."""
    metrics = result.metrics.to_dict()
    values = result.equity.to_numpy(dtype=np.float64)
    places = pd.Series(np.arange(len(result.dates)), index=result.dates)
    trades = result.trades
    left = trades["exit_time"].fillna(result.dates[-1])
    bars = places.reindex(left).to_numpy() - places.reindex(trades["entry_time"]).to_numpy()
    return Cell(
        params=dict(params),
        metrics={name: metrics[name] for name in METRICS},
        returns=values[1:] / values[:-1] - 1,
        longest=int(bars.max()) if len(bars) else 0,
    )


def table(cells: Sequence[Cell]) -> pd.DataFrame:
    """Return one row a cell: parameters, metrics, error."""
    return pd.DataFrame([{**one.params, **one.metrics, "error": one.error} for one in cells])


def heat(cells: Sequence[Cell], grid: Grid, metric: str = "sharpe") -> pd.DataFrame:
    """Return a metric over the first two parameters, the median over all others."""
    names = list(grid)
    frame = table(cells)
    rows = names[0]
    columns = names[1] if len(names) > 1 else "_"
    if columns == "_":
        frame["_"] = metric
    if metric not in frame:
        frame[metric] = float("nan")
    wide = frame.pivot_table(
        index=rows, columns=columns, values=metric, aggfunc="median", dropna=False, observed=False
    )
    shown = wide.reindex(list(grid[rows]))
    shown = shown.reindex(columns=list(grid[columns]) if columns in grid else [metric])
    return shown.rename_axis(index=rows, columns=columns if columns in grid else "")


def out_of_sample(cells: Sequence[Cell], periods: float | None) -> dict[str, Any]:
    """Score the picking of the best cell on bars that it was not picked on.

    Returns:
        `purge` in bars (the longest trade), and `walk_forward` and `purged` as `chosen` returns
        them; empty where there are too few cells or bars.
    """
    ran = {one.name: one for one in cells if not one.error}
    lengths = {len(one.returns) for one in ran.values()}
    if len(ran) < 2 or len(lengths) != 1:
        return {}
    bars = lengths.pop()
    if bars < 2 * FOLDS:
        return {}
    purge = max(one.longest for one in ran.values())
    returns = {name: one.returns for name, one in ran.items()}
    return {
        "purge": purge,
        "walk_forward": chosen(returns, walk_forward(bars, purge=purge), periods),
        "purged": chosen(returns, purged(bars, purge=purge), periods),
    }
