"""Two trades on real bars, worked out by hand and reproduced to the cent."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pandas as pd
import pytest

from kit.backtest import BacktestResult, run_backtest
from kit.backtest.settings import Settings
from kit.market import MarketRules, load_panel, open_source
from kit.workspace import Workspace

SYMBOL = "600000.SH"


class Engine:
    """Wants 5 % on two days, everything on two later ones, nothing otherwise."""

    def generate(self, data_map: dict[str, pd.DataFrame]) -> dict[str, pd.Series]:
        weights = pd.Series(0.0, index=data_map[SYMBOL].index)
        weights.loc["2023-08-22":"2023-08-23"] = 0.05
        weights.loc["2023-08-30":"2023-08-31"] = 1.0
        return {SYMBOL: weights}


@pytest.fixture
def result(workspace: Workspace) -> BacktestResult:
    source = open_source(workspace, "sample")
    panel = load_panel(source, [SYMBOL], date(2023, 8, 21), date(2023, 9, 6), market="cn")
    known = {security.symbol: security for security in source.securities("cn")}
    return run_backtest(
        Engine(),
        panel,
        Settings(initial_cash=100_000.0, slippage=0.001),
        rules=MarketRules.load(workspace, "cn"),
        securities=[known[SYMBOL]],
    )


def money(text: str) -> float:
    return float(Decimal(text))


def test_two_trades_to_the_cent(result: BacktestResult) -> None:
    # Opens of 600000.SH (raw): 2023-08-23 7.01, 08-25 6.99, 08-31 7.03, 09-04 7.06.
    # Fees: commission 0.025 %, at least 5.00; transfer 0.001 % (since 2022-04-29); stamp duty on
    # sells 0.1 % until 2023-08-27 and 0.05 % since. Slippage 0.1 %, lots of 100 shares.
    #
    # Trade 1, decided at the close of 08-22, bought at the open of 08-23:
    #   price      7.01 x 1.001                            = 7.01701
    #   shares     5 % of 100,000 / 7.01701 = 712.5...     -> 700
    #   notional   700 x 7.01701                           = 4,911.907
    #   commission 4,911.907 x 0.00025 = 1.23              -> 5.00, the minimum
    #   transfer   4,911.907 x 0.00001 = 0.0491...         -> 0.05
    #   cash       100,000 - 4,911.907 - 5.05              = 95,083.043
    # Decided at the close of 08-24, sold at the open of 08-25, 6.99:
    #   price      6.99 x 0.999                            = 6.98301
    #   notional   700 x 6.98301                           = 4,888.107
    #   commission                                         -> 5.00
    #   transfer   0.0488...                               -> 0.05
    #   stamp      4,888.107 x 0.001 = 4.888...            -> 4.89
    #   cash       95,083.043 + 4,888.107 - 9.94           = 99,961.210
    # Trade 2, decided at the close of 08-30, bought at the open of 08-31:
    #   price      7.03 x 1.001                            = 7.03703
    #   shares     99,961.21 / 7.03703 = 14,205.0...       -> 14,200
    #   notional   14,200 x 7.03703                        = 99,925.826
    #   commission 24.981...                               -> 24.98
    #   transfer   0.999...                                -> 1.00
    #   cash       99,961.210 - 99,925.826 - 25.98         = 9.404
    # Decided at the close of 09-01, sold at the open of 09-04, 7.06:
    #   price      7.06 x 0.999                            = 7.05294
    #   notional   14,200 x 7.05294                        = 100,151.748
    #   commission 25.037...                               -> 25.04
    #   transfer   1.001...                                -> 1.00
    #   stamp      100,151.748 x 0.0005 = 50.075...        -> 50.08
    #   cash       9.404 + 100,151.748 - 76.12             = 100,085.032
    orders = result.orders
    assert [str(day.date()) for day in orders["time"]] == [
        "2023-08-23", "2023-08-25", "2023-08-31", "2023-09-04",
    ]  # fmt: skip
    assert [str(day.date()) for day in orders["decided"]] == [
        "2023-08-22", "2023-08-24", "2023-08-30", "2023-09-01",
    ]  # fmt: skip
    assert orders["side"].tolist() == ["buy", "sell", "buy", "sell"]
    assert orders["size"].tolist() == pytest.approx([700, 700, 14_200, 14_200], abs=1e-9)
    assert orders["price"].tolist() == pytest.approx([7.01701, 6.98301, 7.03703, 7.05294])
    assert orders["commission"].tolist() == [5.00, 5.00, 24.98, 25.04]
    assert orders["transfer"].tolist() == [0.05, 0.05, 1.00, 1.00]
    assert orders["stamp"].tolist() == [0.0, 4.89, 0.0, 50.08]

    cash = pd.Series(result.fills.cash, index=result.dates)
    for day, left in {
        "2023-08-23": "95083.043",
        "2023-08-25": "99961.210",
        "2023-08-31": "9.404",
        "2023-09-04": "100085.032",
    }.items():
        assert cash[day] == pytest.approx(money(left), abs=1e-6), day
    # On 08-31 the position is worth 14,200 x 6.98, the close.
    assert result.equity["2023-08-31"] == pytest.approx(9.404 + 14_200 * 6.98, abs=1e-6)
    assert result.equity.iloc[-1] == pytest.approx(money("100085.032"), abs=1e-6)
    # Net of all fees: 4,888.107 - 9.94 - 4,911.907 - 5.05, and the same for the second trade.
    assert result.trades["pnl"].tolist() == pytest.approx([-38.79, 123.822], abs=1e-6)
    assert not result.unfilled.to_numpy().any()


def test_the_fees_are_those_of_the_rules(result: BacktestResult, workspace: Workspace) -> None:
    rules = MarketRules.load(workspace, "cn")
    for order in result.orders.itertuples():
        fees = rules.fees(order.side, order.notional, order.time.date())
        assert (order.commission, order.transfer, order.stamp) == (
            float(fees.commission),
            float(fees.transfer),
            float(fees.stamp),
        )
