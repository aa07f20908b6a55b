"""What a result says of its orders: trades, costs, intents that came to nothing, words, JSON."""

from __future__ import annotations

import json
import math
import re
import sys
from dataclasses import replace
from datetime import date
from types import ModuleType
from typing import Any

import pandas as pd
import pytest

from kit.backtest import BacktestResult
from kit.errors import KitError, UsageError
from kit.market import Dropped

GROWTH = "300001.SZ"  # a growth board stock: its limits are 20 %
MAIN = "600000.SH"


@pytest.fixture
def rebalanced(market: Any) -> BacktestResult:
    """Two buys, a part sold off, the rest sold, bought again and left open: worked out below.

    Fees: commission 0.025 %, at least 5.00; transfer 0.001 %; stamp duty on sells 0.05 %.

    day    open   weight of the day before, and what it makes
    03-05  10.00  0.5: 50,000 / 10 = 5,000 shares; 50,000 + 12.50 + 0.50   cash  49,987.00
    03-06  10.00  0.7 of 99,987 = 6,999 shares, 5,000 owned: 1,900 more;
                  19,000 + 5.00 + 0.19                                     cash  30,981.81
    03-07  11.50  0.2 of 110,331.81 = 1,918 shares: keep 1,900 of 6,900, sell 5,000;
                  57,500 - 14.38 - 0.58 - 28.75                            cash  88,438.10
    03-08  11.50  0.2 of 110,288.10 = 1,918 shares: 1,900 are owned
    03-11  11.00  0.0: sell 1,900; 20,900 - 5.23 - 0.21 - 10.45            cash 109,322.21
    03-12  11.00  0.3 of 109,322.21 = 2,981 shares: 2,900;
                  31,900 + 7.98 + 0.32                                     cash  77,413.91
    03-13  11.00  0.3 still; the close falls to 8.80, the lower limit, and nobody buys
    """
    opens = [10.0, 10.0, 10.0, 11.5, 11.5, 11.0, 11.0, 11.0]
    market.add(GROWTH, [*opens[:-1], 8.8], opens=opens)
    weights = {GROWTH: [0.5, 0.7, 0.2, 0.2, 0.0, 0.3, 0.3, 0.3]}
    result: BacktestResult = market.run(weights, position_adjustment="rebalance")
    return result


def test_orders_are_those_worked_out_by_hand(rebalanced: BacktestResult, hand: ModuleType) -> None:
    assert hand.orders(rebalanced) == [
        ("03-05", GROWTH, "buy", 5_000, 10.0),
        ("03-06", GROWTH, "buy", 1_900, 10.0),
        ("03-07", GROWTH, "sell", 5_000, 11.5),
        ("03-11", GROWTH, "sell", 1_900, 11.0),
        ("03-12", GROWTH, "buy", 2_900, 11.0),
    ]
    assert rebalanced.orders["fees"].tolist() == pytest.approx([13.0, 5.19, 43.71, 15.89, 8.30])
    assert rebalanced.orders["notional"].tolist() == pytest.approx(
        [50_000, 19_000, 57_500, 20_900, 31_900]
    )
    assert rebalanced.orders["reason"].tolist() == [
        "signal", "target_rebalance", "target_rebalance", "signal", "signal"
    ]  # fmt: skip
    assert rebalanced.equity.tolist() == pytest.approx(
        [100_000, 99_987, 99_981.81, 110_288.10, 110_288.10, 109_322.21, 109_313.91, 102_933.91]
    )


