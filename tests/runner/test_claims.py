from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from sqlalchemy import select, update

from kit.clock import FixedClock
from kit.errors import AlreadyDone
from kit.runner import RunKey, claims
from kit.runner.claims import finish, heartbeat, take
from kit.state import Store, tables
from kit.state.process import Holder, this_process
from kit.workspace import Workspace

KEY = RunKey(kind="screen", subject="demo@0.1.0", trade_date=date(2024, 9, 18))


def hold_by(store: Store, holder: Holder) -> None:
    with store.begin() as connection:
        connection.execute(update(tables.claims).values(holder=holder.to_text()))


def gone() -> Holder:
    return replace(this_process(), started="1")


def test_the_first_gets_it_the_second_is_told_who_has_it(
    store: Store, clock: FixedClock, workspace: Workspace
) -> None:
    claim = take(store, clock, workspace, KEY)
    assert claim.folder.run_id == "2024-09-18/screen-demo@0.1.0/1"
    with pytest.raises(AlreadyDone) as error:
        take(store, clock, workspace, KEY)
    assert error.value.code == "run.held"
    assert f"process {this_process().pid}" in error.value.message
    assert error.value.exit_code == 7


def test_a_done_key_names_its_run_and_the_remedy(
    store: Store, clock: FixedClock, workspace: Workspace
) -> None:
    claim = take(store, clock, workspace, KEY)
    finish(store, clock, claim, "degraded")
    with pytest.raises(AlreadyDone) as error:
        take(store, clock, workspace, KEY)
    assert error.value.code == "run.already_done"
    assert "degraded" in error.value.message
    assert f"kit show {claim.folder.run_id}" in error.value.remedy
    assert f"kit rerun {claim.folder.run_id}" in error.value.remedy


def test_again_begins_a_new_attempt(store: Store, clock: FixedClock, workspace: Workspace) -> None:
    finish(store, clock, take(store, clock, workspace, KEY), "ok")
    claim = take(store, clock, workspace, KEY, again=True)
    assert claim.folder.attempt == 2
    assert not claim.resume


def test_manual_and_scheduled_do_not_block_each_other(
    store: Store, clock: FixedClock, workspace: Workspace
) -> None:
    first = take(store, clock, workspace, KEY)
    second = take(store, clock, workspace, replace(KEY, run_type="scheduled"))
    assert (first.folder.attempt, second.folder.attempt) == (1, 2)


def test_a_dead_holder_is_taken_over_with_a_new_attempt(
    store: Store, clock: FixedClock, workspace: Workspace
) -> None:
    take(store, clock, workspace, KEY)
    hold_by(store, gone())
    claim = take(store, clock, workspace, KEY)
    assert claim.folder.attempt == 2
    assert claim.previous is not None
    assert claim.previous.attempt == 1


def test_a_dead_holders_published_run_is_only_delivered(
    store: Store, clock: FixedClock, workspace: Workspace
) -> None:
    claim = take(store, clock, workspace, KEY)
    claim.folder.final.mkdir(parents=True)
    hold_by(store, gone())
    again = take(store, clock, workspace, KEY)
    assert again.resume
    assert again.folder == claim.folder


def test_a_holder_on_another_host_keeps_it_while_it_beats(
    store: Store, clock: FixedClock, workspace: Workspace
) -> None:
    take(store, clock, workspace, KEY)
    hold_by(store, replace(this_process(), host="elsewhere.invalid"))
    clock.sleep(claims.FOREIGN_LEASE_SEC - 1)
    with pytest.raises(AlreadyDone):
        take(store, clock, workspace, KEY)
    clock.sleep(2)
    assert take(store, clock, workspace, KEY).folder.attempt == 2


def test_a_heartbeat_is_written(store: Store, clock: FixedClock, workspace: Workspace) -> None:
    claim = take(store, clock, workspace, KEY)
    clock.sleep(90)
    heartbeat(store, clock, claim)
    with store.read() as connection:
        row = connection.execute(select(tables.claims)).one()
    assert row.taken_at == "2024-09-19T08:40:00+00:00"
    assert row.updated_at == "2024-09-19T08:41:30+00:00"


def test_who_lost_a_claim_can_no_longer_end_it(
    store: Store, clock: FixedClock, workspace: Workspace
) -> None:
    claim = take(store, clock, workspace, KEY)
    hold_by(store, replace(this_process(), host="elsewhere.invalid"))
    finish(store, clock, claim, "ok")
    with store.read() as connection:
        assert connection.execute(select(tables.claims.c.phase)).scalar() == "running"


def test_what_does_not_count_may_simply_be_run_again(
    store: Store, clock: FixedClock, workspace: Workspace
) -> None:
    finish(store, clock, take(store, clock, workspace, KEY), "interrupted", counts=False)
    claim = take(store, clock, workspace, KEY)
    assert claim.folder.attempt == 2
    assert claim.previous is None


def test_numbers_go_on_when_the_folders_are_gone(
    store: Store, clock: FixedClock, workspace: Workspace
) -> None:
    finish(store, clock, take(store, clock, workspace, KEY), "ok")
    scheduled = take(store, clock, workspace, replace(KEY, run_type="scheduled"))
    assert scheduled.folder.attempt == 2  # a run id never comes twice


def all_at_once(count: int, work: Callable[[], None]) -> None:
    barrier = threading.Barrier(count)

    def one() -> None:
        barrier.wait()
        work()

    threads = [threading.Thread(target=one) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_of_twenty_at_once_one_gets_it(
    store: Store, clock: FixedClock, workspace: Workspace
) -> None:
    won: list[int] = []
    lost: list[str] = []

    def work() -> None:
        try:
            won.append(take(store, clock, workspace, KEY).folder.attempt)
        except AlreadyDone as error:
            lost.append(error.code)

    all_at_once(20, work)
    assert won == [1]
    assert lost == ["run.held"] * 19


def test_processes_on_a_fresh_store_agree_on_one(tmp_path: Path, workspace: Workspace) -> None:
    script = (
        "import sys, time; from datetime import date\n"
        "from kit.clock import SystemClock; from kit.state import Store\n"
        "from kit.runner.claims import take; from kit.runner import RunKey\n"
        "from kit.workspace import Workspace; from kit.errors import AlreadyDone\n"
        "w = Workspace.at(sys.argv[1])\n"
        "key = RunKey(kind='screen', subject='demo@0.1.0', trade_date=date(2024, 9, 18))\n"
        "try:\n"
        "    take(Store(w.state_path), SystemClock(), w, key)\n"
        "except AlreadyDone as error:\n"
        "    sys.exit(error.exit_code)\n"
        "sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", script, str(workspace.root)]
    started = [subprocess.Popen(command, stdin=subprocess.PIPE) for _ in range(4)]
    # The winner waits for its stdin to close; the others leave before that.
    deadline = time.monotonic() + 60
    while sum(process.poll() is not None for process in started) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    for process in started:
        process.communicate()
    assert sorted(process.returncode for process in started) == [0, 7, 7, 7]
