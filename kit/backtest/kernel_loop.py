"""The compiled half of the kernel: one loop over the bars, and the steps of a bar.

Everything compiled stands in this one module on purpose: numba notices a changed source file, but
not a changed function that is imported from another one. `kernel_state` explains the names.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np

from kit.backtest.kernel_state import (
    Account,
    Bars,
    Bools,
    Floats,
    Ints,
    Orders,
    Rules,
    Scratch,
)

__all__ = ["run"]

_LOT, _CASH, _UP, _DOWN, _HALT, _T1, _SHORT = range(7)
_SIGNAL, _RESIZE, _END = range(3)
_TICK = 1e-6  # prices or sums of money nearer than this are the same; real ticks are >= 1e-3
_DUST = 1e-9  # a position smaller than this many shares is none
_HALVINGS = 40  # of the factor that shrinks a basket: 1e-12 of it

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
# What runs rarely stays out of the loop's machine code, which is as large as a cache holds.
_apart = _compiled(no_cpython_wrapper=True, no_cfunc_wrapper=True, _nrt=False)
_outer = _compiled()


@_inner
def _rounded(amount: float, rounding: int) -> float:
    """Round by a place in `ROUNDINGS`; the nudges undo noise such as 1.005 * 100 = 100.49999."""
    if rounding == 0:
        return math.floor(amount * 100.0 + 0.5 + 1e-7) / 100.0
    if rounding == 1:
        return math.ceil(amount * 100.0 - 1e-7) / 100.0
    if rounding == 2:
        return math.ceil(amount - 1e-9)
    return amount


@_inner
def _whole(shares: float, least: int, step: int) -> float:
    """Round shares down to an order the exchange takes: `least`, `least + step`, ..., or 0.

    A step of 0 takes any fraction of a share.
    """
    if shares < max(least - _DUST, _DUST):
        return 0.0
    if step == 0:
        return shares
    return least + math.floor((shares - least) / step + _DUST) * step


@_inner
def _charge(
    rules: Rules, c: int, i: int, t: int, buying: bool, notional: float, shares: float
) -> float:
    """Return one charge of one order; see `kit.market.FeeSchedule`."""
    kind = rules.kind[i]
    rate = rules.buy[kind, c, t] if buying else rules.sell[kind, c, t]
    if rate == 0.0:
        return 0.0
    amount = rate
    if rules.per[c] == 0:
        amount = rate * notional
    elif rules.per[c] == 1:
        amount = rate * shares
    amount = min(max(amount, rules.least[c, t]), rules.most[c, t])
    return _rounded(amount, rules.rounding[c])


@_inner
def _cost(rules: Rules, i: int, t: int, buying: bool, notional: float, shares: float) -> float:
    """Return the fees of one order: each charge rounded, then added."""
    total = 0.0
    for c in range(len(rules.part)):
        total += _charge(rules, c, i, t, buying, notional, shares)
    return total


@_inner
def _slipped(raw: float, slippage: float, buying: bool) -> float:
    """Move a price against us."""
    return raw * (1.0 + slippage) if buying else raw * (1.0 - slippage)


@_inner
def _barred(paid: float, low: float, high: float, buying: bool) -> bool:
    """Say whether what would be paid reaches the limit, where nobody is on the other side."""
    return paid >= high - _TICK if buying else paid <= low + _TICK


@_apart
def _affordable(rules: Rules, i: int, t: int, room: float, shares: float, paid: float) -> float:
    """Return the most shares, up to `shares`, that `room` pays for with fees, in whole lots."""
    buying = True
    due = shares * paid + _cost(rules, i, t, buying, shares * paid, shares)
    if due <= room + _TICK:
        return shares
    row = rules.lot_row[t]
    least = rules.min_lot[row, i]
    step = rules.step[row, i]
    # A smaller order pays no less a share in fees, so this is too much by a few lots at most.
    size = _whole(min(shares * room / due + step, shares), least, step)
    while size > 0.0:
        if size * paid + _cost(rules, i, t, buying, size * paid, size) <= room + _TICK:
            break
        size = _whole(size - max(step, 1), least, step)
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
    commission = 0.0
    transfer = 0.0
    stamp = 0.0
    for c in range(len(rules.part)):
        charge = _charge(rules, c, i, t, buying, notional, size)
        if rules.part[c] == 0:
            commission += charge
        elif rules.part[c] == 1:
            transfer += charge
        else:
            stamp += charge
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
    scratch: Scratch,
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
    paid = _slipped(raw, rules.slippage, not selling)
    if _barred(paid, scratch.low[i], scratch.high[i], not selling):
        account.unfilled[i, _DOWN if selling else _UP] += 1
        return
    if selling:
        if rules.session[t] - account.fresh_on[i] < rules.t_plus:
            free = max(held - account.fresh[i], 0.0)
            if units > free + _DUST:
                account.unfilled[i, _T1] += 1
                units = free
    else:
        size = _affordable(rules, i, t, account.cash[0], units * unit, paid)
        if size < units * unit:
            account.unfilled[i, _CASH] += 1
            units = size / unit
    if units * unit > _DUST:
        _trade(orders, account, rules, t, i, units, unit, paid, not selling, row, reason)


@_inner
def _look_up(bars: Bars, scratch: Scratch, symbols: Ints, count: int, t: int) -> None:
    """Fetch the limits of what is to be traded, in one go: each is a miss of every cache."""
    for k in range(count):
        i = symbols[k]
        scratch.low[i] = bars.down[t, i]
        scratch.high[i] = bars.up[t, i]


@_apart
def _shorts(bars: Bars, account: Account, t: int) -> float:
    """Return what all shorts are worth at this bar's fill prices, as a positive number."""
    total = 0.0
    for i in range(len(account.position)):
        if account.position[i] < 0.0:
            now = bars.fill[t, i] * bars.adjust[t, i]
            total -= account.position[i] * (account.last[i] if math.isnan(now) else now)
    return total


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
    lot = rules.lot_row[t]
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
                step = rules.step[lot, i]
                wanted = abs(weight) * worth / (raw * (1.0 + slip))
                excess = units * unit - _whole(wanted, rules.min_lot[lot, i], step)
                if excess <= max(step - _DUST, _DUST):
                    continue  # less than one lot too much is rounding, not an unfilled intent
                units = excess / unit
            reason = _SIGNAL if leaving else _RESIZE
            _leave(orders, bars, rules, account, scratch, t, i, raw, units, row, reason)


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
    lot = rules.lot_row[t]
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
        paid = _slipped(raw, rules.slippage, buying)
        want = abs(weight) * worth / paid
        owned = abs(held) * unit
        size = _whole(want - owned, rules.min_lot[lot, i], rules.step[lot, i])
        if size <= 0.0:
            if held == 0.0:
                account.unfilled[i, _LOT] += 1
            continue
        if _barred(paid, scratch.low[i], scratch.high[i], buying):
            account.unfilled[i, _UP if buying else _DOWN] += 1
            continue
        # `basket` never runs ahead of `k`, so writing here cannot overwrite what is still to read.
        scratch.opening[basket] = i
        scratch.want[basket] = want
        scratch.owned[basket] = owned
        scratch.paid[basket] = paid
        scratch.buying[basket] = buying
        scratch.asked[basket] = size
        basket += 1
    return basket


