"""Interactive figures for the lab, on plotly; transparent, so that both Jupyter themes show them.

Plotly is an extra: importing this module does not need it, drawing does.
"""

from __future__ import annotations

from typing import Any, Final

import pandas as pd

from kit.errors import ConfigError
from kit.render.axes import clean, named

__all__ = ["bars_figure", "drawdown_figure", "equity_figure", "trades_figure"]

# Greys and hues of middle lightness keep their contrast on white as well as on black.
_INK: Final = "#7c7c7c"
_GRID: Final = "rgba(128,128,128,0.25)"
_BLUE, _AMBER, _RED, _GREEN = "#3d84d6", "#b5791a", "#d9483b", "#16917f"


def equity_figure(equity: pd.Series, benchmark: pd.Series | None = None) -> Any:
    """Return the growth of one unit of money, beside a named benchmark.

    Args:
        equity: Worth of the account per bar; the first value is the initial cash.
        benchmark: Levels of an index, shown from the first bar that both have.

    Returns:
        A `plotly.graph_objects.Figure`.

    Raises:
        ConfigError: `render.needs_lab` when plotly is not installed.
    """
    go = _plotly()
    figure = go.Figure()
    _draw(figure, go, _grown(equity), name=named(equity, "策略"), color=_BLUE)
    if benchmark is not None:
        begin = equity.index[0] if len(equity) else None
        levels = _grown(benchmark.loc[begin:])
        _draw(figure, go, levels, name=named(benchmark, "基准"), color=_AMBER, dash="dash")
    return _finish(figure, title="净值", y_format=".2f")


def drawdown_figure(equity: pd.Series) -> Any:
    """Return how far the account stands below its last peak, per bar.

    Args:
        equity: Worth of the account per bar; the first value is the first peak.

    Raises:
        ConfigError: `render.needs_lab` when plotly is not installed.
    """
    go = _plotly()
    worth = clean(equity)
    figure = go.Figure()
    _draw(figure, go, worth / worth.cummax() - 1, name="回撤", color=_RED, fill="tozeroy")
    return _finish(figure, title="回撤", y_format=".1%")


def trades_figure(price: pd.Series, trades: pd.DataFrame) -> Any:
    """Return a price with the entries and exits of one symbol's trades.

    Args:
        price: Close per bar.
        trades: `entry_time` and `exit_time` (NaT while open), and, when known, `entry_price` and
            `exit_price`; marks stand on the line otherwise.

    Raises:
        ConfigError: `render.needs_lab` when plotly is not installed.
    """
    go = _plotly()
    line = clean(price)
    figure = go.Figure()
    _draw(figure, go, line, name="收盘价", color=_BLUE)
    for side, name, symbol, color in (
        ("entry", "买入", "triangle-up", _RED),
        ("exit", "卖出", "triangle-down", _GREEN),
    ):
        done = trades[trades[f"{side}_time"].notna()] if len(trades) else trades.iloc[:0]
        times = pd.DatetimeIndex(done[f"{side}_time"]) if len(done) else pd.DatetimeIndex([])
        if f"{side}_price" in done:
            level = done[f"{side}_price"].to_numpy()
        else:
            known = line.dropna()
            level = known.to_numpy()[known.index.searchsorted(times, side="right") - 1]
        marker = {"symbol": symbol, "color": color, "size": 11}
        figure.add_trace(go.Scatter(x=times, y=level, mode="markers", name=name, marker=marker))
    return _finish(figure, title=named(price, "交易"), y_format=".2f")


def bars_figure(series: pd.Series) -> Any:
    """Return one bar per label, gains red and losses green, each with its signed figure.

    Args:
        series: Fractions by label, such as returns by year.

    Raises:
        ConfigError: `render.needs_lab` when plotly is not installed.
    """
    go = _plotly()
    values = pd.to_numeric(series, errors="coerce").astype("float64")
    colors = [_RED if value >= 0 else _GREEN for value in values]
    labels = [str(label) for label in series.index]
    words = ["" if value != value else f"{value:+.1%}" for value in values]
    figure = go.Figure(
        go.Bar(x=labels, y=values.to_numpy(), marker_color=colors, text=words, name="")
    )
    figure.update_xaxes(type="category")
    return _finish(figure, title=named(series), y_format=".0%")


def _plotly() -> Any:
    try:
        import plotly.graph_objects as go
    except ImportError as error:
        raise ConfigError(
            "render.needs_lab",
            "interactive figures need plotly, which is not installed",
            remedy="pip install 'kit[lab]'",
        ) from error
    return go


def _grown(levels: pd.Series) -> pd.Series:
    known = clean(levels)
    first = known.dropna()
    return known / first.iloc[0] if len(first) and first.iloc[0] else known


def _draw(
    figure: Any,
    go: Any,
    values: pd.Series,
    *,
    name: str,
    color: str,
    dash: str = "solid",
    **more: Any,
) -> None:
    line = {"color": color, "width": 1.6, "dash": dash}
    figure.add_trace(
        go.Scatter(x=values.index, y=values.to_numpy(), mode="lines", name=name, line=line, **more)
    )


def _finish(figure: Any, *, title: str, y_format: str) -> Any:
    figure.update_layout(
        title=title,
        template="none",
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"color": _INK},
        hovermode="x unified",
        margin={"l": 60, "r": 20, "t": 50, "b": 40},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 1, "xanchor": "right"},
    )
    # Hover boxes stay opaque, or the lines under them show through.
    figure.update_layout(hoverlabel={"bgcolor": "#f4f4f4", "font": {"color": "#222222"}})
    figure.update_xaxes(gridcolor=_GRID, zeroline=False, linecolor=_INK)
    figure.update_yaxes(gridcolor=_GRID, zerolinecolor=_INK, tickformat=y_format)
    return figure
