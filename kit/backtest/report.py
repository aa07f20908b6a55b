"""`report.html`: one self-contained page, what could be wrong before what looks good."""

from __future__ import annotations

from html import escape
from typing import Any

import pandas as pd

from kit.backtest.facts import Facts
from kit.backtest.result import BacktestResult
from kit.backtest.wording import advice, agreement_text, fold_rows, metric_rows
from kit.degradation import QUALITIES, step_label
from kit.render import (
    Section,
    area_chart,
    bar_chart,
    format_number,
    html_table,
    line_chart,
    page,
    price_chart,
)

__all__ = ["build_report"]

_TRADES_SHOWN = 200
_CHARTS_SHOWN = 12

_CAUSES = {
    "lot_too_small": "不足一手",
    "no_cash": "资金不足",
    "limit_up": "涨停买不进",
    "limit_down": "跌停卖不出",
    "halt": "停牌或无行情",
    "t_plus_1": "T+1 当日不可卖",
    "short_not_allowed": "不允许做空",
}
_COSTS = {"commission": "佣金", "transfer": "过户费", "stamp": "印花税", "slippage": "滑点"}


def build_report(result: BacktestResult, facts: Facts) -> str:
    """Return the report as one HTML document."""
    sections = [
        _verdict(result, facts),
        _doubts(result, facts),
        _curve(result, facts),
        _years(result),
        _trades(result),
        _costs(result, facts),
        _universe(result, facts),
        _provenance(facts),
    ]
    return page(f"回测 {facts.ref}", sections, result.headline)


def _verdict(result: BacktestResult, facts: Facts) -> Section:
    needed, declared = facts.warmup_needed, facts.warmup_declared
    guards = [
        ("未来函数", "通过" if facts.lookahead.ok else "未通过", _leak_text(facts)),
        (
            "预热长度",
            "通过" if facts.warmup_ok else "未通过",
            f"实测需要 {needed} 根，声明 {'未声明' if declared is None else f'{declared} 根'}",
        ),
        *advice(facts),
    ]
    rows = metric_rows(result.metrics.to_dict())
    believed = facts.lookahead.ok and facts.warmup_ok
    said = "检查通过，数字可以看。" if believed else "⛔ 检查未通过，下面的数字不能相信。"
    colour = "" if believed else ' style="color:#c62828"'
    verdict = f"<p{colour}><strong>{said}</strong></p>"
    for warning in (*_scope(facts), *_stand_ins(facts)):
        verdict += f"<p>⚠ {escape(warning)}</p>"
    for leak in facts.lookahead.findings[:1]:
        verdict += f"<p>复现：</p><pre>{escape(leak.reproduction)}</pre>"
    html = (
        verdict
        + html_table(guards, ("检查", "结果", "说明"), "lll")
        + html_table(rows, ("指标", "数值"), "lr")
    )
    return Section(heading="结论与检查", html=html)


def _scope(facts: Facts) -> list[str]:
    """Say what makes these numbers no evidence for the bundle as it is configured."""
    names = {"symbols": "部分股票", "range": "另一段区间"}
    said = ["合成数据，不能作为证据"] if facts.synthetic else []
    if facts.partial:
        only = "、".join(names[name] for name in facts.partial)
        said.append(f"只用了{only}（与 config.json 不同），不能用于冻结")
    return said


def _stand_ins(facts: Facts) -> list[str]:
    weak = [step for step in facts.steps if step.quality != "exact"]
    if not weak:
        return []
    named = "、".join(
        f"{step_label(step.name)}（{QUALITIES[step.quality]}，一致率 {agreement_text(step)}）"
        for step in weak
    )
    return [f"模型步骤由离线替代完成，并非模型本身：{named}"]


def _leak_text(facts: Facts) -> str:
    verdict = facts.lookahead
    if verdict.findings:
        leak = verdict.findings[0]
        return f"{leak.symbol} 自 {leak.first_bad_date} 起，{leak.output} 随后来的数据改变"
    if not verdict.checked_dates:
        return "没有一个日期能检查：" + (verdict.skipped[0] if verdict.skipped else "区间太短")
    if not verdict.ok:
        return "晚一根成交，优势就消失"
    return f"截断到 {len(verdict.checked_dates)} 个日期，结果都不变"


def _doubts(result: BacktestResult, facts: Facts) -> Section:
    lines = [*_scope(facts), *result.notes]
    if facts.universe_note:
        lines.append(facts.universe_note)
    items = "".join(f"<li>{escape(line)}</li>" for line in dict.fromkeys(lines))
    html = f"<ul>{items}</ul>" if items else "<p>没有要特别说明的。</p>"
    if facts.steps:
        rows = [
            (
                step_label(step.name),
                QUALITIES[step.quality],
                agreement_text(step),
                "；".join(difference.rstrip("。") for difference in step.differences) or "无",
            )
            for step in facts.steps
        ]
        html += html_table(rows, ("模型步骤", "离线替代", "实测一致率", "与模型的差别"), "llll")
    return Section(heading="可能让结果失真的地方", html=html)


