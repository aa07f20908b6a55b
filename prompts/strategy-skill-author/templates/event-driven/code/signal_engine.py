"""Reaction to an event: a jump on heavy volume, in a sector the news concerns.

The news is read by the LLM step before the screen; this file sees its answer as `sector_filter`.
Bars carry open, high, low, close, volume, indexed by session. Only numpy and pandas may be
imported, and every number is read from `config.json`, so that changing one is a patch.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import pandas as pd


class Pick(NamedTuple):
    """One stock of a screen; `score` ranks it, `fields` may be quoted, as JSON values."""

    symbol: str
    score: float
    fields: dict
    matched_rules: list


def traded(frame: pd.DataFrame) -> pd.DataFrame:
    """Leave halts out: a row without volume is no bar, and windows step over it."""
    return frame[frame["volume"] > 0]


def measure(frame: pd.DataFrame, params: dict) -> pd.DataFrame:
    """Return, for each traded bar, what the rule looks at and whether it is an entry."""
    bars = traded(frame)
    jump = bars["close"].pct_change() * 100
    usual = bars["volume"].shift(1).rolling(params["volume_window"]).mean()
    ratio = bars["volume"] / usual
    entry = (jump >= params["jump_pct"]) & (ratio >= params["volume_ratio_min"])
    return pd.DataFrame({"close": bars["close"], "jump": jump, "ratio": ratio, "entry": entry})


class SignalEngine:
    """Buys a strong reaction and holds it for `hold_bars`."""

    def params(self) -> dict:
        """Return the numbers of the rule: `_kit.params` of `config.json`."""
        path = Path(__file__).resolve().parents[1] / "config.json"
        return json.loads(path.read_text(encoding="utf-8"))["_kit"]["params"]

    def generate(self, data_map):
        """Return target weights for every bar of every symbol."""
        params = self.params()
        weights = {}
        for symbol in data_map:
            frame = data_map[symbol]
            entry = measure(frame, params)["entry"].astype(float)
            held = entry.rolling(params["hold_bars"], min_periods=1).max()
            weight = (held / params["max_positions"]).reindex(frame.index)
            weights[symbol] = weight.ffill().fillna(0.0)
        return weights

    def screen_today(self, data_map, today, sector_filter=None, limit=7):
        """Return at most `limit` picks of the session `today`, best first."""
        params = self.params()
        day = pd.Timestamp(today)
        picks = []
        for symbol in data_map:
            frame = data_map[symbol].loc[:day]
            industry = frame.attrs.get("industry")
            if sector_filter and industry and industry not in sector_filter:
                continue
            measured = measure(frame, params)
            if len(measured) and measured.index[-1] == day and measured["entry"].iloc[-1]:
                picks.append(self.pick(symbol, measured.iloc[-1]))
        return sorted(picks, key=lambda pick: (pick.score, pick.symbol))[:limit]

    def pick(self, symbol, row):
        """Describe one pick: the strongest reaction ranks first, so the score is its negative."""
        fields = {
            "close": round(float(row["close"]), 3),
            "jump_pct": round(float(row["jump"]), 2),
            "volume_ratio": round(float(row["ratio"]), 2),
        }
        return Pick(symbol, -fields["jump_pct"], fields, ["jump_on_heavy_volume"])
