"""Measures of an equity curve and its trades, each with its formula.

Notation: `E[0..n]` are the values of the account, the first one the initial cash; `r[t] = E[t] /
E[t-1] - 1`; `b[t]` the returns of the index on the same bars; `m` the bars of a year. Deviations
and covariances divide by one less than the count; the risk-free rate is 0.

| name | formula |
|---|---|
| total_return | `E[n] / E[0] - 1` |
| annual_return | `(E[n] / E[0]) ** (m / n) - 1` |
| volatility | `std(r) sqrt(m)` |
| sharpe | `mean(r) / std(r) sqrt(m)` |
| sortino | `mean(r) / sqrt(mean(min(r, 0) ** 2)) sqrt(m)` |
| max_drawdown | `min(E[t] / max(E[0..t]) - 1)`, at most 0 |
| drawdown_days | longest stretch of days from a peak to the bar that regains it, or the end |
| calmar | `annual_return / -max_drawdown` |
| beta | `cov(r, b) / var(b)` |
| tracking_error | `std(r - b) sqrt(m)` |
| information_ratio | `mean(r - b) / std(r - b) sqrt(m)` |
| win_rate | closed trades with a profit over all closed trades |
| profit_factor | sum of the profits over the sum of the losses |
| turnover | money traded on both sides / 2 / mean equity, a year |

Profits are those of the trade table, after fees. What has no value (a ratio over a deviation of
nothing, a win rate without a trade) is None: neither zero nor NaN.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from kit.errors import DataError, UsageError

__all__ = ["Metrics", "annual_turnover", "bars_per_year", "compute"]

Floats = npt.NDArray[np.float64]

_YEAR: Final = pd.Timedelta(days=365.25)
_NOISE: Final = 1e-12  # a deviation or a fall below it is rounding
_TRADE_COLUMNS: Final = ("exit_time", "pnl", "return", "holding_days")
_SPACINGS: Final = ((45, 12), (135, 4), (10**9, 1))  # days up to which a gap is a month, ...


@dataclass(frozen=True, kw_only=True)
class Metrics:
    """What the table of this module defines; fractions, not per cent.

    Attributes:
        bars: Returns measured, `n`.
        periods_per_year: `m`.
        benchmark: Name of the index.
        trades: Closed trades; None when no table was given.
        open_trades: Trades without an exit.
        average_win: Mean profit of winning trades, in money; `average_loss` likewise, negative.
        exposure: Mean of the absolute exposure.
        time_in_market: Share of bars with any exposure.
    """

    bars: int
    periods_per_year: float | None
    total_return: float | None
    annual_return: float | None
    volatility: float | None
    sharpe: float | None
    sortino: float | None
    max_drawdown: float | None
    drawdown_days: int | None
    calmar: float | None
    benchmark: str | None = None
    benchmark_return: float | None = None
    beta: float | None = None
    tracking_error: float | None = None
    information_ratio: float | None = None
    trades: int | None = None
    open_trades: int | None = None
    win_rate: float | None = None
    profit_factor: float | None = None
    average_win: float | None = None
    average_loss: float | None = None
    average_trade_return: float | None = None
    average_holding_days: float | None = None
    exposure: float | None = None
    time_in_market: float | None = None
    turnover: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return JSON: finite numbers, text and null."""
        return asdict(self)


