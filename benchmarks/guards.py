"""How long the lookahead guard takes, against one backtest measured in the same run.

    python benchmarks/guards.py [--symbols 500] [--bars 2500] [--rounds 3]

Owed: at most ten backtests for the default stride, Parquet to metrics, warm. Two engines of one
rule (SMA 20/60): with a vectorised form, and with plain frames only. The exhaustive check of a
sample, which `kit validate` adds, is timed beside it.

Bars are generated (a seeded random walk): this measures time, nothing else.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from backtest import Crossing, store

OWED = 10.0


class Pick(NamedTuple):
    symbol: str
    score: float
    fields: dict[str, float]
    matched_rules: list[str]


class Plain:
    """SMA 20 over SMA 60 with one frame a symbol."""

    def generate(self, data_map: Mapping[str, pd.DataFrame]) -> dict[str, pd.Series]:
        share = 1 / len(data_map)
        weights = {}
        for symbol in data_map:
            close = data_map[symbol]["close"]
            weights[symbol] = (close.rolling(20).mean() > close.rolling(60).mean()) * share
        return weights

    def screen_today(
        self, data_map: Mapping[str, pd.DataFrame], today: Any, _sectors: Any = None, limit: int = 7
    ) -> list[Pick]:
        gaps = {}
        for symbol in data_map:
            frame = data_map[symbol]
            close = frame["close"].to_numpy()[
                : frame.index.searchsorted(pd.Timestamp(today), "right")
            ]
            if len(close) >= 60:
                gaps[symbol] = float(close[-20:].mean() / close[-60:].mean() - 1)
        best = sorted((gap, symbol) for symbol, gap in gaps.items() if gap > 0)[:limit]
        return [Pick(symbol, gap, {}, []) for gap, symbol in best]


class Vectorised(Plain, Crossing):
    """The same with `generate_panel` beside it."""


def worked(run: Callable[[], Any]) -> float:
    """Return seconds of processor time, which a busy neighbour does not stretch."""
    began = time.process_time()
    run()
    return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--symbols", type=int, default=500)
    parser.add_argument("--bars", type=int, default=2_500)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    from kit.backtest import run_backtest
    from kit.backtest.lookahead import check_lookahead
    from kit.backtest.sample import exhaustive_sample
    from kit.backtest.settings import Settings
    from kit.market import MarketRules, ParquetSource, load_panel
    from kit.workspace import init_workspace

    print(f"{options.symbols:,} symbols x {options.bars:,} bars")
    with tempfile.TemporaryDirectory() as folder:
        workspace = init_workspace(Path(folder) / "workspace")
        first, last, codes = store(workspace.market_dir, options.bars, options.symbols)
        rules = MarketRules.load(workspace, "cn")
        settings = Settings(initial_cash=200_000.0 * len(codes), slippage=0.001, warmup_bars=60)

        def opened() -> Any:
            source = ParquetSource(workspace.market_dir)
            return load_panel(source, codes, first, last, market="cn")

        def backtest(engine: Callable[[], Any]) -> None:
            panel = opened()
            known = {
                one.symbol: one for one in ParquetSource(workspace.market_dir).securities("cn")
            }
            result = run_backtest(
                engine(),
                panel,
                settings,
                rules=rules,
                securities=[known[code] for code in panel.symbols],
            )
            result.metrics.to_dict()

        def guard(engine: Callable[[], Any]) -> None:
            check_lookahead(engine, opened())

        for engine in (Vectorised, Plain):
            backtest(engine)
            pairs = [
                (worked(lambda e=engine: backtest(e)), worked(lambda e=engine: guard(e)))
                for _ in range(options.rounds)
            ]
            one, checked = (min(column) for column in zip(*pairs, strict=True))
            whole = worked(lambda e=engine: exhaustive_sample(e, opened()))
            print(f"{engine.__name__}")
            print(f"  one backtest, warm            {one:8.2f} s")
            print(f"  lookahead guard               {checked:8.2f} s")
            print(f"  ratio                         {checked / one:8.2f} x   (owed: <= {OWED:g} x)")
            print(f"  exhaustive on a sample        {whole:8.2f} s")


if __name__ == "__main__":
    main()
