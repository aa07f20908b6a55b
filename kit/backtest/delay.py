"""The one-bar delay: does a result outlive its orders being filled a bar later?

Filling at the close a signal was computed from (or at an open before it) gains from knowing the
bar in advance; one bar later, nothing of that is left. No comparison of signals can see it, for the
signals are clean.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from kit.backtest.lookahead import Leak, LookaheadVerdict

if TYPE_CHECKING:
    from kit.backtest.result import BacktestResult

__all__ = ["DelayTest", "delay_test", "same_bar_test"]


@dataclass(frozen=True, kw_only=True)
class DelayTest:
    """The result with orders as they are, and one bar later.

    Attributes:
        immediate: The figure as run.
        delayed: The figure with every order one bar later.
        collapsed: Whether the first is too good and does not outlive a bar.
    """

    immediate: float
    delayed: float
    collapsed: bool

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def delay_test(run: Callable[[int], float], *, floor: float = 3.0, keep: float = 0.5) -> DelayTest:
    """Run a backtest as it is and with orders one bar later, and compare.

    Limits: it proves nothing. A real edge of one day collapses too, and is then worth a look; a
    leak that reaches further than a bar survives the delay, and one that loses money never seems
    too good. The thresholds are a convention: an annual Sharpe ratio above 3 that more than halves.

    Args:
        run: Gives the annual Sharpe ratio for a delay of 0 or 1 bars.
        floor: Figures up to here are never suspicious.
        keep: Share of the figure that must be left.
    """
    immediate, delayed = float(run(0)), float(run(1))
    collapsed = immediate > floor and not delayed >= keep * immediate
    return DelayTest(immediate=immediate, delayed=delayed, collapsed=collapsed)


def same_bar_test(verdict: LookaheadVerdict, result: BacktestResult) -> LookaheadVerdict:
    """Add the delay test to a verdict.

    It counts against the rule where orders fill on the bar that decided them: there, a result that
    is too good and gone a bar later is a leak of the execution. Where orders fill a bar later, a
    collapse may be an honest edge of one day, and is left to the table of stressed results.
    """
    setup = result.setup
    later = result.again(replace(setup, lag=setup.lag + 1))
    test = delay_test(lambda bars: (later if bars else result).metrics.sharpe or 0.0)
    verdict = replace(verdict, one_bar_delay=test.to_dict())
    orders = result.orders
    if setup.lag > 0 or not test.collapsed or not len(orders):
        return verdict
    first = orders.iloc[0]
    day = first["time"].date()
    leak = Leak(
        output="fill",
        symbol=str(first["symbol"]),
        first_bad_date=day,
        cut_date=day,
        detail=f"filled on the bar that decided: annual Sharpe ratio {test.immediate:.2f}, and "
        f"{test.delayed:.2f} with every order one bar later",
        reproduction="from kit.backtest import stress\n"
        "# study: as kit.jobs.study.open_study returns it\n"
        "print(stress(study.inputs.simulate(make_engine())).table)",
    )
    return replace(verdict, ok=False, findings=(*verdict.findings, leak))
