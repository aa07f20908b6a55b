"""`kit validate`: every guard at once, and a leak that anybody can see for himself."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kit.cli.main import run as kit
from kit.clock import FixedClock
from kit.jobs.backtest import backtest
from kit.jobs.validate import validate
from kit.workspace import Workspace

DRAFT = "tiny-pullback@draft"
SYMBOLS = ("600000.SH", "000001.SZ")


@pytest.fixture
def draft(workspace: Workspace, builder: ModuleType) -> Path:
    """The small bundle over twenty sessions, with the warm-up its three-day mean needs."""
    made: Path = builder.make_draft(workspace)
    config = json.loads((made / "config.json").read_text("utf-8"))
    config |= {"start_date": "2023-05-04", "end_date": "2023-05-31"}
    config["_kit"]["params"]["ma_window"] = 3
    (made / "config.json").write_text(json.dumps(config), "utf-8")
    manifest = json.loads((made / "manifest.json").read_text("utf-8"))
    manifest["data_contract"]["warmup_bars"] = 3
    (made / "manifest.json").write_text(json.dumps(manifest), "utf-8")
    return made


def peek(draft: Path) -> None:
    path = draft / "code" / "signal_engine.py"
    code = path.read_text("utf-8")
    rule = "gap = gap_to_average(frame, window)\n            signals"
    assert rule in code
    path.write_text(code.replace(rule, rule.replace("window)", "window).shift(-1)")), "utf-8")


def command(workspace: Workspace, *arguments: str) -> int:
    return kit(["--workspace", str(workspace.root), "validate", *arguments])


def test_a_clean_draft_passes_and_every_guard_is_told(
    draft: Path, workspace: Workspace, clock: FixedClock
) -> None:
    stages: list[str] = []
    found = validate(workspace, DRAFT, clock=clock, progress=stages.append)
    assert stages == [
        "load", "lock", "simulate", "guards", "every date of a sample", "random controls",
    ]  # fmt: skip
    assert found.ok
    assert (found.leak, found.snippet) == (None, "")
    # Of twenty sessions every one was cut at.
    assert len(found.guards["lookahead"]["checked_dates"]) == 20
    assert found.guards["warmup"] == {"declared": 3, "needed": 3, "ok": True}
    rows = {name: (result, said) for name, result, said in found.rows()}
    assert set(rows) == {"lookahead", "warmup", "costs", "trials", "folds", "control"}
    assert rows["lookahead"] == ("ok", "outputs unchanged on 20 truncations")
    assert rows["trials"][1].startswith("1 of 1 tried; ")
    assert "against 200 random ones" in rows["control"][1]
    # A backtest of the same thing is the same trial, and a validation leaves no evidence.
    assert not (draft / "backtests").exists()
    backtest(workspace, DRAFT, clock=clock)
    assert validate(workspace, DRAFT, clock=clock).guards["trials"]["tried"] == 1


def test_a_leak_is_refused_with_symbol_date_and_a_snippet_that_runs(
    draft: Path, workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    peek(draft)
    assert command(workspace, DRAFT, "--json") == 4
    said: Any = json.loads(capsys.readouterr().out)
    leak = said["leak"]
    assert (said["ok"], said["guards"]["lookahead"]["ok"]) == (False, False)
    assert leak["symbol"] in SYMBOLS
    # Cut at every date, the first graded bar that tomorrow decides is the first bad one.
    assert leak["first_bad_date"] == said["guards"]["lookahead"]["findings"][0]["first_bad_date"]
    assert f".select(['{leak['symbol']}'])" in leak["reproduction"]
    ran = subprocess.run(
        [sys.executable, "-c", leak["reproduction"]],
        cwd=workspace.root,
        capture_output=True,
        text=True,
        check=True,
    )
    full, part = map(float, ran.stdout.split())
    assert full != part
    assert f"weight {full:.10g} with" in leak["detail"]

    assert command(workspace, DRAFT) == 4
    out = capsys.readouterr().out
    assert f"{leak['symbol']}, first bad date {leak['first_bad_date']}" in out
    assert leak["reproduction"].splitlines()[-1] in out
    assert out.splitlines()[-1] == f"{DRAFT}: REFUSED"


def test_a_warm_up_that_is_too_short_is_refused(
    draft: Path, workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = draft / "manifest.json"
    text = manifest.read_text("utf-8")
    manifest.write_text(text.replace('"warmup_bars": 3', '"warmup_bars": 2'), "utf-8")
    assert command(workspace, DRAFT) == 4
    assert "3 bars needed, 2 declared" in capsys.readouterr().out


def test_what_is_not_there_cannot_be_validated(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(workspace, "no-such-one", "--json") == 3
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "registry.unknown_id"
