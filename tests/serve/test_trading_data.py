"""`trading-data-cn-mcp`: what it answers, what it drops by name, and what it refuses."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

import anyio
import polars as pl
import pyarrow.parquet as pq
import pytest
from mcp.server.mcpserver.exceptions import ResourceNotFoundError

from kit.market import SampleSource, load_panel, sample
from kit.serve.desk import Desk
from kit.serve.entry import build
from kit.serve.trading_data_cn import bars as bulk
from kit.serve.trading_data_cn import server
from kit.workspace import Workspace

NAME = "trading-data-cn"
MINUTES = {
    "codes": ["600000.SH", "000001.SZ", "000151.SZ"],
    "start_date": "2024-08-27",
    "end_date": "2024-09-18",
    "interval": "1m",
}


def two_days(**more: Any) -> dict[str, Any]:
    return {"codes": ["600000.SH"], "start_date": "2024-09-18", "end_date": "2024-09-19", **more}


def stored(symbol: str, day: date) -> list[dict[str, Any]]:
    """Read the sample's file without the kit."""
    rows = pq.read_table(sample.FOLDER / "daily.parquet").to_pylist()
    return [row for row in rows if row["symbol"] == symbol and row["time"].date() == day]


def put_bars(workspace: Workspace, rows: list[dict[str, Any]]) -> None:
    """Write daily bars; open, high and low follow the close unless they are given."""
    folder = workspace.market_dir / "cn" / "1d"
    folder.mkdir(parents=True)
    filled = [
        {
            "open": row["close"],
            "high": row["close"],
            "low": row["close"],
            "volume": 100.0,
            "adjust": "none",
            "source": "hand",
            **row,
        }
        for row in rows
    ]
    frame = pl.DataFrame(filled).with_columns(pl.col("time").cast(pl.Datetime("us")))
    frame.write_parquet(folder / "bars.parquet")


