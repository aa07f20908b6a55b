"""Generated bars, for markets without data that may be embedded; always marked as such.

Two generators: daily bars of an invented name, and a minute path inside a given daily bar (first
open, highest, lowest and last close are the day's). Both draw from a generator whose stream never
changes between versions, seeded by a text, so the same call gives the same bars on every machine.
What they make carries `source = "synthetic ..."`; that mark is what every reader goes by. It shows
how the kit works and is evidence of nothing.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from kit.market.bars import BAR_COLUMNS, SYNTHETIC

__all__ = ["daily_bars", "minute_bars"]

Floats = npt.NDArray[np.float64]
Step = Callable[[float], float]
"""The price step at a price."""

_DIVIDEND_MONTH: Final = 6
_OPEN_SHARE, _RANGE_SHARE = 0.3, 0.5  # of a day's volatility: the opening gap, the wicks
_NOISE_SHARE: Final = 0.15  # of a day's range: how far minutes stray from the straight way


def daily_bars(
    symbol: str,
    sessions: Sequence[date],
    *,
    seed: str,
    start: float,
    volatility: float,
    drift: float,
    dividend: float,
    shares: float,
    lot: int,
    step: Callable[[float, date], float],
) -> pl.DataFrame:
    """Generate daily bars: a random walk on the market's price steps, a dividend a year.

    Args:
        symbol: Invented code.
        sessions: Trading days.
        seed: Any text.
        start: Close before the first day.
        volatility: Standard deviation of a day's log return.
        drift: Largest mean of a day's log return; it swings through a cycle of two years.
        dividend: Share of the close that goes ex on the first session of each June.
        shares: Typical volume of a day.
        lot: Board lot; volumes are whole lots.
        step: The price step at a price on a date.

    Returns:
        `BAR_COLUMNS`, raw prices and the factor that the dividends make.
    """
    draws = _random(seed).standard_normal((len(sessions), 5))
    close, factor = start, 1.0
    rows = []
    month = sessions[0].month
    for day, (move, gap, above, below, busy) in zip(sessions, draws, strict=True):
        if day.month == _DIVIDEND_MONTH != month:
            unit = step(close, day)
            paid = round(close * dividend / unit) * unit
            factor *= close / (close - paid)
            close -= paid
        month = day.month
        mean = drift * math.sin(2 * math.pi * day.toordinal() / 730)
        opened = close * math.exp(_OPEN_SHARE * volatility * gap)
        closed = close * math.exp(mean + volatility * move)
        high = max(opened, closed) * math.exp(_RANGE_SHARE * volatility * abs(above))
        low = min(opened, closed) * math.exp(-_RANGE_SHARE * volatility * abs(below))
        prices = [_on_step(price, step(price, day)) for price in (opened, high, low, closed)]
        opened, closed = prices[0], prices[3]
        volume = lot * max(
            1, round(shares / lot * math.exp(0.4 * busy + 6 * volatility * abs(move)))
        )
        rows.append((day, opened, max(prices), min(prices), closed, float(volume), factor))
        close = closed
    names = ("time", "open", "high", "low", "close", "volume", "adj_factor")
    frame = pl.DataFrame(rows, schema=dict.fromkeys(names), orient="row", infer_schema_length=None)
    return _marked(frame, symbol, seed)


def minute_bars(
    day: Mapping[str, Any], ends: Sequence[datetime], *, seed: str, step: Step
) -> pl.DataFrame:
    """Generate minutes inside a daily bar.

    Args:
        day: A bar: symbol, open, high, low, close, volume, adj_factor.
        ends: Exchange-local end of each minute, ascending.
        seed: Any text; the symbol and the date are added to it.
        step: The price step at a price.

    Returns:
        `BAR_COLUMNS`, one row a minute. The first open, the highest high, the lowest low and the
        last close are the day's, the volumes add up to it, and each open is the close before.
    """
    seed = f"{seed} {day['symbol']} {ends[0]:%Y-%m-%d}"
    random = _random(seed)
    count = len(ends)
    opened, high, low, closed = (float(day[name]) for name in ("open", "high", "low", "close"))
    # The extremes fall on two minutes; between the four fixed points the path is a noisy bridge.
    peak, trough = (int(place) for place in random.permutation(count)[:2]) if count > 1 else (0, 0)
    fixed = sorted({(0, opened), (peak + 1, high), (trough + 1, low), (count, closed)})
    at = np.arange(count + 1)
    path = np.interp(at, [place for place, _ in fixed], [price for _, price in fixed])
    walk = random.standard_normal(count + 1).cumsum() / math.sqrt(count)
    bridge = walk - walk[0] - (walk[-1] - walk[0]) * at / count
    path = np.clip(path + _NOISE_SHARE * (high - low) * bridge, low, high)
    path = np.asarray([min(max(_on_step(p, step(p)), low), high) for p in path])
    path[0], path[-1] = opened, closed
    tops = np.maximum(path[:-1], path[1:])
    bottoms = np.minimum(path[:-1], path[1:])
    tops[peak], bottoms[trough] = high, low
    busy = 1 + 2 * (2 * np.linspace(0, 1, count) - 1) ** 2  # busy at both ends of the day
    weights = busy * np.exp(0.3 * random.standard_normal(count))
    volumes = np.floor(float(day["volume"]) * weights / weights.sum())
    volumes[-1] += float(day["volume"]) - volumes.sum()
    frame = pl.DataFrame(
        {
            "time": list(ends),
            "open": path[:-1],
            "high": tops,
            "low": bottoms,
            "close": path[1:],
            "volume": volumes,
            "adj_factor": np.full(count, float(day["adj_factor"])),
        }
    )
    return _marked(frame, day["symbol"], seed).with_columns(
        pl.lit(day.get("adjust", "none")).alias("adjust")
    )


def _marked(frame: pl.DataFrame, symbol: str, seed: str) -> pl.DataFrame:
    unknown = ("as_of", "limit_up", "limit_down", "is_st", "suspended")
    typical = (pl.col("open") + pl.col("high") + pl.col("low") + pl.col("close")) / 4
    return frame.with_columns(
        pl.lit(symbol).alias("symbol"),
        (typical * pl.col("volume")).round(2).alias("amount"),
        pl.lit("none").alias("adjust"),
        pl.lit(f"{SYNTHETIC}, seed {seed}").alias("source"),
        *(pl.lit(None, dtype=BAR_COLUMNS[name]).alias(name) for name in unknown),
    ).select(pl.col(name).cast(dtype) for name, dtype in BAR_COLUMNS.items())


def _on_step(price: float, step: float) -> float:
    return round(max(round(price / step), 1) * step, 6)


def _random(seed: str) -> np.random.RandomState:
    """Return the legacy generator: numpy promises that its stream never changes."""
    digest = hashlib.sha256(seed.encode()).digest()
    return np.random.RandomState(np.frombuffer(digest, dtype=np.uint32))
