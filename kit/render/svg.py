"""Charts as inline SVG: no script, readable in light and dark, by eye and by screen reader.

Colours are CSS variables of the drawing itself, so that a chart follows the page it stands in
(and JupyterLab's theme). Colour never stands alone: gains carry a plus sign and an arrow, a second
line is dashed, buys point up and sells down. Red is up, as in Chinese markets, unless told.

`unit="%"` means that values are fractions: 0.25 is drawn as `25.0%`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Final

import numpy as np
import pandas as pd

from kit.render.axes import (
    Floats,
    Scale,
    clean,
    date_ticks,
    drawable,
    log_ticks,
    named,
    runs,
    thin,
    ticks,
    value_scale,
)
from kit.render.numbers import format_number

__all__ = ["area_chart", "bar_chart", "line_chart", "price_chart"]

_WIDTH: Final = 720
_LEFT, _RIGHT, _TOP, _BOTTOM = 66, 18, 48, 28
_DASHES: Final = ("", "6 3", "2 3", "9 3 2 3", "1 4")
_LIGHT: Final = (
    "--k-ink:#1d2433;--k-soft:#5b6472;--k-grid:#e3e6ea;--k-0:#1f5fa8;--k-1:#8a5a00;--k-2:#7b3fa0;"
    "--k-3:#4a5568;--k-4:#00695c;--k-red:#c0261f;--k-green:#00786a"
)
_DARK: Final = (
    "--k-ink:#e4e7ec;--k-soft:#a0a8b4;--k-grid:#343a44;--k-0:#74aef2;--k-1:#e0a94a;--k-2:#c79be6;"
    "--k-3:#aab4c3;--k-4:#5ec4b4;--k-red:#ff7b72;--k-green:#45c4b0"
)
STYLE: Final = (
    f"<style>svg.kit-chart{{{_LIGHT}}}"
    f"@media (prefers-color-scheme:dark){{svg.kit-chart{{{_DARK}}}}}"
    f'body[data-jp-theme-light="true"] svg.kit-chart{{{_LIGHT}}}'
    f'body[data-jp-theme-light="false"] svg.kit-chart{{{_DARK}}}'
    f"@media print{{svg.kit-chart{{{_LIGHT}}}}}"
    "svg.kit-chart text{fill:var(--k-soft);font:12px system-ui,'PingFang SC','Microsoft YaHei',"
    "'Noto Sans CJK SC',sans-serif;font-variant-numeric:tabular-nums}"
    "svg.kit-chart text.head{fill:var(--k-ink);font-weight:600;font-size:14px}"
    "svg.kit-chart .grid{stroke:var(--k-grid)}svg.kit-chart .axis{stroke:var(--k-soft)}"
    "svg.kit-chart .line{fill:none;stroke-width:1.6;stroke-linejoin:round;stroke-linecap:round}"
    "</style>"
)


def line_chart(
    series: Mapping[str, pd.Series] | pd.Series,
    *,
    title: str,
    desc: str = "",
    unit: str = "",
    log: bool = False,
    height: int = 300,
) -> str:
    """Draw lines over one time axis.

    Args:
        series: Values by name, or one series under its own name. NaN leaves a gap.
        title: Shown above, and the name a screen reader speaks.
        desc: What is to be seen, for who cannot see it; by default first, last, low and high.
        unit: Unit of the values; `%` for fractions.
        log: Logarithmic values; those at or below zero are left out.
        height: Pixels of the drawing, which is 720 wide and scales with its page.
    """
    drawn = {name: clean(values, log=log) for name, values in _by_name(series).items()}
    board = _Board(title, desc or _described(drawn, unit), height, drawn.values())
    scale = board.value_axis(drawn.values(), unit, log=log)
    for place, (name, values) in enumerate(drawn.items()):
        colour, dash = f"--k-{place % 5}", _DASHES[place % 5]
        board.line(values, scale, colour, dash)
        if len(drawn) > 1:
            board.legend(name, colour, dash)
    return board.done()


def area_chart(
    series: pd.Series, *, title: str, desc: str = "", unit: str = "%", height: int = 200
) -> str:
    """Draw one series as an area that hangs from zero or stands on it: a drawdown.

    Arguments are those of `line_chart`; values are fractions unless `unit` says otherwise.
    """
    values = clean(series)
    board = _Board(title, desc or _described({"": values}, unit), height, [values])
    scale = board.value_axis([values], unit, zero=True)
    board.line(values, scale, "--k-red", area=True)
    return board.done()


def bar_chart(
    series: pd.Series,
    *,
    title: str,
    desc: str = "",
    unit: str = "%",
    height: int = 260,
    red_up: bool = True,
) -> str:
    """Draw one bar per label of the index, gains up and losses down: returns by year.

    Arguments are those of `line_chart`; values are fractions unless `unit` says otherwise.
    `red_up` makes gains red and losses green, or the other way round.
    """
    values: Floats = pd.to_numeric(series, errors="coerce").to_numpy(dtype="float64")
    heights: Floats = np.where(drawable(values), values, np.nan)
    pairs = list(zip(map(_label, series.index), heights, strict=True))
    told = "；".join(f"{name} {format_number(v, unit=unit, sign=True)}" for name, v in pairs)
    board = _Board(title, desc or told or "没有数据", height, [])
    # Room for the figures above and below the bars.
    scale = board.value_axis([pd.Series(heights * 1.12)], unit, zero=True)
    zero, step = scale.at(0.0), board.room / max(len(pairs), 1)
    every = max(1, int(np.ceil(44 / step)))
    for place, (name, value) in enumerate(pairs):
        middle = _LEFT + step * (place + 0.5)
        if place % every == 0:
            board.text(middle, board.base + 18, name, "middle")
        if not np.isfinite(value):
            continue
        colour, arrow = _direction(float(value), red_up=red_up)
        tip, width = scale.at(float(value)), min(step * 0.7, 60.0)
        said = f"{arrow} {format_number(float(value), unit=unit, sign=True)}"
        board.add(
            f'<rect x="{middle - width / 2:.1f}" y="{min(tip, zero):.1f}" width="{width:.1f}" '
            f'height="{max(abs(tip - zero), 0.5):.1f}" fill="var({colour})">'
            f"<title>{escape(f'{name} {said}')}</title></rect>"
        )
        if step >= 44:
            board.text(middle, tip - 5 if value >= 0 else tip + 14, said, "middle")
    board.add(
        f'<path class="axis" d="M{_LEFT} {zero:.1f}H{_WIDTH - _RIGHT}" aria-hidden="true"/>'
        if pairs
        else ""
    )
    return board.done()


def price_chart(
    close: pd.Series,
    *,
    title: str,
    desc: str = "",
    buys: pd.Series | Iterable[object] = (),
    sells: pd.Series | Iterable[object] = (),
    average: pd.Series | None = None,
    unit: str = "",
    height: int = 320,
    red_up: bool = True,
) -> str:
    """Draw a price with the places where it was bought and sold.

    Args:
        close: Price per bar.
        title: As in `line_chart`.
        desc: As in `line_chart`.
        buys: Prices by time, or times alone (the mark then stands on the line).
        sells: The same for sales.
        average: A moving average, dashed.
        unit: Unit of the price, such as `元`.
        height: Pixels.
        red_up: Buys are red and sells green, or the other way round.
    """
    line = clean(close)
    marks = {"买入": _marks(line, buys), "卖出": _marks(line, sells)}
    told = "，".join(f"{name} {len(points)} 次" for name, points in marks.items())
    board = _Board(title, desc or f"{_described({'': line}, unit)}；{told}", height, [line])
    extra = [] if average is None else [clean(average)]
    scale = board.value_axis([line, *extra, *marks.values()], unit)
    board.line(line, scale, "--k-0")
    board.legend("收盘价", "--k-0")
    for values in extra:
        board.line(values, scale, "--k-1", _DASHES[1])
        board.legend(named(values, "均线"), "--k-1", _DASHES[1])
    for (name, points), rises in zip(marks.items(), (True, False), strict=True):
        colour = "--k-red" if rises == red_up else "--k-green"
        board.arrows(name, points, scale, colour, rises=rises, unit=unit)
    return board.done()


class _Board:
    """A drawing in the making: margins, the time axis, the axis of values, and what is on it."""

    def __init__(self, title: str, desc: str, height: int, series: Iterable[pd.Series]) -> None:
        self.base = height - _BOTTOM
        self.room = float(_WIDTH - _LEFT - _RIGHT)
        self._height = height
        self._legend_at = float(_LEFT)
        self._series = [values for values in series if len(values)]
        self._x = self._time_scale()
        box = f'viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}"'
        self._parts = [
            f'<svg class="kit-chart" role="img" xmlns="http://www.w3.org/2000/svg" {box}>',
            f"<title>{escape(title)}</title><desc>{escape(desc)}</desc>{STYLE}",
            f'<text class="head" x="{_LEFT}" y="18">{escape(title)}</text>',
        ]

    def add(self, markup: str) -> None:
        self._parts.append(markup)

    def text(self, x: float, y: float, words: str, anchor: str) -> None:
        self.add(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>')

    def done(self) -> str:
        return "".join([*self._parts, "</svg>"])

    def _time_scale(self) -> Scale:
        spots = [_positions(values.index) for values in self._series]
        low = min((float(x[0]) for x in spots), default=0.0)
        high = max((float(x[-1]) for x in spots), default=1.0)
        if high <= low:  # a single moment stands in the middle
            low, high = low - 0.5, low + 0.5
        return Scale(low=low, high=high, start=_LEFT, end=_WIDTH - _RIGHT)

    def value_axis(
        self, drawn: Iterable[pd.Series], unit: str, *, log: bool = False, zero: bool = False
    ) -> Scale:
        """Draw grid, labels and the time axis; say so when there is nothing to draw."""
        parts = [values.to_numpy(dtype="float64") for values in drawn]
        values: Floats = np.concatenate(parts) if parts else np.empty(0)
        scale = value_scale(values, start=self.base, end=_TOP, log=log, zero=zero)
        if not np.isfinite(values).any():
            self.text(_WIDTH / 2, (self.base + _TOP) / 2, "没有数据", "middle")
            return scale
        shown = log_ticks(scale.low, scale.high) if scale.log else ticks(scale.low, scale.high)
        decimals = _tick_decimals(shown, unit)
        for value in shown:
            y = scale.at(value)
            self.add(f'<path class="grid" d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}"/>')
            said = format_number(value, unit=unit, decimals=decimals)
            self.text(_LEFT - 8, y + 4, said, "end")
        if self._series:
            self._time_axis()
        return scale

    def _time_axis(self) -> None:
        first, last = self._x.low, self._x.high
        self.add(f'<path class="axis" d="M{_LEFT} {self.base}H{_WIDTH - _RIGHT}"/>')
        if not isinstance(self._series[0].index, pd.DatetimeIndex):
            for value in ticks(first, last, 6):
                self.text(self._x.at(value), self.base + 18, format_number(value), "middle")
            return
        moments = date_ticks(_moment(first), _moment(last))
        for moment, label in zip(moments, _moment_labels(moments), strict=True):
            x = self._x.at(float(_positions(pd.DatetimeIndex([moment]))[0]))
            self.add(f'<path class="axis" d="M{x:.1f} {self.base}v4"/>')
            # The last label may not run over the edge.
            self.text(min(x, _WIDTH - 4 - 3.5 * len(label)), self.base + 18, label, "middle")

    def line(
        self, values: pd.Series, scale: Scale, colour: str, dash: str = "", *, area: bool = False
    ) -> None:
        x, y = self._x(_positions(values.index)), scale(values.to_numpy(dtype="float64"))
        path, filled = [], []
        for start, stop in runs(y):
            xs, ys = thin(x[start:stop], y[start:stop], int(self.room))
            if len(xs) == 1:
                dot = f'cx="{xs[0]:.1f}" cy="{ys[0]:.1f}" r="2.5"'
                self.add(f'<circle {dot} fill="var({colour})"/>')
                continue
            points = "L".join(f"{a:.1f} {b:.1f}" for a, b in zip(xs, ys, strict=True))
            path.append(f"M{points}")
            if area:
                zero = scale.at(0.0)
                filled.append(f"M{xs[0]:.1f} {zero:.1f}L{points}L{xs[-1]:.1f} {zero:.1f}Z")
        if filled:
            self.add(f'<path d="{"".join(filled)}" fill="var({colour})" fill-opacity=".22"/>')
        if path:
            self.add(
                f'<path class="line" d="{"".join(path)}" stroke="var({colour})"'
                + (f' stroke-dasharray="{dash}"' if dash else "")
                + "/>"
            )

    def arrows(
        self, name: str, points: pd.Series, scale: Scale, colour: str, *, rises: bool, unit: str
    ) -> None:
        """Draw triangles: under the price and pointing up, or above it and pointing down."""
        if points.empty:
            return
        way = 1 if rises else -1
        x, y = self._x(_positions(points.index)), scale(points.to_numpy(dtype="float64"))
        rows = zip(x, y, points.index, points, strict=True)
        for a, b, moment, price in rows:
            said = f"{name} {_label(moment)} {format_number(float(price), unit=unit)}"
            self.add(
                f'<path d="M{a:.1f} {b + 4 * way:.1f}l5 {9 * way}h-10z" fill="var({colour})">'
                f"<title>{escape(said)}</title></path>"
            )
        self.legend(f"{'▲' if rises else '▼'} {name}", colour, line=False)

    def legend(self, name: str, colour: str, dash: str = "", *, line: bool = True) -> None:
        x = self._legend_at
        if line:
            self.add(
                f'<path class="line" d="M{x:.0f} 34h22" stroke="var({colour})"'
                + (f' stroke-dasharray="{dash}"' if dash else "")
                + "/>"
            )
            x += 28
        style = "" if line else f' style="fill:var({colour})"'
        self.add(f'<text x="{x:.0f}" y="38"{style}>{escape(name)}</text>')
        wide = sum(12 if ord(letter) > 0x2E80 else 7 for letter in name)
        self._legend_at = x + wide + 18


def _by_name(series: Mapping[str, pd.Series] | pd.Series) -> dict[str, pd.Series]:
    if isinstance(series, pd.Series):
        return {named(series): series}
    return dict(series)


def _positions(index: pd.Index) -> Floats:
    """Return where labels stand: seconds, the numbers themselves, or their order."""
    if isinstance(index, pd.DatetimeIndex):
        seconds: Floats = index.tz_localize(None).as_unit("us").asi8 / 1e6
        return seconds
    if pd.api.types.is_numeric_dtype(index):
        return index.to_numpy(dtype="float64")
    return np.arange(len(index), dtype="float64")


def _moment(seconds: float) -> pd.Timestamp:
    return pd.Timestamp(round(seconds), unit="s")


def _moment_labels(moments: Sequence[pd.Timestamp]) -> list[str]:
    """Write each tick as shortly as tells it from the others."""
    if all(
        (moment.month, moment.day) == (1, 1) and moment == moment.normalize() for moment in moments
    ):
        return [f"{moment:%Y}" for moment in moments]
    if all(moment.day == 1 and moment == moment.normalize() for moment in moments):
        return [f"{moment:%Y-%m}" for moment in moments]
    if all(moment == moment.normalize() for moment in moments):
        return [f"{moment:%Y-%m-%d}" for moment in moments]
    return [f"{moment:%m-%d %H:%M}" for moment in moments]


def _label(value: object) -> str:
    if isinstance(value, pd.Timestamp):
        return f"{value:%Y-%m-%d}" if value == value.normalize() else f"{value:%Y-%m-%d %H:%M}"
    return str(value)


def _tick_decimals(shown: Sequence[float], unit: str) -> int:
    """Return the fewest decimals that tell the ticks apart."""
    scaled = [value * 100 for value in shown] if unit == "%" else list(shown)
    for decimals in range(8):
        if all(abs(round(value, decimals) - value) <= 1e-9 * abs(value) for value in scaled):
            return decimals
    return 8


def _direction(value: float, *, red_up: bool) -> tuple[str, str]:
    if value == 0:
        return "--k-3", "–"
    colour = "--k-red" if (value > 0) == red_up else "--k-green"
    return colour, "▲" if value > 0 else "▼"


def _marks(line: pd.Series, given: pd.Series | Iterable[object]) -> pd.Series:
    """Return prices by time; times alone get the last price known then."""
    if isinstance(given, pd.Series):
        return clean(given).dropna()
    times = pd.DatetimeIndex(list(given)).dropna().sort_values()
    known = line.dropna()
    if known.empty or times.empty or not isinstance(known.index, pd.DatetimeIndex):
        return pd.Series(dtype="float64")
    spots = known.index.searchsorted(times, side="right") - 1
    return pd.Series(known.to_numpy()[spots[spots >= 0]], times[spots >= 0])


def _described(drawn: Mapping[str, pd.Series], unit: str) -> str:
    said = []
    for name, values in drawn.items():
        known = values.dropna()
        head = f"{name}：" if name else ""
        if known.empty:
            said.append(f"{head}没有数据")
            continue
        facts = {
            "首": known.iloc[0],
            "末": known.iloc[-1],
            "最低": known.min(),
            "最高": known.max(),
        }
        numbers = "，".join(f"{k} {format_number(float(v), unit=unit)}" for k, v in facts.items())
        span = f"{_label(known.index[0])} 至 {_label(known.index[-1])}"
        said.append(f"{head}{span}，{numbers}")
    return "；".join(said) or "没有数据"