class TestBars:
    def test_a_day_of_the_sample(self, call: Any) -> None:
        got = call(NAME, "get_bars", two_days()).value
        (row,) = stored("600000.SH", date(2024, 9, 18))
        prices = {name: row[name] for name in ("open", "high", "low", "close", "volume")}
        assert row["adj_factor"] == 1
        assert got["bars"][0] == {
            **prices,
            "symbol": "600000.SH",
            "date": "2024-09-18",
            "close_adj": row["close"],
            "low_adj": row["low"],
            "volume_unit": "shares",
        }
        assert [bar["date"] for bar in got["bars"]] == ["2024-09-18", "2024-09-19"]
        assert (got["asked"], got["got"], got["dropped"], got["file"]) == (1, 1, [], None)
        assert got["synthetic"] is False

    def test_adjusting_by_hand(self, call: Any, workspace: Workspace) -> None:
        # 10 before a 1:1.25 event, 8 after it: nothing was earned and nothing lost.
        day = {"symbol": "600000.SH", "low": 8.0}
        put_bars(
            workspace,
            [
                {**day, "time": date(2024, 1, 2), "close": 10.0, "high": 11.0, "adj_factor": 1.0},
                {**day, "time": date(2024, 1, 3), "close": 8.0, "high": 8.0, "adj_factor": 1.25},
            ],
        )
        asked = {"codes": ["600000.SH"], "start_date": "2024-01-01", "end_date": "2024-01-31"}
        desk = {"workspace_path": str(workspace.root), "source": "parquet"}
        by_hand = {
            "forward": ([8.0, 8.0], [6.4, 8.0]),
            "backward": ([10.0, 10.0], [8.0, 10.0]),
            "none": ([10.0, 8.0], [8.0, 8.0]),
        }
        for adjust, (closes, lows) in by_hand.items():
            bars = call(NAME, "get_bars", {**asked, "adjust": adjust}, **desk).value["bars"]
            assert [bar["close_adj"] for bar in bars] == pytest.approx(closes), adjust
            assert [bar["low_adj"] for bar in bars] == pytest.approx(lows), adjust
            assert [bar["close"] for bar in bars] == [10.0, 8.0]
        first = call(NAME, "get_bars", {**asked, "end_date": "2024-01-02"}, **desk).value["bars"]
        assert first[0]["close_adj"] == 10.0, "anchored at the window's own last bar"

    def test_it_says_what_a_strategy_sees(self, call: Any) -> None:
        symbols = ["000783.SZ", "601318.SH"]
        first, last = date(2019, 6, 3), date(2019, 9, 30)
        asked = {"codes": symbols, "start_date": str(first), "end_date": str(last)}
        got = call(NAME, "get_bars", asked).value
        panel = load_panel(SampleSource(), symbols, first, last, market="cn")
        seen = panel.polars.sort("symbol", "time").collect()
        assert [bar["close_adj"] for bar in got["bars"]] == seen["close"].to_list()
        assert [bar["low_adj"] for bar in got["bars"]] == seen["low"].to_list()
        assert got["restated"] == symbols, "their prices carry everything already"

    def test_nothing_goes_missing_without_a_word(self, call: Any) -> None:
        odd = ["../../etc/passwd", "600000.sh", "AAPL", "600000.SH\n", "*", ""]
        codes = ["600000.SH", "600001.SH", "601318.SH", "600000.SH", *odd]
        got = call(NAME, "get_bars", two_days(codes=codes)).value
        reasons = {item["symbol"]: item["reason"] for item in got["dropped"]}
        assert (got["asked"], got["got"]) == (3 + len(odd), 1)
        assert reasons.keys() == {"600001.SH", "601318.SH", *odd}
        assert "did you mean '600000.SH'" in reasons["600001.SH"]
        assert reasons["601318.SH"] == "no 1d bar from 2024-09-18 to 2024-09-19"
        assert all("not a mainland symbol" in reasons[symbol] for symbol in odd)

    def test_ten_thousand_symbols(self, call: Any) -> None:
        codes = [f"{number:06d}.SZ" for number in range(10_000)]
        got = call(NAME, "get_bars", two_days(codes=codes)).value
        assert got["asked"] == 10_000
        assert len(got["dropped"]) == 200
        assert got["got"] + len(got["dropped"]) + got["dropped_more"] == 10_000

    def test_an_index_has_bars(self, call: Any) -> None:
        assert call(NAME, "get_bars", two_days(codes=["000300.SH"])).value["rows"] == 2

    def test_intraday_bars_carry_their_end(self, call: Any) -> None:
        asked = two_days(interval="1m", end_date="2024-09-18")
        bars = call(NAME, "get_bars", asked).value["bars"]
        assert bars[0]["date"] == "2024-09-18T09:31:00"
        assert bars[-1]["date"] == "2024-09-18T15:00:00"

    def test_a_huge_window_is_what_there_is(self, call: Any) -> None:
        asked = two_days(start_date="1900-01-01", end_date="2100-12-31")
        assert call(NAME, "get_bars", asked).value["rows"] == 804  # as provenance.json counts them

    @pytest.mark.parametrize(
        ("wrong", "code", "said"),
        [
            ({"start_date": "NaN"}, "time.bad_date", "YYYY-MM-DD"),
            ({"end_date": "2024-02-30"}, "time.bad_date", "2024-02-30"),
            ({"end_date": "9999-12-31"}, "time.bad_date", "out of range"),
            ({"start_date": "2024-10-01"}, "time.bad_window", "ends before it begins"),
            ({"interval": "../../1d"}, "mcp.bad_arguments", "interval"),
            ({"interval": "7m"}, "data.unknown_interval", "7m"),
            ({"adjust": "qfq"}, "mcp.bad_arguments", "forward"),
            ({"codes": "600000.SH"}, "mcp.bad_arguments", "list"),
            ({"codes": []}, "mcp.bad_arguments", "codes"),
            ({"codes": [1, None]}, "mcp.bad_arguments", "codes[0]"),
            ({"codes": ["6" * 1_000]}, "mcp.bad_arguments", "codes[0]"),
            ({"start_date": None}, "mcp.bad_arguments", "start_date"),
            ({"end_dat": "2024-09-19"}, "mcp.bad_arguments", "did you mean 'end_date'?"),
        ],
    )
    def test_refusals(self, call: Any, wrong: dict[str, Any], code: str, said: str) -> None:
        error = call(NAME, "get_bars", two_days(**wrong)).error
        assert error["code"] == code
        assert said in f"{error['message']} {error['remedy']}"

    def test_a_bad_bar_is_named(self, call: Any, workspace: Workspace) -> None:
        row = {"symbol": "600000.SH", "time": date(2024, 1, 2), "adj_factor": 1.0}
        put_bars(workspace, [{**row, "close": float("nan")}])
        desk = {"workspace_path": str(workspace.root), "source": "parquet"}
        asked = {"codes": ["600000.SH"], "start_date": "2024-01-01", "end_date": "2024-01-31"}
        error = call(NAME, "get_bars", asked, **desk).error
        assert error["code"] == "data.bad_bars"
        assert "600000.SH 2024-01-02" in error["message"]

    def test_an_empty_store_and_a_wrong_source(self, call: Any, workspace: Workspace) -> None:
        root = str(workspace.root)
        empty = call(NAME, "get_bars", two_days(), workspace_path=root, source="parquet")
        assert empty.error["code"] == "data.store_missing"
        wrong = call(NAME, "get_bars", two_days(), workspace_path=root, source="parket")
        assert "did you mean parquet" in wrong.error["remedy"]
        itself = call(NAME, "get_bars", two_days(), workspace_path=root, source="mcp")
        assert "would ask itself" in itself.error["message"]


