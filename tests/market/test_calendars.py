from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import pytest
import time_machine

from kit import files
from kit.errors import ConfigError, DataError, UsageError
from kit.market import calendar
from kit.market.sources import SampleSource
from kit.workspace import Workspace


def _overlay(workspace: Workspace, exchange: str, **changes: Any) -> None:
    path = workspace.config_dir / "calendars.json"
    book = files.read_json(path)
    book["exchanges"][exchange] |= changes
    files.write_json(path, book)


def test_holidays_and_make_up_saturdays_are_closed(workspace: Workspace) -> None:
    book = calendar(workspace, "cn")
    assert book.is_session(date(2024, 9, 30)) is True
    assert book.is_session(date(2024, 10, 1)) is False  # National Day
    assert book.is_session(date(2024, 9, 14)) is False  # a working Saturday, no session
    assert book.is_session(date(2024, 2, 9)) is False  # Lunar New Year's Eve
    assert book.next(date(2024, 9, 30)) == date(2024, 10, 8)
    assert book.previous(date(2024, 10, 8)) == date(2024, 9, 30)
    assert book.sessions(date(2024, 9, 13), date(2024, 9, 20)) == (
        date(2024, 9, 13),
        date(2024, 9, 18),
        date(2024, 9, 19),
        date(2024, 9, 20),
    )


def test_it_agrees_with_the_days_the_sample_really_traded(workspace: Workspace) -> None:
    for market, symbol in (("cn", "000300.SH"), ("cn", "601318.SH"), ("us", "AAPL")):
        bars = SampleSource().bars([symbol], date(2018, 1, 1), date(2024, 12, 31)).collect()
        days = tuple(stamp.date() for stamp in bars["time"])
        assert calendar(workspace, market).sessions(days[0], days[-1]) == days


def test_the_lunch_break_is_not_trading(workspace: Workspace) -> None:
    session = calendar(workspace, "cn").session(date(2024, 9, 19))
    assert session is not None
    zone = session.open.tzinfo

    def at(text: str) -> datetime:
        return datetime.combine(session.date, time.fromisoformat(text), zone)

    opens = {text: session.is_open(at(text)) for text in ("09:29", "09:30", "11:29", "11:30")}
    assert opens == {"09:29": False, "09:30": True, "11:29": True, "11:30": False}
    assert not session.is_open(at("12:59"))
    assert session.is_open(at("13:00"))
    assert not session.is_open(at("15:00"))
    assert session.minutes_traded(at("09:00"), at("16:00")) == 240
    assert session.minutes_traded(at("11:28"), at("13:03")) == 5
    assert session.minutes_traded(at("11:40"), at("12:40")) == 0


def test_a_half_day_ends_early(workspace: Workspace) -> None:
    friday = calendar(workspace, "us").session(date(2023, 11, 24))
    assert friday is not None
    assert friday.close.time() == time(13, 0)
    assert not friday.is_open(friday.close)
    eve = calendar(workspace, "hk").session(date(2024, 2, 9))
    assert eve is not None
    assert (eve.close.time(), eve.break_start) == (time(12, 0), None)


def test_summer_time_moves_the_session_in_utc_only(workspace: Workspace) -> None:
    book = calendar(workspace, "us")
    before, after = book.session(date(2024, 3, 8)), book.session(date(2024, 3, 11))
    assert before is not None
    assert after is not None
    assert (before.open.time(), after.open.time()) == (time(9, 30), time(9, 30))
    assert before.open.astimezone(UTC).time() == time(14, 30)
    assert after.open.astimezone(UTC).time() == time(13, 30)


def test_an_instant_falls_on_the_exchange_date(workspace: Workspace) -> None:
    book = calendar(workspace, "us")
    session = book.at(datetime(2024, 3, 8, 18, 0, tzinfo=UTC) - timedelta(hours=4))
    assert session is not None
    assert session.date == date(2024, 3, 8)
    # 01:00 UTC on Saturday is Friday evening in New York.
    evening = book.at(datetime(2024, 3, 9, 1, 0, tzinfo=UTC))
    assert evening is not None
    assert evening.date == date(2024, 3, 8)


def test_typhoon_days_the_library_does_not_know(workspace: Workspace) -> None:
    book = calendar(workspace, "hk")
    assert book.is_session(date(2023, 9, 1)) is False
    assert book.is_session(date(2023, 9, 8)) is False
    assert book.next(date(2023, 8, 31)) == date(2023, 9, 4)
    for day in (date(2020, 8, 19), date(2021, 6, 28)):
        session = book.session(day)
        assert session is not None
        assert (session.open.time(), session.close.time()) == (time(13, 30), time(16, 0))
        assert session.break_start is None
        assert session.minutes_traded(session.open, session.close) == 150


