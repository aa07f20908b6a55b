"""The simulation kernel: from target weights to fills, cash and equity, linear in symbol-bars.

One cash account is shared by all symbols. On every bar the kernel looks at the weights decided
`lag` bars earlier, closes what is no longer wanted, then opens what is, at that bar's fill price.
Lots, price limits and minimum fees are decided on **raw** prices, as the exchange does. Positions
are kept in **adjusted** units (raw shares divided by the adjustment of the fill bar), so a split or
a dividend needs no booking of its own: both count as reinvested on the ex-date.

Nothing here knows about bundles, panels or pandas: arrays in, arrays out.

A basket of buys that does not fit into the cash left is shrunk by one common factor, so the result
does not depend on the order of the symbols.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from kit.backtest.kernel_loop import run
from kit.backtest.kernel_state import (
    CAUSES,
    LONG_AGO,
    ORDER_DTYPE,
    REASONS,
    Account,
    Bars,
    Bools,
    Floats,
    Ints,
    Orders,
    Rules,
    Scratch,
)
from kit.errors import RunError
from kit.market import FeeSchedule

__all__ = ["CAUSES", "ORDER_DTYPE", "REASONS", "Costs", "Fills", "Market", "by_bar", "simulate"]

_STRIPE = 128  # columns that are turned over at a time


@dataclass(frozen=True, kw_only=True)
class Market:
    """What the exchange allows; `T` bars, `N` symbols.

    Attributes:
        up: Highest price of the day, raw, `[T, N]`; NaN where there is no limit. `[0, 0]` for none.
        down: Lowest price of the day, raw; as `up`.
        min_lot: Smallest order in shares, `[N]` or `[T, N]`.
        step: Shares an order grows by, as `min_lot`; 0 for any fraction of a share.
        session: Number of the trading session each bar belongs to, `[T]`, ascending.
        t_plus: Sessions a bought share must be held before it can be sold (CN 1, US 0).
        allow_short: Whether a position may go below zero.
    """

    up: Floats
    down: Floats
    min_lot: Ints
    step: Ints
    session: Ints
    t_plus: int
    allow_short: bool


@dataclass(frozen=True, kw_only=True)
class Costs:
    """What a fill costs, in the market's currency.

    Attributes:
        fees: Every charge by kind of security and bar. A negative `rounding` rounds nothing.
        kind: Row of those tables that each symbol pays by, `[N]`.
        slippage: Fraction of the price lost at each fill (5 bps is 0.0005). An order whose price
            would then reach the limit of the day is not filled.
    """

    fees: FeeSchedule
    kind: Ints
    slippage: float

    def times(self, factor: float) -> Costs:
        """Return costs that are `factor` times as high, their floors and ceilings too."""
        scaled = {
            name: getattr(self.fees, name) * factor for name in ("buy", "sell", "least", "most")
        }
        return replace(self, fees=replace(self.fees, **scaled), slippage=self.slippage * factor)


@dataclass(frozen=True, kw_only=True)
class Fills:
    """What came out of one simulation.

    Attributes:
        orders: Records of `ORDER_DTYPE`, sorted by symbol, then bar.
        cash: Cash at the end of each bar, `[T]`.
        equity: Cash plus positions at the last known close, `[T]`.
        exposure: Gross position value over equity at the end of each bar, `[T]`.
        position: Adjusted units still held after the last bar, `[N]`.
        unfilled: Bars on which an intent was not filled, by symbol and cause, `[N, 7]`.
    """

    orders: Orders
    cash: Floats
    equity: Floats
    exposure: Floats
    position: Floats
    unfilled: Ints


def simulate(
    *,
    fill: Floats,
    mark: Floats,
    adjust: Floats,
    weights: Floats,
    market: Market,
    costs: Costs,
    initial_cash: float,
    first: int = 0,
    lag: int = 1,
    hold: bool = True,
    mask: Bools | None = None,
    tolerance: float = 0.0,
    liquidate: bool = True,
) -> Fills:
    """Simulate one cash account over all symbols.

    Args:
        fill: Raw price each bar's orders fill at, `[T, N]`; NaN where nothing trades (a halt).
        mark: Raw close, `[T, N]`; NaN where there is no bar.
        adjust: Adjusted price over raw price, `[T, N]`, positive wherever there is a bar.
        weights: Target weight in [-1, 1] decided on each bar, `[T, N]`, finite. A bar whose
            absolute weights add up to more than 1 is scaled down to 1.
        market: Lots, limits, sessions, T+n, shorts.
        costs: Fee rates and slippage.
        initial_cash: Money at the start, positive.
        first: First bar that may trade and is graded; equity is flat before it. Bar 0, where the
            curve starts, never trades.
        lag: Bars from decision to fill; 0 is a same-bar fill.
        hold: True opens, closes and flips only; False moves every position to its target.
        mask: Bars on which rebalancing may trade, `[T]`; all of them by default.
        tolerance: Weight difference that rebalancing leaves alone.
        liquidate: Sell everything at the last close, as far as the market's rules allow.

    Raises:
        RunError: `backtest.invariant` if cash or a forbidden short would have been overdrawn. That
            is a defect of the kernel, never of a strategy.
    """
    length, symbols = weights.shape
    # Memory order matters to speed and to which compiled version numba picks.
    bars = Bars(*map(by_bar, (fill, mark, adjust, weights, market.up, market.down)))
    lot_row, min_lot, step = _lots(market, weights.shape)
    fees = costs.fees
    rules = Rules(
        lot_row=lot_row,
        min_lot=min_lot,
        step=step,
        session=np.ascontiguousarray(market.session),
        kind=costs.kind,
        buy=np.ascontiguousarray(fees.buy),
        sell=np.ascontiguousarray(fees.sell),
        least=np.ascontiguousarray(fees.least),
        most=np.ascontiguousarray(fees.most),
        part=fees.part,
        per=fees.per,
        rounding=fees.rounding,
        slippage=float(costs.slippage),
        t_plus=int(market.t_plus),
        allow_short=bool(market.allow_short),
        limited=market.up.shape[0] > 0,
    )
    account = Account(
        cash=np.array([float(initial_cash)]),
        sent=np.zeros(1, dtype=np.int64),
        broken=np.zeros(1, dtype=np.bool_),
        position=np.zeros(symbols),
        last=np.zeros(symbols),
        fresh=np.zeros(symbols),
        fresh_on=np.full(symbols, LONG_AGO, dtype=np.int64),
        unfilled=np.zeros((symbols, len(CAUSES)), dtype=np.int64),
    )
    scratch = Scratch(
        changed=np.zeros(symbols, dtype=np.int64),
        closing=np.zeros(symbols, dtype=np.int64),
        opening=np.zeros(symbols, dtype=np.int64),
        low=np.full(symbols, np.nan),
        high=np.full(symbols, np.nan),
        want=np.zeros(symbols),
        owned=np.zeros(symbols),
        paid=np.zeros(symbols),
        buying=np.zeros(symbols, dtype=np.bool_),
        asked=np.zeros(symbols),
        sizes=np.zeros(symbols),
    )
    orders, cash, equity, exposure, broken = run(
        bars,
        rules,
        account,
        scratch,
        # Generous: untouched room costs nothing, and growing it copies every order so far.
        np.empty(64 + 4 * symbols + length * symbols // 32, dtype=ORDER_DTYPE),
        int(first),
        int(lag),
        bool(hold),
        np.ones(length, dtype=np.bool_) if mask is None else mask,
        float(tolerance),
        bool(liquidate),
    )
    if broken >= 0:
        raise RunError(
            "backtest.invariant",
            f"a fill on bar {broken} would have overdrawn cash or position, or broken T+n",
            remedy="this is a defect of the kit: please report the bundle and the range",
        )
    return Fills(
        orders=orders,
        cash=cash,
        equity=equity,
        exposure=exposure,
        position=account.position,
        unfilled=account.unfilled,
    )


def by_bar(values: Floats) -> Floats:
    """Return a matrix with the symbols of a bar side by side in memory.

    Panels keep the bars of a symbol side by side. Turned over in one go, each of 5,000 columns is
    another page of memory for every number: a few columns at a time take a third of that.
    """
    if values.flags.c_contiguous:
        return values
    turned = np.empty(values.shape)
    for k in range(0, values.shape[1], _STRIPE):
        turned[:, k : k + _STRIPE] = values[:, k : k + _STRIPE]
    return turned


def _lots(market: Market, shape: tuple[int, ...]) -> tuple[Ints, Ints, Ints]:
    """Return the row of lots in force on each bar, and the different rows; `[T]`, `[R, N]` twice.

    Lots change on a few days of a decade: a row for every bar would cost as much as the prices.
    """
    whole = [np.broadcast_to(lots, shape) for lots in (market.min_lot, market.step)]
    new = np.zeros(shape[0], dtype=np.bool_)
    new[:1] = True
    for lots in whole:
        if lots.strides[0]:
            new[1:] |= (lots[1:] != lots[:-1]).any(axis=1)
    least, step = (np.ascontiguousarray(lots[new], dtype=np.int64) for lots in whole)
    return np.cumsum(new) - 1, least, step
