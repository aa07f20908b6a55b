"""Promises 1 and 6: whatever dies, the next run needs no human, and nothing is sent twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

DRIVER = Path(__file__).with_name("crash_driver.py")


def rounds(tmp_path: Path, variable: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, str(DRIVER), str(tmp_path), variable],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONHASHSEED": "0"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def sent_once(row: dict[str, Any]) -> None:
    """One delivered run, one receipt a channel, one folder, nothing left over."""
    n = row["n"]
    assert row["unreadable"] == [], n
    assert row["partial"] == [], n
    assert [final["record"]["status"] for final in row["finals"]] == ["ok"], n
    final = row["finals"][0]
    run_ids = {r["run_id"] for r in row["rows"]}
    assert run_ids == {final["run_id"]}, n
    states = {r["channel"]: r["state"] for r in row["rows"]}
    assert len(row["rows"]) == 2, n
    assert states["file"] == "sent", n
    assert final["delivered"], n
    mirrored = {r["channel"]: r["state"] for r in final["receipts"]["receipts"]}
    assert mirrored == states, n
    assert row["claims"] == [{"phase": "done", "outcome": "ok", "run_id": final["run_id"]}], n
    if states["console"] == "unconfirmed":
        assert row["shown"] <= 1, n  # it may have landed; it was not sent again
    else:
        assert states["console"] == "sent", n
        assert row["shown"] == 1, n


@pytest.mark.slow
def test_killed_at_every_operation_the_next_run_ends_it(tmp_path: Path) -> None:
    results = rounds(tmp_path, "KIT_CRASH_AT")
    assert len(results) > 20
    for row in results[:-1]:
        assert row["first"][0] == 137, row
        assert row["second"][0] == 0, row
        sent_once(row)
    # Killed before the claim was committed, and after the last line of the run.
    assert results[0]["second"][1].startswith("ok")
    assert results[-1]["second"][1].startswith("run.already_done")
    unconfirmed = [
        row["n"] for row in results if any(r["state"] == "unconfirmed" for r in row["rows"])
    ]
    # Only a death between the mark and the receipt of the console leaves doubt.
    assert 1 <= len(unconfirmed) <= 2


@pytest.mark.slow
def test_no_space_at_every_operation_never_silences_the_run(tmp_path: Path) -> None:
    results = rounds(tmp_path, "KIT_NO_SPACE_AT")
    assert len(results) > 20
    for row in results:
        assert row["first"][0] == 0, row
        assert row["second"][0] == 0, row
        assert row["unreadable"] == [], row["n"]
        assert row["shown_first"] == 1, row
