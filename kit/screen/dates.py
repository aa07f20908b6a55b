"""Which trade date a screen speaks for, and whether it may run yet."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from kit.errors import UsageError

if TYPE_CHECKING:
    from kit.market import Calendar

__all__ = ["TradeDate", "due_date", "latest_date", "requested_date"]

_SATURDAY = 5
# No exchange has ever been closed for longer than this many days in a row in the years covered.
_MOST_DAYS_BACK = 40


@dataclass(frozen=True, kw_only=True)
class TradeDate:
    """A trade date and what the calendar says of it.

    Attributes:
        day: The date.
        open: True, False, or None when the calendar does not reach it.
    """

    day: date
    open: bool | None

    @property
    def closed(self) -> bool:
        """Whether there is nothing to screen: a known closure, or a weekend beyond the calendar."""
        return self.open is False or (self.open is None and self.day.weekday() >= _SATURDAY)


def requested_date(
    day: date, calendar: Calendar, asof: tuple[time, ZoneInfo], now: datetime
) -> TradeDate:
    """Check a date that a person asked for.

    Args:
        day: The date.
        calendar: Calendar of the market.
        asof: Time of day after which the data of a session is complete, and its zone.
        now: The present instant, aware.

    Raises:
        UsageError: `screen.future_date`, or `screen.too_early` before the date's as-of time.
    """
    today = now.astimezone(asof[1]).date()
    if day > today:
        raise UsageError(
            "screen.future_date",
            f"{day} lies in the future: today is {today} at the exchange",
            remedy="name a past session, or leave --date out for the latest one",
        )
    found = TradeDate(day=day, open=calendar.is_session(day))
    if not found.closed and not _complete(day, asof, now):
        raise UsageError(
            "screen.too_early",
            f"the data of {day} is complete from {asof[0]:%H:%M} {asof[1].key} on; it is "
            f"{now.astimezone(asof[1]):%H:%M} there",
            remedy="wait until then, or name an earlier session with --date",
        )
    return found


def due_date(calendar: Calendar, asof: tuple[time, ZoneInfo], now: datetime) -> TradeDate | None:
    """Return today's date at the exchange for an unattended run; None before its as-of time."""
    day = now.astimezone(asof[1]).date()
    found = TradeDate(day=day, open=calendar.is_session(day))
    return found if found.closed or _complete(day, asof, now) else None


def latest_date(calendar: Calendar, asof: tuple[time, ZoneInfo], now: datetime) -> TradeDate:
    """Return the latest session whose data is complete.

    Raises:
        UsageError: `screen.no_session` when the calendar has none for weeks.
    """
    today = now.astimezone(asof[1]).date()
    for back in range(_MOST_DAYS_BACK):
        day = today - timedelta(days=back)
        found = TradeDate(day=day, open=calendar.is_session(day))
        if not found.closed and _complete(day, asof, now):
            return found
    raise UsageError(
        "screen.no_session",
        f"no session of the last {_MOST_DAYS_BACK} days before {today} is known",
        remedy="name one with --date, or mend config/calendars.json",
    )


def _complete(day: date, asof: tuple[time, ZoneInfo], now: datetime) -> bool:
    moment, zone = asof
    return now >= datetime.combine(day, moment, zone)
