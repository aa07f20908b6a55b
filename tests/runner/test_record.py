from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kit import files
from kit.errors import DataError, UsageError
from kit.jobs.runs import list_runs, show_run
from kit.runner import NotebookOutcome, RunFailure, RunRecord, find_runs, load_run
from kit.state.process import this_process


@pytest.fixture
def three(runs: Any, fake: Any) -> Any:
    """Two runs of one day and one of the day before."""
    runs(executor=fake)
    runs(runs.spec(subject="other@1.0.0"), executor=fake)
    key = replace(runs.spec().key, trade_date=runs.spec().key.trade_date.replace(day=17))
    runs(replace(runs.spec(), key=key), executor=fake)
    return runs


IDS = [
    "2024-09-18/screen-demo@0.1.0/1",
    "2024-09-18/screen-other@1.0.0/1",
    "2024-09-17/screen-demo@0.1.0/1",
]


def test_runs_come_back_the_latest_day_first(three: Any) -> None:
    assert [run.run_id for run in find_runs(three.workspace)] == IDS
    assert [r.run_id for r in find_runs(three.workspace, trade_date="2024-09-17")] == IDS[2:]


def test_an_empty_workspace_has_no_runs(workspace: Any) -> None:
    assert list(find_runs(workspace)) == []
    with pytest.raises(UsageError) as error:
        load_run(workspace, "latest")
    assert error.value.code == "run.unknown"


def test_a_run_is_found_by_whatever_names_it_uniquely(
    three: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = IDS[1]
    card_id = show_run(three.workspace, None, wanted).card.card_id  # type: ignore[union-attr]
    path = three.workspace.runs / wanted
    monkeypatch.chdir(three.workspace.root)
    for reference in (
        wanted,
        f"{wanted}/",
        "2024-09-18/screen-other",
        "other@1.0.0",
        card_id,
        card_id[:5],
        str(path),
        f"runs/{wanted}",
    ):
        assert load_run(three.workspace, reference).run_id == wanted, reference


def test_several_or_none_are_said(three: Any) -> None:
    with pytest.raises(UsageError) as error:
        load_run(three.workspace, "demo@0.1.0")
    assert error.value.code == "run.ambiguous"
    assert error.value.details["runs"] == [IDS[0], IDS[2]]
    with pytest.raises(UsageError) as error:
        load_run(three.workspace, "2024-09-18/screen-demo@0.1.1/1")
    assert error.value.code == "run.unknown"
    assert IDS[0] in error.value.remedy


def test_a_record_survives_its_file(three: Any) -> None:
    record = RunRecord.read(three.workspace.runs / IDS[0])
    assert RunRecord.from_dict(record.to_dict()) == record


def test_a_cut_record_is_unreadable_never_a_run(three: Any) -> None:
    path = three.workspace.runs / IDS[0] / "run.json"
    whole = path.read_bytes().rstrip()
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        with pytest.raises(DataError):
            RunRecord.read(path.parent)
    row = list_runs(three.workspace)[0]
    assert row.status == "unreadable"
    assert row.note


def test_a_record_with_an_unknown_key_is_refused(three: Any) -> None:
    folder = three.workspace.runs / IDS[0]
    files.write_json(folder / "run.json", {**files.read_json(folder / "run.json"), "statu": "ok"})
    with pytest.raises(DataError, match="did you mean 'status'"):
        RunRecord.read(folder)


def partial(three: Any, **holder: Any) -> Path:
    folder: Path = three.workspace.runs / IDS[0]
    record = RunRecord.read(folder)
    left = replace(record, status="running", holder=replace(record.holder, **holder))
    target = folder.with_name("1.partial")
    folder.rename(target)
    files.write_json(target / "run.json", left.to_dict())
    return target


def test_a_partial_folder_runs_while_its_process_lives(three: Any) -> None:
    partial(three)
    assert load_run(three.workspace, IDS[0]).state == "running"


def test_a_partial_folder_of_a_dead_process_is_dead(three: Any) -> None:
    partial(three, started="1")
    assert load_run(three.workspace, IDS[0]).state == "dead"


def test_what_was_set_aside_is_dead(three: Any) -> None:
    target = partial(three)
    target.rename(target.with_name("1.dead"))
    (three.workspace.runs / "2024-09-18/screen-demo@0.1.0/2.dead").mkdir()
    states = {r.run_id: (r.state, r.problem) for r in find_runs(three.workspace)}
    assert states[IDS[0]] == ("dead", "")
    assert states[IDS[0].replace("/1", "/2")] == ("dead", "it left no record")


def test_other_files_below_runs_are_no_runs(three: Any) -> None:
    for name in ("site", "market", "2024-09-18/notes", "2024-09-18/screen-demo@0.1.0/x"):
        (three.workspace.runs / name).mkdir()
    assert len(list(find_runs(three.workspace))) == 3


def test_the_list_can_be_narrowed(three: Any) -> None:
    workspace = three.workspace
    assert [row.run_id for row in list_runs(workspace, subject="demo")] == [IDS[0], IDS[2]]
    assert list_runs(workspace, kind="slot") == []
    assert [row.run_id for row in list_runs(workspace, limit=1)] == [IDS[0]]
    row = list_runs(workspace, trade_date="2024-09-17")[0]
    assert row.status == "ok"
    assert row.receipts == {"file": "sent", "console": "sent"}
    assert row.run_type == "manual"
    assert files.canonical_json(row.to_dict())


def test_show_gathers_everything(three: Any) -> None:
    shown = show_run(three.workspace, three.store, IDS[0])
    assert shown.status == "ok"
    assert shown.folder == f"runs/{IDS[0]}"
    assert shown.card is not None
    assert shown.card.title == "A card"
    assert [(r["channel"], r["state"]) for r in shown.receipts] == [
        ("file", "sent"),
        ("console", "sent"),
    ]
    assert "card.json" in shown.files
    assert shown.record is not None
    assert shown.record["holder"]["pid"] == this_process().pid
    assert files.canonical_json(shown.to_dict())


def test_show_asks_the_store_when_the_mirror_is_missing(three: Any) -> None:
    (three.workspace.runs / IDS[0] / "receipts.json").unlink()
    assert show_run(three.workspace, None, IDS[0]).receipts == ()
    shown = show_run(three.workspace, three.store, IDS[0])
    assert [r["state"] for r in shown.receipts] == ["sent", "sent"]


def test_show_of_a_failed_run_names_the_next_command(runs: Any, fake: Any) -> None:
    failure = RunFailure(kind="timeout", message="too slow", cell="Step 1")
    fake.action = lambda _e: NotebookOutcome(failure=failure, seconds=1.0)
    outcome = runs(executor=fake)
    shown = show_run(runs.workspace, runs.store, "latest")
    assert shown.run_id == outcome.run_id
    assert shown.next_command == f"kit rerun {outcome.run_id}"
    assert list_runs(runs.workspace)[0].note == "too slow"
