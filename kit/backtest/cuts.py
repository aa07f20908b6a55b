"""Which dates a panel is cut at: where a leak shows if there is one, and within a budget.

The choice depends on the data and the code alone, so that a verdict can be repeated.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date
from typing import Final

import numpy as np
import pandas as pd

from kit.backtest.views import TOLERANCE, View
from kit.errors import UsageError

__all__ = ["active", "choose_cuts", "spread"]

_EVEN: Final = 4  # cuts that are spread evenly, wherever weights change
_MOST: Final = 60  # cuts, at most


def choose_cuts(
    view: View,
    weights: dict[str, pd.Series],
    dates: Iterable[date] | None,
    *,
    exhaustive: bool,
    runs: float,
) -> list[date]:
    """Choose the dates to cut at.

    Args:
        view: The panel.
        weights: What the engine says on all of it.
        dates: These dates instead.
        exhaustive: Every date instead.
        runs: What the cuts may cost, in runs over the whole panel.

    Raises:
        UsageError: `lookahead.bad_dates`.
    """
    sessions = view.sessions
    if dates is not None:
        wanted = sorted({day for day in dates if sessions[0] <= day <= sessions[-1]})
        if not wanted:
            raise UsageError(
                "lookahead.bad_dates",
                "none of the dates to check lies inside the panel",
                remedy=f"the panel runs from {sessions[0]} to {sessions[-1]}",
            )
        return wanted
    if exhaustive:
        return sessions
    # The last date of all is no cut: nothing comes after it.
    open_to_doubt = sessions[:-1] or sessions
    size = len(open_to_doubt)
    even = min(_EVEN, int(runs) - 1)
    places = [round((k + 1) * size / (even + 1)) - 1 for k in range(even)]
    chosen = dict.fromkeys(place for place in places if place >= 0)
    budget = runs - sum(_cost(place, size) for place in chosen)
    for place in _interesting(weights, open_to_doubt):
        cost = _cost(place, size)
        if place in chosen or cost > budget:
            continue
        if len(chosen) >= _MOST:
            break
        chosen[place] = None
        budget -= cost
    return [open_to_doubt[place] for place in sorted(chosen) or [size // 2]]


def _cost(place: int, size: int) -> float:
    """Return what a cut costs in runs over the whole: half of it goes by symbols, not by bars."""
    return 0.5 + 0.5 * (place + 1) / size


def _interesting(weights: dict[str, pd.Series], sessions: Sequence[date]) -> list[int]:
    """Order sessions by how much they promise: where a rare or a large change of weights is.

    Half of the list goes by the size of the change, half is a spread over all changes; they are
    interleaved, so that whatever part of it is used holds both.
    """
    days = np.array(list(sessions), dtype="datetime64[D]")
    moved = np.zeros(len(days))
    for series in weights.values():
        if len(series) < 2:
            continue
        steps = np.abs(np.diff(np.nan_to_num(series.to_numpy())))
        # A rule that stood still for long before it moved is the rarer one.
        rare = 1 / max(int((steps > TOLERANCE).sum()), 1)
        places = np.searchsorted(days, series.index.values[1:].astype("datetime64[D]"))
        inside = places < len(days)
        largest_of_day = np.zeros(len(days))
        np.maximum.at(largest_of_day, places[inside], steps[inside])
        moved += largest_of_day * rare
    changes = np.flatnonzero(moved > 0)
    largest = [int(place) for place in changes[np.argsort(-moved[changes], kind="stable")]]
    halves = _halving(len(changes))
    spread = [int(changes[place]) for place in halves]
    mixed = [place for pair in zip(largest, spread, strict=True) for place in pair]
    # Where nothing changes there is still the plain grid, finer and finer.
    return list(dict.fromkeys([*mixed, *_halving(len(sessions))]))


def _halving(count: int) -> list[int]:
    """Return 0 .. count - 1 so that every beginning of the list is spread over the whole."""
    found: dict[int, None] = {}
    parts = 2
    while len(found) < count:
        for k in range(1, parts, 2):
            found.setdefault(k * count // parts)
        if parts > count:
            found |= dict.fromkeys(place for place in range(count) if place not in found)
        parts *= 2
    return list(found)


def spread(cuts: Sequence[date], count: int) -> list[date]:
    """Return at most `count` dates spread over the cuts."""
    places = np.unique(np.linspace(0, len(cuts) - 1, min(count, len(cuts))).round().astype(int))
    return [cuts[int(place)] for place in places]


def active(cuts: Sequence[date], weights: dict[str, pd.Series], count: int) -> list[date]:
    """Return dates to screen: those with a weight first, for a screen probably picks there."""
    days = [
        series.index.values[np.nan_to_num(series.to_numpy()) != 0] for series in weights.values()
    ]
    held = set(np.unique(np.concatenate(days).astype("datetime64[D]")).tolist() if days else ())
    busy = spread([day for day in cuts if day in held], count * 2 // 3)
    others = [day for day in cuts if day not in busy]
    return sorted([*busy, *spread(others, count - len(busy))]) if others else busy
