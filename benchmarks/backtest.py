"""How long a backtest takes, against baselines measured in the same run.

    python benchmarks/backtest.py [--symbols 500] [--bars 2500] [--rounds 7]

1. The simulation kernel against a bare numba loop that reads the same arrays once.
2. The whole way from Parquet to metrics (SMA 20/60, CN rules), imports and compilation apart.
   The peer, Vibe-Trading 0.1.18, runs a smaller share of the same bars with the same rule, where
   KIT_PEER_PYTHON names a Python that has it, and is scaled by the symbol-bar. Where it is not
   installed, 120 microseconds a symbol-bar stand in, what it once took on such a bundle.

Bars are generated (a seeded random walk): this measures time, nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import tempfile
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

PEER_SECONDS_A_SYMBOL_BAR = 120e-6
OWED_KERNEL = 3.0
OWED_WHOLE = 100.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--symbols", type=int, default=500)
    parser.add_argument("--bars", type=int, default=2_500)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    cells = options.symbols * options.bars
    print(f"{options.symbols:,} symbols x {options.bars:,} bars = {cells:,} symbol-bars")
    print(f"imports                         {clocked(imports):8.2f} s")
    kernel(options.bars, options.symbols, options.rounds)
    whole(options.bars, options.symbols, options.rounds)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2
    print(f"peak memory                     {peak:8.2f} GiB")


def imports() -> None:
    import kit.backtest.engine
    import kit.market.panel  # noqa: F401


def clocked(run: Callable[[], Any]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def market(bars: int, symbols: int) -> tuple[Any, Any, Any, Any]:
    """Return opens, closes, and limits, `[T, N]`."""
    rng = np.random.default_rng(7)
    closes = np.round(10 * np.exp(np.cumsum(rng.normal(0, 0.02, (bars, symbols)), axis=0)), 2)
    closes = np.maximum(closes, 0.5)
    opens = np.maximum(np.round(closes * np.exp(rng.normal(0, 0.005, closes.shape)), 2), 0.5)
    before = np.vstack([np.full((1, symbols), np.nan), closes[:-1]])
    return opens, closes, np.round(before * 0.9, 2), np.round(before * 1.1, 2)


def crossing(closes: Any) -> Any:
    """Return weights of SMA 20 over SMA 60: an equal share of the account for each symbol."""
    sums = np.cumsum(np.vstack([np.zeros((1, closes.shape[1])), closes]), axis=0)
    fast, slow = np.full(closes.shape, np.nan), np.full(closes.shape, np.nan)
    fast[19:] = (sums[20:] - sums[:-20]) / 20
    slow[59:] = (sums[60:] - sums[:-60]) / 60
    return (fast > slow) / closes.shape[1]


class Crossing:
    """The same rule as a signal engine."""

    def generate_panel(self, panel: Any) -> Any:
        close = panel.wide("close")
        return close * 0.0 + crossing(close.to_numpy())


def kernel(bars: int, symbols: int, rounds: int) -> None:
    import numba

    from kit.backtest.kernel import Costs, Market, simulate
    from kit.market import FeeSchedule

    opens, closes, down, up = market(bars, symbols)
    adjust = np.ones(closes.shape)
    weights = crossing(closes)
    arguments: dict[str, Any] = {
        "fill": opens,
        "mark": closes,
        "adjust": adjust,
        "weights": weights,
        "market": Market(
            up=up,
            down=down,
            min_lot=np.full(symbols, 100),
            step=np.full(symbols, 100),
            session=np.arange(bars),
            t_plus=1,
            allow_short=False,
        ),
        "costs": Costs(
            fees=FeeSchedule(
                names=("commission", "transfer", "stamp"),
                part=np.array([0, 1, 2]),
                per=np.zeros(3, dtype=np.int64),
                rounding=np.zeros(3, dtype=np.int64),
                buy=np.array([[np.full(bars, rate) for rate in (0.00025, 0.00001, 0.0)]]),
                sell=np.array([[np.full(bars, rate) for rate in (0.00025, 0.00001, 0.0005)]]),
                least=np.array([np.full(bars, least) for least in (5.0, 0.0, 0.0)]),
                most=np.full((3, bars), np.inf),
            ),
            kind=np.zeros(symbols, dtype=np.int64),
            slippage=0.001,
        ),
        "initial_cash": 200_000.0 * symbols,
    }

    @numba.njit(error_model="numpy")  # type: ignore[untyped-decorator]
    def bare(a: Any, b: Any, c: Any, d: Any, e: Any, f: Any) -> Any:
        out = np.empty(len(a))
        for t in range(a.shape[0]):
            total = 0.0
            for i in range(a.shape[1]):
                total += a[t, i] * c[t, i] + b[t, i] * d[t, i] + e[t, i] - f[t, i]
            out[t] = total
        return out

    arrays = (opens, closes, adjust, weights, up, down)
    first = clocked(lambda: simulate(**arguments))
    bare(*arrays)
    pairs = [
        (clocked(lambda: bare(*arrays)), clocked(lambda: simulate(**arguments)))
        for _ in range(3 * rounds)
    ]
    loop, ours = (min(column) for column in zip(*pairs, strict=True))
    orders = len(simulate(**arguments).orders)
    print(f"kernel, first call (JIT, cache) {first:8.2f} s")
    print(f"bare loop over the same arrays  {loop * 1e3:8.2f} ms")
    print(f"kernel, warm ({orders:,} orders) {ours * 1e3:11.2f} ms")
    print(f"ratio                           {ours / loop:8.2f} x   (owed: <= {OWED_KERNEL:g} x)")


def whole(bars: int, symbols: int, rounds: int) -> None:
    from kit.backtest import run_backtest
    from kit.backtest.settings import Settings
    from kit.market import MarketRules, ParquetSource, load_panel
    from kit.workspace import init_workspace

    with tempfile.TemporaryDirectory() as folder:
        workspace = init_workspace(Path(folder) / "workspace")
        first, last, codes = store(workspace.market_dir, bars, symbols)
        rules = MarketRules.load(workspace, "cn")
        settings = Settings(initial_cash=200_000.0 * symbols, slippage=0.001, warmup_bars=60)

        def run() -> None:
            source = ParquetSource(workspace.market_dir)
            panel = load_panel(source, codes, first, last, market="cn")
            by_code = {security.symbol: security for security in source.securities("cn")}
            result = run_backtest(
                Crossing(),
                panel,
                settings,
                rules=rules,
                securities=[by_code[code] for code in panel.symbols],
            )
            result.metrics.to_dict()

        cold = clocked(run)
        warm = min(clocked(run) for _ in range(rounds))
    each = peer_seconds_a_symbol_bar()
    said = "peer, measured and scaled" if each else "peer, by its time a symbol-bar"
    peer = (each or PEER_SECONDS_A_SYMBOL_BAR) * bars * symbols
    print(f"Parquet to metrics, first       {cold:8.2f} s")
    print(f"Parquet to metrics, warm        {warm:8.2f} s")
    print(f"{said:31} {peer:8.2f} s")
    print(f"ratio                           {peer / warm:8.0f} x   (owed: >= {OWED_WHOLE:g} x)")


PEER_RULE = """
class SignalEngine:
    def generate(self, data_map):
        share = 1.0 / len(data_map)
        found = {}
        for symbol, frame in data_map.items():
            close = frame["close"]
            wanted = close.rolling(20).mean() > close.rolling(60).mean()
            found[symbol] = wanted.astype("float64") * share
        return found
