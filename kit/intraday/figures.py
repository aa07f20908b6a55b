"""How a number is written on a card: exact decimals, half rounded up, one form for each kind.

Everything is `Decimal`, made from the shortest text of a float, so 8.31 x 3000 is 24930 and not a
neighbour of it.
"""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal

__all__ = [
    "UNKNOWN",
    "change_pct",
    "exact",
    "money",
    "percent",
    "plain",
    "price",
    "rounded",
    "shown",
]

UNKNOWN = "—"
_CENT = Decimal("0.01")
_TENTH = Decimal("0.1")


def exact(value: float | int | str | Decimal) -> Decimal:
    """Return the decimal that a number is written as."""
    return value if isinstance(value, Decimal) else Decimal(str(value))


def change_pct(now: Decimal | None, before: Decimal | None) -> Decimal | None:
    """Return the change from `before` to `now` in percent, unrounded; None when unknown."""
    if now is None or not before:
        return None
    return (now / before - 1) * 100


def price(value: Decimal | None) -> str:
    """Write a price: two decimals, more when it has more; `—` when unknown."""
    if value is None:
        return UNKNOWN
    places = max(2, -int(value.normalize().as_tuple().exponent))
    return f"{value:.{places}f}"


def percent(value: Decimal | None) -> str:
    """Write a signed percentage with one decimal; `—` when unknown."""
    if value is None:
        return UNKNOWN
    tenth = value.quantize(_TENTH, ROUND_HALF_UP)
    return f"{tenth:+}%" if tenth else "0.0%"


def money(value: Decimal | None, *, signed: bool = True) -> str:
    """Write an amount in whole units with thousands separators; `—` when unknown."""
    if value is None:
        return UNKNOWN
    whole = value.quantize(Decimal(1), ROUND_HALF_UP)
    if not whole:
        return "0"
    return f"{whole:+,}" if signed else f"{whole:,}"


def rounded(value: Decimal | None, step: Decimal = _CENT) -> float | None:
    """Return a float for JSON, rounded half up to `step`."""
    return None if value is None else float(value.quantize(step, ROUND_HALF_UP))


def shown(percentage: Decimal | None) -> float | None:
    """Return a percentage as `percent` writes it, for JSON: text made from it says the same."""
    return rounded(percentage, _TENTH)


def plain(value: Decimal | None) -> float | None:
    """Return a float for JSON with all its digits."""
    return None if value is None else float(value)
