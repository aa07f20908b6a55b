"""What stands out this slot: moves of a size, and price lines that were crossed.

Only a verified quote can make a signal; a stale price says nothing about now.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from kit.intraday import figures
from kit.intraday.book import Row
from kit.intraday.figures import change_pct, exact

__all__ = [
    "LEVELS",
    "LINE_NAMES",
    "Anomaly",
    "Line",
    "Signal",
    "find_anomalies",
    "find_signals",
    "price_lines",
    "unchecked_lines",
]

LEVELS = ("STOP", "ALERT", "TRIM", "WATCH")
"""Levels of a signal, most urgent first."""
LINE_NAMES: Mapping[str, str] = {"stop": "止损线", "trim": "减仓线"}
"""What a card calls each kind of price line."""


@dataclass(frozen=True, kw_only=True)
class Anomaly:
    """A move of the day that is large.

    Attributes:
        label: The holding.
        move_pct: Its move since the previous close, percent.
        severity: `medium`, or `high` from the severe threshold on.
        bucket: Size class of the move, from `config/intraday.json`.
    """

    label: str
    move_pct: Decimal
    severity: Literal["medium", "high"]
    bucket: str

    @property
    def direction(self) -> str:
        """`up` or `down`."""
        return "up" if self.move_pct > 0 else "down"


@dataclass(frozen=True, kw_only=True)
class Line:
    """A price line somebody set for a holding.

    Attributes:
        label: The holding.
        kind: `stop` (met at or below) or `trim` (met at or above).
        price: The line.
        last: Last price.
        pct_to_trigger: From the last price to the line, percent.
        met: Whether the last price has reached it.
    """

    label: str
    kind: Literal["stop", "trim"]
    price: Decimal
    last: Decimal
    pct_to_trigger: Decimal
    met: bool


@dataclass(frozen=True, kw_only=True)
class Signal:
    """One line under the signal header, with its reasons.

    Attributes:
        level: One of `LEVELS`.
        label: The holding.
        line: The line itself.
        reasons: Lines that start with `·`.
        breach: What was crossed, without any price: {ticker, kind, level} and, for a move, its
            direction. Two slots with equal breaches say the same thing.
    """

    level: str
    label: str
    line: str
    reasons: tuple[str, ...]
    breach: Mapping[str, str]


def find_anomalies(rows: Sequence[Row], config: Mapping[str, Any]) -> tuple[Anomaly, ...]:
    """Return the moves at or above the threshold, largest first.

    Args:
        rows: The holdings.
        config: `config/intraday.json`.
    """
    floor, severe = exact(config["anomaly"]["move_pct"]), exact(config["anomaly"]["severe_pct"])
    found = [
        Anomaly(
            label=row.label,
            move_pct=move,
            severity="high" if abs(move) >= severe else "medium",
            bucket=_bucket(move, config["move_buckets"]),
        )
        for row in rows
        if row.fresh and (move := row.day_pct) is not None and abs(move) >= floor
    ]
    return tuple(sorted(found, key=lambda a: (-abs(a.move_pct), a.label)))


def price_lines(rows: Sequence[Row]) -> tuple[Line, ...]:
    """Return every line of the holdings that have a verified quote, nearest first."""
    return _lines([row for row in rows if row.fresh])


def unchecked_lines(rows: Sequence[Row]) -> tuple[str, ...]:
    """Write every line that no verified quote could be held against, as `holding line price`.

    Those that the last price had reached come first and say that no signal was made of them; then
    the nearest to their last price, then those without any price, in the order of the table.
    """
    waiting = [row for row in rows if not row.fresh]
    known = sorted(_lines(waiting), key=lambda line: not line.met)
    told = []
    for line in known:
        name = f"{line.label} {LINE_NAMES[line.kind]} {figures.price(line.price)}"
        last = figures.price(line.last)
        told.append(f"{name}（上一笔 {last} 已到价，未发信号）" if line.met else name)
    for row in waiting:
        if row.price:
            continue
        told += [
            f"{row.label} {LINE_NAMES[kind]} {figures.price(price)}"
            for kind, price in (("stop", row.holding.stop_price), ("trim", row.holding.trim_price))
            if price is not None
        ]
    return tuple(told)


def _lines(rows: Sequence[Row]) -> tuple[Line, ...]:
    found = []
    for row in rows:
        last = row.price
        if not last:
            continue
        for kind, line in (("stop", row.holding.stop_price), ("trim", row.holding.trim_price)):
            distance = change_pct(line, last)
            if line is None or distance is None:
                continue
            met = last <= line if kind == "stop" else last >= line
            found.append(
                Line(
                    label=row.label,
                    kind="stop" if kind == "stop" else "trim",
                    price=line,
                    last=last,
                    pct_to_trigger=distance,
                    met=met,
                )
            )
    return tuple(sorted(found, key=lambda line: (abs(line.pct_to_trigger), line.label, line.kind)))


def find_signals(rows: Sequence[Row], anomalies: Sequence[Anomaly]) -> tuple[Signal, ...]:
    """Return signals, most urgent level first, then in the order of the table."""
    found: list[Signal] = []
    moves = {anomaly.label: anomaly for anomaly in anomalies}
    met = [line for line in price_lines(rows) if line.met]
    for row in rows:
        reason = (_reason(row),)
        found += [_line_signal(line, reason) for line in met if line.label == row.label]
        anomaly = moves.get(row.label)
        if anomaly is not None:
            level = "ALERT" if anomaly.severity == "high" else "WATCH"
            found.append(
                Signal(
                    level=level,
                    label=row.label,
                    line=f"{level} {row.label} 今日 {figures.percent(anomaly.move_pct)}",
                    reasons=reason,
                    breach={
                        "ticker": row.label,
                        "kind": "move",
                        "level": anomaly.bucket,
                        "direction": anomaly.direction,
                    },
                )
            )
    return tuple(sorted(found, key=lambda signal: LEVELS.index(signal.level)))


def _reason(row: Row) -> str:
    return (
        f"· 成本 {figures.price(row.holding.cost)}，现价 {figures.price(row.price)}，"
        f"浮动 {figures.percent(row.gain_pct)}"
    )


def _line_signal(line: Line, reasons: tuple[str, ...]) -> Signal:
    level, sign = ("STOP", "≤") if line.kind == "stop" else ("TRIM", "≥")
    text = (
        f"{level} {line.label} 现价 {figures.price(line.last)} {sign} "
        f"{LINE_NAMES[line.kind]} {figures.price(line.price)}"
    )
    breach = {"ticker": line.label, "kind": "price_line", "level": level}
    return Signal(level=level, label=line.label, line=text, reasons=reasons, breach=breach)


def _bucket(move: Decimal, buckets: Sequence[Mapping[str, Any]]) -> str:
    reached = [b["level"] for b in buckets if abs(move) >= exact(b["from_pct"])]
    return str(reached[-1]) if reached else ""
