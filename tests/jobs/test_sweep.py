"""`kit sweep`: one result wherever it runs, every cell a trial, and nothing half."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from sqlalchemy import select

from kit.cli.main import run as kit
from kit.clock import FixedClock
from kit.errors import RunError, UsageError
from kit.jobs import sweep as job
from kit.jobs.backtest import backtest
from kit.jobs.sweep import sweep
from kit.state import Store, tables
from kit.workspace import Workspace

DRAFT = "tiny-pullback@draft"
GRID = ("ma_window=2:4:1",)


@pytest.fixture
def draft(workspace: Workspace, builder: ModuleType) -> Path:
    """The small bundle over forty sessions of two stocks."""
    made: Path = builder.make_draft(workspace)
    config = json.loads((made / "config.json").read_text("utf-8"))
    config |= {"start_date": "2023-05-04", "end_date": "2023-06-30"}
    config["_kit"]["params"]["ma_window"] = 3
    (made / "config.json").write_text(json.dumps(config), "utf-8")
    return made


def trials(workspace: Workspace) -> list[Any]:
    with Store(workspace.state_path).read() as connection:
        rows = connection.execute(select(tables.trials.c.identity).order_by(tables.trials.c.id))
        return [json.loads(row.identity)["params"]["ma_window"] for row in rows.all()]


def written(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.fixture
def cluster() -> Iterator[str]:
    """A real Dask scheduler and two worker processes on loopback."""
    distributed = pytest.importorskip("distributed", reason="the scale extra is not installed")
    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            host="127.0.0.1",
        ) as running,
    ):
        yield running.scheduler_address


def test_cells_are_what_a_backtest_with_those_values_is(
    workspace: Workspace, clock: FixedClock, draft: Path
) -> None:
    lines: list[str] = []
    found = sweep(workspace, DRAFT, GRID, clock=clock, progress=lines.append)
    assert [cell.params for cell in found.cells] == [{"ma_window": n} for n in (2, 3, 4)]
    assert [line.partition("  ")[0] for line in lines] == [
        f"[{n}/3] ma_window={n + 1}" for n in (1, 2, 3)
    ]
    # The bundle was left alone, and its own value gives what its own backtest gives.
    result, _ = backtest(workspace, DRAFT, clock=clock)
    own = found.cells[1]
    metrics = result.metrics.to_dict()
    assert dict(own.metrics) == {name: metrics[name] for name in own.metrics}
    assert trials(workspace) == [2, 3, 4]  # and was no trial more
    assert found.trials is not None
    assert found.trials.tried == 3
    assert sweep(workspace, DRAFT, GRID, clock=clock).trials == found.trials

    config = draft / "config.json"
    config.write_text(
        config.read_text("utf-8").replace('"ma_window": 3', '"ma_window": 4'), "utf-8"
    )
    other, _ = backtest(workspace, DRAFT, clock=clock)
    assert other.metrics.total_return == found.cells[2].metrics["total_return"]
    assert trials(workspace) == [2, 3, 4]


def test_results_are_left_where_they_can_be_read(
    workspace: Workspace, clock: FixedClock, draft: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--workspace", str(workspace.root), "sweep", DRAFT, "--param", *GRID]
    assert kit([*arguments, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    folder = workspace.root / shown.pop("folder")
    assert folder.parent == workspace.runs / "sweeps" / DRAFT
    assert set(written(folder)) == {"sweep.json", "cells.csv", "report.html"}
    kept = json.loads((folder / "sweep.json").read_text("utf-8"))
    assert {key: kept[key] for key in shown} == shown
    page = (folder / "report.html").read_text("utf-8")
    assert "<script" not in page
    assert "default-src 'none'" in page
    assert page.count("<svg") == 2
    assert "of 3 tried" in page
    assert kit(arguments) == 0
    out = capsys.readouterr().out
    assert "1 of 3 tried; deflated Sharpe ratio" in out
    assert out.splitlines()[-1].startswith("report: runs/sweeps/")


def test_a_mistyped_parameter_is_refused_before_anything_runs(
    workspace: Workspace, draft: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--workspace", str(workspace.root), "sweep", DRAFT, "--param", "ma_windw=2,3"]
    assert kit([*arguments, "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"] == "sweep.unknown_param"
    assert "did you mean 'ma_window'?" in error["message"]
    assert not (workspace.runs / "sweeps").exists()


def test_a_cell_that_fails_is_a_cell_and_not_the_end(
    workspace: Workspace, clock: FixedClock, draft: Path
) -> None:
    engine = draft / "code" / "signal_engine.py"
    text = engine.read_text("utf-8")
    rule = '        window = self.params()["ma_window"]\n        signals'
    assert rule in text
    engine.write_text(
        text.replace(rule, f"{rule[:-7]}assert window != 4\n        signals"), "utf-8"
    )
    found = sweep(workspace, DRAFT, GRID, clock=clock)
    assert [bool(cell.error) for cell in found.cells] == [False, False, True]
    assert "AssertionError" in found.cells[2].error
    assert trials(workspace) == [2, 3]
    assert "AssertionError" in (found.folder / "report.html").read_text("utf-8")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*:DeprecationWarning:(distributed|dask|tornado|asyncio)")
def test_one_process_two_processes_and_a_cluster_agree(
    workspace: Workspace, clock: FixedClock, draft: Path, cluster: str
) -> None:
    ways: list[dict[str, Any]] = [{}, {"jobs": 2}, {"dask": cluster}]
    found = [sweep(workspace, DRAFT, GRID, clock=clock, **way) for way in ways]
    one, two, remote = (written(each.folder) for each in found)
    assert one == two == remote
    assert len({each.folder for each in found}) == 3
    assert trials(workspace) == [2, 3, 4]


def test_no_scheduler_is_said_at_once(
    workspace: Workspace, clock: FixedClock, draft: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("distributed", reason="the scale extra is not installed")
    monkeypatch.setattr(job, "_CONNECT_SEC", 1)
    with pytest.raises(UsageError) as caught:
        sweep(workspace, DRAFT, GRID, clock=clock, dask="tcp://127.0.0.1:1")
    assert caught.value.code == "sweep.no_scheduler"
    assert "dask scheduler" in caught.value.remedy


def test_a_worker_that_dies_is_told(workspace: Workspace, clock: FixedClock, draft: Path) -> None:
    engine = draft / "code" / "signal_engine.py"
    text = engine.read_text("utf-8")
    rule = '        window = self.params()["ma_window"]\n        signals'
    fatal = (
        f"{rule[:-7]}if window == 4:\n            import os\n            os._exit(9)\n"
        "        signals"
    )
    engine.write_text(text.replace(rule, fatal), "utf-8")
    with pytest.raises(RunError) as caught:
        sweep(workspace, DRAFT, GRID, clock=clock, jobs=2)
    assert caught.value.code == "sweep.worker_lost"
    assert not (workspace.runs / "sweeps").exists()


def test_ctrl_c_leaves_nothing_half_and_no_process(
    workspace: Workspace, draft: Path, tmp_path: Path
) -> None:
    engine = draft / "code" / "signal_engine.py"
    text = engine.read_text("utf-8")
    rule = '        window = self.params()["ma_window"]\n        signals'
    mark = tmp_path / "pids"
    mark.mkdir()
    waits = (
        f"{rule[:-7]}if window == 4:\n"
        "            import os, pathlib, time\n"
        f"            pathlib.Path({str(mark)!r}, str(os.getpid())).touch()\n"
        "            time.sleep(60)\n        signals"
    )
    engine.write_text(text.replace(rule, waits), "utf-8")
    command = [
        str(Path(sys.executable).parent / "kit"), "sweep", DRAFT, "--param", *GRID, "--jobs", "2",
    ]  # fmt: skip
    running = subprocess.Popen(
        command, cwd=workspace.root, start_new_session=True, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 90
    while not list(mark.iterdir()) and running.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)
    os.killpg(running.pid, signal.SIGINT)  # as a terminal does: to every process of the group
    _, err = running.communicate(timeout=30)
    assert running.returncode == 130, err
    assert "Traceback" not in err
    assert not (workspace.runs / "sweeps").exists()
    assert not list(workspace.runs.glob(".evidence-*"))
    assert set(trials(workspace)) <= {2, 3}
    for path in mark.iterdir():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(path.name), 0)
            pytest.fail("a worker outlived its sweep")
