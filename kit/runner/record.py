"""The record of a run (`run.json`), and finding runs by it.

A folder without a valid record is not a run: nothing else in it is read.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from kit import files, schemas
from kit.errors import DataError, KitError, UsageError
from kit.runner.identity import RunKey, card_id_of
from kit.state.process import Holder, is_alive
from kit.workspace import Workspace

__all__ = ["RECORD_FILE", "FoundRun", "RunRecord", "find_runs", "load_run", "versions"]

RECORD_FILE = "run.json"
RunStatus = Literal["running", "ok", "degraded", "failed", "interrupted"]

_ATTEMPT = re.compile(r"(\d{1,6})(\.partial|\.dead)?")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_MAX_SHOWN = 5


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """What `run.json` says.

    Attributes:
        run_id: Folder relative to `runs/`.
        card_id: Short id of the run's card.
        key: The run key.
        attempt: Number within the folder.
        status: `running` only while the folder is partial.
        display: Title for people.
        notebook: Source notebook, relative to the workspace.
        notebook_sha256: Digest of the notebook as it was read; empty when it was not.
        parameters: As injected, the reserved ones left out.
        facts: What the job knows of its inputs (bundle digest, data fingerprint, mode).
        versions: Of kit and Python.
        git_commit: Commit of the workspace, `None` outside git.
        started_at: ISO 8601, UTC.
        finished_at: ISO 8601, UTC; `None` while it runs.
        seconds: Wall-clock seconds of the notebook.
        cells: Every code cell with number, title, status, seconds.
        failure: `RunFailure.to_dict()`, `None` when there was none.
        warnings: What a person should know beside the result.
        holder: The process that ran it.
    """

    run_id: str
    card_id: str
    key: RunKey
    attempt: int
    status: RunStatus
    display: str
    notebook: str
    parameters: Mapping[str, Any]
    started_at: str
    holder: Holder
    notebook_sha256: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    git_commit: str | None = None
    finished_at: str | None = None
    seconds: float | None = None
    cells: tuple[Mapping[str, Any], ...] = ()
    failure: Mapping[str, Any] | None = None
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, which the schema `run` describes."""
        return {
            "schema_version": "1.0",
            "run_id": self.run_id,
            "card_id": self.card_id,
            "key": self.key.to_dict(),
            "attempt": self.attempt,
            "status": self.status,
            "display": self.display,
            "notebook": self.notebook,
            "notebook_sha256": self.notebook_sha256,
            "parameters": dict(self.parameters),
            "facts": dict(self.facts),
            "versions": dict(self.versions),
            "git_commit": self.git_commit,
            "started_at": self.started_at,
            "finished_at": self.finished_at,
            "seconds": None if self.seconds is None else round(self.seconds, 3),
            "cells": [dict(cell) for cell in self.cells],
            "failure": None if self.failure is None else dict(self.failure),
            "warnings": list(self.warnings),
            "holder": asdict(self.holder),
        }

    @classmethod
    def from_dict(cls, value: Any, *, where: str = "") -> RunRecord:
        """Read the JSON form.

        Raises:
            DataError: `data.schema`.
        """
        schemas.check("run", value, where=where)
        plain = {k: v for k, v in value.items() if k not in ("schema_version", "key", "holder")}
        plain["cells"] = tuple(plain["cells"])
        plain["warnings"] = tuple(plain["warnings"])
        return cls(**plain, key=RunKey.from_dict(value["key"]), holder=Holder(**value["holder"]))

    @classmethod
    def read(cls, folder: Path) -> RunRecord:
        """Read the record of a run folder.

        Raises:
            DataError: There is none, or it is not valid.
        """
        path = folder / RECORD_FILE
        return cls.from_dict(files.read_json(path), where=str(path))


@dataclass(frozen=True, kw_only=True)
class FoundRun:
    """A folder below `runs/` that is, was, or should have been a run.

    Attributes:
        run_id: Its id.
        folder: Its path.
        state: The record's status; `dead` when its process died in it; `unreadable` when there
            is no valid record.
        record: The record, where it could be read.
        problem: Why it could not.
    """

    run_id: str
    folder: Path
    state: str
    record: RunRecord | None = None
    problem: str = ""


