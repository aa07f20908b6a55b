"""`conversations/<ISO date>-<slug>.jsonl`: how a version came to be, one event a line.

Everything that is recorded, by hand, by a notebook or from an agent's session log, goes through
`write_events`: checked against the schema, secrets masked, long texts cut to a digest.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kit import files
from kit.bundle.layout import label
from kit.bundle.text import decode
from kit.clock import Clock, iso
from kit.errors import BundleError, DataError, RegistryError, UsageError
from kit.redact import Redactor
from kit.schemas import validate

__all__ = [
    "DAY_SLUG",
    "FOLDER",
    "MAX_TEXT",
    "append_event",
    "conversation_files",
    "day_file",
    "read_conversation",
    "record_note",
    "require_draft",
    "slug_of",
    "slugify",
    "write_events",
]

FOLDER = "conversations"
DAY_SLUG = "notes"
"""Slug of what notebooks and `kit note` record in a day, until freeze finds a better one."""
MAX_TEXT = 16_384
"""A longer text of an event is replaced by its digest, its length and its beginning."""

_NAME = re.compile(r"\d{4}-\d{2}-\d{2}-[a-z0-9]+(?:-[a-z0-9]+)*\.jsonl", re.ASCII)
_MAX_SLUG = 60
_HEAD = 1_000


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


def slug_of(path: Path) -> str:
    """Return the slug in the name of a conversation."""
    return path.stem[len("2026-05-15-") :]


def day_file(draft: Path, clock: Clock, slug: str = DAY_SLUG) -> Path:
    """Return the path of the conversation of the day (UTC) with that slug.

    Raises:
        UsageError: `conversation.bad_slug`.
    """
    return draft / FOLDER / f"{clock.now().date().isoformat()}-{slugify(slug)}.jsonl"


def append_event(
    draft: Path,
    *,
    slug: str = DAY_SLUG,
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
    path = day_file(draft, clock, slug)
    event = {"ts": iso(clock.now()), "role": role, "kind": kind, "content": content}
    write_events(path, [{**event, **(extra or {})}])
    return path


def write_events(path: Path, events: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Add events to a conversation: all of them, or none when one is not an event.

    Secrets are masked and texts over `MAX_TEXT` characters become `{sha256, chars, head}`, the
    digest that of the whole text.

    Args:
        path: `conversations/<ISO date>-<slug>.jsonl` of a draft; made when missing.
        events: What to add, oldest first.

    Returns:
        The events as they were written.

    Raises:
        BundleError: `conversation.bad_event`; nothing is then written.
        StorageError: The disk refused.
    """
    where = label(path.parent.parent, f"{FOLDER}/{path.name}")
    redactor = Redactor()
    safe = [_safe(event, redactor) for event in events]
    for event in safe:
        _require_event(event, where)
    if not safe:
        return safe
    files.make_dir(path.parent)
    if len(safe) == 1:
        files.append_json_line(path, safe[0])  # two notebooks may write at once
    else:
        old = path.read_bytes() if path.exists() else b""
        lines = "".join(
            json.dumps(event, ensure_ascii=False, allow_nan=False) + "\n" for event in safe
        )
        files.write_bytes(path, old + lines.encode("utf-8"))
    return safe


def require_draft(draft: Path) -> Path:
    """Return the directory of a draft that must exist.

    Raises:
        RegistryError: `draft.missing`.
    """
    if not draft.is_dir():
        raise RegistryError(
            "draft.missing",
            f"{draft.parent.name} has no draft to write a conversation for",
            remedy=f"make one: kit new {draft.parent.name}",
        )
    return draft


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
    return append_event(require_draft(draft), role="user", kind=kind, content=text, clock=clock)


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
        _require_event(event, place)
        events.append(event)
    return events


def conversation_files(root: Path) -> list[Path]:
    """Return the conversations of a bundle, oldest first.

    Of one day, the one that is still being written comes last: it has no name of its own yet.

    Raises:
        BundleError: `conversation.bad_name` for a file that is not `<ISO date>-<slug>.jsonl`.
    """
    folder = root / FOLDER
    found = sorted(folder.iterdir()) if folder.is_dir() else []
    found.sort(key=lambda path: (path.name[: len("2026-05-15")], slug_of(path) == DAY_SLUG))
    for path in found:
        if not _NAME.fullmatch(path.name) and not path.name.startswith("."):
            raise BundleError(
                "conversation.bad_name",
                f"{path.name!r} is not named <ISO date>-<slug>.jsonl",
                where=label(root, f"{FOLDER}/{path.name}"),
                remedy="rename it, for example 2026-05-15-tune-pullback.jsonl",
            )
    return [path for path in found if not path.name.startswith(".")]


def _safe(value: Any, redactor: Redactor) -> Any:
    """Return an event that may be kept: writable as UTF-8, no secret, no text without an end."""
    if isinstance(value, str):
        # Half a surrogate pair is valid JSON and no valid text.
        whole = value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        text = redactor.text(whole)
        if len(text) <= MAX_TEXT:
            return text
        digest = files.sha256_bytes(whole.encode("utf-8"))
        return {"sha256": digest, "chars": len(whole), "head": text[:_HEAD]}
    if isinstance(value, Mapping):
        return {_key(key, redactor): _safe(item, redactor) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [_safe(item, redactor) for item in value]
    return value


def _key(key: Any, redactor: Redactor) -> str:
    text = _safe(str(key), redactor)
    return text if isinstance(text, str) else f"{text['head']}…"


def _require_event(event: Any, where: str) -> None:
    problems = validate("conversation-event", event)
    if problems:
        raise _bad("; ".join(map(str, problems)), where)


def _bad(message: str, where: str) -> BundleError:
    return BundleError(
        "conversation.bad_event",
        message,
        where=where,
        remedy="an event is {ts, role, kind, content}, one JSON object a line",
    )
