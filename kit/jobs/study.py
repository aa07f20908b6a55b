"""All that a backtest of a bundle needs, gathered once: bars, symbols, settings, rules, benchmark.

A backtest, a validation, each cell of a sweep and the freshness check of a freeze begin here, so
that they mean the same bars by the same words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import numpy as np
import pandas as pd

from kit.backtest import BacktestResult, run_backtest
from kit.backtest.settings import Settings
from kit.backtest.trials import Trials, count_trial
from kit.bundle import Bundle, resolve
from kit.clock import Clock, iso, parse_date
from kit.errors import DataError, UsageError
from kit.market import (
    BarSource,
    MarketPanel,
    MarketRules,
    Universe,
    load_panel,
    market_info,
    open_source,
    resolve_universe,
    with_context,
)
from kit.state import Store
from kit.workspace import Workspace

__all__ = ["Inputs", "Study", "count", "data_fingerprint", "open_study"]


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What a simulation needs beside the engine; travels to other processes.

    Attributes:
        panel: The bars.
        universe: Symbols asked, got and dropped.
        settings: Money, slippage, fill, warm-up.
        rules: The market's rules.
        evaluation_start: First graded day, or None for the end of the warm-up.
        benchmark: Levels of the index to compare with, or None.
    """

    panel: MarketPanel
    universe: Universe
    settings: Settings
    rules: MarketRules
    evaluation_start: date | None
    benchmark: pd.Series | None

    def simulate(self, engine: Any) -> BacktestResult:
        """Backtest an engine; see `run_backtest` for the errors."""
        return run_backtest(
            engine,
            self.panel,
            self.settings,
            rules=self.rules,
            securities=self.universe.got,
            evaluation_start=self.evaluation_start,
            benchmark=self.benchmark,
            dropped=self.universe.dropped,
        )


@dataclass(frozen=True, kw_only=True)
class Study:
    """A bundle with the data it is to be judged on.

    Attributes:
        bundle: The bundle.
        fingerprints: `code`, `prompts`, `config` and `data`, taken before anything ran.
        source: Name of the bar source.
        synthetic: Whether its bars are invented.
        inputs: What a simulation needs.
        partial: What was narrowed against `config.json`: any of `symbols`, `range`.
        identity: What makes a trial of it this one, parameters apart.
    """

    bundle: Bundle
    fingerprints: Mapping[str, str]
    source: str
    synthetic: bool
    inputs: Inputs
    partial: tuple[str, ...]
    identity: Mapping[str, Any]

    @property
    def panel(self) -> MarketPanel:
        """The bars."""
        return self.inputs.panel

    def trial(self, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return what identifies a trial, with other parameters when given."""
        return {**self.identity, "params": {**self.bundle.params, **(params or {})}}


def open_study(
    workspace: Workspace,
    ref: str,
    *,
    start: date | None = None,
    end: date | None = None,
    symbols: Sequence[str] | None = None,
    source: str = "sample",
) -> Study:
    """Gather what a backtest of a bundle needs.

    Args:
        workspace: The workspace.
        ref: `id` (the active version), `id@version` or `id@draft`.
        start: First session; the bundle's `config.json` when None.
        end: Last session; the bundle's `config.json` when None.
        symbols: Symbols to trade; the bundle's `config.json` when None.
        source: Name of the bar source.

    Raises:
        RegistryError: No such strategy or version.
        BundleError: The bundle is tampered with or malformed.
        UsageError: `backtest.bad_range`.
        DataError: No bars in the range, naming what the source covers.
    """
    bundle = resolve(workspace, ref)
    # Taken first: a draft that is edited meanwhile then has stale evidence, not evidence of code
    # that never ran.
    fingerprints = bundle.fingerprints
    config, manifest = bundle.config, bundle.manifest
    first, last = _range(bundle, start, end)
    bars = open_source(workspace, source)
    codes = [str(code) for code in config["codes"]] if symbols is None else list(symbols)
    panel, universe = _panel(workspace, bundle, bars, codes, first, last)
    evaluation = config.get("evaluation_start_date")
    inputs = Inputs(
        panel=panel,
        universe=universe,
        settings=Settings.of(config, manifest.execution, manifest.data_contract),
        rules=MarketRules.load(workspace, panel.market),
        evaluation_start=parse_date(evaluation) if evaluation else None,
        benchmark=_benchmark(workspace, bundle, bars, first, last, panel.interval),
    )
    return Study(
        bundle=bundle,
        fingerprints={**fingerprints, "data": panel.fingerprint},
        source=bars.name,
        synthetic=panel.synthetic,
        inputs=inputs,
        partial=_partial(bundle, universe.asked, first, last),
        identity={
            "code": fingerprints["code"],
            "symbols": sorted(universe.asked),
            "range": [str(first), str(last)],
            "evaluation_start": evaluation,
            "settings": inputs.settings.to_dict(),
            "adjustment": panel.adjustment,
        },
    )


def count(
    workspace: Workspace,
    study: Study,
    returns: np.ndarray[Any, np.dtype[np.float64]],
    periods: float | None,
    *,
    clock: Clock,
    params: Mapping[str, Any] | None = None,
) -> Trials:
    """Count a backtest of the study among the trials of its family; see `count_trial`."""
    return count_trial(
        Store(workspace.state_path),
        study.bundle.id,
        study.trial(params),
        returns,
        ref=study.bundle.ref,
        at=iso(clock.now()),
        periods=periods,
    )


def data_fingerprint(workspace: Workspace, bundle: Bundle, source: str) -> str:
    """Return the fingerprint of the bars that a bundle's config names, as a source has them now.

    Raises:
        DataError: As `open_study`.
    """
    first, last = _range(bundle, None, None)
    bars = open_source(workspace, source)
    return _panel(workspace, bundle, bars, bundle.config["codes"], first, last)[0].fingerprint


def _partial(bundle: Bundle, asked: Sequence[str], first: date, last: date) -> tuple[str, ...]:
    config = bundle.config
    narrowed = {
        "symbols": set(asked) != {code.strip() for code in config["codes"]},
        "range": (str(first), str(last)) != (config["start_date"], config["end_date"]),
    }
    return tuple(name for name, is_so in narrowed.items() if is_so)


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
    workspace: Workspace,
    bundle: Bundle,
    bars: BarSource,
    symbols: Sequence[str],
    first: date,
    last: date,
) -> tuple[MarketPanel, Universe]:
    contract = bundle.manifest.data_contract
    selector = {"symbols": [name for symbol in symbols if (name := symbol.strip())]}
    spacing = str(bundle.config.get("interval", "1D")).lower()
    universe = resolve_universe(
        bars, contract.market, selector, last, since=first, interval=spacing
    )
    if not universe.got:
        covered = bars.coverage(contract.market, spacing)
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
        interval=spacing,
    )
    panel = with_context(panel, workspace, bars, contract.context, first, last)
    return panel, universe


def _benchmark(
    workspace: Workspace, bundle: Bundle, bars: BarSource, first: date, last: date, interval: str
) -> pd.Series | None:
    """Return the index to compare with, when the source has it over the range."""
    market = bundle.manifest.data_contract.market
    named = bundle.config["_kit"].get("benchmark") or market_info(workspace, market).benchmark
    if not named:
        return None
    try:
        panel = load_panel(
            bars, [named], first, last, market=market, adjustment="none", interval=interval
        )
    except DataError:
        return None
    return panel.wide("close")[named]
