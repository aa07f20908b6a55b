from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from kit.errors import DataError
from kit.market import Security, resolve_universe
from kit.market.sources import SampleSource

LAST = date(2024, 9, 19)


def test_every_symbol_asked_for_is_got_or_dropped_with_a_reason() -> None:
    universe = resolve_universe(SampleSource(), "cn", {"kind": "sample"}, LAST)
    assert universe.symbols == ("000001.SZ", "000151.SZ", "600000.SH")
    assert len(universe.asked) == 10  # eleven series, one of them an index
    assert {*universe.symbols, *(d.symbol for d in universe.dropped)} == set(universe.asked)
    reasons = {d.symbol: d.reason for d in universe.dropped}
    assert reasons["601318.SH"] == "2024-09-19 没有行情（最后一根 2020-06-16）"
    assert "幸存者偏差" in universe.note
    counts = universe.to_dict()
    assert (counts["asked"], counts["got"], len(counts["dropped"])) == (10, 3, 7)


def test_the_older_era_of_the_sample() -> None:
    universe = resolve_universe(SampleSource(), "cn", {"kind": "all"}, date(2018, 7, 2))
    assert len(universe.got) == 6
    assert {d.symbol: d.reason for d in universe.dropped} == {
        "000001.SZ": "截至 2018-07-02 没有行情",
        "000151.SZ": "截至 2018-07-02 没有行情",
        "600000.SH": "截至 2018-07-02 没有行情",
        "603220.SH": "2018-07-02 尚未上市（2018-11-15 上市）",
    }


def test_a_list_keeps_its_order_and_unknown_codes_get_a_hint() -> None:
    selector = {"symbols": ["600000.SH", "000300.SH", "600000.SZ", "000001.SZ", "600000.SH"]}
    universe = resolve_universe(SampleSource(), "cn", selector, LAST)
    assert universe.asked == ("600000.SH", "000300.SH", "600000.SZ", "000001.SZ")
    assert universe.symbols == ("600000.SH", "000001.SZ")
    index, unknown = universe.dropped
    assert (index.name, index.reason) == ("沪深300", "指数不是可选标的")
    assert unknown.reason == "数据源没有该代码，是否为 600000.SH"
    assert universe.note.startswith("指定名单")


def test_boards_and_industries_narrow_what_is_asked() -> None:
    source, on = SampleSource(), date(2020, 6, 16)
    boards = resolve_universe(source, "cn", {"boards": ["chinext"]}, on)
    assert boards.symbols == boards.asked == ("300027.SZ",)
    banks = resolve_universe(source, "cn", {"kind": "all", "industries": ["银行"]}, LAST)
    assert banks.symbols == ("000001.SZ", "600000.SH")


def test_a_day_without_trading_looks_at_the_session_before_it() -> None:
    saturday = date(2024, 9, 14)
    universe = resolve_universe(SampleSource(), "cn", {"symbols": ["600000.SH"]}, saturday)
    assert universe.symbols == ("600000.SH",)


def test_a_halted_symbol_is_dropped_from_a_screen_but_not_from_a_window(
    make_bars: Any, make_source: Any
) -> None:
    days = ["2024-01-02", "2024-01-03", "2024-01-04"]
    source = make_source(make_bars("A.SH", days, [9.0] * 3), make_bars("B.SH", days[:2], [9.0] * 2))
    on = date(2024, 1, 4)
    screen = resolve_universe(source, "cn", {"kind": "all"}, on)
    assert screen.symbols == ("A.SH",)
    assert screen.dropped[0].reason == "2024-01-04 没有行情（最后一根 2024-01-03）"
    window = resolve_universe(source, "cn", {"kind": "all"}, on, since=date(2024, 1, 1))
    assert window.symbols == ("A.SH", "B.SH")
    late = resolve_universe(source, "cn", {"kind": "all"}, on, since=on)
    assert late.dropped[0].reason == "2024-01-04 至 2024-01-04 没有行情（最后一根 2024-01-03）"


def test_a_fund_is_a_candidate_and_an_index_is_not(make_bars: Any, make_source: Any) -> None:
    source = make_source(
        make_bars("510300.SH", ["2024-01-02"], [9.0]),
        make_bars("000300.SH", ["2024-01-02"], [9.0]),
        securities=[
            Security(symbol="510300.SH", name="300ETF", kind="fund"),
            Security(symbol="000300.SH", name="沪深300", kind="index", board="index"),
        ],
    )
    universe = resolve_universe(source, "cn", {"kind": "all"}, date(2024, 1, 2))
    assert universe.symbols == universe.asked == ("510300.SH",)


def test_a_date_before_all_data_says_where_it_begins() -> None:
    with pytest.raises(DataError) as caught:
        resolve_universe(SampleSource(), "cn", {"kind": "sample"}, date(2017, 1, 3))
    assert caught.value.code == "data.no_bars"
    assert "2018-06-01" in caught.value.remedy
    with pytest.raises(DataError):
        resolve_universe(SampleSource(), "jp", {"kind": "sample"}, LAST)


@pytest.mark.parametrize(
    ("selector", "hint"),
    [
        ({}, "write"),
        ({"kind": "smaple"}, "did you mean sample?"),
        ({"symbol": ["600000.SH"]}, "did you mean symbols?"),
        ({"symbols": "600000.SH"}, "write"),
        ({"symbols": []}, "write"),
        ({"boards": "main"}, "write"),
    ],
)
def test_a_selector_that_is_not_understood_is_refused(selector: dict[str, Any], hint: str) -> None:
    with pytest.raises(DataError) as caught:
        resolve_universe(SampleSource(), "cn", selector, LAST)
    assert caught.value.code == "market.bad_selector"
    assert caught.value.remedy.startswith(hint)
