"""Put an agent's session log into a draft's conversations, once however often it is imported.

An event is known by its `id`. A session that went on since the last import gets its new events at
the end of the file it has already; a new session becomes a file named after its day and its slug.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kit import files
from kit.bundle.conversation import (
    FOLDER,
    conversation_files,
    read_conversation,
    require_draft,
    slugify,
    write_events,
)
from kit.bundle.importers import SessionLog
from kit.clock import parse_instant
from kit.errors import DataError

__all__ = ["Imported", "import_log"]


@dataclass(frozen=True, kw_only=True)
class Imported:
    """What an import did, or would do.

    Attributes:
        path: The conversation.
        added: Events added to it.
        known: Events that were there before.
        log: The log as it was read.
    """

    path: Path
    added: int
    known: int
    log: SessionLog

    def to_dict(self) -> dict[str, Any]:
        """Return the shape `--json` prints."""
        return {
            "format": self.log.format,
            "session": self.log.session,
            "added": self.added,
            "known": self.known,
            "findings": [finding.to_dict() for finding in self.log.findings],
            "notices": list(self.log.notices),
        }


def import_log(
    draft: Path,
    log: SessionLog,
    *,
    slug: Callable[[SessionLog, str], str],
    dry_run: bool = False,
) -> Imported:
    """Add what is new in a log to the draft.

    Args:
        draft: Directory of an existing draft.
        log: The log.
        slug: Called with the log and its day (YYYY-MM-DD), for a session that has no file yet.
        dry_run: Whether to write nothing.

    Raises:
        DataError: `conversation.no_events` when there is nothing to import in it.
        RegistryError: `draft.missing`.
        BundleError: A conversation of the draft cannot be read.
        StorageError: The disk refused; nothing was changed.
    """
    require_draft(draft)
    if not log.events:
        first = f"; {log.findings[0].where}: {log.findings[0].message}" if log.findings else ""
        raise DataError(
            "conversation.no_events",
            f"the log holds nothing to import{first}",
            remedy="check the file, or say what it is: --format",
        )
    there = {path: read_conversation(path) for path in conversation_files(draft)}
    known = {_name(event) for events in there.values() for event in events}
    # Two entries of one log may bear one name: the first is the event.
    new: dict[str, dict[str, Any]] = {}
    for event in log.events:
        if event["id"] not in known and _content(event) not in known:
            new.setdefault(event["id"], event)
    path = next((p for p, events in there.items() if _holds(events, log.session)), None)
    if path is None and not new:
        # A session resumed under another name: everything it said is in the file of the first.
        path = next(p for p, events in there.items() if _shares(events, log))
    if path is None:
        day = parse_instant(log.events[0]["ts"]).date().isoformat()
        path = _free(draft / FOLDER, f"{day}-{slugify(slug(log, day))}", there)
    if new and not dry_run:
        write_events(path, new.values())
    return Imported(path=path, added=len(new), known=len(log.events) - len(new), log=log)


def _name(event: Mapping[str, Any]) -> str:
    return str(event["id"]) if "id" in event else _content(event)


def _content(event: Mapping[str, Any]) -> str:
    kept = [event[key] for key in ("ts", "role", "kind", "content")]
    # Escaped to ASCII: half a surrogate pair in a log has no UTF-8 form.
    return files.sha256_bytes(json.dumps(kept, sort_keys=True).encode("ascii"))


def _holds(events: list[dict[str, Any]], session: str) -> bool:
    return any(event.get("session") == session for event in events)


def _shares(events: list[dict[str, Any]], log: SessionLog) -> bool:
    names = {_name(event) for event in events}
    return any(event["id"] in names or _content(event) in names for event in log.events)


def _free(folder: Path, stem: str, there: Mapping[Path, Any]) -> Path:
    """Return a path no conversation has."""
    path, number = folder / f"{stem}.jsonl", 1
    while path in there:
        number += 1
        path = folder / f"{stem}-{number}.jsonl"
    return path
