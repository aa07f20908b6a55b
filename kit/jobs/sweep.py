"""Sweep a grid of parameters: here, in several processes, or on a Dask cluster, to one result.

A cell is the bundle's own code in a folder of its own with another `config.json`: any bundle whose
code reads its parameters from there can be swept, and nothing of the bundle changes. The bars, the
market's rules and the money are worked out once and travel to the workers. Cells are counted as
trials when they come back, so those of a sweep that was stopped are counted too; the folder of
results appears when all is done, or not at all.
"""

from __future__ import annotations

import multiprocessing
import signal
import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent import futures
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

import pandas as pd

from kit import files
from kit.backtest import BacktestResult
from kit.backtest.folder import publish
from kit.backtest.sweep import Cell, Grid, cell_of, combinations, out_of_sample, parse_grid, table
from kit.backtest.sweep_report import build_sweep_report
from kit.backtest.trials import Trials
from kit.backtest.weights import target_weights
from kit.bundle.code import load_engine
from kit.bundle.layout import CONFIG, MANIFEST, walk
from kit.bundle.manifest import Execution
from kit.clock import Clock, iso
from kit.errors import KitError, RunError, UsageError
from kit.jobs.lock import require_lock
from kit.jobs.study import Study, count, open_study
from kit.market import MarketPanel
from kit.workspace import Workspace

__all__ = ["Sweep", "sweep"]

Finished = Generator[tuple[int, Cell], None, None]

_CONNECT_SEC = 10
_WIDE = ("open", "high", "low", "close", "volume", "amount", "adj_factor")


@dataclass(frozen=True, kw_only=True)
class Work:
    """What a worker needs to run any cell.

    Attributes:
        files: Relative path -> content of the bundle's code and manifest.
        config: `config.json`.
        execution: How the code is entered.
        panel: The bars.
        warmup_bars: Bars a symbol needs before its weights count.
        base: The bundle's own backtest: setup, prices and notes are those of every cell.
    """

    files: Mapping[str, bytes]
    config: Mapping[str, Any]
    execution: Execution
    panel: MarketPanel
    warmup_bars: int
    base: BacktestResult

    def run(self, params: Mapping[str, Any]) -> Cell:
        """Backtest one cell; what its code does wrong is part of the answer."""
        own = self.config["_kit"]
        config = {**self.config, "_kit": {**own, "params": {**own["params"], **params}}}
        with tempfile.TemporaryDirectory(prefix="kit-sweep-") as folder:
            root = Path(folder) / "cell"
            for name, data in {**self.files, CONFIG: files.canonical_json(config)}.items():
                files.make_dir((root / name).parent)
                files.write_bytes(root / name, data)
            try:
                engine = load_engine(root, self.execution)
                asked = target_weights(engine, self.panel, warmup_bars=self.warmup_bars)
            except KitError as error:
                nothing = self.base.equity.to_numpy(dtype="float64")[:0]
                return Cell(params=dict(params), metrics={}, returns=nothing, error=error.message)
        weights = pd.DataFrame(
            asked.values, index=self.panel.dates, columns=list(self.panel.symbols)
        )
        fills = self.base.setup.simulate(weights)
        return cell_of(replace(self.base, weights=weights, fills=fills), params)


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """What a sweep found.

    Attributes:
        ref: `id@version` or `id@draft`.
        grid: Parameter -> values.
        cells: In the order of the grid.
        trials: Of the best cell, all cells counted; None when none moved.
        unseen: What picking the best was worth on unseen bars; see `out_of_sample`.
        folder: Where the results are.
    """

    ref: str
    grid: Grid
    cells: tuple[Cell, ...]
    trials: Trials | None
    unseen: Mapping[str, Any]
    folder: Path

    @property
    def best(self) -> Cell | None:
        """The cell with the highest Sharpe ratio; None when none has any."""
        return best_of(self.cells)

    def to_dict(self) -> dict[str, Any]:
        """Return the shape of `sweep.json` and of `kit sweep --json`."""
        return _facts(self.ref, self.grid, self.cells, self.trials, self.unseen)


