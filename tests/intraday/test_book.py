"""The holdings table and the book, by hand."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest

from kit.errors import ConfigError
from kit.intraday import Portfolio, figures
from kit.intraday.book import Totals, book_line, build_rows, index_strip, table_lines
from kit.intraday.portfolio import labels
from kit.market import QuoteBatch

SESSION = date(2024, 9, 18)


def test_the_table_by_hand(portfolio: Portfolio, batch: Callable[..., QuoteBatch]) -> None:
    rows = build_rows(
        portfolio, batch({"600000.SH": (8.31, 8.35), "000151.SZ": (10.05, 10.09)}), SESSION
    )
    # 600000: 8.31/8.35-1 = -0.479 %; 8.31/8.42-1 = -1.306 %; 3000 x -0.11 = -330
    # 000151: 10.05/10.09-1 = -0.396 %; 10.05/9.12-1 = +10.197 %; 1500 x 0.93 = +1395
    assert table_lines(rows) == (
        "| 代码 | 股 | 成本 | 现价 | 今日 | 浮% | 浮$ |",
        "| 600000 | 3000 | 8.42 | 8.31 | -0.5% | -1.3% | -330 |",
        "| 000151 | 1500 | 9.12 | 10.05 | -0.4% | +10.2% | +1,395 |",
    )


def test_the_book_by_hand(portfolio: Portfolio, batch: Callable[..., QuoteBatch]) -> None:
    rows = build_rows(
        portfolio, batch({"600000.SH": (8.31, 8.35), "000151.SZ": (10.05, 10.09)}), SESSION
    )
    totals = Totals.of(rows)
    # value 24930 + 15075; gain -330 + 1395; cost 25260 + 13680; day 3000 x -0.04 + 1500 x -0.04
    assert totals.value == Decimal("40005")
    assert totals.gain == Decimal("1065")
    assert totals.gain_pct == Decimal(1065) / Decimal(38940) * 100
    assert totals.day_gain == Decimal("-180")
    assert totals.day_pct == Decimal(-180) / Decimal(40185) * 100
    # 1065/38940 = 2.735 %; 180/40185 = 0.448 %
    assert book_line(totals, "CNY") == (
        "📊 市值 40,005 CNY｜浮盈 +1,065（+2.7%）｜今日 -180（-0.4%）"
    )


def test_a_holding_without_a_price_keeps_its_row_and_leaves_the_totals(
    portfolio: Portfolio, batch: Callable[..., QuoteBatch]
) -> None:
    rows = build_rows(
        portfolio, batch({"600000.SH": (8.31, 8.35)}, missing={"000151.SZ": "停牌"}), SESSION
    )
    assert table_lines(rows)[2] == "| 000151 | 1500 | 9.12 | — | — | — | — |"
    assert rows[1].problem == "停牌"
    assert book_line(Totals.of(rows), "CNY") == (
        "📊 市值 24,930 CNY｜浮盈 -330（-1.3%）｜今日 -120（-0.5%）｜不含 000151"
    )


def test_a_quote_of_an_earlier_day_has_no_move_of_today(
    portfolio: Portfolio, batch: Callable[..., QuoteBatch]
) -> None:
    yesterday = datetime(2024, 9, 17, 15, 0, tzinfo=ZoneInfo("Asia/Shanghai"))
    prices = {"600000.SH": (8.31, 8.35), "000151.SZ": (10.05, 10.09)}
    rows = build_rows(portfolio, batch(prices, stale={"000151.SZ": yesterday}), SESSION)
    assert table_lines(rows)[1:] == (
        "| 600000 | 3000 | 8.42 | 8.31 | -0.5% | -1.3% | -330 |",
        "| 000151 | 1500 | 9.12 | 10.05 | — | +10.2% | +1,395 |",
    )
    # Only 600000 moved today: 3000 x -0.04 = -120 on 3000 x 8.35 = 25,050, -0.479 %.
    assert book_line(Totals.of(rows), "CNY") == (
        "📊 市值 40,005 CNY｜浮盈 +1,065（+2.7%）｜今日 -120（-0.5%，不含 000151）"
    )
    none = build_rows(portfolio, batch(prices, stale=dict.fromkeys(prices, yesterday)), SESSION)
    assert book_line(Totals.of(none), "CNY") == (
        "📊 市值 40,005 CNY｜浮盈 +1,065（+2.7%）｜今日 —（—）"
    )


def test_an_index_of_an_earlier_day_has_no_move_of_today(
    batch: Callable[..., QuoteBatch],
) -> None:
    portfolio = Portfolio.from_dict(
        "cn", {"currency": "CNY", "indices": ["000300.SH"], "holdings": []}
    )
    quotes = batch({"000300.SH": (3191.0, 3200.0)})
    assert index_strip(portfolio, quotes, date(2024, 9, 19)) == "000300.SH —"


def test_no_price_at_all_makes_no_number(
    portfolio: Portfolio, batch: Callable[..., QuoteBatch]
) -> None:
    rows = build_rows(portfolio, batch({}), SESSION)
    assert book_line(Totals.of(rows), "CNY") == (
        "📊 市值 — CNY｜浮盈 —（—）｜今日 —（—）｜不含 600000、000151"
    )


def test_the_index_strip_shows_what_has_a_quote(batch: Callable[..., QuoteBatch]) -> None:
    portfolio = Portfolio.from_dict(
        "cn", {"currency": "CNY", "indices": ["000300.SH", "000905.SH"], "holdings": []}
    )
    strip = index_strip(portfolio, batch({"000300.SH": (3191.0, 3200.0)}, missing={}), SESSION)
    assert strip == "000300.SH -0.3%"


@pytest.mark.parametrize(
    ("value", "text"),
    [("0.05", "+0.1%"), ("-0.05", "-0.1%"), ("0.049", "0.0%"), ("-3.25", "-3.3%"), ("0", "0.0%")],
)
def test_percentages_round_half_up_and_carry_their_sign(value: str, text: str) -> None:
    assert figures.percent(Decimal(value)) == text


@pytest.mark.parametrize(
    ("value", "text"), [(8.4, "8.40"), (10.0, "10.00"), (1.235, "1.235"), (24.65, "24.65")]
)
def test_prices_show_two_decimals_or_all_they_have(value: float, text: str) -> None:
    assert figures.price(figures.exact(value)) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("1234.5", "+1,235"),
        ("-1234.5", "-1,235"),
        ("0.4", "0"),
        ("-0.4", "0"),
        ("999999", "+999,999"),
    ],
)
def test_money_is_whole_with_separators(value: str, text: str) -> None:
    assert figures.money(Decimal(value)) == text


def test_two_holdings_with_one_code_are_told_apart() -> None:
    assert labels(["000001.SZ", "000001.SH", "600000.SH"]) == {
        "000001.SZ": "000001.SZ",
        "000001.SH": "000001.SH",
        "600000.SH": "600000",
    }


def test_a_symbol_that_stands_twice_is_refused() -> None:
    row = {"symbol": "600000.SH", "shares": 100, "cost": 8.0}
    with pytest.raises(ConfigError, match=r"holdings\[1\].symbol: 600000.SH stands twice"):
        Portfolio.from_dict("cn", {"currency": "CNY", "indices": [], "holdings": [row, row]})
