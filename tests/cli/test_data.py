"""`kit data`: what a person sees, and the exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import time_machine

from kit.workspace import Workspace

Kit = Callable[..., Any]


@pytest.fixture(autouse=True)
def _an_autumn_evening() -> Iterator[None]:
    with time_machine.travel("2024-09-30T10:00:00+00:00"):
        yield


def _csv(folder: Path, name: str, *, low: str = "9") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(
        "date,open,high,low,close,volume\n"
        f"2024-09-18,10,11,9,10.5,1000\n2024-09-19,10,11,{low},10.5,1000\n"
    )
    return path


def test_import_status_and_check(kit: Kit, tmp_path: Path) -> None:
    empty = kit("data", "status")
    assert (empty.code, empty.out) == (0, "")
    assert "the store is empty" in empty.err
    path = _csv(tmp_path / "in", "600000.SH.csv")
    line = ["data", "import", str(path), "--market", "cn"]
    refused = kit(*line)
    assert (refused.code, refused.out) == (2, "")
    assert "--volume-unit" in refused.err
    dry = kit(*line, "--volume-unit", "shares", "--dry-run", "--json")
    assert json.loads(dry.out)["dry_run"] is True
    done = kit(*line, "--volume-unit", "shares")
    assert done.code == 0
    assert str(path) in done.out
    assert "next: kit data check" in done.err
    (row,) = json.loads(kit("data", "status", "--json").out)
    assert (row["market"], row["symbols"], row["last"]) == ("cn", 1, "2024-09-19")
    assert "2024-09-19" in kit("data", "status").out
    # A few sessions behind: a warning, so the exit code stays 0.
    checked = kit("data", "check")
    assert checked.code == 0
    assert "0 errors" in checked.out
    report = json.loads(kit("data", "check", "--market", "cn", "--json").out)
    assert (report["series"], report["errors"]) == (1, 0)


def test_a_bad_file_is_exit_3_and_one_line(kit: Kit, tmp_path: Path) -> None:
    path = _csv(tmp_path / "in", "600000.SH.csv", low="12")
    said = kit("data", "import", str(path), "--market", "cn", "--volume-unit", "shares", "--json")
    assert said.code == 3
    assert json.loads(said.out or said.err)["error"]["code"] == "data.bad_bars"


def test_errors_in_the_store_are_exit_3(kit: Kit, desk: Workspace) -> None:
    folder = desk.root / "in"
    folder.mkdir()
    rows = ["2024-09-17,20,20,20,20,1000", "2024-09-18,10,10,10,10,2000"]
    (folder / "600000.SH.csv").write_text(
        "\n".join(["date,open,high,low,close,volume", *rows]) + "\n"
    )
    line = ["data", "import", str(folder), "--market", "cn", "--volume-unit", "shares"]
    assert kit(*line).code == 0
    said = kit("data", "check")
    assert said.code == 3
    assert "split_gap" in said.out
    assert json.loads(kit("data", "check", "--json").out)["errors"] == 1
    nothing = kit("data", "check", "--symbols", "000001.SZ")
    assert nothing.code == 3
    assert "no bars" in nothing.err


def test_sync_tells_progress_and_failures(kit: Kit, desk: Workspace) -> None:
    _csv(desk.root / "data" / "csv", "600000.SH.csv")
    said = kit("data", "sync", "--source", "csv", "--market", "cn", "--symbols", "600000,000001")
    assert said.code == 3
    assert "1/2 600000.SH: stale" in said.err
    assert "data.no_bars" in said.out
    outcomes = json.loads(
        kit(
            "data", "sync", "--source", "csv", "--market", "cn", "--symbols", "600000", "--json"
        ).out
    )
    # All that was asked for is old: that is a failure of the source, exit 3 as well.
    assert [row["status"] for row in outcomes] == ["stale"]
    wrong = kit("data", "sync", "--source", "csw", "--market", "cn", "--symbols", "600000")
    assert wrong.code == 2
    assert "csv" in wrong.err
