"""Parts of time: how a fixed rule did in each, and how a chosen one does on what it was not chosen.

A rule whose parameters were picked on the whole range has seen the whole range. Two honest ways to
score the picking: **walk-forward** (pick on everything before a fold, score on the fold) and
**purged folds** (pick on everything outside a fold, less a margin on both sides, score on it).
The margin is as long as positions last: a trade that reaches from the training part into the fold
would carry its outcome over. See M. Lopez de Prado, "Advances in Financial Machine Learning"
(2018), chapter 7.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from kit.backtest.trials import bar_sharpe
from kit.errors import UsageError

__all__ = ["FOLDS", "by_fold", "chosen", "purged", "walk_forward"]

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]
Split = tuple[Places, Places]

FOLDS: Final = 5
_LEAST: Final = 2  # bars a fold must have


def _cut(bars: int, folds: int) -> list[Places]:
    if folds < 2 or bars < folds * _LEAST:
        raise UsageError(
            "backtest.bad_folds",
            f"{bars} bars cannot be cut into {folds} folds",
            remedy="take a longer range, or fewer folds; at least two",
        )
    return [part.astype(np.int64) for part in np.array_split(np.arange(bars), folds)]


def walk_forward(bars: int, *, folds: int = FOLDS, purge: int = 0) -> list[Split]:
    """Return training and test bars: each fold but the first, with all before it.

    Args:
        bars: Bars there are.
        folds: Parts of equal length, give or take a bar.
        purge: Bars left out before the test.

    Raises:
        UsageError: `backtest.bad_folds`.
    """
    parts = _cut(bars, folds)
    return [(np.arange(max(int(part[0]) - purge, 0)), part) for part in parts[1:]]


def purged(bars: int, *, folds: int = FOLDS, purge: int = 0) -> list[Split]:
    """Return training and test bars: each fold with all outside it but a margin on both sides.

    Arguments and errors are those of `walk_forward`.
    """
    every = np.arange(bars)
    return [
        (every[(every < part[0] - purge) | (every > part[-1] + purge)], part)
        for part in _cut(bars, folds)
    ]


def by_fold(
    equity: pd.Series, periods: float | None, *, folds: int = FOLDS
) -> list[dict[str, Any]]:
    """Return how an account did in each part of its time.

    Args:
        equity: The initial cash, then the value after each bar.
        periods: Bars a year.
        folds: Parts, fewer where there are too few bars.

    Returns:
        One row a fold: `start`, `end`, `total_return`, `sharpe` (annual), `max_drawdown`.
    """
    values = equity.to_numpy(dtype=np.float64)
    folds = min(folds, (len(values) - 1) // _LEAST)
    if folds < 2:
        return []
    rows = []
    for part in _cut(len(values) - 1, folds):
        part_of = values[part[0] : part[-1] + 2]  # from the value before its first bar
        returns = part_of[1:] / part_of[:-1] - 1
        rows.append(
            {
                "start": str(equity.index[part[0] + 1].date()),
                "end": str(equity.index[part[-1] + 1].date()),
                "total_return": float(part_of[-1] / part_of[0] - 1),
                "sharpe": _annual(returns, periods),
                "max_drawdown": float((part_of / np.maximum.accumulate(part_of) - 1).min()),
            }
        )
    return rows


def chosen(
    returns: Mapping[str, Floats], splits: list[Split], periods: float | None
) -> dict[str, Any]:
    """Pick the best candidate on each training part, and score the picks on what they had not seen.

    Args:
        returns: Returns of every candidate, of one length.
        splits: From `walk_forward` or `purged`.
        periods: Bars a year.

    Returns:
        `picks` (the candidate of each split, None where none varied), `in_sample` and
        `out_of_sample` (annual Sharpe ratios: the mean of the picks' own training ratios, and that
        of their test returns put together).
    """
    picks: list[str | None] = []
    seen: list[float] = []
    unseen: list[Floats] = []
    for train, test in splits:
        scored = {name: bar_sharpe(row[train]) for name, row in returns.items()}
        known = {name: ratio for name, ratio in scored.items() if ratio is not None}
        best = max(known, key=lambda name: known[name], default=None)
        picks.append(best)
        if best is not None:
            seen.append(known[best])
            unseen.append(returns[best][test])
    scale = None if periods is None else math.sqrt(periods)
    return {
        "picks": picks,
        "in_sample": float(np.mean(seen)) * scale if seen and scale else None,
        "out_of_sample": _annual(np.concatenate(unseen), periods) if unseen else None,
    }


def _annual(returns: Floats, periods: float | None) -> float | None:
    ratio = bar_sharpe(returns)
    return None if ratio is None or periods is None else ratio * math.sqrt(periods)
