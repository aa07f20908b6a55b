"""Numbers as people read them: grouped, rounded, never in scientific notation."""

from __future__ import annotations

import math

__all__ = ["MISSING", "format_number"]

MISSING = "—"
"""What stands where there is no value."""


def format_number(
    value: float | None, *, unit: str = "", decimals: int | None = None, sign: bool = False
) -> str:
    """Write one number.

    Args:
        value: The number; None, NaN and infinities are written as a dash.
        unit: Put after the number. `%` means that the value is a fraction: 0.125 is `12.5%`.
        decimals: Digits after the point; by default as many as the size of the number deserves.
        sign: Write `+` before a positive number.
    """
    if value is None or not math.isfinite(value):
        return MISSING
    shown = value * 100 if unit == "%" else value
    if decimals is None:
        decimals = _decimals(shown, whole=isinstance(value, int), percent=unit == "%")
    text = f"{shown:+,.{decimals}f}" if sign else f"{shown:,.{decimals}f}"
    # A tiny loss must not read as "-0.00".
    if not any(digit in "123456789" for digit in text):
        text = text.lstrip("+-")
    # Latin units stand off by a space; a percent sign and Chinese units do not.
    return f"{text} {unit}" if unit.isascii() and unit.isalpha() else f"{text}{unit}"


def _decimals(shown: float, *, whole: bool, percent: bool) -> int:
    size = abs(shown)
    if percent:
        return 1 if size >= 10 or size == 0 else 2
    if whole:
        return 0
    if size == 0 or size >= 1:
        return 2
    # Three significant digits, and at most eight decimals.
    return min(8, 2 - math.floor(math.log10(size)))
