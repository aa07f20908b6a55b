"""From target weights to a result: put the market's rules beside the bars and run the kernel."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any, Final

import numpy as np
import pandas as pd

from kit.backtest.kernel import Costs, Market, by_bar
from kit.backtest.kernel_state import Floats
from kit.backtest.result import BacktestResult
from kit.backtest.settings import FILLS, Settings, rebalance_bars
from kit.backtest.setup import Setup
from kit.backtest.weights import target_weights
from kit.errors import DataError
from kit.market import Dropped, MarketPanel, MarketRules, Security, day_rules

__all__ = ["run_backtest"]

_LOTS_RESTATED: Final = "手数与最低佣金按前复权价计算，与当时的成交不完全一致"
_NO_SLIPPAGE: Final = "未计滑点"
_SAME_BAR: Final = "当根成交（已声明豁免），实盘难以做到"


def run_backtest(
    engine: Any,
    panel: MarketPanel,
    settings: Settings,
    *,
    rules: MarketRules,
    securities: Sequence[Security],
    evaluation_start: date | None = None,
    benchmark: pd.Series | None = None,
    dropped: tuple[Dropped, ...] = (),
) -> BacktestResult:
    """Backtest a signal engine on a panel.

    Args:
        engine: A `SignalEngine`.
        panel: Bars, adjusted as the bundle's data contract says.
        settings: Money, slippage, fill and warm-up.
        rules: The market's rules.
        securities: What is known of the panel's symbols, in its order.
        evaluation_start: First graded day; the end of the warm-up when None or earlier.
        benchmark: Levels of a named index over the range, or None.
        dropped: Symbols left out before, to be reported.

    Raises:
        BundleError: `backtest.engine_failed`, `backtest.bad_weights`.
        DataError: `backtest.too_short` when the warm-up covers the whole range.
    """
    asked = target_weights(engine, panel, warmup_bars=settings.warmup_bars)
    # Views, not copies: nobody else has these arrays.
    weights = _wide(asked.values, panel)
    first = _first_bar(panel, settings, evaluation_start)
    setup = _setup(panel, rules, securities, settings, first)
    notes = _notes(panel, settings)
    if asked.silent:
        notes = (*notes, f"策略没有给出权重：{'、'.join(asked.silent)}")
    return BacktestResult(
        setup=setup,
        fills=setup.simulate(weights),
        weights=weights,
        prices=_wide(setup.arrays[1] * setup.arrays[2], panel),
        notes=notes,
        dropped=dropped,
        benchmark=benchmark,
    )


def _wide(values: Floats, panel: MarketPanel) -> pd.DataFrame:
    return pd.DataFrame(values, index=panel.dates, columns=list(panel.symbols), copy=False)


def _first_bar(panel: MarketPanel, settings: Settings, evaluation_start: date | None) -> int:
    # The very first bar is never graded: the curve needs one to start from, with the initial cash.
    first = max(settings.warmup_bars, 1)
    if evaluation_start is not None:
        first = max(first, int(panel.dates.searchsorted(pd.Timestamp(evaluation_start))))
    if first >= len(panel.dates) - 1:
        raise DataError(
            "backtest.too_short",
            f"{len(panel.dates)} bars leave nothing to grade after {first} bars of warm-up",
            remedy="begin earlier: --start",
        )
    return first


def _setup(
    panel: MarketPanel,
    rules: MarketRules,
    securities: Sequence[Security],
    settings: Settings,
    first: int,
) -> Setup:
    field, lag = FILLS[settings.fill]
    mark = _raw(panel, "close")
    volume = _raw(panel, "volume")
    with np.errstate(invalid="ignore", divide="ignore"):
        price = _raw(panel, "amount") / volume if field == "vwap" else _raw(panel, field)
    day = day_rules(rules, panel, securities)
    return Setup(
        # Turned over once: a result is simulated again and again, by the guards.
        arrays=(
            by_bar(np.where((volume > 0) & ~day.suspended, price, np.nan)),
            by_bar(mark),
            # Dividends count as reinvested whatever prices the rule asked to see.
            by_bar(_anchored(_raw(panel, "adj_factor"))),
        ),
        market=Market(
            up=by_bar(day.limit_up),
            down=by_bar(day.limit_down),
            min_lot=day.lot,
            step=day.lot_step,
            session=day.session,
            t_plus=day.t_plus,
            allow_short=False,
        ),
        costs=Costs(fees=day.fees, kind=day.kind, slippage=settings.slippage),
        initial_cash=settings.initial_cash,
        first=first,
        lag=lag,
        hold=settings.position_adjustment == "hold",
        mask=rebalance_bars(settings.rebalance_mask, panel.dates),
        tolerance=settings.tolerance,
    )


def _anchored(factor: Floats) -> Floats:
    """Scale each symbol's factor to 1 on its last bar, so that adjusted prices look familiar."""
    last = len(factor) - 1 - np.argmax(~np.isnan(factor[::-1]), axis=0)
    anchored: Floats = factor / factor[last, np.arange(factor.shape[1])]
    return anchored


def _raw(panel: MarketPanel, field: str) -> Floats:
    return panel.wide_raw(field).to_numpy(dtype=np.float64)


def _notes(panel: MarketPanel, settings: Settings) -> tuple[str, ...]:
    """Say in Chinese what a reader must know before believing the curve."""
    notes = list(panel.notes())
    if "qfq" in panel.adjust_kinds.values():
        notes.append(_LOTS_RESTATED)
    if FILLS[settings.fill][0] == "vwap":
        unpriced = panel.wide_raw("amount").isna().all()
        bare = [symbol for symbol in panel.symbols if unpriced[symbol]]
        notes += [f"没有成交额，算不出均价，不能成交：{'、'.join(bare)}"] if bare else []
    if not settings.slippage:
        notes.append(_NO_SLIPPAGE)
    if settings.same_bar:
        notes.append(_SAME_BAR)
    return tuple(notes)