def sweep(
    workspace: Workspace,
    ref: str,
    params: Sequence[str],
    *,
    clock: Clock,
    start: date | None = None,
    end: date | None = None,
    symbols: Sequence[str] | None = None,
    source: str = "sample",
    jobs: int = 1,
    dask: str | None = None,
    progress: Callable[[str], None] = lambda _message: None,
) -> Sweep:
    """Backtest every combination of some parameter values.

    Args:
        workspace: The workspace.
        ref: `id` (the active version), `id@version` or `id@draft`.
        params: `name=values` each; see `kit.backtest.sweep`.
        clock: Gives trials and results their time.
        start: First session; the bundle's `config.json` when None.
        end: Last session; the bundle's `config.json` when None.
        symbols: Symbols to trade; the bundle's `config.json` when None.
        source: Name of the bar source.
        jobs: Processes to run in, this one when 1.
        dask: Address of a Dask scheduler to run on instead.
        progress: Called with one line a finished cell.

    Raises:
        UsageError: `sweep.unknown_param`, `sweep.bad_param`, `sweep.too_large`,
            `sweep.needs_scale`, `sweep.no_scheduler`.
        RunError: `sweep.worker_lost`.
        KitError: As `open_study`, `require_lock` and `run_backtest`.
    """
    study = open_study(workspace, ref, start=start, end=end, symbols=symbols, source=source)
    grid = parse_grid(params, study.bundle.params)
    wanted = combinations(grid)
    require_lock(workspace, study.bundle, clock=clock)
    work = _work(study)
    periods = work.base.metrics.periods_per_year
    found: dict[int, Cell] = {}
    # Closed on the way out whatever happens: no worker outlives its sweep.
    with closing(_run(work, wanted, jobs, dask)) as running:
        for place, cell in running:
            found[place] = cell
            if not cell.error:
                count(workspace, study, cell.returns, periods, clock=clock, params=cell.params)
            said = cell.error or f"sharpe {_short(cell.metrics['sharpe'])}"
            progress(f"[{len(found)}/{len(wanted)}] {cell.name}  {said}")
    cells = tuple(found[place] for place in range(len(wanted)))
    best = best_of(cells)
    trials = None
    if best is not None:
        trials = count(workspace, study, best.returns, periods, clock=clock, params=best.params)
    unseen = out_of_sample(cells, periods)
    facts = _facts(study.bundle.ref, grid, cells, trials, unseen)
    created_at = iso(clock.now())
    notes = list(work.base.notes)

    def fill(folder: Path) -> None:
        files.write_json(folder / "sweep.json", {**facts, "created_at": created_at, "notes": notes})
        files.write_text(folder / "cells.csv", table(cells).to_csv(index=False))
        page = build_sweep_report(facts, cells, grid, notes=notes, partial=study.partial)
        files.write_text(folder / "report.html", page)

    parent = workspace.runs / "sweeps" / study.bundle.ref
    folder = publish(parent, created_at[:10], None, fill, place=workspace.runs)
    return Sweep(
        ref=study.bundle.ref, grid=grid, cells=cells, trials=trials, unseen=unseen, folder=folder
    )


def best_of(cells: Sequence[Cell]) -> Cell | None:
    """Return the first cell with the highest Sharpe ratio."""
    known = [cell for cell in cells if cell.metrics.get("sharpe") is not None]
    return max(known, key=lambda cell: float(cell.metrics["sharpe"] or 0.0), default=None)


def _facts(
    ref: str,
    grid: Grid,
    cells: Sequence[Cell],
    trials: Trials | None,
    unseen: Mapping[str, Any],
) -> dict[str, Any]:
    best = best_of(cells)
    return {
        "schema_version": "1.0",
        "ref": ref,
        "grid": {name: list(values) for name, values in grid.items()},
        "cells": [cell.to_dict() for cell in cells],
        "best": best and dict(best.params),
        "trials": trials and trials.to_dict(),
        "out_of_sample": dict(unseen),
    }


