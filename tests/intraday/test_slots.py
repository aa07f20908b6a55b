"""Which slot an instant belongs to."""

from __future__ import annotations

from datetime import datetime

import pytest

from kit.errors import UsageError
from kit.intraday import Slot, resolve_slot
from kit.market import calendar, market_info
from kit.workspace import Workspace


def resolve(workspace: Workspace, text: str) -> Slot:
    info = market_info(workspace, "cn")
    now = datetime.fromisoformat(text)
    return resolve_slot("cn", info.slots, calendar(workspace, "cn"), now)


@pytest.mark.parametrize(
    ("now", "name"),
    [
        ("2024-09-18T10:03:00+08:00", "2024-09-18T10:00:00+08:00"),
        ("2024-09-18T10:00:00+08:00", "2024-09-18T10:00:00+08:00"),
        ("2024-09-18T10:29:59+08:00", "2024-09-18T10:00:00+08:00"),
        ("2024-09-18T02:33:00+00:00", "2024-09-18T10:30:00+08:00"),
        ("2024-09-18T14:59:00+08:00", "2024-09-18T14:30:00+08:00"),
    ],
)
def test_the_name_is_the_exchange_time_floored_to_the_half_hour(
    workspace: Workspace, now: str, name: str
) -> None:
    slot = resolve(workspace, now)
    assert (slot.id, slot.closed) == (name, None)
    assert slot.hhmm == name[11:13] + name[14:16]


@pytest.mark.parametrize(
    ("now", "closed"),
    [
        ("2024-09-18T09:10:00+08:00", "before_open"),
        ("2024-09-18T11:45:00+08:00", "lunch"),
        ("2024-09-18T12:30:00+08:00", "lunch"),
        ("2024-09-18T15:00:00+08:00", "after_close"),
        ("2024-09-17T10:03:00+08:00", "holiday"),  # 中秋节
        ("2024-09-14T10:03:00+08:00", "holiday"),  # a Saturday on which people work
    ],
)
def test_a_closed_market_says_why(workspace: Workspace, now: str, closed: str) -> None:
    assert resolve(workspace, now).closed == closed


def test_an_open_half_hour_without_a_slot_is_refused_with_the_nearest() -> None:
    from datetime import time

    class Open:
        from zoneinfo import ZoneInfo

        tz = ZoneInfo("Asia/Shanghai")

        def is_session(self, day: object) -> bool | None:
            return None

    with pytest.raises(UsageError) as caught:
        resolve_slot(
            "us",
            [time(10, 3), time(14, 33)],
            Open(),  # type: ignore[arg-type]
            datetime.fromisoformat("2024-09-18T13:10:00+08:00"),
        )
    assert caught.value.code == "slot.not_a_slot"
    assert "nearest is 14:33" in caught.value.remedy


def test_beyond_the_calendar_a_weekday_runs_and_a_sunday_does_not(workspace: Workspace) -> None:
    monday = resolve(workspace, "2040-03-05T10:03:00+08:00")
    assert (monday.closed, monday.calendar_known) == (None, False)
    assert resolve(workspace, "2040-03-04T10:03:00+08:00").closed == "holiday"


@pytest.mark.parametrize(
    ("now", "due"),
    [
        ("2024-09-18T10:02:59+08:00", False),
        ("2024-09-18T10:03:00+08:00", True),
        ("2024-09-18T10:23:00+08:00", True),
        ("2024-09-18T10:23:01+08:00", False),
    ],
)
def test_a_slot_is_due_from_its_minute_to_the_end_of_the_window(
    workspace: Workspace, now: str, due: bool
) -> None:
    assert resolve(workspace, now).is_due(20) is due
