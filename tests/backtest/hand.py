"""A market of a few bars written by hand, kept in a Parquet store of the test's own."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl

from kit.backtest import BacktestResult, run_backtest
from kit.backtest.settings import Settings
from kit.market import (
    Dropped,
    MarketPanel,
    MarketRules,
    ParquetSource,
    Security,
    board_of,
    load_panel,
)
from kit.market.bars import BAR_COLUMNS
from kit.workspace import Workspace

# Days of bars; the first twenty, Monday 2024-03-04 to Friday 2024-03-29, really were sessions.
DAYS = pd.bdate_range("2024-03-04", periods=120)
CASH = 100_000.0


@cache
def rules(market: str = "cn") -> MarketRules:
    """Return the shipped rules; reading and checking them anew for every test costs more."""
    return MarketRules.load(Workspace.at(Path(__file__).resolve().parents[2]), market)


class Wanted:
    """An engine that wants what it is told, bar by bar; `seen` keeps the frames it was shown."""

    def __init__(self, weights: Mapping[str, Sequence[float]]) -> None:
        self._weights = {
            symbol: pd.Series(list(series), index=DAYS[: len(series)], dtype="float64")
            for symbol, series in weights.items()
        }
        self.seen: dict[str, pd.DataFrame] = {}

    def generate(self, data_map: Mapping[str, pd.DataFrame]) -> dict[str, pd.Series]:
        self.seen = {symbol: data_map[symbol].copy() for symbol in data_map}
        return {
            symbol: series.reindex(self.seen[symbol].index)
            for symbol, series in self._weights.items()
        }


class HandMarket:
    """Mainland symbols and their bars; `add` them, then `run` target weights.

    Args:
        root: Folder of the store.
        market: Whose rules apply.
    """

    def __init__(self, root: Path, market: str = "cn") -> None:
        self._root = root
        self._market = market
        self._frames: list[pl.DataFrame] = []
        self._securities: list[Security] = []

    def add(
        self,
        symbol: str,
        closes: Sequence[float | None],
        *,
        opens: Sequence[float | None] | None = None,
        factor: float | Sequence[float] = 1.0,
        volume: Sequence[float] | None = None,
        amount: Sequence[float | None] | None = None,
        adjust: str = "none",
        source: str = "hand",
        name: str | None = None,
        kind: str = "stock",
        is_st: bool = False,
        listed: str | None = None,
        lot: int | None = None,
        was_st: Sequence[bool | None] | None = None,
        **stated: Sequence[Any],
    ) -> HandMarket:
        """Add a symbol with one bar a day from the first of `DAYS`; a None close is no bar.

        `stated` holds optional columns (`limit_up`, `suspended`, ...), `was_st` the one named
        `is_st`; a value or None a bar.
        """
        rows = []
        for place, close in enumerate(closes):
            if close is None:
                continue
            given = opens[place] if opens is not None else None
            first = close if given is None else given
            row: dict[str, Any] = dict.fromkeys(BAR_COLUMNS) | {
                "symbol": symbol,
                "time": DAYS[place].to_pydatetime(),
                "open": float(first),
                "high": float(max(first, close)),
                "low": float(min(first, close)),
                "close": float(close),
                "volume": float(volume[place]) if volume is not None else 1_000_000.0,
                "amount": amount[place] if amount is not None else None,
                "adj_factor": float(factor if isinstance(factor, int | float) else factor[place]),
                "adjust": adjust,
                "source": source,
            }
            if was_st is not None:
                row["is_st"] = was_st[place]
            row |= {name: values[place] for name, values in stated.items()}
            rows.append(row)
        self._frames.append(pl.DataFrame(rows, schema=BAR_COLUMNS))
        self._securities.append(
            Security(
                symbol=symbol,
                name=symbol if name is None else name,
                board=board_of(symbol),
                market=self._market,
                lot=lot,
                kind=kind,
                is_st=is_st,
                listed_date=None if listed is None else date.fromisoformat(listed),
            )
        )
        return self

    def panel(self, adjustment: str = "none") -> MarketPanel:
        """Write the store and open a panel of everything in it."""
        folder = self._root / self._market / "1d"
        folder.mkdir(parents=True, exist_ok=True)
        pl.concat(self._frames).write_parquet(folder / "hand.parquet")
        listed = json.dumps(
            {"securities": [asdict(security) for security in self._securities]}, default=str
        )
        (folder.parent / "securities.json").write_text(listed, encoding="utf-8")
        symbols = [security.symbol for security in self._securities]
        return load_panel(
            ParquetSource(self._root),
            symbols,
            DAYS[0].date(),
            DAYS[-1].date(),
            market=self._market,
            adjustment=adjustment,
        )

    def run(
        self,
        weights: Mapping[str, Sequence[float]] | Any,
        *,
        adjustment: str = "none",
        evaluation_start: str | None = None,
        benchmark: pd.Series | None = None,
        dropped: Sequence[Dropped] = (),
        market_rules: MarketRules | None = None,
        **settings: Any,
    ) -> BacktestResult:
        """Backtest weights (or an engine) on 100,000 yuan without slippage, unless told."""
        return run_backtest(
            Wanted(weights) if isinstance(weights, Mapping) else weights,
            self.panel(adjustment),
            Settings(**{"initial_cash": CASH, "slippage": 0.0, **settings}),
            rules=market_rules or rules(self._market),
            securities=self._securities,
            evaluation_start=None
            if evaluation_start is None
            else date.fromisoformat(evaluation_start),
            benchmark=benchmark,
            dropped=tuple(dropped),
        )


def orders(result: BacktestResult) -> list[tuple[str, str, str, float, float]]:
    """Return day, symbol, side, shares and raw price of every fill, in time order."""
    return [
        (f"{o.time:%m-%d}", o.symbol, o.side, round(o.size, 9), round(o.price, 9))
        for o in result.orders.itertuples()
    ]


def unfilled(result: BacktestResult) -> dict[str, dict[str, int]]:
    """Return the causes that were counted, by symbol."""
    return {
        str(symbol): {str(cause): int(count) for cause, count in row.items() if count}
        for symbol, row in result.unfilled.iterrows()
        if row.any()
    }