def test_every_overlay_entry_has_a_source(repository: Any) -> None:
    book = files.read_json(repository / "config" / "calendars.json")
    for exchange in book["exchanges"].values():
        for key in ("closures", "late_opens", "early_closes"):
            assert all(entry["source"].startswith("https://") for entry in exchange[key])


@pytest.mark.parametrize("now", ["2024-01-01", "2026-12-01", "2031-01-01"])
def test_the_horizon_does_not_follow_the_machine_clock(workspace: Workspace, now: str) -> None:
    with time_machine.travel(now, tick=False):
        horizons = {m: calendar(workspace, m).known_until for m in ("cn", "hk", "us")}
    assert horizons == {
        "cn": date(2026, 12, 31),
        "hk": date(2027, 12, 31),
        "us": date(2027, 12, 31),
    }


def test_beyond_the_horizon_nothing_is_claimed(workspace: Workspace) -> None:
    book = calendar(workspace, "cn")
    monday = date(2027, 1, 4)
    assert book.is_session(date(2026, 12, 31)) is True
    assert book.is_session(monday) is None
    assert book.is_session(date(2027, 1, 2)) is None  # not even for a Saturday
    assert book.session(monday) is None
    assert book.is_session(date(1999, 12, 31)) is None
    assert book.previous(date(2027, 1, 1)) == date(2026, 12, 31)
    for call in (
        lambda: book.next(date(2026, 12, 31)),
        lambda: book.next(monday),
        lambda: book.previous(monday),
        lambda: book.sessions(date(2026, 12, 1), monday),
        lambda: book.previous(date(2000, 1, 1)),
    ):
        with pytest.raises(DataError) as caught:
            call()
        assert caught.value.code == "calendar.unknown"
        assert "extension" in caught.value.remedy


def test_published_closures_extend_the_calendar(workspace: Workspace) -> None:
    _overlay(
        workspace,
        "XSHG",
        extension={"until": "2027-01-31", "closures": ["2027-01-01"], "source": "a notice"},
    )
    book = calendar(workspace, "cn")
    assert book.known_until == date(2027, 1, 31)
    assert book.is_session(date(2027, 1, 1)) is False
    assert book.is_session(date(2027, 1, 2)) is False  # Saturday
    assert book.is_session(date(2027, 2, 1)) is None
    assert book.next(date(2026, 12, 31)) == date(2027, 1, 4)
    session = book.session(date(2027, 1, 4))
    assert session is not None
    assert (session.open.time(), session.close.time()) == (time(9, 30), time(15, 0))
    assert session.break_start is not None
    assert session.break_start.time() == time(11, 30)


def test_closures_late_opens_and_early_closes_of_the_overlay(workspace: Workspace) -> None:
    why = {"reason": "test", "source": "https://example.org"}
    _overlay(
        workspace,
        "XSHG",
        closures=[{"date": "2024-09-18", **why}, {"date": "2024-09-15", **why}],
        late_opens=[{"date": "2024-09-19", "open": "10:30", **why}],
        early_closes=[
            {"date": "2024-09-19", "close": "14:00", **why},
            {"date": "2024-09-20", "close": "12:00", **why},
        ],
    )
    book = calendar(workspace, "cn")
    assert book.next(date(2024, 9, 13)) == date(2024, 9, 19)
    day = book.session(date(2024, 9, 19))
    assert day is not None
    assert (day.open.time(), day.close.time()) == (time(10, 30), time(14, 0))
    assert day.break_start is not None
    morning = book.session(date(2024, 9, 20))
    assert morning is not None
    # Closed during the lunch break: the morning's end is the end.
    assert (morning.close.time(), morning.break_start) == (time(11, 30), None)


def test_a_wrong_overlay_is_refused_with_its_path(workspace: Workspace) -> None:
    _overlay(workspace, "XHKG", closures=[{"date": "2023-9-1", "reason": "x", "source": "y"}])
    with pytest.raises(ConfigError) as caught:
        calendar(workspace, "hk")
    assert "exchanges.XHKG.closures[0].date" in str(caught.value)
    _overlay(workspace, "XHKG", closures=[{"date": "2023-02-30", "reason": "x", "source": "y"}])
    with pytest.raises(UsageError, match="2023-02-30"):
        calendar(workspace, "hk")


def test_an_unknown_market_is_refused_with_a_hint(workspace: Workspace) -> None:
    with pytest.raises(UsageError) as caught:
        calendar(workspace, "CN")
    assert (caught.value.code, caught.value.remedy[:16]) == ("market.unknown", "did you mean cn?")
