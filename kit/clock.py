"""Injected time: the only module that reads the wall clock.

Instants are aware datetimes in UTC; dates are plain `datetime.date` in the exchange's own zone.
Durations come from `monotonic`, so that a clock stepping back never makes a negative one.
"""

from __future__ import annotations

import time
from datetime import UTC, date, datetime, timedelta
from typing import Protocol

from kit.errors import UsageError

__all__ = ["Clock", "FixedClock", "SystemClock", "iso", "parse_date", "parse_instant"]


# No market data is older, no calendar reaches further; beyond, sums with dates overflow.
# The first year leaves room for listing dates, which are read here too.
_FIRST_YEAR, _LAST_YEAR = 1900, 2100
_IN_RANGE = f"name a year from {_FIRST_YEAR} to {_LAST_YEAR}"


class Clock(Protocol):
    """Where time comes from."""

    def now(self) -> datetime:
        """Return the current instant, aware, in UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds on a clock that never steps back."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        """Return the current instant, aware, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return seconds on a clock that never steps back."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait that many seconds."""
        time.sleep(seconds)


class FixedClock:
    """A clock that stands still until told to move; `sleep` moves it.

    Args:
        at: An aware datetime, or ISO 8601 text with an offset.
    """

    def __init__(self, at: datetime | str) -> None:
        self._now = parse_instant(at) if isinstance(at, str) else at.astimezone(UTC)
        self._elapsed = 0.0

    def now(self) -> datetime:
        """Return the instant it stands at."""
        return self._now

    def monotonic(self) -> float:
        """Return the seconds slept so far."""
        return self._elapsed

    def sleep(self, seconds: float) -> None:
        """Advance by that many seconds, without waiting."""
        self._elapsed += seconds
        self._now += timedelta(seconds=seconds)

    def set(self, at: datetime | str) -> None:
        """Jump to another instant (back too: that is what a stepping clock does)."""
        self._now = parse_instant(at) if isinstance(at, str) else at.astimezone(UTC)


def parse_date(text: str) -> date:
    """Read `YYYY-MM-DD` of the years 1900 to 2100.

    Raises:
        UsageError: `time.bad_date`.
    """
    try:
        if len(text) != len("YYYY-MM-DD"):
            raise ValueError(text)
        day = date.fromisoformat(text)
    except (TypeError, ValueError) as error:
        raise UsageError(
            "time.bad_date",
            f"{text!r} is not a date",
            remedy="write it as YYYY-MM-DD, for example 2024-09-18",
        ) from error
    if not _FIRST_YEAR <= day.year <= _LAST_YEAR:
        raise UsageError("time.bad_date", f"{text!r} is out of range", remedy=_IN_RANGE)
    return day


def parse_instant(text: str) -> datetime:
    """Read an ISO 8601 instant with an offset, and return it in UTC.

    An instant without an offset is refused: guessing a zone is how slots get lost.

    Raises:
        UsageError: `time.bad_instant`.
    """
    remedy = "write it as ISO 8601 with an offset, for example 2024-09-18T10:03+08:00"
    try:
        instant = datetime.fromisoformat(text)
    except (TypeError, ValueError) as error:
        raise UsageError(
            "time.bad_instant", f"{text!r} is not an instant", remedy=remedy
        ) from error
    if instant.tzinfo is None:
        raise UsageError("time.bad_instant", f"{text!r} names no offset", remedy=remedy)
    # Asked before the conversion, which overflows at either end of the calendar.
    if not _FIRST_YEAR <= instant.year <= _LAST_YEAR:
        raise UsageError("time.bad_instant", f"{text!r} is out of range", remedy=_IN_RANGE)
    return instant.astimezone(UTC)


def iso(instant: datetime) -> str:
    """Write an aware instant as ISO 8601 to the second, keeping its own offset."""
    return instant.isoformat(timespec="seconds")
