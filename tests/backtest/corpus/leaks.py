"""The corpus: engines with a planted leak, each of which must be found, and clean ones that pass.

`LEAKS` hold one leak of the signals each; the leak of the execution (a fill on the bar that
decided) is no engine's, and stands in `test_corpus.py`. `CLEAN` look at the past only, in as many
different ways as strategies do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

Frames = Mapping[str, pd.DataFrame]
Rule = Callable[[pd.DataFrame], pd.Series]


class Pick(NamedTuple):
    symbol: str
    score: float
    fields: dict[str, float]
    matched_rules: list[str]


class PerSymbol:
    """One rule for each symbol alone; the screen picks what has a positive weight today."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule

    def generate(self, data_map: Frames) -> dict[str, pd.Series]:
        return {symbol: self.rule(data_map[symbol]) for symbol in data_map}

    def screen_today(
        self, data_map: Frames, today: Any, sector_filter: Any = None, limit: int = 7
    ) -> list[Pick]:
        day = pd.Timestamp(today)
        weights = self.generate({symbol: data_map[symbol].loc[:day] for symbol in data_map})
        held = {s: w.get(day, 0.0) for s, w in weights.items() if w.get(day, 0.0) > 0}
        best = sorted(held, key=lambda symbol: (-held[symbol], symbol))[:limit]
        return [Pick(s, held[s], {"weight": held[s]}, ["long"]) for s in best]


class Across(PerSymbol):
    """One rule for all symbols together: wide closes in, wide weights out."""

    def generate(self, data_map: Frames) -> dict[str, pd.Series]:
        close = pd.DataFrame({symbol: data_map[symbol]["close"] for symbol in data_map})
        wide = self.rule(close)
        return {symbol: wide[symbol] for symbol in data_map}


class PeekingScreen(PerSymbol):
    """Clean weights, and a screen that looks at the newest row it was given, whatever the date."""

    def screen_today(
        self, data_map: Frames, today: Any, sector_filter: Any = None, limit: int = 7
    ) -> list[Pick]:
        gains = {s: float(data_map[s]["close"].pct_change(5).iloc[-1]) for s in data_map}
        best = sorted(gains, key=lambda symbol: -gains[symbol])[:limit]
        return [Pick(s, gains[s], {}, []) for s in best]


class Moody(PerSymbol):
    """Not a leak of the future, but no two runs agree."""

    runs = 0

    def generate(self, data_map: Frames) -> dict[str, pd.Series]:
        type(self).runs += 1
        return {s: pd.Series(type(self).runs % 7 / 7, data_map[s].index) for s in data_map}


def on(condition: pd.Series) -> pd.Series:
    return condition.astype("float64")


def _shift(df: pd.DataFrame) -> pd.Series:
    return on(df["close"].shift(-1) > df["close"])


def _centred(df: pd.DataFrame) -> pd.Series:
    return on(df["close"] > df["close"].rolling(11, center=True).mean())


def _zscore(df: pd.DataFrame) -> pd.Series:
    change = df["close"].pct_change(10)
    return on((change - change.mean()) / change.std() > 0.5)


def _bfill(df: pd.DataFrame) -> pd.Series:
    monthly = df["close"].pct_change(5).where(df.index.day_of_week == 4)
    return on(monthly.bfill() > 0)


def _left_label(df: pd.DataFrame) -> pd.Series:
    weekly = df["close"].resample("W", label="left").last()
    return on(weekly.pct_change().reindex(df.index, method="ffill") > 0)


def _quantile(df: pd.DataFrame) -> pd.Series:
    change = df["close"].pct_change(5)
    return on(change > change.quantile(0.8))


def _fit(df: pd.DataFrame) -> pd.Series:
    x, y = df["close"].pct_change(), df["close"].pct_change().shift(-1)
    good = x.notna() & y.notna()
    slope, base = np.polyfit(x[good], y[good], 1)
    return on(base + slope * x > 0)


def _back_adjusted(df: pd.DataFrame) -> pd.Series:
    # Levels scaled so that the newest bar stands at 10: each new bar moves all the old ones.
    return on(df["close"] / df["close"].iloc[-1] * 10 > 10.5)


def _last_row(df: pd.DataFrame) -> pd.Series:
    return on(df["close"] < df["close"].iloc[-1])


def _regime(df: pd.DataFrame) -> pd.Series:
    change = df["close"].pct_change()
    rare = change.abs() > 3 * change.rolling(60).std()
    ahead = np.sign(df["close"].shift(-1) - df["close"])
    return on(df["close"] > df["close"].rolling(60).mean()).where(~rare, ahead)


def _ranks_of_all_days(close: pd.DataFrame) -> pd.DataFrame:
    return (close.pct_change(5).rank(pct=True) > 0.8).astype("float64")


LEAKS: dict[str, Callable[[], Any]] = {
    "shift(-1)": lambda: PerSymbol(_shift),
    "centred rolling": lambda: PerSymbol(_centred),
    "full-sample z-score": lambda: PerSymbol(_zscore),
    "bfill": lambda: PerSymbol(_bfill),
    "left-labelled week": lambda: PerSymbol(_left_label),
    "global quantile": lambda: PerSymbol(_quantile),
    "fit on all rows": lambda: PerSymbol(_fit),
    "back-adjusted level": lambda: PerSymbol(_back_adjusted),
    "compare with last row": lambda: PerSymbol(_last_row),
    "rare regime": lambda: PerSymbol(_regime),
    "ranks of all days": lambda: Across(_ranks_of_all_days),
}


