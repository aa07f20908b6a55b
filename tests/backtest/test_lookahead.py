from __future__ import annotations

import importlib.util
import json
import sys
from datetime import date
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest

from kit.backtest.delay import delay_test
from kit.backtest.lookahead import check_lookahead
from kit.errors import GuardError, UsageError
from kit.market import MarketPanel, load_panel, open_source


def _load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        name, Path(__file__).parent / "corpus" / f"{name}.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


leaks = _load("leaks")
FRAMES = leaks.walk(7)


class Counted:
    """Counts what a check costs, in bars computed by `generate`."""

    bars = 0

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def generate(self, data_map: Any) -> Any:
        Counted.bars += sum(len(data_map[symbol]) for symbol in data_map)
        return self._engine.generate(data_map)

    def screen_today(self, *arguments: Any) -> Any:
        return self._engine.screen_today(*arguments)


@pytest.fixture
def panel(workspace: Any) -> MarketPanel:
    """Stocks of the embedded sample, one with dividends, forward-adjusted."""
    source = open_source(workspace)
    symbols = ["AMZN", "GOOG", "META", "NVDA"]
    return load_panel(source, symbols, date(2021, 6, 1), date(2023, 9, 21), market="us")


def test_a_rare_leak_is_found_in_a_long_panel_of_many() -> None:
    frames = leaks.walk(11, bars=2000, symbols=12)
    assert not check_lookahead(leaks.LEAKS["rare regime"], frames, screen=False).ok


def test_exhaustive_checks_name_the_first_bad_bar_exactly() -> None:
    close = FRAMES["S0"]["close"][:200]
    verdict = check_lookahead(
        leaks.LEAKS["shift(-1)"], {"S0": FRAMES["S0"][:200]}, exhaustive=True, screen=False
    )
    # Seen up to a day, its next close is missing and compares as "not higher".
    first = close.index[(close.shift(-1) > close).to_numpy()][0].date()
    assert [(leak.symbol, leak.first_bad_date, leak.cut_date) for leak in verdict.findings] == [
        ("S0", first, first)
    ]
    assert len(verdict.checked_dates) == 200


def test_the_reproduction_shows_the_leak(panel: MarketPanel, capsys: Any) -> None:
    (found, *_) = check_lookahead(leaks.LEAKS["rare regime"], panel, screen=False).findings
    exec(found.reproduction, {"panel": panel, "make_engine": leaks.LEAKS["rare regime"]})
    full, part = map(float, capsys.readouterr().out.split())
    assert full != part
    assert f"weight {full:.10g} with" in found.detail
    assert f"{part:.10g} without" in found.detail


def test_a_screen_that_ignores_its_date_is_found(panel: MarketPanel, capsys: Any) -> None:
    def make() -> Any:
        return leaks.PeekingScreen(leaks.PER_SYMBOL["momentum"])

    verdict = check_lookahead(make, panel)
    assert {found.output for found in verdict.findings} == {"screen_today"}
    assert check_lookahead(make, panel, screen=False).ok
    found = verdict.findings[0]
    exec(found.reproduction, {"panel": panel, "make_engine": make})
    assert found.symbol in capsys.readouterr().out


def test_engines_that_disagree_with_themselves_are_found() -> None:
    verdict = check_lookahead(lambda: leaks.Moody(None), FRAMES, screen=False)
    assert "generate (repeat)" in {found.output for found in verdict.findings}


def test_a_rule_on_the_price_level_is_found_where_dividends_move_it(panel: MarketPanel) -> None:
    verdict = check_lookahead(
        lambda: leaks.PerSymbol(lambda df: df["close"] / 1000), panel, screen=False
    )
    assert {(found.output, found.symbol) for found in verdict.findings} == {
        ("generate (levels)", "NVDA")
    }
    assert "price level" in verdict.findings[0].detail


def test_vectorised_forms_are_checked_too(panel: MarketPanel) -> None:
    class Vectorised(leaks.PerSymbol):
        def generate_panel(self, panel: MarketPanel) -> pd.DataFrame:
            return (panel.wide("close").shift(-1) > panel.wide("close")).astype("float64")

        def screen_panel(self, panel: Any, today: Any, sectors: Any = None, limit: int = 7) -> Any:
            symbol = panel.symbols[0]
            return [leaks.Pick(symbol, float(panel.wide("close")[symbol].iloc[-1]), {}, [])]

    verdict = check_lookahead(lambda: Vectorised(leaks.PER_SYMBOL["momentum"]), panel)
    assert {found.output for found in verdict.findings} == {"generate_panel", "screen_panel"}
    assert check_lookahead(lambda: Vectorised(leaks.PER_SYMBOL["momentum"]), FRAMES).ok


def test_the_default_check_costs_about_ten_runs_on_a_large_panel() -> None:
    frames = leaks.walk(3, bars=2500, symbols=24)
    Counted.bars = 0
    verdict = check_lookahead(lambda: Counted(leaks.CLEAN["momentum"]()), frames, screen=False)
    assert verdict.ok
    assert Counted.bars / 60_000 <= 12.5  # two of them over the whole panel, to compare with


def test_engines_may_change_their_frames() -> None:
    class Vandal(leaks.PerSymbol):
        def generate(self, data_map: Any) -> Any:
            for symbol in data_map:
                data_map[symbol].loc[:, "close"] /= 2
            return super().generate(data_map)

    before = {symbol: frame.copy() for symbol, frame in FRAMES.items()}
    assert check_lookahead(lambda: Vandal(leaks.PER_SYMBOL["momentum"]), FRAMES, screen=False).ok
    for symbol, frame in FRAMES.items():
        pd.testing.assert_frame_equal(frame, before[symbol])