def _curve(result: BacktestResult, facts: Facts) -> Section:
    equity = result.equity
    lines = {"策略": equity / result.initial_cash}
    if result.benchmark is not None and result.benchmark_name:
        level = result.benchmark.reindex(equity.index).dropna()
        if len(level):
            lines[result.benchmark_name] = level / level.iloc[0]
    drawdown = equity / equity.cummax().clip(lower=result.initial_cash) - 1
    html = line_chart(lines, title="净值", unit="") + area_chart(drawdown, title="回撤")
    note = "" if len(lines) > 1 else "区间内没有可用的基准指数，不作比较。"
    if facts.folds:
        html += html_table(fold_rows(facts.folds), ("分段", "收益", "夏普", "最大回撤"), "lrrr")
    return Section(heading="净值与回撤", html=html, note=note)


def _years(result: BacktestResult) -> Section:
    graded = result.equity.iloc[1:]  # the first value is only what the curve starts from
    last = graded.groupby(pd.DatetimeIndex(graded.index).year).last()
    base = last.shift(1).fillna(result.initial_cash)
    returns = last / base - 1
    returns.index = returns.index.map(str)
    rows = [
        (year, format_number(value, unit="%", decimals=2, sign=True))
        for year, value in returns.items()
    ]
    html = bar_chart(returns, title="分年收益") + html_table(rows, ("年份", "收益"), "lr")
    return Section(heading="分年", html=html, note="首尾两年可能不足一年。")


def _trades(result: BacktestResult) -> Section:
    trades = result.trades
    if not len(trades):
        return Section(heading="交易", html="<p>没有成交。</p>")
    shown = trades.head(_TRADES_SHOWN)
    rows = [
        (
            trade["symbol"],
            _day(trade["entry_time"]),
            _day(trade["exit_time"]),
            format_number(trade["size"], decimals=0),
            format_number(trade["entry_price"], decimals=3),
            format_number(trade["exit_price"], decimals=3),
            format_number(trade["pnl"], decimals=2, sign=True),
            format_number(trade["return"], unit="%", decimals=2, sign=True),
        )
        for trade in shown.to_dict("records")
    ]
    headers = ("代码", "买入", "卖出", "数量", "买价", "卖价", "盈亏（扣费后）", "收益")
    html = html_table(rows, headers, "lllrrrrr")
    graded = result.prices.iloc[max(result.setup.first - 1, 0) :]
    charts = [
        price_chart(
            graded[symbol].dropna(),
            title=str(symbol),
            buys=list(group["entry_time"]),
            sells=list(group["exit_time"].dropna()),
        )
        for symbol, group in list(trades.groupby("symbol"))[:_CHARTS_SHOWN]
    ]
    more = len(trades) - len(shown)
    note = f"另有 {more} 笔见 trades.csv。" if more else ""
    return Section(heading="交易", html="".join(charts) + html, note=note)


def _costs(result: BacktestResult, facts: Facts) -> Section:
    costs = [
        (_COSTS.get(name, name), format_number(value, decimals=2))
        for name, value in result.costs.items()
    ]
    html = html_table(costs, ("费用", "合计"), "lr")
    if facts.stress is not None:
        html += facts.stress._repr_html_()
    table = result.unfilled
    rows = [
        (symbol, _CAUSES.get(str(cause), str(cause)), int(count))
        for symbol, row in table.iterrows()
        for cause, count in row.items()
        if count
    ]
    html += (
        html_table(rows, ("代码", "未成交原因", "次数")) if rows else "<p>没有未成交的意图。</p>"
    )
    return Section(heading="成本与未成交", html=html)


def _universe(result: BacktestResult, facts: Facts) -> Section:
    used = len(result.prices.columns)
    html = f"<p>要求 {len(facts.asked)} 只，使用 {used} 只，剔除 {len(result.dropped)} 只。</p>"
    if result.dropped:
        rows = [(one.symbol, one.name, one.reason) for one in result.dropped]
        html += html_table(rows, ("代码", "名称", "原因"))
    return Section(heading="股票池", html=html)


def _provenance(facts: Facts) -> Section:
    rows: list[tuple[str, str]] = [
        ("版本", facts.ref),
        ("生成时间", facts.created_at),
        ("数据源", facts.source + ("（合成数据）" if facts.synthetic else "")),
        *((f"{part} 指纹", digest[:16]) for part, digest in facts.fingerprints.items()),
        *((name, version) for name, version in facts.versions.items()),
    ]
    return Section(heading="来源", html=html_table(rows, ("项目", "内容"), "ll"))


def _day(moment: Any) -> str:
    return "持有中" if pd.isna(moment) else str(pd.Timestamp(moment).date())
