"""Pullback to the 250-day line: one self-contained engine for backtests and the daily screen.

The rule, on daily bars:

* the 250-day mean of closes (MA250) is rising, and price has recently been living above it;
* today price comes back to the line: the day's low reaches it, the close stays on its upper side;
* the pullback is quiet: volume does not exceed its own recent mean by much;
* the position ends when the line is lost for good, when price has run far from it, or when
  nothing has confirmed the trade for too long.

Bars carry open, high, low, close, volume as float64, indexed by session date. A row without a
positive close and low, or with zero volume, is a halt: it is not a bar, windows step over it.

Only pandas and numpy are imported, and every number of the rule is read from `config.json`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

RULE_TREND = "above_rising_ma250"
RULE_PULLBACK = "pullback_to_ma250"
RULE_VOLUME = "quiet_volume"
RULE_SECTOR = "sector_focus"
UNKNOWN_INDUSTRY = "未知"


class Pick(NamedTuple):
    """One stock of a screen.

    Attributes:
        symbol: Exchange-suffixed code, such as 000783.SZ.
        score: (close - MA250) / MA250, a fraction; smaller ranks first.
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
            values = _weights(*_columns(frame), params)
            weights[symbol] = pd.Series(values[:, 0], index=frame.index, name=symbol)
        return weights

    def generate_panel(self, panel: object) -> pd.DataFrame:
        """Return the same weights as `generate`, computed for all symbols at once.

        Args:
            panel: Object whose `wide(field)` is a frame of dates x symbols, NaN without a bar.

        Returns:
            float64 frame, dates x symbols; 0 before a symbol's first bar.
        """
        close = panel.wide("close")
        values = _weights(*_wide_columns(panel, close), self.params())
        return pd.DataFrame(values, index=close.index, columns=close.columns)

    def screen_today(
        self,
        data_map: dict[str, pd.DataFrame],
        today: object,
        sector_filter: list[str] | None = None,
        limit: int = 7,
    ) -> list[Pick]:
        """Return the best picks of one session, nearest to the line first.

        Args:
            data_map: Frame of daily bars per symbol; rows after `today` are not looked at.
            today: The session (date, ISO text or Timestamp). A symbol without a bar on that day
                is not screened.
            sector_filter: Industry names to keep; None or empty keeps all. A symbol whose
                industry is unknown is kept, and its fields say so.
            limit: At most this many picks.

        Returns:
            Picks ordered by score, then by symbol.
        """
        params = self.params()
        day = pd.Timestamp(today).normalize()
        needed = params["ma_window"] + params["trend_bars"]
        picks = []
        for symbol, frame in data_map.items():
            rows = int(frame.index.searchsorted(day, side="right"))
            if rows == 0 or frame.index[rows - 1] != day:
                continue
            close, low, volume = (column[:rows] for column in _columns(frame))
            traded = _traded(close, low, volume)[:, 0]
            if not traded[-1] or traded.sum() < needed:
                continue
            # Exactly the bars the rule needs: the answer does not depend on how many came before.
            tail = [column[traded][-needed:] for column in (close, low, volume)]
            measured = _measure(*tail, params, first=params["ma_window"] - 1)
            industry = _industry(data_map, symbol, frame)
            picks += _picks([symbol], measured, [industry], sector_filter, params)
        return _ranked(picks, limit)

    def screen_panel(
        self,
        panel: object,
        today: object,
        sector_filter: list[str] | None = None,
        limit: int = 7,
    ) -> list[Pick]:
        """Return the same picks as `screen_today`, computed for all symbols at once.

        Args:
            panel: Object whose `wide(field)` is a frame of dates x symbols, NaN without a bar.
            today: The session.
            sector_filter: As in `screen_today`.
            limit: As in `screen_today`.
        """
        params = self.params()
        day = pd.Timestamp(today).normalize()
        close = panel.wide("close")
        rows = int(close.index.searchsorted(day, side="right"))
        if rows == 0 or close.index[rows - 1] != day:
            return []
        columns = [column[:rows] for column in _wide_columns(panel, close)]
        traded = _traded(*columns)
        needed = params["ma_window"] + params["trend_bars"]
        packed = _pack(columns, traded, _order(traded))
        tail = [column[-needed:] for column in packed]
        # A mean exists from row ma_window - 1 on; what stands before it decides nothing today.
        measured = _measure(*tail, params, first=min(params["ma_window"], len(tail[0])) - 1)
        measured["entry"] &= traded[-1]
        symbols = list(close.columns)
        # Names are looked up only for the few that passed.
        industries = [
            _industry(panel, symbol, None) if hit else None
            for symbol, hit in zip(symbols, measured["entry"][-1], strict=True)
        ]
        return _ranked(_picks(symbols, measured, industries, sector_filter, params), limit)