def test_trades_share_out_what_was_paid(rebalanced: BacktestResult) -> None:
    # Put in for 6,900 shares: 50,013 + 19,005.19 = 69,018.19. The part sold off first takes 5,000
    # of 6,900 of it, 50,013.18, the rest 19,005.01.
    first, second, last = rebalanced.trades.to_dict("records")
    for trade, size, sold_at, exit_day, days in (
        (first, 5_000, 11.5, "2024-03-07", 2),
        (second, 1_900, 11.0, "2024-03-11", 6),
    ):
        assert trade["symbol"] == GROWTH
        assert trade["entry_time"] == pd.Timestamp("2024-03-05")
        assert trade["exit_time"] == pd.Timestamp(exit_day)
        assert (trade["size"], trade["exit_price"]) == pytest.approx((size, sold_at))
        assert trade["entry_price"] == pytest.approx(10.0)
        assert trade["holding_days"] == days
    put_in = 69_018.19 * 5_000 / 6_900
    assert first["pnl"] == pytest.approx(57_500 - 43.71 - put_in)
    assert first["return"] == pytest.approx((57_500 - 43.71) / put_in - 1)
    assert second["pnl"] == pytest.approx(20_900 - 15.89 - 69_018.19 * 1_900 / 6_900)
    # What is still held is valued at the last close: 2,900 x 8.80 against 31,908.30.
    assert last["entry_time"] == pd.Timestamp("2024-03-12")
    assert pd.isna(last["exit_time"])
    assert (last["size"], last["entry_price"], last["exit_price"]) == pytest.approx(
        (2_900, 11.0, 8.8)
    )
    assert last["pnl"] == pytest.approx(25_520 - 31_908.30)
    assert last["holding_days"] == 1
    # All profits together are what the account gained.
    assert rebalanced.trades["pnl"].sum() == pytest.approx(2_933.91)


def test_metrics_count_what_is_closed(rebalanced: BacktestResult) -> None:
    metrics = rebalanced.metrics
    assert (metrics.trades, metrics.open_trades, metrics.win_rate) == (2, 1, 1.0)
    assert metrics.total_return == pytest.approx(0.0293391)
    assert metrics.max_drawdown == pytest.approx(102_933.91 / 110_288.10 - 1)
    # Seven graded bars; money traded 179,300, halved, over the mean account, 252 bars a year.
    mean = (
        100_000 + 99_987 + 99_981.81 + 2 * 110_288.10 + 109_322.21 + 109_313.91 + 102_933.91
    ) / 8
    assert metrics.turnover == pytest.approx(179_300 / 2 / mean * 252 / 7)
    held = [50_000 / 99_987, 69_000 / 99_981.81, 2 * 21_850 / 110_288.10, 0.0,
            31_900 / 109_313.91, 25_520 / 102_933.91]  # fmt: skip
    assert metrics.exposure == pytest.approx(sum(held) / 7)


def test_costs_are_split_by_kind(rebalanced: BacktestResult) -> None:
    assert rebalanced.costs == pytest.approx(
        {
            "commission": 12.5 + 5.0 + 14.38 + 5.23 + 7.98,
            "transfer": 0.5 + 0.19 + 0.58 + 0.21 + 0.32,
            "stamp": 28.75 + 10.45,
            "slippage": 0.0,
        }
    )


def test_slippage_is_money_lost_against_the_quoted_price(market: Any, hand: ModuleType) -> None:
    # The open on 03-06 is two fen under the upper limit of 11.00, and stays under it with 0.1 %.
    opens = [10.0, 10.0, 10.98, 10.98, 10.98]
    market.add(MAIN, opens)
    market.add("000001.SZ", [10.0] * 5)
    result = market.run(
        {MAIN: [0.0, 0.4, 0.4, 0.4, 0.4], "000001.SZ": [0.4, 0.4, 0.0, 0.0, 0.0]}, slippage=0.001
    )
    assert hand.orders(result) == [
        # 40,000 / 10.01 is 3,996: 3,900 shares, each a fen too dear.
        ("03-05", "000001.SZ", "buy", 3_900, 10.01),
        # 0.4 of 99,950.85, the account at these opens, is 3,637 at 10.99098: 3,600.
        ("03-06", MAIN, "buy", 3_600, 10.99098),
        ("03-07", "000001.SZ", "sell", 3_900, 9.99),
        # Left at the last close, 10.98, less 0.1 %.
        ("03-08", MAIN, "sell", 3_600, 10.96902),
    ]
    assert result.orders["reason"].tolist()[-1] == "end_of_backtest"
    assert result.costs["slippage"] == pytest.approx(39 + 3_600 * 0.01098 + 39 + 3_600 * 0.01098)


