"""Backtest a draft or a version: bundle and bars in, result, guards and evidence out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path

from kit.backtest import BacktestResult, stress
from kit.backtest.delay import same_bar_test
from kit.backtest.evidence import check_label, write_evidence
from kit.backtest.facts import Facts, StepQuality
from kit.backtest.folds import by_fold
from kit.backtest.lookahead import check_lookahead
from kit.backtest.warmup import needed_history
from kit.bundle import Bundle
from kit.clock import Clock, iso
from kit.errors import GuardError
from kit.jobs.agreement import measured_agreement
from kit.jobs.lock import require_lock
from kit.jobs.recording import record_panel
from kit.jobs.study import Study, count, open_study
from kit.market import MarketPanel
from kit.workspace import Workspace

__all__ = ["backtest", "facts_of"]


def backtest(
    workspace: Workspace,
    ref: str,
    *,
    start: date | None = None,
    end: date | None = None,
    symbols: Sequence[str] | None = None,
    label: str | None = None,
    clock: Clock,
    source: str = "sample",
    forced_by: str | None = None,
    progress: Callable[[str], None] = lambda _message: None,
) -> tuple[BacktestResult, Path]:
    """Backtest a bundle, count the trial, and write its evidence.

    A draft's evidence goes into the draft, where freeze looks for it; a frozen version's goes to
    `runs/backtests/`, since the version itself never changes.

    Args:
        workspace: The workspace.
        ref: `id` (the active version), `id@version` or `id@draft`.
        start: First session; the bundle's `config.json` when None.
        end: Last session; the bundle's `config.json` when None.
        symbols: Symbols to trade; the bundle's `config.json` when None.
        label: Name of the evidence; `iter-N` when None.
        clock: Gives the evidence its time.
        source: Name of the bar source.
        forced_by: Who chose to run against another channel than the lock's; None for nobody.
        progress: Called with the name of each stage.

    Raises:
        LockError: `lock.failed`: the bundle's environment lock does not hold here.
        DataError: `backtest.bad_label`; see `open_study` and `run_backtest` for the others.
        StorageError: The disk refused; nothing is left behind.
    """
    if label is not None:
        check_label(label)  # before a minute's work, not after it
    progress("load")
    study = open_study(workspace, ref, start=start, end=end, symbols=symbols, source=source)
    bundle = study.bundle
    progress("lock")
    require_lock(workspace, bundle, forced_by=forced_by, clock=clock)
    record_panel(bundle)
    progress("simulate")
    result = study.inputs.simulate(bundle.engine())
    progress("guards")
    facts = facts_of(workspace, study, result, clock=clock)
    progress("evidence")
    if bundle.is_draft:
        parent = bundle.root / "backtests"
    else:
        parent = workspace.runs / "backtests" / bundle.ref
    return result, write_evidence(parent, result, facts, label)


def facts_of(workspace: Workspace, study: Study, result: BacktestResult, *, clock: Clock) -> Facts:
    """Run the guards on a result, count it as a trial, and say what it was made from."""
    bundle, panel = study.bundle, study.panel
    universe = study.inputs.universe
    values = result.equity.to_numpy(dtype="float64")
    periods = result.metrics.periods_per_year
    return Facts(
        ref=bundle.ref,
        created_at=iso(clock.now()),
        config=bundle.config,
        fingerprints=study.fingerprints,
        source=study.source,
        synthetic=study.synthetic,
        market=panel.market,
        asked=universe.asked,
        partial=study.partial,
        universe_note=universe.note,
        steps=_steps(workspace, bundle),
        # Signals on cut bars; an order filled on its own bar must outlive a delay as well.
        lookahead=same_bar_test(check_lookahead(bundle.engine, panel), result),
        warmup_declared=bundle.manifest.data_contract.warmup_bars,
        warmup_needed=_warmup_needed(bundle, panel),
        stress=stress(result),
        folds=tuple(by_fold(result.equity, periods)),
        trials=count(workspace, study, values[1:] / values[:-1] - 1, periods, clock=clock),
    )


def _warmup_needed(bundle: Bundle, panel: MarketPanel) -> int:
    """Return the history the engine needs; all there is when it cannot do with less.

    It ran on the whole panel before. One that fails on a part of it is reported by the guards.
    """
    try:
        return needed_history(bundle.engine, panel)
    except GuardError:
        return len(panel.dates)


def _steps(workspace: Workspace, bundle: Bundle) -> tuple[StepQuality, ...]:
    found = []
    for name in bundle.prompts:
        step = bundle.step(name)
        measured = measured_agreement(workspace, bundle.id, name)
        found.append(
            StepQuality(
                name=name,
                quality=step.quality,
                differences=tuple(step.differences),
                agreement=measured.mean if measured else None,
                interval=(measured.low, measured.high) if measured else None,
                answers=measured.count if measured else 0,
            )
        )
    return tuple(found)
