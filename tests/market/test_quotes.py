from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from kit.errors import UsageError
from kit.market import Quote, QuoteBatch, market_info, market_names, sample_quotes
from kit.market.sources import SampleSource
from kit.workspace import Workspace

SHANGHAI = ZoneInfo("Asia/Shanghai")


def _at(workspace: Workspace, text: str, *symbols: str) -> QuoteBatch:
    at = datetime.fromisoformat(text).replace(tzinfo=SHANGHAI)
    return sample_quotes(SampleSource(), workspace).quotes(symbols or ["600000.SH"], at)


def _one(workspace: Workspace, text: str) -> Quote:
    return _at(workspace, text).quotes["600000.SH"]


def test_the_price_is_the_close_of_the_last_bar_that_has_ended(workspace: Workspace) -> None:
    # 600000.SH, 27 August 2024: the bars ending 09:31, 09:32 and 09:33 close at 8.88, 8.91, 8.91.
    assert _one(workspace, "2024-08-27T09:31:00").price == 8.88
    assert _one(workspace, "2024-08-27T09:31:59").price == 8.88
    quote = _one(workspace, "2024-08-27T09:33:00")
    assert (quote.price, quote.open, quote.high, quote.low) == (8.91, 8.87, 8.91, 8.85)
    assert quote.volume == 1110300 + 233500 + 259300
    assert quote.time == datetime(2024, 8, 27, 9, 33, tzinfo=SHANGHAI)
    assert (quote.name, quote.source, quote.stale) == ("浦发银行", "sample", False)


def test_the_previous_close_is_of_the_session_before_the_quote(workspace: Workspace) -> None:
    # After the Mid-Autumn holiday the session before 18 September is the 13th, closed at 8.35.
    quote = _one(workspace, "2024-09-18T13:33:00")
    assert quote.prev_close == 8.35
    assert quote.change == pytest.approx(quote.price / 8.35 - 1)


def test_the_day_adds_up_to_the_daily_bar(workspace: Workspace) -> None:
    quote = _one(workspace, "2024-09-18T15:00:00")
    assert (quote.open, quote.high, quote.low, quote.price) == (8.35, 8.45, 8.26, 8.32)
    assert quote.volume == pytest.approx(20139428, rel=1e-5)


def test_before_the_open_the_last_session_speaks_and_is_not_stale(workspace: Workspace) -> None:
    quote = _one(workspace, "2024-09-18T09:00:00")
    assert quote.time == datetime(2024, 9, 13, 15, 0, tzinfo=SHANGHAI)
    assert (quote.price, quote.prev_close, quote.stale) == (8.35, 8.47, False)


@pytest.mark.parametrize(
    ("at", "stale"),
    [
        ("2024-09-18T12:30:00", False),  # a lunch break ages nothing
        ("2024-09-18T16:30:00", False),  # nor does the evening
        ("2024-09-19T09:00:00", False),  # nor the night, until the next session opens
        ("2024-09-19T09:31:00", True),  # it opened, and there is no bar of it
        ("2024-09-23T10:00:00", True),
        ("2027-03-01T10:00:00", True),  # beyond the calendar the wall clock counts
    ],
)
def test_age_is_counted_in_trading_minutes(workspace: Workspace, at: str, stale: bool) -> None:
    batch = _at(workspace, at)
    assert batch.quotes["600000.SH"].stale is stale
    assert batch.stale == (("600000.SH",) if stale else ())


def test_a_quote_goes_stale_after_the_minutes_of_the_config(
    workspace: Workspace, make_bars: Any, make_source: Any
) -> None:
    class Gap(SampleSource):
        """The sample with its bars after 10:00 withheld."""

        def bars(self, symbols: Any, start: Any, end: Any, interval: str = "1d") -> Any:
            import polars as pl

            bars = super().bars(symbols, start, end, interval)
            late = pl.col("time") > datetime(2024, 9, 18, 10, 0)
            return bars if interval == "1d" else bars.filter(~late)

    quotes = sample_quotes(Gap(), workspace)
    for minute, stale in ((5, False), (6, True)):
        at = datetime(2024, 9, 18, 10, minute, tzinfo=SHANGHAI)
        assert quotes.quotes(["600000.SH"], at).quotes["600000.SH"].stale is stale


