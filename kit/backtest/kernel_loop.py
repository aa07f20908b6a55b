"""The compiled half of the kernel: one loop over the bars, and the steps of a bar.

Everything compiled stands in this one module on purpose: numba notices a changed source file, but
not a changed function that is imported from another one.

The names: `t` is a bar, `i` a symbol, `row` the bar that decided; `unit` is the adjustment of a bar
(adjusted price over raw price), `units` are adjusted shares, `size` raw shares.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

import numba
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
    "run",
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

_LOT, _CASH, _UP, _DOWN, _HALT, _T1, _SHORT = range(7)
_SIGNAL, _RESIZE, _END = range(3)
_TICK = 1e-6  # prices or sums of money nearer than this are the same; real ticks are >= 1e-3
_DUST = 1e-9  # a position smaller than this many shares is none
_HALVINGS = 40  # of the factor that shrinks a basket: 1e-12 of it
LONG_AGO = -(1 << 40)  # a session number before all others

_F = TypeVar("_F", bound=Callable[..., Any])


def _compiled(**options: Any) -> Callable[[_F], _F]:
    """Compile with numba; keep the machine code on disk where numba finds a writable place."""

    def compile_it(function: _F) -> _F:
        try:
            return cast(_F, numba.njit(cache=True, error_model="numpy", **options)(function))
        except RuntimeError:
            # Neither the package folder nor the user's cache folder is writable.
            return cast(_F, numba.njit(error_model="numpy", **options)(function))

    return compile_it


# Inner functions: only `run` is called from Python, and wrappers for the others would double
# the compile time. They make no arrays, and counting references to the ones they are handed costs
# a third of the run time. Inlined, because a call passes every field of every array by value.
_inner = _compiled(no_cpython_wrapper=True, no_cfunc_wrapper=True, _nrt=False, forceinline=True)
_outer = _compiled()


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

    min_lot: Ints
    step: Ints
    session: Ints
    kind: Ints
    transfer: Floats
    stamp_buy: Floats
    stamp_sell: Floats
    commission: float
    commission_min: float
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
    """Room for the buys of one bar; reused, so that a bar allocates nothing."""

    closing: Ints
    opening: Ints
    want: Floats  # shares wanted in total
    owned: Floats  # shares owned already
    paid: Floats  # raw fill price with slippage
    transfer: Floats  # transfer fee rate
    duty: Floats  # stamp duty rate
    asked: Floats  # shares of the order before the basket was shrunk
    sizes: Floats  # shares of the order


@_inner
def _cents(amount: float) -> float:
    """Round half up to 0.01; the nudge undoes binary noise such as 1.005 * 100 = 100.49999."""
    return math.floor(amount * 100.0 + 0.5 + 1e-7) / 100.0


@_inner
def _whole(shares: float, least: int, step: int) -> float:
    """Round shares down to an order the exchange takes: `least`, `least + step`, ..., or 0."""
    if shares < least - _DUST:
        return 0.0
    return least + math.floor((shares - least) / step + _DUST) * step


@_inner
def _cost(notional: float, commission: float, least: float, transfer: float, duty: float) -> float:
    """Return the fees of one order: each part rounded to cents, then added."""
    return (
        _cents(max(commission * notional, least))
        + _cents(transfer * notional)
        + _cents(duty * notional)
    )


@_inner
def _slipped(raw: float, slippage: float, low: float, high: float, buying: bool) -> float:
    """Move a price against us, but never past the limit of the day (NaN: no limit)."""
    if buying:
        paid = raw * (1.0 + slippage)
        return high if paid > high else paid
    paid = raw * (1.0 - slippage)
    return low if paid < low else paid


@_inner
def _barred(raw: float, low: float, high: float, buying: bool) -> bool:
    """Say whether the price stands at the limit that nobody trades against."""
    return raw >= high - _TICK if buying else raw <= low + _TICK


@_inner
def _affordable(
    room: float,
    shares: float,
    paid: float,
    least: int,
    step: int,
    commission: float,
    commission_min: float,
    transfer: float,
    duty: float,
) -> float:
    """Return the most shares, up to `shares`, that `room` pays for with fees, in whole lots."""
    if (
        shares * paid + _cost(shares * paid, commission, commission_min, transfer, duty)
        <= room + _TICK
    ):
        return shares
    size = _whole(room / (paid * (1.0 + commission + transfer + duty)), least, step)
    while size > 0.0:
        notional = size * paid
        if notional + _cost(notional, commission, commission_min, transfer, duty) <= room + _TICK:
            break
        size = _whole(size - step, least, step)
    return size


@_inner
def _trade(
    orders: Orders,
    account: Account,
    rules: Rules,
    t: int,
    i: int,
    units: float,
    unit: float,
    paid: float,
    duty: float,
    buying: bool,
    row: int,
    reason: int,
) -> None:
    """Book one fill, unless it breaks what must hold: cash, position, T+n.

    `run` sees to it that `orders` has room for a whole bar.
    """
    count = account.sent[0]
    size = units * unit
    notional = size * paid
    commission = _cents(max(rules.commission * notional, rules.commission_min))
    transfer = _cents(rules.transfer[rules.kind[i], t] * notional)
    stamp = _cents(duty * notional)
    fees = commission + transfer + stamp
    held = account.position[i]
    if buying:
        sound = account.cash[0] - notional - fees >= -_TICK
    else:
        sound = rules.allow_short or held - units >= -_DUST
        if held > 0.0 and rules.session[t] - account.fresh_on[i] < rules.t_plus:
            sound = sound and units <= held - account.fresh[i] + _DUST
    if not sound:
        account.broken[0] = True
        return
    order = orders[count]
    order.id = count
    order.col = i
    order.idx = t
    order.size = units
    order.price = paid * unit
    order.fees = fees
    order.side = 0 if buying else 1
    order.raw_size = size
    order.raw_price = paid
    order.commission = commission
    order.transfer = transfer
    order.stamp = stamp
    order.decided = row
    order.reason = reason
    account.sent[0] = count + 1
    if buying:
        # What is exactly affordable may leave less than nothing by a rounding of binary numbers.
        account.cash[0] = max(account.cash[0] - notional - fees, 0.0)
        if account.fresh_on[i] != rules.session[t]:
            account.fresh[i] = 0.0
            account.fresh_on[i] = rules.session[t]
        if held >= 0.0:  # a covered short is no new share
            account.fresh[i] += units
        held += units
    else:
        account.cash[0] += notional - fees
        held -= units
    account.position[i] = 0.0 if abs(held) * unit <= _DUST else held


@_inner
def _leave(
    orders: Orders,
    bars: Bars,
    rules: Rules,
    account: Account,
    t: int,
    i: int,
    raw: float,
    units: float,
    row: int,
    reason: int,
) -> None:
    """Close or cut one position by up to `units`, as far as limits, T+n and cash allow."""
    held = account.position[i]
    selling = held > 0.0
    unit = bars.adjust[t, i]
    low = bars.down[t, i] if rules.limited else math.nan
    high = bars.up[t, i] if rules.limited else math.nan
    if _barred(raw, low, high, not selling):
        account.unfilled[i, _DOWN if selling else _UP] += 1
        return
    paid = _slipped(raw, rules.slippage, low, high, not selling)
    kind = rules.kind[i]
    duty = rules.stamp_sell[kind, t] if selling else rules.stamp_buy[kind, t]
    if selling:
        if rules.session[t] - account.fresh_on[i] < rules.t_plus:
            free = max(held - account.fresh[i], 0.0)
            if units > free + _DUST:
                account.unfilled[i, _T1] += 1
                units = free
    else:
        size = _affordable(
            account.cash[0],
            units * unit,
            paid,
            rules.min_lot[i],
            rules.step[i],
            rules.commission,
            rules.commission_min,
            rules.transfer[kind, t],
            duty,
        )
        if size < units * unit:
            account.unfilled[i, _CASH] += 1
            units = size / unit
    if units * unit > _DUST:
        _trade(orders, account, rules, t, i, units, unit, paid, duty, not selling, row, reason)


@_inner
def _survey(
    bars: Bars, rules: Rules, account: Account, scratch: Scratch, row: int, hold: bool
) -> tuple[int, int]:
    """List what to close and what to open; returns how many of each."""
    weights = bars.weights[row]
    position = account.position
    closing = scratch.closing
    opening = scratch.opening
    closings = 0
    openings = 0
    for i in range(len(position)):
        weight = weights[i]
        held = position[i]
        # One test without short cuts, rarely true in hold mode: this scan is what a bar costs.
        differs = ((weight > 0.0) != (held > 0.0)) | ((weight < 0.0) != (held < 0.0))
        if differs | ((not hold) & (weight != 0.0)):
            if weight < 0.0 and not rules.allow_short:
                account.unfilled[i, _SHORT] += 1
                weight = 0.0
            if held != 0.0:
                closing[closings] = i
                closings += 1
            if weight != 0.0:
                opening[openings] = i
                openings += 1
    return closings, openings


@_inner
def _value(
    bars: Bars, account: Account, t: int, row: int, allow_short: bool
) -> tuple[float, float, float]:
    """Value the account at this bar's fill prices.

    Returns:
        (worth, cash that stands against shorts, scale bringing the absolute weights to at most 1).
    """
    fills = bars.fill[t]
    adjust = bars.adjust[t]
    weights = bars.weights[row]
    position = account.position
    last = account.last
    worth = account.cash[0]
    gross = 0.0
    # No test for "held": whether a symbol is held is a coin toss to the CPU, and 0 * price is 0.
    for i in range(len(position)):
        now = fills[i] * adjust[i]
        worth += position[i] * (last[i] if math.isnan(now) else now)
        gross += abs(weights[i])
    bound = 0.0
    if allow_short:
        for i in range(len(position)):
            if position[i] < 0.0:
                now = fills[i] * adjust[i]
                bound -= 2.0 * position[i] * (last[i] if math.isnan(now) else now)
    return worth, bound, 1.0 / gross if gross > 1.0 else 1.0


@_inner
def _reduce(
    orders: Orders,
    bars: Bars,
    rules: Rules,
    account: Account,
    scratch: Scratch,
    closings: int,
    t: int,
    row: int,
    scale: float,
    worth: float,
    tolerance: float,
) -> None:
    """Close or cut positions: sells first, then covers of shorts. Both free cash for buys."""
    for turn in range(2):
        for k in range(closings):
            i = scratch.closing[k]
            held = account.position[i]
            if held == 0.0 or (held > 0.0) != (turn == 0):
                continue
            weight = bars.weights[row, i] * scale
            if weight < 0.0 and not rules.allow_short:
                weight = 0.0
            leaving = held * weight <= 0.0
            raw = bars.fill[t, i]
            if math.isnan(raw):
                if leaving:
                    account.unfilled[i, _HALT] += 1
                continue
            units = abs(held)
            if not leaving:
                unit = bars.adjust[t, i]
                if abs(weight - held * raw * unit / worth) <= tolerance:
                    continue
                slip = -rules.slippage if held > 0.0 else rules.slippage
                excess = units * unit - abs(weight) * worth / (raw * (1.0 + slip))
                units = _whole(excess, rules.min_lot[i], rules.step[i]) / unit
                if units <= 0.0:
                    continue  # less than one lot too much is rounding, not an unfilled intent
            reason = _SIGNAL if leaving else _RESIZE
            _leave(orders, bars, rules, account, t, i, raw, units, row, reason)


@_inner
def _gather(
    bars: Bars,
    rules: Rules,
    account: Account,
    scratch: Scratch,
    openings: int,
    t: int,
    row: int,
    scale: float,
    worth: float,
    hold: bool,
    tolerance: float,
) -> int:
    """Price the openings that can trade on this bar; returns how many stand in the basket."""
    basket = 0
    for k in range(openings):
        i = scratch.opening[k]
        weight = bars.weights[row, i] * scale
        if weight < 0.0 and not rules.allow_short:
            continue
        held = account.position[i]
        if held * weight < 0.0 or (hold and held != 0.0):
            continue  # the old side could not be closed on this bar
        raw = bars.fill[t, i]
        if math.isnan(raw):
            if held == 0.0:
                account.unfilled[i, _HALT] += 1
            continue
        unit = bars.adjust[t, i]
        buying = weight > 0.0
        if held != 0.0 and abs(weight - held * raw * unit / worth) <= tolerance:
            continue
        low = bars.down[t, i] if rules.limited else math.nan
        high = bars.up[t, i] if rules.limited else math.nan
        paid = _slipped(raw, rules.slippage, low, high, buying)
        want = abs(weight) * worth / paid
        owned = abs(held) * unit
        size = _whole(want - owned, rules.min_lot[i], rules.step[i])
        if size <= 0.0:
            if held == 0.0:
                account.unfilled[i, _LOT] += 1
            continue
        if _barred(raw, low, high, buying):
            account.unfilled[i, _UP if buying else _DOWN] += 1
            continue
        # `basket` never runs ahead of `k`, so writing here cannot overwrite what is still to read.
        scratch.opening[basket] = i
        scratch.want[basket] = want
        scratch.owned[basket] = owned
        scratch.paid[basket] = paid
        kind = rules.kind[i]
        scratch.transfer[basket] = rules.transfer[kind, t]
        scratch.duty[basket] = rules.stamp_buy[kind, t] if buying else rules.stamp_sell[kind, t]
        scratch.asked[basket] = size
        basket += 1
    return basket


@_inner
def _basket_cost(rules: Rules, scratch: Scratch, basket: int, scale: float) -> float:
    """Size a basket scaled by `scale` and return what it costs, fees included."""
    total = 0.0
    for k in range(basket):
        i = scratch.opening[k]
        shares = scratch.want[k] * scale - scratch.owned[k]
        size = _whole(shares, rules.min_lot[i], rules.step[i])
        scratch.sizes[k] = size
        if size > 0.0:
            notional = size * scratch.paid[k]
            total += notional + _cost(
                notional,
                rules.commission,
                rules.commission_min,
                scratch.transfer[k],
                scratch.duty[k],
            )
    return total


@_inner
def _fit(rules: Rules, scratch: Scratch, basket: int, room: float) -> bool:
    """Shrink the basket by one common factor until `room` pays for it.

    Returns:
        True when even the shares without fees did not fit.
    """
    notional = 0.0
    dearest = 0.0
    for k in range(basket):
        size = scratch.asked[k]
        scratch.sizes[k] = size
        notional += size * scratch.paid[k]
        dearest = max(dearest, scratch.transfer[k] + scratch.duty[k])
    # Fees from above, to spare the usual case the exact sum: three roundings add under 0.02.
    rate = 1.0 + rules.commission + dearest
    if notional * rate + basket * (rules.commission_min + 0.02) <= room + _TICK:
        return False
    if _basket_cost(rules, scratch, basket, 1.0) <= room + _TICK:
        return False
    low = 0.0
    high = 1.0
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        if _basket_cost(rules, scratch, basket, middle) <= room + _TICK:
            low = middle
        else:
            high = middle
    _basket_cost(rules, scratch, basket, low)
    return notional > room


@_inner
def _enter(
    orders: Orders,
    bars: Bars,
    rules: Rules,
    account: Account,
    scratch: Scratch,
    basket: int,
    t: int,
    row: int,
    short_of_cash: bool,
) -> None:
    """Book the basket; what cash did not pay for is counted."""
    for k in range(basket):
        i = scratch.opening[k]
        size = scratch.sizes[k]
        if size < scratch.asked[k] and (short_of_cash or size <= 0.0):
            account.unfilled[i, _CASH] += 1
        if size <= 0.0:
            continue
        unit = bars.adjust[t, i]
        reason = _SIGNAL if account.position[i] == 0.0 else _RESIZE
        _trade(
            orders,
            account,
            rules,
            t,
            i,
            size / unit,
            unit,
            scratch.paid[k],
            scratch.duty[k],
            bars.weights[row, i] > 0.0,
            row,
            reason,
        )


@_inner
def _fixed(number: int) -> int:
    """Return a constant as a plain integer: numba compiles anew for each literal argument."""
    return number + 0


@_inner
def _liquidate(orders: Orders, bars: Bars, rules: Rules, account: Account, t: int) -> None:
    """Leave every position at the last close, as far as halts, limits, T+n and cash allow."""
    for turn in range(2):
        for i in range(len(account.position)):
            held = account.position[i]
            if held == 0.0 or (held > 0.0) != (turn == 0):
                continue
            raw = bars.mark[t, i]
            if math.isnan(raw) or math.isnan(bars.fill[t, i]):
                account.unfilled[i, _HALT] += 1
                continue
            _leave(orders, bars, rules, account, t, i, raw, abs(held), t, _fixed(_END))


@_inner
def _close_bar(bars: Bars, account: Account, t: int) -> tuple[float, float]:
    """Mark positions at the close; returns (equity, gross value)."""
    position = account.position
    last = account.last
    marks = bars.mark[t]
    adjust = bars.adjust[t]
    total = account.cash[0]
    invested = 0.0
    for i in range(len(position)):
        now = marks[i] * adjust[i]
        price = last[i] if math.isnan(now) else now
        last[i] = price
        value = position[i] * price
        total += value
        invested += abs(value)
    return total, invested


@_outer
def _with_room(orders: Orders, count: int, wanted: int) -> Orders:
    """Return `orders`, or a copy twice as long when fewer than `wanted` places are free."""
    if len(orders) - count >= wanted:
        return orders
    bigger = np.empty(2 * len(orders), dtype=orders.dtype)
    for k in range(count):  # a slice assignment would compile ten times as much
        bigger[k] = orders[k]
    return bigger


@_outer
def _by_symbol(orders: Orders, symbols: int) -> Orders:
    """Return the records sorted by symbol, time order kept inside, and renumbered."""
    start = np.zeros(symbols + 1, dtype=np.int64)
    for k in range(len(orders)):
        start[orders[k].col + 1] += 1
    for i in range(symbols):
        start[i + 1] += start[i]
    result = np.empty(len(orders), dtype=orders.dtype)
    for k in range(len(orders)):
        place = start[orders[k].col]
        result[place] = orders[k]
        result[place].id = place
        start[orders[k].col] = place + 1
    return result


@_outer
def run(
    bars: Bars,
    rules: Rules,
    account: Account,
    scratch: Scratch,
    orders: Orders,
    first: int,
    lag: int,
    hold: bool,
    mask: Bools,
    tolerance: float,
    liquidate: bool,
) -> tuple[Orders, Floats, Floats, Floats, int]:
    """Run all bars; returns (orders, cash, equity, exposure, the bar that broke or -1)."""
    length = len(mask)
    most = 3 * len(account.position)  # a bar can close, open and at the end liquidate each symbol
    cash = np.empty(length)
    equity = np.empty(length)
    exposure = np.zeros(length)
    for t in range(length):
        orders = _with_room(orders, account.sent[0], most)
        row = t - lag
        if t >= first and row >= 0 and (hold or mask[t]):
            closings, openings = _survey(bars, rules, account, scratch, row, hold)
            if openings > 0 or not hold:
                worth, bound, scale = _value(bars, account, t, row, rules.allow_short)
            else:
                worth, bound, scale = 0.0, 0.0, 1.0  # closing a whole position needs none of them
            if closings > 0:
                _reduce(
                    orders, bars, rules, account, scratch, closings, t, row, scale, worth, tolerance
                )
            if openings > 0:
                basket = _gather(
                    bars, rules, account, scratch, openings, t, row, scale, worth, hold, tolerance
                )
                if basket > 0:
                    room = max(account.cash[0] - bound, 0.0)
                    short_of_cash = _fit(rules, scratch, basket, room)
                    _enter(orders, bars, rules, account, scratch, basket, t, row, short_of_cash)
        if liquidate and t == length - 1:
            _liquidate(orders, bars, rules, account, t)
        total, invested = _close_bar(bars, account, t)
        if account.broken[0]:
            return orders, cash, equity, exposure, t
        cash[t] = account.cash[0]
        equity[t] = total
        exposure[t] = invested / total if total > 0.0 else 0.0
    return _by_symbol(orders[: account.sent[0]], len(account.position)), cash, equity, exposure, -1
