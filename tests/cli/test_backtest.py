"""`kit backtest`: requests, and the shipped version once through."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from kit.cli.backtest import backtest
from kit.market import SampleSource
from kit.workspace import Workspace

Kit = Callable[..., Any]
ID = "ma250-pullback"


@pytest.mark.parametrize(
    ("line", "code", "name"),
    [
        (["ma250-pulback"], 3, "registry.unknown_id"),
        ([f"{ID}@9.9.9"], 3, "registry.unknown_version"),
        ([f"{ID}@draft"], 3, "registry.no_draft"),
        ([ID, "--start", "2019-6-3"], 2, "time.bad_date"),
        ([ID, "--end", "never"], 2, "time.bad_date"),
        ([ID, "--start", "2020-06-03", "--end", "2019-06-03"], 2, "backtest.bad_range"),
        ([ID, "--start", "2001-01-01", "--end", "2002-01-01"], 3, "data.no_bars"),
        ([ID, "--source", "nowhere"], 2, "data.unknown_source"),
        ([ID, "--source", "parquet"], 3, "data.store_missing"),
        ([ID, "--start", "2025-01-01", "--end", "2026-01-01"], 3, "data.no_bars"),
        ([], 2, "usage"),
    ],
)
def test_wrong_requests_leave_no_evidence(
    kit: Kit, desk: Workspace, line: list[str], code: int, name: str
) -> None:
    said = kit("backtest", *line, "--json")
    assert said.code == code
    shown = json.loads(said.out)["error"]
    assert shown["code"] == name
    assert shown["remedy"]
    assert not (desk.runs / "backtests").exists()


@pytest.mark.parametrize(
    ("start", "end", "word"),
    [("2001-01-01", "2002-01-01", "2018-06-01"), ("2025-01-01", "2026-01-01", "2024-09-19")],
)
def test_dates_without_bars_name_the_coverage(kit: Kit, start: str, end: str, word: str) -> None:
    """The sample begins on 2018-06-01 and ends on 2024-09-19."""
    assert word in kit("backtest", ID, "--start", start, "--end", end).err


@pytest.mark.slow
def test_bars_of_ones_own_give_what_the_same_bars_give_elsewhere(kit: Kit, desk: Workspace) -> None:
    symbols = ["000783.SZ", "601318.SH"]
    bars = SampleSource().bars(symbols, date(2018, 6, 1), date(2020, 6, 16)).collect()
    mine = desk.root.parent / "mine.parquet"
    bars.write_parquet(mine)
    assert kit("data", "import", str(mine), "--market", "cn").code == 0
    asked = ("backtest", ID, "--symbols", ",".join(symbols), "--json")
    there, here = (
        json.loads(kit(*asked, "--source", source).out) for source in ("parquet", "sample")
    )
    assert there["metrics"] == here["metrics"]
    assert there["orders"] == here["orders"] > 0
    assert there["guards"]["trials"]["tried"] == 1  # the same bars by another name: no new trial
    engine = json.loads((desk.root / there["evidence"] / "engine.json").read_text())
    assert engine["data"]["source"] == "parquet"


@pytest.mark.slow
def test_the_example_of_its_help_works_on_the_shipped_version(
    kit: Kit, desk: Workspace, contents_of: Callable[[Path], dict[str, str]]
) -> None:
    before = contents_of(desk.root)
    example = (backtest.epilog or "").removeprefix("Example: kit ").split()
    assert example[:2] == ["backtest", f"{ID}@0.3.1"]
    said = kit(*example, "--label", "once", "--json")
    assert said.code == 0, said.err
    evidence = desk.root / json.loads(said.out)["evidence"]
    assert evidence.parent == desk.runs / "backtests" / f"{ID}@0.3.1"
    assert (evidence / "report.html").is_file()
    assert said.err.splitlines()[0].strip() == "load"
    # A frozen version's evidence never goes into the version.
    assert contents_of(desk.root) == before
