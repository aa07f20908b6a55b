"""Worse conditions: the same weights with doubled costs, and one bar late."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pandas as pd

from kit.backtest.result import BacktestResult

__all__ = ["Stress", "stress"]


@dataclass(frozen=True, kw_only=True)
class Stress:
    """How a result stands up to worse conditions.

    Attributes:
        table: One row a condition: `total_return`, `max_drawdown`, `sharpe`.
    """

    table: pd.DataFrame

    def _repr_html_(self) -> str:
        from kit.render import format_number, html_table

        rows = [
            (
                str(name),
                format_number(row["total_return"], unit="%", decimals=2, sign=True),
                format_number(row["max_drawdown"], unit="%", decimals=2),
                format_number(row["sharpe"], decimals=2),
            )
            for name, row in self.table.iterrows()
        ]
        return html_table(rows, ("条件", "总收益", "最大回撤", "夏普"), "lrrr")


def stress(result: BacktestResult) -> Stress:
    """Run the same weights again with doubled costs, and with every order one bar later.

    An edge that disappears with either is no edge that can be traded.
    """
    setup = result.setup
    costs = setup.costs
    doubled = replace(
        setup,
        costs=replace(
            costs,
            commission=costs.commission * 2,
            commission_min=costs.commission_min * 2,
            transfer=costs.transfer * 2,
            stamp_buy=costs.stamp_buy * 2,
            stamp_sell=costs.stamp_sell * 2,
            slippage=costs.slippage * 2,
        ),
    )
    cases = {
        "原样": result,
        "成本加倍": result.again(doubled),
        "晚一根成交": result.again(replace(setup, lag=setup.lag + 1)),
    }
    columns = ("total_return", "max_drawdown", "sharpe")
    rows = {
        name: {key: getattr(case.metrics, key) for key in columns} for name, case in cases.items()
    }
    return Stress(table=pd.DataFrame.from_dict(rows, orient="index", columns=list(columns)))