def _columns(frame: pd.DataFrame) -> list[np.ndarray]:
    """Return close, low, volume of one frame as columns of shape (rows, 1)."""
    return [
        frame[name].to_numpy(dtype="float64", copy=True).reshape(-1, 1)
        if name in frame
        else np.full((len(frame), 1), np.nan)
        for name in ("close", "low", "volume")
    ]


def _wide_columns(panel: object, close: pd.DataFrame) -> list[np.ndarray]:
    """Return close, low, volume of a panel as arrays of shape (dates, symbols)."""
    low = panel.wide("low")
    volume = panel.wide("volume")
    return [
        close.to_numpy(dtype="float64"),
        low.to_numpy(dtype="float64"),
        volume.to_numpy(dtype="float64"),
    ]


def _traded(close: np.ndarray, low: np.ndarray, volume: np.ndarray) -> np.ndarray:
    """Return where there is a bar: positive prices, and a volume that is not zero."""
    return (close > 0) & (low > 0) & (volume != 0)


def _order(traded: np.ndarray) -> np.ndarray:
    """Return, per cell, how many bars its column has had, this row included."""
    return np.cumsum(traded, axis=0, dtype="int32")


def _pack(columns: list[np.ndarray], traded: np.ndarray, order: np.ndarray) -> list[np.ndarray]:
    """Return the arrays with each column's bars moved to the bottom: no halt between two bars."""
    if (traded | (order == 0)).all():
        # Nothing but late listings: the bars are at the bottom already.
        return [np.where(traded, values, np.nan) for values in columns]
    rows, places = np.nonzero(traded)
    target = len(traded) - order[-1][places] + order[rows, places] - 1
    packed = []
    for values in columns:
        moved = np.full(values.shape, np.nan)
        moved[target, places] = values[rows, places]
        packed.append(moved)
    return packed


def _shift(values: np.ndarray, bars: int) -> np.ndarray:
    """Return the values of `bars` rows earlier, NaN where there are none."""
    if bars == 0:
        return values
    earlier = np.full(values.shape, np.nan)
    earlier[bars:] = values[: max(len(values) - bars, 0)]
    return earlier


def _window_sum(values: np.ndarray, bars: int) -> np.ndarray:
    """Return the sum of the last `bars` rows at each row, NaN until there are that many.

    Sums of 1, 2, 4, 8... rows are added up as the binary digits of `bars` say. Each result then
    depends on its own window alone, to the last bit: a running total would carry the rounding of
    everything before it, and the screen would disagree with the backtest on a tie.
    """
    total = None
    block = values
    width = 1
    covered = 0
    remaining = bars
    while remaining and len(block):
        if remaining & 1:
            part = block[: len(block) - covered]
            total = part if total is None else total[len(total) - len(part) :] + part
            covered += width
        remaining >>= 1
        if remaining:
            block = block[width:] + block[:-width]
            width *= 2
    sums = np.full(values.shape, np.nan)
    if len(values) >= bars:
        sums[bars - 1 :] = total
    return sums


