from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kit.render import area_chart, bar_chart, line_chart, price_chart

SVG = "{http://www.w3.org/2000/svg}"
DAYS = pd.bdate_range("2023-01-02", periods=300)
WALK = pd.Series(np.linspace(10, 20, 300), DAYS)


def _texts(svg: str) -> list[str]:
    return [node.text or "" for node in ET.fromstring(svg).iter(f"{SVG}text")]


def _no_bad_numbers(svg: str) -> None:
    root = ET.fromstring(svg)
    for node in root.iter():
        for name, value in node.attrib.items():
            if name in ("d", "x", "y", "cx", "cy", "width", "height"):
                assert not re.search(r"nan|inf|\de[+-]?\d", value), (node.tag, value)


ODD = {
    "empty": pd.Series(dtype="float64"),
    "empty dates": pd.Series(dtype="float64", index=pd.DatetimeIndex([])),
    "one point": pd.Series([5.0], DAYS[:1]),
    "constant": pd.Series(5.0, DAYS),
    "zeros": pd.Series(0.0, DAYS),
    "all missing": pd.Series(math.nan, DAYS),
    "gaps": WALK.where(WALK.index.day_of_week != 2),
    "infinite": pd.Series([1.0, math.inf, -math.inf, 2.0], DAYS[:4]),
    "tiny": pd.Series([1e-12, 2e-12], DAYS[:2]),
    "huge": pd.Series([1e15, 2e15], DAYS[:2]),
    "same time": pd.Series([1.0, 2.0], DAYS[[0, 0]]),
    "numbers": pd.Series([1.0, 3.0, 2.0]),
    "intraday": pd.Series(range(240), pd.date_range("2024-01-02 09:31", periods=240, freq="min")),
    "zoned": pd.Series([1.0, 2.0], DAYS[:2].tz_localize("Asia/Shanghai")),
    "integers": pd.Series([1, 2, 3], DAYS[:3]),
}
CHARTS: dict[str, Callable[[pd.Series], str]] = {
    "line": lambda s: line_chart({"a": s, "b": s * 2}, title="t", unit="元"),
    "log": lambda s: line_chart(s, title="t", log=True),
    "area": lambda s: area_chart(s, title="t"),
    "bar": lambda s: bar_chart(s, title="t"),
    "price": lambda s: price_chart(s, title="t", buys=s.index[:1], average=s.rolling(2).mean()),
}


@pytest.mark.parametrize("chart", CHARTS)
@pytest.mark.parametrize("case", ODD)
def test_any_series_gives_a_readable_drawing(chart: str, case: str) -> None:
    svg = CHARTS[chart](ODD[case])
    root = ET.fromstring(svg)
    assert root.attrib["role"] == "img"
    assert root.find(f"{SVG}title").text == "t"  # type: ignore[union-attr]
    assert root.find(f"{SVG}desc").text  # type: ignore[union-attr]
    _no_bad_numbers(svg)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(width=64), max_size=30))
def test_no_values_break_a_chart(values: list[float]) -> None:
    series = pd.Series(values, DAYS[: len(values)], dtype="float64")
    for chart in (CHARTS["line"], CHARTS["log"], CHARTS["area"], CHARTS["bar"]):
        _no_bad_numbers(chart(series))


def test_nothing_to_draw_is_said() -> None:
    assert "没有数据" in _texts(line_chart({}, title="t"))
    assert "没有数据" in _texts(bar_chart(pd.Series(dtype="float64"), title="t"))


def test_text_is_escaped() -> None:
    svg = line_chart({"<a>": WALK, "&": WALK}, title="<script>", desc="a < b")
    assert "<script" not in svg
    assert "<script>" in _texts(svg)
    assert "&" in _texts(svg)


def test_points_land_where_a_ruler_puts_them() -> None:
    svg = line_chart(pd.Series([0.0, 10.0, 5.0], DAYS[:3]), title="t", height=300)
    path = re.search(r'class="line" d="M([^"]+)"', svg)
    assert path is not None
    points = [tuple(map(float, pair.split())) for pair in path[1].split("L")]
    # 66 px on the left, 18 on the right; values from -0.5 to 10.5 over the 224 px from 272 to 48.
    assert [x for x, _ in points] == [66.0, 384.0, 702.0]
    assert [y for _, y in points] == pytest.approx(
        [272 - 0.5 / 11 * 224, 272 - 10.5 / 11 * 224, 272 - 5.5 / 11 * 224], abs=0.06
    )


