from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from kit.errors import StorageError, UsageError
from kit.runner import RunFolder, RunKey, card_id_of
from kit.runner.identity import first_free, last_attempt
from kit.workspace import Workspace

DAY = date(2024, 9, 18)


def key(**changes: Any) -> RunKey:
    values: dict[str, Any] = {"kind": "screen", "subject": "demo@0.1.0", "trade_date": DAY}
    return RunKey(**{**values, **changes})


def test_manual_and_scheduled_share_a_folder_but_never_a_key() -> None:
    manual, scheduled = key(), key(run_type="scheduled")
    assert manual.text != scheduled.text
    assert manual.folder == scheduled.folder == "2024-09-18/screen-demo@0.1.0"


@pytest.mark.parametrize(
    ("slot", "folder"),
    [
        ("2024-09-18T10:00+08:00", "2024-09-18/slot-cn-1000"),
        ("2024-09-18T09:30:00+08:00", "2024-09-18/slot-cn-0930"),
        ("0930", "2024-09-18/slot-cn-0930"),
        ("14:30", "2024-09-18/slot-cn-1430"),
    ],
)
def test_a_slot_shows_its_local_time(slot: str, folder: str) -> None:
    assert key(kind="slot", subject="cn", slot=slot).folder == folder


def test_two_slots_of_one_wall_time_are_two_keys() -> None:
    # The hour that comes twice when daylight saving ends.
    first = key(kind="slot", subject="us", slot="2024-11-03T01:30-04:00")
    second = key(kind="slot", subject="us", slot="2024-11-03T01:30-05:00")
    assert first.text != second.text


def test_a_key_survives_its_json_form() -> None:
    one = key(kind="slot", subject="hk", slot="2024-09-18T10:00+08:00", run_type="scheduled")
    assert RunKey.from_dict(one.to_dict()) == one


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "../screen"},
        {"kind": "Screen"},
        {"subject": "../../etc"},
        {"subject": "a/b"},
        {"subject": ""},
        {"subject": ".hidden"},
        {"slot": "10:3"},
        {"slot": "1030/.."},
        {"run_type": "cron"},
    ],
)
def test_a_key_never_leaves_its_folder(changes: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as error:
        key(**changes)
    assert error.value.code == "run.bad_key"


def test_attempts_are_counted_whatever_became_of_them(workspace: Workspace) -> None:
    folder = workspace.runs / key().folder
    for name in ("1", "2.dead", "7.partial", "notes", "x3"):
        (folder / name).mkdir(parents=True)
    assert last_attempt(workspace, key()) == 7
    assert last_attempt(workspace, key(subject="other@1.0.0")) == 0


def test_a_number_in_use_is_passed_over(workspace: Workspace) -> None:
    folder = workspace.runs / key().folder
    for name in ("1", "2.dead", "3.partial"):
        (folder / name).mkdir(parents=True)
    made = first_free(workspace, key(), 1)
    assert made.attempt == 4
    assert made.partial.is_dir()
    assert made.run_id == "2024-09-18/screen-demo@0.1.0/4"


def test_a_place_that_cannot_be_written_is_explained(workspace: Workspace) -> None:
    workspace.runs.mkdir(exist_ok=True)
    (workspace.runs / "2024-09-18").write_text("in the way")
    with pytest.raises(StorageError):
        first_free(workspace, key(), 1)


def test_set_aside_keeps_the_evidence(workspace: Workspace) -> None:
    made = RunFolder(root=workspace.runs, key=key(), attempt=1)
    assert made.create()
    (made.partial / "log.txt").write_text("x")
    made.set_aside()
    assert (made.dead / "log.txt").read_text() == "x"
    made.set_aside()  # nothing left to do


def test_card_ids_are_short_and_differ_by_attempt() -> None:
    one, two = card_id_of("2024-09-18/a/1"), card_id_of("2024-09-18/a/2")
    assert len(one) == len(two) == 8
    assert one != two
