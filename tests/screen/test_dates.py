"""Which date a screen is for."""

from __future__ import annotations

from datetime import date, datetime, time
from typing import Any, cast
from zoneinfo import ZoneInfo

import pytest

from kit.clock import parse_instant
from kit.errors import UsageError
from kit.market import Calendar
from kit.screen import due_date, latest_date, requested_date

SHANGHAI = ZoneInfo("Asia/Shanghai")
ASOF = (time(16, 30), SHANGHAI)
# 2024-09-16 and 17 were the Mid-Autumn holiday; 18 to 20 were sessions.
SESSIONS = {date(2024, 9, 12), date(2024, 9, 13), date(2024, 9, 18), date(2024, 9, 19)}


class Days:
    def __init__(self, until: date = date(2024, 9, 30)) -> None:
        self.until = until

    def is_session(self, day: date) -> bool | None:
        return None if day > self.until else day in SESSIONS


def days(until: date = date(2024, 9, 30)) -> Calendar:
    return cast(Calendar, cast(Any, Days(until)))


def at(text: str) -> datetime:
    return parse_instant(text)


def test_the_latest_session_is_today_once_its_data_is_complete() -> None:
    assert latest_date(days(), ASOF, at("2024-09-19T16:30:00+08:00")).day == date(2024, 9, 19)
    assert latest_date(days(), ASOF, at("2024-09-19T16:29:59+08:00")).day == date(2024, 9, 18)
    # Over the holiday and the weekend.
    assert latest_date(days(), ASOF, at("2024-09-17T20:00:00+08:00")).day == date(2024, 9, 13)
    # The zone is the exchange's: this is still the 18th there, before the as-of time.
    assert latest_date(days(), ASOF, at("2024-09-17T20:00:00-04:00")).day == date(2024, 9, 13)


def test_beyond_the_calendar_a_weekday_is_unknown_and_a_weekend_closed() -> None:
    known = days(until=date(2024, 9, 18))
    friday = latest_date(known, ASOF, at("2024-09-20T17:00:00+08:00"))
    assert (friday.day, friday.open, friday.closed) == (date(2024, 9, 20), None, False)
    sunday = latest_date(known, ASOF, at("2024-09-22T17:00:00+08:00"))
    assert sunday.day == date(2024, 9, 20)


def test_no_session_for_weeks_is_an_error() -> None:
    with pytest.raises(UsageError) as caught:
        latest_date(days(), ASOF, at("2024-08-01T17:00:00+08:00"))
    assert caught.value.code == "screen.no_session"


@pytest.mark.parametrize(
    ("day", "code"),
    [(date(2024, 9, 20), "screen.future_date"), (date(2024, 9, 19), "screen.too_early")],
)
def test_a_date_whose_data_cannot_be_there_is_refused(day: date, code: str) -> None:
    with pytest.raises(UsageError) as caught:
        requested_date(day, days(), ASOF, at("2024-09-19T16:00:00+08:00"))
    assert caught.value.code == code
    assert caught.value.remedy


def test_a_past_session_is_fine_and_a_closed_day_is_closed() -> None:
    now = at("2024-09-19T16:00:00+08:00")
    assert requested_date(date(2024, 9, 18), days(), ASOF, now).open is True
    assert requested_date(date(2024, 9, 17), days(), ASOF, now).closed


def test_unattended_only_today_counts() -> None:
    due = due_date(days(), ASOF, at("2024-09-19T16:45:00+08:00"))
    assert due is not None
    assert (due.day, due.closed) == (date(2024, 9, 19), False)
    assert due_date(days(), ASOF, at("2024-09-19T16:00:00+08:00")) is None
    holiday = due_date(days(), ASOF, at("2024-09-17T10:00:00+08:00"))
    assert holiday is not None
    assert holiday.closed
