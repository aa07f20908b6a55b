"""Series of other markets beside a panel: when they are seen, how they combine, who trades them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from zoneinfo import ZoneInfo

import pandas as pd
import polars as pl
import pytest

from kit.errors import DataError
from kit.market import (
    BAR_COLUMNS,
    Coverage,
    MarketPanel,
    SampleSource,
    Security,
    calendar,
    context_lag,
    load_panel,
    with_context,
)
from kit.market.context import landing, load_context, redate
from kit.workspace import Workspace, template_root

BASKET = ("AAPL", "AMZN", "GOOG", "META", "NFLX", "NVDA")
CN = ("600000.SH", "000001.SZ", "000151.SZ")
FIRST, LAST = date(2021, 6, 1), date(2023, 9, 21)


def bar(symbol: str, day: date, close: float, **other: object) -> dict[str, object]:
    row = {
        "symbol": symbol,
        "time": datetime(day.year, day.month, day.day),
        "open": close,
        "high": close,
        "low": close,
        "close": close,
        "volume": 1.0,
        "amount": None,
        "adj_factor": 1.0,
        "adjust": "none",
        "source": "made by hand",
    }
    return {**row, **other}


def frame(*rows: dict[str, object]) -> pl.DataFrame:
    return pl.DataFrame(list(rows), schema=BAR_COLUMNS)


@dataclass
class Given:
    """A source of exactly these bars."""

    rows: pl.DataFrame
    name: str = "given"

    def bars(
        self, symbols: Sequence[str], start: date, end: date, interval: str = "1d"
    ) -> pl.LazyFrame:
        assert interval == "1d"
        within = pl.col("time").dt.date().is_between(start, end)
        return self.rows.lazy().filter(pl.col("symbol").is_in(list(symbols)) & within)

    def securities(self, market: str) -> tuple[Security, ...]:
        return tuple(
            Security(symbol=symbol, name=symbol, market=market)
            for symbol in self.rows["symbol"].unique().sort()
        )

    def coverage(self, market: str, interval: str = "1d") -> Coverage:
        raise NotImplementedError

    def fingerprint(self, symbols: Sequence[str], start: date, end: date, interval: str) -> str:
        raise NotImplementedError


@pytest.fixture(scope="module")
def beside() -> MarketPanel:
    source = SampleSource()
    workspace = Workspace(root=template_root())
    own = load_panel(source, CN, FIRST, LAST, market="cn")
    return with_context(own, workspace, source, {"us": BASKET}, FIRST, LAST)


# When a session is seen


@pytest.mark.parametrize(
    ("home", "away", "day", "seen"),
    [
        ("cn", "us", date(2023, 3, 15), date(2023, 3, 16)),  # Wednesday night, seen on Thursday
        ("cn", "us", date(2023, 3, 17), date(2023, 3, 20)),  # Friday, seen on Monday
        ("cn", "us", date(2021, 6, 11), date(2021, 6, 15)),  # Dragon Boat on Monday the 14th
        ("cn", "us", date(2021, 6, 14), date(2021, 6, 15)),
        ("cn", "us", date(2023, 9, 28), date(2023, 10, 9)),  # Golden Week: eleven days later
        ("us", "cn", date(2023, 3, 15), date(2023, 3, 15)),  # 15:00 in Shanghai is 3:00 there
        ("us", "cn", date(2023, 7, 4), date(2023, 7, 5)),  # Independence Day
        ("hk", "cn", date(2023, 3, 15), date(2023, 3, 16)),  # both closed in the afternoon
        ("cn", "hk", date(2023, 3, 15), date(2023, 3, 16)),
        ("us", "hk", date(2023, 3, 15), date(2023, 3, 15)),
    ],
)
def test_a_session_is_seen_by_the_first_that_begins_after_it(
    workspace: Workspace, home: str, away: str, day: date, seen: date
) -> None:
    assert landing(calendar(workspace, home), calendar(workspace, away), day) == seen


def test_the_clock_change_moves_the_close_and_not_the_date(workspace: Workspace) -> None:
    """New York put its clocks forward on 12 March 2023: 5:00 became 4:00 in Shanghai."""
    us = calendar(workspace, "us")
    shanghai = ZoneInfo("Asia/Shanghai")
    before, after = us.session(date(2023, 3, 10)), us.session(date(2023, 3, 13))
    assert before is not None
    assert after is not None
    assert before.close.astimezone(shanghai).hour == 5
    assert after.close.astimezone(shanghai).hour == 4
    cn = calendar(workspace, "cn")
    assert landing(cn, us, date(2023, 3, 10)) == date(2023, 3, 13)
    assert landing(cn, us, date(2023, 3, 13)) == date(2023, 3, 14)


def test_a_bar_of_a_closed_day_is_refused(workspace: Workspace) -> None:
    with pytest.raises(DataError, match="2023-07-04") as caught:
        landing(calendar(workspace, "cn"), calendar(workspace, "us"), date(2023, 7, 4))
    assert caught.value.code == "data.off_session"


def test_no_row_is_known_later_than_its_own_open(workspace: Workspace, beside: MarketPanel) -> None:
    """The promise itself, for every session of two years, against both calendars."""
    cn, us = calendar(workspace, "cn"), calendar(workspace, "us")
    raw = load_panel(SampleSource(), ["AAPL"], FIRST, LAST, market="us")["AAPL"]["close"]
    closed = {day: us.session(day.date()).close for day in raw.index}  # type: ignore[union-attr]
    for stamp, close in beside["AAPL"]["close"].items():
        opens = cn.session(stamp.date())
        assert opens is not None
        over = [day for day, at in closed.items() if at < opens.open]
        assert close == raw[over[-1]]


# How sessions combine


def test_sessions_of_a_holiday_here_are_one_bar(workspace: Workspace) -> None:
    bars = frame(
        bar("X", date(2021, 6, 10), 10.0),
        bar("X", date(2021, 6, 11), 12.0, open=11.0, high=15.0, low=9.0, volume=3.0, amount=30.0),
        bar("X", date(2021, 6, 14), 13.0, open=12.5, high=14.0, low=8.0, volume=4.0, amount=50.0),
    )
    found = redate(bars, calendar(workspace, "cn"), calendar(workspace, "us"), date(2021, 6, 30))
    assert found["time"].to_list() == [datetime(2021, 6, 11), datetime(2021, 6, 15)]
    row = found.row(1, named=True)
    names = ("open", "high", "low", "close", "volume", "amount")
    assert [row[name] for name in names] == [11.0, 15.0, 8.0, 13.0, 7.0, 80.0]
    assert found.columns == list(BAR_COLUMNS)


def test_an_amount_that_is_not_known_of_all_is_not_known(workspace: Workspace) -> None:
    bars = frame(bar("X", date(2021, 6, 11), 12.0, amount=30.0), bar("X", date(2021, 6, 14), 13.0))
    found = redate(bars, calendar(workspace, "cn"), calendar(workspace, "us"), date(2021, 6, 30))
    assert found["amount"].to_list() == [None]


def test_a_split_inside_one_bar_makes_no_gap(workspace: Workspace) -> None:
    """100 before a 4-for-1 split is 25 after it: high and low are told in the later money."""
    bars = frame(
        bar("X", date(2021, 6, 11), 100.0, adj_factor=1.0),
        bar("X", date(2021, 6, 14), 26.0, adj_factor=4.0),
    )
    found = redate(bars, calendar(workspace, "cn"), calendar(workspace, "us"), date(2021, 6, 30))
    row = found.row(0, named=True)
    assert (row["open"], row["high"], row["low"], row["close"]) == (25.0, 26.0, 25.0, 26.0)
    assert row["adj_factor"] == 4.0


def test_a_holiday_there_leaves_no_bar(beside: MarketPanel) -> None:
    # New York was closed on Monday, 5 July 2021: Shanghai's Tuesday has nothing new.
    days = beside["AAPL"].index
    assert pd.Timestamp("2021-07-05") in days
    assert pd.Timestamp("2021-07-06") in beside.dates
    assert pd.Timestamp("2021-07-06") not in days
    assert pd.Timestamp("2021-07-07") in days


def test_sessions_before_the_window_fall_into_its_first_day(workspace: Workspace) -> None:
    # The first session after Golden Week 2023 sees all of the week's five New York sessions and
    # the two before: Thursday the 28th to Friday the 6th.
    days = [date(2023, 9, d) for d in (27, 28, 29)] + [date(2023, 10, d) for d in (2, 3, 4, 5, 6)]
    source = Given(frame(*(bar("X", day, 1.0 + n) for n, day in enumerate(days))))
    found = load_context(
        workspace, source, {"us": ["X"]}, date(2023, 10, 9), date(2023, 10, 9), market="cn"
    )["X"]
    assert found.index.to_list() == [pd.Timestamp("2023-10-09")]
    assert found["open"].to_list() == [2.0]
    assert found["close"].to_list() == [8.0]
    assert found["volume"].to_list() == [7.0]


def test_several_markets_stand_beside_one_panel(workspace: Workspace) -> None:
    source = Given(
        frame(
            bar("0005.HK", date(2023, 3, 15), 50.0),
            bar("X", date(2023, 3, 15), 7.0),
        )
    )
    wanted = {"us": ["X"], "hk": ["0005.HK"]}
    found = load_context(
        workspace, source, wanted, date(2023, 3, 1), date(2023, 3, 31), market="cn"
    )
    assert list(found) == ["X", "0005.HK"]
    assert found["X"].index[0] == found["0005.HK"].index[0] == pd.Timestamp("2023-03-16")


def test_a_series_without_a_bar_is_named(workspace: Workspace) -> None:
    source = Given(frame(bar("X", date(2023, 3, 15), 7.0)))
    with pytest.raises(DataError, match="Y") as caught:
        load_context(
            workspace, source, {"us": ["X", "Y"]}, date(2023, 3, 1), date(2023, 3, 31), market="cn"
        )
    assert caught.value.code == "data.missing_symbols"


# Beside a panel


def test_it_is_shown_and_belongs_to_nobody(beside: MarketPanel) -> None:
    assert list(beside) == [*CN, *BASKET]
    assert len(beside) == 9
    assert "AAPL" in beside
    assert beside.symbols == CN
    assert list(beside.wide("close").columns) == list(CN)
    assert set(beside.raw["symbol"].unique()) == set(CN)
    assert beside.context is not None
    assert beside.context.symbols == BASKET
    with pytest.raises(KeyError):
        beside["MSFT"]


def test_what_an_engine_does_to_a_frame_stays_there(beside: MarketPanel) -> None:
    changed = beside["AAPL"]
    before = changed["close"].iloc[0]
    changed["close"] = 0.0
    assert beside["AAPL"]["close"].iloc[0] == before


def test_the_fingerprint_covers_it(workspace: Workspace, beside: MarketPanel) -> None:
    source = SampleSource()
    own = load_panel(source, CN, FIRST, LAST, market="cn")
    fewer = with_context(own, workspace, source, {"us": BASKET[:5]}, FIRST, LAST)
    assert len({own.fingerprint, fewer.fingerprint, beside.fingerprint}) == 3
    assert with_context(own, workspace, source, {}, FIRST, LAST) is own


def test_the_notes_name_it(beside: MarketPanel) -> None:
    assert any("AAPL" in note and "不交易" in note for note in beside.notes())


def test_views_keep_it_and_cut_it(beside: MarketPanel) -> None:
    day = date(2022, 3, 1)
    cut = beside.upto(day)
    assert cut["AAPL"].index[-1] == pd.Timestamp(day)
    assert cut["AAPL"].equals(beside["AAPL"].loc[: pd.Timestamp(day)])
    assert list(beside.select(["600000.SH"])) == ["600000.SH", *BASKET]
    # The very first session of the sample has no older New York session to show.
    assert list(beside.upto(FIRST)) == list(CN)
    assert beside.upto(FIRST).context is None


# Age


def test_a_basket_that_is_up_to_date_is_not_behind(
    workspace: Workspace, beside: MarketPanel
) -> None:
    assert context_lag(workspace, beside, {"us": BASKET}, LAST) == []
    # After a holiday there the newest row is older than the day, and nothing is missing.
    day = date(2021, 7, 6)
    assert context_lag(workspace, beside.upto(day), {"us": BASKET}, day) == []


def test_one_series_that_stopped_is_named_with_its_age(workspace: Workspace) -> None:
    week = [date(2023, 3, d) for d in (13, 14, 15)]
    rows = [bar("X", day, 1.0) for day in week] + [bar("Y", day, 1.0) for day in week[:2]]
    home = [bar("600000.SH", date(2023, 3, d), 7.0) for d in (14, 15, 16)]
    source = Given(frame(*rows, *home))
    first, last = date(2023, 3, 14), date(2023, 3, 16)
    own = load_panel(source, ["600000.SH"], first, last, market="cn")
    panel = with_context(own, workspace, source, {"us": ["X", "Y"]}, first, last)
    (lag,) = context_lag(workspace, panel, {"us": ["X", "Y"]}, last)
    assert lag.symbols == ("Y",)
    assert lag.minutes == 24 * 60
    assert lag.data_time.date() == date(2023, 3, 14)
    assert lag.expected_time.date() == date(2023, 3, 15)
