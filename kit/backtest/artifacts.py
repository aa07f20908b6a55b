"""What Vibe-Trading's readers look for in a run folder, in its shapes.

Its readers open `run_card.json` and `artifacts/{equity,trades,metrics}.csv` beside `config.json`.
A round trip is two rows there, entry then exit; the entry row carries neither profit nor days. A
position still open at the end has no exit row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pandas as pd

from kit import files
from kit.backtest.facts import Facts
from kit.backtest.result import BacktestResult

__all__ = ["equity_table", "metrics_row", "peer_trades", "run_card"]

_TRADE_COLUMNS: Final = (
    "timestamp", "code", "side", "price", "qty", "reason", "pnl", "holding_days", "holding_bars",
    "return_pct", "event",
)  # fmt: skip
_SUMMARY: Final = (
    "codes", "start_date", "end_date", "interval", "engine", "initial_cash", "source",
)  # fmt: skip
# the peer's name of a metric -> ours
_METRICS: Final = {
    "total_return": "total_return",
    "annual_return": "annual_return",
    "max_drawdown": "max_drawdown",
    "sharpe": "sharpe",
    "calmar": "calmar",
    "sortino": "sortino",
    "win_rate": "win_rate",
    "profit_factor": "profit_factor",
    "avg_holding_days": "average_holding_days",
    "trade_count": "trades",
    "benchmark_return": "benchmark_return",
    "information_ratio": "information_ratio",
    "tracking_error": "tracking_error",
    "benchmark_beta": "beta",
}


def equity_table(result: BacktestResult) -> pd.DataFrame:
    """Return `timestamp`, `ret`, `equity`, `drawdown`, `benchmark_equity`, `active_ret`.

    The benchmark is scaled to the initial cash; without one its columns are empty.
    """
    equity = result.equity.rename("equity")
    peak = equity.cummax().clip(lower=result.initial_cash)
    returns = equity.pct_change().fillna(0.0)
    index = pd.Series(float("nan"), index=equity.index)
    if result.benchmark is not None:
        level = result.benchmark.reindex(equity.index).ffill()
        known = level.dropna()
        index = level / known.iloc[0] * result.initial_cash if len(known) else index
    frame = pd.DataFrame(
        {
            "ret": returns,
            "equity": equity,
            "drawdown": equity / peak - 1,
            "benchmark_equity": index,
            "active_ret": returns - index.pct_change(fill_method=None),
        }
    ).rename_axis("timestamp")
    money = dict.fromkeys(("equity", "benchmark_equity"), 2)
    return frame.round({**dict.fromkeys(frame.columns, 8), **money})


def peer_trades(result: BacktestResult) -> pd.DataFrame:
    """Return one row an entry and one an exit, in the order of the round trips."""
    places = {stamp: place for place, stamp in enumerate(result.dates)}
    rows: list[dict[str, Any]] = []
    for trade in result.trades.to_dict("records"):
        entered, left = trade["entry_time"], trade["exit_time"]
        blank = {"code": trade["symbol"], "qty": round(trade["size"], 6), "reason": "signal"}
        rows.append(
            blank
            | {
                "timestamp": str(entered.date()),
                "side": "buy",
                "price": round(trade["entry_price"], 4),
                "pnl": 0.0,
                "holding_days": 0,
                "holding_bars": 0.0,
                "return_pct": 0.0,
                "event": "entry",
            }
        )
        if pd.isna(left):
            continue
        rows.append(
            blank
            | {
                "timestamp": str(left.date()),
                "side": "sell",
                "price": round(trade["exit_price"], 4),
                "pnl": round(trade["pnl"], 4),
                "holding_days": trade["holding_days"],
                "holding_bars": float(places[left] - places[entered]),
                "return_pct": round(trade["return"] * 100, 2),
                "event": "exit",
            }
        )
    return pd.DataFrame(rows, columns=list(_TRADE_COLUMNS))


def metrics_row(result: BacktestResult) -> dict[str, Any]:
    """Return the metrics under the peer's names; what has no value is left empty."""
    own = result.metrics.to_dict()
    win, loss = own["average_win"], own["average_loss"]
    gained, index = own["total_return"], own["benchmark_return"]
    return {
        "final_value": round(float(result.equity.iloc[-1]), 2),
        **{name: own[mine] for name, mine in _METRICS.items()},
        "profit_loss_ratio": -win / loss if win is not None and loss else None,
        "excess_return": None if gained is None or index is None else gained - index,
    }


def run_card(
    result: BacktestResult, facts: Facts, artifacts: Mapping[str, bytes]
) -> dict[str, Any]:
    """Return `run_card.json`: the peer's keys, then the few of ours that it passes over.

    Args:
        result: The backtest.
        facts: What it was made from.
        artifacts: Relative path -> content of the files the card vouches for.
    """
    config, periods = facts.config, result.metrics.periods_per_year
    return {
        "schema_version": "1.0",
        "generated_at": facts.created_at,
        "run_dir": ".",
        "backtest": {key: config[key] for key in _SUMMARY if key in config}
        | {
            "codes": [str(symbol) for symbol in result.prices.columns],
            "start_date": str(result.start),
            "end_date": str(result.end),
            "initial_cash": result.initial_cash,
        },
        "reproducibility": {
            "config_hash": files.sha256_bytes(artifacts["config.json"]),
            "strategy_hash": facts.fingerprints["code"],
        },
        "data_sources": [facts.source],
        "metrics": metrics_row(result),
        "warnings": list(result.notes),
        "model_provenance": {"files": {}, "training_cutoff": None, "cutoff_source": None},
        "artifacts": [
            {"path": path, "size_bytes": len(data), "sha256": files.sha256_bytes(data)}
            for path, data in sorted(artifacts.items())
        ],
        "annualisation": {"bars_per_year": None if periods is None else round(periods)},
        "strategy": facts.ref,
    }
