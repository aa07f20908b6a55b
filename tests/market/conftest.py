"""Small bars made by hand, and a source that serves them from memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, datetime, time, timedelta
from typing import Any

import polars as pl
import pytest

from kit.market.bars import BAR_COLUMNS, fingerprint_frame
from kit.market.sources import Coverage, Security

MakeBars = Callable[..., pl.DataFrame]
MakeSource = Callable[..., Any]


def _bars(
    symbol: str,
    days: Sequence[str],
    close: Sequence[float],
    /,
    *,
    factor: Sequence[float] | None = None,
    adjust: str = "none",
    **columns: Sequence[Any],
) -> pl.DataFrame:
    """Bars whose open is the close, high one above it and low one below, unless given."""
    count = len(days)
    values: dict[str, Any] = {
        "symbol": [symbol] * count,
        "time": [datetime.fromisoformat(day) for day in days],
        "open": list(close),
        "high": [value + 1 for value in close],
        "low": [value - 1 for value in close],
        "close": list(close),
        "volume": [1000.0 + place for place in range(count)],
        "amount": [None] * count,
        "adj_factor": list(factor) if factor is not None else [1.0] * count,
        "adjust": [adjust] * count,
        "source": ["hand"] * count,
        **{name: [None] * count for name in list(BAR_COLUMNS)[11:]},
        **columns,
    }
    return pl.DataFrame(values, schema=BAR_COLUMNS)


class MemorySource:
    """A bar source over one frame; `reads` counts how often bars were asked for."""

    name = "memory"

    def __init__(self, *frames: pl.DataFrame, securities: Sequence[Security] = ()) -> None:
        self.frame = pl.concat(frames)
        self._securities = tuple(securities) or tuple(
            Security(symbol=symbol, name=symbol)
            for symbol in self.frame["symbol"].unique(maintain_order=True)
        )
        self.reads = 0

    def bars(
        self, symbols: Sequence[str], start: date, end: date, interval: str = "1d"
    ) -> pl.LazyFrame:
        self.reads += 1
        after = datetime.combine(end + timedelta(days=1), time())
        return self.frame.lazy().filter(
            pl.col("symbol").is_in(list(symbols)),
            pl.col("time") >= datetime.combine(start, time()),
            pl.col("time") < after,
        )

    def securities(self, market: str) -> tuple[Security, ...]:
        return tuple(s for s in self._securities if s.market == market)

    def coverage(self, market: str, interval: str = "1d") -> Coverage:
        times = self.frame["time"]
        return Coverage(
            symbols=tuple(sorted(self.frame["symbol"].unique())),
            first=times.min().date(),  # type: ignore[union-attr]
            last=times.max().date(),  # type: ignore[union-attr]
        )

    def fingerprint(self, symbols: Sequence[str], start: date, end: date, interval: str) -> str:
        return fingerprint_frame(self.bars(symbols, start, end, interval).collect())


@pytest.fixture
def make_bars() -> MakeBars:
    """Build a frame of bars: `make_bars("A", ["2024-01-02"], [10.0])`."""
    return _bars


@pytest.fixture
def make_source() -> MakeSource:
    """Build a source out of frames."""
    return MemorySource
