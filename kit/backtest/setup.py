"""What the kernel is run with beside the weights; kept, so that a result can be run again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from kit.backtest.kernel import Costs, Fills, Market, simulate
from kit.backtest.kernel_state import Bools, Floats

__all__ = ["Setup"]


@dataclass(frozen=True, kw_only=True)
class Setup:
    """All that a simulation needs beside the weights; kept so that a result can be stressed.

    Attributes:
        arrays: Raw fill and mark prices, and adjusted over raw, `[T, N]` each.
        market: Lots, limits, sessions, T+n.
        costs: Fee rates and slippage.
        initial_cash: Money at the start.
        first: First bar that is graded.
        lag: Bars from decision to fill.
        hold: Whether positions are only opened, closed and flipped.
        mask: Bars on which rebalancing may trade, `[T]`.
        tolerance: Weight difference that rebalancing leaves alone.
    """

    arrays: tuple[Floats, Floats, Floats]
    market: Market
    costs: Costs
    initial_cash: float
    first: int
    lag: int
    hold: bool
    mask: Bools
    tolerance: float

    def simulate(self, weights: pd.DataFrame) -> Fills:
        """Run the kernel on weights of dates x symbols."""
        fill, mark, adjust = self.arrays
        return simulate(
            fill=fill,
            mark=mark,
            adjust=adjust,
            weights=weights.to_numpy(dtype=np.float64),
            market=self.market,
            costs=self.costs,
            initial_cash=self.initial_cash,
            first=self.first,
            lag=self.lag,
            hold=self.hold,
            mask=self.mask,
            tolerance=self.tolerance,
        )
