"""Without market rules, lots among them, the kernel is vectorbt's cash-shared simulation."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest

from kit.backtest.kernel import Costs, Fills, Market, simulate
from kit.market import FeeSchedule

CASH = 1_000_000.0


@pytest.fixture(scope="module")
def vectorbt() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its import is a step behind pandas and plotly
        return pytest.importorskip("vectorbt")


def bars(seed: int, length: int = 120, symbols: int = 5) -> tuple[Any, Any, Any]:
    """Return opens, closes and target weights, `[T, N]`; the weights change every few bars."""
    rng = np.random.default_rng(seed)
    closes = 20 * np.exp(np.cumsum(rng.normal(0, 0.02, (length, symbols)), axis=0))
    opens = closes * np.exp(rng.normal(0, 0.01, closes.shape))
    weights = rng.dirichlet(np.ones(symbols + 1), size=length)[:, :symbols]
    weights[rng.random(weights.shape) < 0.3] = 0.0
    return opens, closes, np.repeat(weights[::5], 5, axis=0)[:length]


def costs(
    length: int,
    symbols: int,
    *,
    commission: float = 0.0,
    least: float = 0.0,
    stamp: float = 0.0,
    slippage: float = 0.0,
) -> Costs:
    """Return a commission on both sides and a duty on sales."""
    return Costs(
        fees=FeeSchedule(
            names=("commission", "stamp"),
            part=np.array([0, 2]),
            per=np.array([0, 0]),
            rounding=np.array([0, 0]),
            buy=np.array([[np.full(length, commission), np.zeros(length)]]),
            sell=np.array([[np.full(length, commission), np.full(length, stamp)]]),
            least=np.array([np.full(length, least), np.zeros(length)]),
            most=np.full((2, length), np.inf),
        ),
        kind=np.zeros(symbols, dtype=np.int64),
        slippage=slippage,
    )


def ours(opens: Any, closes: Any, weights: Any) -> Fills:
    length, symbols = weights.shape
    return simulate(
        fill=opens,
        mark=closes,
        adjust=np.ones(weights.shape),
        weights=weights,
        market=Market(
            up=np.empty((0, 0)),
            down=np.empty((0, 0)),
            min_lot=np.zeros(symbols, dtype=np.int64),
            step=np.zeros(symbols, dtype=np.int64),  # any fraction of a share
            session=np.arange(length),
            t_plus=0,
            allow_short=False,
        ),
        costs=costs(length, symbols),
        initial_cash=CASH,
        hold=False,
        liquidate=False,
    )


@pytest.mark.parametrize("seed", range(5))
def test_rebalancing_equals_vectorbt(vectorbt: Any, seed: int) -> None:
    opens, closes, weights = bars(seed)
    index = pd.bdate_range("2022-01-03", periods=len(closes))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        portfolio = vectorbt.Portfolio.from_orders(
            pd.DataFrame(closes, index=index),
            size=pd.DataFrame(weights, index=index).shift(1),  # decided on the bar before
            size_type="targetpercent",
            price=pd.DataFrame(opens, index=index),
            direction="longonly",
            init_cash=CASH,
            cash_sharing=True,
            group_by=True,
            call_seq="auto",  # sells first
            freq="1D",
        )
        value = portfolio.value().to_numpy()
        theirs = portfolio.orders.records
    mine = ours(opens, closes, weights)
    assert mine.equity.tolist() == pytest.approx(value.tolist(), rel=1e-12)
    theirs = theirs.sort_values(["col", "idx"], kind="stable")
    assert mine.orders["col"].tolist() == theirs["col"].tolist()
    assert mine.orders["idx"].tolist() == theirs["idx"].tolist()
    assert mine.orders["size"].tolist() == pytest.approx(theirs["size"].tolist(), abs=1e-9)
    assert mine.orders["side"].tolist() == theirs["side"].tolist()


def test_records_of_a_ruled_market_give_the_same_curve_in_vectorbt(vectorbt: Any) -> None:
    """Orders with fees, slippage, lots, a split and a liquidation, rebuilt as a Portfolio."""
    from vectorbt.portfolio.enums import log_dt, order_dt

    opens, closes, weights = bars(9)
    length, symbols = weights.shape
    adjust = np.where(np.arange(length)[:, None] < 60, 0.5, 1.0) * np.ones((1, symbols))
    fills = simulate(
        fill=opens / adjust,
        mark=closes / adjust,
        adjust=adjust,
        weights=weights,
        market=Market(
            up=np.empty((0, 0)),
            down=np.empty((0, 0)),
            min_lot=np.full(symbols, 100),
            step=np.full(symbols, 100),
            session=np.arange(length),
            t_plus=1,
            allow_short=False,
        ),
        costs=costs(length, symbols, commission=0.00025, least=5.0, stamp=0.0005, slippage=0.001),
        initial_cash=CASH,
        hold=False,
        tolerance=0.01,
    )
    records = np.zeros(len(fills.orders), dtype=order_dt)
    for name in ("id", "col", "idx", "size", "price", "fees", "side"):
        records[name] = fills.orders[name]
    close = pd.DataFrame(closes, index=pd.bdate_range("2022-01-03", periods=length))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wrapper = vectorbt.ArrayWrapper.from_obj(
            close, freq="1D", group_by=np.zeros(symbols, dtype=int)
        )
        portfolio = vectorbt.Portfolio(
            wrapper, close, records, np.zeros(0, dtype=log_dt), np.array([CASH]), cash_sharing=True
        )
        value = portfolio.value().to_numpy()
        cash = portfolio.cash().to_numpy()
    assert fills.equity.tolist() == pytest.approx(value.tolist(), rel=1e-9)
    assert fills.cash.tolist() == pytest.approx(cash.tolist(), rel=1e-9, abs=1e-6)