def compute(
    equity: pd.Series,
    *,
    trades: pd.DataFrame | None,
    benchmark: pd.Series | None = None,
    exposure: pd.Series | None = None,
    turnover: float | None = None,
    periods_per_year: float | None = None,
) -> Metrics:
    """Compute the metrics of an account.

    Args:
        equity: `E`: the initial cash, then the value after each bar, by ascending time.
        trades: Closed and open round trips: `exit_time` (NaT while open), `pnl` after fees,
            `return`, `holding_days`.
        benchmark: Levels of an index by time, named; compared on the bars both have.
        exposure: Position value over equity by bar; shorts are negative.
        turnover: One-way turnover a year, see `annual_turnover`.
        periods_per_year: `m`; from the spacing of the bars when None.

    Raises:
        DataError: `metrics.bad_equity`, `metrics.bad_trades`.
        UsageError: `metrics.unnamed_benchmark`.
    """
    _require_curve(equity)
    values = equity.to_numpy(dtype=np.float64)
    index = pd.DatetimeIndex(equity.index) if len(equity) else pd.DatetimeIndex([])
    m = periods_per_year if periods_per_year is not None else bars_per_year(index)
    found: dict[str, Any] = {"bars": max(len(values) - 1, 0), "periods_per_year": m}
    # What overflows is not finite, and what is not finite is None in the end.
    with np.errstate(all="ignore"):
        found |= _of_curve(values, index, m)
        found |= _against(equity, benchmark, m)
    found |= _of_trades(trades)
    if exposure is not None and len(exposure):
        held = np.abs(np.nan_to_num(exposure.to_numpy(dtype=np.float64)))
        found |= {"exposure": float(held.mean()), "time_in_market": float((held > 0).mean())}
    found["turnover"] = turnover
    return Metrics(**{name: _finite(value) for name, value in found.items()})


def annual_turnover(traded: float, equity: pd.Series, periods: float | None) -> float | None:
    """Return one-way turnover a year: money bought and sold, halved, over the mean account."""
    bars = len(equity) - 1
    if bars < 1 or periods is None:
        return None
    mean = float(equity.mean())
    return traded / 2 / mean * periods / bars if mean > 0 else None


def bars_per_year(index: pd.DatetimeIndex) -> float | None:
    """Return the bars of a year that times this far apart make.

    A year or more is counted. Less is too little to count, and is told from the spacing: every
    day 365, working days 252, weeks 52, months 12, quarters 4, years 1; several bars a day count
    that many times.
    """
    days = index.normalize().unique()
    if len(days) < 2:
        return None
    a_day = float(np.median(pd.Series(index.normalize()).value_counts()))
    span = days[-1] - days[0]
    gap = float(np.median(np.diff(days.to_numpy()) / np.timedelta64(1, "D")))
    if span >= _YEAR and gap < _SPACINGS[0][0] / 2:
        return round((len(days) - 1) / (span / _YEAR)) * a_day
    if gap <= 3:
        return (365.0 if bool((days.day_of_week >= 5).any()) else 252.0) * a_day
    if gap <= 10:
        return 52.0 * a_day
    return next(float(count) for limit, count in _SPACINGS if gap <= limit) * a_day


def _require_curve(equity: pd.Series) -> None:
    problem = ""
    if len(equity) and not isinstance(equity.index, pd.DatetimeIndex):
        problem = "its index holds no times"
    elif not equity.index.is_monotonic_increasing:
        problem = "its times do not ascend"
    elif not np.isfinite(equity.to_numpy(dtype=np.float64)).all():
        problem = "it holds a value that is not finite"
    if problem:
        raise DataError(
            "metrics.bad_equity",
            f"this is no equity curve: {problem}",
            remedy="give one finite number per bar, in time order",
        )


def _of_curve(values: Floats, index: pd.DatetimeIndex, m: float | None) -> dict[str, Any]:
    names = ("total_return", "annual_return", "volatility", "sharpe", "sortino", "calmar")
    found: dict[str, Any] = dict.fromkeys((*names, "max_drawdown", "drawdown_days"))
    if not len(values) or values[0] <= 0:
        return found
    peaks = np.maximum.accumulate(values)
    deepest = float(min((values / peaks - 1).min(), 0.0))
    found |= {"max_drawdown": deepest, "drawdown_days": _days_below(values, index)}
    if len(values) < 2:
        return found
    growth = float(values[-1] / values[0])
    found["total_return"] = growth - 1
    if m is not None and growth >= 0:
        found["annual_return"] = float(np.float64(growth) ** (m / (len(values) - 1)) - 1)
    if found["annual_return"] is not None and deepest < -_NOISE:
        found["calmar"] = found["annual_return"] / -deepest
    if (values[:-1] > 0).all():
        returns = values[1:] / values[:-1] - 1
        found["volatility"] = _yearly(_deviation(returns), m)
        found["sharpe"] = _ratio(returns, _deviation(returns), m)
        below = float(np.sqrt(np.mean(np.minimum(returns, 0) ** 2)))
        found["sortino"] = _ratio(returns, below, m)
    return found


