"""Frames as the libraries hand them out: real column names, units, spellings and failures."""

from __future__ import annotations

import sys
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import polars as pl
import pytest

from kit.errors import ConfigError, DataError, UsageError
from kit.market.adapters import CsvAdapter, McpAdapter, open_adapter
from kit.market.adjusted import with_factors
from kit.market.intake import Raw, to_bars
from kit.market.public import (
    AkshareAdapter,
    BaostockAdapter,
    TushareAdapter,
    YfinanceAdapter,
)
from kit.workspace import Workspace

START, END = date(2024, 6, 10), date(2024, 6, 12)


def _bars(raw: Raw, symbol: str, market: str = "cn") -> pl.DataFrame:
    bars = to_bars(
        raw.rows, raw.mapping, market=market, source=raw.source, as_of=None, symbol=symbol
    )
    return bars if raw.factors is None else with_factors(bars, raw.factors)


class Yahoo:
    """yfinance: a zone-aware index called Date, prices split-adjusted, volume in shares."""

    def __init__(self, frame: pd.DataFrame | Exception) -> None:
        self.frame = frame
        self.asked: list[dict[str, Any]] = []
        self.config = SimpleNamespace(debug=SimpleNamespace(hide_exceptions=True))

    def Ticker(self, code: str) -> Any:  # noqa: N802 - the library's own name
        def history(**options: Any) -> pd.DataFrame:
            self.asked.append({"code": code, **options})
            if isinstance(self.frame, Exception):
                raise self.frame
            return self.frame

        return SimpleNamespace(history=history)


def _yahoo_frame() -> pd.DataFrame:
    index = pd.DatetimeIndex(
        ["2024-06-10", "2024-06-11", "2024-06-12"], tz="America/New_York", name="Date"
    )
    return pd.DataFrame(
        {
            "Open": [196.90, 193.65, 207.37],
            "High": [197.30, 207.16, 220.20],
            "Low": [192.15, 193.63, 206.90],
            "Close": [193.12, 207.15, 213.07],
            "Adj Close": [192.155, 206.114, 212.005],
            "Volume": [97262100, 172373300, 198134300],
            "Dividends": [0.0, 0.0, 0.0],
            "Stock Splits": [0.0, 0.0, 0.0],
        },
        index=index,
    )


def test_yfinance() -> None:
    library = Yahoo(_yahoo_frame())
    raw = YfinanceAdapter(library).fetch("AAPL", START, END)
    assert library.asked == [
        {
            "code": "AAPL",
            "start": "2024-06-10",
            "end": "2024-06-13",
            "interval": "1d",
            "auto_adjust": False,
            "actions": True,
        }
    ]
    assert library.config.debug.hide_exceptions is False
    bars = _bars(raw, "AAPL", "us")
    assert bars["time"].dt.strftime("%Y-%m-%d %H:%M").to_list()[0] == "2024-06-10 00:00"
    assert bars["volume"].to_list() == [97262100.0, 172373300.0, 198134300.0]
    assert bars["adj_factor"][0] == pytest.approx(192.155 / 193.12)
    assert set(bars["adjust"]) == {"split"}


def test_yfinance_names_shanghai_its_own_way_and_older_ones_are_made_loud() -> None:
    library = Yahoo(_yahoo_frame())
    del library.config
    YfinanceAdapter(library).fetch("600000.SH", START, END)
    YfinanceAdapter(library).fetch("0700.HK", START, END)
    assert [asked["code"] for asked in library.asked] == ["600000.SS", "0700.HK"]
    assert all(asked["raise_errors"] is True for asked in library.asked)


def test_an_empty_yahoo_table_is_a_failure() -> None:
    raw = YfinanceAdapter(Yahoo(_yahoo_frame()[:0])).fetch("AAPL", START, END)
    with pytest.raises(DataError) as caught:
        _bars(raw, "AAPL", "us")
    assert caught.value.code == "data.no_bars"


class Akshare:
    """akshare: Chinese columns, dates as objects, volume in lots, factors as text."""

    def __init__(self, **changed: Any) -> None:
        self.changed = changed
        self.asked: list[dict[str, Any]] = []

    def stock_zh_a_hist(self, **options: Any) -> pd.DataFrame:
        self.asked.append(options)
        if self.changed.get("empty"):
            return pd.DataFrame()
        frame = pd.DataFrame(
            {
                "日期": [date(2024, 6, 10), date(2024, 6, 11), date(2024, 6, 12)],
                "股票代码": ["600000"] * 3,
                "开盘": [8.30, 8.35, 8.32],
                "收盘": [8.35, 8.32, 8.52],
                "最高": [8.40, 8.39, 8.60],
                "最低": [8.28, 8.30, 8.31],
                "成交量": [1234, 1000, 2000],
                "成交额": [1029156.0, 832000.0, 1700000.0],
                "振幅": [1.44] * 3,
                "涨跌幅": [0.6] * 3,
                "涨跌额": [0.05] * 3,
                "换手率": [0.1] * 3,
            }
        )
        return frame.rename(columns=self.changed.get("rename", {}))

    def stock_zh_a_daily(self, symbol: str, adjust: str) -> pd.DataFrame:
        assert (symbol, adjust) == ("sh600000", "hfq-factor")
        return pd.DataFrame(
            {
                "date": pd.to_datetime(["2024-06-12", "2023-07-21", "1900-01-01"]),
                "hfq_factor": ["14.5012", "13.9", "1.0"],
            }
        )


