"""An independent, slow simulator: plain Python, one share account per symbol, money in `Decimal`.

It is written from the rules, not from the kernel: positions are raw shares that splits and
dividends multiply, fees are decimal, and there is no array of state.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, ROUND_HALF_UP, Decimal
from typing import Any


@dataclass
class Trade:
    bar: int
    symbol: int
    side: str
    shares: float
    price: float
    fees: float
    reason: str


@dataclass
class Account:
    cash: float
    shares: dict[int, float] = field(default_factory=dict)
    unit: dict[int, float] = field(default_factory=dict)
    last: dict[int, float] = field(default_factory=dict)
    bought: dict[int, tuple[int, float]] = field(default_factory=dict)
    trades: list[Trade] = field(default_factory=list)
    unfilled: Counter[tuple[int, str]] = field(default_factory=Counter)
    equity: list[float] = field(default_factory=list)
    cash_path: list[float] = field(default_factory=list)


def decimal(value: float) -> Decimal:
    return Decimal(str(float(value)))


def cents(amount: Decimal) -> Decimal:
    return amount.quantize(Decimal("0.01"), ROUND_HALF_UP)


ROUND = {
    -1: lambda amount: amount,
    0: cents,
    1: lambda amount: amount.quantize(Decimal("0.01"), ROUND_CEILING),
    2: lambda amount: amount.quantize(Decimal(1), ROUND_CEILING),
}


def lots(shares: float, least: int, step: int) -> float:
    if shares < least - 1e-9:
        return 0.0
    return least + step * math.floor((shares - least) / step + 1e-9)


class Simulator:
    """`case` holds the keyword arguments of `kit.backtest.kernel.simulate`."""

    def __init__(self, case: dict[str, Any]) -> None:
        self.case = case
        self.market = case["market"]
        self.costs = case["costs"]
        self.account = Account(cash=float(case["initial_cash"]))

    def fees(self, t: int, i: int, side: str, shares: float, price: float) -> float:
        fees = self.costs.fees
        notional = decimal(round(shares * price, 6))
        total = Decimal(0)
        for c in range(len(fees.part)):
            rate = (fees.buy if side == "buy" else fees.sell)[self.costs.kind[i], c, t]
            if rate:
                base = (notional, decimal(shares), Decimal(1))[fees.per[c]]
                amount = max(decimal(rate) * base, decimal(fees.least[c, t]))
                total += ROUND[int(fees.rounding[c])](min(amount, decimal(fees.most[c, t])))
        return float(total)

    def lot(self, t: int, i: int) -> tuple[int, int]:
        """Smallest order and step; one row for all bars, or one a bar."""
        least, step = (
            values[t, i] if values.ndim == 2 else values[i]
            for values in (self.market.min_lot, self.market.step)
        )
        return int(least), int(step)

    def limits(self, t: int, i: int) -> tuple[float, float]:
        if self.market.up.size == 0:
            return -math.inf, math.inf
        low, high = self.market.down[t, i], self.market.up[t, i]
        return (-math.inf if math.isnan(low) else low), (math.inf if math.isnan(high) else high)

    def price(self, t: int, i: int, side: str, raw: float) -> float:
        return raw * (1 + (self.costs.slippage if side == "buy" else -self.costs.slippage))

    def blocked(self, t: int, i: int, side: str, raw: float) -> bool:
        low, high = self.limits(t, i)
        paid = self.price(t, i, side, raw)
        if side == "buy" and paid > high - 1e-6:
            self.account.unfilled[i, "limit_up"] += 1
            return True
        if side == "sell" and paid < low + 1e-6:
            self.account.unfilled[i, "limit_down"] += 1
            return True
        return False

    def book(self, t: int, i: int, side: str, shares: float, price: float, reason: str) -> None:
        account = self.account
        fees = self.fees(t, i, side, shares, price)
        sign = 1 if side == "buy" else -1
        account.cash -= sign * shares * price + fees
        held = account.shares.get(i, 0.0) + sign * shares
        account.shares[i] = 0.0 if abs(held) < 1e-9 else held
        account.unit[i] = self.case["adjust"][t, i]
        if side == "buy" and held - shares >= 0:
            session, before = account.bought.get(i, (-1, 0.0))
            today = int(self.market.session[t])
            account.last.setdefault(i, price)
            account.bought[i] = (today, shares + (before if session == today else 0.0))
        account.trades.append(Trade(t, i, side, shares, price, fees, reason))

    def leave(self, t: int, i: int, raw: float, shares: float, reason: str) -> None:
        account = self.account
        held = account.shares[i]
        side = "sell" if held > 0 else "buy"
        if self.blocked(t, i, side, raw):
            return
        price = self.price(t, i, side, raw)
        if side == "sell":
            session, bought = account.bought.get(i, (-(10**9), 0.0))
            if self.market.session[t] - session < self.market.t_plus:
                free = max(held - bought, 0.0)
                if shares > free + 1e-9:
                    account.unfilled[i, "t_plus_1"] += 1
                    shares = free
        elif shares * price + self.fees(t, i, side, shares, price) > account.cash:
            account.unfilled[i, "no_cash"] += 1
            least, step = self.lot(t, i)
            shares = lots(account.cash / price, least, step)
            while shares > 0 and shares * price + self.fees(t, i, side, shares, price) > (
                account.cash
            ):
                shares = lots(shares - step, least, step)
        if shares > 1e-9:
            self.book(t, i, side, shares, price, reason)

    def run(self) -> Account:
        case, account = self.case, self.account
        bars, symbols = case["weights"].shape
        for t in range(bars):
            for i in range(symbols):
                unit = case["adjust"][t, i]
                if account.shares.get(i) and not math.isnan(unit):
                    account.shares[i] *= unit / account.unit[i]
                    account.last[i] /= unit / account.unit[i]  # the ex-date reference price
                    if i in account.bought:
                        session, bought = account.bought[i]
                        account.bought[i] = (session, bought * unit / account.unit[i])
                    account.unit[i] = unit
            row = t - case["lag"]
            gate = case["mask"] is None or case["mask"][t]
            if t >= max(case["first"], 1) and row >= 0 and (case["hold"] or gate):
                self.trade(t, row)
            if case["liquidate"] and t == bars - 1:
                for side in (1, -1):
                    for i in range(symbols):
                        if account.shares.get(i, 0.0) * side <= 0:
                            continue
                        raw = case["mark"][t, i]
                        if math.isnan(raw) or math.isnan(case["fill"][t, i]):
                            account.unfilled[i, "halt"] += 1
                            continue
                        self.leave(t, i, raw, abs(account.shares[i]), "end_of_backtest")
            total = account.cash
            for i in range(symbols):
                if not math.isnan(case["mark"][t, i]):
                    account.last[i] = case["mark"][t, i]
                if account.shares.get(i):
                    total += account.shares[i] * account.last[i]
            account.cash_path.append(account.cash)
            account.equity.append(total)
        return account

    def trade(self, t: int, row: int) -> None:
        case, account, market = self.case, self.account, self.market
        weights = [float(value) for value in case["weights"][row]]
        scale = max(1.0, sum(abs(weight) for weight in weights))
        worth, bound = account.cash, 0.0
        for i, shares in account.shares.items():
            if shares:
                raw = case["fill"][t, i]
                value = shares * (account.last[i] if math.isnan(raw) else raw)
                worth += value
                bound += 2 * abs(min(value, 0.0))
        target = {}
        for i, weight in enumerate(weights):
            target[i] = weight / scale
            held = account.shares.get(i, 0.0)
            if weight < 0 and not market.allow_short:
                target[i] = 0.0
                account.unfilled[i, "short_not_allowed"] += 1
            if case["hold"] and held * target[i] > 0:
                del target[i]
        for wanted_side in (1, -1):
            for i, weight in target.items():
                held = account.shares.get(i, 0.0)
                if held * wanted_side <= 0:
                    continue
                raw = case["fill"][t, i]
                leaving = held * weight <= 0
                if math.isnan(raw):
                    account.unfilled[i, "halt"] += leaving
                    continue
                shares = abs(held)
                if not leaving:
                    if abs(weight - held * raw / worth) <= case["tolerance"]:
                        continue
                    side = -1 if held > 0 else 1
                    paid = raw * (1 + side * self.costs.slippage)
                    # What is kept is a whole number of lots, as if it were bought anew.
                    least, step = self.lot(t, i)
                    shares = abs(held) - lots(abs(weight) * worth / paid, least, step)
                    if shares < step - 1e-9:
                        continue
                self.leave(t, i, raw, shares, "signal" if leaving else "target_rebalance")
        self.open(t, target, worth, bound)

    def open(self, t: int, target: dict[int, float], worth: float, bound: float) -> None:
        case, account = self.case, self.account
        basket = []
        for i, weight in target.items():
            held = account.shares.get(i, 0.0)
            if weight == 0 or held * weight < 0 or (case["hold"] and held != 0):
                continue
            raw = case["fill"][t, i]
            if math.isnan(raw):
                account.unfilled[i, "halt"] += held == 0
                continue
            if held != 0 and abs(weight - held * raw / worth) <= case["tolerance"]:
                continue
            side = "buy" if weight > 0 else "sell"
            price = self.price(t, i, side, raw)
            wanted = abs(weight) * worth / price
            shares = lots(wanted - abs(held), *self.lot(t, i))
            if shares <= 0:
                account.unfilled[i, "lot_too_small"] += held == 0
                continue
            if not self.blocked(t, i, side, raw):
                basket.append((i, side, price, wanted, abs(held), shares))
        room = max(account.cash - bound, 0.0)

        def sized(factor: float) -> list[float]:
            return [
                lots(wanted * factor - held, *self.lot(t, i)) for i, _, _, wanted, held, _ in basket
            ]

        def cost(sizes: list[float]) -> float:
            return sum(
                size * price + self.fees(t, i, side, size, price)
                for size, (i, side, price, *_) in zip(sizes, basket, strict=True)
                if size > 0
            )

        asked = [entry[-1] for entry in basket]
        sizes = asked
        short_of_cash = False
        if cost(asked) > room + 1e-6:
            whole = sum(size * price for size, (_, _, price, *_) in zip(asked, basket, strict=True))
            short_of_cash = whole > room
            low, high = 0.0, 1.0
            for _ in range(40):
                middle = (low + high) / 2
                low, high = (middle, high) if cost(sized(middle)) <= room + 1e-6 else (low, middle)
            sizes = sized(low)
        for size, (i, side, price, _, held, want) in zip(sizes, basket, strict=True):
            if size < want and (short_of_cash or size <= 0):
                account.unfilled[i, "no_cash"] += 1
            if size > 0:
                self.book(t, i, side, size, price, "target_rebalance" if held else "signal")


def simulate(case: dict[str, Any]) -> Account:
    return Simulator(case).run()
