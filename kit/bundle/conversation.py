"""`conversations/<ISO date>-<slug>.jsonl`: how a version came to be, one event a line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kit import files
from kit.bundle.layout import label
from kit.bundle.text import decode
from kit.clock import Clock, iso
from kit.errors import BundleError, DataError, RegistryError, UsageError
from kit.schemas import validate

__all__ = [
    "FOLDER",
    "append_event",
    "conversation_files",
    "read_conversation",
    "record_note",
    "slugify",
]

FOLDER = "conversations"
_NAME = re.compile(r"\d{4}-\d{2}-\d{2}-[a-z0-9]+(?:-[a-z0-9]+)*\.jsonl", re.ASCII)
_MAX_SLUG = 60


def slugify(text: str) -> str:
    """Turn a few words into a slug: lower-case ASCII letters and digits, hyphenated.

    Raises:
        UsageError: `conversation.bad_slug` when nothing is left (a title in Chinese, say).
    """
    slug = "-".join(re.findall(r"[a-z0-9]+", text.lower()))[:_MAX_SLUG].strip("-")
    if not slug:
        raise UsageError(
            "conversation.bad_slug",
            f"{text!r} gives no slug",
            remedy="name it in three or four English words, for example tune-pullback",
        )
    return slug


def append_event(
    draft: Path,
    *,
    slug: str,
    role: str,
    kind: str,
    content: Any,
    clock: Clock,
    extra: Mapping[str, Any] | None = None,
) -> Path:
    """Append one event to the draft's conversation of the day (UTC).

    Args:
        draft: Directory of the draft.
        slug: A few words; made into a slug.
        role: `user`, `assistant`, `system` or `tool`.
        kind: `message`, `tool_call`, `tool_result`, `decision` or `note`.
        content: Text, or a JSON object or array.
        clock: Gives the event's time.
        extra: Further keys of the event, such as a digest of a cell's output.

    Returns:
        Path of the file.

    Raises:
        BundleError: `conversation.bad_event`.
        UsageError: `conversation.bad_slug`.
        StorageError: The disk refused.
    """
    now = clock.now()
    path = draft / FOLDER / f"{now.date().isoformat()}-{slugify(slug)}.jsonl"
    event = {"ts": iso(now), "role": role, "kind": kind, "content": content, **(extra or {})}
    problems = validate("conversation-event", event)
    if problems:
        raise _bad("; ".join(map(str, problems)), label(draft, f"{FOLDER}/{path.name}"))
    files.make_dir(path.parent)
    files.append_json_line(path, event)
    return path


def record_note(draft: Path, text: str, *, clock: Clock, kind: str = "decision") -> Path:
    """Append what a person decided, or saw, to the draft's notes of the day.

    Args:
        draft: Directory of an existing draft.
        text: The decision, in a sentence or two.
        clock: Gives the event's time.
        kind: `decision` or `note`.

    Raises:
        UsageError: `conversation.empty_note`.
        RegistryError: `draft.missing`.
        StorageError: The disk refused.
    """
    if not text.strip():
        raise UsageError(
            "conversation.empty_note", "a note needs a text", remedy="write why, in a sentence"
        )
    if not draft.is_dir():
        raise RegistryError(
            "draft.missing",
            f"{draft.parent.name} has no draft to write a note for",
            remedy=f"make one: kit new {draft.parent.name}",
        )
    return append_event(draft, slug="notes", role="user", kind=kind, content=text, clock=clock)


def read_conversation(path: Path) -> list[dict[str, Any]]:
    """Read the events of one conversation, oldest first.

    Raises:
        BundleError: `conversation.bad_event` with `file:line`; `bundle.text`.
    """
    where = f"{FOLDER}/{path.name}"
    events = []
    for number, line in enumerate(decode(path.read_bytes(), where).split("\n"), start=1):
        if not line:
            continue
        place = f"{where}:{number}"
        try:
            event = files.parse_json(line, where=place)
        except DataError as error:
            raise _bad(error.message, place) from error
        problems = validate("conversation-event", event)
        if problems:
            raise _bad("; ".join(map(str, problems)), place)
        events.append(event)
    return events


def conversation_files(root: Path) -> list[Path]:
    """Return the conversations of a bundle, oldest first.

    Raises:
        BundleError: `conversation.bad_name` for a file that is not `<ISO date>-<slug>.jsonl`.
    """
    folder = root / FOLDER
    found = sorted(folder.iterdir()) if folder.is_dir() else []
    for path in found:
        if not _NAME.fullmatch(path.name) and not path.name.startswith("."):
            raise BundleError(
                "conversation.bad_name",
                f"{path.name!r} is not named <ISO date>-<slug>.jsonl",
                where=label(root, f"{FOLDER}/{path.name}"),
                remedy="rename it, for example 2026-05-15-tune-pullback.jsonl",
            )
    return [path for path in found if not path.name.startswith(".")]


def _bad(message: str, where: str) -> BundleError:
    return BundleError(
        "conversation.bad_event",
        message,
        where=where,
        remedy="an event is {ts, role, kind, content}, one JSON object a line",
    )
