"""`kit slot run`: requests, closed markets, and the schedule."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from kit.workspace import Workspace

Kit = Callable[..., Any]
RUN = ("slot", "run", "--market")


@pytest.mark.parametrize(
    ("line", "code", "name"),
    [
        (["cn", "--now", "2024-09-18T10:03"], 2, "time.bad_instant"),
        (["cn", "--now", "10:03"], 2, "time.bad_instant"),
        (["cn", "--now", "2024-09-18"], 2, "time.bad_instant"),
        (["cn", "--now", "2024-13-18T10:03+08:00"], 2, "time.bad_instant"),
        (["jp", "--now", "2024-09-18T10:03+08:00"], 2, "usage"),
        (["cn", "--mode", "fast"], 2, "usage"),
        ([], 2, "usage"),
    ],
)
def test_wrong_requests_leave_no_trace(
    kit: Kit, desk: Workspace, line: list[str], code: int, name: str
) -> None:
    said = kit(*RUN, *line, "--json")
    assert said.code == code
    shown = json.loads(said.out)["error"]
    assert shown["code"] == name
    assert shown["remedy"]
    assert not list(desk.runs.glob("20*"))


@pytest.mark.parametrize(
    ("market", "now", "day"),
    [
        ("cn", "2024-09-17T10:03+08:00", "2024-09-17"),  # Mid-Autumn festival
        ("cn", "2024-09-21T10:03+08:00", "2024-09-21"),  # a Saturday
        ("cn", "2024-09-18T12:03+08:00", "2024-09-18"),  # lunch
        ("hk", "2024-09-18T10:03+08:00", "2024-09-18"),  # the day after Mid-Autumn
        ("us", "2024-07-04T10:03-04:00", "2024-07-04"),  # Independence Day
    ],
)
def test_a_closed_market_is_skipped(
    kit: Kit, desk: Workspace, market: str, now: str, day: str
) -> None:
    said = kit(*RUN, market, "--now", now)
    assert said.code == 0
    assert said.out.startswith("skipped: market_closed: ")
    shown = json.loads(kit(*RUN, market, "--now", now, "--json").out)
    assert (shown["status"], shown["market"], shown["exit_code"]) == ("skipped", market, 0)
    assert list(desk.runs.glob(f"{day}/slot-{market}-*/skipped.json"))


def test_the_schedule_wants_nothing_outside_its_windows(kit: Kit, desk: Workspace) -> None:
    for option in ("--if-due", "--cron"):
        said = kit(*RUN, "cn", "--now", "2024-09-18T10:50+08:00", option)
        assert said.code == 0
        assert said.out.startswith("not_due: ")
    assert not list(desk.runs.glob("20*"))


def test_an_instant_in_the_future_is_refused(
    kit: Kit, desk: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a future date is by `kit screen`: its card would show old prices under a coming hour."""
    monkeypatch.setattr("kit.jobs.slot.perform", lambda *_a, **_k: pytest.fail("it ran"))
    said = kit(*RUN, "cn", "--now", "2099-03-05T10:03+08:00")
    assert said.code == 2
    assert "future" in said.err


@pytest.mark.kernel
def test_the_shared_slot_is_one_document(main_job: Any) -> None:
    shown = json.loads(main_job.slot.stdout)
    assert (shown["status"], shown["exit_code"], shown["error"]) == ("degraded", 0, None)
    assert shown["slot"] == "2024-09-18T10:00:00+08:00"
    assert shown["folder"] == "runs/2024-09-18/slot-cn-1000/1"
    assert [r["state"] for r in shown["receipts"]] == ["sent", "sent"]
    # The console channel went to stderr, with the progress: stdout holds the document only.
    assert "| 600000 | 3000 | 8.42 | 8.31 |" in main_job.slot.stderr