class TestBulk:
    def test_many_bars_are_a_file(self, call: Any, workspace: Workspace) -> None:
        got = call(NAME, "get_bars", MINUTES, workspace_path=str(workspace.root))
        link = got.content[0]
        file = got.value["file"]
        assert (got.value["rows"], got.value["bars"]) == (10_800, [])
        assert (link.type, str(link.uri), link.size) == (
            "resource_link",
            file["uri"],
            file["bytes"],
        )
        data = Path(file["path"]).read_bytes()
        assert hashlib.sha256(data).hexdigest() == file["sha256"]
        table = pq.read_table(file["path"])
        assert [column["name"] for column in file["columns"]] == table.column_names
        types = [str(field.type) for field in table.schema]
        assert [column["type"] for column in file["columns"]] == types
        small = call(NAME, "get_bars", {**MINUTES, "codes": ["000001.SZ"]}).value["bars"]
        rows = table.filter(pl.Series(table["symbol"].to_pylist()).eq("000001.SZ").to_arrow())
        assert rows.num_rows == len(small) == 3_600
        assert rows["close_adj"].to_pylist() == [bar["close_adj"] for bar in small]
        assert set(table["volume_unit"].to_pylist()) == {"shares"}

    def test_the_same_answer_is_the_same_file(self, call: Any, workspace: Workspace) -> None:
        files = [
            call(NAME, "get_bars", MINUTES, workspace_path=str(workspace.root)).value["file"]
            for _ in range(2)
        ]
        assert files[0] == files[1]

    def test_a_client_elsewhere_reads_it_through_the_protocol(self, workspace: Workspace) -> None:
        made = build(NAME, Desk(workspace_path=str(workspace.root)))

        async def run() -> tuple[Any, bytes]:
            result: Any = await made.call_tool("get_bars", MINUTES)
            file = result.structured_content["file"]
            for other in ("file:///etc/hostname", f"{file['uri']}/../../../../INDEX.json"):
                with pytest.raises(ResourceNotFoundError):
                    await made.read_resource(other)
            (part,) = await made.read_resource(file["uri"])
            return file, part.content

        file, data = anyio.run(run)
        assert hashlib.sha256(data).hexdigest() == file["sha256"]

    def test_only_the_newest_stay(
        self, call: Any, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(server, "MAX_ROWS", 1)
        monkeypatch.setattr(bulk, "KEPT", 2)
        root = str(workspace.root)
        paths = [
            call(
                NAME,
                "get_bars",
                two_days(start_date=f"2024-09-{day}", end_date="2024-09-18"),
                workspace_path=root,
            ).value["file"]["path"]
            for day in ("10", "11", "12")
        ]
        assert [Path(path).exists() for path in paths] == [False, True, True]

    def test_without_a_workspace(self, call: Any) -> None:
        error = call(NAME, "get_bars", MINUTES).error
        assert error["code"] == "workspace.not_found"
        assert "kit init" in error["remedy"]

    def test_a_process_killed_on_the_way_leaves_no_half_file(self, workspace: Workspace) -> None:
        line = (
            "import sys, polars; from kit.workspace import Workspace; "
            "from kit.serve.trading_data_cn.bars import publish; "
            "publish(Workspace.at(sys.argv[1]), polars.DataFrame({'volume': range(10_800)}))"
        )
        folder = workspace.runs / "mcp"
        for number in range(1, 20):
            done = subprocess.run(
                [sys.executable, "-c", line, str(workspace.root)],
                env={"PATH": "", "HOME": str(workspace.root), "KIT_CRASH_AT": str(number)},
                capture_output=True,
                timeout=60,
                check=False,
            )
            for path in folder.rglob("*.parquet"):
                assert pq.read_table(path).num_rows == 10_800
            if done.returncode == 0:
                break
            assert done.returncode == 137, done.stderr
        assert 2 < number < 19
        assert len(list(folder.rglob("bars.parquet"))) == 1


class TestSecurities:
    def test_master_data(self, call: Any) -> None:
        got = call(NAME, "get_security_meta", {"symbols": ["600000.SH", "000300.SH", "1"]}).value
        bank, index = got["securities"]
        assert bank == {
            "symbol": "600000.SH",
            "name": "浦发银行",
            "industry": "银行",
            "is_st": False,
            "listed_date": "1999-11-10",
            "board": "main",
            "kind": "stock",
        }
        assert index["kind"] == "index"
        assert (got["asked"], got["got"], len(got["dropped"])) == (3, 2, 1)


class TestUniverse:
    def test_of_a_day(self, call: Any) -> None:
        got = call(NAME, "get_universe", {"date": "2024-09-19"}).value
        assert sorted(got["symbols"]) == ["000001.SZ", "000151.SZ", "600000.SH"]
        assert got["got"] == 3
        assert got["asked"] == 3 + len(got["dropped"])
        assert "601318.SH" in {item["symbol"] for item in got["dropped"]}, "its bars end in 2020"
        assert "幸存者偏差" in got["note"]

    def test_filters(self, call: Any) -> None:
        filters = {"symbols": ["600000.SH", "000151.SZ", "600001.SH", "x"], "industries": ["银行"]}
        got = call(NAME, "get_universe", {"date": "2024-09-19", "filters": filters}).value
        assert got["symbols"] == ["600000.SH"]
        assert {item["symbol"] for item in got["dropped"]} == {"600001.SH", "x"}
        none = call(
            NAME, "get_universe", {"date": "2024-09-19", "filters": {"symbols": ["x"]}}
        ).value
        assert (none["symbols"], none["asked"], none["got"]) == ([], 1, 0)

    @pytest.mark.parametrize(
        ("wrong", "code"),
        [
            ({"date": "1950-01-01"}, "data.no_bars"),
            ({"date": "nan"}, "time.bad_date"),
            ({"date": "2024-09-19", "filters": {"sector": ["x"]}}, "mcp.bad_arguments"),
            ({"date": "2024-09-19", "filters": {"boards": []}}, "mcp.bad_arguments"),
        ],
    )
    def test_refusals(self, call: Any, wrong: dict[str, Any], code: str) -> None:
        assert call(NAME, "get_universe", wrong).error["code"] == code


def test_a_real_client_asks_many_things_at_once(workspace: Workspace, connect: Any) -> None:

    async def run() -> None:
        async with connect(NAME, "--workspace", str(workspace.root)) as (session, hello):
            assert (hello.server_info.name, hello.server_info.version) == (NAME, "1.0.0")
            found: list[Any] = [None] * 8

            async def ask(place: int) -> None:
                asked = MINUTES if place % 2 else two_days()
                found[place] = await session.call_tool("get_bars", asked)

            async with anyio.create_task_group() as tasks:
                for place in range(8):
                    tasks.start_soon(ask, place)
            rows = [result.structured_content["rows"] for result in found]
            assert rows == [2, 10_800] * 4
            file = found[1].structured_content["file"]
            (part,) = (await session.read_resource(file["uri"])).contents
            assert hashlib.sha256(base64.b64decode(part.blob)).hexdigest() == file["sha256"]
            (listed,) = (await session.list_resources()).resources
            assert str(listed.uri) == file["uri"]

    anyio.run(run)
