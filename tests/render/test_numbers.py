from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.render import format_number


@pytest.mark.parametrize(
    ("value", "options", "text"),
    [
        (1234567.0, {}, "1,234,567.00"),
        (12, {}, "12"),
        (0.00001234, {}, "0.0000123"),
        (0.1234, {"unit": "%"}, "12.3%"),
        (0.0123, {"unit": "%", "sign": True}, "+1.23%"),
        (-0.0123, {"unit": "%", "sign": True}, "-1.23%"),
        (-1e-12, {"decimals": 2}, "0.00"),
        (3.5, {"unit": "元"}, "3.50元"),
        (3.5, {"unit": "CNY", "decimals": 1}, "3.5 CNY"),
        (None, {}, "—"),
        (math.nan, {"unit": "%"}, "—"),
        (-math.inf, {}, "—"),
    ],
)
def test_numbers_are_written_for_people(value: float, options: dict, text: str) -> None:
    assert format_number(value, **options) == text


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e15, max_value=1e15))
def test_no_number_is_scientific_or_minus_zero(value: float) -> None:
    text = format_number(value)
    assert "e" not in text.lower()
    assert float(text.replace(",", "")) == pytest.approx(value, rel=0.01, abs=1e-8)
    assert not (text.startswith("-") and float(text.replace(",", "")) == 0)
