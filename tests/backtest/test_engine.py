"""From bars and weights to fills: the market's rules as they reach the kernel."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import polars as pl
import pytest

from kit.backtest import run_backtest
from kit.backtest.settings import Settings
from kit.errors import DataError
from kit.market import ParquetSource, load_panel
from kit.market.bars import BAR_COLUMNS

MAIN = "600000.SH"
HALF = [0.5] * 120


@pytest.mark.parametrize(
    ("symbol", "known", "opened", "barred"),
    [
        # The close before is 10.00 each time.
        (MAIN, {}, 10.99, False),
        (MAIN, {}, 11.00, True),
        (MAIN, {"is_st": True}, 10.49, False),
        (MAIN, {"is_st": True}, 10.50, True),
        ("300001.SZ", {}, 11.00, False),
        ("300001.SZ", {}, 12.00, True),
        ("688001.SH", {}, 11.99, False),
        ("688001.SH", {}, 12.00, True),
        ("830001.BJ", {}, 12.99, False),
        ("830001.BJ", {}, 13.00, True),
        ("510300.SH", {"kind": "fund"}, 10.999, False),  # its tick is a tenth of a fen
        ("510300.SH", {"kind": "fund"}, 11.000, True),
        # Prices restated by the source are not those the exchange measured its limits on.
        (MAIN, {"adjust": "qfq"}, 11.00, False),
        (MAIN, {"adjust": "split"}, 11.00, True),
    ],
)
def test_an_open_at_the_upper_limit_is_not_bought(
    market: Any, hand: ModuleType, symbol: str, known: dict[str, Any], opened: float, barred: bool
) -> None:
    market.add(symbol, [10.0, opened, 10.0, 10.0], opens=[10.0, opened, 10.0, 10.0], **known)
    result = market.run({symbol: HALF})
    day, price = ("03-06", 10.0) if barred else ("03-05", opened)
    assert hand.orders(result)[0][0] == day
    assert hand.orders(result)[0][4] == price
    assert hand.unfilled(result) == ({symbol: {"limit_up": 1}} if barred else {})


@pytest.mark.parametrize(("opened", "barred"), [(9.01, False), (9.00, True)])
def test_an_open_at_the_lower_limit_is_not_sold(
    market: Any, hand: ModuleType, opened: float, barred: bool
) -> None:
    market.add(MAIN, [10.0, 10.0, 10.0, opened, opened, opened])
    result = market.run({MAIN: [0.5, 0.5, 0.0, 0.0, 0.0, 0.0]})
    assert [order[:3] for order in hand.orders(result)] == [
        ("03-05", MAIN, "buy"),
        ("03-08" if barred else "03-07", MAIN, "sell"),
    ]
    assert hand.unfilled(result) == ({MAIN: {"limit_down": 1}} if barred else {})


@pytest.mark.parametrize(
    ("place", "barred"),
    [(1, False), (4, False), (5, True)],  # second, fifth and sixth session of its life
)
def test_a_new_share_has_no_limit_for_five_sessions(
    market: Any, hand: ModuleType, place: int, barred: bool
) -> None:
    closes = [10.0] * 8
    closes[place] = 11.0
    market.add("600001.SH", closes, listed="2024-03-04")
    weights = [0.0] * (place - 1) + [0.5] * 100
    result = market.run({"600001.SH": weights})
    assert hand.unfilled(result) == ({"600001.SH": {"limit_up": 1}} if barred else {})
    assert hand.orders(result)[0][4] == (10.0 if barred else 11.0)


# A dividend of 0.30 on a close of 10.00: the exchange measures from 9.70, so the day's limits are
# 10.67 and 8.73, and the factor grows by 10 / 9.70.
EX = 10 / 9.7


@pytest.mark.parametrize(
    ("opened", "bought"), [(10.66, True), (10.67, False), (9.70, True), (8.73, True)]
)
def test_on_the_ex_date_limits_hang_on_the_price_less_the_dividend(
    market: Any, hand: ModuleType, opened: float, bought: bool
) -> None:
    market.add(MAIN, [10.0, opened, 9.7, 9.7], factor=[1.0, EX, EX, EX])
    result = market.run({MAIN: HALF})
    assert hand.orders(result)[0][0] == ("03-05" if bought else "03-06")
    assert hand.unfilled(result) == ({} if bought else {MAIN: {"limit_up": 1}})


@pytest.mark.parametrize(("opened", "sold"), [(8.74, True), (8.73, False)])
def test_on_the_ex_date_the_lower_limit_moves_too(
    market: Any, hand: ModuleType, opened: float, sold: bool
) -> None:
    market.add(MAIN, [10.0, 10.0, opened, opened, opened], factor=[1.0, 1.0, EX, EX, EX])
    result = market.run({MAIN: [0.5, 0.0, 0.0, 0.0, 0.0]})
    assert hand.orders(result)[1][0] == ("03-06" if sold else "03-07")
    assert hand.unfilled(result) == ({} if sold else {MAIN: {"limit_down": 1}})


@pytest.mark.parametrize(
    ("factor", "opened", "bought"),
    [
        ([1.0] * 5, 10.99, True),
        ([1.0] * 5, 11.00, False),
        # The ex-date falls into the halt.
        ([1.0, 1.0, EX, EX, EX], 10.66, True),
        ([1.0, 1.0, EX, EX, EX], 10.67, False),
    ],
)
def test_after_a_halt_limits_hang_on_the_close_before_it(
    market: Any, hand: ModuleType, factor: list[float], opened: float, bought: bool
) -> None:
    market.add(MAIN, [10.0, None, opened, 10.0, 10.0], factor=factor)
    market.add("000001.SZ", [10.0] * 5)  # keeps the session in the panel
    result = market.run({MAIN: HALF, "000001.SZ": [0.0] * 5})
    expected = {"halt": 1} if bought else {"halt": 1, "limit_up": 1}
    assert hand.unfilled(result) == {MAIN: expected}
    assert hand.orders(result)[0][0] == ("03-06" if bought else "03-07")


@pytest.mark.parametrize("written", ["no bar", "a bar without volume"])
def test_a_halt_fills_nothing_and_the_position_keeps_its_last_price(
    market: Any, hand: ModuleType, written: str
) -> None:
    closes: list[float | None] = [10.0, 10.0, 10.5, 10.5, 10.5, 10.8, 10.8]
    volume = [1e6, 0.0, 1e6, 0.0, 0.0, 1e6, 1e6]
    if written == "no bar":
        closes = [close if traded else None for close, traded in zip(closes, volume, strict=True)]
    market.add(MAIN, closes, volume=volume)
    market.add("000001.SZ", [20.0] * 7)
    # Bought on the first session after a halt, wanted away in the middle of the next one.
    result = market.run({MAIN: [0.5, 0.5, 0.5, 0.0, 0.0, 0.0, 0.0], "000001.SZ": [0.0] * 7})
    # 50,000 / 10.5 is 4,761.9: 4,700 shares for 49,350, commission 12.34, transfer 0.49.
    left = 100_000 - 49_350 - 12.34 - 0.49
    assert hand.orders(result)[0] == ("03-06", MAIN, "buy", 4_700, 10.5)
    equity = result.equity.tolist()
    assert equity[:5] == pytest.approx([100_000] * 2 + [left + 4_700 * 10.5] * 3, abs=1e-6)
    if written == "no bar":
        # The engine speaks again with the next bar, 03-11, and is heard on the one after it.
        assert hand.orders(result)[1:] == [("03-12", MAIN, "sell", 4_700, 10.8)]
        assert hand.unfilled(result) == {MAIN: {"halt": 1}}
    else:
        # It speaks on the halt's first day; the second waits, and the third sells.
        assert hand.orders(result)[1:] == [("03-11", MAIN, "sell", 4_700, 10.8)]
        assert hand.unfilled(result) == {MAIN: {"halt": 2}}


@pytest.mark.parametrize("adjustment", ["none", "forward", "backward"])
def test_dividends_are_reinvested_whatever_prices_the_rule_sees(
    market: Any, hand: ModuleType, adjustment: str
) -> None:
    # Bonus shares, four for one held five: 10.00 becomes 8.00 and the factor 1.25.
    market.add(MAIN, [10.0, 10.0, 10.0, 8.0, 8.0, 8.0], factor=[1.0] * 3 + [1.25] * 3)
    engine = hand.Wanted({MAIN: [0.5, 0.5, 0.5, 0.0, 0.0, 0.0]})
    result = market.run(engine, adjustment=adjustment)
    # 5,000 shares for 50,000, fees 12.50 + 0.50; then 6,250 shares worth as much;
    # sold for 50,000 with 12.50 + 0.50 + 25.00.
    assert hand.orders(result) == [
        ("03-05", MAIN, "buy", 5_000, 10.0),
        ("03-08", MAIN, "sell", 6_250, 8.0),
    ]
    assert result.equity.tolist() == pytest.approx(
        [100_000, 99_987, 99_987, 99_987, 99_949, 99_949], abs=1e-6
    )
    assert not any("未计分红" in note for note in result.notes)
    # What the rule sees is another matter.
    shown = {
        "none": [10.0, 10.0, 10.0, 8.0, 8.0, 8.0],
        "forward": [8.0] * 6,
        "backward": [10.0] * 6,
    }
    assert engine.seen[MAIN]["close"].tolist() == pytest.approx(shown[adjustment])


def test_without_a_factor_returns_are_price_returns_and_say_so(
    market: Any, hand: ModuleType
) -> None:
    market.add(MAIN, [10.0, 10.0, 10.0, 9.1, 9.1, 9.1])
    result = market.run({MAIN: [0.5, 0.5, 0.5, 0.0, 0.0, 0.0]})
    # Sold for 45,500: commission 11.375, transfer 0.455, stamp duty 22.75, each to the cent.
    assert result.equity.iloc[-1] == pytest.approx(99_987 - 4_500 - 11.38 - 0.46 - 22.75)
    assert f"价格收益，未计分红：{MAIN}" in result.notes


def test_notes_say_what_a_reader_must_know(market: Any) -> None:
    market.add(MAIN, [10.0] * 4)
    market.add("000001.SZ", [10.0] * 4, adjust="qfq")
    market.add("000002.SZ", [10.0] * 4, factor=[1.0, 1.1, 1.1, 1.1], source="synthetic walk")
    plain = market.run({MAIN: HALF, "000001.SZ": [0.0] * 4})
    assert plain.notes == (
        "合成数据",
        "价格收益，未计分红：600000.SH",
        "仅有前复权价，涨跌停规则关闭：000001.SZ",
        "手数与最低佣金按前复权价计算，与当时的成交不完全一致",
        "未计滑点",
        "策略没有给出权重：000002.SZ",
    )
    slipped = market.run({MAIN: HALF, "000001.SZ": [0.0] * 4}, slippage=0.001)
    assert "未计滑点" not in slipped.notes


def test_a_market_that_needs_no_note_gets_none(market: Any) -> None:
    market.add(MAIN, [10.0] * 4, factor=[1.0, 1.1, 1.1, 1.1])
    assert market.run({MAIN: HALF}, slippage=0.001).notes == ()


@pytest.mark.parametrize("warmup", [9, 10, 500])
def test_a_range_that_the_warm_up_eats_is_refused(market: Any, warmup: int) -> None:
    market.add(MAIN, [10.0] * 10)
    with pytest.raises(DataError, match="10 bars leave nothing to grade") as caught:
        market.run({MAIN: HALF}, warmup_bars=warmup)
    assert caught.value.code == "backtest.too_short"
    assert "--start" in caught.value.remedy
    assert len(market.run({MAIN: HALF}, warmup_bars=8).equity) == 3  # base and two graded bars


@pytest.mark.parametrize(("fill", "price"), [("same_open", 10.2), ("same_close", 10.4)])
def test_a_same_bar_fill_is_labelled(
    market: Any, hand: ModuleType, fill: str, price: float
) -> None:
    market.add(MAIN, [10.0, 10.0, 10.4, 10.4], opens=[10.0, 10.0, 10.2, 10.4])
    result = market.run({MAIN: [0.0, 0.0, 0.5, 0.5]}, fill=fill, same_bar_waiver="集合竞价")
    assert hand.orders(result)[0][::4] == ("03-06", price)
    assert (result.orders["decided"] == result.orders["time"]).all()
    assert "当根成交（已声明豁免），实盘难以做到" in result.notes


def test_the_curve_starts_from_the_initial_cash_even_with_same_bar_fills(market: Any) -> None:
    # What was earned on the very first bar would stand in no return.
    market.add(MAIN, [10.9, 10.9, 10.9], opens=[10.0, 10.9, 10.9])
    result = market.run({MAIN: HALF}, fill="same_open", same_bar_waiver="集合竞价")
    assert result.equity.iloc[0] == 100_000
    assert result.metrics.total_return == pytest.approx(result.equity.iloc[-1] / 100_000 - 1)
    assert result.start.isoformat() == "2024-03-05"


@pytest.mark.parametrize(
    ("fill", "price"), [("next_open", 10.1), ("next_close", 10.5), ("vwap", 10.3)]
)
def test_the_fill_price_is_the_declared_one(
    market: Any, hand: ModuleType, fill: str, price: float
) -> None:
    market.add(
        MAIN,
        [10.0, 10.5, 10.5],
        opens=[10.0, 10.1, 10.5],
        volume=[1000.0, 2000.0, 1000.0],
        amount=[10_000.0, 20_600.0, 10_500.0],
    )
    result = market.run({MAIN: HALF}, fill=fill)
    assert hand.orders(result)[0][::4] == ("03-05", price)


def test_an_average_price_without_amounts_is_said(market: Any, hand: ModuleType) -> None:
    market.add(MAIN, [10.0] * 4)
    market.add("000001.SZ", [10.0] * 4, amount=[10_000_000.0] * 4)
    result = market.run({MAIN: HALF, "000001.SZ": [0.3] * 4}, fill="vwap")
    assert "没有成交额，算不出均价，不能成交：600000.SH" in result.notes
    assert {order[1] for order in hand.orders(result)} == {"000001.SZ"}
    assert not any("成交额" in note for note in market.run({MAIN: HALF}).notes)


@pytest.mark.parametrize(
    ("asked", "first"),
    [
        (None, "2024-03-06"),  # the third bar, after two of warm-up
        ("2024-03-05", "2024-03-06"),  # inside the warm-up
        ("2024-03-12", "2024-03-12"),
        ("2024-03-09", "2024-03-11"),  # a Saturday
    ],
)
def test_grading_begins_when_it_is_asked_to(
    market: Any, hand: ModuleType, asked: str | None, first: str
) -> None:
    market.add(MAIN, [10.0 + 0.1 * k for k in range(10)])
    result = market.run({MAIN: HALF}, warmup_bars=2, evaluation_start=asked)
    assert result.start.isoformat() == first
    place = result.dates.get_loc(pd.Timestamp(first))
    # What is wanted already is bought on the first graded bar, no sooner.
    assert hand.orders(result)[0][::4] == (first[5:], round(10.0 + 0.1 * place, 9))
    assert result.equity.index[0] == result.dates[place - 1]
    assert result.equity.iloc[0] == 100_000
    assert result.metrics.bars == 10 - place


def test_each_kind_of_security_pays_its_own_fees(market: Any) -> None:
    for symbol, kind in ((MAIN, "stock"), ("510300.SH", "fund")):
        market.add(symbol, [10.0] * 5, kind=kind, factor=[1.0, 1.0, 1.0, 1.0, 1.01])
    result = market.run({s: [0.1, 0.1, 0.0, 0.0, 0.0] for s in (MAIN, "510300.SH")})
    # 1,000 shares for 10,000: commission 2.50 is below its minimum of 5.00; a fund pays no more.
    columns = ["symbol", "side", "size", "commission", "transfer", "stamp", "fees"]
    assert sorted(result.orders[columns].itertuples(index=False, name=None)) == [
        ("510300.SH", "buy", 1_000, 5.0, 0.0, 0.0, 5.0),
        ("510300.SH", "sell", 1_000, 5.0, 0.0, 0.0, 5.0),
        (MAIN, "buy", 1_000, 5.0, 0.1, 0.0, 5.1),
        (MAIN, "sell", 1_000, 5.0, 0.1, 5.0, 10.1),
    ]


@pytest.mark.parametrize(
    ("symbol", "shares"),
    [(MAIN, 300), ("688001.SH", 303), ("830001.BJ", 303), ("300001.SZ", 300)],
)
def test_each_board_has_its_lot(market: Any, hand: ModuleType, symbol: str, shares: float) -> None:
    market.add(symbol, [33.0] * 4)
    result = market.run({symbol: [0.1] * 4})  # 10,000 / 33 is 303.03
    assert hand.orders(result)[0][3] == shares


def test_nothing_bought_is_sold_in_the_same_session(market: Any, hand: ModuleType) -> None:
    market.add(MAIN, [10.0] * 3)
    # Bought on the last session: T+1 leaves it open, and counts it.
    result = market.run({MAIN: [0.0, 0.5, 0.5]})
    assert [order[:3] for order in hand.orders(result)] == [("03-06", MAIN, "buy")]
    assert hand.unfilled(result) == {MAIN: {"t_plus_1": 1}}
    assert result.trades["exit_time"].isna().all()


def test_the_benchmark_is_named_and_compared(market: Any, hand: ModuleType) -> None:
    market.add(MAIN, [10.0] * 6)
    index = pd.Series([100.0, 101.0, 99.0, 102.0, 103.0, 110.0], hand.DAYS[:6], name="000300.SH")
    result = market.run({MAIN: HALF}, benchmark=index, warmup_bars=3)
    assert result.benchmark_name == "000300.SH"
    assert result.metrics.benchmark_return == pytest.approx(110 / 99 - 1)
    assert market.run({MAIN: HALF}).benchmark_name is None


# What the source stated about a day wins over the tables.


def test_a_stated_limit_wins(market: Any, hand: ModuleType) -> None:
    # By the table the limit is 11.00; the source says 10.50 on the second day, nothing later.
    limits = [None, 10.5, None, None]
    market.add(MAIN, [10.0, 10.5, 10.5, 10.5], limit_up=limits, limit_down=[None] * 4)
    result = market.run({MAIN: HALF})
    assert hand.unfilled(result) == {MAIN: {"limit_up": 1}}
    assert hand.orders(result)[0][0] == "03-06"


@pytest.mark.parametrize(
    ("now", "stated", "barred"),
    [
        (False, [True] * 4, True),  # it was under special treatment then: 5 %
        (True, [False] * 4, False),  # it is now, and was not then: 10 %
        (True, [None] * 4, True),  # not known by date: what it is now counts
        (False, [False, None, None, None], False),
    ],
)
def test_special_treatment_by_date(
    market: Any, hand: ModuleType, now: bool, stated: list[bool | None], barred: bool
) -> None:
    market.add(MAIN, [10.0, 10.5, 10.5, 10.5], is_st=now, was_st=stated)
    result = market.run({MAIN: HALF})
    assert hand.unfilled(result) == ({MAIN: {"limit_up": 1}} if barred else {})


def test_a_stated_suspension_fills_nothing_whatever_the_volume(
    market: Any, hand: ModuleType
) -> None:
    market.add(MAIN, [10.0] * 5, suspended=[False, True, True, None, False])
    result = market.run({MAIN: HALF})
    assert hand.unfilled(result) == {MAIN: {"halt": 2}}
    assert hand.orders(result)[0][0] == "03-07"


# Other markets.


def test_hong_kong_by_hand(tmp_path: Path, hand: ModuleType) -> None:
    """A board lot of 500, the same day's sale, stamp duty on both sides up to the dollar."""
    desk = hand.HandMarket(tmp_path, "hk")
    desk.add("0005.HK", [60.0, 60.0, 60.0, 75.0, 75.0], lot=500)
    result = desk.run({"0005.HK": [0.5, 0.5, 0.0, 0.0, 0.0]})
    # 50,000 / 60 is 833: one lot of 500 for 30,000. On 2024-03-05: commission 0.03 % 9.00; stamp
    # duty 0.1 % 30.00; levies 0.0027 % 0.81, 0.00015 % 0.05 (0.045), 0.00565 % 1.70 (1.695);
    # settlement 0.002 %, at least 2.00. No limit keeps 75 from trading: 37,500 on 2024-03-07:
    # 11.25; 37.50 up to 38; 1.01, 0.06, 2.12, 2.00.
    assert hand.orders(result) == [
        ("03-05", "0005.HK", "buy", 500, 60.0),
        ("03-07", "0005.HK", "sell", 500, 75.0),
    ]
    parts = result.orders[["commission", "transfer", "stamp"]].to_numpy()
    assert parts.tolist()[0] == pytest.approx([9.00, 0.81 + 0.05 + 1.70 + 2.00, 30.0])
    assert parts.tolist()[1] == pytest.approx([11.25, 1.01 + 0.06 + 2.12 + 2.00, 38.0])
    assert result.equity.iloc[-1] == pytest.approx(100_000 + 7_500 - 43.56 - 54.44)