def test_a_trade_through_a_split_counts_the_shares_it_had_on_each_day(market: Any) -> None:
    # Five for four: 10.00 becomes 8.00. One symbol is sold, the other stuck at its lower limit.
    for symbol, end in ((MAIN, 8.0), ("000001.SZ", 7.2)):
        closes = [10.0, 10.0, 8.0, 8.0, end]
        market.add(
            symbol, closes, opens=[10.0, 10.0, 8.0, 8.0, 8.0], factor=[1, 1, 1.25, 1.25, 1.25]
        )
    result = market.run({s: [0.4, 0.4, 0.4, 0.4, 0.4] for s in (MAIN, "000001.SZ")})
    trades = result.trades.set_index("symbol")
    # 4,000 shares for 40,000 and 10.40 of fees; 5,000 shares at the end.
    for symbol, price in ((MAIN, 8.0), ("000001.SZ", 7.2)):
        assert trades.loc[symbol, ["entry_price", "exit_price", "size"]].tolist() == pytest.approx(
            [10.0, price, 5_000]
        )
    # Sold for 40,000 less 10.00 + 0.40 + 20.00; valued at 36,000.
    assert trades.loc[MAIN, "pnl"] == pytest.approx(-10.40 - 30.40)
    assert trades.loc["000001.SZ", "pnl"] == pytest.approx(36_000 - 40_010.40)
    assert trades["exit_time"].isna().tolist() == [True, False]  # in the order of their symbols


def test_what_is_halted_to_the_end_is_valued_at_its_last_close(market: Any) -> None:
    market.add(MAIN, [10.0, 10.0, 10.5, None, None])
    market.add("000001.SZ", [10.0] * 5)
    result = market.run({MAIN: [0.4] * 5, "000001.SZ": [0.0] * 5})
    trade = result.trades.iloc[0]
    assert (trade["size"], trade["exit_price"]) == (4_000, 10.5)
    assert trade["pnl"] == pytest.approx(42_000 - 40_010.40)
    assert trade["holding_days"] == 3  # to the last session of the backtest
    assert result.unfilled.loc[MAIN, "halt"] == 1


def test_unfilled_intents_are_counted_by_cause(market: Any, hand: ModuleType) -> None:
    market.add(MAIN, [10.0] * 6)
    market.add("000001.SZ", [900.0] * 6)
    market.add("000002.SZ", [10.0] * 6)
    market.add("000063.SZ", [10.0, None, 10.0, 10.0, 10.0, 10.0])
    result = market.run(
        {
            MAIN: [0.5] * 6,
            "000001.SZ": [0.5] * 6,  # a lot costs 90,000
            "000002.SZ": [-0.5, 0.0, 0.0, 0.0, 0.0, 0.0],
            "000063.SZ": [0.1, 0.0, 0.0, 0.0, 0.0, 0.0],
        }
    )
    assert hand.unfilled(result) == {
        "000001.SZ": {"lot_too_small": 5},
        "000002.SZ": {"short_not_allowed": 1},
        "000063.SZ": {"halt": 1},
    }
    assert result.unfilled.index.tolist() == [MAIN, "000001.SZ", "000002.SZ", "000063.SZ"]


def numbers(value: Any) -> list[float]:
    if isinstance(value, dict):
        return [number for item in value.values() for number in numbers(item)]
    if isinstance(value, list):
        return [number for item in value for number in numbers(item)]
    return [value] if isinstance(value, float) else []


