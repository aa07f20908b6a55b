"""What became of each cell, said honestly, and the one writer of the executed notebook.

papermill marks cells that never ran as completed when a run breaks off; here a cell is `pending`
until it starts, `running` while it runs, and ends `completed`, `failed`, or `aborted` when the run
was cut off inside it. The same words go into `metadata.papermill` of the notebook and `run.json`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from kit import files
from kit.clock import Clock, iso
from kit.redact import Redactor

__all__ = ["CellLedger", "CellRecord", "CellStatus", "ProgressEvent", "cell_titles", "tags_of"]

CellStatus = Literal["pending", "running", "completed", "failed", "aborted"]

_HEADING = re.compile(r"^\s{0,3}#{1,6}\s+(.+?)\s*#*\s*$", re.MULTILINE)
_SAVE_EVERY_SEC = 2.0


@dataclass(frozen=True, kw_only=True)
class ProgressEvent:
    """One line of the event stream, for a terminal, a log or `events.jsonl`.

    Attributes:
        at: When, ISO 8601 in UTC.
        kind: `started`, `cell_started`, `cell_done`, `warning`, `stopping`, `finished`,
            `delivered`.
        title: Title of the cell, or of the run.
        n: Number of the code cell, from 1; 0 when it is not about a cell.
        of: How many code cells there are.
        seconds: How long the cell or run took, where it has ended.
        message: More words, possibly empty.
    """

    at: str
    kind: str
    title: str
    n: int = 0
    of: int = 0
    seconds: float | None = None
    message: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON shape of one line of `events.jsonl`."""
        value = {"at": self.at, "kind": self.kind, "title": self.title, "n": self.n, "of": self.of}
        if self.seconds is not None:
            value["seconds"] = round(self.seconds, 3)
        if self.message:
            value["message"] = self.message
        return value


@dataclass(kw_only=True)
class CellRecord:
    """One code cell that has something to run.

    Attributes:
        n: Number among them, from 1.
        index: Position in the notebook, from 0.
        title: The nearest markdown heading above, or the cell's first line.
        status: What became of it.
        seconds: How long it ran, `None` before it ended.
    """

    n: int
    index: int
    title: str
    status: CellStatus = "pending"
    seconds: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the shape used in `run.json`."""
        seconds = None if self.seconds is None else round(self.seconds, 3)
        return {"n": self.n, "title": self.title, "status": self.status, "seconds": seconds}


class CellLedger:
    """Follows the cells of one notebook and saves it: at the start, now and then, at the end.

    Args:
        notebook: The notebook being executed (an `nbformat` node); its metadata is written to.
        path: Where it is saved, or `None` for nowhere.
        clock: For time stamps and durations.
        progress: Called with every event.
        redactor: Masks secrets in outputs before anything is saved.
    """

    def __init__(
        self,
        notebook: Any,
        path: Path | None,
        clock: Clock,
        progress: Callable[[ProgressEvent], None],
        redactor: Redactor,
    ) -> None:
        self.notebook = notebook
        self._path = path
        self._clock = clock
        self._progress = progress
        self._redactor = redactor
        self._saved_at = 0.0
        self._began = 0.0
        titles = cell_titles(notebook.cells)
        self.records = [
            CellRecord(n=n, index=index, title=titles[index])
            for n, index in enumerate(
                (i for i, cell in enumerate(notebook.cells) if _runs(cell)), start=1
            )
        ]

    @property
    def all_completed(self) -> bool:
        """Whether every cell ran to its end."""
        return all(record.status == "completed" for record in self.records)

    def begin(self) -> None:
        """Mark every cell pending, drop old outputs, and save."""
        for cell in self.notebook.cells:
            if cell.cell_type == "code":
                cell.outputs = []
                cell.execution_count = None
                # A blank cell has nothing to wait for.
                status = "pending" if _runs(cell) else "completed"
                cell.metadata["papermill"] = {"status": status, "exception": None}
        self._save()

    def start(self, record: CellRecord) -> None:
        """A cell starts."""
        self._began = self._clock.monotonic()
        self._set(record, "running")
        self._emit("cell_started", record)

    def end(self, record: CellRecord, status: CellStatus, *, keep: int | None = None) -> None:
        """A cell has ended; of each of its outputs at most `keep` characters are kept."""
        record.seconds = self._clock.monotonic() - self._began
        self._clean(self.notebook.cells[record.index], keep)
        self._set(record, status)
        self._emit("cell_done", record, message="" if status == "completed" else status)
        if self._clock.monotonic() - self._saved_at >= _SAVE_EVERY_SEC:
            self._save()

    def close(self) -> None:
        """Mark a cell that was cut off, and save for the last time."""
        for record in self.records:
            if record.status == "running":
                self.end(record, "aborted")
        self._save()

    def _set(self, record: CellRecord, status: CellStatus) -> None:
        record.status = status
        metadata = self.notebook.cells[record.index].metadata
        metadata["papermill"] = {
            "status": status,
            "exception": None if status in ("pending", "running") else status == "failed",
            "duration": record.seconds,
        }

    def _clean(self, cell: Any, keep: int | None) -> None:
        """Join the pieces of each stream, then mask secrets (one may span two pieces)."""
        joined: list[Any] = []
        for output in cell.outputs:
            last = joined[-1] if joined else None
            if (
                last is not None
                and output.output_type == "stream" == last.output_type
                and output.name == last.name
            ):
                last.text += output.text
            else:
                joined.append(output)
        for output in joined:
            if keep is not None and output.output_type == "stream":
                output.text = output.text[:keep]
            for key in ("text", "data", "evalue", "traceback"):
                if key in output:
                    output[key] = self._masked(output[key])
        cell.outputs = joined

    def _masked(self, value: Any) -> Any:
        from nbformat import notebooknode

        from_dict: Any = notebooknode.from_dict
        return from_dict(self._redactor.value(value))

    def _emit(self, kind: str, record: CellRecord, message: str = "") -> None:
        self._progress(
            ProgressEvent(
                at=iso(self._clock.now()),
                kind=kind,
                title=record.title,
                n=record.n,
                of=len(self.records),
                seconds=record.seconds,
                message=message,
            )
        )

    def _save(self) -> None:
        if self._path is None:
            return
        from nbformat.v4 import nbjson

        writes: Any = nbjson.writes
        files.write_text(self._path, writes(self.notebook) + "\n")
        self._saved_at = self._clock.monotonic()


def tags_of(cell: Any) -> list[str]:
    """Return the tags of a cell."""
    return list(cell.metadata.get("tags", []))


def cell_titles(cells: list[Any]) -> list[str]:
    """Return a title for every cell: the nearest heading above it, else its own first line."""
    titles: list[str] = []
    heading = ""
    for cell in cells:
        if cell.cell_type == "markdown":
            found = _HEADING.findall(cell.source)
            heading = found[-1] if found else heading
        titles.append(heading or _first_line(cell.source))
    return titles


def _first_line(source: str) -> str:
    lines = (line.strip() for line in source.splitlines())
    return next((line[:60] for line in lines if line), "")


def _runs(cell: Any) -> bool:
    return cell.cell_type == "code" and bool(cell.source.strip())
