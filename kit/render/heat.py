"""A heat map: one figure a cell, its size as a shade, its sign as a colour and in its digits."""

from __future__ import annotations

from html import escape
from typing import Final

import numpy as np
import pandas as pd

from kit.render.numbers import format_number
from kit.render.svg import STYLE

__all__ = ["heat_chart"]

_WIDTH: Final = 720
_LEFT, _TOP, _ROW = 96, 64, 30
_NARROW: Final = 44  # pixels below which a cell shows its shade only


def heat_chart(
    table: pd.DataFrame,
    *,
    title: str,
    unit: str = "",
    decimals: int = 2,
    red_up: bool = True,
) -> str:
    """Draw a table of figures as shaded cells.

    Args:
        table: Figures; the names of its index and columns stand at the axes, NaN is a blank.
        title: Shown above, and the name a screen reader speaks.
        unit: Unit of the figures; `%` for fractions.
        decimals: Digits after the point.
        red_up: Whether what is above zero is red and what is below green, or the other way round.
    """
    values = table.to_numpy(dtype="float64")
    known = values[np.isfinite(values)]
    most = float(np.abs(known).max()) if len(known) else 0.0
    step = (_WIDTH - _LEFT - 8) / max(values.shape[1], 1)
    height = _TOP + _ROW * len(table) + 12
    size = f'viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}"'
    parts = [
        f'<svg class="kit-chart" role="img" xmlns="http://www.w3.org/2000/svg" {size}>',
        f"<title>{escape(title)}</title><desc>{escape(_told(table, unit, decimals))}</desc>{STYLE}",
        f'<text class="head" x="8" y="18">{escape(title)}</text>',
        _text(_LEFT, 38, f"{_name(table.columns)} →", "start"),
        _text(8, 56, f"{_name(table.index)} ↓", "start"),
    ]
    for place, name in enumerate(table.columns):
        parts.append(_text(_LEFT + step * (place + 0.5), 56, str(name), "middle"))
    for row, name in enumerate(table.index):
        y = _TOP + _ROW * row
        parts.append(_text(_LEFT - 8, y + 20, str(name), "end"))
        for place, value in enumerate(values[row]):
            x = _LEFT + step * place
            parts.append(_cell(float(value), most, (x, y, step), red_up=red_up))
            if step >= _NARROW:
                said = format_number(float(value), unit=unit, decimals=decimals)
                parts.append(_text(x + step / 2, y + 20, said, "middle", ink=True))
    return "".join([*parts, "</svg>"])


def _cell(value: float, most: float, box: tuple[float, float, float], *, red_up: bool) -> str:
    x, y, step = box
    shade = 0.0 if not np.isfinite(value) or most == 0 else 0.08 + 0.5 * abs(value) / most
    colour = "--k-red" if (value > 0) == red_up else "--k-green"
    return (
        f'<rect x="{x + 1:.1f}" y="{y + 1}" width="{max(step - 2, 1):.1f}" height="{_ROW - 2}" '
        f'fill="var({colour})" fill-opacity="{shade:.2f}" stroke="var(--k-grid)"/>'
    )


def _text(x: float, y: float, words: str, anchor: str, *, ink: bool = False) -> str:
    style = ' style="fill:var(--k-ink)"' if ink else ""
    return f'<text x="{x:.1f}" y="{y}" text-anchor="{anchor}"{style}>{escape(words)}</text>'


def _name(axis: pd.Index) -> str:
    return "" if axis.name is None else str(axis.name)


def _told(table: pd.DataFrame, unit: str, decimals: int) -> str:
    """Name the best and the worst cell, for who cannot see the shades."""
    cells = [
        (float(value), f"{_name(table.index)}={row}，{_name(table.columns)}={column}")
        for row, values in zip(table.index, table.to_numpy(dtype="float64"), strict=True)
        for column, value in zip(table.columns, values, strict=True)
        if np.isfinite(value)
    ]
    if not cells:
        return "没有数据"
    return "；".join(
        f"{word} {place}：{format_number(value, unit=unit, decimals=decimals)}"
        for word, (value, place) in (("最高", max(cells)), ("最低", min(cells)))
    )
