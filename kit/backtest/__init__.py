"""Backtests: weights in, fills under the market's rules, curve, guards and evidence out."""

from __future__ import annotations

from kit.backtest.engine import run_backtest
from kit.backtest.result import BacktestResult
from kit.backtest.stress import Stress, stress

__all__ = ["BacktestResult", "Stress", "run_backtest", "stress"]
