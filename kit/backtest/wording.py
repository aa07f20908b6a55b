"""How a backtest's numbers are called and written, in Chinese."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date
from typing import TYPE_CHECKING, Any

from kit.llm.agreement import NOT_MEASURED
from kit.llm.agreement import agreement_text as agreement_words

if TYPE_CHECKING:
    from kit.backtest.facts import Facts, StepQuality

__all__ = ["advice", "agreement_text", "fold_rows", "headline", "metric_rows", "metric_text"]

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
    parts = [f"{_METRICS[name][0]} {metric_text(name, metrics.get(name))}" for name in _HEADLINE]
    return f"{start} 至 {end}：{'，'.join(parts)}，成交 {trades} 笔"


def metric_rows(metrics: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return label and text of every defined metric, in report order."""
    return [
        (label, metric_text(name, metrics[name]))
        for name, (label, *_) in _METRICS.items()
        if metrics.get(name) is not None
    ]


def advice(facts: Facts) -> list[tuple[str, str, str]]:
    """Return the guards that inform without refusing: name, figure, what it means."""
    rows = []
    if facts.stress is not None:
        table, share = facts.stress.table, facts.stress.unfilled_share
        changed = "，".join(f"{name} {_number(table.loc[name, 'sharpe'])}" for name in table.index)
        rows.append(("成本与延迟", _percent(share), f"未成交占比；夏普：{changed}"))
    if facts.trials is not None:
        trials = facts.trials
        told = (
            f"1 of {trials.tried} tried；{trials.tried} 次全凭运气时，最好的一次夏普约为 "
            f"{_number(trials.expected_best)}，左为真实夏普高于它的概率"
        )
        rows.append(("试验次数与折减夏普", _percent(trials.deflated_sharpe), told))
    if facts.folds:
        won = sum(fold["total_return"] > 0 for fold in facts.folds)
        told = "按时间均分，逐段收益为正的段数；各段见净值一节"
        rows.append(("分段检验", f"{won} / {len(facts.folds)}", told))
    return rows


def agreement_text(step: StepQuality) -> str:
    """Return how often an offline equivalent agreed with the model; `未测` until measured."""
    if step.agreement is None or step.interval is None:
        return NOT_MEASURED
    return agreement_words(step.agreement, *step.interval, step.answers)


def fold_rows(folds: Iterable[Mapping[str, Any]]) -> list[tuple[str, str, str, str]]:
    """Return dates, return, Sharpe ratio and drawdown of each fold."""
    return [
        (
            f"{fold['start']} 至 {fold['end']}",
            metric_text("total_return", fold["total_return"]),
            metric_text("sharpe", fold["sharpe"]),
            metric_text("max_drawdown", fold["max_drawdown"]),
        )
        for fold in folds
    ]


def _number(value: Any) -> str:
    return metric_text("sharpe", None if value is None else float(value))


def _percent(value: float | None) -> str:
    from kit.render import format_number

    return format_number(value, unit="%", decimals=1)


def metric_text(name: str, value: float | None) -> str:
    """Write one metric with its unit; a dash where there is no value."""
    from kit.render import format_number

    _, unit, decimals, sign = _METRICS[name]
    return format_number(value, unit=unit, decimals=decimals, sign=sign)
