"""The order of a run, with an executor that needs no kernel."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, update

from kit import files
from kit.delivery import ConsoleChannel, FileChannel
from kit.errors import (
    AlreadyDone,
    BundleError,
    ConfigError,
    DeliveryError,
    Interrupted,
    RunError,
    StorageError,
)
from kit.runner import NotebookOutcome, Refusal, RunFailure, RunRecord
from kit.runner.cells import ProgressEvent
from kit.state import Store, tables
from kit.state.process import this_process


def fail(kind: Any, **values: Any) -> Callable[[Any], NotebookOutcome]:
    failure = RunFailure(kind=kind, message=f"it was {kind}", **values)
    return lambda _execution: NotebookOutcome(failure=failure, seconds=1.0)


def test_a_good_run_leaves_everything_in_its_place(runs: Any, fake: Any) -> None:
    outcome = runs(runs.spec(facts={"bundle_digest": "d" * 64}), executor=fake)
    assert outcome.status == "ok"
    assert outcome.error() is None
    assert outcome.run_id == "2024-09-18/screen-demo@0.1.0/1"
    assert outcome.folder == runs.workspace.runs / outcome.run_id
    names = sorted(p.relative_to(outcome.folder).as_posix() for p in outcome.folder.rglob("*.*"))
    assert names == [
        "card.json",
        "delivered/card.json",
        "delivered/card.txt",
        "delivered/console.txt",
        "events.jsonl",
        "log.txt",
        "receipts.json",
        "run.json",
    ]
    record = RunRecord.read(outcome.folder)
    assert record.status == "ok"
    assert record.parameters == {"symbol": "000001"}
    assert record.facts == {"bundle_digest": "d" * 64}
    assert record.holder == this_process()
    assert [(r.channel, r.state) for r in outcome.receipts] == [
        ("file", "sent"),
        ("console", "sent"),
    ]
    assert runs.stream.getvalue().count("A card") == 1


def test_the_same_key_again_is_already_done(runs: Any, fake: Any) -> None:
    runs(executor=fake)
    with pytest.raises(AlreadyDone) as error:
        runs(executor=fake)
    assert error.value.code == "run.already_done"
    assert len(fake.ran) == 1


def test_again_makes_a_second_attempt_and_sends_it(runs: Any, fake: Any) -> None:
    first = runs(executor=fake)
    second = runs(executor=fake, again=True)
    assert second.run_id == first.run_id.replace("/1", "/2")
    assert second.card.card_id != first.card.card_id
    assert runs.stream.getvalue().count("A card") == 2
    assert RunRecord.read(first.folder).attempt == 1


def test_manual_and_scheduled_both_run(runs: Any, fake: Any) -> None:
    runs(executor=fake)
    outcome = runs(runs.spec(run_type="scheduled"), executor=fake)
    assert outcome.run_id.endswith("/2")


def test_a_degradation_report_degrades_the_run(runs: Any, fake: Any) -> None:
    fake.action = lambda e: files.write_json(e.folder / "degradation.json", {"degraded": True})
    assert runs(executor=fake).status == "degraded"


@pytest.mark.parametrize(
    "kind", ["cell_error", "exited", "kernel_died", "timeout", "output_too_large", "bad_result"]
)
def test_a_failed_run_delivers_the_fallback_card(runs: Any, fake: Any, kind: str) -> None:
    fake.action = fail(kind, cell="Step 2")
    outcome = runs(executor=fake)
    assert outcome.status == "failed"
    assert f"FALLBACK {kind}" in runs.stream.getvalue()
    failure = runs.failures[0]
    assert (failure.kind, failure.cell) == (kind, "Step 2")
    assert failure.run_id == outcome.run_id
    assert outcome.card.card_id == failure.card_id
    assert failure.remedy == f"kit rerun {outcome.run_id}"
    error = outcome.error()
    assert isinstance(error, RunError)
    assert (error.code, error.exit_code) == (f"run.{kind}", 5)
    assert runs.record(outcome)["failure"]["message"] == f"it was {kind}"
    with pytest.raises(AlreadyDone):  # its card was delivered, so the key is done
        runs(executor=fake)


def test_the_card_a_failed_notebook_left_is_kept_but_not_sent(
    runs: Any, fake: Any, make_card: Any
) -> None:
    def leave(execution: Any) -> NotebookOutcome:
        card = make_card(execution.reserved["card_id"], "LEFT BEHIND")
        files.write_json(execution.folder / "card.json", card.to_dict())
        return fail("timeout")(execution)

    fake.action = leave
    outcome = runs(executor=fake)
    assert "LEFT BEHIND" not in runs.stream.getvalue()
    assert runs.failures[0].left_card.title == "LEFT BEHIND"
    assert files.read_json(outcome.folder / "card.rejected.json")["title"] == "LEFT BEHIND"
    assert files.read_json(outcome.folder / "card.json")["title"] == "FALLBACK timeout"


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        (None, "missing_result", "missing"),
        ("{", "bad_result", "card.json"),
        ("{}", "bad_result", "missing"),
        ('{"card_id": NaN}', "bad_result", "NaN"),
        ("blank", "bad_result", "empty"),
        ("nan", "bad_result", "no number"),
    ],
)
def test_a_card_that_cannot_be_sent_is_a_failure(
    runs: Any, fake: Any, make_card: Any, text: str | None, kind: str, said: str
) -> None:
    def leave(execution: Any) -> NotebookOutcome:
        value = make_card(execution.reserved["card_id"]).to_dict()
        if text == "blank":
            value["blocks"][0]["lines"] = [" "]
        if text == "nan":
            value["blocks"][0]["lines"] = ["涨幅nan%"]
        if text is not None:
            written = json.dumps(value) if text in ("blank", "nan") else text
            (execution.folder / "card.json").write_text(written)
        return NotebookOutcome(failure=None, seconds=1.0)

    fake.action = leave
    outcome = runs(executor=fake)
    assert outcome.failure.kind == kind
    assert said in outcome.failure.message
    assert f"FALLBACK {kind}" in runs.stream.getvalue()


def test_a_fallback_that_fails_leaves_the_card_of_last_resort(runs: Any, fake: Any) -> None:
    def broken(folder: Path, failure: RunFailure) -> Any:
        raise RuntimeError("no card")

    fake.action = fail("kernel_died", cell="选股")
    outcome = runs(executor=fake, fallback_card=broken)
    shown = runs.stream.getvalue()
    assert "运行失败" in shown
    assert "运行进程退出（选股）" in shown
    assert f"kit rerun {outcome.run_id}" in shown
    assert any("no card" in warning for warning in outcome.warnings)


def test_a_fault_of_the_executor_still_ends_in_a_card(runs: Any, fake: Any) -> None:
    def fault(execution: Any) -> NotebookOutcome:
        raise ZeroDivisionError("token=sk-abcdefghijklmnopqrst")

    fake.action = fault
    outcome = runs(executor=fake)
    assert outcome.failure.kind == "crashed"
    assert "sk-abc" not in json.dumps(runs.record(outcome))


def test_a_refusal_known_before_still_owes_its_card(runs: Any) -> None:
    error = BundleError("bundle.tampered", "code/engine.py was changed", remedy="restore it")
    outcome = runs(executor=Refusal(error=error))
    assert (outcome.failure.kind, outcome.failure.code) == ("refused", "bundle.tampered")
    assert outcome.failure.remedy == "restore it"
    assert "FALLBACK refused" in runs.stream.getvalue()


def test_a_wrong_notebook_is_an_error_by_hand_and_a_card_by_schedule(runs: Any) -> None:
    with pytest.raises(ConfigError):
        runs()
    assert not (runs.workspace.runs / "2024-09-18").exists()
    outcome = runs(runs.spec(run_type="scheduled"))
    assert (outcome.failure.kind, outcome.failure.code) == ("refused", "notebook.missing")
    assert "FALLBACK refused" in runs.stream.getvalue()


def test_an_interrupted_run_by_hand_sends_nothing_and_may_be_run_again(
    runs: Any, fake: Any
) -> None:
    fake.action = fail("interrupted")
    outcome = runs(executor=fake)
    assert outcome.status == "interrupted"
    assert outcome.error().exit_code == 130
    assert outcome.receipts == ()
    assert runs.stream.getvalue() == ""
    fake.action = None
    assert runs(executor=fake).run_id.endswith("/2")


def test_an_interrupted_scheduled_run_is_never_silent(runs: Any, fake: Any) -> None:
    fake.action = fail("interrupted")
    outcome = runs(runs.spec(run_type="scheduled"), executor=fake)
    assert outcome.status == "interrupted"
    assert "FALLBACK interrupted" in runs.stream.getvalue()


def test_without_delivery_nothing_is_sent_or_queued(runs: Any, fake: Any) -> None:
    outcome = runs(executor=fake, deliver=False)
    assert outcome.status == "ok"
    assert runs.stream.getvalue() == ""
    with runs.store.read() as connection:
        assert connection.execute(select(tables.deliveries)).all() == []


def test_a_kind_of_run_without_card_needs_none(runs: Any, fake: Any) -> None:
    fake.action = lambda _e: NotebookOutcome(failure=None, seconds=1.0)
    outcome = runs(executor=fake, fallback_card=None)
    assert (outcome.status, outcome.card, outcome.receipts) == ("ok", None, ())


def test_when_no_channel_takes_the_card_the_error_says_so(runs: Any, fake: Any) -> None:
    stream = io.StringIO()
    stream.close()
    outcome = runs(executor=fake, channels=[ConsoleChannel(stream=stream)])
    assert outcome.status == "ok"
    error = outcome.error()
    assert isinstance(error, DeliveryError)
    assert error.exit_code == 6


def test_a_store_that_cannot_be_written_never_silences_a_run(runs: Any, fake: Any) -> None:
    (runs.workspace.root / "blocked").write_text("")
    runs.store = Store(runs.workspace.root / "blocked" / "state.sqlite3")
    outcome = runs(executor=fake)
    assert outcome.status == "ok"
    assert not outcome.claimed
    assert [r.state for r in outcome.receipts] == ["sent", "sent"]
    assert "未登记" in runs.stream.getvalue()
    assert any("could not be claimed" in warning for warning in outcome.warnings)
    assert any(event.kind == "warning" for event in runs.events)
    assert files.read_json(outcome.folder / "receipts.json")["recorded"] is False
    assert runs(executor=fake).run_id.endswith("/2")


def test_a_disk_that_takes_no_folder_still_sends_from_memory(runs: Any, fake: Any) -> None:
    # A file where the day's folder should be: nothing below it can be made.
    runs.workspace.runs.mkdir(exist_ok=True)
    (runs.workspace.runs / "2024-09-18").write_text("in the way")
    outcome = runs(executor=fake)
    assert outcome.status == "failed"
    assert outcome.folder is None
    assert outcome.failure.kind == "storage"
    assert {r.channel: r.state for r in outcome.receipts} == {"file": "failed", "console": "sent"}
    assert "FALLBACK storage" in runs.stream.getvalue()
    assert "没有留下完整记录" in runs.stream.getvalue()


def test_a_disk_that_fills_up_in_the_run_still_sends_from_memory(
    runs: Any, fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise StorageError("file.no_space", "the disk is full", remedy="free some space")

    def fill(_execution: Any) -> None:
        for name in ("write_bytes", "write_text", "write_json", "append_json_line"):
            monkeypatch.setattr(files, name, full)

    fake.action = fill
    outcome = runs(executor=fake)
    assert outcome.failure.kind == "storage"
    assert outcome.failure.code == "file.no_space"
    assert "FALLBACK storage" in runs.stream.getvalue()


def test_a_good_card_is_sent_even_if_its_folder_cannot_be_published(
    runs: Any, fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise StorageError("file.no_space", "the disk is full")

    monkeypatch.setattr(files, "publish_dir", refuse)
    outcome = runs(executor=fake)
    assert outcome.folder is None
    assert outcome.status == "failed"
    shown = runs.stream.getvalue()
    assert "A card" in shown
    assert "没有留下完整记录" in shown
    with pytest.raises(AlreadyDone):
        runs(executor=fake)


def test_a_broken_terminal_stops_nothing(runs: Any, fake: Any) -> None:
    def closed(event: ProgressEvent) -> None:
        raise BrokenPipeError

    runs.events = type("Listener", (), {"append": staticmethod(closed)})
    assert runs(executor=fake).status == "ok"


def die_while_running(runs: Any) -> None:
    """Make the latest claim look like that of a process that is gone."""
    gone = replace(this_process(), started="1")
    with runs.store.begin() as connection:
        connection.execute(update(tables.claims).values(phase="running", holder=gone.to_text()))
        connection.execute(update(tables.deliveries).values(holder=gone.to_text()))


def test_what_a_dead_run_left_is_set_aside(runs: Any, fake: Any) -> None:
    folder = runs.workspace.runs / "2024-09-18/screen-demo@0.1.0"
    first = runs(executor=fake)
    (folder / "1").rename(folder / "1.partial")
    die_while_running(runs)
    with runs.store.begin() as connection:
        connection.execute(tables.deliveries.delete())
    outcome = runs(executor=fake)
    assert outcome.run_id.endswith("/2")
    assert (folder / "1.dead/log.txt").exists()
    assert not (folder / "1.partial").exists()
    assert first.card.card_id != outcome.card.card_id
    assert "set aside" in runs.record(outcome)["warnings"][0]


def test_a_living_runs_partial_folder_is_left_alone(runs: Any, fake: Any) -> None:
    def meanwhile(execution: Any) -> None:
        if len(fake.ran) == 1:
            runs(runs.spec(run_type="scheduled"), executor=fake)
            assert execution.folder.is_dir()

    fake.action = meanwhile
    assert runs(executor=fake).status == "ok"
    assert len(fake.ran) == 2


def test_a_dead_runs_delivery_is_finished_without_running_again(runs: Any, fake: Any) -> None:
    first = runs(executor=fake)
    die_while_running(runs)
    with runs.store.begin() as connection:
        rows = tables.deliveries
        change = update(rows).where(rows.c.channel == "console").values(state="pending")
        connection.execute(change)
    (first.folder / "receipts.json").unlink()
    outcome = runs(executor=fake)
    assert outcome.resumed
    assert outcome.run_id == first.run_id
    assert len(fake.ran) == 1
    assert [r.state for r in outcome.receipts] == ["sent", "sent"]
    assert (first.folder / "receipts.json").exists()
    assert runs.stream.getvalue().count("A card") == 2  # the pending one was sent now


def test_a_dead_delivery_is_finished_even_without_its_folder(runs: Any, fake: Any) -> None:
    first = runs(executor=fake)
    files.remove_tree(first.folder)
    die_while_running(runs)
    with runs.store.begin() as connection:
        connection.execute(update(tables.deliveries).values(state="pending"))
    outcome = runs(executor=fake)
    assert outcome.resumed
    assert {r.channel: r.state for r in outcome.receipts} == {"file": "failed", "console": "sent"}


def test_left_while_being_delivered_it_is_delivered_not_run_again(
    runs: Any, fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow(FileChannel):
        def send(self, message: Any) -> Any:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted) as error:
        runs(executor=fake, channels=[ConsoleChannel(stream=runs.stream), Slow(name="slow")])
    assert error.value.exit_code == 130
    outcome = runs(executor=fake, channels=[ConsoleChannel(stream=runs.stream), FileChannel()])
    assert outcome.resumed
    assert len(fake.ran) == 1
    assert runs.stream.getvalue().count("A card") == 1


def test_twenty_at_once_make_one_run(runs: Any, fake: Any) -> None:
    barrier = threading.Barrier(20)
    results: list[str] = []

    def one() -> None:
        barrier.wait()
        try:
            results.append(runs(executor=fake).status)
        except AlreadyDone:
            results.append("already")

    threads = [threading.Thread(target=one) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == ["already"] * 19 + ["ok"]
    assert len(fake.ran) == 1
    assert runs.stream.getvalue().count("A card") == 1


def test_twenty_keys_at_once_all_run(runs: Any, fake: Any) -> None:
    results: list[str] = []

    def one(number: int) -> None:
        results.append(runs(runs.spec(subject=f"demo-{number}@0.1.0"), executor=fake).status)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == ["ok"] * 20


def test_the_commit_of_the_workspace_is_recorded(runs: Any, fake: Any) -> None:
    root = runs.workspace.root
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    command = ["git", "-C", str(root), "-c", "user.name=a", "-c", "user.email=a@b.invalid"]
    subprocess.run([*command, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    head = subprocess.check_output(["git", "-C", str(root), "rev-parse", "HEAD"], text=True)
    assert runs.record(runs(executor=fake))["git_commit"] == head.strip()
    subprocess.run(["git", "-C", str(root), "pack-refs", "--all"], check=True)
    assert runs.record(runs(executor=fake, again=True))["git_commit"] == head.strip()


def test_records_hold_no_secret(runs: Any, fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("X_API_KEY", "hunter2hunter2")
    outcome = runs(runs.spec(facts={"note": "uses hunter2hunter2"}), executor=fake)
    assert "hunter2" not in (outcome.folder / "run.json").read_text()


def test_importing_the_runner_loads_no_notebook_machinery() -> None:
    script = (
        "import sys; import kit.runner.run, kit.jobs.runs\n"
        "heavy = {'papermill', 'nbclient', 'nbformat', 'jupyter_client', 'litellm', 'vectorbt'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    said = subprocess.check_output([sys.executable, "-c", script], text=True, env=os.environ)
    assert said.strip() == "[]"


def test_the_file_channel_alone_is_enough(runs: Any, fake: Any) -> None:
    outcome = runs(executor=fake, channels=[FileChannel()])
    assert [r.state for r in outcome.receipts] == ["sent"]
