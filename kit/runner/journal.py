"""The event stream of one run: to a listener, to `events.jsonl`, and at the end as `log.txt`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from kit import files
from kit.clock import Clock, iso
from kit.errors import StorageError
from kit.runner.cells import ProgressEvent
from kit.runner.failure import RunFailure

__all__ = ["EVENTS_FILE", "LOG_FILE", "Journal"]

EVENTS_FILE = "events.jsonl"
LOG_FILE = "log.txt"


class Journal:
    """Takes events and passes them on; nothing here ever stops a run.

    Args:
        clock: For time stamps.
        title: Title of the run.
        listener: Called with every event; may be `None`.
    """

    def __init__(
        self, clock: Clock, title: str, listener: Callable[[ProgressEvent], None] | None
    ) -> None:
        self._clock = clock
        self._title = title
        self._listener = listener
        self._path: Path | None = None
        self._events: list[ProgressEvent] = []
        self.warnings: list[str] = []

    def open(self, folder: Path) -> None:
        """Write events to a folder from now on."""
        self._path = folder / EVENTS_FILE

    def close(self) -> None:
        """Write no further event to the folder: it is finished, or of no use."""
        self._path = None

    def take(self, event: ProgressEvent) -> None:
        """Take one event."""
        self._events.append(event)
        if self._path is not None:
            # Events are evidence, not the result: a disk that takes none of them stops nothing.
            with contextlib.suppress(StorageError, OSError):
                files.append_json_line(self._path, event.to_dict())
        if self._listener is not None:
            with contextlib.suppress(OSError):  # a closed terminal
                self._listener(event)

    def say(self, kind: str, message: str = "") -> None:
        """Take an event about the run as a whole."""
        at = iso(self._clock.now())
        self.take(ProgressEvent(at=at, kind=kind, title=self._title, message=message))

    def warn(self, message: str) -> None:
        """Say something a person should know beside the result."""
        self.warnings.append(message)
        self.say("warning", message)

    def log(self, failure: RunFailure | None) -> str:
        """Return all events as plain lines, the failure last."""
        lines = [_line(event) for event in self._events]
        if failure is not None:
            lines += [f"failed: {failure.kind}: {failure.message}", *failure.traceback]
        return "\n".join(lines) + "\n"


def _line(event: ProgressEvent) -> str:
    place = f" [{event.n}/{event.of}]" if event.n else ""
    took = f" {event.seconds:.1f}s" if event.seconds is not None else ""
    words = f" {event.message}" if event.message else ""
    return f"{event.at} {event.kind}{place} {event.title}{took}{words}"