def test_a_result_is_json_with_finite_numbers(rebalanced: BacktestResult) -> None:
    body = json.loads(json.dumps(rebalanced.to_dict(), allow_nan=False))
    assert all(map(math.isfinite, numbers(body)))
    assert (body["start"], body["end"]) == ("2024-03-05", "2024-03-13")
    assert (body["initial_cash"], body["final_value"]) == (100_000.0, 102_933.91)
    assert body["costs"] == {"commission": 45.09, "transfer": 1.8, "stamp": 39.2, "slippage": 0.0}
    assert (body["orders"], body["symbols"]) == (5, [GROWTH])
    assert body["metrics"]["profit_factor"] is None  # no trade lost


@pytest.mark.parametrize("weight", [0.0, 0.5])
def test_a_flat_or_idle_account_has_a_result_too(market: Any, weight: float) -> None:
    market.add(MAIN, [10.0] * 6)
    gone = Dropped(symbol="999999.SH", name="", reason="数据源没有该代码")
    result = market.run({MAIN: [weight] * 6}, dropped=[gone])
    body = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert body["dropped"] == [{"symbol": "999999.SH", "reason": "数据源没有该代码"}]
    assert len(result.trades) == (1 if weight else 0)
    assert list(result.trades.columns) == [
        "symbol", "entry_time", "exit_time", "size", "entry_price", "exit_price", "pnl", "return",
        "holding_days",
    ]  # fmt: skip
    if not weight:
        assert (result.equity == 100_000).all()
        assert set(result.costs.values()) == {0.0}
        assert body["metrics"]["sharpe"] is None
    assert result.summary()


def test_the_summary_speaks_chinese(rebalanced: BacktestResult) -> None:
    lines = rebalanced.summary().split("\n")
    assert lines[0].startswith("2024-03-05 至 2024-03-13：总收益 +2.93%，")
    assert "最大回撤 -6.67%" in lines[0]
    assert "  平仓笔数 2" in lines
    assert "  胜率（扣费后） 100.0%" in lines
    assert f"  注：价格收益，未计分红：{GROWTH}" in lines
    assert not re.search(r"[a-z]", rebalanced.summary())  # no metric by its code name
    assert repr(rebalanced) == rebalanced.summary()


def test_a_notebook_shows_it_with_foreign_text_escaped(rebalanced: BacktestResult) -> None:
    shown = replace(rebalanced, notes=("<script>alert(1)</script>",))._repr_html_()
    assert "<script" not in shown
    assert "&lt;script&gt;alert(1)" in shown
    assert "<svg" in shown
    assert "总收益" in shown


def test_all_but_the_portfolio_works_without_vectorbt(
    rebalanced: BacktestResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "vectorbt", None)  # what importing it then raises: ImportError
    assert rebalanced.to_dict()["metrics"]
    assert len(rebalanced.trades) == 3
    for ask in (
        lambda: rebalanced.portfolio,
        lambda: rebalanced.symbol(GROWTH),
        lambda: rebalanced.between(date(2024, 3, 5), date(2024, 3, 8)),
    ):
        with pytest.raises(KitError, match="vectorbt is not installed") as caught:
            ask()
        assert caught.value.code == "backtest.needs_lab"
        assert "kit[lab]" in caught.value.remedy


def test_what_is_not_in_a_result_is_refused_by_name(rebalanced: BacktestResult) -> None:
    with pytest.raises(UsageError, match=r"600000\.SH is not in this backtest") as caught:
        rebalanced.symbol(MAIN)
    assert caught.value.code == "backtest.unknown_symbol"
    assert GROWTH in caught.value.remedy
    for first, last in (("2024-03-09", "2024-03-10"), ("2024-03-08", "2024-03-07")):
        with pytest.raises(UsageError) as empty:
            rebalanced.between(date.fromisoformat(first), date.fromisoformat(last))
        assert empty.value.code == "backtest.bad_range"
        assert "2024-03-05 to 2024-03-13" in empty.value.remedy
