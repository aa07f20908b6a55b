"""Do a run over from its folder, offline, and compare bytes.

The notebook runs again with the recorded parameters, run id and card id. What it had from outside,
the answers of models and servers, it is given from the record; bars are read anew, and a difference
in them is a difference. Nothing is claimed and nothing is sent.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kit import files
from kit.bundle import resolve
from kit.clock import Clock
from kit.errors import DataError, KitError, RunError, UsageError
from kit.llm.replay import first_difference
from kit.redact import Redactor
from kit.runner import Execution, Executor, NotebookExecutor, ProgressEvent, read_contract
from kit.runner.kernel import mark_of
from kit.runner.record import FoundRun, RunRecord, find_runs, load_run
from kit.runner.scrub import scrub
from kit.runner.supervise import catch_signals
from kit.workspace import Workspace

__all__ = ["Replay", "latest_screen", "replay_run"]

_FINISHED = ("ok", "degraded")
_TIME_LIMIT_SEC = 600.0
_SHOWN = 300


@dataclass(frozen=True, kw_only=True)
class Replay:
    """What a replay found.

    Attributes:
        run_id: The run.
        compared: Result files that were compared, in order; the last one is the one that differs.
        difference: The first difference; empty when every byte is the same.
    """

    run_id: str
    compared: tuple[str, ...]
    difference: str = ""

    def error(self) -> KitError | None:
        """Return the error a command ends with, None when every byte is the same."""
        if not self.difference:
            return None
        return RunError(
            "replay.differs",
            self.difference,
            where=self.run_id,
            remedy="its bundle, bars or code are not those of the run any more; run it anew: "
            f"kit rerun {self.run_id}",
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form of `kit replay --json`."""
        return {
            "run_id": self.run_id,
            "identical": not self.difference,
            "compared": list(self.compared),
            "difference": self.difference,
        }


def replay_run(
    workspace: Workspace,
    reference: str,
    *,
    clock: Clock,
    executor: Executor | None = None,
    progress: Callable[[ProgressEvent], None] | None = None,
) -> Replay:
    """Do a finished run over and compare the results its notebook promises.

    Args:
        workspace: Whose run.
        reference: Id, a unique part of it, card id, path, or `latest`.
        clock: For durations; the run speaks from its recorded instant.
        executor: Runs the notebook; a kernel by default.
        progress: Takes every event.

    Raises:
        UsageError: `run.unknown`, `run.ambiguous`; `replay.unfinished` for a run that left no
            result of its own; `replay.unsupported` for a notebook that knows no replay.
        ConfigError: The notebook cannot be read.
        StorageError: The disk refused.
    """
    run = load_run(workspace, reference)
    record = _finished(run)
    notebook = workspace.root / record.notebook
    contract = read_contract(notebook)
    if "replay" not in contract.parameters["properties"]:
        raise UsageError(
            "replay.unsupported",
            f"the notebook {record.notebook} takes no parameter `replay`",
            where=run.run_id,
            remedy=f"run it anew: kit rerun {run.run_id}",
        )
    # A path may be no longer than a socket's, and nothing of this is kept.
    with tempfile.TemporaryDirectory(prefix="kit-replay-") as name, catch_signals() as stop:
        folder = Path(name)
        outcome = (executor or NotebookExecutor()).execute(
            Execution(
                notebook=notebook,
                parameters={**record.parameters, "replay": str(run.folder.absolute())},
                reserved={
                    "run_folder": ".",
                    "run_id": record.run_id,
                    "card_id": record.card_id,
                },
                folder=folder,
                time_limit_sec=_TIME_LIMIT_SEC,
                output_limit_bytes=5_000_000,
                environment={"KIT_WORKSPACE": str(workspace.root), "KIT_MODE": "offline"},
                secrets=frozenset(),
                mark=mark_of(folder),
                clock=clock,
                stop=stop,
                progress=progress or _unheard,
                beat=_unheard,
            )
        )
        scrub(folder, Redactor(), _unheard)
        if outcome.failure is not None:
            if outcome.failure.kind == "interrupted":
                raise outcome.failure.to_error()
            # A request that was never made, a bundle that was changed: found before any result.
            said = outcome.failure.evalue or outcome.failure.message
            return Replay(run_id=run.run_id, compared=(), difference=said)
        return _compared(workspace, run, record, folder, contract.results)


def latest_screen(workspace: Workspace, ref: str, trade_date: str | None = None) -> str:
    """Return the id of the latest finished screen of a bundle.

    Args:
        workspace: Whose runs.
        ref: `id` (the active version), `id@version` or `id@draft`.
        trade_date: Only of this date, `YYYY-MM-DD`.

    Raises:
        RegistryError: There is no such bundle.
        UsageError: `run.unknown`: it has no finished screen.
    """
    subject = resolve(workspace, ref, verify=False).ref
    # The latest trade date comes first, the attempts of one date in their order.
    day, found = "", ""
    for run in find_runs(workspace, trade_date=trade_date):
        key = run.record.key if run.record else None
        if key is None or (key.kind, key.subject) != ("screen", subject):
            continue
        if day and run.run_id.partition("/")[0] != day:
            break
        if run.state in _FINISHED:
            day, found = run.run_id.partition("/")[0], run.run_id
    if not found:
        raise UsageError(
            "run.unknown",
            f"there is no finished screen of {subject}{f' on {trade_date}' if trade_date else ''}",
            remedy="list them: kit runs --kind screen",
        )
    return found


def _finished(run: FoundRun) -> RunRecord:
    if run.record is None or run.state not in _FINISHED:
        raise UsageError(
            "replay.unfinished",
            f"the run is {run.state}: it left no result of its own to compare with",
            where=run.run_id,
            remedy=f"run it anew: kit rerun {run.run_id}",
        )
    return run.record


def _compared(
    workspace: Workspace,
    run: FoundRun,
    record: RunRecord,
    folder: Path,
    results: Mapping[str, str | None],
) -> Replay:
    """Compare result files in the order in which the notebook names them."""
    names = list(results)
    for position, name in enumerate(names, start=1):
        said = _difference(run.folder / name, folder / name, name)
        if said:
            digest = record.facts.get("bundle_digest")
            if digest and digest != _digest(workspace, record):
                said = f"{said} (the bundle is not the one of the run)"
            return Replay(run_id=run.run_id, compared=tuple(names[:position]), difference=said)
    return Replay(run_id=run.run_id, compared=tuple(names))


def _difference(then: Path, now: Path, name: str) -> str:
    if not then.is_file() or not now.is_file():
        return f"{name}: {'the run' if now.is_file() else 'the replay'} left none"
    was, is_ = then.read_bytes(), now.read_bytes()
    if was == is_:
        return ""
    try:
        found = first_difference(files.read_json(then), files.read_json(now))
    except DataError:
        found = first_difference(was.decode("utf-8", "replace"), is_.decode("utf-8", "replace"))
    return f"{name}: {found.strip() or 'the same values in other bytes'}"[:_SHOWN]


def _digest(workspace: Workspace, record: RunRecord) -> str:
    try:
        return resolve(workspace, record.key.subject, verify=False).digest
    except KitError:
        return ""


def _unheard(*_: object) -> None:
    """Take what nobody asked for."""
