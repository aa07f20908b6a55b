"""The Chinese of a slot card that is not a table, a signal or a change line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from zoneinfo import ZoneInfo

from kit.intraday.book import Row
from kit.intraday.signals import Signal, unchecked_lines

__all__ = [
    "CAUSES",
    "DEGRADED",
    "DELIVERED_UNREADABLE",
    "FOLD_HEAD",
    "MODES",
    "SIGNAL_HEAD",
    "UNCHECKED",
    "aged",
    "clock_text",
    "dated",
    "fold_line",
    "health_lines",
    "mark_line",
    "stopped_at",
    "title",
]

_HEALTH = "⛔ 数据降级："
_WEEK = 7

DEGRADED = {
    "quotes_missing": "{count} 只持仓没有行情，未计入市值（{symbols}）",
    "quotes_stale": "持仓行情停在 {stopped_at}",
    "failed": "判断步骤失败（{kind}），卡片只有数据块",
    "offline": "判断步骤未调用模型（{cause}），改为离线整理事实",
}
"""Reason texts of a slot's degradation report."""
CAUSES = {"forced": "环境强制离线", "requested": "按要求离线", "no_key": "未配置密钥"}
"""Why a judgement was made offline."""
DELIVERED_UNREADABLE = "上次送达记录读不到，变化按首个时点列出"
UNCHECKED = "行情未证实，价位线未核对："
"""Head of the price lines that could not be held against a verified quote."""
SIGNAL_HEAD = "⚠️ 信号"
FOLD_HEAD = "今日已报、仍在："
MODES = {"live": "实时模型", "offline": "离线", "replay": "回放"}
"""How a judgement was made, in the words of a card."""


def title(market_name: str, at: datetime, *, synthetic: bool) -> str:
    """Write the first line: which market, which moment, in the owner's zone."""
    mark = "（合成数据）" if synthetic else ""
    return f"{market_name}盘中 {clock_text(at)}{mark}"


def clock_text(at: datetime) -> str:
    """Write a time of day with the name of its zone."""
    return f"{at:%H:%M} {at.tzname()}"


def dated(at: datetime, now: datetime) -> str:
    """Write a moment with its date, and with the year when it is not the slot's.

    Args:
        at: The moment, in the zone to write it in.
        now: The slot's instant.
    """
    year = "" if at.year == now.astimezone(at.tzinfo).year else f"{at:%Y}-"
    return f"{year}{at:%m-%d %H:%M}"


def aged(at: datetime, now: datetime) -> str:
    """Write how many days old a moment is; empty up to a week."""
    days = (now.astimezone(at.tzinfo).date() - at.date()).days
    return f"{days} 天" if days > _WEEK else ""


def stopped_at(at: datetime, now: datetime, *, zone: ZoneInfo, close: bool) -> str:
    """Write where the quotes stopped: `09-18 收盘（15:00）`, or the time when it is no close.

    Args:
        at: Time of the quote, in the exchange's zone.
        now: The slot's instant.
        zone: The owner's zone.
        close: Whether that is the close of its session, whose date is the exchange's.
    """
    local = at.astimezone(zone)
    text = dated(local, now)
    if close:
        clock = f"{local:%H:%M}" if local.date() == at.date() else text
        text = f"{dated(at, now)[:-6]} 收盘（{clock}）"
    age = aged(local, now)
    return f"{text}，已 {age}" if age else text


def health_lines(
    rows: Sequence[Row],
    *,
    now: datetime,
    zone: ZoneInfo,
    errors: Sequence[str],
    calendar_known: bool,
    synthetic: bool,
    indices_missing: Mapping[str, str],
) -> tuple[str, ...]:
    """Write what is wrong with this card's data, one line a fault; empty when nothing is.

    Args:
        rows: The holdings.
        now: The slot's instant.
        zone: The owner's zone.
        errors: Sources other than the quotes that failed, already in words.
        calendar_known: Whether the calendar reaches this day.
        synthetic: Whether the quotes are generated.
        indices_missing: Indexes without a quote, and why.
    """
    lines = [f"{_HEALTH}{error}" for error in errors]
    stale = [row for row in rows if row.price is not None and not row.fresh]
    if stale:
        since = min(row.time for row in stale if row.time is not None).astimezone(zone)
        names = "、".join(row.label for row in stale)
        age = f"，已 {aged(since, now)}" if aged(since, now) else ""
        lines.append(f"{_HEALTH}{names} 行情未证实（沿用上一笔，自 {dated(since, now)} 起{age}）")
    unpriced: dict[str, list[str]] = {}
    for row in rows:
        if row.price is None:
            unpriced.setdefault(row.problem, []).append(row.label)
    lines += [
        f"{_HEALTH}{'、'.join(names)} 没有行情（{problem}），未计入市值"
        for problem, names in unpriced.items()
    ]
    waiting = unchecked_lines(rows)
    if waiting:
        lines.append(f"{_HEALTH}{UNCHECKED}{'；'.join(waiting)}")
    lines += [
        f"{_HEALTH}指数 {symbol} 没有行情（{reason}）" for symbol, reason in indices_missing.items()
    ]
    if not calendar_known:
        lines.append(f"{_HEALTH}日历未知，不能确认今天是否开市")
    if synthetic:
        lines.append(f"{_HEALTH}合成数据，不是真实行情")
    return tuple(lines)


def mark_line(labels: Sequence[str]) -> str:
    """Write which rows to look at; empty when there is none."""
    return f"↑ 新异动/触发 {'、'.join(labels)}" if labels else ""


def fold_line(told: Sequence[Signal]) -> str:
    """Write the signals told earlier today that still stand, by level; empty when none."""
    by_level: dict[str, list[str]] = {}
    for signal in told:
        by_level.setdefault(signal.level, []).append(signal.label)
    parts = [f"{level} {'、'.join(names)}" for level, names in by_level.items()]
    return f"{FOLD_HEAD}{'；'.join(parts)}" if parts else ""
