"""A due job that had nothing to do: nothing is sent, and a receipt says why.

The receipt is a file beside the attempts of that run key, and a row of the audit log. Skipping the
same key again changes nothing.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import insert

from kit import files
from kit.clock import Clock, iso
from kit.errors import StorageError
from kit.runner import RunKey
from kit.state import Store, tables
from kit.workspace import Workspace

__all__ = ["SKIPPED_FILE", "Skip", "record_skip"]

SKIPPED_FILE = "skipped.json"


@dataclass(frozen=True, kw_only=True)
class Skip:
    """The receipt of a skipped run.

    Attributes:
        key: What was not run.
        reason: Stable word, such as `market_closed`.
        detail: The same in words for people.
        at: When it was decided, ISO 8601 in UTC.
        path: The receipt; None when it could not be written.
        recorded: Whether the audit log took it.
    """

    key: RunKey
    reason: str
    detail: str
    at: str
    path: Path | None
    recorded: bool

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form that the receipt file holds."""
        return {
            "schema_version": "1.0",
            "key": self.key.to_dict(),
            "status": "skipped",
            "reason": self.reason,
            "detail": self.detail,
            "at": self.at,
        }


def record_skip(
    workspace: Workspace, store: Store, clock: Clock, key: RunKey, *, reason: str, detail: str
) -> Skip:
    """Write the receipt of a skipped run; trouble with the disk or the store never raises.

    Args:
        workspace: Where the receipt goes: `runs/<folder of the key>/skipped.json`.
        store: Whose audit log takes it.
        clock: For the time stamp.
        key: What is not run.
        reason: Stable word.
        detail: The same in words.
    """
    path = workspace.runs / key.folder / SKIPPED_FILE
    skip = Skip(
        key=key, reason=reason, detail=detail, at=iso(clock.now()), path=path, recorded=False
    )
    if path.is_file():
        return Skip(**{**vars(skip), "recorded": True})
    written: Path | None = None
    with contextlib.suppress(StorageError, OSError):
        files.make_dir(path.parent)
        files.write_json(path, skip.to_dict())
        written = path
    recorded = False
    with contextlib.suppress(StorageError, OSError), store.begin() as connection:
        body = files.canonical_json(skip.to_dict()).decode("utf-8")
        connection.execute(insert(tables.audit).values(at=skip.at, kind="skipped", body=body))
        recorded = True
    return Skip(**{**vars(skip), "path": written, "recorded": recorded})
