"""Promise 6: one send per channel and run, whatever is called twice or dies in between."""

from __future__ import annotations

import io
import json
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kit.clock import FixedClock
from kit.errors import AlreadyDone, ConfigError
from kit.jobs.screen import run_screen
from kit.state import Store
from kit.workspace import Workspace

SCREEN = ("screen", "ma250-pullback", "--date", "2020-02-27")


def rows(workspace: Workspace, columns: str) -> list[tuple[Any, ...]]:
    """Rows of the outbox, read without the kit."""
    connection = sqlite3.connect(workspace.state_path)
    try:
        return connection.execute(f"select {columns} from deliveries order by id").fetchall()
    finally:
        connection.close()


@pytest.mark.kernel
def test_each_run_and_channel_was_sent_to_once(main_job: Any) -> None:
    sent = rows(main_job.workspace, "run_id, channel, state, attempts")
    screen = "2020-02-27/screen-ma250-pullback@0.3.1"
    expected = [
        (run_id, channel, "sent", 1)
        for run_id in (f"{screen}/1", f"{screen}/2", "2024-09-18/slot-cn-1000/1")
        for channel in ("file", "console")
    ]
    assert sent == expected
    ids = dict(rows(main_job.workspace, "run_id, card_id"))
    assert len(set(ids.values())) == 3, "a card id of its own for every run"


@pytest.mark.kernel
def test_again_makes_a_new_attempt_with_a_new_card_id(main_job: Any) -> None:
    assert (main_job.first.returncode, main_job.again.returncode) == (0, 0)
    one, two = (main_job.read("card.json", main_job.screen_folder(n)) for n in (1, 2))
    assert one["card_id"] != two["card_id"]
    assert f"卡片 {two['card_id']}" in main_job.again.stdout
    assert f"卡片 {one['card_id']}" not in main_job.again.stdout
    text = (main_job.screen_folder(1) / "delivered" / "card.txt").read_text(encoding="utf-8")
    assert text.count(f"卡片 {one['card_id']}") == 1


@pytest.mark.kernel
def test_the_same_key_again_sends_nothing(main_job: Any, kit_command: Any) -> None:
    before = rows(main_job.workspace, "*")
    folder = main_job.screen_folder(1)
    stamps = {p: p.stat().st_mtime_ns for p in folder.rglob("*")}

    done = kit_command(main_job.workspace.root, *SCREEN)
    assert (done.returncode, done.stdout) == (7, "")
    assert "[run.already_done]" in done.stderr
    for hint in ("kit show ", "kit rerun ", "--again"):
        assert hint in done.stderr
    as_json = kit_command(main_job.workspace.root, *SCREEN, "--json")
    assert as_json.returncode == 7
    assert json.loads(as_json.stdout)["error"]["code"] == "run.already_done"

    assert rows(main_job.workspace, "*") == before
    assert {p: p.stat().st_mtime_ns for p in folder.rglob("*")} == stamps
    assert sorted(p.name for p in folder.parent.iterdir()) == ["1", "2"]


@pytest.mark.kernel
@pytest.mark.slow
def test_two_calls_at_once_send_once(desk: Workspace, kit_command: Any) -> None:
    """Two processes in the same second: one runs, the other is told and sends nothing."""
    both = [kit_command.start(desk.root, *SCREEN) for _ in range(2)]
    outputs = [process.communicate(timeout=180) for process in both]
    assert sorted(process.returncode for process in both) == [0, 7]
    cards = [out for out, _ in outputs if out]
    assert len(cards) == 1
    assert Counter(rows(desk, "channel, state, attempts")) == {
        ("file", "sent", 1): 1,
        ("console", "sent", 1): 1,
    }


@pytest.mark.kernel
@pytest.mark.slow
def test_a_runner_killed_in_a_cell_is_taken_over(
    desk: Workspace, kit_command: Any, kernels: Callable[[int], list[int]]
) -> None:
    process = kit_command.start(desk.root, *SCREEN)
    assert process.stderr is not None
    while "Bundle" not in process.stderr.readline():
        pass
    orphans = kernels(process.pid)
    assert len(orphans) == 1
    process.send_signal(signal.SIGKILL)
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (-signal.SIGKILL, "")

    second = kit_command(desk.root, *SCREEN)
    assert second.returncode == 0, second.stderr
    assert "2 只候选" in second.stdout
    assert "/2 " in second.stdout, "a new attempt"
    folder = desk.runs / "2020-02-27" / "screen-ma250-pullback@0.3.1"
    assert sorted(p.name for p in folder.iterdir()) == ["1.dead", "2"]
    assert [row[1:] for row in rows(desk, "run_id, channel, state")] == [
        ("file", "sent"),
        ("console", "sent"),
    ]
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in orphans) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(Path(f"/proc/{pid}").exists() for pid in orphans), "no kernel is left behind"


def test_a_second_fire_of_cron_is_an_answer_not_an_error(
    desk: Workspace, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit 0 under `--cron`, 7 by hand, for the same refusal."""
    from kit.cli.main import run
    from kit.jobs import screen

    def done_already(*_args: Any, **_options: Any) -> None:
        raise AlreadyDone("run.already_done", "done", where="r", remedy="look")

    monkeypatch.setattr(screen, "run_screen", done_already)
    line = ["--workspace", str(desk.root), "screen", "ma250-pullback"]
    assert run(line) == 7
    assert "or give --again" in capsys.readouterr().err
    assert run([*line, "--cron"]) == 0
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "r: done\n")
    assert run([*line, "--cron", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["status"] == "already_done"


def test_by_hand_and_by_cron_are_two_keys(desk: Workspace) -> None:
    """A person's try in the afternoon must not make the evening's due run disappear."""
    (desk.notebooks / "production" / "daily_screen.ipynb").write_text("{", encoding="utf-8")
    store = Store(desk.state_path)
    clock = FixedClock("2020-02-27T09:30:00+00:00")
    first = run_screen(
        desk, "ma250-pullback", clock=clock, store=store, cron=True, stream=io.StringIO()
    )
    assert first.run is not None
    with pytest.raises(AlreadyDone):
        run_screen(desk, "ma250-pullback", clock=clock, store=store, cron=True)
    # By hand it is not done: here it gets as far as the notebook that cannot be read.
    with pytest.raises(ConfigError) as refused:
        run_screen(desk, "ma250-pullback", clock=clock, store=store, date="2020-02-27")
    assert refused.value.code == "notebook.invalid"
