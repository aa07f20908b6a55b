"""Breakout from a price channel, for Hong Kong stocks: one self-contained engine.

The rule, on daily bars:

* the close rises above the highest high of the bars before it, on more volume than usual, and not
  by so much that the move is over;
* the position ends when the close falls below the lowest low of a shorter channel, or when no new
  breakout has confirmed it for too long.

Bars carry open, high, low, close, volume as float64, indexed by session date. A row without volume
is a halt: it is not a bar, windows step over it.

Only numpy and pandas are imported, and every number of the rule is read from `config.json`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

RULE_BREAKOUT = "channel_breakout"
RULE_VOLUME = "heavier_volume"


class Pick(NamedTuple):
    """One stock of a screen.

    Attributes:
        symbol: Exchange-suffixed code, such as 0005.HK.
        score: close / channel high - 1, a fraction; smaller ranks first.
        fields: What the rule measured, by name; JSON values. Percentages end in `_pct`.
        matched_rules: Identifiers of the rules that hold.
    """

    symbol: str
    score: float
    fields: dict
    matched_rules: list


class SignalEngine:
    """The strategy, in the two forms that a backtest and a daily screen need.

    Args:
        params: Values that replace those of `config.json`, by name (for sweeps).
    """

    def __init__(self, params: dict | None = None):
        self._overrides = dict(params or {})

    def params(self) -> dict:
        """Return the rule's numbers: `_kit.params` of the bundle's `config.json`."""
        path = Path(__file__).resolve().parents[1] / "config.json"
        config = json.loads(path.read_text(encoding="utf-8"))
        return {**config["_kit"]["params"], **self._overrides}

    def generate(self, data_map: dict[str, pd.DataFrame]) -> dict[str, pd.Series]:
        """Return the target weight of each symbol at the close of each of its rows.

        Args:
            data_map: Frame of daily bars per symbol.

        Returns:
            Per symbol a float64 series on the frame's own index: 0, or 1 / max_positions while
            the position is on. A halt keeps the weight of the bar before it.
        """
        params = self.params()
        weights = {}
        for symbol, frame in data_map.items():
            held = _held(_measure(_traded(frame), params), params) / params["max_positions"]
            weights[symbol] = held.reindex(frame.index).ffill().fillna(0.0).rename(symbol)
        return weights

    def screen_today(
        self,
        data_map: dict[str, pd.DataFrame],
        today: object,
        sector_filter: list[str] | None = None,
        limit: int = 3,
    ) -> list[Pick]:
        """Return the breakouts of one session, the smallest step above the channel first.

        Args:
            data_map: Frame of daily bars per symbol; rows after `today` are not looked at.
            today: The session (date, ISO text or Timestamp). A symbol without a bar on that day
                is not screened.
            sector_filter: Industry names to keep; None or empty keeps all, and so does a symbol
                whose industry is unknown. This bundle has no step that names any.
            limit: At most this many picks.

        Returns:
            Picks ordered by score, then by symbol.
        """
        params = self.params()
        day = pd.Timestamp(today).normalize()
        # The bars the rule looks at: the answer does not depend on how many came before.
        reach = max(params["channel_bars"], params["exit_bars"], params["volume_window"]) + 1
        picks = []
        for symbol, frame in data_map.items():
            industry = frame.attrs.get("industry")
            if sector_filter and industry and industry not in sector_filter:
                continue
            measured = _measure(_traded(frame.loc[:day]).tail(reach), params)
            if len(measured) and measured.index[-1] == day and measured["entry"].iloc[-1]:
                picks.append(_pick(symbol, measured.iloc[-1], params))
        return sorted(picks, key=lambda pick: (pick.score, pick.symbol))[:limit]


def _traded(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that are bars: halts have no volume."""
    return frame[(frame["close"] > 0) & (frame["volume"] > 0)]


def _measure(bars: pd.DataFrame, params: dict) -> pd.DataFrame:
    """Return, per traded bar, the channels of the bars before it and what they decide."""
    top = _before(bars["high"], params["channel_bars"], np.max)
    bottom = _before(bars["low"], params["exit_bars"], np.min)
    ratio = bars["volume"] / _before(bars["volume"], params["volume_window"], np.mean)
    step = bars["close"] / top - 1
    entry = (
        (step > 0)
        & (step <= params["breakout_max_pct"] / 100)
        & (ratio >= params["volume_ratio_min"])
    )
    return pd.DataFrame(
        {
            "close": bars["close"],
            "top": top,
            "step": step,
            "ratio": ratio,
            "entry": entry,
            "leave": bars["close"] < bottom,
        }
    )


def _before(values: pd.Series, bars: int, how: Callable) -> np.ndarray:
    """Return a statistic of the `bars` values before each row, NaN until there are that many."""
    found = np.full(len(values), np.nan)
    if len(values) > bars:
        windows = np.lib.stride_tricks.sliding_window_view(values.to_numpy()[:-1], bars)
        found[bars:] = how(windows, axis=1)
    return found


def _held(measured: pd.DataFrame, params: dict) -> pd.Series:
    """Return 1.0 on bars with a position: a breakout in reach, and no exit since."""
    place = pd.Series(np.arange(len(measured), dtype="float64"), index=measured.index)
    never = -float(params["max_hold_bars"])
    entered = place.where(measured["entry"]).ffill().fillna(never)
    left = place.where(measured["leave"]).ffill().fillna(never)
    young = place - entered < params["max_hold_bars"]
    return ((entered > left) & young).astype("float64")


def _pick(symbol: str, row: pd.Series, params: dict) -> Pick:
    """Describe one pick by what was measured."""
    fields = {
        "close": round(float(row["close"]), 3),
        "channel_high": round(float(row["top"]), 3),
        "breakout_pct": round(float(row["step"]) * 100, 2),
        "channel_bars": int(params["channel_bars"]),
        "volume_ratio": round(float(row["ratio"]), 2),
        "volume_window": int(params["volume_window"]),
    }
    score = round(float(row["step"]), 6)
    return Pick(str(symbol), score, fields, [RULE_BREAKOUT, RULE_VOLUME])
