from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from kit import files
from kit.errors import DataError, UsageError
from kit.market import board_of, load_panel, market_of, open_source
from kit.market.sources import ParquetSource, SampleSource, Security
from kit.workspace import Workspace

DAYS = ["2024-01-02", "2024-01-03", "2024-01-04"]


@pytest.fixture
def store(workspace: Workspace, make_bars: Any) -> Path:
    """Two mainland files, one of them newer, and one American, in the workspace's store."""
    for market, name, symbol, days in (
        ("cn", "a", "600000.SH", DAYS[:2]),
        ("cn", "b", "688001.SH", DAYS),
        ("us", "c", "AAPL", DAYS),
    ):
        folder = workspace.market_dir / market / "1d"
        folder.mkdir(parents=True, exist_ok=True)
        make_bars(symbol, days, [9.0] * len(days)).write_parquet(folder / f"{name}.parquet")
    return workspace.market_dir


def test_sources_are_opened_by_name(workspace: Workspace) -> None:
    assert open_source(workspace).name == "sample"
    assert open_source(workspace, "parquet").name == "parquet"
    with pytest.raises(UsageError) as caught:
        open_source(workspace, "sampel")
    assert caught.value.code == "data.unknown_source"
    assert caught.value.remedy.startswith("did you mean sample?")


def test_the_sample_serves_windows_of_real_bars() -> None:
    source = SampleSource()
    bars = source.bars(["600000.SH", "NOPE"], date(2024, 9, 13), date(2024, 9, 19)).collect()
    assert [(f"{t:%m-%d}", close) for t, close in bars.select("time", "close").rows()] == [
        ("09-13", 8.35),
        ("09-18", 8.32),
        ("09-19", 8.52),
    ]
    covered = source.coverage("us")
    assert (len(covered.symbols), covered.first, covered.last) == (
        6,
        date(2021, 6, 1),
        date(2023, 9, 21),
    )
    assert source.coverage("cn", "1m").symbols == ("000001.SZ", "000151.SZ", "600000.SH")
    assert source.coverage("hk").symbols == ("SYN1.HK", "SYN2.HK", "SYN3.HK", "SYN4.HK")
    with pytest.raises(DataError) as caught:
        source.coverage("us", "5m")
    assert caught.value.code == "data.no_bars"


def test_the_mark_of_generated_bars_is_told_by_what_is_read() -> None:
    source, window = SampleSource(), (date(2023, 9, 20), date(2023, 9, 21))
    for market, symbols, interval, synthetic in (
        ("cn", ["600000.SH"], "1d", False),
        ("hk", ["SYN1.HK"], "1d", True),
        ("us", ["AAPL"], "1d", False),
        ("us", ["AAPL"], "1m", True),
    ):
        panel = load_panel(source, symbols, *window, market=market, interval=interval)
        assert panel.synthetic is synthetic
        assert ("合成数据" in panel.notes()) is synthetic


def test_the_last_day_of_a_window_is_whole() -> None:
    bars = SampleSource().bars(["600000.SH"], date(2024, 9, 18), date(2024, 9, 18), "1m")
    assert bars.collect().height == 240


def test_securities_of_the_sample_carry_real_facts() -> None:
    known = {security.symbol: security for security in SampleSource().securities("cn")}
    assert len(known) == 11
    assert known["600000.SH"] == Security(
        symbol="600000.SH", name="浦发银行", industry="银行", listed_date=date(1999, 11, 10)
    )
    assert known["000300.SH"].kind == "index"
    assert {security.currency for security in SampleSource().securities("us")} == {"USD"}
    assert [(s.currency, s.lot) for s in SampleSource().securities("hk")] == [
        ("HKD", 1000),
        ("HKD", 100),
        ("HKD", 500),
        ("HKD", 2000),
    ]


def test_fingerprints_follow_the_bars_asked_for() -> None:
    source = SampleSource()
    window = (date(2024, 1, 1), date(2024, 9, 19))
    whole = source.fingerprint(["600000.SH", "000001.SZ"], *window)
    assert whole == source.fingerprint(["000001.SZ", "600000.SH"], *window)
    assert whole != source.fingerprint(["600000.SH"], *window)
    assert whole != source.fingerprint(["600000.SH", "000001.SZ"], *window[:1], date(2024, 9, 18))


def test_a_folder_of_parquet_files_is_a_source(workspace: Workspace, store: Path) -> None:
    source = open_source(workspace, "parquet")
    assert source.coverage("cn").symbols == ("600000.SH", "688001.SH")
    assert source.coverage("cn").last == date(2024, 1, 4)
    bars = source.bars(["AAPL", "600000.SH"], date(2024, 1, 3), date(2024, 1, 3)).collect()
    assert sorted(bars["symbol"]) == ["600000.SH", "AAPL"]
    assert [(s.symbol, s.board, s.currency) for s in source.securities("cn")] == [
        ("600000.SH", "main", "CNY"),
        ("688001.SH", "star", "CNY"),
    ]
    assert source.securities("us")[0].currency == "USD"


def test_a_store_may_name_its_securities(workspace: Workspace, store: Path) -> None:
    row = {"symbol": "600000.SH", "name": "浦发银行", "listed_date": "1999-11-10"}
    files.write_json(store / "cn" / "securities.json", {"securities": [row]})
    (security,) = ParquetSource(store).securities("cn")
    assert (security.name, security.listed_date) == ("浦发银行", date(1999, 11, 10))


def test_an_empty_store_says_what_to_do(workspace: Workspace) -> None:
    source = open_source(workspace, "parquet")
    with pytest.raises(DataError) as caught:
        source.bars(["A"], date(2024, 1, 1), date(2024, 1, 2))
    assert caught.value.code == "data.store_missing"
    assert "runs/market" in caught.value.remedy
    with pytest.raises(DataError):
        source.coverage("hk")


def test_a_broken_file_is_an_error_of_the_data(workspace: Workspace, store: Path) -> None:
    (store / "cn" / "1d" / "a.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(DataError) as caught:
        open_source(workspace, "parquet").coverage("cn")
    assert caught.value.code == "data.unreadable"


def test_a_file_with_other_columns_is_an_error_of_the_data(
    workspace: Workspace, make_bars: Any
) -> None:
    folder = workspace.market_dir / "cn" / "1d"
    folder.mkdir(parents=True)
    make_bars("A", DAYS, [9.0] * 3).drop("adj_factor").write_parquet(folder / "a.parquet")
    with pytest.raises(DataError) as caught:
        open_source(workspace, "parquet").coverage("cn")
    assert caught.value.code == "data.bad_columns"


@pytest.mark.parametrize(
    ("symbol", "board", "market"),
    [
        ("600000.SH", "main", "cn"),
        ("000001.SZ", "main", "cn"),
        ("002572.SZ", "main", "cn"),
        ("300027.SZ", "chinext", "cn"),
        ("301001.SZ", "chinext", "cn"),
        ("688981.SH", "star", "cn"),
        ("689009.SH", "star", "cn"),
        ("830799.BJ", "bse", "cn"),
        ("0700.HK", "main", "hk"),
        ("AAPL", "main", "us"),
        ("BRK.B", "main", "us"),
    ],
)
def test_codes_tell_board_and_market(symbol: str, board: str, market: str) -> None:
    assert (board_of(symbol), market_of(symbol)) == (board, market)
