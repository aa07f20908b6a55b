"""The whole way with a real kernel: what ends well, and every way it can end badly."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kit import files
from kit.clock import FixedClock
from kit.runner import run_clean
from kit.runner.kernel import Kernel
from kit.state.process import Holder, this_process

pytestmark = pytest.mark.kernel
SCRIPT = Path(__file__).with_name("perform_script.py")


def cells_of(folder: Path) -> dict[str, str]:
    notebook = files.read_json(folder / "notebook.ipynb")
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    return {"".join(c["source"])[:12]: c["metadata"]["papermill"]["status"] for c in code}


def outputs_of(folder: Path) -> str:
    notebook = files.read_json(folder / "notebook.ipynb")
    return json.dumps([cell.get("outputs") for cell in notebook["cells"]], ensure_ascii=False)


def lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def gone_soon(pid: int) -> bool:
    deadline = time.monotonic() + 10
    while lives(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def test_a_good_notebook(runs: Any, make_notebook: Any, card_source: str) -> None:
    path = make_notebook(
        "print('symbol is', repr(symbol), repr(top))",
        card_source,
        "import os; print(sorted(k for k in os.environ if k.startswith('KIT_RUN')), os.getcwd())",
        results={"card.json": "card"},
    )
    outcome = runs(runs.spec(path, parameters={"symbol": "000001", "top": 5}))
    assert outcome.failure is None
    assert outcome.status == "ok"
    shown = outputs_of(outcome.folder)
    assert "symbol is '000001' 5" in shown
    assert "KIT_RUN_FOLDER" in shown
    assert f"{outcome.run_id}.partial" in shown
    assert set(cells_of(outcome.folder).values()) == {"completed"}
    assert "A card about 000001" in runs.stream.getvalue()
    metadata = files.read_json(outcome.folder / "notebook.ipynb")["metadata"]["papermill"]
    assert metadata["parameters"] == {"symbol": "000001", "top": 5}
    assert not {"input_path", "output_path"} & set(metadata)
    record = runs.record(outcome)
    assert [c["status"] for c in record["cells"]] == ["completed"] * 6
    assert record["cells"][2]["title"] == "Step 1"
    assert record["notebook"] == "notebooks/demo.ipynb"
    assert len(record["notebook_sha256"]) == 64
    kinds = [event["kind"] for event in files.read_json_lines(outcome.folder / "events.jsonl")]
    assert kinds.count("cell_started") == kinds.count("cell_done") == 6
    steps = [(e.n, e.of, e.title) for e in runs.events if e.kind == "cell_started"]
    assert steps[2] == (3, 6, "Step 1")
    assert not (outcome.folder / "kernel.log").exists()


def test_the_source_notebook_is_not_touched(
    runs: Any, make_notebook: Any, card_source: str
) -> None:
    path = make_notebook(card_source)
    before = path.read_bytes()
    runs(runs.spec(path))
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("source", "kind", "said"),
    [
        ("import sys; sys.exit(0)", "exited", "sys.exit(0)"),
        ("exit()", "exited", "exit()"),
        ("raise ValueError('bad bars for 000001')", "cell_error", "ValueError: bad bars for 0000"),
        ("!exit 3", "cell_error", "CalledProcessError"),
        ("%no_such_magic", "cell_error", "UsageError"),
        ("import os; os._exit(0)", "kernel_died", "the kernel died in cell 'Step 2'"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "kernel_died", "Step 2"),
        ("print('x' * 100_000_000)", "output_too_large", "5000000 bytes"),
        ("for i in range(2_000_000): print('y' * 50)", "output_too_large", "Step 2"),
    ],
)
def test_what_ends_badly_names_the_cell(
    runs: Any, make_notebook: Any, card_source: str, source: str, kind: str, said: str
) -> None:
    # The card is there before the end goes wrong: it must not be sent as if all were well.
    path = make_notebook(card_source, source, "never = 'reached'")
    outcome = runs(runs.spec(path))
    assert outcome.status == "failed"
    assert outcome.failure.kind == kind
    assert outcome.failure.cell == "Step 2"
    assert said in outcome.failure.message
    assert f"FALLBACK {kind}" in runs.stream.getvalue()
    statuses = list(cells_of(outcome.folder).values())
    assert statuses[-2:] == ["pending", "pending"]
    assert statuses[-3] in ("failed", "aborted")
    assert (outcome.folder / "notebook.ipynb").stat().st_size < 3_000_000


def test_a_tag_does_not_excuse_an_exception(runs: Any, make_notebook: Any, make_cell: Any) -> None:
    cells = [
        make_cell('symbol = "1"\ntop = 1', "parameters"),
        make_cell("1 / 0", "raises-exception"),
        make_cell("raise SystemError('skipped')", "skip-execution"),
        make_cell("finished = True", "kit-end"),
    ]
    outcome = runs(runs.spec(make_notebook(cells=cells)))
    assert outcome.failure.kind == "cell_error"
    assert outcome.failure.ename == "ZeroDivisionError"


def test_a_hang_is_killed_with_everything_it_started(
    runs: Any, make_notebook: Any, card_source: str
) -> None:
    path = make_notebook(
        "import subprocess\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        "runaway = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        "open('pids', 'w').write(f'{child.pid} {runaway.pid}')\n",
        "import time; time.sleep(600)",
    )
    began = time.monotonic()
    outcome = runs(runs.spec(path, time_limit_sec=4.0))
    assert outcome.failure.kind == "timeout"
    assert outcome.failure.cell == "Step 2"
    assert time.monotonic() - began < 20
    for pid in (outcome.folder / "pids").read_text().split():
        assert gone_soon(int(pid))


def test_what_a_good_notebook_left_running_is_killed_too(
    runs: Any, make_notebook: Any, card_source: str
) -> None:
    path = make_notebook(
        card_source,
        "import subprocess\n"
        "process = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        "open('pid', 'w').write(str(process.pid))",
    )
    outcome = runs(runs.spec(path))
    assert outcome.status == "ok"
    assert gone_soon(int((outcome.folder / "pid").read_text()))


@pytest.mark.parametrize(
    ("source", "results", "kind", "said"),
    [
        ("", {"card.json": "card", "picks.json": None}, "missing_result", "picks.json is missing"),
        ("open('picks.json', 'w').write('')", {"picks.json": None}, "missing_result", "empty"),
        ("open('picks.json', 'w').write('[1, NaN]')", {"picks.json": None}, "bad_result", "NaN"),
        (
            "open('d.json', 'w').write('{}')",
            {"d.json": "degradation"},
            "bad_result",
            "d.json: ",
        ),
        ("open('l.jsonl', 'w').write('{}\\n{')", {"l.jsonl": None}, "bad_result", "l.jsonl"),
    ],
)
def test_every_cell_ran_but_a_result_is_wrong(
    runs: Any,
    make_notebook: Any,
    card_source: str,
    source: str,
    results: dict[str, Any],
    kind: str,
    said: str,
) -> None:
    outcome = runs(runs.spec(make_notebook(card_source, source or "pass", results=results)))
    assert outcome.failure.kind == kind
    assert said in outcome.failure.message
    assert set(cells_of(outcome.folder).values()) == {"completed"}
    assert f"FALLBACK {kind}" in runs.stream.getvalue()


def test_no_secret_reaches_the_notebook_or_its_record(
    runs: Any, make_notebook: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WECOM_WEBHOOK", "hunter2hunter2")
    monkeypatch.setenv("DEEPSEEK_API_KEY", "swordfish-swordfish")
    path = make_notebook(
        "import os, sys; print('webhook', os.environ.get('WECOM_WEBHOOK'))\n"
        "print('sword', end=''); sys.stdout.flush(); print('fish-sword' + 'fish')",
        "raise ValueError('the key is ' + os.environ['DEEPSEEK_API_KEY'])",
    )
    outcome = runs(runs.spec(path, kernel_secrets=frozenset({"DEEPSEEK_API_KEY"})))
    assert "webhook None" in outputs_of(outcome.folder)
    assert "«redacted»" in outcome.failure.evalue
    for file in outcome.folder.rglob("*"):
        if file.is_file():
            assert b"swordfish" not in file.read_bytes(), file
    assert "swordfish" not in runs.stream.getvalue()


def test_a_secret_taken_from_the_parent_reaches_neither_folder_nor_card(
    runs: Any, make_notebook: Any, card_source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", "hunter2hunter2")
    # What /proc/<parent>/environ would give: the test process was started without the variable.
    path = make_notebook(
        "stolen = 'hunter2' * 2\n"
        "open('note.txt', 'w').write(stolen)\n"
        "open('note.bin', 'wb').write(b'\\0' + stolen.encode())",
        card_source.replace("A card about {symbol}", "A card about {stolen}"),
    )
    outcome = runs(runs.spec(path))
    assert outcome.status == "ok"
    assert outcome.card.title == "A card about «redacted»"
    assert "hunter2hunter2" not in runs.stream.getvalue()
    assert (outcome.folder / "note.txt").read_text(encoding="utf-8") == "«redacted»"
    assert not (outcome.folder / "note.bin").exists()
    for file in outcome.folder.rglob("*"):
        if file.is_file():
            assert b"hunter2hunter2" not in file.read_bytes(), file
    assert "note.bin held a secret and was removed" in runs.record(outcome)["warnings"]


def test_folders_of_killed_runners_are_removed_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    me = this_process()
    holders = {
        "dead": replace(me, started="1"),  # the id was given to another process since
        "living": me,
        "elsewhere": replace(me, host="another-machine"),
    }
    for name, holder in holders.items():
        (tmp_path / f"kit-kernel-{name}").mkdir()
        (tmp_path / f"kit-kernel-{name}" / "holder").write_text(holder.to_text(), encoding="utf-8")
    (tmp_path / "kit-kernel-fresh").mkdir()
    (tmp_path / "other").mkdir()
    kernel = Kernel(cwd=tmp_path, env={}, mark="x")
    left = {path.name for path in tmp_path.iterdir()} - {kernel._home.name}
    assert left == {"kit-kernel-living", "kit-kernel-elsewhere", "kit-kernel-fresh", "other"}
    # Its own folder says whose it is.
    assert Holder.from_text((kernel._home / "holder").read_text(encoding="utf-8")) == me
    kernel.close()
    assert not kernel._home.exists()


def test_a_wrong_parameter_starts_no_kernel(runs: Any, make_notebook: Any) -> None:
    from kit.errors import UsageError

    path = make_notebook("x = 1")
    with pytest.raises(UsageError, match="did you mean 'symbol'"):
        runs(runs.spec(path, parameters={"symbl": "000001"}))
    assert list(runs.workspace.runs.glob("2*")) == []


def test_papermill_may_be_called_with_our_engine_directly(
    make_notebook: Any, tmp_path: Path
) -> None:
    import papermill

    path = make_notebook("print(symbol)")
    out = tmp_path / "out.ipynb"
    papermill.execute_notebook(
        str(path), str(out), {"symbol": "000001"}, engine_name="kit", progress_bar=False
    )
    assert "000001" in json.dumps(files.read_json(out)["cells"][3]["outputs"])


def test_running_often_in_one_process_leaks_nothing(
    runs: Any,
    make_notebook: Any,
    card_source: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A path too long for a Unix socket: TCP takes over.
    folder = tmp_path / ("x" * 80)
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    path = make_notebook(card_source)
    counts = []
    for number in range(3):
        assert runs(runs.spec(path, subject=f"demo-{number}@0.1.0")).status == "ok"
        descriptors = len(list(Path("/proc/self/fd").iterdir()))
        counts.append((descriptors, threading.active_count()))
    assert counts[2] == counts[1]
    assert list(folder.iterdir()) == []


def test_run_clean_replaces_the_notebook_where_it_stands(
    make_notebook: Any, tmp_path: Path
) -> None:
    copy = tmp_path / "notebook.ipynb"
    shutil.copyfile(make_notebook("print('top is', top)"), copy)
    clock = FixedClock("2024-09-19T08:40:00+00:00")
    given = {"symbol": "000001", "top": 7}
    outcome = run_clean(copy, parameters=given, clock=clock, time_limit_sec=60)
    assert outcome.ok
    assert "top is 7" in outputs_of(tmp_path)
    shutil.copyfile(make_notebook("1 / 0"), copy)
    outcome = run_clean(copy, parameters=given, clock=clock, time_limit_sec=60)
    assert (outcome.ok, outcome.failed_cell) == (False, "Step 1")
    assert "ZeroDivisionError" in (outcome.error or "")


Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(runs: Any) -> Iterator[Start]:
    """Perform a run in a process of its own."""
    started: list[subprocess.Popen[str]] = []

    def begin(notebook: Path, run_type: str = "manual", **env: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, str(SCRIPT), str(runs.workspace.root), str(notebook), run_type],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **env},
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def wait_for(path: Path, runs: Any) -> Path:
    deadline = time.monotonic() + 60
    while not (found := list(runs.workspace.runs.glob(f"*/*/*/{path}"))):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found[0]


HANG = (
    "import os, subprocess, time\n"
    "child = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
    "open('pids.tmp', 'w').write(f'{os.getpid()} {child.pid}'); os.rename('pids.tmp', 'pids')\n"
    "time.sleep(600)"
)


def pids(path: Path) -> list[int]:
    return [int(word) for word in path.read_text().split()]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_in_a_recorded_outcome(
    runs: Any, make_notebook: Any, start: Start, number: signal.Signals
) -> None:
    process = start(make_notebook(HANG))
    left = pids(wait_for(Path("pids"), runs))
    process.send_signal(number)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 130
    said = json.loads(out)
    assert said["status"] == "interrupted"
    assert said["failure"]["cell"] == "Step 1"
    assert said["receipts"] == {}
    assert all(gone_soon(pid) for pid in left)
    folder = runs.workspace.runs / said["run_id"]
    assert files.read_json(folder / "run.json")["status"] == "interrupted"
    assert cells_of(folder)["import os, su"[:12]] == "aborted"


def test_a_second_ctrl_c_leaves_at_once_and_holds_nothing(
    runs: Any, make_notebook: Any, card_source: str, start: Start
) -> None:
    process = start(make_notebook(HANG))
    left = pids(wait_for(Path("pids"), runs))
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 130
    assert all(gone_soon(pid) for pid in left)
    second = start(make_notebook(card_source))
    out, _ = second.communicate(timeout=60)
    assert json.loads(out)["status"] == "ok"
    assert json.loads(out)["run_id"].endswith("/2")


def test_sigterm_of_a_scheduled_run_still_sends_a_card(
    runs: Any, make_notebook: Any, start: Start
) -> None:
    process = start(make_notebook(HANG), "scheduled")
    wait_for(Path("pids"), runs)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=30)
    assert json.loads(out)["receipts"] == {"file": "sent", "console": "sent"}
    assert "FALLBACK interrupted" in err


def test_two_processes_on_one_key(
    runs: Any, make_notebook: Any, card_source: str, start: Start
) -> None:
    path = make_notebook(card_source, "import time; time.sleep(1)")
    both = [start(path), start(path)]
    said = [json.loads(process.communicate(timeout=60)[0]) for process in both]
    assert sorted(process.returncode for process in both) == [0, 7]
    loser = next(one for one in said if "code" in one)
    assert loser["code"] in ("run.held", "run.already_done")
    assert loser["details"]["run_id"] == "2024-09-18/screen-demo@0.1.0/1"
    assert "kit show" in loser["remedy"]
    assert len(list(runs.workspace.runs.glob("2024-09-18/*/*"))) == 1


@pytest.mark.slow
def test_kill_nine_leaves_no_kernel_and_the_next_run_takes_over(
    runs: Any, make_notebook: Any, card_source: str, start: Start
) -> None:
    path = make_notebook(HANG)
    process = start(path)
    left = pids(wait_for(Path("pids"), runs))
    process.kill()
    process.communicate()
    make_notebook(card_source)
    second = start(path)
    out, err = second.communicate(timeout=60)
    assert second.returncode == 0, err
    assert json.loads(out)["run_id"].endswith("/2")
    assert all(gone_soon(pid) for pid in left)
    names = sorted(p.name for p in runs.workspace.runs.glob("2024-09-18/*/*"))
    assert names == ["1.dead", "2"]


@pytest.mark.slow
@pytest.mark.parametrize("operation", [10, 18, 26])
def test_killed_at_an_operation_with_a_real_kernel(
    runs: Any, make_notebook: Any, card_source: str, start: Start, operation: int
) -> None:
    path = make_notebook(card_source, results={"card.json": "card"})
    first = start(path, KIT_CRASH_AT=str(operation))
    first.communicate(timeout=60)
    assert first.returncode == 137
    second = start(path)
    out, err = second.communicate(timeout=60)
    assert second.returncode == 0, err
    said = json.loads(out)
    assert said["receipts"]["file"] == "sent"
    assert said["receipts"]["console"] in ("sent", "unconfirmed")
    folder = runs.workspace.runs / said["run_id"]
    assert files.read_json(folder / "run.json")["status"] == "ok"
    for file in runs.workspace.runs.rglob("*.json"):
        files.read_json(file)
    for file in runs.workspace.runs.rglob("[0-9]*/notebook.ipynb"):
        files.read_json(file)
