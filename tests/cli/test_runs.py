"""`kit runs`, `kit show` and `kit rerun`, on the runs of the shared job."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from kit.jobs import screen as screen_job
from kit.jobs import slot as slot_job
from kit.workspace import Workspace

Kit = Callable[..., Any]
SCREEN = "2020-02-27/screen-ma250-pullback@0.3.1"
SLOT = "2024-09-18/slot-cn-1000/1"

kernel = pytest.mark.kernel


@pytest.fixture
def runs(kit: Kit, main_job: Any) -> Kit:
    """The command, on the workspace of the shared job."""
    return lambda *line: kit(*line, at=main_job.workspace.root)


def ids(said: Any) -> list[str]:
    return [row["run_id"] for row in json.loads(said.out)]


def test_without_runs_the_next_step_is_named(kit: Kit) -> None:
    said = kit("runs")
    assert (said.code, said.out) == (0, "")
    assert "next: kit screen ma250-pullback" in said.err
    assert json.loads(kit("runs", "--json").out) == []


@kernel
def test_the_list_and_its_filters(runs: Kit) -> None:
    everything = [SLOT, f"{SCREEN}/1", f"{SCREEN}/2"]
    assert ids(runs("runs", "--json")) == everything
    assert ids(runs("runs", "--kind", "screen", "--json")) == everything[1:]
    assert ids(runs("runs", "--date", "2024-09-18", "--json")) == [SLOT]
    assert ids(runs("runs", "--subject", "ma250", "--json")) == everything[1:]
    assert ids(runs("runs", "--limit", "1", "--json")) == [SLOT]
    assert ids(runs("runs", "--latest", "--json")) == [f"{SCREEN}/2", SLOT]
    table = runs("runs").out.splitlines()
    assert table[0].startswith("run ")
    assert [line.split()[0] for line in table[2:]] == everything
    assert "file: sent, console: sent" in table[2]


@kernel
def test_a_filter_that_fits_nothing_does_not_deny_the_others(runs: Kit) -> None:
    for line in (["--date", "2001-01-01"], ["--subject", "nope"]):
        said = runs("runs", *line)
        assert (said.code, said.out) == (0, "")
        assert said.err == "no run fits; all of them: kit runs\n"
        assert ids(runs("runs", *line, "--json")) == []


@pytest.mark.parametrize("line", [["--date", "27.02.2020"], ["--limit", "0"], ["--kind", "x"]])
def test_wrong_filters(kit: Kit, line: list[str]) -> None:
    assert kit("runs", *line).code == 2


@kernel
def test_the_files_to_open_are_there(runs: Kit, main_job: Any) -> None:
    lines = [line.strip() for line in runs("runs", "--files", "--latest").out.splitlines()]
    assert lines
    assert all((main_job.workspace.root / line).is_file() for line in lines)
    for wanted in ("picks.json", "delivered/card.txt", "notebook.ipynb", "degradation.json"):
        assert f"runs/{SCREEN}/2/{wanted}" in lines


@kernel
def test_show_by_id_part_card_path_and_latest(runs: Kit, main_job: Any) -> None:
    card_id = main_job.read("card.json")["card_id"]
    for name in (f"{SCREEN}/1", card_id, str(main_job.screen_folder(1))):
        shown = json.loads(runs("show", name, "--json").out)
        assert shown["run_id"] == f"{SCREEN}/1", name
    assert json.loads(runs("show", "latest", "--json").out)["run_id"] == SLOT
    text = runs("show", f"{SCREEN}/1").out
    assert text.startswith(f"{SCREEN}/1: degraded\n")
    card = (main_job.screen_folder(1) / "delivered" / "card.txt").read_text("utf-8").strip()
    assert card in text
    assert "delivered/card.txt" in text
    assert "file     sent   1" in text


@kernel
@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("2020-02-27", "run.ambiguous"),
        ("2020-02-28", "run.unknown"),
        (f"{SCREEN}/7", "run.unknown"),
        ("../../etc", "run.unknown"),
    ],
)
def test_show_and_rerun_of_what_is_not_one_run(runs: Kit, name: str, code: str) -> None:
    for command in ("show", "rerun"):
        said = runs(command, name, "--json")
        assert said.code == 2
        shown = json.loads(said.out)["error"]
        assert shown["code"] == code
        assert shown["remedy"]
    if code == "run.ambiguous":
        assert f"{SCREEN}/1" in shown["remedy"]


@kernel
def test_a_broken_record_is_shown_as_such(kit: Kit, desk: Workspace, main_job: Any) -> None:
    folder = desk.runs / SCREEN / "1"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text("{", encoding="utf-8")
    assert "unreadable" in kit("runs").out
    said = kit("show", f"{SCREEN}/1")
    assert said.code == 0
    assert "run.json" in said.out
    again = kit("rerun", f"{SCREEN}/1")
    assert again.code == 2
    assert "[run.no_record]" in again.err
    assert "--again" in again.err


@kernel
def test_rerun_takes_every_parameter_along(
    runs: Kit, kit: Kit, desk: Workspace, main_job: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `kit screen` and `kit slot run` were given by hand comes back, the limit too."""
    record = main_job.read("run.json")
    record["parameters"] |= {"limit": 3, "mode": "offline"}
    folder = desk.runs / SCREEN / "1"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps(record), encoding="utf-8")
    seen: dict[str, Any] = {}

    def remember(_workspace: Any, subject: str, **options: Any) -> Any:
        seen.clear()
        seen.update(options, subject=subject)
        raise KeyboardInterrupt

    monkeypatch.setattr(screen_job, "run_screen", remember)
    monkeypatch.setattr(slot_job, "run_slot", remember)
    assert kit("rerun", f"{SCREEN}/1").code == 130
    assert (seen["subject"], seen["date"]) == ("ma250-pullback@0.3.1", "2020-02-27")
    assert (seen["mode"], seen["limit"], seen["again"]) == ("offline", 3, True)
    assert runs("rerun", SLOT).code == 130
    assert (seen["subject"], seen["again"]) == ("cn", True)
    assert seen["now"].isoformat() == "2024-09-18T02:03:00+00:00"