def test_america_by_hand(tmp_path: Path, hand: ModuleType) -> None:
    """Single shares, no commission, and on the sale the fees of SEC and FINRA up to the cent."""
    desk = hand.HandMarket(tmp_path, "us")
    desk.add("AAA", [150.0, 150.0, 150.0, 300.0, 300.0])
    result = desk.run({"AAA": [0.5, 0.5, 0.0, 0.0, 0.0]})
    # 50,000 / 150 is 333. Sold for 99,900 in March 2024: 0.0008 % is 0.7992, up to 0.80; 333
    # shares at 0.000166 are 0.0553, up to 0.06.
    assert hand.orders(result) == [
        ("03-05", "AAA", "buy", 333, 150.0),
        ("03-07", "AAA", "sell", 333, 300.0),
    ]
    assert result.orders["fees"].tolist() == pytest.approx([0.0, 0.86])
    assert result.orders[["stamp", "transfer"]].iloc[1].tolist() == pytest.approx([0.80, 0.06])


def test_where_nothing_settles_late_the_last_purchase_is_left_on_the_same_day(
    tmp_path: Path, hand: ModuleType
) -> None:
    desk = hand.HandMarket(tmp_path, "us")
    desk.add("AAA", [100.0] * 3)
    result = desk.run({"AAA": [0.0, 0.5, 0.5]})
    assert [order[:3] for order in hand.orders(result)] == [
        ("03-06", "AAA", "buy"),
        ("03-06", "AAA", "sell"),
    ]


