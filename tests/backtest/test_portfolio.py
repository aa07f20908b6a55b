"""The vectorbt portfolios of a result: the account's own curve, whole, by symbol and by time."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest

from kit.backtest import BacktestResult
from kit.market import MarketRules, calendar
from kit.workspace import Workspace

# Importing vectorbt costs six seconds: all of this runs on one worker.
pytestmark = pytest.mark.xdist_group("vectorbt")

SYMBOLS = ("600000.SH", "000001.SZ", "300001.SZ", "688001.SH")
LENGTH, WARMUP = 90, 8


@pytest.fixture(scope="module", autouse=True)
def _vectorbt() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its import is a step behind pandas and plotly
        pytest.importorskip("vectorbt")
        yield


def wander(market: Any, seed: int, **settings: Any) -> BacktestResult:
    """Backtest random weights on random walks with halts, splits, limits and every fee."""
    rng = np.random.default_rng(seed)
    weights = {}
    for symbol in SYMBOLS:
        steps = rng.choice([-0.1, -0.03, 0.0, 0.01, 0.03, 0.1], size=LENGTH)
        factor = np.cumprod(rng.choice([1.0] * 19 + [1.25], size=LENGTH))
        level = 12.0 * np.cumprod(1 + steps)
        closes = np.round(level / factor, 2) + 0.05
        halted = rng.random(LENGTH) < 0.12
        halted[[0, -1]] = False
        market.add(
            symbol,
            [None if gone else float(close) for gone, close in zip(halted, closes, strict=True)],
            opens=[float(round(close * rng.choice([0.97, 1.0, 1.02]), 2)) for close in closes],
            factor=factor.tolist(),
        )
        wanted = rng.choice([0.0, 0.0, 0.15, 0.3, 0.5], size=LENGTH)
        weights[symbol] = np.repeat(wanted[::4], 4)[:LENGTH].tolist()
    result: BacktestResult = market.run(
        weights, slippage=0.001, warmup_bars=WARMUP, adjustment="forward", **settings
    )
    assert len(result.orders) > 20
    return result


HOW = (
    {"position_adjustment": "hold"},
    {"position_adjustment": "rebalance", "tolerance": 0.02},
    {"position_adjustment": "rebalance", "rebalance_mask": "W"},
)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("how", HOW)
def test_the_portfolio_is_the_account(market: Any, seed: int, how: dict[str, Any]) -> None:
    result = wander(market, seed, **how)
    portfolio = result.portfolio
    value, cash = portfolio.value(), portfolio.cash()
    assert value.index.equals(result.dates)
    assert value[result.equity.index].tolist() == pytest.approx(result.equity.tolist(), rel=1e-9)
    assert (value[: result.equity.index[0]] == 100_000).all()
    assert cash.tolist() == pytest.approx(result.fills.cash.tolist(), rel=1e-9, abs=1e-6)
    assert portfolio.total_return() == pytest.approx(result.metrics.total_return)
    assert portfolio.orders.records["fees"].sum() == pytest.approx(result.orders["fees"].sum())
    assert (portfolio.positions.records["direction"] == 0).all()  # no position was ever short


@pytest.mark.parametrize("how", HOW)
def test_the_symbols_add_up_to_the_account(market: Any, how: dict[str, Any]) -> None:
    result = wander(market, 7, **how)
    gains = [result.symbol(symbol).value() - 100_000 for symbol in SYMBOLS]
    account = pd.Series(result.fills.equity, index=result.dates) - 100_000
    assert sum(gains).tolist() == pytest.approx(account.tolist(), rel=1e-9, abs=1e-5)
    # Alone: the money moved by its own orders, and what it then holds at the adjusted close.
    for symbol, gain in zip(SYMBOLS, gains, strict=True):
        mine = result.orders[result.orders["symbol"] == symbol]
        sign = np.where(mine["side"] == "sell", 1, -1)
        moved = (sign * mine["notional"] - mine["fees"]).sum()
        held = result.fills.position[SYMBOLS.index(symbol)]
        worth = held * result.prices[symbol].ffill().iloc[-1]
        assert gain.iloc[-1] == pytest.approx(moved + worth, abs=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_a_stretch_goes_on_from_the_accounts_curve(market: Any, seed: int) -> None:
    result = wander(market, seed, position_adjustment="rebalance", tolerance=0.02)
    whole = pd.Series(result.fills.equity, index=result.dates)
    dates = result.dates
    for begin, end in [(0, 89), (1, 20), (8, 8), (9, 30), (25, 26), (40, 89), (77, 80), (89, 89)]:
        value = result.between(dates[begin].date(), dates[end].date()).value()
        expected = whole.iloc[max(begin - 1, 0) : end + 1]
        assert value.index.equals(expected.index)
        assert value.tolist() == pytest.approx(expected.tolist(), rel=1e-9), (begin, end)


def test_a_stretch_may_begin_inside_a_halt(market: Any) -> None:
    # Bought at 10.00 on 03-05, halted after 03-06, back on 03-12 at 11.00.
    market.add("600000.SH", [10.0, 10.0, 10.5, None, None, None, 11.0, 11.0])
    market.add("000001.SZ", [10.0] * 8)
    result = market.run({"600000.SH": [0.5] * 8, "000001.SZ": [0.0] * 8})
    stretch = result.between(pd.Timestamp("2024-03-08").date(), pd.Timestamp("2024-03-12").date())
    # 5,000 shares and 49,987 in cash; in the halt they are worth what they last were, 10.50.
    assert stretch.value().tolist() == pytest.approx([49_987 + 52_500] * 3 + [49_987 + 55_000])


def test_a_stretch_may_take_in_days_without_bars(market: Any) -> None:
    result = wander(market, 1)
    saturday, sunday = pd.Timestamp("2024-03-23"), pd.Timestamp("2024-04-07")
    value = result.between(saturday.date(), sunday.date()).value()
    assert (value.index[0], value.index[-1]) == (
        pd.Timestamp("2024-03-22"),
        pd.Timestamp("2024-04-05"),
    )


def test_without_an_order_it_is_a_flat_line(market: Any) -> None:
    market.add("600000.SH", [10.0] * 6)
    result = market.run({"600000.SH": [0.0] * 6})
    assert (result.portfolio.value() == 100_000).all()
    day = result.dates[2].date()
    assert (result.between(day, day).value() == 100_000).all()
    assert (result.symbol("600000.SH").value() == 100_000).all()


def test_a_purchase_left_on_its_own_last_bar_is_no_short(
    market: Any, hand: ModuleType, repository: Path
) -> None:
    # Where a share may be sold on the day it was bought, the end of the backtest does so.
    workspace = Workspace.at(repository)
    table = json.loads((repository / "config/markets.json").read_text("utf-8"))
    table = table["markets"]["cn"]["rules"]
    table["t_plus"] = [{"effective_from": "1995-01-01", "value": 0, "source": "a test"}]
    same_day = MarketRules("cn", "CNY", table, calendar(workspace, "cn"))
    market.add("600000.SH", [10.0, 10.0, 10.5], opens=[10.0, 10.0, 10.0])
    result = market.run({"600000.SH": [0.0, 0.5, 0.5]}, market_rules=same_day)
    assert [order[:3] for order in hand.orders(result)] == [
        ("03-06", "600000.SH", "buy"),
        ("03-06", "600000.SH", "sell"),
    ]
    positions = result.portfolio.positions.records
    assert positions["direction"].tolist() == [0]
    # 5,000 shares, 50,000 + 13.00 against 52,500 - 13.13 - 0.53 - 26.25.
    assert positions["pnl"].tolist() == pytest.approx([2_447.09])
    assert result.portfolio.value().iloc[-1] == pytest.approx(102_447.09)