def test_generate_is_handed_a_dict_as_in_a_backtest(panel: MarketPanel, capsys: Any) -> None:
    class Emptying:
        def generate(self, data_map: Any) -> Any:
            frames = [data_map.popitem() for _ in range(len(data_map))]
            sys.stdout.write("said a hundred times")
            return {symbol: (frame["close"] > 0) * 0.5 for symbol, frame in frames}

    assert check_lookahead(Emptying, panel, screen=False).ok
    assert capsys.readouterr().out == ""


def test_an_engine_that_leaves_on_a_cut_is_not_the_end_of_the_check() -> None:
    class Leaving:
        def generate(self, data_map: Any) -> Any:
            if any(len(frame) < 450 for frame in data_map.values()):
                raise SystemExit(0)
            return {symbol: frame["close"] * 0 for symbol, frame in data_map.items()}

    verdict = check_lookahead(Leaving, leaks.walk(7), screen=False)
    assert not verdict.ok
    assert not verdict.checked_dates
    assert "SystemExit" in verdict.skipped[0]


def test_symbols_left_out_for_want_of_history_hold_nothing() -> None:
    class Choosy(leaks.PerSymbol):
        def generate(self, data_map: Any) -> Any:
            long = [s for s in data_map if len(data_map[s]) >= 300]
            return {s: self.rule(data_map[s]).fillna(0.0) for s in long}

    rule = leaks.PER_SYMBOL["momentum"]
    late = {"S0": FRAMES["S0"], "S1": FRAMES["S1"].iloc[300:]}
    found = check_lookahead(lambda: Choosy(rule), late, screen=False).findings
    # With 300 bars in hand it also speaks about bars at which it had fewer: that is a leak.
    assert {leak.symbol for leak in found} == {"S0"}
    patient = lambda df: rule(df).where(np.arange(len(df)) >= 299, 0.0)  # noqa: E731
    assert check_lookahead(lambda: Choosy(patient), late, screen=False).ok


def test_cuts_an_engine_cannot_take_are_told_and_not_counted() -> None:
    class Brittle(leaks.PerSymbol):
        def generate(self, data_map: Any) -> Any:
            for symbol in data_map:
                data_map[symbol]["close"].iloc[-300]
            return super().generate(data_map)

    verdict = check_lookahead(lambda: Brittle(leaks.PER_SYMBOL["hold"]), FRAMES, screen=False)
    assert verdict.ok
    assert verdict.skipped
    assert "IndexError" in verdict.skipped[0]
    assert min(verdict.checked_dates) >= FRAMES["S0"].index[299].date()


def test_an_engine_that_fails_on_everything_is_an_error() -> None:
    def broken(_: pd.DataFrame) -> pd.Series:
        raise KeyError("amount")

    for rule in (broken, lambda df: 1.0, lambda df: pd.Series([1.0])):
        with pytest.raises(GuardError) as caught:
            check_lookahead(lambda rule=rule: leaks.PerSymbol(rule), FRAMES)
        assert caught.value.code == "lookahead.engine_failed"


def test_dates_can_be_given() -> None:
    days = [date(2020, 6, 1), date(2021, 6, 1), date(1999, 1, 1)]
    verdict = check_lookahead(leaks.CLEAN["momentum"], FRAMES, dates=days)
    assert verdict.checked_dates == (date(2020, 6, 1), date(2021, 6, 1))
    with pytest.raises(UsageError) as caught:
        check_lookahead(leaks.CLEAN["momentum"], FRAMES, dates=[date(1999, 1, 1)])
    assert caught.value.code == "lookahead.bad_dates"


def test_the_verdict_is_the_same_every_time_and_plain_in_a_file() -> None:
    one, two = (
        check_lookahead(leaks.LEAKS["bfill"], FRAMES, screen=False).to_dict() for _ in range(2)
    )
    assert one == two
    assert json.loads(json.dumps(one, allow_nan=False)) == one


# The delay test, on a small simulation: it sees fills at prices already known.


def _sharpe(frame: pd.DataFrame, weights: pd.Series, delay: int, *, same_bar: bool) -> float:
    opened, close = frame["open"], frame["close"]
    if same_bar:  # bought at the open of the very bar whose close gave the signal
        earned = weights.shift(delay) * (close / opened - 1)
    else:
        earned = weights.shift(1 + delay) * (opened.shift(-1) / opened - 1)
    return float(earned.mean() / earned.std() * np.sqrt(252))


def test_a_fill_inside_the_signal_bar_collapses_one_bar_later() -> None:
    frame = FRAMES["S0"]
    weights = np.sign(frame["close"] - frame["open"])
    leaky = delay_test(lambda delay: _sharpe(frame, weights, delay, same_bar=True))
    assert leaky.collapsed
    assert leaky.immediate > 5 > abs(leaky.delayed)
    honest = delay_test(lambda delay: _sharpe(frame, weights, delay, same_bar=False))
    assert not honest.collapsed


@pytest.mark.parametrize(
    ("now", "later", "collapsed"),
    [
        (11.0, 0.9, True),
        (6.4, 4.5, False),
        (0.6, 0.1, False),
        (-2.0, -3.0, False),
        (4.0, np.nan, True),
    ],
)
def test_what_counts_as_a_collapse(now: float, later: float, collapsed: bool) -> None:
    assert delay_test(lambda delay: later if delay else now).collapsed is collapsed
