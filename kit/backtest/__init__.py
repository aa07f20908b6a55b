"""Backtests: weights in, fills under the market's rules, curve, guards and evidence out."""

from __future__ import annotations

from kit.backtest.engine import Stress, run_backtest, stress
from kit.backtest.result import BacktestResult

__all__ = ["BacktestResult", "Stress", "run_backtest", "stress"]
