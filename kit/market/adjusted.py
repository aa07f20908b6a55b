"""Factors: laid over raw bars, and told apart from prices that were adjusted by subtraction."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

__all__ = ["ratio_problem", "with_factors"]

Floats = npt.NDArray[np.float64]
_HALF_CENT: Final = 0.0051  # what rounding an adjusted price to cents may move it by


def with_factors(bars: pl.DataFrame, factors: pl.DataFrame) -> pl.DataFrame:
    """Lay dated factors over raw rows: each row has the last factor at or before it, 1 before all.

    Args:
        bars: Rows with `time`.
        factors: `time` and `adj_factor`, any order.
    """
    dated = factors.sort("time").select("time", pl.col("adj_factor").cast(pl.Float64))
    joined = bars.drop("adj_factor", strict=False).sort("time").join_asof(dated, on="time")
    return joined.with_columns(pl.col("adj_factor").fill_null(1.0))


def ratio_problem(raw: Floats, adjusted: Floats) -> str:
    """Tell why an adjusted close does not come from the raw one by a ratio; empty when it may.

    Between two ex-dates an adjustment by ratio keeps the quotient, one by subtraction keeps the
    difference, each up to the cent the adjusted close is rounded to.
    """
    both = np.isfinite(raw) & np.isfinite(adjusted)
    raw, adjusted = raw[both], adjusted[both]
    if (adjusted <= 0).any():
        return f"the adjusted close falls to {adjusted.min():g}: it was adjusted by subtraction"
    cent = np.full(len(raw), _HALF_CENT)
    by_ratio = _breaks(adjusted / raw, cent / raw)
    by_subtraction = _breaks(raw - adjusted, cent)
    if by_ratio > by_subtraction + max(2, len(raw) // 100):
        return (
            f"its difference to the raw close changes {by_subtraction} times in {len(raw)} bars "
            f"and its ratio {by_ratio} times: it was adjusted by subtraction"
        )
    if by_ratio > max(2, len(raw) // 5):
        return f"its ratio to the raw close changes {by_ratio} times in {len(raw)} bars"
    return ""


def _breaks(values: Floats, tolerance: Floats) -> int:
    """Return how often a series leaves the level it had, up to the rounding of each value."""
    count, low, high = 0, -np.inf, np.inf
    for value, slack in zip(values.tolist(), tolerance.tolist(), strict=True):
        low, high = max(low, value - slack), min(high, value + slack)
        if low > high:
            count, low, high = count + 1, value - slack, value + slack
    return count
