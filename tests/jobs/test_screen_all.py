"""`--all-active`: each bundle in a run of its own, one card for all; nobody stops the others."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from kit import files, schemas
from kit.clock import FixedClock
from kit.envlock import LockAnswer
from kit.errors import UsageError
from kit.jobs.screen_all import run_all_active
from kit.jobs.screen_news import News
from kit.jobs.screen_outcome import MergedOutcome
from kit.runner import NotebookOutcome, RunFailure
from kit.state import Store
from kit.workspace import Workspace

# Monday to Friday, half past five in Shanghai: an hour after the data is complete.
WEEK = [f"2024-09-{day:02}T09:30:00+00:00" for day in range(9, 14)]
TWO = 'return [Pick(s, 0.01, {"gap_pct": 1.0}, ["near"]) for s in sorted(data_map)][:2]'
BROKEN = 'raise RuntimeError("一个坏策略")'

Make = Callable[..., None]
Ran = Callable[..., MergedOutcome]


@pytest.fixture
def ran(workspace: Workspace, store: Store, stages_here: Any) -> Ran:
    """Run it as cron does, in this process; what the console was sent is `ran.text`."""

    def call(now: str = WEEK[0], **options: Any) -> MergedOutcome:
        stream = io.StringIO()
        values: dict[str, Any] = {"cron": True, "executor": stages_here(workspace)}
        (done,) = run_all_active(
            workspace, clock=FixedClock(now), store=store, stream=stream, **{**values, **options}
        )
        call.text = stream.getvalue()  # type: ignore[attr-defined]
        return done

    return call


@pytest.mark.slow
def test_twelve_bundles_for_a_week_and_the_broken_one_stops_nobody(
    workspace: Workspace, active: Make, ran: Any, stages_here: Any
) -> None:
    # Sixty screens need no server sixty times; the other tests here have them.
    def lock(_workspace: Workspace, bundle: Any, *, forced: bool = False) -> LockAnswer:
        return LockAnswer(skill_id=bundle.ref)

    def feed(_workspace: Workspace, _bundle: Any, start: datetime, end: datetime) -> News:
        return News(status="none_found", start=start, end=end, source="test")

    here = stages_here(workspace, around={"lock": lock, "feed": feed})
    names = [f"tiny-{number:02}" for number in range(1, 13)]
    for name in names:
        active(name, BROKEN if name == "tiny-07" else TWO)
    for now in WEEK:
        done = ran(now, executor=here)
        day = now[:10]
        assert (done.error(), done.merged.status, done.merged.day.isoformat()) == (
            None,
            "degraded",
            day,
        )
        assert [r.state for r in done.merged.receipts] == ["sent", "sent"]
        assert [s.ref for s in done.screens] == [f"{name}@0.1.0" for name in names]
        for screen in done.screens:
            assert screen.result is not None
            assert screen.receipts == ()
            picks = [pick["symbol"] for pick in screen.result["picks"]]
            broken = screen.ref == "tiny-07@0.1.0"
            assert picks == ([] if broken else ["000001.SZ", "000151.SZ"])
            assert (workspace.runs / day / f"screen-{screen.ref}" / "1" / "card.json").is_file()
        assert ran.text.startswith(f"每日筛选 12 个策略 9月{int(day[8:])}日")
        assert "共 22 只候选\n⛔ 1 个策略没有跑成" in ran.text
        assert "\n🔴 7. tiny-07@0.1.0：没有跑成（D-052 筛选代码出错" in ran.text
        assert "一个坏策略" in ran.text
        sent = workspace.runs / day / "screens-cn-1630" / "1"
        assert schemas.validate("card", files.read_json(sent / "card.json")) == []
        # The schedule fires generously: the second fire does nothing, and succeeds.
        again = ran(now.replace("T09:30", "T09:50"))
        assert (again.error(), again.screens, ran.text) == (None, (), "")


def test_a_bundle_that_cannot_even_be_opened_is_told(
    workspace: Workspace, active: Make, ran: Any
) -> None:
    for name in ("aaa", "bbb", "ccc"):
        active(name, TWO)
    for name, file in (("aaa", "manifest.json"), ("ccc", "SKILL.md")):
        path = workspace.strategies / name / "0.1.0" / file
        path.chmod(0o644)
        path.write_text("{ no JSON", encoding="utf-8")
    done = ran()
    assert [s.status for s in done.screens] == ["degraded", "degraded", "degraded"]
    # What has no readable market comes with the first market there is.
    lines = ran.text.split("\n\n")[2].splitlines()
    assert [line.split("（")[0] for line in lines] == [
        "1. bbb@0.1.0：2 只候选 · ⛔ D-012、D-031",
        "🔴 2. aaa@0.1.0：没有跑成",
        "🔴 3. ccc@0.1.0：没有跑成",
    ]
    assert "D-051 策略包与校验和不符：manifest.json" in lines[1]
    assert "SKILL.md" in lines[2]


def test_by_hand_each_kind_of_trouble_has_its_exit_code(
    workspace: Workspace, active: Make, ran: Any
) -> None:
    active("aaa", TWO)
    active("bbb", BROKEN)
    done = ran(cron=False, date="2024-09-09")
    error = done.error()
    assert error is not None
    assert (error.code, error.exit_code) == ("screen.failed", 5)
    again = ran(cron=False, date="2024-09-09").error()
    assert (again.code, again.exit_code) == ("run.already_done", 7)
    # A new attempt of all of them.
    third = ran(cron=False, date="2024-09-09", again=True, deliver=False)
    assert third.merged.receipts == ()
    assert third.merged.run is not None
    assert third.merged.run.run_id == "2024-09-09/screens-cn-1630/2"
    assert [s.run.run_id[-1] for s in third.screens if s.run] == ["2", "2"]
    with pytest.raises(UsageError, match="future"):
        ran(cron=False, date="2024-09-10")


def test_before_the_data_is_complete_and_on_a_closed_day_nothing_runs(
    workspace: Workspace, active: Make, ran: Any
) -> None:
    active("aaa", TWO)
    early = ran("2024-09-09T08:00:00+00:00")
    assert (early.merged.status, early.screens, ran.text) == ("not_due", (), "")
    closed = ran("2024-09-17T09:30:00+00:00")
    assert (closed.merged.status, ran.text) == ("skipped", "")
    assert closed.merged.skip is not None
    assert closed.merged.skip.path == workspace.runs / "2024-09-17/screens-cn-1630/skipped.json"


def test_bundles_share_a_card_when_their_data_is_complete_at_the_same_time(
    workspace: Workspace, store: Store, active: Make, stages_here: Any
) -> None:
    """At 17:30 the one is due and the other is not; at 18:30 the other is, and only that one."""
    active("aaa", TWO)
    active("bbb", TWO, asof="T 18:00 Asia/Shanghai")
    here = stages_here(workspace)

    def fire(now: str) -> list[tuple[str, str, list[str]]]:
        found = run_all_active(
            workspace, clock=FixedClock(now), store=store, cron=True, executor=here
        )
        return [(d.merged.ref, d.merged.status, [s.ref for s in d.screens]) for d in found]

    assert fire(WEEK[0]) == [
        ("cn-1630", "degraded", ["aaa@0.1.0"]),
        ("cn-1800", "not_due", []),
    ]
    assert fire("2024-09-09T10:30:00+00:00") == [
        ("cn-1630", "not_due", []),
        ("cn-1800", "degraded", ["bbb@0.1.0"]),
    ]


def test_nothing_active_and_an_unreadable_registry(
    workspace: Workspace, active: Make, ran: Any
) -> None:
    with pytest.raises(UsageError) as caught:
        ran()
    assert caught.value.code == "screen.nothing_active"
    (workspace.root / "INDEX.json").write_text("{", encoding="utf-8")
    done = ran()
    assert (done.error(), done.merged.status) == (None, "failed")
    assert "⛔ 每日筛选没有开始：INDEX.json:1：策略登记无法读取" in ran.text
    assert "\n🔴 今日无可推送候选\n" in ran.text


def test_a_screen_done_before_stands_on_the_card_as_it_was(
    workspace: Workspace, store: Store, active: Make, ran: Any, stages_here: Any
) -> None:
    active("aaa", TWO)
    active("bbb", TWO)
    from kit.jobs.screen import run_screen

    clock = FixedClock(WEEK[0])
    run_screen(
        workspace, "bbb", clock=clock, store=store, cron=True, executor=stages_here(workspace)
    )
    done = ran()
    assert [len(s.result["picks"]) for s in done.screens if s.result] == [2, 2]
    assert [s.run.run_id[-1] for s in done.screens if s.run] == ["1", "1"]
    assert "2. bbb@0.1.0：2 只候选" in ran.text


class Stops:
    """An executor in the middle of which somebody presses Ctrl-C."""

    def check(self, *_: Any) -> None:
        pass

    def execute(self, _: Any) -> NotebookOutcome:
        failure = RunFailure(kind="interrupted", message="stopped")
        return NotebookOutcome(failure=failure, seconds=0.0)


def test_ctrl_c_stops_all_of_it_and_sends_nothing(active: Make, ran: Any) -> None:
    active("aaa", TWO)
    active("bbb", TWO)
    done = ran(cron=False, date="2024-09-09", executor=Stops())
    assert [s.status for s in done.screens] == ["interrupted"]
    assert (done.merged.status, done.merged.receipts, ran.text) == ("interrupted", (), "")
    assert done.error().exit_code == 130
    # The same command then simply begins anew.
    again = ran(cron=False, date="2024-09-09")
    assert [s.status for s in again.screens] == ["degraded", "degraded"]


DIES = """\
import importlib.util, os, sys
spec = importlib.util.spec_from_file_location("shared", sys.argv[2])
shared = importlib.util.module_from_spec(spec)
sys.modules["shared"] = shared
spec.loader.exec_module(shared)
from kit.clock import FixedClock
from kit.jobs.screen_all import run_all_active
from kit.state import Store
from kit.workspace import Workspace

