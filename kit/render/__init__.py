"""Charts as inline SVG, tables and self-contained pages, and plotly figures for the lab.

Names are imported when first used: a table in a notebook does not load a templating engine.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kit.render.figures import bars_figure, drawdown_figure, equity_figure, trades_figure
    from kit.render.heat import heat_chart
    from kit.render.html import Section, page
    from kit.render.numbers import format_number
    from kit.render.svg import area_chart, bar_chart, line_chart, price_chart
    from kit.render.tables import html_table

__all__ = [
    "Section",
    "area_chart",
    "bar_chart",
    "bars_figure",
    "drawdown_figure",
    "equity_figure",
    "format_number",
    "heat_chart",
    "html_table",
    "line_chart",
    "page",
    "price_chart",
    "trades_figure",
]

_HOMES = {
    "figures": ("bars_figure", "drawdown_figure", "equity_figure", "trades_figure"),
    "heat": ("heat_chart",),
    "html": ("Section", "page"),
    "numbers": ("format_number",),
    "svg": ("area_chart", "bar_chart", "line_chart", "price_chart"),
    "tables": ("html_table",),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
