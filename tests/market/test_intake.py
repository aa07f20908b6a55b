"""Columns, units and ratios: what is declared is checked, what is not declared is refused."""

from __future__ import annotations

import random
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from kit.errors import DataError, UsageError
from kit.market.adjusted import with_factors
from kit.market.bars import BAR_COLUMNS
from kit.market.intake import (
    ColumnMap,
    declared_unit,
    find_columns,
    read_table,
    to_bars,
)
from kit.market.symbols import normal_symbol

DAYS = ["2024-09-17", "2024-09-18", "2024-09-19"]
# 1,234 lots at about 8.4: a turnover of 1,036,560.
EASTMONEY = {
    "日期": DAYS,
    "股票代码": ["600000"] * 3,
    "开盘": ["8.30", "8.35", "8.32"],
    "收盘": ["8.35", "8.32", "8.52"],
    "最高": ["8.40", "8.39", "8.60"],
    "最低": ["8.28", "8.30", "8.31"],
    "成交量": ["1234", "1000", "2000"],
    "成交额": ["1029156.0", "832000.0", "1700000.0"],
}


def _bars(columns: dict[str, Any], unit: str = "shares", **options: Any) -> pl.DataFrame:
    frame = pl.DataFrame(columns)
    mapping = ColumnMap(
        columns=find_columns(frame.columns),
        volume_unit=unit,
        amount_unit=options.pop("amount_unit", "currency"),
        adjust=options.pop("adjust", "none"),
    )
    values = {"market": "cn", "source": "test", "as_of": None, "where": "a file"} | options
    return to_bars(frame, mapping, **values)


def test_chinese_columns_in_lots_become_shares() -> None:
    bars = _bars(EASTMONEY, "lots")
    assert dict(bars.schema) == BAR_COLUMNS
    assert bars["symbol"].to_list() == ["600000.SH"] * 3
    assert bars["volume"].to_list() == [123_400.0, 100_000.0, 200_000.0]
    assert bars["close"].to_list() == [8.35, 8.32, 8.52]
    assert bars["time"].to_list() == [datetime.fromisoformat(day) for day in DAYS]
    assert bars["adj_factor"].to_list() == [1.0] * 3


@pytest.mark.parametrize(
    ("unit", "amount_unit", "said"),
    [
        ("shares", "currency", "looks like lots of 100"),
        ("lots", "thousand", "another unit"),
    ],
)
def test_a_unit_the_data_contradict_is_refused(unit: str, amount_unit: str, said: str) -> None:
    with pytest.raises(DataError) as caught:
        _bars(EASTMONEY, unit, amount_unit=amount_unit)
    assert caught.value.code == "data.unit_mismatch"
    assert said in caught.value.message


@pytest.mark.parametrize(
    ("factor", "said"), [(1 / 100, "multiplied by 100"), (1 / 1000, "looks like thousands")]
)
def test_other_wrong_units_are_told_apart(factor: float, said: str) -> None:
    amounts = [str(float(text) * factor) for text in EASTMONEY["成交额"]]
    with pytest.raises(DataError) as caught:
        _bars(EASTMONEY | {"成交额": amounts}, "lots")
    assert said in caught.value.message


def test_a_unit_that_nobody_declared_is_not_guessed() -> None:
    with pytest.raises(UsageError) as caught:
        declared_unit(None, where="x.csv")
    assert caught.value.code == "data.unit_undeclared"
    assert "--volume-unit" in caught.value.remedy


def test_a_renamed_column_is_named_with_its_likely_new_name() -> None:
    renamed = {("收盘价格" if name == "收盘" else name): v for name, v in EASTMONEY.items()}
    with pytest.raises(DataError) as caught:
        _bars(renamed)
    assert caught.value.code == "data.bad_columns"
    assert "close" in caught.value.message
    chinese = ColumnMap(columns={**find_columns(list(EASTMONEY))}, volume_unit="lots")
    with pytest.raises(DataError) as caught:
        to_bars(
            pl.DataFrame(renamed), chinese, market="cn", source="s", as_of=None, where="akshare"
        )
    assert "'收盘'" in caught.value.message
    assert "'收盘价格'" in caught.value.remedy


