"""A-shares that lag a rally of American technology names: one self-contained engine.

The rule, on daily bars:

* the basket, a handful of large American technology names, has risen together over a few sessions:
  its equal-weight mean by enough, and nearly all of its members;
* the A-share has begun to follow, and has not run yet: its own move over as many of its sessions is
  not negative and not large;
* the position is held for a fixed number of bars after the latest such day.

The basket is context: its frames stand in `data_map` beside the tradable ones, and get no weight.
They must be dated to the first Shanghai session that begins after the New York close, several New
York sessions that fall into one combined (`data_contract.context` of the manifest says so, and the
kit does it); a row dated t was then known before the open of t. To run this file in Vibe-Trading,
name the basket's codes beside the others in `codes` and give its bars dated that way: frames come
by their codes, and nothing else differs.

Only pandas is imported, and every number of the rule is read from `config.json`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import pandas as pd

RULE_RALLY = "us_tech_rally"
RULE_LAG = "lags_the_rally"
RULE_FOCUS = "event_focus"
UNKNOWN_INDUSTRY = "未知"


class Pick(NamedTuple):
    """One stock of a screen.

    Attributes:
        symbol: Exchange-suffixed code, such as 600000.SH.
        score: Own move less the basket's, in percentage points; smaller (further behind) is first.
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
        """Return the target weight of each tradable symbol at the close of each of its rows.

        Args:
            data_map: Frame of daily bars per symbol, the basket's among them.

        Returns:
            Per symbol outside the basket a float64 series on the frame's own index: 0, or
            1 / max_positions from an entry on, for `hold_bars` bars.
        """
        params = self.params()
        rally = _rally(data_map, params)
        weights = {}
        for symbol, frame in data_map.items():
            if symbol in params["basket"]:
                continue
            entry = _measure(frame, rally, params)["entry"].astype("float64")
            held = entry.rolling(params["hold_bars"], min_periods=1).max()
            weight = (held / params["max_positions"]).reindex(frame.index).ffill().fillna(0.0)
            weights[symbol] = weight.rename(symbol)
        return weights

    def screen_today(
        self,
        data_map: dict[str, pd.DataFrame],
        today: object,
        sector_filter: list[str] | None = None,
        limit: int = 3,
    ) -> list[Pick]:
        """Return the best picks of one session, furthest behind the basket first.

        Args:
            data_map: Frame of daily bars per symbol, the basket's among them; rows after `today`
                are not looked at.
            today: The session (date, ISO text or Timestamp). A symbol without a bar on that day
                is not screened; without news from the basket since the last open there is none.
            sector_filter: Industries and symbols to keep; None or empty keeps all. A symbol whose
                industry is unknown is kept, and its fields say so.
            limit: At most this many picks.

        Returns:
            Picks ordered by score, then by symbol.
        """
        params = self.params()
        day = pd.Timestamp(today).normalize()
        # The last bars alone: the answer does not depend on how many came before.
        bars = params["move_bars"] + 1
        recent = {s: data_map[s].loc[:day].tail(bars) for s in params["basket"] if s in data_map}
        rally = _rally(recent, params)
        if day not in rally.index or not _on(rally, params)[day]:
            return []
        picks = []
        for symbol, frame in data_map.items():
            if symbol in params["basket"]:
                continue
            measured = _measure(frame.loc[:day], rally, params)
            if not len(measured) or measured.index[-1] != day or not measured["entry"].iloc[-1]:
                continue
            pick = _pick(symbol, measured.iloc[-1], _industry(data_map, symbol, frame), params)
            if _fits(pick, sector_filter):
                picks.append(_noted(pick, sector_filter))
        return sorted(picks, key=lambda pick: (pick.score, pick.symbol))[:limit]


def _rally(data_map: dict[str, pd.DataFrame], params: dict) -> pd.DataFrame:
    """Return, per session that had news of the basket, its mean move and its breadth.

    A member counts where it has a bar of that session and enough bars before it.
    """
    bars = params["move_bars"]
    moves = {
        symbol: (data_map[symbol]["close"] / data_map[symbol]["close"].shift(bars) - 1) * 100
        for symbol in params["basket"]
        if symbol in data_map
    }
    table = pd.DataFrame(moves, index=None if moves else pd.DatetimeIndex([]))
    return pd.DataFrame(
        {"move": table.mean(axis=1), "up": (table > 0).sum(axis=1), "names": table.count(axis=1)}
    )


def _on(rally: pd.DataFrame, params: dict) -> pd.Series:
    """Say on which rows the basket has risen enough; a row without news of it has not."""
    return (rally["move"] >= params["us_move_pct"]) & (rally["up"] >= params["us_up_min"])


def _measure(frame: pd.DataFrame, rally: pd.DataFrame, params: dict) -> pd.DataFrame:
    """Return, per traded bar, the stock's own move, the basket's, and whether it is an entry."""
    # A row without volume is a halt: no bar, and windows step over it.
    traded = frame[(frame["close"] > 0) & (frame["volume"] > 0)]
    own = (traded["close"] / traded["close"].shift(params["move_bars"]) - 1) * 100
    # Sessions without news of the basket say nothing, whatever it did before.
    abroad = rally.reindex(traded.index)
    entry = _on(abroad, params) & (own >= params["own_min_pct"]) & (own <= params["own_max_pct"])
    return pd.DataFrame(
        {
            "close": traded["close"],
            "own": own,
            "us": abroad["move"],
            "up": abroad["up"],
            "names": abroad["names"],
            "entry": entry,
        }
    )


def _pick(symbol: str, row: pd.Series, industry: str | None, params: dict) -> Pick:
    """Describe one pick by what was measured."""
    own, abroad = float(row["own"]), float(row["us"])
    fields = {
        "close": round(float(row["close"]), 3),
        "own_move_pct": round(own, 2),
        "basket_move_pct": round(abroad, 2),
        "lag_points": round(abroad - own, 2),
        "basket_up": int(row["up"]),
        "basket_names": int(row["names"]),
        "move_bars": int(params["move_bars"]),
        "industry": UNKNOWN_INDUSTRY if industry is None else industry,
    }
    return Pick(str(symbol), round(own - abroad, 4), fields, [RULE_RALLY, RULE_LAG])


def _fits(pick: Pick, focus: list[str] | None) -> bool:
    """Say whether a focus keeps a pick: by its symbol, its industry, or for want of one."""
    industry = pick.fields["industry"]
    return not focus or industry == UNKNOWN_INDUSTRY or pick.symbol in focus or industry in focus


def _noted(pick: Pick, focus: list[str] | None) -> Pick:
    """Add to a pick what the focus has to do with it."""
    if not focus:
        return pick
    if pick.symbol in focus or pick.fields["industry"] in focus:
        return pick._replace(matched_rules=[*pick.matched_rules, RULE_FOCUS])
    return pick._replace(fields={**pick.fields, "sector_note": "行业未知，未按事件过滤"})


def _industry(data_map: object, symbol: str, frame: pd.DataFrame) -> str | None:
    """Return a symbol's industry, or None when nobody says.

    A plain frame may carry it in `attrs["industry"]`; a market panel in `securities[symbol]`.
    """
    if frame.attrs.get("industry"):
        return str(frame.attrs["industry"])
    securities = getattr(data_map, "securities", None) or {}
    return getattr(securities.get(symbol), "industry", None) or None
