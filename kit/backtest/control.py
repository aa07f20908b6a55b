"""Could chance have done it? The same trading at random moments and in random symbols.

Each control takes the rule's own weights, turns them in time by a random number of bars and deals
them to the symbols in a random order: exposure, turnover, holding periods and number of positions
stay what they are, only *when* and *what* is left to chance. Controls run through the same kernel,
costs and market rules. `p = (1 + controls at least as good) / (1 + controls)`, so it is never 0
(the usual correction for a drawn sample; B. Phipson and G. Smyth, "Permutation P-values Should
Never Be Zero", 2010).

Limits: where histories differ in length, a control may want a symbol before it was listed, and
holds less. A rule that always holds everything equals its controls: p = 1 says that nothing was
timed or chosen, not that the rule is bad.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from kit.backtest.result import BacktestResult
from kit.backtest.trials import bar_sharpe

__all__ = ["DRAWS", "Control", "random_control"]

DRAWS: Final = 200
_SEED: Final = 20_140_715  # a fixed one: the same result gets the same controls


@dataclass(frozen=True, kw_only=True)
class Control:
    """A result among its random controls.

    Attributes:
        draws: Controls.
        p_value: Share of controls that did at least as well, corrected.
        sharpe: The result's annual Sharpe ratio.
        median: That of the middle control.
    """

    draws: int
    p_value: float
    sharpe: float
    median: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def random_control(result: BacktestResult, *, draws: int = DRAWS) -> Control | None:
    """Compare a result with random ones of the same exposure and turnover.

    Returns:
        None for an account that never moved: nothing can be compared.
    """
    setup, weights = result.setup, result.weights.to_numpy(dtype=np.float64)
    begin = max(setup.first - setup.lag, 0)
    decided = weights[begin:]
    own = _sharpe(result, weights)
    if own is None or len(decided) < 2:
        return None
    random = np.random.default_rng(_SEED)
    found = []
    for _ in range(draws):
        turned = np.roll(decided, int(random.integers(1, len(decided))), axis=0)
        dealt = turned[:, random.permutation(decided.shape[1])]
        # A control that never got to trade earned nothing.
        found.append(_sharpe(result, np.vstack([weights[:begin], dealt])) or 0.0)
    better = sum(ratio >= own - 1e-12 for ratio in found)
    scale = math.sqrt(result.metrics.periods_per_year or 1.0)
    return Control(
        draws=draws,
        p_value=(1 + better) / (1 + draws),
        sharpe=own * scale,
        median=float(np.median(found)) * scale,
    )


def _sharpe(result: BacktestResult, weights: Any) -> float | None:
    frame = pd.DataFrame(weights, index=result.weights.index, columns=result.weights.columns)
    curve = result.setup.simulate(frame).equity[max(result.setup.first - 1, 0) :]
    return bar_sharpe(curve[1:] / curve[:-1] - 1)