def test_two_columns_that_could_be_one_are_refused() -> None:
    with pytest.raises(DataError) as caught:
        find_columns([*EASTMONEY, "date"])
    assert "date and 日期" in caught.value.message or "日期 and date" in caught.value.message


def test_an_empty_and_an_empty_handed_answer_are_failures() -> None:
    with pytest.raises(DataError) as caught:
        _bars({name: [] for name in EASTMONEY})
    assert caught.value.code == "data.no_bars"
    nothing = {name: [""] * 3 for name in ("开盘", "收盘", "最高", "最低")}
    with pytest.raises(DataError) as caught:
        _bars(EASTMONEY | nothing)
    assert caught.value.code == "data.all_missing"


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        ({"日期": ["2024-09-17", "18.9.2024", "2024-09-19"]}, "data.bad_columns", "18.9.2024"),
        ({"收盘": ["8.35", "8,32", "8.52"]}, "data.bad_columns", "8,32"),
        ({"日期": ["2024-09-17"] * 2 + ["2024-09-19"]}, "data.bad_bars", "two bars"),
        ({"开盘": ["8.30", "-8.35", "8.32"]}, "data.bad_bars", "high and low|not positive"),
        ({"最高": ["8.40", "", "8.60"]}, "data.bad_bars", "2024-09-18: a price is missing"),
        ({"股票代码": ["600000", "60000", "600000"]}, "data.bad_symbol", "60000"),
    ],
)
def test_a_bad_row_is_named(change: dict[str, Any], code: str, said: str) -> None:
    with pytest.raises(DataError, match=said) as caught:
        _bars(EASTMONEY | change, "lots")
    assert caught.value.code == code


@pytest.mark.parametrize(
    "times",
    [
        ["20240917", "20240918", "20240919"],
        [20240917, 20240918, 20240919],
        ["2024/09/17", "2024/09/18", "2024/09/19"],
        [datetime(2024, 9, 17), datetime(2024, 9, 18), datetime(2024, 9, 19)],
    ],
)
def test_dates_in_the_usual_spellings(times: list[Any]) -> None:
    assert _bars(EASTMONEY | {"日期": times}, "lots")["time"].to_list() == [
        datetime.fromisoformat(day) for day in DAYS
    ]


def _adjusted(kind: str) -> dict[str, Any]:
    """Two hundred days at about 20, a dividend of 1 half-way, adjusted one way or the other."""
    chance, close = random.Random(7), 20.0
    raw, adjusted = [], []
    for day in range(200):
        close = round(close * (1 + chance.uniform(-0.02, 0.02)), 2)
        raw.append(close)
        before = day < 100
        by_ratio = close * (0.95 if before else 1.0)
        by_subtraction = close - (1.0 if before else 0.0)
        adjusted.append(round(by_ratio if kind == "ratio" else by_subtraction, 2))
    start = datetime(2024, 1, 1)
    return {
        "date": [f"2024-{1 + day // 28:02d}-{1 + day % 28:02d}" for day in range(200)],
        "open": raw,
        "high": raw,
        "low": raw,
        "close": raw,
        "volume": [1000.0] * 200,
        "Adj Close": adjusted,
        "symbol": ["600000.SH"] * 200,
        "_": [start] * 200,
    }


def test_adjusted_by_ratio_becomes_a_factor_and_by_subtraction_is_refused() -> None:
    bars = _bars(_adjusted("ratio"))
    assert bars["adj_factor"][0] == pytest.approx(0.95, abs=0.001)
    assert bars["adj_factor"][-1] == 1.0
    with pytest.raises(DataError) as caught:
        _bars(_adjusted("subtraction"))
    assert caught.value.code == "data.subtracted"
    assert "by subtraction" in caught.value.message
    # A long history of dividends subtracted from a low price falls below zero.
    negative = _adjusted("ratio")
    negative["Adj Close"] = [value - 25 for value in negative["Adj Close"]]
    with pytest.raises(DataError) as caught:
        _bars(negative)
    assert caught.value.code == "data.subtracted"


def test_a_ratio_that_wanders_is_refused() -> None:
    wandering = _adjusted("ratio")
    wandering["Adj Close"] = [
        value * (1 + 0.01 * (place % 7)) for place, value in enumerate(wandering["Adj Close"])
    ]
    with pytest.raises(DataError, match="changes 199 times in 200") as caught:
        _bars(wandering)
    assert caught.value.code == "data.subtracted"


