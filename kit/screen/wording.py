"""The Chinese words of the screen card, gathered so that they can be read as a whole."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date, datetime
from types import MappingProxyType

from kit.errors import BundleError, KitError
from kit.text import clip, one_line

__all__ = [
    "CAUSES",
    "CONFIDENCE",
    "CURRENCIES",
    "FIELDS",
    "MODES",
    "NO_PICKS",
    "REASON_MODES",
    "amount",
    "code_of",
    "day_text",
    "figure",
    "numberless",
    "problem_text",
    "time_text",
]

SYNTHETIC = "合成数据"
"""Marks whatever was made from generated bars."""
NO_PICKS = "今日无可推送候选"

MODES: Mapping[str, str] = MappingProxyType(
    {"live": "在线模型", "offline": "离线", "mixed": "部分在线", "none": "未运行到模型步骤"}
)
REASON_MODES: Mapping[str, str] = MappingProxyType(
    {"live": "模型", "offline": "离线规则", "template": "模板"}
)
CONFIDENCE: Mapping[str, str] = MappingProxyType({"high": "高", "medium": "中", "low": "低"})
CAUSES: Mapping[str, str] = MappingProxyType(
    {"forced": "环境强制离线", "requested": "按要求离线", "no_key": "未配置密钥"}
)
CURRENCIES: Mapping[str, str] = MappingProxyType({"CNY": "元", "HKD": "港元", "USD": "美元"})
# Names that bundles commonly give to what they measure; any other name is shown as it is.
FIELDS: Mapping[str, str] = MappingProxyType(
    {
        "basket_move_pct": "美股篮子%",
        "basket_names": "篮子只数",
        "basket_up": "篮子上涨只数",
        "breakout_pct": "突破%",
        "channel_bars": "通道窗口",
        "channel_high": "通道上沿",
        "close": "收盘",
        "closes_above": "收在年线上的天数",
        "distance_pct": "距年线%",
        "industry": "行业",
        "lag_points": "落后篮子（百分点）",
        "low": "最低",
        "low_distance_pct": "最低距年线%",
        "ma250": "年线",
        "ma250_trend_pct": "年线升幅%",
        "move_bars": "涨跌窗口",
        "own_move_pct": "自身涨跌%",
        "sector_note": "板块",
        "trend_bars": "趋势窗口",
        "volume_ratio": "量比",
        "volume_window": "均量窗口",
    }
)
# What an error means to the reader of a card; its English message stays in the result.
_PROBLEMS: Mapping[str, str] = MappingProxyType(
    {
        "bundle.import_failed": "载入失败",
        "bundle.no_callable": "没有步骤所指的函数",
        "bundle.no_engine": "没有可用的策略类",
        "bundle.syntax": "语法有误",
        "bundle.tampered": "与校验和不符",
        "calendar.unknown": "日期超出交易日历",
        "config.invalid": "内容有误",
        "config.missing": "文件缺失",
        "data.bad_bars": "行情数据有误",
        "data.missing_symbols": "部分标的没有行情",
        "data.no_bars": "这段日期没有行情",
        "data.off_session": "休市日出现行情",
        "data.store_missing": "本地行情库没有数据",
        "data.unknown_source": "没有这个行情源",
        "data.unreadable": "本地行情文件无法读取",
        "file.bad_json": "文件不是有效的 JSON",
        "file.missing": "文件缺失",
        "market.bad_selector": "股票池的写法有误",
        "market.unknown": "没有这个市场",
        "registry.bad_index": "策略登记无法读取",
        "registry.unknown_id": "登记中没有这个策略",
        "registry.unknown_version": "登记中没有这个版本",
        "screen.failed": "筛选规则出错",
        "screen.frequency": "策略要的不是日线",
        "screen.no_bars": "这段日期没有行情",
        "screen.no_limit": "没有写明要几只候选",
        "screen.no_session": "近期没有已知的交易日",
    }
)

_MAX_CAUSE = 120
_WEEKDAYS = "一二三四五六日"
_EXCHANGES = re.compile(r"\.(?:SH|SZ|BJ|HK)\Z")
# The words for "no number" that programs write; on a card they would look like a broken figure.
_NO_NUMBER = re.compile(r"(?<![A-Za-z])(?:nan|inf|infinity|nat)(?![A-Za-z])", re.IGNORECASE)


def day_text(day: date, today: date | None = None) -> str:
    """Write a date for a card: `9月19日(周四)`, with its year when that is not this year's."""
    year = f"{day.year}年" if today is not None and today.year != day.year else ""
    return f"{year}{day.month}月{day.day}日(周{_WEEKDAYS[day.weekday()]})"


def time_text(moment: datetime) -> str:
    """Write an instant for a card, in its own zone: `2024-09-19 15:00`."""
    return moment.strftime("%Y-%m-%d %H:%M")


def code_of(symbol: str) -> str:
    """Return the code without its exchange suffix, which chats would take for a web address."""
    return _EXCHANGES.sub("", symbol)


def figure(value: float, digits: int = 4) -> str:
    """Write a number plainly: at most `digits` decimals, never in scientific notation."""
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def amount(value: float, currency: str) -> str:
    """Write a price with its unit: two decimals, three where the price has them."""
    thousandths = round(value * 1000)
    digits = 2 if thousandths % 10 == 0 else 3
    return f"{value:.{digits}f} {CURRENCIES.get(currency, currency)}"


def numberless(text: str) -> str:
    """Replace the words that programs write for "no number" by Chinese."""
    return _NO_NUMBER.sub("非数值", text)


def problem_text(error: KitError) -> str:
    """Write an error for a reader: where, what, and what a bundle's own code raised."""
    what = _PROBLEMS.get(error.code, f"未能完成（{error.code}）")
    cause = error.__cause__
    if isinstance(error, BundleError) and cause is not None and not isinstance(cause, KitError):
        what += f"（{clip(one_line(f'{type(cause).__name__}: {cause}'), _MAX_CAUSE)}）"
    elif "returned" in error.details:
        what += f"（返回 {error.details['returned']}，应为列表）"
    return f"{error.where}：{what}" if error.where else what
