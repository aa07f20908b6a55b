"""`kit screen`: what is refused before anything is claimed, and how outcomes are shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from kit.clock import FixedClock
from kit.delivery import Receipt
from kit.jobs import screen as job
from kit.jobs.screen import ScreenOutcome
from kit.runner import RunFailure, RunOutcome
from kit.workspace import Workspace

Kit = Callable[..., Any]
ID = "ma250-pullback"


@pytest.fixture(autouse=True)
def _a_day_in_2026(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long after the sample ends; a Monday evening in Shanghai."""
    clock = FixedClock("2026-03-02T10:00:00+00:00")
    monkeypatch.setattr("kit.cli.screen.SystemClock", lambda: clock)


@pytest.mark.parametrize(
    ("line", "code", "name", "word"),
    [
        ([ID, "--date", "2020-2-27"], 2, "time.bad_date", "YYYY-MM-DD"),
        ([ID, "--date", "20200227"], 2, "time.bad_date", "YYYY-MM-DD"),
        ([ID, "--date", "2020-02-30"], 2, "time.bad_date", "2020-02-30"),
        ([ID, "--date", "heute"], 2, "time.bad_date", "heute"),
        ([ID, "--date", ""], 2, "time.bad_date", ""),
        ([ID, "--date", "2026-03-03"], 2, "screen.future_date", "today is 2026-03-02"),
        ([ID, "--date", "2099-01-01"], 2, "screen.future_date", "--date"),
        ([ID, "--date", "2018-05-31"], 3, "screen.no_bars", "2018-06-01 to 2024-09-19"),
        ([ID, "--date", "1999-01-04"], 3, "screen.no_bars", "2018-06-01 to 2024-09-19"),
        ([ID], 3, "screen.no_bars", "--date 2024-09-19"),
        ([ID, "--limit", "0"], 2, "screen.bad_limit", "1 or more"),
        ([ID, "--limit", "-7"], 2, "screen.bad_limit", "-7"),
        ([ID, "--limit", "many"], 2, "usage", "many"),
        ([ID, "--mode", "fast"], 2, "usage", "fast"),
        (["ma250-pulback"], 3, "registry.unknown_id", "did you mean 'ma250-pullback'?"),
        ([f"{ID}@9.9.9"], 3, "registry.unknown_version", "0.3.1, 0.3.0"),
        ([f"{ID}@0.3"], 2, "bundle.bad_version", "0.3"),
        ([f"{ID}@draft"], 3, "registry.no_draft", "kit new"),
        ([f"{ID}@draft", "--cron"], 2, "screen.draft_scheduled", "kit freeze"),
        ([], 2, "usage", "ID"),
    ],
)
def test_wrong_requests_leave_no_trace(
    kit: Kit, desk: Workspace, line: list[str], code: int, name: str, word: str
) -> None:
    said = kit("screen", *line, "--json")
    assert said.code == code
    shown = json.loads(said.out)["error"]
    assert shown["code"] == name
    assert shown["remedy"]
    assert word in json.dumps(shown, ensure_ascii=False)
    # The same for a person: one line and one remedy, nothing on stdout.
    said = kit("screen", *line)
    assert (said.code, said.out) == (code, "")
    assert len(said.err.splitlines()) == 2
    assert said.err.startswith("error: ")
    assert not list(desk.runs.glob("20*"))
    assert not list(desk.runs.glob("1*"))


