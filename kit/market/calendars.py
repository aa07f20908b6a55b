"""When a market is open: the exchange_calendars library, corrected and bounded by an overlay.

The overlay (`config/calendars.json`) carries closures, late opens and early closes the library
lacks, each with its source, and says how far ahead the calendar may speak. Beyond that the answer
is *unknown*, which is neither open nor closed; nothing here ever guesses.
"""

from __future__ import annotations

import warnings
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from kit.clock import parse_date
from kit.errors import DataError
from kit.market.markets import market_info
from kit.workspace import Workspace

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pandas as pd

__all__ = ["Calendar", "Session", "calendar"]

_FIRST: Final = date(2000, 1, 1)
# Calendars that the library computes by rule have no useful bound of their own; the overlay's
# horizon says what may be claimed.
_LATEST: Final = date(2030, 12, 31)


@dataclass(frozen=True, kw_only=True)
class Session:
    """One trading day of a market.

    Attributes:
        date: The session's date at the exchange.
        open: Start of continuous trading, aware, exchange zone.
        close: End of trading, aware, exchange zone.
        break_start: Start of the lunch break, None when there is none.
        break_end: End of the lunch break, None when there is none.
    """

    date: date
    open: datetime
    close: datetime
    break_start: datetime | None = None
    break_end: datetime | None = None

    def is_open(self, at: datetime) -> bool:
        """Tell whether trading goes on at an aware instant; the break is not trading."""
        if not self.open <= at < self.close:
            return False
        if self.break_start is None or self.break_end is None:
            return True
        return not self.break_start <= at < self.break_end

    def minutes_traded(self, start: datetime, end: datetime) -> float:
        """Return trading minutes between two aware instants, inside this session only."""
        spans = [(self.open, self.close)]
        if self.break_start is not None and self.break_end is not None:
            spans = [(self.open, self.break_start), (self.break_end, self.close)]
        seconds = (
            (min(end, last) - max(start, first)).total_seconds()
            for first, last in spans
            if min(end, last) > max(start, first)
        )
        return sum(seconds) / 60


class Calendar:
    """Sessions of one market. Made by `calendar`.

    Attributes:
        market: `cn`, `hk` or `us`.
        tz: The exchange's zone.
        known_from: First date the calendar speaks for.
        known_until: Last date it speaks for.
    """

    def __init__(
        self,
        market: str,
        tz: ZoneInfo,
        days: Iterable[date],
        hours: Callable[[date], Session],
        *,
        known_from: date,
        known_until: date,
    ) -> None:
        self.market = market
        self.tz = tz
        self.known_from = known_from
        self.known_until = known_until
        self._dates = sorted(day for day in days if known_from <= day <= known_until)
        self._open = frozenset(self._dates)
        self._hours = hours

    def knows(self, day: date) -> bool:
        """Tell whether the calendar speaks for a date."""
        return self.known_from <= day <= self.known_until

    def is_session(self, day: date) -> bool | None:
        """Tell whether a date is a trading day: True, False, or None when that is not known."""
        return day in self._open if self.knows(day) else None

    def session(self, day: date) -> Session | None:
        """Return the session of a date; None when there is none *or* the date is not known.

        Ask `is_session` first where the difference matters.
        """
        return self._hours(day) if day in self._open else None

    def at(self, instant: datetime) -> Session | None:
        """Return the session of the exchange date an aware instant falls on."""
        return self.session(instant.astimezone(self.tz).date())

    def previous(self, day: date) -> date:
        """Return the last session strictly before a date.

        Raises:
            DataError: `calendar.unknown` when the days before it are not known.
        """
        self._require(day - timedelta(days=1))
        place = bisect_left(self._dates, day)
        if place == 0:
            raise self._unknown(day - timedelta(days=1))
        return self._dates[place - 1]

    def next(self, day: date) -> date:
        """Return the first session strictly after a date.

        Raises:
            DataError: `calendar.unknown` when the horizon comes first.
        """
        self._require(day)
        place = bisect_right(self._dates, day)
        if place == len(self._dates):
            raise self._unknown(self.known_until + timedelta(days=1))
        return self._dates[place]

    def sessions(self, first: date, last: date) -> tuple[date, ...]:
        """Return the sessions from `first` to `last`, both included.

        Raises:
            DataError: `calendar.unknown` when the span is not wholly known.
        """
        self._require(first)
        self._require(last)
        return tuple(self._dates[bisect_left(self._dates, first) : bisect_right(self._dates, last)])

    def dates_array(self) -> npt.NDArray[np.datetime64]:
        """Return all known sessions, ascending, `datetime64[D]`."""
        import numpy as np

        return np.asarray(self._dates, dtype="datetime64[D]")

    def _require(self, day: date) -> None:
        if not self.knows(day):
            raise self._unknown(day)

    def _unknown(self, day: date) -> DataError:
        return DataError(
            "calendar.unknown",
            f"the {self.market} calendar is known from {self.known_from} to {self.known_until}, "
            f"not on {day}",
            where="config/calendars.json",
            remedy="add the closures the exchange has published, with their source, as an "
            "extension of that exchange",
            details={"market": self.market, "date": day.isoformat()},
        )