def find_runs(
    workspace: Workspace, *, trade_date: str | None = None, prefix: str = ""
) -> Iterator[FoundRun]:
    """Find all runs, the latest trade date first, then by folder and attempt.

    Args:
        workspace: Whose runs.
        trade_date: Only this date, `YYYY-MM-DD`.
        prefix: Only folders of a day whose names begin so; the records of others are not read.
    """
    for run_id, folder in _folders(workspace, trade_date):
        if run_id.partition("/")[2].startswith(prefix):
            yield _look(run_id, folder)


def load_run(workspace: Workspace, reference: str) -> FoundRun:
    """Find one run by its id, a unique part of it, its card id, its path, or the word `latest`.

    Raises:
        UsageError: `run.unknown` with near matches, or `run.ambiguous` with the candidates.
    """
    known = dict(_folders(workspace, None))
    text = reference.strip().rstrip("/")
    if text == "latest" and known:
        return _latest(known)
    for name in (text, _below(workspace, text)):
        if name in known:
            return _look(name, known[name])
    if text:
        found = [i for i in known if i.startswith(text) or card_id_of(i).startswith(text)]
        found = found or [i for i in known if text in i]
        if len(found) == 1:
            return _look(found[0], known[found[0]])
        if found:
            raise UsageError(
                "run.ambiguous",
                f"{reference!r} fits {len(found)} runs",
                remedy=f"name one of: {', '.join(found[:_MAX_SHOWN])}",
                details={"runs": found},
            )
    raise UsageError(
        "run.unknown",
        f"there is no run {reference!r}",
        remedy=schemas.suggestion(text, known) or "list them: kit runs",
    )


def versions() -> dict[str, str]:
    """Return the versions that made a run."""
    try:
        own = metadata.version("kit")
    except metadata.PackageNotFoundError:
        own = "unknown"
    return {"kit": own, "python": platform.python_version()}


def _folders(workspace: Workspace, trade_date: str | None) -> Iterator[tuple[str, Path]]:
    for day in sorted(_entries(workspace.runs), key=lambda path: path.name, reverse=True):
        if not _DATE.fullmatch(day.name) or (trade_date and day.name != trade_date):
            continue
        for subject in sorted(_entries(day)):
            attempts = [(m, e) for e in _entries(subject) if (m := _ATTEMPT.fullmatch(e.name))]
            for match, entry in sorted(attempts, key=lambda pair: int(pair[0][1])):
                # An attempt that died shares its number with no finished one.
                yield f"{day.name}/{subject.name}/{match[1]}", entry


def _entries(folder: Path) -> list[Path]:
    try:
        return [entry for entry in folder.iterdir() if entry.is_dir()]
    except OSError:
        return []


def _look(run_id: str, folder: Path) -> FoundRun:
    try:
        record = RunRecord.read(folder)
    except KitError as error:
        if folder.suffix and isinstance(error, DataError) and error.code == "file.missing":
            return FoundRun(run_id=run_id, folder=folder, state="dead", problem="it left no record")
        return FoundRun(run_id=run_id, folder=folder, state="unreadable", problem=str(error))
    state: str = record.status
    if folder.suffix == ".dead" or (
        folder.suffix == ".partial" and is_alive(record.holder) is False
    ):
        state = "dead"
    return FoundRun(run_id=run_id, folder=folder, state=state, record=record)


def _latest(known: Mapping[str, Path]) -> FoundRun:
    found = (_look(run_id, folder) for run_id, folder in known.items())
    return max(found, key=lambda run: run.record.started_at if run.record else "")


def _below(workspace: Workspace, text: str) -> str:
    """Turn a path to a run folder into its id."""
    path = Path(text).expanduser()
    candidates = [path if path.is_absolute() else Path.cwd() / path, workspace.root / path]
    for candidate in candidates:
        try:
            inside = candidate.resolve().relative_to(workspace.runs.resolve())
        except (ValueError, OSError):
            continue
        return inside.as_posix().removesuffix(".partial").removesuffix(".dead")
    return ""