def _rsi(df: pd.DataFrame) -> pd.Series:
    step = df["close"].diff()
    up = step.clip(lower=0).ewm(alpha=1 / 14, min_periods=14).mean()
    down = (-step.clip(upper=0)).ewm(alpha=1 / 14, min_periods=14).mean()
    return on(100 - 100 / (1 + up / down) < 40)


def _hysteresis(df: pd.DataFrame) -> pd.Series:
    held, out = 0.0, []
    for gain in df["close"].pct_change(10):
        held = 1.0 if gain > 0.03 else 0.0 if gain < -0.03 else held
        out.append(held)
    return pd.Series(out, df.index)


def _atr_stop(df: pd.DataFrame) -> pd.Series:
    before = df["close"].shift()
    true_range = pd.concat(
        [df["high"] - df["low"], (df["high"] - before).abs(), (df["low"] - before).abs()], axis=1
    ).max(axis=1)
    return on(df["close"] > df["close"].rolling(20).max() - 2 * true_range.rolling(14).mean())


def _weekly(df: pd.DataFrame) -> pd.Series:
    # The last close of a week counts from the next week on.
    week = df.index.to_period("W")
    closes = df["close"].groupby(week).last().shift()
    gains = closes.pct_change()
    return on(pd.Series(gains.reindex(week).to_numpy(), df.index) > 0)


def _walk_forward_fit(df: pd.DataFrame) -> pd.Series:
    x, y = df["close"].pct_change().shift(), df["close"].pct_change()
    slope = (x.rolling(60).cov(y) / x.rolling(60).var()).shift(0)
    return np.tanh(slope * y * 100).fillna(0.0)


def _short_history(data: pd.DataFrame) -> pd.Series:
    if len(data) < 250:
        return pd.Series(0.0, data.index)
    return on(data["close"] > data["close"].rolling(250).mean())


def _c(df: pd.DataFrame) -> pd.Series:
    return df["close"]


PER_SYMBOL: dict[str, Rule] = {
    "hold": lambda df: pd.Series(1.0, df.index),
    "never": lambda df: pd.Series(0.0, df.index),
    "momentum": lambda df: on(_c(df).pct_change(20) > 0),
    "sma cross": lambda df: on(_c(df).rolling(10).mean() > _c(df).rolling(30).mean()),
    "long and short": lambda df: np.sign(_c(df).pct_change(15)),
    "expanding z-score": lambda df: (
        (_c(df) - _c(df).expanding(20).mean()) / _c(df).expanding(20).std()
    ).clip(-1, 1),
    "ewm": lambda df: on(_c(df).ewm(span=12).mean() > _c(df).ewm(span=26).mean()),
    "rolling rank": lambda df: on(_c(df).rolling(60).rank(pct=True) > 0.8),
    "breakout": lambda df: on(_c(df) > df["high"].rolling(20).max().shift()),
    "bollinger": lambda df: on(_c(df) < _c(df).rolling(20).mean() - _c(df).rolling(20).std()),
    "rsi": _rsi,
    "hysteresis": _hysteresis,
    "atr stop": _atr_stop,
    "past weeks": _weekly,
    "walk-forward fit": _walk_forward_fit,
    "volume surge": lambda df: on(df["volume"] > 1.5 * df["volume"].rolling(20).mean()),
    "expanding quantile": lambda df: on(
        _c(df).pct_change(5) > _c(df).pct_change(5).expanding(60).quantile(0.8)
    ),
    "volatility target": lambda df: (
        0.1 / (_c(df).pct_change().rolling(20).std() * 16)
    ).clip(upper=1),
    "overnight gap": lambda df: on(df["open"] > _c(df).shift()),
    "day of the week": lambda df: pd.Series((df.index.day_of_week == 0) * 1.0, df.index),
    "250-day line": _short_history,
    "drawdown buyer": lambda df: on(_c(df) / _c(df).cummax() < 0.9),
    "ffill of a sparse signal": lambda df: on(
        _c(df).pct_change(5).where(df.index.day_of_week == 4).ffill() > 0
    ),
}  # fmt: skip
ACROSS: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
    "cross-sectional rank": lambda close: (
        close.pct_change(20).rank(axis=1, pct=True) > 0.5
    ).astype("float64"),
    "relative strength": lambda close: (
        close.pct_change(10).sub(close.pct_change(10).mean(axis=1), axis=0).clip(-0.1, 0.1)
    ),
    "inverse volatility": lambda close: (1 / close.pct_change().rolling(30).std()).pipe(
        lambda inverse: inverse.div(inverse.sum(axis=1), axis=0)
    ),
}  # fmt: skip
CLEAN: dict[str, Callable[[], Any]] = {
    **{name: (lambda rule=rule: PerSymbol(rule)) for name, rule in PER_SYMBOL.items()},
    **{name: (lambda rule=rule: Across(rule)) for name, rule in ACROSS.items()},
}


def walk(seed: int, bars: int = 450, symbols: int = 2) -> dict[str, pd.DataFrame]:
    """Random walks with steps of 2 % a day, fat-tailed, as frames by symbol."""
    rng = np.random.default_rng(seed)
    index = pd.bdate_range("2020-01-01", periods=bars)
    frames = {}
    for place in range(symbols):
        close = 20 * np.exp((rng.standard_t(4, bars) * 0.014).cumsum())
        opened = np.concatenate([[20.0], close[:-1]]) * np.exp(rng.normal(0, 0.005, bars))
        frames[f"S{place}"] = pd.DataFrame(
            {
                "open": opened,
                "high": np.maximum(opened, close) * 1.005,
                "low": np.minimum(opened, close) * 0.995,
                "close": close,
                "volume": rng.integers(1_000, 9_000, bars).astype("float64"),
            },
            index=index,
        )
    return frames
