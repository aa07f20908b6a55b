"""Backtest a draft or a version: bundle and bars in, result, guards and evidence out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path

import pandas as pd

from kit.backtest import BacktestResult, run_backtest
from kit.backtest.evidence import check_label, write_evidence
from kit.backtest.facts import Facts, StepQuality
from kit.backtest.lookahead import check_lookahead
from kit.backtest.settings import Settings
from kit.backtest.warmup import needed_history
from kit.bundle import Bundle, resolve
from kit.clock import Clock, iso, parse_date
from kit.errors import DataError, GuardError, UsageError
from kit.market import (
    BarSource,
    MarketPanel,
    MarketRules,
    Universe,
    load_panel,
    market_info,
    open_source,
    resolve_universe,
)
from kit.workspace import Workspace

__all__ = ["backtest"]

_INTERVALS = {"1D": "1d"}


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
    progress: Callable[[str], None] = lambda _message: None,
) -> tuple[BacktestResult, Path]:
    """Backtest a bundle and write its evidence.

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
        progress: Called with the name of each stage.

    Raises:
        RegistryError: No such strategy or version.
        BundleError: The bundle is tampered with or malformed.
        UsageError: `backtest.bad_range`.
        DataError: No bars in the range, naming what the source covers; `backtest.bad_label`.
        StorageError: The disk refused; nothing is left behind.
    """
    if label is not None:
        check_label(label)  # before a minute's work, not after it
    progress("load")
    bundle = resolve(workspace, ref)
    # Taken first: a draft that is edited meanwhile then has stale evidence, not evidence of code
    # that never ran.
    fingerprints = bundle.fingerprints
    first, last = _range(bundle, start, end)
    bars = open_source(workspace, source)
    named = bundle.config["codes"] if symbols is None else symbols
    panel, universe = _panel(bundle, bars, named, first, last)
    progress("simulate")
    manifest, config = bundle.manifest, bundle.config
    evaluation = config.get("evaluation_start_date")
    result = run_backtest(
        bundle.engine(),
        panel,
        Settings.of(config, manifest.execution, manifest.data_contract),
        rules=MarketRules.load(workspace, panel.market),
        securities=universe.got,
        evaluation_start=parse_date(evaluation) if evaluation else None,
        benchmark=_benchmark(workspace, bundle, bars, first, last),
        dropped=universe.dropped,
    )
    progress("guards")
    facts = Facts(
        ref=bundle.ref,
        created_at=iso(clock.now()),
        config=bundle.config,
        fingerprints={**fingerprints, "data": panel.fingerprint},
        source=bars.name,
        synthetic=bars.synthetic,
        market=panel.market,
        asked=universe.asked,
        universe_note=universe.note,
        steps=_steps(bundle),
        lookahead=check_lookahead(bundle.engine, panel),
        warmup_declared=bundle.manifest.data_contract.warmup_bars,
        warmup_needed=_warmup_needed(bundle, panel),
    )
    progress("evidence")
    if bundle.is_draft:
        parent = bundle.root / "backtests"
    else:
        parent = workspace.runs / "backtests" / bundle.ref
    return result, write_evidence(parent, result, facts, label)


def _range(bundle: Bundle, start: date | None, end: date | None) -> tuple[date, date]:
    first = start or parse_date(bundle.config["start_date"])
    last = end or parse_date(bundle.config["end_date"])
    if first >= last:
        raise UsageError(
            "backtest.bad_range",
            f"the range from {first} to {last} is empty",
            remedy="choose a --start before the --end",
        )
    return first, last


def _panel(
    bundle: Bundle, bars: BarSource, symbols: Sequence[str], first: date, last: date
) -> tuple[MarketPanel, Universe]:
    contract = bundle.manifest.data_contract
    interval = str(bundle.config.get("interval", "1D"))
    if interval not in _INTERVALS:
        raise DataError(
            "backtest.bad_interval",
            f"backtests run on daily bars, not on {interval}",
            where="config.json: interval",
            remedy=f"use one of: {', '.join(_INTERVALS)}",
        )
    selector = {"symbols": [name for symbol in symbols if (name := symbol.strip())]}
    universe = resolve_universe(bars, contract.market, selector, last, since=first)
    if not universe.got:
        covered = bars.coverage(contract.market)
        raise DataError(
            "data.no_bars",
            f"no symbol of {bundle.ref} has bars between {first} and {last}",
            where=bars.name,
            remedy=f"{bars.name} covers {covered.first} to {covered.last}; set --start, --end",
        )
    panel = load_panel(
        bars,
        universe.symbols,
        first,
        last,
        market=contract.market,
        adjustment=contract.adjustment,
        interval=_INTERVALS[interval],
    )
    return panel, universe


def _benchmark(
    workspace: Workspace, bundle: Bundle, bars: BarSource, first: date, last: date
) -> pd.Series | None:
    """Return the index to compare with, when the source has it over the range."""
    market = bundle.manifest.data_contract.market
    named = bundle.config["_kit"].get("benchmark") or market_info(workspace, market).benchmark
    if not named:
        return None
    try:
        panel = load_panel(bars, [named], first, last, market=market, adjustment="none")
    except DataError:
        return None
    return panel.wide("close")[named]


def _warmup_needed(bundle: Bundle, panel: MarketPanel) -> int:
    """Return the history the engine needs; all there is when it cannot do with less.

    It ran on the whole panel before. One that fails on a part of it is reported by the guards.
    """
    try:
        return needed_history(bundle.engine, panel)
    except GuardError:
        return len(panel.dates)


def _steps(bundle: Bundle) -> tuple[StepQuality, ...]:
    return tuple(
        StepQuality(name=name, quality=step.quality, differences=tuple(step.differences))
        for name in bundle.prompts
        for step in [bundle.step(name)]
    )
