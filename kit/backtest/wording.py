"""How a backtest's numbers are called and written, in Chinese."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Any

__all__ = ["headline", "metric_rows"]

# metric -> label, unit, decimals, whether a plus sign is shown
_METRICS: dict[str, tuple[str, str, int, bool]] = {
    "total_return": ("总收益", "%", 2, True),
    "annual_return": ("年化收益", "%", 2, True),
    "max_drawdown": ("最大回撤", "%", 2, False),
    "sharpe": ("夏普", "", 2, False),
    "sortino": ("索提诺", "", 2, False),
    "calmar": ("卡玛", "", 2, False),
    "volatility": ("年化波动", "%", 2, False),
    "trades": ("平仓笔数", "", 0, False),
    "win_rate": ("胜率（扣费后）", "%", 1, False),
    "profit_factor": ("盈利因子（扣费后）", "", 2, False),
    "average_holding_days": ("平均持有（天）", "", 1, False),
    "exposure": ("平均仓位", "%", 1, False),
    "turnover": ("年换手", "倍", 2, False),
    "beta": ("贝塔", "", 2, False),
    "information_ratio": ("信息比率", "", 2, False),
    "tracking_error": ("跟踪误差", "%", 2, False),
}

_HEADLINE = ("total_return", "annual_return", "max_drawdown", "sharpe")


def headline(metrics: Mapping[str, Any], start: date, end: date, trades: int) -> str:
    """Say the result in one sentence."""
    parts = [f"{_METRICS[name][0]} {_shown(name, metrics.get(name))}" for name in _HEADLINE]
    return f"{start} 至 {end}：{'，'.join(parts)}，成交 {trades} 笔"


def metric_rows(metrics: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return label and text of every defined metric, in report order."""
    return [
        (label, _shown(name, metrics[name]))
        for name, (label, *_) in _METRICS.items()
        if metrics.get(name) is not None
    ]


def _shown(name: str, value: float | None) -> str:
    from kit.render import format_number

    _, unit, decimals, sign = _METRICS[name]
    return format_number(value, unit=unit, decimals=decimals, sign=sign)