def test_halted_days_of_baostock_keep_their_price_and_say_so() -> None:
    bars = _bars(
        {
            "date": DAYS,
            "code": ["sh.600000"] * 3,
            "open": ["8.30", "8.35", "8.32"],
            "high": ["8.40", "8.35", "8.60"],
            "low": ["8.28", "8.35", "8.31"],
            "close": ["8.35", "8.35", "8.52"],
            "volume": ["123400", "", "200000"],
            "amount": ["1029156.0", "", "1700000.0"],
            "tradestatus": ["1", "0", "1"],
            "isST": ["0", "0", "1"],
        }
    )
    assert bars["suspended"].to_list() == [False, True, False]
    assert bars["volume"].to_list() == [123400.0, 0.0, 200000.0]
    assert bars["is_st"].to_list() == [False, False, True]


def test_factors_hold_from_their_date_on() -> None:
    rows = pl.DataFrame({"time": [datetime.fromisoformat(day) for day in DAYS]})
    factors = pl.DataFrame(
        {"time": [datetime(2024, 9, 18), datetime(2020, 1, 1)], "adj_factor": ["1.2", "1.1"]}
    )
    assert with_factors(rows, factors)["adj_factor"].to_list() == [1.1, 1.2, 1.2]
    assert with_factors(rows, factors[:1])["adj_factor"].to_list() == [1.0, 1.2, 1.2]


@pytest.mark.parametrize(
    ("text", "market", "symbol"),
    [
        ("sh.600000", "cn", "600000.SH"),
        ("SZ000001", "cn", "000001.SZ"),
        ("600000.XSHG", "cn", "600000.SH"),
        ("600000.SS", "cn", "600000.SH"),
        ("300027", "cn", "300027.SZ"),
        ("688981", "cn", "688981.SH"),
        ("510300", "cn", "510300.SH"),
        ("830799", "cn", "830799.BJ"),
        ("920002", "cn", "920002.BJ"),
        ("00700", "hk", "0700.HK"),
        ("0700.HK", "hk", "0700.HK"),
        ("9988", "hk", "9988.HK"),
        ("SYN1.HK", "hk", "SYN1.HK"),
        ("brk.b", "us", "BRK.B"),
        ("AAPL", "us", "AAPL"),
    ],
)
def test_symbols_are_written_one_way(text: str, market: str, symbol: str) -> None:
    assert normal_symbol(text, market) == symbol
    assert normal_symbol(symbol, market) == symbol


@pytest.mark.parametrize(("text", "market"), [("60000", "cn"), ("AAPL", "cn"), ("600000", "us")])
def test_what_is_no_symbol_of_its_market_is_refused(text: str, market: str) -> None:
    with pytest.raises(DataError) as caught:
        normal_symbol(text, market)
    assert caught.value.code == "data.bad_symbol"


def test_a_message_is_no_longer_than_a_person_reads() -> None:
    with pytest.raises(DataError) as caught:
        _bars({**EASTMONEY, "日期": ["9" * 1_000_000, *DAYS[1:]]}, "lots")
    assert caught.value.code == "data.bad_columns"
    assert len(caught.value.message) < 500


def test_a_bar_that_is_still_to_come_is_refused() -> None:
    now = datetime(2024, 9, 19, 8)
    assert len(_bars(EASTMONEY, "lots", as_of=now)) == 3
    later = {**EASTMONEY, "日期": [*DAYS[:-1], "2122-01-07"]}
    with pytest.raises(DataError, match="dated 2122-01-07, still to come") as caught:
        _bars(later, "lots", as_of=now)
    assert caught.value.code == "data.bad_bars"


def test_a_table_in_another_encoding_is_no_table_of_odd_columns(tmp_path: Path) -> None:
    path = tmp_path / "600000.SH.csv"
    path.write_bytes("日期,开盘,收盘\n2024-01-02,1,1\n".encode("gbk"))
    with pytest.raises(DataError) as caught:
        read_table(path)
    assert caught.value.code == "data.unreadable"
    assert "UTF-8" in caught.value.remedy
