"""The exhaustive lookahead check, on as much of a panel as can be checked at every date."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from kit.backtest.lookahead import Leak, LookaheadVerdict, check_lookahead
from kit.backtest.views import Panel, View, ask_weights
from kit.market import MarketPanel

if TYPE_CHECKING:
    from kit.bundle import SignalEngine

__all__ = ["exhaustive_sample", "shrunk"]

_SYMBOLS: Final = 3
_DATES: Final = 500


def exhaustive_sample(make_engine: Callable[[], SignalEngine], panel: Panel) -> LookaheadVerdict:
    """Cut a few symbols at every one of the last dates, two years of daily bars.

    The symbols are those whose weights change most often, for a rule that says nothing cannot be
    caught. A rule across symbols sees fewer of them here, and must be as clean on few as on many.

    Raises:
        GuardError: `lookahead.engine_failed` when the engine fails on the sample.
    """
    weights = ask_weights(make_engine(), "generate", View(panel).whole())
    moves = {
        symbol: int((series.fillna(0.0).diff().abs() > 0).sum())
        for symbol, series in weights.items()
        if symbol in panel
    }
    traded = panel.symbols if isinstance(panel, MarketPanel) else panel
    busiest = sorted(traded, key=lambda symbol: -moves.get(symbol, 0))[:_SYMBOLS]
    few = _select(panel, busiest)
    return check_lookahead(make_engine, few, dates=View(few).sessions[-_DATES:])


def shrunk(
    make_engine: Callable[[], SignalEngine], panel: MarketPanel, leak: Leak
) -> tuple[tuple[str, ...] | None, Leak]:
    """Look for the leak on its symbol alone: a reproduction with one symbol is easier to read.

    Returns:
        The symbols that are enough (None when it takes all of them) and the leak on those.
    """
    alone = panel.select([leak.symbol])
    try:
        verdict = check_lookahead(make_engine, alone, dates=[leak.cut_date])
    except Exception:  # noqa: BLE001 - code that cannot do with one symbol is no fault here
        return None, leak
    for found in verdict.findings:
        if found.output == leak.output:
            return (leak.symbol,), replace(found, first_bad_date=leak.first_bad_date)
    return None, leak


def _select(panel: Panel, symbols: list[str]) -> Any:
    if isinstance(panel, MarketPanel):
        return panel.select(symbols)
    return {symbol: panel[symbol] for symbol in symbols}
