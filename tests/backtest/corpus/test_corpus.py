"""Every planted leak is found and every clean strategy passes, on walks and on real bars."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest

from kit.backtest import run_backtest
from kit.backtest.delay import same_bar_test
from kit.backtest.lookahead import check_lookahead
from kit.backtest.sample import exhaustive_sample, shrunk
from kit.backtest.settings import Settings
from kit.market import MarketPanel, MarketRules, SampleSource, load_panel
from kit.workspace import Workspace


def _load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


leaks = _load("leaks")
WALK = leaks.walk(7)
CN = ("000338.SZ", "000783.SZ", "601318.SH")


@pytest.fixture(scope="module")
def real() -> MarketPanel:
    """Two years of three mainland stocks, forward-adjusted."""
    return load_panel(SampleSource(), CN, date(2018, 6, 1), date(2020, 6, 16), market="cn")


def test_the_corpus_holds_what_was_promised() -> None:
    assert {
        "shift(-1)", "centred rolling", "full-sample z-score", "bfill", "left-labelled week",
        "global quantile", "fit on all rows", "back-adjusted level", "compare with last row",
        "rare regime",
    } <= set(leaks.LEAKS)  # fmt: skip
    assert len(leaks.CLEAN) >= 20


@pytest.mark.parametrize("leak", leaks.LEAKS)
def test_every_planted_leak_is_found(leak: str, real: MarketPanel) -> None:
    for panel in (WALK, real):
        verdict = check_lookahead(leaks.LEAKS[leak], panel, screen=False)
        assert not verdict.ok
        assert {found.output for found in verdict.findings} == {"generate"}
        for found in verdict.findings:
            assert found.first_bad_date <= found.cut_date


@pytest.mark.parametrize("name", leaks.CLEAN)
def test_clean_strategies_pass(name: str, real: MarketPanel) -> None:
    for panel in (WALK, real):
        verdict = check_lookahead(leaks.CLEAN[name], panel)
        assert verdict.findings == ()
        assert verdict.ok
        assert len(verdict.checked_dates) >= 8


@pytest.mark.parametrize("seed", [8, 9])
def test_a_leak_that_acts_on_few_days_is_found_whatever_the_walk(seed: int) -> None:
    frames = leaks.walk(seed, bars=700, symbols=3)
    assert not check_lookahead(leaks.LEAKS["rare regime"], frames, screen=False).ok


# Exhaustive on a sample, and as small as it can be shown


def test_a_sample_of_every_date_names_the_first_bad_bar_there_is(real: MarketPanel) -> None:
    panel = real.select(CN[1:]).upto(date(2018, 8, 31))
    verdict = exhaustive_sample(leaks.LEAKS["shift(-1)"], panel)
    assert verdict.checked_dates == tuple(day.date() for day in panel.dates)
    for found in verdict.findings:
        close = panel[found.symbol]["close"]
        rises = close.index[(close.shift(-1) > close).to_numpy()]
        assert found.first_bad_date == rises[0].date()
    assert {found.symbol for found in verdict.findings} == set(CN[1:])
    assert exhaustive_sample(leaks.CLEAN["sma cross"], panel).ok


def test_a_leak_is_shown_on_its_symbol_alone_where_that_is_enough(real: MarketPanel) -> None:
    panel = real.upto(date(2018, 12, 28))
    make = leaks.LEAKS["shift(-1)"]
    (first, *_) = check_lookahead(make, panel, screen=False).findings
    assert shrunk(make, panel, first) == ((first.symbol,), first)

    def from_the_last_row_of_another(close: pd.DataFrame) -> pd.DataFrame:
        others = close.iloc[-1].max() if len(close.columns) > 1 else 0.0
        return (close < others).astype("float64")

    def across() -> Any:
        return leaks.Across(from_the_last_row_of_another)

    (found, *_) = check_lookahead(across, panel, screen=False).findings
    assert shrunk(across, panel, found) == (None, found)


# The eleventh leak is of the execution: no signal changes when later bars come.


class Candle:
    """Wants what closed above its open: known at the close, and worth nothing a bar later."""

    def generate(self, data_map: Any) -> dict[str, pd.Series]:
        return {s: (data_map[s]["close"] > data_map[s]["open"]) * 0.5 for s in data_map}


@pytest.fixture
def filled(workspace: Workspace, real: MarketPanel) -> Callable[..., Any]:
    """`filled(fill)` backtests it with a fill rule, rebalanced and free of slippage."""
    source = {one.symbol: one for one in SampleSource().securities("cn")}

    def run(fill: str, engine: Any = Candle) -> Any:
        return run_backtest(
            engine(),
            real,
            Settings(
                initial_cash=1e6,
                slippage=0.0,
                position_adjustment="rebalance",
                fill=fill,
                same_bar_waiver="a test of what a waiver hides",
            ),
            rules=MarketRules.load(workspace, "cn"),
            securities=[source[symbol] for symbol in real.symbols],
        )

    return run


def test_a_same_bar_fill_is_found_and_its_first_fill_named(
    filled: Callable[..., Any], real: MarketPanel
) -> None:
    signals = check_lookahead(Candle, real, screen=False)
    assert signals.ok
    result = filled("same_open")
    verdict = same_bar_test(signals, result)
    assert not verdict.ok
    (leak,) = verdict.findings
    first = result.orders.iloc[0]
    assert (leak.output, leak.symbol) == ("fill", first["symbol"])
    assert leak.first_bad_date == first["time"].date() == first["decided"].date()
    assert verdict.one_bar_delay is not None
    assert verdict.one_bar_delay["immediate"] > 3 > 2 * verdict.one_bar_delay["delayed"]


def test_fills_a_bar_later_and_steady_rules_pass(
    filled: Callable[..., Any], real: MarketPanel
) -> None:
    signals = check_lookahead(Candle, real, screen=False)
    assert same_bar_test(signals, filled("next_open")).ok
    hold = leaks.CLEAN["hold"]
    calm = check_lookahead(hold, real, screen=False)

    class Third:
        def generate(self, data_map: Any) -> Any:
            return {s: pd.Series(0.3, data_map[s].index) for s in data_map}

    verdict = same_bar_test(calm, filled("same_open", Third))
    assert verdict.ok
    assert np.isfinite(verdict.one_bar_delay["immediate"])  # type: ignore[index]