def _measure(
    close: np.ndarray,
    low: np.ndarray,
    volume: np.ndarray,
    params: dict,
    first: int = 0,
) -> dict:
    """Return what the rule looks at, per bar from row `first` on; arrays are (bars, symbols).

    Keys: close, low, ma, trend_pct (MA250 against `trend_bars` bars ago), closes_above (of the
    `trend_bars` closes before today), volume_ratio (today over the mean of `volume_window` bars),
    entry (bool).
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        average = (_window_sum(close, params["ma_window"]) / params["ma_window"])[first:]
        usual = (_window_sum(volume, params["volume_window"]) / params["volume_window"])[first:]
        close, low, volume = close[first:], low[first:], volume[first:]
        trend_pct = (average / _shift(average, params["trend_bars"]) - 1) * 100
        above = np.where(np.isnan(average), np.nan, close > average)
        closes_above = _window_sum(_shift(above, 1), params["trend_bars"])
        volume_ratio = volume / usual
        entry = (
            (trend_pct > 0)
            & (closes_above >= params["min_closes_above"])
            & (low <= average * (1 + params["touch_pct"] / 100))
            & (close >= average)
            & (close <= average * (1 + params["near_pct"] / 100))
        )
        if params["volume_ratio_max"] is not None:
            entry &= volume_ratio <= params["volume_ratio_max"]
    return {
        "close": close,
        "low": low,
        "ma": average,
        "trend_pct": trend_pct,
        "closes_above": closes_above,
        "volume_ratio": volume_ratio,
        "entry": entry,
    }


def _weights(
    close: np.ndarray, low: np.ndarray, volume: np.ndarray, params: dict
) -> np.ndarray:
    """Return target weights of shape (rows, symbols).

    The last entry and the last exit decide: a fresh pullback renews the trade, so the answer at a
    bar depends on no more than `max_hold_bars` bars besides those the averages need.
    """
    traded = _traded(close, low, volume)
    if not len(traded):
        return np.zeros(close.shape)
    order = _order(traded)
    measured = _measure(*_pack([close, low, volume], traded, order), params)
    price, average = measured["close"], measured["ma"]
    with np.errstate(invalid="ignore"):
        lost = price < average * (1 - params["stop_pct"] / 100)
        lost_for_good = _window_sum(lost.astype("float64"), params["stop_days"])
        ran_away = price > average * (1 + params["take_pct"] / 100)
        leave = (lost_for_good >= params["stop_days"]) | ran_away
    bar = np.arange(len(price)).reshape(-1, 1)
    never = -len(price) - params["max_hold_bars"]
    entered = np.maximum.accumulate(np.where(measured["entry"], bar, never), axis=0)
    left = np.maximum.accumulate(np.where(leave, bar, never), axis=0)
    held = (entered > left) & (bar - entered < params["max_hold_bars"])
    packed = np.where(held, 1.0 / params["max_positions"], 0.0)
    # Back from bars to rows: a halted row looks at the bar before it.
    row = np.maximum(len(price) - order[-1] + order - 1, 0).astype("int64")
    weights = np.take_along_axis(packed, np.minimum(row, len(price) - 1), axis=0)
    return np.where(order == 0, 0.0, weights)


def _picks(
    symbols: list[str],
    measured: dict,
    industries: list[str | None],
    sector_filter: list[str] | None,
    params: dict,
) -> list[Pick]:
    """Return a pick for every column whose last bar is an entry and whose industry fits."""
    picks = []
    for column in np.flatnonzero(measured["entry"][-1]):
        industry = industries[column]
        if sector_filter and industry is not None and industry not in sector_filter:
            continue
        close, low, average = (
            float(measured[name][-1, column]) for name in ("close", "low", "ma")
        )
        ratio = float(measured["volume_ratio"][-1, column])
        fields = {
            "close": round(close, 3),
            "low": round(low, 3),
            "ma250": round(average, 3),
            "distance_pct": round((close - average) / average * 100, 2),
            "low_distance_pct": round((low - average) / average * 100, 2),
            "ma250_trend_pct": round(float(measured["trend_pct"][-1, column]), 2),
            "trend_bars": int(params["trend_bars"]),
            "closes_above": int(measured["closes_above"][-1, column]),
            "volume_ratio": round(ratio, 2) if np.isfinite(ratio) else None,
            "volume_window": int(params["volume_window"]),
            "industry": UNKNOWN_INDUSTRY if industry is None else industry,
        }
        rules = [RULE_TREND, RULE_PULLBACK]
        if params["volume_ratio_max"] is not None:
            rules.append(RULE_VOLUME)
        if sector_filter and industry is not None:
            rules.append(RULE_SECTOR)
        if sector_filter and industry is None:
            fields["sector_note"] = "行业未知，未按板块过滤"
        score = round((close - average) / average, 6)
        picks.append(Pick(str(symbols[column]), score, fields, rules))
    return picks


def _ranked(picks: list[Pick], limit: int) -> list[Pick]:
    """Return the `limit` picks nearest to the line; equal scores in symbol order."""
    return sorted(picks, key=lambda pick: (pick.score, pick.symbol))[:limit]


def _industry(data_map: object, symbol: str, frame: pd.DataFrame | None) -> str | None:
    """Return a symbol's industry, or None when nobody says.

    A plain frame may carry it in `attrs["industry"]`; a market panel in `securities[symbol]`.
    """
    if frame is not None and frame.attrs.get("industry"):
        return str(frame.attrs["industry"])
    securities = getattr(data_map, "securities", None) or {}
    security = securities.get(symbol)
    return getattr(security, "industry", None) or None
