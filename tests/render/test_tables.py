from __future__ import annotations

import math
import re

import numpy as np
import pytest

from kit.render import html_table


def _cells(html: str) -> list[str]:
    return re.findall(r"<td[^>]*>(.*?)</td>", html)


def test_cells_are_formatted_and_escaped() -> None:
    rows = [("<b>&", 1234.5, None, True), ("x", np.float64(1e-5), math.nan, np.int64(7))]
    html = html_table(rows, ["名称 <i>", "数", "空", "旗"])
    expected = ["&lt;b&gt;&amp;", "1,234.50", "—", "是", "x", "0.0000100", "—", "7"]
    assert _cells(html) == expected
    assert "名称 &lt;i&gt;" in html
    assert "<b>" not in html


def test_numbers_stand_right_and_codes_stand_left() -> None:
    html = html_table([("000001", 1.0, "3.5%", "1e5")], ["代码", "a", "b", "c"])
    assert re.findall(r'<td style="text-align:(\w+)"', html) == ["left", "right", "right", "left"]


def test_alignment_can_be_told() -> None:
    html = html_table([("a", 1)], ["x", "y"], "cl")
    assert re.findall(r"text-align:(\w+)", html) == ["center", "left"] * 2


def test_short_rows_are_filled_up_and_bad_shapes_refused() -> None:
    assert _cells(html_table([("a",)], ["x", "y"])) == ["a", ""]
    assert _cells(html_table([], ["x"])) == []
    with pytest.raises(ValueError, match="row 0 has 2 cells"):
        html_table([(1, 2)], ["x"])
    for wrong in ("l", "lx"):
        with pytest.raises(ValueError, match="align"):
            html_table([(1, 2)], ["x", "y"], wrong)