def test_what_is_missing_is_named_with_a_reason(workspace: Workspace) -> None:
    batch = _at(
        workspace, "2024-09-18T10:03:00", "NOPE", "000300.SH", "600000.SH", "601318.SH", "000001.SZ"
    )
    assert list(batch.quotes) == ["600000.SH", "000001.SZ"]
    assert batch.missing == {
        "NOPE": "数据源没有该代码",
        "000300.SH": "2024-09-18 10:03 及以前没有分钟行情",
        "601318.SH": "2024-09-18 10:03 及以前没有分钟行情",
    }
    early = _at(workspace, "2024-08-26T10:00:00")
    assert early.quotes == {}
    assert early.missing == {"600000.SH": "2024-08-26 10:00 及以前没有分钟行情"}


def test_five_minute_bars_serve_where_there_are_no_finer_ones(workspace: Workspace) -> None:
    batch = _at(workspace, "2020-05-18T09:44:59", "000338.SZ")
    quote = batch.quotes["000338.SZ"]
    assert (quote.price, quote.time.minute) == (13.86, 40)


def test_a_symbol_without_a_session_before_has_no_previous_close(
    workspace: Workspace, make_bars: Any, make_source: Any
) -> None:
    source = make_source(make_bars("600000.SH", ["2024-09-18T09:31:00"], [9.0]))
    at = datetime(2024, 9, 18, 9, 32, tzinfo=SHANGHAI)
    batch = sample_quotes(source, workspace).quotes(["600000.SH"], at)
    assert batch.missing == {"600000.SH": "没有前收盘价"}


def test_any_zone_will_do_but_there_must_be_one(workspace: Workspace) -> None:
    quotes = sample_quotes(SampleSource(), workspace)
    utc = quotes.quotes(["600000.SH"], datetime(2024, 8, 27, 1, 33, tzinfo=UTC))
    assert utc.quotes["600000.SH"].price == 8.91
    with pytest.raises(UsageError) as caught:
        quotes.quotes(["600000.SH"], datetime(2024, 8, 27, 9, 33))
    assert caught.value.code == "time.bad_instant"


def test_markets_have_the_slots_of_the_house(workspace: Workspace) -> None:
    assert market_names(workspace) == ("cn", "hk", "us")
    cn, hk, us = (market_info(workspace, name) for name in ("cn", "hk", "us"))
    assert [f"{slot:%H:%M}" for slot in cn.slots] == (
        ["09:33", "10:03", "10:33", "11:03", "13:03", "13:33", "14:03", "14:33"]
    )
    assert (cn.enabled, hk.enabled, us.enabled) == (False, True, True)
    assert len(hk.slots) == 8
    assert len(us.slots) == 10
    day = datetime.combine(date(2024, 1, 2), us.slots[0])
    gaps = {datetime.combine(date(2024, 1, 2), slot) - day for slot in us.slots}
    assert gaps == {timedelta(minutes=30 * step) for step in range(10)}
    assert (cn.zone, cn.currency, cn.benchmark, cn.has_rules) == (
        SHANGHAI,
        "CNY",
        "000300.SH",
        True,
    )
    assert hk.has_rules
    assert us.has_rules


@pytest.mark.parametrize(
    ("symbol", "at", "synthetic"),
    [
        ("SYN1.HK", datetime(2024, 9, 19, 10, 3, tzinfo=ZoneInfo("Asia/Hong_Kong")), True),
        ("AAPL", datetime(2023, 9, 21, 10, 3, tzinfo=ZoneInfo("America/New_York")), True),
        ("600000.SH", datetime(2024, 9, 18, 10, 3, tzinfo=SHANGHAI), False),
    ],
)
def test_quotes_of_generated_minutes_are_marked(
    workspace: Workspace, symbol: str, at: datetime, synthetic: bool
) -> None:
    batch = sample_quotes(SampleSource(), workspace).quotes([symbol], at)
    assert batch.quotes[symbol].synthetic is synthetic
    assert batch.synthetic is synthetic
    assert not batch.stale
    assert batch.quotes[symbol].time == at
