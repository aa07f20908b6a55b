from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Any

import numpy as np
import pandas as pd
import pytest

from kit.backtest.warmup import measure_history, needed_history
from kit.errors import DataError, GuardError
from kit.market import load_panel, open_source


class Engine:
    """One rule for each symbol alone; `looks` bars back for its screen."""

    def __init__(self, rule: Callable[[pd.Series], pd.Series], looks: int = 0) -> None:
        self._rule = rule
        self._looks = looks

    def generate(self, data_map: Any) -> Any:
        return {symbol: self._rule(data_map[symbol]["close"]) for symbol in data_map}

    def screen_today(
        self, data_map: Any, today: Any, sector_filter: Any = None, limit: int = 7
    ) -> Any:
        picks = []
        for symbol in data_map:
            gain = data_map[symbol]["close"].loc[: pd.Timestamp(today)].pct_change(self._looks or 1)
            if self._looks and gain.iloc[-1] > 0:
                picks.append(_Pick(symbol, float(gain.iloc[-1])))
        return picks


class _Pick:
    def __init__(self, symbol: str, score: float) -> None:
        self.symbol, self.score = symbol, score
        self.fields: dict[str, float] = {}
        self.matched_rules: list[str] = []


def _walk(bars: int, seed: int = 5) -> dict[str, pd.DataFrame]:
    rng = np.random.default_rng(seed)
    index = pd.bdate_range("2020-01-01", periods=bars)
    return {
        f"S{k}": pd.DataFrame({"close": 20 * np.exp(rng.normal(0, 0.02, bars).cumsum())}, index)
        for k in range(2)
    }


FRAMES = _walk(400)


@pytest.mark.parametrize(
    ("rule", "bars"),
    [
        (lambda close: close * 0 + 1, 1),
        (lambda close: close.pct_change(20), 21),
        (lambda close: close / close.rolling(60).mean() - 1, 60),
        # A choice between two values agrees by chance; the searched dates must see through that.
        (lambda close: (close > close.rolling(120).mean()).astype("float64"), 120),
        # The mean of a window, ten bars ago.
        (lambda close: close.rolling(30).mean().shift(10), 40),
    ],
)
def test_windows_need_their_length(rule: Any, bars: int) -> None:
    history = measure_history(lambda: Engine(rule), FRAMES)
    assert (history.bars, history.settled) == (bars, True)
    assert needed_history(lambda: Engine(rule), FRAMES) == bars
    assert history.dates[-1] == FRAMES["S0"].index[-1].date()


def test_a_fading_memory_needs_what_it_takes_to_fade() -> None:
    def rule(close: pd.Series) -> pd.Series:
        return close.pct_change().fillna(0.0).ewm(alpha=0.2, adjust=False).mean()

    loose = needed_history(lambda: Engine(rule), FRAMES, tolerance=1e-6)
    tight = needed_history(lambda: Engine(rule), FRAMES, tolerance=1e-9)
    # What is left of returns of a few percent after n bars is about 0.8 ** n of them.
    assert tight - loose == pytest.approx(np.log(1e-3) / np.log(0.8), abs=12)
    assert tight == pytest.approx(np.log(1e-9 / 0.02) / np.log(0.8), abs=15)


@pytest.mark.parametrize(
    "rule",
    [
        lambda close: close / close.expanding().mean(),
        lambda close: close / close.iloc[0],
        lambda close: pd.Series(np.arange(len(close)) % 97 / 97, close.index),
    ],
)
def test_an_endless_memory_never_settles(rule: Any) -> None:
    history = measure_history(lambda: Engine(rule), FRAMES)
    assert (history.bars, history.settled) == (400, False)


def test_screens_count_as_well() -> None:
    def make() -> Engine:
        return Engine(lambda close: close.pct_change(5), looks=50)

    assert needed_history(make, FRAMES) == 51
    assert needed_history(make, FRAMES, screen=False) == 6


def test_an_engine_that_fails_on_short_histories_needs_longer_ones() -> None:
    def rule(close: pd.Series) -> pd.Series:
        close.iloc[-90]
        return close.pct_change(3)

    assert needed_history(lambda: Engine(rule), FRAMES) == 90


def test_real_prices_and_a_panel(workspace: Any) -> None:
    source = open_source(workspace)
    days = date(2021, 6, 1), date(2023, 9, 21)
    panel = load_panel(source, ["AMZN", "NVDA"], *days, market="us")
    assert needed_history(lambda: Engine(lambda close: close.pct_change(60)), panel) == 61


def test_short_panels_and_broken_engines_are_errors() -> None:
    with pytest.raises(DataError) as caught:
        needed_history(lambda: Engine(lambda close: close), _walk(9))
    assert caught.value.code == "warmup.too_short"
    with pytest.raises(GuardError) as failed:
        needed_history(lambda: Engine(lambda close: close["x"]), FRAMES)
    assert failed.value.code == "lookahead.engine_failed"
