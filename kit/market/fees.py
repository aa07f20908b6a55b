"""What a fill costs: every charge of a market by date, as one table of numbers.

A charge is a rate of the notional, an amount per share, or an amount per order; it has a least and
a most, its own rounding, and the kinds of securities that pay it. The broker's commission is the
first charge of every market. `FeeSchedule` is what a compiled simulation reads; `Fees` is the same
for one fill in exact decimals, and what it is tested against.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import ROUND_CEILING, ROUND_HALF_UP, Decimal
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from kit.errors import UsageError
from kit.market.dated import DatedTable, Days

__all__ = ["PARTS", "PER", "ROUNDINGS", "FeeBook", "FeeSchedule", "Fees"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

PARTS: Final = ("commission", "transfer", "stamp")
"""Where a charge is booked: the broker's, the exchange's and depository's, the state's."""

PER: Final = ("notional", "share", "order")
"""What a charge's rate is multiplied by."""

ROUNDINGS: Final = ("cent", "cent_up", "unit_up")
"""Half up to 0.01, up to 0.01, up to a whole unit of currency."""

_CENT: Final = Decimal("0.01")
_NOISE: Final = Decimal("0.000001")  # below this a float notional is rounding, not money
_ROUND: Final = {
    "cent": (_CENT, ROUND_HALF_UP),
    "cent_up": (_CENT, ROUND_CEILING),
    "unit_up": (Decimal(1), ROUND_CEILING),
}


@dataclass(frozen=True, kw_only=True)
class FeeSchedule:
    """Every charge of a market: C charges, K kinds of security, T dates.

    A fill of kind k on date t pays for each charge c: `rate = (buy or sell)[k, c, t]`, nothing
    when that is zero; else `rate x notional`, `rate x shares` or `rate` by `per[c]`, raised to
    `least[c, t]`, lowered to `most[c, t]`, rounded by `rounding[c]`, and booked under `part[c]`.

    Attributes:
        names: Names of the charges, the commission first.
        part: Place in `PARTS`; shape [C].
        per: Place in `PER`; shape [C].
        rounding: Place in `ROUNDINGS`; shape [C].
        buy: Rates of a purchase; shape [K, C, T].
        sell: Rates of a sale; shape [K, C, T].
        least: In currency, 0 for none; shape [C, T].
        most: In currency, infinite for none; shape [C, T].
    """

    names: tuple[str, ...]
    part: Ints
    per: Ints
    rounding: Ints
    buy: Floats
    sell: Floats
    least: Floats
    most: Floats


@dataclass(frozen=True, kw_only=True)
class Fees:
    """Fees of one fill, every charge rounded by its own rule, in currency.

    Attributes:
        commission: The broker's.
        transfer: The exchange's, the depository's and the regulator's.
        stamp: The state's.
    """

    commission: Decimal
    transfer: Decimal
    stamp: Decimal

    @property
    def total(self) -> Decimal:
        """All of them."""
        return self.commission + self.transfer + self.stamp


@dataclass(frozen=True, kw_only=True)
class _Charge:
    name: str
    part: str
    per: str
    rounding: str
    kinds: tuple[str, ...]
    table: DatedTable

    def of(self, row: Mapping[str, Any], side: str, money: Decimal, shares: Decimal) -> Decimal:
        rate = Decimal(str(row[side]))
        if not rate:
            return Decimal("0.00")
        base = {"notional": money, "share": shares, "order": Decimal(1)}[self.per]
        amount = max(rate * base, Decimal(str(row.get("minimum", 0))))
        if "maximum" in row:
            amount = min(amount, Decimal(str(row["maximum"])))
        quantum, mode = _ROUND[self.rounding]
        return amount.quantize(quantum, mode).quantize(_CENT)


class FeeBook:
    """All charges of a market. Made from the `commission` and `charges` of its rules."""

    def __init__(self, rules: Mapping[str, Any]) -> None:
        broker = rules["commission"]
        self._charges = (
            _Charge(
                name="commission",
                part="commission",
                per="notional",
                rounding="cent",
                kinds=("stock", "fund", "index"),
                table=DatedTable(
                    [
                        {
                            "effective_from": "1900-01-01",
                            "buy": broker["rate"],
                            "sell": broker["rate"],
                            "minimum": broker["minimum"],
                        }
                    ],
                    "the commission",
                ),
            ),
            *(
                _Charge(
                    name=row["name"],
                    part=row["part"],
                    per=row["per"],
                    rounding=row["rounding"],
                    kinds=tuple(row["kinds"]),
                    table=DatedTable(row["rows"], f"the charge {row['name']}"),
                )
                for row in rules["charges"]
            ),
        )

    def schedule(self, days: Days, kinds: Sequence[str]) -> FeeSchedule:
        """Return every charge on each day for each kind; raises `rules.before_table`."""
        charges = self._charges
        shape = (len(kinds), len(charges), len(days))
        buy, sell = np.zeros(shape), np.zeros(shape)
        least, most = np.zeros(shape[1:]), np.full(shape[1:], np.inf)
        for place, charge in enumerate(charges):
            rows = charge.table.rows
            at = charge.table.places_known(days)

            def column(key: str, default: float, rows: Any = rows, at: Ints = at) -> Floats:
                picked: Floats = np.asarray([row.get(key, default) for row in rows], float)[at]
                return picked

            paying = [kind in charge.kinds for kind in kinds]
            buy[paying, place] = column("buy", 0.0)
            sell[paying, place] = column("sell", 0.0)
            least[place] = column("minimum", 0.0)
            most[place] = column("maximum", np.inf)
        return FeeSchedule(
            names=tuple(charge.name for charge in charges),
            part=_codes(PARTS, [charge.part for charge in charges]),
            per=_codes(PER, [charge.per for charge in charges]),
            rounding=_codes(ROUNDINGS, [charge.rounding for charge in charges]),
            buy=buy,
            sell=sell,
            least=least,
            most=most,
        )

    def fees(
        self,
        side: Literal["buy", "sell"],
        notional: float | Decimal,
        on: date,
        kind: str,
        shares: float | None,
    ) -> Fees:
        """Return the fees of one fill; see `MarketRules.fees`."""
        money = Decimal(str(notional))
        if side not in ("buy", "sell") or not money.is_finite() or money < 0:
            raise UsageError(
                "rules.bad_fill",
                f"a fill of {notional} on side {side!r} has no fees",
                remedy="the side is buy or sell, the notional a finite number of at least 0",
            )
        by_share = any(charge.per == "share" for charge in self._charges)
        if by_share and (shares is None or not shares >= 0):
            raise UsageError(
                "rules.bad_fill",
                f"this market charges by the share, and a fill of {shares} shares has no fees",
                remedy="give the number of shares",
            )
        money = money.quantize(_NOISE, ROUND_HALF_UP)
        found = dict.fromkeys(PARTS, Decimal("0.00"))
        if money:
            for charge in self._charges:
                row = charge.table.at(on)
                if kind in charge.kinds:
                    count = Decimal(str(shares or 0))
                    found[charge.part] += charge.of(row, side, money, count)
        return Fees(**found)


def _codes(known: Sequence[str], values: Sequence[str]) -> Ints:
    return np.asarray([known.index(value) for value in values], dtype=np.int64)
