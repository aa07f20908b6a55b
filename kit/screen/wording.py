"""The Chinese words of the screen card, gathered so that they can be read as a whole."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date, datetime
from types import MappingProxyType

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
    "time_text",
]

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
        "close": "收盘",
        "closes_above": "线上收盘日数",
        "distance_pct": "距年线%",
        "industry": "行业",
        "low": "最低",
        "low_distance_pct": "最低距年线%",
        "ma250": "年线",
        "ma250_trend_pct": "年线升幅%",
        "sector_note": "板块",
        "trend_bars": "趋势窗口",
        "volume_ratio": "量比",
        "volume_window": "均量窗口",
    }
)

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
