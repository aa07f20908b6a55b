"""Generated bars keep the promises of real ones, and are always marked."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.market import check_bars
from kit.market.bars import SYNTHETIC, is_synthetic
from kit.market.synthetic import daily_bars, minute_bars


def _ends(count: int) -> list[datetime]:
    return [datetime(2024, 9, 19, 9, 30) + timedelta(minutes=n + 1) for n in range(count)]


def _daily(seed: str = "a", **options: Any) -> pl.DataFrame:
    days = [date(2023, 1, 2) + timedelta(days=n) for n in range(400)]
    values: dict[str, Any] = {
        "start": 20.0,
        "volatility": 0.02,
        "drift": 0.002,
        "dividend": 0.03,
        "shares": 1e6,
        "lot": 500,
        "step": lambda price, day: 0.05 if price > 20 else 0.02,
    }
    return daily_bars("SYN.HK", days, seed=seed, **values | options)


def test_daily_bars_are_sound_marked_and_repeatable() -> None:
    bars = _daily()
    check_bars(bars)
    assert bars.select(is_synthetic().all()).item()
    assert bars["source"][0].startswith(SYNTHETIC)
    assert bars.equals(_daily())
    assert not bars["close"].equals(_daily("b")["close"])
    assert (bars["volume"] % 500 == 0).all()
    for price in bars["close"].to_list():
        step = 0.05 if price > 20 else 0.02
        assert abs(price / step - round(price / step)) < 1e-6


def test_a_dividend_a_year_lives_in_the_factor() -> None:
    bars = _daily()
    jump = bars.with_columns(pl.col("adj_factor").diff().alias("jump")).filter(pl.col("jump") > 0)
    assert [f"{day:%Y-%m-%d}" for day in jump["time"]] == ["2023-06-01"]
    # Without it the factor is one throughout.
    assert _daily(dividend=0.0)["adj_factor"].unique().to_list() == [1.0]


@given(
    low=st.integers(100, 5000),
    spread=st.integers(0, 400),
    opened=st.floats(0, 1),
    closed=st.floats(0, 1),
    volume=st.integers(0, 10**9),
    count=st.sampled_from([1, 2, 5, 330]),
    seed=st.text(max_size=4),
)
def test_minutes_add_up_to_their_day(
    low: int, spread: int, opened: float, closed: float, volume: int, count: int, seed: str
) -> None:
    prices = {
        "open": round(low + spread * opened),
        "high": low + spread,
        "low": low,
        "close": round(low + spread * closed),
    }
    day = {
        "symbol": "A",
        "volume": float(volume),
        "adj_factor": 1.0,
        **{name: cents / 100 for name, cents in prices.items()},
    }
    bars = minute_bars(day, _ends(count), seed=seed, step=lambda price: 0.01)
    check_bars(bars)
    assert bars["open"][0] == day["open"]
    assert bars["high"].max() == day["high"]
    assert bars["low"].min() == day["low"]
    assert bars["close"][-1] == day["close"]
    assert bars["volume"].sum() == pytest.approx(volume)
    assert bars["open"].to_list()[1:] == bars["close"].to_list()[:-1]
    assert bars.select(is_synthetic().all()).item()
    assert bars.equals(minute_bars(day, _ends(count), seed=seed, step=lambda price: 0.01))
