from __future__ import annotations

import re

import numpy as np
import pandas as pd

from kit.render import heat_chart

TABLE = pd.DataFrame(
    [[1.0, -0.5], [np.nan, 0.25]],
    index=pd.Index(["2", "<3>"], name="near"),
    columns=pd.Index([10, 20], name="window"),
)


def test_cells_carry_figures_shades_and_signs() -> None:
    svg = heat_chart(TABLE, title="夏普")
    assert re.findall(r">(-?\d\.\d\d|—)</text>", svg) == ["1.00", "-0.50", "—", "0.25"]
    cells = re.findall(r'fill="var\((--k-\w+)\)" fill-opacity="([\d.]+)"', svg)
    # The largest is 0.58 strong, half of it 0.33, a quarter 0.205; nothing is no shade at all.
    assert cells[0] == ("--k-red", "0.58")
    assert cells[1] == ("--k-green", "0.33")
    assert cells[2][1] == "0.00"
    assert cells[3][0] == "--k-red"
    green_up = heat_chart(TABLE, title="x", red_up=False)
    assert 'fill="var(--k-green)" fill-opacity="0.58"' in green_up
    assert "最高 near=2，window=10：1.00；最低 near=2，window=20：-0.50" in svg


def test_names_are_text_and_nothing_is_drawn_for_nothing() -> None:
    svg = heat_chart(TABLE, title="a<b", unit="%")
    assert "<3>" not in svg
    assert "&lt;3&gt;" in svg
    assert "a&lt;b" in svg
    assert ">100.00%<" in svg
    empty = heat_chart(TABLE * np.nan, title="x")
    assert "没有数据" in empty
    many = pd.DataFrame(np.ones((1, 40)))
    assert heat_chart(many, title="x").count("<rect") == 40
    assert "1.00" not in re.sub(r"<desc>.*?</desc>", "", heat_chart(many, title="x"))