# Ranges and bars that are odd.


def test_a_halt_of_months_keeps_the_position_and_its_value(market: Any, hand: ModuleType) -> None:
    closes: list[float | None] = [10.0, 10.0, *[None] * 90, 10.9, 10.9]
    market.add(MAIN, closes)
    market.add("000001.SZ", [10.0] * len(closes))
    weights = [0.5, 0.5] + [0.0] * 92
    result = market.run({MAIN: weights, "000001.SZ": [0.0] * len(closes)})
    equity = result.equity
    assert equity.iloc[3:92].nunique() == 1
    # It speaks again on its first day back, and is heard the day after.
    assert hand.orders(result)[-1][2:] == ("sell", 5_000, 10.9)
    assert result.trades["holding_days"].tolist() == [
        (result.trades["exit_time"].iloc[0] - result.trades["entry_time"].iloc[0]).days
    ]
    assert result.trades["holding_days"].iloc[0] > 120


@pytest.mark.parametrize(("price", "cause"), [(11.0, "limit_up"), (9.0, "limit_down")])
def test_a_day_at_one_price_that_is_the_limit_trades_one_way_only(
    market: Any, hand: ModuleType, price: float, cause: str
) -> None:
    market.add(MAIN, [10.0, 10.0, price, price, price])
    wanted = [0.0, 0.5, 0.5, 0.5] if cause == "limit_up" else [0.5, 0.0, 0.0, 0.0]
    result = market.run({MAIN: [*wanted, wanted[-1]]})
    assert hand.unfilled(result) == {MAIN: {cause: 1}}
    # The other way goes: at the upper limit one may sell, at the lower one may buy.
    other = [0.5, 0.0, 0.0, 0.0, 0.0] if cause == "limit_up" else [0.0, 0.5, 0.5, 0.5, 0.5]
    assert ("03-06", price) in [order[::4] for order in hand.orders(market.run({MAIN: other}))]


