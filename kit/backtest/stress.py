"""Worse conditions: the same weights with doubled costs, and one bar late; what was not filled."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import pandas as pd

from kit.backtest.result import BacktestResult

__all__ = ["Stress", "stress"]

_CONDITIONS: Final = {"as_is": "原样", "doubled_costs": "成本加倍", "one_bar_later": "晚一根成交"}


@dataclass(frozen=True, kw_only=True)
class Stress:
    """How a result stands up to worse conditions.

    Attributes:
        table: One row a condition: `total_return`, `max_drawdown`, `sharpe`.
        unfilled_share: Intents that were not filled over all of them, a bar each; None without
            any.
    """

    table: pd.DataFrame
    unfilled_share: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values: one object a condition under its English name, and the share."""
        rows = {
            key: {column: _plain(value) for column, value in self.table.loc[name].items()}
            for key, name in _CONDITIONS.items()
        }
        return {**rows, "unfilled_share": self.unfilled_share}

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
    doubled = replace(setup, costs=setup.costs.times(2.0))
    later = replace(setup, lag=setup.lag + 1)
    again = (result, result.again(doubled), result.again(later))
    cases = dict(zip(_CONDITIONS.values(), again, strict=True))
    columns = ("total_return", "max_drawdown", "sharpe")
    rows = {
        name: {key: getattr(case.metrics, key) for key in columns} for name, case in cases.items()
    }
    missed = int(result.unfilled.to_numpy().sum())
    intents = missed + len(result.orders)
    return Stress(
        table=pd.DataFrame.from_dict(rows, orient="index", columns=list(columns)),
        unfilled_share=missed / intents if intents else None,
    )


def _plain(value: Any) -> float | None:
    return None if pd.isna(value) else float(value)
