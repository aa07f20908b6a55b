"""Reading how a backtest is executed out of a bundle."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from kit.backtest.settings import Settings, rebalance_bars
from kit.bundle.manifest import DataContract, Execution
from kit.errors import BundleError, GuardError

CONFIG: dict[str, Any] = {
    "initial_cash": 1_000_000,
    "position_adjustment": "hold",
    "warmup_bars": 60,
    "_kit": {"params": {}, "slippage": 0.001},
}


def execution(fill: str, waiver: str | None = None) -> Execution:
    return Execution(
        entry_module="code/signal_engine.py",
        entry_class="SignalEngine",
        entry_method="generate",
        screen_method="screen_today",
        fill=fill,
        same_bar_waiver=waiver,
    )


def contract(warmup_bars: int | None) -> DataContract:
    return DataContract(
        frequency="daily",
        fields=("close_adj",),
        history_days=260,
        adjustment="forward",
        asof_time="T 16:30 CST",
        universe={"market": "cn", "kind": "sample"},
        warmup_bars=warmup_bars,
    )


def test_config_and_manifest_are_read_together() -> None:
    found = Settings.of(CONFIG, execution("next_close"), contract(250))
    assert (found.initial_cash, found.slippage) == (1_000_000.0, 0.001)
    assert (found.fill, found.warmup_bars) == ("next_close", 250)
    assert Settings.of(CONFIG, contract=contract(None)).warmup_bars == 60
    assert Settings.of(CONFIG, contract=contract(250), warmup_bars=10).warmup_bars == 10


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"initial_cash": None}, "initial_cash is missing"),
        ({"initial_cash": True}, "initial_cash is True"),
        ({"_kit": {"params": {}}}, "_kit.slippage is missing"),
        ({"position_adjustment": "rebalance"}, "rebalance_tolerance is missing"),
        ({"position_adjustment": "hodl"}, "position_adjustment is 'hodl'"),
        ({"rebalance_mask": "M"}, "rebalance_mask is 'M'"),
    ],
)
def test_a_missing_number_is_named_and_never_made_up(change: dict[str, Any], named: str) -> None:
    with pytest.raises(BundleError, match=named) as caught:
        Settings.of(CONFIG | change)
    assert caught.value.code == "backtest.bad_config"
    assert caught.value.remedy


@pytest.mark.parametrize("fill", ["same_open", "same_close"])
def test_a_same_bar_fill_needs_a_waiver(fill: str) -> None:
    with pytest.raises(GuardError) as caught:
        Settings.of(CONFIG, execution(fill))
    assert caught.value.code == "backtest.same_bar"
    assert Settings.of(CONFIG, execution(fill, "收盘集合竞价下单")).same_bar


def test_rebalance_bars_are_the_first_of_each_period() -> None:
    dates = pd.DatetimeIndex(
        ["2024-01-30", "2024-01-31", "2024-02-01", "2024-02-05", "2024-04-01", "2025-01-02"]
    )
    assert rebalance_bars(None, dates).all()
    assert rebalance_bars("MS", dates).tolist() == [True, False, True, False, True, True]
    assert rebalance_bars("QS", dates).tolist() == [True, False, False, False, True, True]
    assert rebalance_bars("YS", dates).tolist() == [True, False, False, False, False, True]
    assert rebalance_bars("W", dates).tolist() == [True, False, False, True, True, True]
