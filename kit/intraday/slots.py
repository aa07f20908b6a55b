"""Which slot an instant belongs to, and whether its market is open.

A slot is called by its exchange-local time floored to :00 or :30, written ISO with offset; the few
minutes a schedule adds (10:03) never leak into the name. An instant anywhere in the half hour
belongs to that half hour's slot, so a person may run `--now 10:10` and gets the 10:00 slot. A half
hour that has no slot is refused, naming the nearest one, rather than guessed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta

from kit.clock import iso
from kit.errors import UsageError
from kit.market.calendars import Calendar

__all__ = ["CLOSED_REASONS", "Slot", "resolve_slot"]

_HALF_HOUR = 30
_SATURDAY = 5

CLOSED_REASONS = {
    "holiday": "休市",
    "before_open": "尚未开盘",
    "lunch": "午间休市",
    "after_close": "已收盘",
}
"""Why a market is closed, and the words for it."""


@dataclass(frozen=True, kw_only=True)
class Slot:
    """One scheduled moment of a market.

    Attributes:
        market: `cn`, `hk` or `us`.
        id: Local time floored to :00 or :30, ISO 8601 with offset.
        trade_date: Session date, in the exchange's zone.
        now: The instant asked about, in the exchange's zone.
        scheduled: When the schedule fires it, in the exchange's zone; None when the half hour has
            no slot, which only a closed market may have.
        closed: A key of `CLOSED_REASONS` when the market is closed at `now`, else None.
        calendar_known: Whether the calendar reaches that day. Beyond it the market is taken for
            open on weekdays, and the card must say so.
    """

    market: str
    id: str
    trade_date: date
    now: datetime
    scheduled: datetime | None
    closed: str | None = None
    calendar_known: bool = True

    @property
    def hhmm(self) -> str:
        """`HHMM` of the slot's name."""
        return self.id[11:13] + self.id[14:16]

    def is_due(self, catch_up_minutes: int) -> bool:
        """Say whether `now` is in the window in which the schedule fires this slot.

        Args:
            catch_up_minutes: How late a slot may start and still be sent as fresh.
        """
        if self.scheduled is None:
            return False
        return timedelta() <= self.now - self.scheduled <= timedelta(minutes=catch_up_minutes)


def resolve_slot(market: str, times: Sequence[time], calendar: Calendar, now: datetime) -> Slot:
    """Find the slot of an instant.

    Args:
        market: Market name.
        times: The market's slots in exchange-local time, from `config/markets.json`.
        calendar: Its calendar.
        now: Aware instant.

    Raises:
        UsageError: `slot.not_a_slot` when the market is open but this half hour has no slot.
    """
    local = now.astimezone(calendar.tz)
    floored = local.replace(minute=_floored(local.minute), second=0, microsecond=0)
    known = calendar.is_session(local.date())
    closed = _closed(calendar, known, local)
    scheduled = next(
        (
            floored.replace(minute=at.minute)
            for at in times
            if (at.hour, _floored(at.minute)) == (floored.hour, floored.minute)
        ),
        None,
    )
    if closed is None and scheduled is None:
        written = " ".join(f"{at:%H:%M}" for at in times)
        raise UsageError(
            "slot.not_a_slot",
            f"{market} has no slot at {floored:%H:%M}",
            where=iso(local),
            remedy=f"the nearest is {_nearest(times, local):%H:%M}; slots: {written}",
        )
    return Slot(
        market=market,
        id=iso(floored),
        trade_date=local.date(),
        now=local,
        scheduled=scheduled,
        closed=closed,
        calendar_known=known is not None,
    )


def _floored(minute: int) -> int:
    return minute - minute % _HALF_HOUR


def _closed(calendar: Calendar, known: bool | None, local: datetime) -> str | None:
    if known is None:
        return None if local.weekday() < _SATURDAY else "holiday"
    day = calendar.session(local.date())
    if day is None:
        return "holiday"
    if local < day.open:
        return "before_open"
    if local >= day.close:
        return "after_close"
    return None if day.is_open(local) else "lunch"


def _nearest(times: Sequence[time], local: datetime) -> time:
    minutes = local.hour * 60 + local.minute
    return min(times, key=lambda at: abs(at.hour * 60 + at.minute - minutes))