def _work(study: Study) -> Work:
    bundle, inputs = study.bundle, study.inputs
    names = [name for name in walk(bundle.root).files if name.startswith("code/")]
    inputs.panel.prefetch(_WIDE)  # a worker elsewhere has no bars of its own
    return Work(
        files={name: (bundle.root / name).read_bytes() for name in (*names, MANIFEST)},
        config=bundle.config,
        execution=bundle.manifest.execution,
        panel=inputs.panel,
        warmup_bars=inputs.settings.warmup_bars,
        base=inputs.simulate(bundle.engine()),
    )


def _run(work: Work, wanted: Sequence[Mapping[str, Any]], jobs: int, dask: str | None) -> Finished:
    """Yield place and cell as they finish."""
    if dask is not None:
        return _on_dask(work, wanted, dask)
    if jobs > 1:
        return _in_processes(work, wanted, jobs)
    return ((place, work.run(params)) for place, params in enumerate(wanted))


# In processes

_received: list[Work] = []


def _receive(work: Work) -> None:
    # Ctrl-C goes to every process of the terminal; the one that started these ends them.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _received[:] = [work]


def _run_received(params: Mapping[str, Any]) -> Cell:
    return _received[0].run(params)


def _in_processes(work: Work, wanted: Sequence[Mapping[str, Any]], jobs: int) -> Finished:
    others = multiprocessing.active_children()
    # Spawned: a forked child would share locks of threads it does not have.
    pool = futures.ProcessPoolExecutor(
        min(jobs, len(wanted)),
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_receive,
        initargs=(work,),
    )
    try:
        places = {pool.submit(_run_received, params): k for k, params in enumerate(wanted)}
        for done in futures.as_completed(places):
            yield places[done], done.result()
        pool.shutdown()
    except futures.process.BrokenProcessPool as error:
        raise _lost("a process ended before its cells were done") from error
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in multiprocessing.active_children():
            if child not in others:
                child.terminate()
                child.join()


# On a cluster


def _on_dask(work: Work, wanted: Sequence[Mapping[str, Any]], address: str) -> Finished:
    try:
        import distributed
    except ImportError as error:
        raise UsageError(
            "sweep.needs_scale",
            "Dask's distributed is not installed",
            remedy="install the extra: pip install 'kit[scale]', or use --jobs",
        ) from error
    library: Any = distributed  # it has no types
    try:
        client = library.Client(address, timeout=_CONNECT_SEC, set_as_default=False)
    except (OSError, ValueError) as error:
        raise UsageError(
            "sweep.no_scheduler",
            f"no Dask scheduler answers at {address}",
            remedy="start one: dask scheduler; and dask worker ADDRESS on each machine",
        ) from error
    submitted: list[Any] = []
    with client:
        try:
            sent = client.scatter(work, broadcast=True, hash=False)
            submitted = [
                client.submit(Work.run, sent, params, pure=False, retries=1) for params in wanted
            ]
            places = {task.key: place for place, task in enumerate(submitted)}
            for task in library.as_completed(submitted, loop=client.loop):
                yield places[task.key], _result(task)
        finally:
            client.cancel(submitted)


def _result(task: Any) -> Cell:
    error = task.exception()
    if error is not None:
        raise _lost(f"a worker failed: {type(error).__name__}: {error}") from error
    cell: Cell = task.result()
    return cell


def _lost(message: str) -> RunError:
    return RunError(
        "sweep.worker_lost",
        message,
        remedy="memory may have run out: sweep again with fewer workers; finished cells are "
        "counted as trials already, and are not counted twice",
    )


def _short(value: float | None) -> str:
    return "none" if value is None else f"{value:.2f}"