def test_a_universe_of_one_and_a_universe_that_starts_late(market: Any, hand: ModuleType) -> None:
    market.add(MAIN, [None, None, 10.0, 10.0, 10.0])
    market.add("000001.SZ", [10.0] * 5)
    result = market.run({MAIN: HALF, "000001.SZ": [0.0] * 5})
    assert [order[:3] for order in hand.orders(result)] == [
        ("03-07", MAIN, "buy"),
        ("03-08", MAIN, "sell"),
    ]


def test_hours_are_bars_and_sessions_are_days(tmp_path: Path, hand: ModuleType) -> None:
    """Limits hang on the close of the day before, T+1 on the day, fills on the next hour."""
    hours = [
        pd.Timestamp(f"{day} {hour}:00")
        for day in ("2024-03-04", "2024-03-05")
        for hour in (11, 14, 15)
    ]
    prices = [10.0, 10.4, 10.8, 11.0, 11.9, 11.88]
    rows = [
        dict.fromkeys(BAR_COLUMNS)
        | {"symbol": MAIN, "time": time.to_pydatetime(), "volume": 1e6, "adj_factor": 1.0}
        | dict.fromkeys(("open", "high", "low", "close"), price)
        | {"adjust": "none", "source": "hand"}
        for time, price in zip(hours, prices, strict=True)
    ]
    folder = tmp_path / "cn" / "1h"
    folder.mkdir(parents=True)
    pl.DataFrame(rows, schema=BAR_COLUMNS).write_parquet(folder / "hand.parquet")
    listed = {"securities": [{"symbol": MAIN, "name": MAIN}]}
    (folder.parent / "securities.json").write_text(json.dumps(listed), encoding="utf-8")
    day = hours[0].date()
    panel = load_panel(
        ParquetSource(tmp_path), [MAIN], day, hours[-1].date(), market="cn", interval="1h"
    )

    class Rule:
        def generate(self, data_map: Any) -> Any:
            return {MAIN: pd.Series([0.5, 0.0, 0.0, 0.0, 0.0, 0.5], data_map[MAIN].index)}

    result = run_backtest(
        Rule(), panel, Settings(initial_cash=100_000.0, slippage=0.0), rules=hand.rules(),
        securities=list(panel.securities.values()),
    )  # fmt: skip
    # Bought at 14:00 on the first day and wanted away at once: T+1 holds it at 15:00. On the second
    # day the limit is 11.88, 10 % on 10.80, so 11.00 is sold although it is 1.9 % up on the hour.
    assert [(f"{o.time:%m-%d %H}", o.side, o.price) for o in result.orders.itertuples()] == [
        ("03-04 14", "buy", 10.4),
        ("03-05 11", "sell", 11.0),
    ]
    assert hand.unfilled(result) == {MAIN: {"t_plus_1": 1}}
    assert result.setup.market.up[3:, 0].tolist() == pytest.approx([11.88] * 3)
    assert result.metrics.periods_per_year == 756  # three bars a day
    assert result.start == day


def test_the_number_of_threads_changes_nothing(tmp_path: Path) -> None:
    """The same bytes from a process with one thread and one with two."""
    script = """
import hashlib, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
import numpy as np
from hand import HandMarket
market = HandMarket(Path(sys.argv[2]))
walk = np.random.default_rng(3)
names = [f"{600000 + n}.SH" for n in range(12)]
wanted = {}
for name in names:
    market.add(name, list(np.round(10 * np.exp(np.cumsum(walk.normal(0, 0.02, 80))), 2)))
    wanted[name] = list(walk.choice([0.0, 0.1, 0.2], 80))
result = market.run(wanted, position_adjustment="rebalance", slippage=0.001)
whole = result.fills.orders.tobytes() + result.fills.equity.tobytes()
print(len(result.orders), hashlib.sha256(whole).hexdigest())
"""
    found = set()
    for threads in ("1", "2"):
        around = {"NUMBA_NUM_THREADS": threads, "POLARS_MAX_THREADS": threads}
        done = subprocess.run(
            [sys.executable, "-c", script, str(Path(__file__).parent), str(tmp_path / threads)],
            env={**os.environ, **around},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
        orders, digest = done.stdout.split()
        assert int(orders) > 100
        found.add(digest)
    assert len(found) == 1