"""


def peer_seconds_a_symbol_bar(symbols: int = 20, bars: int = 750) -> float | None:
    """Time the peer on a few symbols; its imports, timed on ten bars of one, are left out."""
    python = os.environ.get("KIT_PEER_PYTHON")
    if not python:
        return None
    import pandas as pd

    opens, closes, _, _ = market(bars, symbols)
    days = pd.bdate_range("2013-01-02", periods=bars)
    codes = [f"{600_000 + n:06d}.SH" for n in range(symbols)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        bridge = folder / ".vibe-trading" / "data-bridge"
        bridge.mkdir(parents=True)
        sources = []
        for n, code in enumerate(codes):
            path = folder / f"{code}.csv"
            first, last = opens[:, n], closes[:, n]
            high, low = [f(first, last) for f in (np.maximum, np.minimum)]
            frame = {"date": days, "open": first, "high": high, "low": low, "close": last}
            pd.DataFrame(frame | {"volume": 1e6}).to_csv(path, index=False)
            sources.append({"symbol": code, "type": "csv", "path": str(path)})
        (bridge / "config.yaml").write_text(json.dumps({"sources": sources}), encoding="utf-8")
        around = {
            "HOME": name, "PATH": os.defpath, "PYTHONUTF8": "1",
            "VIBE_TRADING_ALLOWED_RUN_ROOTS": str(folder),
        }  # fmt: skip

        def run(some: list[str], end: Any) -> None:
            at = folder / "run"
            (at / "code").mkdir(parents=True, exist_ok=True)
            (at / "code" / "signal_engine.py").write_text(PEER_RULE, encoding="utf-8")
            config = {
                "source": "local", "codes": some, "start_date": str(days[0].date()),
                "end_date": str(end.date()), "initial_cash": 200_000.0 * len(some),
                "position_adjustment": "hold", "engine": "daily", "interval": "1D",
            }  # fmt: skip
            (at / "config.json").write_text(json.dumps(config), encoding="utf-8")
            command = [python, "-m", "backtest.runner", str(at)]
            subprocess.run(command, env=around, cwd=folder, check=True, capture_output=True)

        run(codes[:1], days[9])
        idle = clocked(lambda: run(codes[:1], days[9]))
        busy = clocked(lambda: run(codes, days[-1]))
    return (busy - idle) / (symbols * bars)


def store(root: Path, bars: int, symbols: int) -> tuple[date, date, list[str]]:
    """Write generated bars as one Parquet file; return the range and the codes."""
    import pandas as pd
    import polars as pl

    opens, closes, _, _ = market(bars, symbols)
    sessions = pd.bdate_range("2013-01-02", periods=bars)
    codes = [f"{600_000 + n:06d}.SH" for n in range(symbols)]
    length = bars * symbols
    frame = pl.DataFrame(
        {
            "symbol": np.repeat(codes, bars),
            "time": np.tile(sessions.to_numpy().astype("datetime64[us]"), symbols),
            "open": opens.T.reshape(-1),
            "high": np.maximum(opens, closes).T.reshape(-1),
            "low": np.minimum(opens, closes).T.reshape(-1),
            "close": closes.T.reshape(-1),
            "volume": np.full(length, 1e6),
            "amount": (closes * 1e6).T.reshape(-1),
            "adj_factor": np.ones(length),
        }
    ).with_columns(
        pl.lit("none").alias("adjust"),
        pl.lit("synthetic walk").alias("source"),
        pl.lit(None, dtype=pl.Datetime("us")).alias("as_of"),
        pl.lit(None, dtype=pl.Float64).alias("limit_up"),
        pl.lit(None, dtype=pl.Float64).alias("limit_down"),
        pl.lit(None, dtype=pl.Boolean).alias("is_st"),
        pl.lit(None, dtype=pl.Boolean).alias("suspended"),
    )
    folder = root / "cn" / "1d"
    folder.mkdir(parents=True)
    frame.write_parquet(folder / "bars.parquet")
    listed = {"securities": [{"symbol": code, "name": code} for code in codes]}
    (folder.parent / "securities.json").write_text(json.dumps(listed), encoding="utf-8")
    return sessions[0].date(), sessions[-1].date(), codes


if __name__ == "__main__":
    main()
