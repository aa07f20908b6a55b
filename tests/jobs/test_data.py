"""Import, sync, status and check over a real store."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from kit import files
from kit.clock import FixedClock
from kit.errors import DataError, UsageError
from kit.jobs.data import check, import_files, status, sync_bars
from kit.market import SampleSource, load_panel, open_source
from kit.market.store import BarStore
from kit.market.sync import BEGIN
from kit.workspace import Workspace

HEADER = "date,open,high,low,close,volume,amount"


def _csv(folder: Path, name: str, volume: int = 1000, header: str = HEADER) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    rows = [f"2024-09-{day},10,11,9,10.5,{volume},{1000 * 10.4}" for day in (18, 19)]
    path = folder / name
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return path


def _import(workspace: Workspace, path: Path, **options: Any) -> Any:
    values: dict[str, Any] = {
        "market": "cn",
        "interval": "1d",
        "volume_unit": "shares",
        "amount_unit": "currency",
        "adjust": "none",
        "clock": FixedClock("2024-09-19T08:40:00+00:00"),
    }
    return import_files(workspace, path, **values | options)


def test_a_folder_is_imported_and_serves_a_panel(workspace: Workspace, tmp_path: Path) -> None:
    folder = tmp_path / "bars"
    _csv(folder, "600000.SH.csv")
    _csv(folder, "000001.SZ.csv")
    (folder / "readme.txt").write_text("not a table")
    done = _import(workspace, folder)
    assert [(item.symbols, item.rows) for item in done] == [
        (("000001.SZ",), 2),
        (("600000.SH",), 2),
    ]
    source = open_source(workspace, "parquet")
    panel = load_panel(source, ["600000.SH"], date(2024, 9, 18), date(2024, 9, 19), market="cn")
    assert panel["600000.SH"]["close"].tolist() == [10.5, 10.5]
    (row,) = status(workspace)
    assert (row["market"], row["interval"], row["symbols"], row["rows"]) == ("cn", "1d", 2, 4)
    assert (row["first"], row["last"], row["source"]) == ("2024-09-18", "2024-09-19", "import")
    assert row["fetched"] == "2024-09-19T08:40:00"


def test_lots_are_turned_into_shares_when_they_are_declared(
    workspace: Workspace, tmp_path: Path
) -> None:
    path = _csv(tmp_path, "600000.SH.csv", volume=10)
    with pytest.raises(UsageError) as undeclared:
        _import(workspace, path, volume_unit=None)
    assert undeclared.value.code == "data.unit_undeclared"
    with pytest.raises(DataError) as wrong:
        _import(workspace, path)
    assert wrong.value.code == "data.unit_mismatch"
    assert status(workspace) == []
    _import(workspace, path, volume_unit="lots")
    held = BarStore(workspace.market_dir).read("cn", "1d", "600000.SH")
    assert held["volume"].to_list() == [1000.0, 1000.0]


def test_one_bad_file_stops_the_import_before_anything_is_written(
    workspace: Workspace, tmp_path: Path
) -> None:
    folder = tmp_path / "bars"
    _csv(folder, "000001.SZ.csv")
    _csv(folder, "600000.SH.csv", header=HEADER.replace("close", "last"))
    with pytest.raises(DataError) as caught:
        _import(workspace, folder)
    assert caught.value.code == "data.bad_columns"
    assert "600000.SH.csv" in caught.value.where
    assert status(workspace) == []


def test_a_dry_run_writes_nothing(workspace: Workspace, tmp_path: Path) -> None:
    assert len(_import(workspace, _csv(tmp_path, "600000.SH.csv"), dry_run=True)) == 1
    assert status(workspace) == []


def test_the_same_symbol_twice_is_refused(workspace: Workspace, tmp_path: Path) -> None:
    folder = tmp_path / "bars"
    _csv(folder, "600000.SH.csv")
    _csv(folder, "sh600000.csv")
    with pytest.raises(DataError, match=r"600000.SH stands in 600000.SH.csv as well"):
        _import(workspace, folder)


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "data.unreadable"),
        ("收盘".encode("gbk"), "data.unreadable"),
        (b"a,b\n", "data.no_bars"),
    ],
)
def test_a_file_nobody_can_read_is_named(
    workspace: Workspace, tmp_path: Path, content: bytes, code: str
) -> None:
    path = tmp_path / "600000.SH.csv"
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        _import(workspace, path)
    assert caught.value.code in {code, "data.bad_columns"}
    assert str(path) in caught.value.where


def test_an_empty_folder_says_what_it_wants(workspace: Workspace, tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        _import(workspace, tmp_path / "nothing")
    assert caught.value.code == "data.no_bars"


def test_bars_of_the_store_come_back_without_declaring_units(
    workspace: Workspace, tmp_path: Path
) -> None:
    bars = SampleSource().bars(["600000.SH", "AAPL"], date(2023, 9, 1), date(2023, 9, 21))
    path = tmp_path / "export.parquet"
    bars.filter(pl.col("symbol") == "600000.SH").collect().write_parquet(path)
    _import(workspace, path, volume_unit=None)
    held = BarStore(workspace.market_dir).read("cn", "1d", "600000.SH")
    assert held.equals(bars.filter(pl.col("symbol") == "600000.SH").collect())


def test_check_names_what_it_finds(workspace: Workspace, tmp_path: Path) -> None:
    clock = FixedClock("2024-09-30T08:40:00+00:00")
    with pytest.raises(DataError) as caught:
        check(workspace, market=None, symbols=[], clock=clock)
    assert caught.value.code == "data.store_missing"
    _import(workspace, _csv(tmp_path, "600000.SH.csv"))
    report = check(workspace, market="cn", symbols=[], clock=clock)
    assert [(f.kind, f.severity) for f in report.findings] == [("stale_tail", "warning")]
    assert (report.series, report.rows, report.errors) == (1, 2, ())
    assert report.to_dict()["findings"][0]["last"] == "2024-09-30"
    # A person's own file with a hole in its numbers is found, not repaired.
    bad = SampleSource().bars(["000001.SZ"], date(2024, 9, 18), date(2024, 9, 19)).collect()
    folder = BarStore(workspace.market_dir).folder("cn", "1d")
    bad.with_columns(pl.lit(0.0).alias("low")).write_parquet(folder / "mine.parquet")
    found = check(workspace, market=None, symbols=["000001.SZ"], clock=clock)
    assert {finding.kind for finding in found.errors} == {"not_positive"}
    with pytest.raises(DataError, match="holds no bars of hk"):
        check(workspace, market="hk", symbols=[], clock=clock)
    with pytest.raises(DataError, match="holds no bars of 600519"):
        check(workspace, market="cn", symbols=["600519.SH"], clock=clock)
    with pytest.raises(UsageError, match="no market 'xx'"):
        check(workspace, market="xx", symbols=[], clock=clock)


def _sync(workspace: Workspace, **options: Any) -> Any:
    values: dict[str, Any] = {
        "market": "cn",
        "symbols": [],
        "universe": None,
        "start": BEGIN,
        "clock": FixedClock("2024-09-19T08:40:00+00:00"),
        "progress": lambda line: None,
    }
    return sync_bars(workspace, "csv", **values | options)


def test_sync_goes_from_a_source_into_the_store(workspace: Workspace) -> None:
    folder = workspace.root / "data" / "csv"
    _csv(folder, "600000.SH.csv")
    lines: list[str] = []
    found, missing = _sync(workspace, symbols=["sh600000", "000001"], progress=lines.append)
    assert (found.symbol, found.status, found.rows) == ("600000.SH", "fetched", 2)
    assert (missing.symbol, missing.status, missing.code) == (
        "000001.SZ",
        "failed",
        "data.no_bars",
    )
    assert lines[0] == "1/2 600000.SH: fetched"
    # The store is a universe from now on.
    (again,) = _sync(workspace, universe="store")
    assert again.status == "current"
    assert {o.symbol for o in _sync(workspace, universe="sample")} >= {"600000.SH", "300027.SZ"}


@pytest.mark.parametrize(
    ("options", "code"),
    [({}, "data.no_symbols"), ({"market": "jp", "symbols": ["X"]}, "market.unknown")],
)
def test_sync_refuses_what_it_does_not_understand(
    workspace: Workspace, options: dict[str, Any], code: str
) -> None:
    with pytest.raises(UsageError) as caught:
        _sync(workspace, **options)
    assert caught.value.code == code


def test_a_source_of_another_market_is_refused(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match="mcp serves cn, not us"):
        sync_bars(
            workspace,
            "mcp",
            market="us",
            symbols=["AAPL"],
            universe=None,
            start=BEGIN,
            clock=FixedClock("2024-09-19T08:40:00+00:00"),
            progress=lambda line: None,
        )


def test_the_configuration_is_checked(workspace: Workspace) -> None:
    path = workspace.config_dir / "data.json"
    book = files.read_json(path)
    book["sources"]["csv"]["options"]["volume_unit"] = "pieces"
    files.write_json(path, book)
    with pytest.raises(Exception, match="volume_unit"):
        _sync(workspace, symbols=["600000"])
