"""The same weights with doubled costs and one bar late, worked out by hand."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from kit.backtest import stress

MAIN = "600000.SH"
OPENS = [10.0, 10.0, 10.5, 10.5, 10.4]

# Rates: commission 0.025 %, at least 5.00; transfer 0.001 %; stamp duty on the sale 0.05 %.
CASES = {
    # 5,000 shares for 50,000 (12.50 + 0.50), left for 52,500 (13.13 + 0.53 + 26.25).
    # Doubled: 25.00 + 1.00, and 26.25 + 1.05 + 52.50.
    # A bar later: 4,700 for 49,350 (12.34 + 0.49), left for 48,880 (12.22 + 0.49 + 24.44).
    "rates": (
        {"weight": 0.5},
        2_500 - 13.00 - 39.91,
        2_500 - 26.00 - 79.80,
        -470 - 12.83 - 37.15,
    ),
    # 300 shares for 3,000 (5.00 + 0.03), left for 3,150 (5.00 + 0.03 + 1.58).
    # Doubled, the minimum too: 10.00 + 0.06, and 10.00 + 0.06 + 3.15.
    # A bar later, 3,000 buy 285 shares at 10.50, so 200: 2,100 (5.00 + 0.02), left for 2,080
    # (5.00 + 0.02 + 1.04).
    "minimum": (
        {"weight": 0.03},
        150 - 5.03 - 6.61,
        150 - 10.06 - 13.21,
        -20 - 5.02 - 6.06,
    ),
    # 4,900 shares at 10.01 (12.26 + 0.49), left at 10.4895 (12.85 + 0.51 + 25.70).
    # Doubled: at 10.02 (24.55 + 0.98), left at 10.479 (25.67 + 1.03 + 51.35).
    # A bar later: 50,000 / 10.5105 is 4,757, so 4,700 (12.35 + 0.49), left at 10.3896
    # (12.21 + 0.49 + 24.42).
    "slippage": (
        {"weight": 0.5, "slippage": 0.001},
        4_900 * (10.4895 - 10.01) - 12.75 - 39.06,
        4_900 * (10.479 - 10.02) - 25.53 - 78.05,
        4_700 * (10.3896 - 10.5105) - 12.84 - 37.12,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_each_condition_by_hand(market: Any, case: str) -> None:
    how, as_is, doubled, late = CASES[case]
    market.add(MAIN, OPENS)
    weights = [how["weight"], how["weight"], 0.0, 0.0, 0.0]
    result = market.run({MAIN: weights}, slippage=how.get("slippage", 0.0))
    before = result.to_dict()
    table = stress(result).table
    assert table.index.tolist() == ["原样", "成本加倍", "晚一根成交"]
    assert table["total_return"].tolist() == pytest.approx(
        [gain / 100_000 for gain in (as_is, doubled, late)], abs=1e-12
    )
    assert table.loc["原样", "max_drawdown"] == result.metrics.max_drawdown
    assert table.loc["原样", "sharpe"] == result.metrics.sharpe
    assert result.to_dict() == before  # the result itself is left alone


def test_a_same_bar_fill_is_put_off_to_the_next_bar(market: Any) -> None:
    market.add(MAIN, [10.0, 10.0, 10.5, 10.5, 10.5])
    result = market.run(
        {MAIN: [0.0, 0.5, 0.5, 0.5, 0.5]}, fill="same_close", same_bar_waiver="集合竞价"
    )
    table = stress(result).table
    # At 10.00 on the bar that decides, 5,000 shares; a bar later at 10.50 nothing is left to gain.
    assert table.loc["原样", "total_return"] == pytest.approx((2_500 - 13.00 - 39.91) / 100_000)
    # 4,700 for 49,350 (12.34 + 0.49), left for as much (12.34 + 0.49 + 24.68, a half rounded up).
    assert table.loc["晚一根成交", "total_return"] == pytest.approx(-(12.83 + 37.51) / 100_000)


def test_an_idle_account_is_stressed_without_numbers(market: Any) -> None:
    market.add(MAIN, OPENS)
    shown = stress(market.run({MAIN: [0.0] * 5}))
    assert (shown.table["total_return"] == 0).all()
    assert pd.isna(shown.table["sharpe"]).all()
    html = shown._repr_html_()
    assert html.count("—") == 3
    assert "成本加倍" in html