def calendar(workspace: Workspace, market: str) -> Calendar:
    """Return the calendar of a market in a workspace.

    Raises:
        UsageError: `market.unknown`.
        ConfigError: A configuration file is missing or wrong.
    """
    info = market_info(workspace, market)
    overlay: dict[str, Any] = workspace.config("calendars")["exchanges"].get(info.exchange) or {}
    horizon, extension = overlay.get("horizon"), overlay.get("extension")
    latest = parse_date(horizon["until"]) if horizon else _LATEST
    book = _library(info.exchange, latest)
    days, until = set(book.days), book.until
    if extension:
        until = min(parse_date(extension["until"]), latest)
        closed = {parse_date(text) for text in extension["closures"]}
        days |= set(_weekdays(book.until, until)) - closed
    days -= {parse_date(entry["date"]) for entry in overlay.get("closures", [])}
    zone, changes = info.zone, _changes(overlay)

    def hours(day: date) -> Session:
        session = book.session(day, zone)
        for edge, moment in changes.get(day, ()):
            shift = _opened_late if edge == "open" else _closed_early
            session = shift(session, datetime.combine(day, moment, zone))
        return session

    return Calendar(market, zone, days, hours, known_from=_FIRST, known_until=until)


def _changes(overlay: Mapping[str, Any]) -> dict[date, list[tuple[str, time]]]:
    """Return the overlay's late opens and early closes by date."""
    found: dict[date, list[tuple[str, time]]] = {}
    for key, edge in (("late_opens", "open"), ("early_closes", "close")):
        for entry in overlay.get(key, []):
            moment = time.fromisoformat(entry[edge])
            found.setdefault(parse_date(entry["date"]), []).append((edge, moment))
    return found


@dataclass(frozen=True, kw_only=True)
class _Book:
    """The library's own record of one exchange.

    Attributes:
        days: Its sessions, ascending.
        until: Last date it was computed for.
        moments: Open, break start, break end and close of each session, in UTC.
    """

    days: tuple[date, ...]
    until: date
    moments: pd.DataFrame

    def session(self, day: date, zone: ZoneInfo) -> Session:
        """Return a session; one past the record has the local hours of its last session."""
        place = min(bisect_left(self.days, day), len(self.days) - 1)
        row = self.moments.iloc[place]

        def moment(name: str) -> datetime | None:
            stamp = row[name]
            if stamp != stamp:  # no such moment that day
                return None
            local: datetime = stamp.to_pydatetime().astimezone(zone)
            return local if day == self.days[place] else datetime.combine(day, local.time(), zone)

        opened, closed = moment("open"), moment("close")
        if opened is None or closed is None:
            raise DataError(
                "calendar.unknown",
                f"the calendar library has no hours for {day}",
                remedy="add the day to the overlay",
            )
        return Session(
            date=day,
            open=opened,
            close=closed,
            break_start=moment("break_start"),
            break_end=moment("break_end"),
        )


@lru_cache(maxsize=8)
def _library(exchange: str, latest: date) -> _Book:
    """Ask the calendar library for an exchange, from `_FIRST` to its own bound or `latest`.

    The end is always named: left alone, the library takes one year after the machine's clock.
    """
    import exchange_calendars

    begin = _FIRST.isoformat()
    with warnings.catch_warnings():
        # The library is a step behind pandas; its deprecations are not ours to mend.
        warnings.simplefilter("ignore", category=DeprecationWarning)
        warnings.simplefilter("ignore", category=FutureWarning)
        probe = exchange_calendars.get_calendar(exchange, start=begin, end=f"{_FIRST.year}-02-28")
        bound = probe.bound_max()
        until = latest if bound is None else min(latest, bound.date())
        book = exchange_calendars.get_calendar(exchange, start=begin, end=until.isoformat())
        schedule: pd.DataFrame = book.schedule
    days = tuple(stamp.date() for stamp in schedule.index)
    return _Book(days=days, until=until, moments=schedule)


def _weekdays(after: date, until: date) -> list[date]:
    span = (after + timedelta(days=n) for n in range(1, (until - after).days + 1))
    return [day for day in span if day.weekday() < 5]


def _opened_late(session: Session, opened: datetime) -> Session:
    if session.break_start is not None and opened >= session.break_start:
        return replace(session, open=opened, break_start=None, break_end=None)
    return replace(session, open=opened)


def _closed_early(session: Session, closed: datetime) -> Session:
    if session.break_end is not None and closed <= session.break_end:
        end = min(closed, session.break_start) if session.break_start is not None else closed
        return replace(session, close=end, break_start=None, break_end=None)
    return replace(session, close=closed)
