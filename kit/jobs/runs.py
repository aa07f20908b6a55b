"""Look at runs: the list, and everything about one of them. Reads only; computes nothing anew."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kit import files
from kit.card import Card
from kit.delivery import receipts_of
from kit.errors import DataError, KitError, StorageError
from kit.runner.record import FoundRun, find_runs, load_run
from kit.runner.run import RECEIPTS_FILE
from kit.state import Store
from kit.workspace import Workspace

__all__ = ["RunDetails", "RunRow", "list_runs", "show_run"]

_OWN_FILES = ("run.json", "log.txt", "events.jsonl", RECEIPTS_FILE, "kernel.log")


@dataclass(frozen=True, kw_only=True)
class RunRow:
    """One line of `kit runs`.

    Attributes:
        run_id: Id of the run.
        status: `ok`, `degraded`, `failed`, `interrupted`, `running`, `dead` or `unreadable`.
        kind: What was run; empty when the record cannot be read, like all that follows.
        subject: Bundle or market.
        trade_date: `YYYY-MM-DD`.
        slot: Slot id, or `None`.
        run_type: `manual` or `scheduled`.
        started_at: ISO 8601, UTC.
        seconds: Wall-clock seconds, `None` while it runs.
        receipts: Channel -> state.
        note: The failure, or why the record cannot be read.
    """

    run_id: str
    status: str
    kind: str = ""
    subject: str = ""
    trade_date: str = ""
    slot: str | None = None
    run_type: str = ""
    started_at: str = ""
    seconds: float | None = None
    receipts: Mapping[str, str]
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form of `kit runs --json`."""
        return {**vars(self), "receipts": dict(self.receipts)}


@dataclass(frozen=True, kw_only=True)
class RunDetails:
    """All of `kit show RUN`.

    Attributes:
        run_id: Id of the run.
        status: As in `RunRow`.
        folder: Its folder, relative to the workspace.
        record: `run.json`; `None` when it cannot be read.
        receipts: What each channel said.
        card: The card that was sent, or `None`.
        degradation: `degradation.json`, or `None`.
        files: Every file of the folder, relative to it, the evidence first.
        problem: Why the record cannot be read.
        next_command: What to do next, possibly empty.
    """

    run_id: str
    status: str
    folder: str
    record: Mapping[str, Any] | None
    receipts: tuple[Mapping[str, Any], ...]
    card: Card | None
    degradation: Mapping[str, Any] | None
    files: tuple[str, ...]
    problem: str
    next_command: str

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form of `kit show --json`."""
        return {
            "run_id": self.run_id,
            "status": self.status,
            "folder": self.folder,
            "record": self.record,
            "receipts": [dict(receipt) for receipt in self.receipts],
            "card": None if self.card is None else self.card.to_dict(),
            "degradation": self.degradation,
            "files": list(self.files),
            "problem": self.problem,
            "next_command": self.next_command,
        }


def list_runs(
    workspace: Workspace,
    *,
    trade_date: str | None = None,
    kind: str | None = None,
    subject: str | None = None,
    limit: int | None = None,
) -> list[RunRow]:
    """List runs, the latest trade date first.

    Args:
        workspace: Whose runs.
        trade_date: Only this date, `YYYY-MM-DD`.
        kind: Only this kind.
        subject: Only subjects that begin with this text, so that an id finds all its versions.
        limit: At most this many.
    """
    rows = []
    for run in find_runs(workspace, trade_date=trade_date):
        row = _row(run)
        if (kind and row.kind != kind) or (subject and not row.subject.startswith(subject)):
            continue
        rows.append(row)
        if limit is not None and len(rows) >= limit:
            break
    return rows


def show_run(workspace: Workspace, store: Store | None, reference: str) -> RunDetails:
    """Gather what is known about one run.

    Args:
        workspace: Whose run.
        store: Asked for receipts the folder does not hold; `None` to ask the folder only.
        reference: Id, a unique part of it, card id, path, or `latest`.

    Raises:
        UsageError: `run.unknown` or `run.ambiguous`.
    """
    run = load_run(workspace, reference)
    card = _json(run.folder / "card.json")
    degradation = _json(run.folder / "degradation.json")
    return RunDetails(
        run_id=run.run_id,
        status=run.state,
        folder=workspace.relative(run.folder),
        record=None if run.record is None else run.record.to_dict(),
        receipts=_receipts(run, store),
        card=_card(card),
        degradation=degradation,
        files=_files(run.folder),
        problem=run.problem,
        next_command=_next_command(run),
    )


def _row(run: FoundRun) -> RunRow:
    receipts = {row["channel"]: row["state"] for row in _receipts(run, None)}
    record = run.record
    if record is None:
        return RunRow(run_id=run.run_id, status=run.state, receipts=receipts, note=run.problem)
    return RunRow(
        run_id=run.run_id,
        status=run.state,
        kind=record.key.kind,
        subject=record.key.subject,
        trade_date=record.key.trade_date.isoformat(),
        slot=record.key.slot,
        run_type=record.key.run_type,
        started_at=record.started_at,
        seconds=record.seconds,
        receipts=receipts,
        note=record.failure["message"] if record.failure else "",
    )


def _receipts(run: FoundRun, store: Store | None) -> tuple[Mapping[str, Any], ...]:
    mirrored = _json(run.folder / RECEIPTS_FILE)
    if mirrored is not None:
        rows = mirrored.get("receipts", [])
        return tuple(row for row in rows if {"channel", "state"} <= set(row))
    if store is None:
        return ()
    try:
        return tuple(receipt.to_dict() for receipt in receipts_of(store, run.run_id))
    except StorageError:
        return ()


def _json(path: Path) -> dict[str, Any] | None:
    try:
        value = files.read_json(path)
    except (DataError, StorageError):
        return None
    return value if isinstance(value, dict) else None


def _card(value: dict[str, Any] | None) -> Card | None:
    with contextlib.suppress(KitError):
        return None if value is None else Card.from_dict(value)
    return None


def _files(folder: Path) -> tuple[str, ...]:
    found = [p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()]
    return tuple(sorted(found, key=lambda name: (name in _OWN_FILES, name)))


def _next_command(run: FoundRun) -> str:
    if run.state in ("failed", "interrupted", "dead"):
        return f"kit rerun {run.run_id}"
    return ""
