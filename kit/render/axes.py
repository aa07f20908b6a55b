"""The plain sums behind a chart: round ticks, scales, and fewer points than pixels can show."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

__all__ = [
    "Scale",
    "clean",
    "date_ticks",
    "drawable",
    "log_ticks",
    "named",
    "runs",
    "thin",
    "ticks",
    "value_scale",
]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Scale:
    """A straight or logarithmic map from values to pixels.

    Attributes:
        low: Smallest value shown.
        high: Largest value shown, above `low`.
        start: Pixel of `low`.
        end: Pixel of `high`.
        log: Whether equal ratios take equal room.
    """

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, values: Floats) -> Floats:
        """Return the pixels of some values; NaN stays NaN."""
        low, high = self.low, self.high
        if self.log:
            values, low, high = np.log(values), math.log(low), math.log(high)
        spread: Floats = self.start + (values - low) / (high - low) * (self.end - self.start)
        return spread

    def at(self, value: float) -> float:
        """Return the pixel of one value."""
        return float(self(np.array([value]))[0])


def clean(series: pd.Series, *, log: bool = False) -> pd.Series:
    """Return a series as float64 in the order of its index, NaN where nothing can be drawn."""
    values = pd.to_numeric(series, errors="coerce").astype("float64").sort_index(kind="stable")
    return values.where(drawable(np.asarray(values, dtype=np.float64), log=log))


def drawable(values: Floats, *, log: bool = False) -> npt.NDArray[np.bool_]:
    """Say which values a scale can hold; beyond 1e100 its own sums would overflow."""
    fit: npt.NDArray[np.bool_] = np.isfinite(values) & (np.abs(values) < 1e100)
    return fit & (values > 1e-100) if log else fit


def named(series: pd.Series, otherwise: str = "") -> str:
    """Return the name of a series as text, or another word when it has none."""
    return otherwise if series.name in (None, "") else str(series.name)


def value_scale(
    values: Floats, *, start: float, end: float, log: bool = False, zero: bool = False
) -> Scale:
    """Return a scale with some air around the values, whatever they are.

    Args:
        values: All values drawn; NaN is skipped, and nothing at all is allowed.
        start: Pixel of the lowest value.
        end: Pixel of the highest value.
        log: Logarithmic; the values must be above zero.
        zero: Keep zero on the scale (bars and areas stand on it).
    """
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
    if log and len(finite):
        low, high = low / (high / low) ** 0.04, high * (high / low) ** 0.04
        if high / low < 1 + 1e-9:
            low, high = low / 1.1, high * 1.1
        return Scale(low=low, high=high, start=start, end=end, log=True)
    if zero:
        low, high = min(low, 0.0), max(high, 0.0)
    if high - low <= max(1e-12 * max(abs(high), abs(low)), 1e-99):
        room = abs(high) * 0.1 or 1.0
        return Scale(low=low - room, high=high + room, start=start, end=end)
    air = (high - low) * 0.05
    below = 0.0 if zero and low == 0 else air
    above = 0.0 if zero and high == 0 else air
    return Scale(low=low - below, high=high + above, start=start, end=end)


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Return about `count` round values from `low` to `high`."""
    rough = (high - low) / max(count, 1)
    if rough < 1e-100:
        return []
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * times for times in (1, 2, 2.5, 5, 10) if size * times >= rough * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{place * step:.12g}") for place in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Return 1, 2 and 5 times powers of ten inside the range; plain ticks when it is narrow."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    found = [times * 10.0**power for power in powers for times in (1, 2, 5)]
    inside = [value for value in found if low <= value <= high]
    if len(inside) > 8:
        inside = [value for value in inside if f"{value:e}"[0] == "1"]
    return inside if len(inside) >= 3 else ticks(low, high)


def date_ticks(first: pd.Timestamp, last: pd.Timestamp, count: int = 7) -> list[pd.Timestamp]:
    """Return at most about `count` moments that begin a year, quarter, month, day or hour."""
    for rule, days in (("h", 1 / 24), ("D", 1), ("MS", 30.4), ("QS", 91.3), ("YS", 365.25)):
        span = (last - first).total_seconds() / 86400
        for times in (1, 2, 5, 10, 20):
            if span / (days * times) <= count and (times == 1 or rule in ("D", "YS", "h")):
                found = list(pd.date_range(first.normalize(), last, freq=f"{times}{rule}"))
                inside = [moment for moment in found if moment >= first]
                if len(inside) >= 2 or rule == "h":
                    return inside or [first]
    return [first]


def runs(values: Floats) -> list[tuple[int, int]]:
    """Return the stretches [start, stop) without a gap."""
    good = np.concatenate([[False], np.isfinite(values), [False]])
    edges = np.flatnonzero(good[1:] != good[:-1])
    return [(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def thin(x: Floats, y: Floats, columns: int) -> tuple[Floats, Floats]:
    """Keep the first, lowest, highest and last point of each pixel column; the look is the same.

    Args:
        x: Pixels, ascending.
        y: Values of the same length, without NaN.
        columns: Pixel columns that the line may take.
    """
    if len(x) <= 4 * columns:
        return x, y
    column = np.floor((x - x[0]) / max(float(x[-1] - x[0]), 1e-9) * columns).astype(int)
    starts = np.flatnonzero(np.diff(column, prepend=-1))
    keep: set[int] = set()
    for start, stop in zip(starts, [*starts[1:], len(x)], strict=True):
        part = y[start:stop]
        low, high = int(start + part.argmin()), int(start + part.argmax())
        keep.update((int(start), low, high, int(stop) - 1))
    chosen: Sequence[int] = sorted(keep)
    return x[chosen], y[chosen]
