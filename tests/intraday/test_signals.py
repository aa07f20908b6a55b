"""What stands out: moves of a size and lines that were crossed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta
from typing import Any

import pytest

from kit.intraday import Portfolio
from kit.intraday.book import build_rows
from kit.intraday.signals import find_anomalies, find_signals, price_lines, unchecked_lines
from kit.market import QuoteBatch

SESSION = date(2024, 9, 18)


@pytest.mark.parametrize(
    ("price", "severity", "bucket"),
    [
        (10.29, None, None),  # +2.9 %
        (10.30, "medium", "medium"),  # exactly +3 %
        (10.49, "medium", "medium"),
        (10.50, "high", "high"),  # exactly +5 %
        (9.50, "high", "high"),
        (9.20, "high", "extreme"),
    ],
)
def test_thresholds_include_their_edge(
    portfolio: Portfolio,
    batch: Callable[..., QuoteBatch],
    config: dict[str, Any],
    price: float,
    severity: str | None,
    bucket: str | None,
) -> None:
    rows = build_rows(portfolio, batch({"600000.SH": (price, 10.0)}), SESSION)
    found = find_anomalies(rows, config)
    assert [(a.severity, a.bucket) for a in found] == ([(severity, bucket)] if severity else [])


def test_signals_come_most_urgent_first_with_their_reason(
    portfolio: Portfolio, batch: Callable[..., QuoteBatch], config: dict[str, Any]
) -> None:
    rows = build_rows(
        portfolio, batch({"600000.SH": (8.05, 8.25), "000151.SZ": (10.26, 9.75)}), SESSION
    )
    signals = find_signals(rows, find_anomalies(rows, config))
    assert [signal.line for signal in signals] == [
        "STOP 600000 现价 8.05 ≤ 止损线 8.05",
        "ALERT 000151 今日 +5.2%",
        "TRIM 000151 现价 10.26 ≥ 减仓线 10.00",
    ]
    # 8.05/8.42-1 = -4.394 %
    assert signals[0].reasons == ("· 成本 8.42，现价 8.05，浮动 -4.4%",)
    assert signals[1].breach == {
        "ticker": "000151",
        "kind": "move",
        "level": "high",
        "direction": "up",
    }
    assert signals[2].breach == {"ticker": "000151", "kind": "price_line", "level": "TRIM"}


def test_lines_know_how_far_away_they_are(
    portfolio: Portfolio, batch: Callable[..., QuoteBatch]
) -> None:
    rows = build_rows(
        portfolio, batch({"600000.SH": (8.31, 8.35), "000151.SZ": (9.9, 9.9)}), SESSION
    )
    nearest, other = price_lines(rows)
    assert (nearest.label, nearest.kind, nearest.met) == ("000151", "trim", False)
    assert f"{nearest.pct_to_trigger:.3f}" == "1.010"  # 10.00/9.90-1
    assert f"{other.pct_to_trigger:.3f}" == "-3.129"  # 8.05/8.31-1


def test_a_stale_price_makes_no_signal(
    portfolio: Portfolio, batch: Callable[..., QuoteBatch], config: dict[str, Any]
) -> None:
    quotes = batch({"600000.SH": (7.0, 8.35)})
    old = quotes.at - timedelta(minutes=40)
    rows = build_rows(
        portfolio, batch({"600000.SH": (7.0, 8.35)}, stale={"600000.SH": old}), SESSION
    )
    assert find_anomalies(rows, config) == ()
    assert find_signals(rows, ()) == ()
    assert price_lines(rows) == ()
    # The stop at 8.05 was passed at 7.00, and 000151 has no price at all: neither may vanish.
    assert unchecked_lines(rows) == (
        "600000 止损线 8.05（上一笔 7.00 已到价，未发信号）",
        "000151 减仓线 10.00",
    )


def test_a_verified_row_leaves_nothing_unchecked(
    portfolio: Portfolio, batch: Callable[..., QuoteBatch]
) -> None:
    rows = build_rows(
        portfolio, batch({"600000.SH": (8.31, 8.35), "000151.SZ": (9.9, 9.9)}), SESSION
    )
    assert unchecked_lines(rows) == ()


def test_an_earlier_session_makes_no_move_however_the_source_calls_it(
    portfolio: Portfolio, batch: Callable[..., QuoteBatch], config: dict[str, Any]
) -> None:
    rows = build_rows(portfolio, batch({"600000.SH": (9.5, 8.35)}), date(2024, 9, 19))
    assert rows[0].fresh
    assert find_anomalies(rows, config) == ()
