from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

from kit.clock import FixedClock, SystemClock, iso, parse_date, parse_instant
from kit.errors import UsageError


def test_fixed_clock_moves_only_when_told() -> None:
    clock = FixedClock("2024-09-18T10:03:00+08:00")
    assert clock.now() == datetime(2024, 9, 18, 2, 3, tzinfo=UTC)
    clock.sleep(90)
    assert clock.now() == datetime(2024, 9, 18, 2, 4, 30, tzinfo=UTC)
    assert clock.monotonic() == 90
    clock.set("2024-09-18T01:00:00+00:00")
    assert clock.monotonic() == 90, "a clock stepping back never makes a negative duration"


def test_system_clock_is_aware_utc() -> None:
    assert SystemClock().now().tzinfo is UTC


def test_parse_date() -> None:
    assert parse_date("2024-09-18") == date(2024, 9, 18)


@pytest.mark.parametrize(
    "text", ["20240918", "2024-9-18", "2024-02-30", "today", "", "2024-09-18 "]
)
def test_parse_date_refuses(text: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_date(text)
    assert error.value.code == "time.bad_date"
    assert "YYYY-MM-DD" in error.value.remedy


@pytest.mark.parametrize("text", ["0001-01-01", "1899-12-31", "2101-01-01", "9999-12-31"])
def test_dates_no_sum_can_be_made_of_are_refused(text: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_date(text)
    assert error.value.code == "time.bad_date"
    assert "1900 to 2100" in error.value.remedy
    # At the last offset the conversion to UTC alone would overflow.
    for offset in ("-14:00", "+14:00"):
        with pytest.raises(UsageError) as error:
            parse_instant(f"{text}T23:59{offset}")
        assert error.value.code == "time.bad_instant"


def test_the_first_and_last_years_are_dates() -> None:
    assert parse_date("1900-01-01") == date(1900, 1, 1)
    assert parse_instant("2100-12-31T23:59-14:00") == datetime(2101, 1, 1, 13, 59, tzinfo=UTC)


def test_parse_instant_wants_an_offset() -> None:
    assert iso(parse_instant("2024-09-18T10:03+08:00")) == "2024-09-18T02:03:00+00:00"
    with pytest.raises(UsageError, match="no offset"):
        parse_instant("2024-09-18T10:03")
    with pytest.raises(UsageError, match="not an instant"):
        parse_instant("10:03")