def test_akshare() -> None:
    library = Akshare()
    bars = _bars(AkshareAdapter(library).fetch("600000.SH", START, END), "600000.SH")
    assert library.asked[0]["adjust"] == ""
    assert library.asked[0]["start_date"] == "20240610"
    assert bars["volume"].to_list() == [123400.0, 100000.0, 200000.0]
    assert bars["adj_factor"].to_list() == [13.9, 13.9, 14.5012]
    assert set(bars["symbol"]) == {"600000.SH"}


def test_akshare_that_renamed_a_column_or_answers_with_nothing() -> None:
    renamed = AkshareAdapter(Akshare(rename={"成交量": "成交量(股)"})).fetch(
        "600000.SH", START, END
    )
    with pytest.raises(DataError) as caught:
        _bars(renamed, "600000.SH")
    assert caught.value.code == "data.bad_columns"
    assert "成交量(股)" in caught.value.remedy
    empty = AkshareAdapter(Akshare(empty=True)).fetch("600000.SH", START, END)
    with pytest.raises(DataError) as caught:
        _bars(empty, "600000.SH")
    assert caught.value.code == "data.no_bars"


class Baostock:
    """baostock: results with an error code, every value a text; it greets on stdout."""

    def __init__(self, code: str = "0") -> None:
        self.code = code

    def login(self) -> Any:
        sys.stdout.write("login success!\n")
        return SimpleNamespace(error_code="0", error_msg="success")

    def query_history_k_data_plus(self, code: str, fields: str, **options: Any) -> Any:
        assert (code, options["adjustflag"]) == ("sh.600000", "3")
        values = {
            "date": ["2024-06-10", "2024-06-11", "2024-06-12"],
            "code": ["sh.600000"] * 3,
            "open": ["8.3000", "8.3500", "8.3200"],
            "high": ["8.4000", "8.3500", "8.6000"],
            "low": ["8.2800", "8.3500", "8.3100"],
            "close": ["8.3500", "8.3500", "8.5200"],
            "volume": ["123400", "", "200000"],
            "amount": ["1029156.0000", "", "1700000.0000"],
            "tradestatus": ["1", "0", "1"],
            "isST": ["0", "0", "0"],
        }
        frame = pd.DataFrame(values)[fields.split(",")]
        return SimpleNamespace(
            error_code=self.code, error_msg="网络接收错误。", get_data=lambda: frame
        )

    def query_adjust_factor(self, **options: Any) -> Any:
        frame = pd.DataFrame(
            {
                "code": ["sh.600000"],
                "dividOperateDate": ["2024-06-11"],
                "foreAdjustFactor": ["1.000000"],
                "backAdjustFactor": ["13.900000"],
                "adjustFactor": ["13.900000"],
            }
        )
        return SimpleNamespace(error_code="0", error_msg="success", get_data=lambda: frame)


def test_baostock(capsys: pytest.CaptureFixture[str]) -> None:
    bars = _bars(BaostockAdapter(Baostock()).fetch("600000.SH", START, END), "600000.SH")
    assert bars["volume"].to_list() == [123400.0, 0.0, 200000.0]
    assert bars["suspended"].to_list() == [False, True, False]
    assert bars["adj_factor"].to_list() == [1.0, 13.9, 13.9]
    assert capsys.readouterr().out == ""


def test_baostock_tells_its_errors_by_a_code() -> None:
    with pytest.raises(DataError) as caught:
        BaostockAdapter(Baostock("10002007")).fetch("600000.SH", START, END)
    assert caught.value.code == "source.failed"
    assert "10002007" in caught.value.message