@_inner
def _basket_cost(rules: Rules, scratch: Scratch, basket: int, t: int, scale: float) -> float:
    """Size a basket scaled by `scale` and return what it costs, fees included."""
    total = 0.0
    lot = rules.lot_row[t]
    for k in range(basket):
        i = scratch.opening[k]
        shares = scratch.want[k] * scale - scratch.owned[k]
        size = _whole(shares, rules.min_lot[lot, i], rules.step[lot, i])
        scratch.sizes[k] = size
        if size > 0.0:
            notional = size * scratch.paid[k]
            total += notional + _cost(rules, i, t, scratch.buying[k], notional, size)
    return total


@_apart
def _shrink(rules: Rules, scratch: Scratch, basket: int, t: int, room: float) -> None:
    """Shrink the basket by one common factor until `room` pays for it."""
    low = 0.0
    high = 1.0
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        if _basket_cost(rules, scratch, basket, t, middle) <= room + _TICK:
            low = middle
        else:
            high = middle
    _basket_cost(rules, scratch, basket, t, low)


@_inner
def _fit(rules: Rules, scratch: Scratch, basket: int, t: int, room: float) -> bool:
    """Size the basket so that `room` pays for it.

    Returns:
        True when even the shares without fees did not fit.
    """
    notional = 0.0
    fees = 0.0
    for k in range(basket):
        size = scratch.asked[k]
        scratch.sizes[k] = size
        notional += size * scratch.paid[k]
        fees += _cost(rules, scratch.opening[k], t, scratch.buying[k], size * scratch.paid[k], size)
    if notional + fees <= room + _TICK:
        return False
    _shrink(rules, scratch, basket, t, room)
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
            scratch.buying[k],
            row,
            reason,
        )


@_inner
def _fixed(number: int) -> int:
    """Return a constant as a plain integer: numba compiles anew for each literal argument."""
    return number + 0


@_apart
def _liquidate(
    orders: Orders, bars: Bars, rules: Rules, account: Account, scratch: Scratch, t: int
) -> None:
    """Leave every position at the last close, as far as halts, limits, T+n and cash allow."""
    if rules.limited:
        for i in range(len(account.position)):
            scratch.closing[i] = i
        _look_up(bars, scratch, scratch.closing, len(account.position), t)
    for turn in range(2):
        for i in range(len(account.position)):
            held = account.position[i]
            if held == 0.0 or (held > 0.0) != (turn == 0):
                continue
            raw = bars.mark[t, i]
            if math.isnan(raw) or math.isnan(bars.fill[t, i]):
                account.unfilled[i, _HALT] += 1
                continue
            _leave(orders, bars, rules, account, scratch, t, i, raw, abs(held), t, _fixed(_END))