def _days_below(values: Floats, index: pd.DatetimeIndex) -> int:
    longest = pd.Timedelta(0)
    peak, since, under = values[0], index[0], False
    for value, moment in zip(values, index, strict=True):
        if under or value < peak:
            longest = max(longest, moment - since)
        under = bool(value < peak)
        if not under:
            peak, since = value, moment
    return int(longest.days)


def _against(equity: pd.Series, benchmark: pd.Series | None, m: float | None) -> dict[str, Any]:
    if benchmark is None:
        return {}
    if benchmark.name is None:
        raise UsageError(
            "metrics.unnamed_benchmark",
            "the benchmark has no name",
            remedy="name the index: levels.rename('000300.SH')",
        )
    found: dict[str, Any] = {"benchmark": str(benchmark.name)}
    levels = benchmark[~benchmark.index.duplicated(keep="last")].dropna()
    account = equity[~equity.index.duplicated(keep="last")]
    both = account.index.intersection(levels.index)
    mine = account.reindex(both).to_numpy(dtype=np.float64)
    index = levels.reindex(both).to_numpy(dtype=np.float64)
    if len(both) < 2 or not (index > 0).all():
        return found
    found["benchmark_return"] = float(index[-1] / index[0] - 1)
    if not (mine[:-1] > 0).all():
        return found
    r, b = mine[1:] / mine[:-1] - 1, index[1:] / index[:-1] - 1
    spread, active = _deviation(b), r - b
    if spread is not None and spread > _NOISE:
        found["beta"] = float(np.cov(r, b, ddof=1)[0, 1]) / spread**2
    found["tracking_error"] = _yearly(_deviation(active), m)
    found["information_ratio"] = _ratio(active, _deviation(active), m)
    return found


def _of_trades(trades: pd.DataFrame | None) -> dict[str, Any]:
    if trades is None:
        return {}
    missing = [name for name in _TRADE_COLUMNS if name not in trades]
    if missing:
        raise DataError(
            "metrics.bad_trades",
            f"the trades have no column {', '.join(missing)}",
            remedy=f"columns needed: {', '.join(_TRADE_COLUMNS)}",
        )
    closed = trades[trades["exit_time"].notna()]
    profits = closed["pnl"].to_numpy(dtype=np.float64)
    won, lost = profits[profits > 0], profits[profits < 0]
    return {
        "trades": len(closed),
        "open_trades": len(trades) - len(closed),
        "win_rate": len(won) / len(profits) if len(profits) else None,
        "profit_factor": float(won.sum() / -lost.sum()) if len(lost) else None,
        "average_win": float(won.mean()) if len(won) else None,
        "average_loss": float(lost.mean()) if len(lost) else None,
        "average_trade_return": float(closed["return"].mean()) if len(closed) else None,
        "average_holding_days": float(closed["holding_days"].mean()) if len(closed) else None,
    }


def _deviation(values: Floats) -> float | None:
    return float(values.std(ddof=1)) if len(values) > 1 else None


def _yearly(deviation: float | None, m: float | None) -> float | None:
    return None if deviation is None or m is None else deviation * float(np.sqrt(m))


def _ratio(values: Floats, deviation: float | None, m: float | None) -> float | None:
    if deviation is None or m is None or deviation <= _NOISE:
        return None
    return float(values.mean()) / deviation * float(np.sqrt(m))


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not np.isfinite(value) else value