class Tushare:
    """tushare: volume in lots, turnover in thousands, newest first."""

    def pro_api(self, token: str) -> Any:
        assert token == "secret"
        return self

    def daily(self, **options: Any) -> pd.DataFrame:
        assert options == {
            "ts_code": "600000.SH",
            "start_date": "20240610",
            "end_date": "20240612",
        }
        return pd.DataFrame(
            {
                "ts_code": ["600000.SH"] * 2,
                "trade_date": ["20240612", "20240611"],
                "open": [8.32, 8.35],
                "high": [8.60, 8.39],
                "low": [8.31, 8.30],
                "close": [8.52, 8.32],
                "pre_close": [8.32, 8.35],
                "change": [0.2, -0.03],
                "pct_chg": [2.4, -0.36],
                "vol": [2000.0, 1000.0],
                "amount": [1700.0, 832.0],
            }
        )

    def adj_factor(self, **options: Any) -> pd.DataFrame:
        return pd.DataFrame(
            {
                "ts_code": ["600000.SH"] * 2,
                "trade_date": ["20240612", "20240611"],
                "adj_factor": [14.1, 13.9],
            }
        )


def test_tushare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "secret")
    adapter = TushareAdapter({"token_env": "MY_TOKEN"}, Tushare())
    bars = _bars(adapter.fetch("600000.SH", START, END), "600000.SH")
    assert bars["time"].dt.day().to_list() == [11, 12]
    assert bars["volume"].to_list() == [100000.0, 200000.0]
    assert bars["amount"].to_list() == [832000.0, 1700000.0]
    assert bars["adj_factor"].to_list() == [13.9, 14.1]


def test_tushare_without_a_token_says_which_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TUSHARE_TOKEN", raising=False)
    with pytest.raises(ConfigError) as caught:
        TushareAdapter({}, Tushare())
    assert caught.value.code == "source.no_token"
    assert "TUSHARE_TOKEN" in caught.value.where


def test_mcp_rows_and_files(tmp_path: Path) -> None:
    row = {
        "symbol": "600000.SH",
        "open": 8.3,
        "high": 8.4,
        "low": 8.2,
        "close": 8.35,
        "close_adj": 16.7,
        "low_adj": 16.4,
        "volume": 123400.0,
        "volume_unit": "shares",
    }
    rows = [{**row, "date": day} for day in ("2024-06-11", "2024-06-12")]
    typed = pl.DataFrame(rows).with_columns(pl.col("date").str.to_date())
    typed.write_parquet(tmp_path / "bars.parquet")
    payload: dict[str, Any] = {
        "source": "sample",
        "synthetic": False,
        "restated": [],
        "bars": rows,
        "file": None,
    }

    class Pool:
        def call(self, server: str, tool: str, arguments: Any) -> Any:
            assert (server, tool) == ("trading-data-cn", "get_bars")
            assert arguments["codes"] == ["600000.SH"]
            return SimpleNamespace(require_payload=lambda: payload)

        def fetch(self, server: str, link: str) -> bytes:
            assert link == "kit://bars"
            return (tmp_path / "bars.parquet").read_bytes()

    adapter = McpAdapter(Pool(), "trading-data-cn")  # type: ignore[arg-type]
    bars = _bars(adapter.fetch("600000.SH", START, END), "600000.SH")
    assert bars["adj_factor"].to_list() == [2.0, 2.0]
    assert set(bars["source"]) == {"mcp trading-data-cn: sample"}
    payload |= {"bars": [], "file": {"uri": "kit://bars"}}
    again = _bars(adapter.fetch("600000.SH", START, END), "600000.SH")
    assert again.equals(bars)
    payload |= {"synthetic": True, "restated": ["600000.SH"]}
    marked = _bars(adapter.fetch("600000.SH", START, END), "600000.SH")
    assert marked["source"][0].startswith("synthetic")
    assert set(marked["adjust"]) == {"qfq"}


def test_csv(workspace: Workspace) -> None:
    folder = workspace.root / "data" / "csv"
    folder.mkdir(parents=True)
    (folder / "000001.SZ.csv").write_text(
        "date,open,high,low,close,volume\n2024-06-12,10,11,9,10.5,1000\n"
    )
    adapter = CsvAdapter(workspace, {"folder": "data/csv", "volume_unit": "lots"})
    bars = _bars(adapter.fetch("000001.SZ", START, END), "000001.SZ")
    assert (bars["symbol"][0], bars["volume"][0]) == ("000001.SZ", 100000.0)
    with pytest.raises(DataError) as caught:
        adapter.fetch("000002.SZ", START, END)
    assert caught.value.code == "data.no_bars"


@pytest.mark.parametrize("name", ["yfinance", "akshare", "baostock"])
def test_a_library_that_is_not_installed_is_named(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigError) as caught, open_adapter(workspace, name, {}):
        pass
    assert caught.value.code == "source.not_installed"
    assert "kit[live]" in caught.value.remedy


def test_an_unknown_adapter_is_refused(workspace: Workspace) -> None:
    with pytest.raises(UsageError), open_adapter(workspace, "yahoo", {}):
        pass
