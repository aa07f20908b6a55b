"""What the kernel works on: the records it writes, and the arrays it is handed.

The names: `t` is a bar, `i` a symbol, `row` the bar that decided; `unit` is the adjustment of a bar
(adjusted price over raw price), `units` are adjusted shares, `size` raw shares.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "CAUSES",
    "LONG_AGO",
    "ORDER_DTYPE",
    "REASONS",
    "Account",
    "Bars",
    "Bools",
    "Floats",
    "Ints",
    "Orders",
    "Rules",
    "Scratch",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Orders = NDArray[np.void]
"""A structured array of `ORDER_DTYPE`."""

CAUSES = (
    "lot_too_small",
    "no_cash",
    "limit_up",
    "limit_down",
    "halt",
    "t_plus_1",
    "short_not_allowed",
)
"""Why an intent was not filled, in the order of the columns of `Fills.unfilled`."""

REASONS = ("signal", "target_rebalance", "end_of_backtest")
"""Why an order was sent, by its `reason` number."""

ORDER_DTYPE = np.dtype(
    [
        ("id", np.int64),
        ("col", np.int64),
        ("idx", np.int64),
        ("size", np.float64),
        ("price", np.float64),
        ("fees", np.float64),
        ("side", np.int64),
        ("raw_size", np.float64),
        ("raw_price", np.float64),
        ("commission", np.float64),
        ("transfer", np.float64),
        ("stamp", np.float64),
        ("decided", np.int64),
        ("reason", np.int64),
    ],
    align=True,
)
"""One fill. The first seven fields are vectorbt's `order_dt`: `size` (> 0) and `price` in adjusted
terms, `fees` in money, `side` 0 buy, 1 sell. Then what the exchange saw (`raw_size` shares at
`raw_price`), the parts of the fee, the bar whose weights asked for it, and `REASONS`."""

LONG_AGO = -(1 << 40)
"""A session number before all others."""


class Bars(NamedTuple):
    """Arrays `[T, N]`; see `kernel.simulate` and `kernel.Market`."""

    fill: Floats
    mark: Floats
    adjust: Floats
    weights: Floats
    up: Floats
    down: Floats


class Rules(NamedTuple):
    """What the exchange and the broker ask for; see `kernel.Market` and `kernel.Costs`."""

    lot_row: Ints  # row of `min_lot` and `step` in force on each bar
    min_lot: Ints
    step: Ints
    session: Ints
    kind: Ints
    buy: Floats
    sell: Floats
    least: Floats
    most: Floats
    part: Ints
    per: Ints
    rounding: Ints
    slippage: float
    t_plus: int
    allow_short: bool
    limited: bool


class Account(NamedTuple):
    """State that changes from bar to bar; the first three are arrays of one, to be writable."""

    cash: Floats
    sent: Ints  # orders so far
    broken: Bools  # a fill would have broken an invariant
    position: Floats  # adjusted units
    last: Floats  # last known adjusted price
    fresh: Floats  # units bought in session `fresh_on`, which T+n does not let go yet
    fresh_on: Ints
    unfilled: Ints


class Scratch(NamedTuple):
    """Room for the orders of one bar; reused, so that a bar allocates nothing."""

    changed: Ints
    closing: Ints
    opening: Ints
    low: Floats  # limits of the day by symbol, NaN for none; of those to trade only
    high: Floats
    want: Floats  # shares wanted in total
    owned: Floats  # shares owned already
    paid: Floats  # raw fill price with slippage
    buying: Bools
    asked: Floats  # shares of the order before the basket was shrunk
    sizes: Floats  # shares of the order