@pytest.mark.parametrize("value", ["Offline", "off", "fast"])
def test_a_forced_mode_that_is_none_is_refused(
    kit: Kit, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    """Who writes `KIT_MODE=Offline` means never to reach a provider."""
    monkeypatch.setenv("KIT_MODE", value)
    said = kit("screen", ID, "--date", "2020-01-27")
    assert said.code == 2
    assert value in said.err


@pytest.mark.parametrize("day", ["2020-01-27", "2020-02-29"])
def test_a_holiday_and_a_weekend_are_skipped(kit: Kit, desk: Workspace, day: str) -> None:
    """The Spring Festival of 2020, and a Saturday."""
    said = kit("screen", ID, "--date", day)
    assert (said.code, said.out) == (0, f"skipped: market_closed: {day} is no session\n")
    shown = json.loads(kit("screen", ID, "--date", day, "--json").out)
    assert (shown["status"], shown["exit_code"], shown["error"]) == ("skipped", 0, None)
    (receipt,) = desk.runs.glob(f"{day}/*/skipped.json")
    assert json.loads(receipt.read_text("utf-8"))["reason"] == "market_closed"


def test_cron_before_the_data_is_complete_does_nothing(
    kit: Kit, desk: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FixedClock("2020-02-27T08:00:00+00:00")  # 16:00 in Shanghai, half an hour early
    monkeypatch.setattr("kit.cli.screen.SystemClock", lambda: clock)
    said = kit("screen", ID, "--cron")
    assert said.code == 0
    assert said.out.startswith("not_due: ")
    assert not list(desk.runs.glob("20*"))
    # By hand the latest complete session is meant: the day before.
    monkeypatch.setattr(job, "perform", lambda *a, **k: pytest.fail(a[3].key.folder))
    with pytest.raises(pytest.fail.Exception, match=r"^2020-02-26/screen-ma250-pullback@0\.3\.1$"):
        job.run_screen(desk, ID, clock=clock, store=None)  # type: ignore[arg-type]


# outcomes


def outcome(status: str = "degraded", **changes: Any) -> ScreenOutcome:
    sent = Receipt(channel="file", state="sent", attempts=1, at="", detail="")
    values: dict[str, Any] = {
        "run_id": "2020-02-27/screen-x/1",
        "folder": Path("/nowhere/runs/2020-02-27/screen-x/1"),
        "status": status,
        "card": None,
        "receipts": (sent,),
    }
    run = RunOutcome(**{**values, **changes})
    return ScreenOutcome(status=run.status, ref="x@1.0.0", day=date(2020, 2, 27), run=run)


FAILED = RunFailure(
    kind="storage", message="the disk is full", run_id="2020-02-27/screen-x/1", remedy="make room"
)
UNSENT = (Receipt(channel="file", state="failed", attempts=1, at="", detail="no"),)


@pytest.mark.parametrize(
    ("result", "code", "last"),
    [
        (outcome(), 0, "next: kit show 2020-02-27/screen-x/1"),
        (outcome("ok"), 0, "next: kit show 2020-02-27/screen-x/1"),
        (outcome("failed", failure=FAILED), 5, "  → make room"),
        (outcome("degraded", receipts=UNSENT), 6, "  → "),
        # Without a folder there is nothing to show, and nothing is promised.
        (outcome("degraded", folder=None), 0, "degraded: 2020-02-27/screen-x/1 (file: sent)"),
    ],
)
def test_how_outcomes_are_told(
    kit: Kit, monkeypatch: pytest.MonkeyPatch, result: ScreenOutcome, code: int, last: str
) -> None:
    monkeypatch.setattr(job, "run_screen", lambda *_a, **_k: result)
    said = kit("screen", ID)
    assert (said.code, said.out) == (code, ""), "the card itself goes to stdout by its channel"
    assert said.err.splitlines()[-1].startswith(last)
    as_json = kit("screen", ID, "--json")
    shown = json.loads(as_json.out)
    assert (as_json.code, shown["exit_code"]) == (code, code)
    assert (shown["error"] is None) is (code == 0)


def test_options_reach_the_job(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    def remember(_workspace: Any, ref: str, **options: Any) -> ScreenOutcome:
        seen.update(options, ref=ref)
        return outcome()

    monkeypatch.setattr(job, "run_screen", remember)
    kit("screen", f"{ID}@0.3.0", "--date", "2020-02-27", "--mode", "offline", "--limit", "3")
    wanted = {"date": "2020-02-27", "mode": "offline", "limit": 3, "again": False, "cron": False}
    assert {name: seen[name] for name in wanted} == wanted
    assert (seen["ref"], seen["deliver"]) == (f"{ID}@0.3.0", None)
    kit("screen", ID, "--no-deliver", "--again")
    assert (seen["deliver"], seen["again"]) == (False, True)
    kit("screen", ID, "--deliver", "--cron")
    assert (seen["deliver"], seen["cron"]) == (True, True)


# every active version, and runs done over


def test_all_active_needs_no_name_and_a_screen_needs_one(kit: Kit) -> None:
    for line in ([ID, "--all-active"], [], ["--all-active", "--mode", "replay"]):
        said = kit("screen", *line)
        assert (said.code, said.out) == (2, "")
        assert "--all-active" in said.err


@pytest.fixture
def one_active(desk: Workspace) -> None:
    """Whatever this repository ships, the desk has this one strategy."""
    path = desk.root / "INDEX.json"
    value = json.loads(path.read_text("utf-8"))
    value["strategies"] = {ID: value["strategies"][ID]}
    path.write_text(json.dumps(value), encoding="utf-8")


@pytest.mark.usefixtures("one_active")
def test_all_active_on_a_closed_day(kit: Kit, desk: Workspace) -> None:
    said = kit("screen", "--all-active", "--date", "2020-01-27")
    assert said.code == 0
    assert said.out == "cn-1630: skipped: market_closed: 2020-01-27 is no session\n"
    shown = json.loads(kit("screen", "--all-active", "--date", "2020-01-27", "--json").out)
    assert (shown["exit_code"], shown["error"]) == (0, None)
    assert [(card["ref"], card["status"], card["screens"]) for card in shown["cards"]] == [
        ("cn-1630", "skipped", [])
    ]
    assert list(desk.runs.glob("2020-01-27/screens-cn-1630/skipped.json"))


@pytest.mark.usefixtures("one_active")
def test_all_active_shows_each_and_the_merged_card(
    kit: Kit, desk: Workspace, stages_here: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kit.jobs import screen_all

    real = screen_all.run_all_active
    monkeypatch.setattr(
        screen_all, "run_all_active", lambda *a, **k: real(*a, **k, executor=stages_here(desk))
    )
    said = kit("screen", "--all-active", "--date", "2020-02-27", "--mode", "offline")
    assert said.code == 0
    assert said.out.startswith("每日筛选 1 个策略 2020年2月27日(周四)\n\n共 2 只候选\n")
    assert f"degraded  {ID}@0.3.1  2020-02-27/screen-{ID}@0.3.1/1  2" in said.err
    again = json.loads(kit("screen", "--all-active", "--date", "2020-02-27", "--json").out)
    assert (again["exit_code"], again["error"]["code"]) == (7, "run.already_done")
    monkeypatch.setattr("kit.cli.screen.SystemClock", lambda: FixedClock("2020-02-27T09:30:00Z"))
    cron = json.loads(kit("screen", "--all-active", "--cron", "--json").out)
    assert (cron["exit_code"], cron["error"]) == (0, None)
    (card,) = cron["cards"]
    assert [screen["status"] for screen in card["screens"]] == ["degraded"]
    assert [receipt["state"] for receipt in card["receipts"]] == ["sent", "sent"]
    # The run around them can be shown and done again like any other.
    shown = json.loads(kit("show", card["run_id"], "--json").out)
    assert shown["card"]["title"].startswith("每日筛选 1 个策略")
    redone = kit("rerun", "2020-02-27/screens-cn-1630/1", "--json")
    assert json.loads(redone.out)["cards"][0]["run_id"].endswith("screens-cn-1630/3")


@pytest.mark.parametrize(("difference", "code"), [("", 0), ("card.json: title differs", 5)])
def test_a_replay_is_told(
    kit: Kit, monkeypatch: pytest.MonkeyPatch, difference: str, code: int
) -> None:
    from kit.jobs import replay

    asked: list[str] = []

    def found(_: Any, reference: str, **_k: Any) -> replay.Replay:
        asked.append(reference)
        return replay.Replay(run_id="r/1", compared=("card.json",), difference=difference)

    monkeypatch.setattr(replay, "replay_run", found)
    monkeypatch.setattr(replay, "latest_screen", lambda _w, ref, day: f"{ref} of {day}")
    said = kit("replay", "latest")
    assert said.code == code
    assert (said.out or said.err).startswith("error: r/1: card.json" if code else "identical: r/1")
    shown = json.loads(kit("replay", "latest", "--json").out)
    assert (shown["identical"], shown["difference"]) == (not difference, difference)
    assert (shown["error"] is None) is (code == 0)
    assert kit("screen", ID, "--mode", "replay", "--date", "2020-02-27").code == code
    assert asked == ["latest", "latest", f"{ID} of 2020-02-27"]
