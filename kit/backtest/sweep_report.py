"""`report.html` of a sweep: what the best cell is worth after so many tries, then the grid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from kit.backtest.sweep import Cell, Grid, heat
from kit.backtest.wording import metric_text
from kit.render import Section, format_number, heat_chart, html_table, page

__all__ = ["build_sweep_report"]

_SHOWN = 200
_COLUMNS = ("sharpe", "total_return", "annual_return", "max_drawdown", "trades", "turnover")
_WAYS = {"walk_forward": "前推检验", "purged": "剔除重叠的交叉检验"}


def build_sweep_report(
    facts: Mapping[str, Any],
    cells: Sequence[Cell],
    grid: Grid,
    *,
    notes: Sequence[str],
    partial: Sequence[str],
) -> str:
    """Return the report as one HTML document.

    Args:
        facts: What `sweep.json` holds.
        cells: Every cell, in the order of the grid.
        grid: Parameter -> values.
        notes: What to know before believing it, Chinese.
        partial: What was narrowed against `config.json`.
    """
    sections = [
        _verdict(facts, [*(["只用了部分股票或另一段区间"] if partial else []), *notes]),
        _map(cells, grid),
        _table(cells, grid),
    ]
    return page(f"参数扫描 {facts['ref']}", sections, f"{len(cells)} 组参数")


def _verdict(facts: Mapping[str, Any], notes: Sequence[str]) -> Section:
    trials, unseen = facts["trials"], facts["out_of_sample"]
    rows: list[tuple[str, str, str]] = []
    if trials:
        lucky = metric_text("sharpe", trials["expected_best"])
        said = f"1 of {trials['tried']} tried：真实夏普高于全凭运气的最好一次（约 {lucky}）的概率"
        deflated = format_number(trials["deflated_sharpe"], unit="%", decimals=1)
        rows.append(("折减夏普", deflated, said))
    for name, label in _WAYS.items():
        if name in unseen:
            way = unseen[name]
            said = (
                f"每段只用段外数据挑选（间隔 {unseen['purge']} 根），挑选时夏普 "
                f"{metric_text('sharpe', way['in_sample'])}，左为未见数据上的夏普"
            )
            rows.append((label, metric_text("sharpe", way["out_of_sample"]), said))
    best = facts["best"]
    named = "，".join(f"{key}={value}" for key, value in best.items()) if best else "没有"
    html = f"<p><strong>夏普最高的一组：{escape(named)}</strong></p>"
    html += html_table(rows, ("检验", "数值", "说明"), "lrl") if rows else ""
    html += "".join(f"<p>注：{escape(note)}</p>" for note in dict.fromkeys(notes))
    return Section(
        heading="结论",
        html=html,
        note="最好的一组是从这么多组里挑出来的：它好看的那一部分，可能只是运气。",
    )


def _map(cells: Sequence[Cell], grid: Grid) -> Section:
    charts = "".join(
        heat_chart(heat(cells, grid, name), title=title, unit=unit)
        for name, title, unit in (("sharpe", "夏普", ""), ("total_return", "总收益", "%"))
    )
    more = list(grid)[2:]
    note = f"每格为 {'、'.join(more)} 各取值的中位数。" if more else ""
    return Section(heading="热力图", html=charts, note=note)


def _table(cells: Sequence[Cell], grid: Grid) -> Section:
    def rank(cell: Cell) -> float:
        ratio = cell.metrics.get("sharpe")
        return float("inf") if ratio is None else -ratio

    rows = [
        (
            *(str(cell.params[name]) for name in grid),
            *(metric_text(name, cell.metrics.get(name)) for name in _COLUMNS),
            cell.error,
        )
        for cell in sorted(cells, key=rank)[:_SHOWN]
    ]
    labels = ("夏普", "总收益", "年化收益", "最大回撤", "平仓笔数", "年换手", "出错")
    html = html_table(rows, (*grid, *labels), "l" * len(grid) + "r" * len(_COLUMNS) + "l")
    more = len(cells) - len(rows)
    note = f"另有 {more} 组见 cells.csv。" if more else ""
    return Section(heading="全部参数", html=html, note=note)
