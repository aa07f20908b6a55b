"""How often a strategy was tried, and what its Sharpe ratio is worth after that many tries.

The best of many worthless rules looks good. So every distinct backtest of a strategy family (its
id) leaves one row in the state store: the same code with the same values over the same symbols and
dates is the same trial, however often it runs and under whatever version number; a cell of a sweep
is a trial like any other. The row is written before the evidence, so a run that is killed in
between is counted too; it cannot be counted twice.

**Deflated Sharpe ratio** (D. H. Bailey and M. Lopez de Prado, "The Deflated Sharpe Ratio:
Correcting for Selection Bias, Backtest Overfitting, and Non-Normality", Journal of Portfolio
Management 40(5), 2014): the probability that the true Sharpe ratio is above what the best of `N`
worthless trials would have shown,

    DSR = Z[(S - S0) sqrt(T - 1) / sqrt(1 - g3 S + (g4 - 1) / 4 S ** 2)]
    S0  = sqrt(V) ((1 - e) Zinv[1 - 1 / N] + e Zinv[1 - 1 / (N exp(1))])

with `S` the Sharpe ratio a bar, `T` bars, `g3` and `g4` skewness and kurtosis of the returns, `V`
the variance of the trials' `S`, and `e` Euler's constant 0.5772. Trials that resemble each other
count in full, which errs on the side of doubt.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from sqlalchemy import insert, select

from kit import files
from kit.state import Store, tables

__all__ = ["Trials", "bar_sharpe", "count_trial", "deflated_sharpe", "luck"]

Floats = npt.NDArray[np.float64]

_EULER: Final = 0.5772156649015329
_NOISE: Final = 1e-12
_NORMAL: Final = NormalDist()


@dataclass(frozen=True, kw_only=True)
class Trials:
    """What is known of a family's trials once one of them has run.

    Attributes:
        place: Which of them this one was, in order of its first run.
        tried: How many distinct ones there have been.
        expected_best: Annual Sharpe ratio that the best of so many worthless ones would show.
        deflated_sharpe: Probability that the true ratio is above that; None without returns.
    """

    place: int
    tried: int
    expected_best: float | None
    deflated_sharpe: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def bar_sharpe(returns: Floats) -> float | None:
    """Return mean over standard deviation (of a sample) of returns; None when nothing varies."""
    if len(returns) < 2:
        return None
    deviation = float(returns.std(ddof=1))
    return float(returns.mean()) / deviation if deviation > _NOISE else None


def luck(tried: int, variance: float) -> float:
    """Return `S0`: the Sharpe ratio a bar that the best of so many worthless trials shows.

    Args:
        tried: `N`; a single trial has nothing to be the best of.
        variance: `V`, of the trials' ratios a bar.
    """
    if tried < 2 or variance <= 0:
        return 0.0
    best = _NORMAL.inv_cdf(1 - 1 / tried)
    rarer = _NORMAL.inv_cdf(1 - 1 / (tried * math.e))
    return math.sqrt(variance) * ((1 - _EULER) * best + _EULER * rarer)


def deflated_sharpe(
    sharpe: float, *, bars: int, skew: float, kurtosis: float, tried: int, variance: float
) -> float | None:
    """Return `DSR` as the module defines it; None where the formula has no value.

    Args:
        sharpe: `S`, a bar.
        bars: `T`.
        skew: `g3`.
        kurtosis: `g4`; 3 for a normal distribution.
        tried: `N`.
        variance: `V`.
    """
    spread = 1 - skew * sharpe + (kurtosis - 1) / 4 * sharpe**2
    if bars < 2 or spread <= 0:
        return None
    excess = sharpe - luck(tried, variance)
    return _NORMAL.cdf(excess * math.sqrt(bars - 1) / math.sqrt(spread))


def count_trial(
    store: Store,
    family: str,
    identity: Mapping[str, Any],
    returns: Floats,
    *,
    ref: str,
    at: str,
    periods: float | None,
) -> Trials:
    """Count a backtest, once, and say what its family has tried so far.

    Args:
        store: The state store.
        family: Strategy id.
        identity: What makes it this trial: code, values, symbols, dates; JSON.
        returns: Returns of its graded bars.
        ref: `id@version` or `id@draft`, for the reader of the table.
        at: ISO 8601, UTC.
        periods: Bars a year.

    Raises:
        StorageError: As `Store.begin`.
    """
    fingerprint = files.sha256_bytes(files.canonical_json(identity))
    sharpe = bar_sharpe(returns)
    table = tables.trials
    with store.begin() as connection:
        rows = connection.execute(
            select(table.c.fingerprint, table.c.sharpe)
            .where(table.c.family == family)
            .order_by(table.c.id)
        ).all()
        known = [row.fingerprint for row in rows]
        ratios = [float(row.sharpe) for row in rows if row.sharpe is not None]
        if fingerprint not in known:
            known.append(fingerprint)
            ratios += [] if sharpe is None else [sharpe]
            connection.execute(
                insert(table).values(
                    family=family,
                    fingerprint=fingerprint,
                    ref=ref,
                    identity=files.canonical_json(identity).decode("utf-8"),
                    sharpe=sharpe,
                    bars=len(returns),
                    created_at=at,
                )
            )
    variance = float(np.var(ratios, ddof=1)) if len(ratios) > 1 else 0.0
    scale = None if periods is None else math.sqrt(periods)
    return Trials(
        place=known.index(fingerprint) + 1,
        tried=len(known),
        expected_best=None if scale is None else luck(len(known), variance) * scale,
        deflated_sharpe=None if sharpe is None else _deflated(returns, sharpe, known, variance),
    )


def _deflated(returns: Floats, sharpe: float, known: list[str], variance: float) -> float | None:
    scaled = (returns - returns.mean()) / returns.std()
    return deflated_sharpe(
        sharpe,
        bars=len(returns),
        skew=float((scaled**3).mean()),
        kurtosis=float((scaled**4).mean()),
        tried=len(known),
        variance=variance,
    )