@_inner
def _turn(
    bars: Bars, account: Account, scratch: Scratch, t: int, row: int
) -> tuple[float, float, float, float, int]:
    """Close bar `t`, and look ahead at the next one, which acts on the weights of `row`.

    One pass over all symbols does both: what a bar costs is waiting for memory, and the processor
    fetches several rows at once faster than one after the other. No test for "held": whether a
    symbol is held is a coin toss to the processor, and 0 * price is 0.

    Returns:
        (equity, worth at the next fill prices, sum and least of the weights, how many symbols are
        wanted and not held or the reverse); which ones stands in `scratch.changed`.
    """
    position = account.position
    last = account.last
    changed = scratch.changed
    marks = bars.mark[t]
    adjust = bars.adjust[t]
    following = min(t + 1, len(bars.mark) - 1)
    fills = bars.fill[following]
    units = bars.adjust[following]
    weights = bars.weights[row]
    equity = account.cash[0]
    worth = equity
    wanted = 0.0
    least = 0.0
    count = 0
    for i in range(len(position)):
        held = position[i]
        weight = weights[i]
        now = marks[i] * adjust[i]
        price = last[i] if math.isnan(now) else now
        last[i] = price
        equity += held * price
        now = fills[i] * units[i]
        worth += held * (price if math.isnan(now) else now)
        wanted += weight
        least = weight if weight < least else least
        if (weight > 0.0) != (held > 0.0):
            changed[count] = i
            count += 1
    return equity, worth, wanted, least, count


@_inner
def _split(account: Account, scratch: Scratch, count: int) -> tuple[int, int]:
    """List what to close and what to open, of what changed where nothing is short."""
    closings = 0
    openings = 0
    for k in range(count):
        i = scratch.changed[k]
        if account.position[i] != 0.0:
            scratch.closing[closings] = i
            closings += 1
        else:
            scratch.opening[openings] = i
            openings += 1
    return closings, openings


@_apart
def _survey(
    bars: Bars, rules: Rules, account: Account, scratch: Scratch, row: int, hold: bool
) -> tuple[float, int, int]:
    """List what to close and what to open, shorts and new sizes too.

    Returns:
        (sum of the absolute weights, how many to close, how many to open).
    """
    weights = bars.weights[row]
    gross = 0.0
    closings = 0
    openings = 0
    for i in range(len(account.position)):
        weight = weights[i]
        held = account.position[i]
        gross += abs(weight)
        differs = ((weight > 0.0) != (held > 0.0)) | ((weight < 0.0) != (held < 0.0))
        if differs | ((not hold) & (weight != 0.0)):
            if weight < 0.0 and not rules.allow_short:
                account.unfilled[i, _SHORT] += 1
                weight = 0.0
            if held != 0.0:
                scratch.closing[closings] = i
                closings += 1
            if weight != 0.0:
                scratch.opening[openings] = i
                openings += 1
    return gross, closings, openings


@_outer
def _with_room(orders: Orders, count: int) -> Orders:
    """Return a copy twice as long."""
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
    worth = 0.0
    gross = 0.0
    closings = 0
    openings = 0
    for t in range(length):
        if len(orders) - account.sent[0] < most:
            orders = _with_room(orders, account.sent[0])
        if closings + openings > 0:
            row = t - lag
            scale = 1.0 / gross if gross > 1.0 else 1.0
            # Cash that stands against shorts: what was got for them, and as much again.
            bound = 2.0 * _shorts(bars, account, t) if rules.allow_short else 0.0
            if rules.limited:
                _look_up(bars, scratch, scratch.closing, closings, t)
                _look_up(bars, scratch, scratch.opening, openings, t)
            _reduce(
                orders, bars, rules, account, scratch, closings, t, row, scale, worth, tolerance
            )
            basket = _gather(
                bars, rules, account, scratch, openings, t, row, scale, worth, hold, tolerance
            )
            if basket > 0:
                room = max(account.cash[0] - bound, 0.0)
                short_of_cash = _fit(rules, scratch, basket, t, room)
                _enter(orders, bars, rules, account, scratch, basket, t, row, short_of_cash)
        if liquidate and t == length - 1:
            _liquidate(orders, bars, rules, account, scratch, t)
        following = t + 1
        trades = first <= following < length and (hold or mask[following])
        row = max(following - lag, 0)
        total, worth, gross, least, changed = _turn(bars, account, scratch, t, row)
        closings = 0
        openings = 0
        if trades and following >= lag:
            if hold and least >= 0.0 and not rules.allow_short:
                closings, openings = _split(account, scratch, changed)
            else:
                gross, closings, openings = _survey(bars, rules, account, scratch, row, hold)
        if account.broken[0]:
            return orders, cash, equity, exposure, t
        cash[t] = account.cash[0]
        equity[t] = total
        invested = total - account.cash[0]
        if rules.allow_short:
            invested = 0.0
            for i in range(len(account.position)):
                invested += abs(account.position[i] * account.last[i])
        exposure[t] = invested / total if total > 0.0 else 0.0
    return _by_symbol(orders[: account.sent[0]], len(account.position)), cash, equity, exposure, -1
