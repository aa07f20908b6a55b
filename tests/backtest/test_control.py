"""Random controls: same exposure and turnover, and a p-value that means what it says."""

from __future__ import annotations

from typing import Any

import numpy as np

from kit.backtest.control import random_control

MAIN, OTHER = "600000.SH", "000001.SZ"


def walk(seed: int, count: int = 120) -> list[float]:
    steps = np.random.default_rng(seed).normal(0, 0.015, count)
    return [round(float(price), 2) for price in 10 * np.exp(steps.cumsum())]


def seeing(prices: list[float]) -> list[float]:
    """Weights that know the next bar but one: bought at its open, sold a bar later."""
    later = [*prices[2:], prices[-1], prices[-1]]
    held = [*prices[1:], prices[-1]]
    return [0.4 if b > a else 0.0 for a, b in zip(held, later, strict=True)]


def account(market: Any, weights: dict[str, list[float]], prices: dict[str, list[float]]) -> Any:
    for symbol, closes in prices.items():
        market.add(symbol, closes)
    return market.run(weights, position_adjustment="rebalance", tolerance=0.05, fill="next_close")


def test_a_rule_that_knows_the_future_beats_every_control(market: Any) -> None:
    prices = {MAIN: walk(1), OTHER: walk(2)}
    result = account(market, {s: seeing(p) for s, p in prices.items()}, prices)
    control = random_control(result, draws=50)
    assert control is not None
    assert control.p_value == 1 / 51
    assert control.sharpe > 3 > control.median
    assert random_control(result, draws=50) == control  # the same result, the same controls


def test_a_rule_without_a_choice_is_its_own_control(market: Any) -> None:
    control = random_control(account(market, {MAIN: [0.5] * 120}, {MAIN: walk(3)}), draws=20)
    assert control is not None
    assert control.p_value == 1.0
    assert control.sharpe == control.median


def test_coin_flips_are_spread_over_all_p_values(tmp_path: Any, hand: Any) -> None:
    found = []
    for seed in range(12):
        market = hand.HandMarket(tmp_path / str(seed))
        flips = np.random.default_rng(100 + seed).random(120) < 0.5
        held = [0.4 if flip else 0.0 for flip in flips]
        control = random_control(account(market, {MAIN: held}, {MAIN: walk(50 + seed)}), draws=40)
        found.append(control.p_value if control else 1.0)
    assert min(found) < 0.5 < max(found)
    assert sum(p <= 0.05 for p in found) <= 2


def test_an_account_that_never_moved_has_no_control(market: Any) -> None:
    assert random_control(account(market, {MAIN: [0.0] * 120}, {MAIN: walk(4)}), draws=5) is None