workspace = Workspace.at(sys.argv[1])
seen = []

def before(stage, folder):
    if stage == "rank":
        seen.append(folder)
        if len(seen) == 2:
            os._exit(9)

run_all_active(workspace, clock=FixedClock(sys.argv[3]), store=Store(workspace.state_path),
    cron=True, executor=shared.StagesHere(workspace, before))
"""


@pytest.mark.slow
def test_killed_in_the_middle_the_next_fire_finishes_and_sends_once(
    workspace: Workspace, active: Make, ran: Any
) -> None:
    for name in ("aaa", "bbb", "ccc"):
        active(name, TWO)
    tests = str(Path(__file__).parent.parent / "conftest.py")
    command = [sys.executable, "-c", DIES, str(workspace.root), tests, WEEK[0]]
    killed = subprocess.run(command, capture_output=True, timeout=120, check=False)
    assert killed.returncode == 9, killed.stderr.decode()
    assert not list(workspace.runs.rglob("delivered"))
    done = ran()
    assert [r.state for r in done.merged.receipts] == ["sent", "sent"]
    assert [len(s.result["picks"]) for s in done.screens if s.result] == [2, 2, 2]
    # What was done is not done again; what was cut off is.
    attempts = {p.name: sorted(a.name for a in p.iterdir()) for p in workspace.runs.glob("2024*/*")}
    assert attempts == {
        "screen-aaa@0.1.0": ["1"],
        "screen-bbb@0.1.0": ["1.dead", "2"],
        "screen-ccc@0.1.0": ["1"],
        "screens-cn-1630": ["1.dead", "2"],
    }


@pytest.mark.kernel
def test_with_kernels_one_dies_and_the_other_is_told(
    workspace: Workspace, store: Store, active: Make, ran: Any
) -> None:
    active("aaa", "import os; os._exit(7)")
    active("bbb", TWO)
    done = ran(executor=None)
    assert [s.status for s in done.screens] == ["failed", "degraded"]
    assert done.error() is None
    assert "🔴 1. aaa@0.1.0：没有跑成（D-054 运行进程在「筛选」被终止" in ran.text
    assert "2. bbb@0.1.0：2 只候选" in ran.text