def test_gaps_part_the_line_and_lone_points_are_dots() -> None:
    svg = line_chart(pd.Series([1, 2, math.nan, 3, math.nan, 4, 5.0], DAYS[:7]), title="t")
    path = re.search(r'class="line" d="([^"]+)"', svg)
    assert path is not None
    assert path[1].count("M") == 2
    assert svg.count("<circle") == 1


def test_fractions_are_labelled_in_percent() -> None:
    labels = _texts(area_chart(pd.Series([0.0, -0.2, -0.1], DAYS[:3]), title="回撤"))
    assert "0%" in labels
    assert "-20%" in labels


def test_years_months_and_days_label_the_time_axis() -> None:
    years = _texts(
        line_chart(pd.Series(1.0, pd.bdate_range("2018-06-01", "2024-09-19")), title="t")
    )
    assert [label for label in years if re.fullmatch(r"20\d\d", label)] == [
        "2019", "2020", "2021", "2022", "2023", "2024",
    ]  # fmt: skip
    assert "2023-04" in _texts(line_chart(WALK, title="t"))
    assert "2023-01-04" in _texts(line_chart(WALK[:6], title="t"))


def test_a_log_axis_gives_equal_ratios_equal_room() -> None:
    svg = line_chart(pd.Series([1.0, 10.0, 100.0], DAYS[:3]), title="t", log=True)
    path = re.search(r'class="line" d="M([^"]+)"', svg)
    assert path is not None
    y = [float(pair.split()[1]) for pair in path[1].split("L")]
    assert y[0] - y[1] == pytest.approx(y[1] - y[2], abs=0.11)
    assert {"1", "10", "100"} <= set(_texts(svg))


def test_gains_and_losses_differ_by_more_than_colour() -> None:
    years = pd.Series([0.125, -0.05, math.nan], [2021, 2022, 2023])
    svg = bar_chart(years, title="逐年")
    assert "▲ +12.5%" in _texts(svg)
    assert "▼ -5.00%" in _texts(svg)
    fills = re.findall(r'<rect[^>]*fill="var\((--k-\w+)\)"', svg)
    assert fills == ["--k-red", "--k-green"]
    west = re.findall(
        r'<rect[^>]*fill="var\((--k-\w+)\)"', bar_chart(years, title="t", red_up=False)
    )
    assert west == ["--k-green", "--k-red"]


def test_trades_are_marked_with_arrows_that_say_what_they_are() -> None:
    svg = price_chart(
        WALK, title="t", buys=[DAYS[0], pd.NaT], sells=pd.Series([15.0], DAYS[[100]]), unit="元"
    )
    assert {"▲ 买入", "▼ 卖出"} <= set(_texts(svg))
    assert "买入 2023-01-02 10.00元" in svg
    assert f"卖出 {DAYS[100]:%Y-%m-%d} 15.00元" in svg
    assert "买入 1 次，卖出 1 次" in svg


def test_long_series_are_thinned_without_losing_their_extremes() -> None:
    rng = np.random.default_rng(3)
    walk = pd.Series(100 + rng.normal(size=50_000).cumsum(), pd.RangeIndex(50_000))
    walk.iloc[777] = walk.max() + 50
    svg = line_chart(walk, title="t", height=300)
    assert len(svg) < 60_000
    path = re.search(r'class="line" d="M([^"]+)"', svg)
    assert path is not None
    y = [float(pair.split()[1]) for pair in path[1].split("L")]
    # The highest value stands 5 % of the range below the top of the 224 px.
    assert min(y) == pytest.approx(48 + 224 * 0.05 / 1.1, abs=0.06)


def test_charts_follow_the_theme_of_their_page() -> None:
    svg = line_chart(WALK, title="t")
    assert "prefers-color-scheme:dark" in svg
    assert "data-jp-theme-light" in svg
    assert not re.search(r'(?:fill|stroke)="#', svg)
