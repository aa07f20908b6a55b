"""Session logs of agents, read into events of a conversation.

One reader a format, each from bytes to a `SessionLog`. What a log says is data: texts are kept as
they are, and what cannot be read, or is an agent's own bookkeeping, is named and counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kit import files
from kit.bundle.findings import Finding
from kit.clock import parse_instant
from kit.errors import DataError, UsageError
from kit.schemas import validate

__all__ = ["FORMATS", "Reading", "SessionLog", "detect", "numbered_objects", "read_log"]

FORMATS = ("claude-code", "opencode", "jsonl")
_BOM = b"\xef\xbb\xbf"
_MAX_NAME = 200
_NAMES = {"call", "model", "type"}


@dataclass(frozen=True, kw_only=True)
class SessionLog:
    """What one log holds.

    Attributes:
        format: One of `FORMATS`.
        session: The agent's own name of the session.
        events: Events in the order of the log, each with `id` and `session`.
        findings: What could not be read, by line or path.
        notices: What was left out or made up, in words.
    """

    format: str
    session: str
    events: tuple[dict[str, Any], ...]
    findings: tuple[Finding, ...] = ()
    notices: tuple[str, ...] = ()


@dataclass
class Reading:
    """A log while it is being read.

    Attributes:
        name: Name of the file, for messages.
        session: The session, once it is known.
        events: Events so far.
        findings: Faults so far.
        notices: Other things worth saying.
        left_out: Kind of bookkeeping -> how much of it was passed over.
    """

    name: str
    session: str = ""
    events: list[dict[str, Any]] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)

    def add(self, ts: str, role: str, kind: str, content: Any, id_: str, **extra: Any) -> None:
        """Add one event; extras that are None or False are left away."""
        if not isinstance(content, str | list | dict):
            content = "" if content is None else str(content)
        event = {"ts": ts, "role": role, "kind": kind, "content": content, "id": id_[:_MAX_NAME]}
        for key, value in extra.items():
            if value is not None and value is not False and value != "":
                event[key] = value[:_MAX_NAME] if key in _NAMES else value
        self.events.append(event)

    def fault(self, message: str, *, line: int | None = None, place: str = "") -> None:
        """Name something that could not be read."""
        self.findings.append(
            Finding(
                rule="session.malformed",
                severity="warning",
                path=f"{self.name}: {place}" if place else self.name,
                line=line,
                message=message,
                mend="mend or remove it in the log and import again; the rest was imported",
            )
        )

    def done(self, format_: str) -> SessionLog:
        """Return the log as it was read."""
        counted = ", ".join(f"{count} {kind}" for kind, count in sorted(self.left_out.items()))
        notices = [*self.notices, *([f"left out, bookkeeping: {counted}"] if counted else [])]
        return SessionLog(
            format=format_,
            session=self.session[:_MAX_NAME],
            events=tuple({**event, "session": self.session[:_MAX_NAME]} for event in self.events),
            findings=tuple(self.findings),
            notices=tuple(notices),
        )


def read_log(data: bytes, name: str, format_: str) -> SessionLog:
    """Read a session log.

    Args:
        data: The file's bytes.
        name: The file's name, for messages, and for the session where the log names none.
        format_: One of `FORMATS`, or `auto`.

    Raises:
        UsageError: `conversation.unknown_format` when `auto` finds none.
        DataError: `conversation.unreadable` when the log as a whole cannot be read.
    """
    data = data.removeprefix(_BOM)
    found = detect(data) if format_ == "auto" else format_
    if found is None:
        raise UsageError(
            "conversation.unknown_format",
            "it looks like none of the known session logs",
            where=name,
            remedy=f"say which it is: --format {'|'.join(FORMATS)}",
        )
    if found == "opencode":
        from kit.bundle.importers_opencode import read_opencode

        return read_opencode(data, name)
    if found == "claude-code":
        from kit.bundle.importers_claude import read_claude

        return read_claude(data, name)
    return _read_events(data, name)


def detect(data: bytes) -> str | None:
    """Say which format a log has, or None."""
    try:
        whole = files.parse_json(data.decode("utf-8", "replace"))
    except DataError:
        whole = None
    if isinstance(whole, dict) and {"info", "messages"} <= whole.keys():
        return "opencode"
    for _, value in numbered_objects(data, Reading(name="")):
        if {"role", "content"} <= value.keys():
            return "jsonl"
        if "type" in value and value.keys() & {"sessionId", "message", "leafUuid", "messageId"}:
            return "claude-code"
    return None


def numbered_objects(data: bytes, reading: Reading) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number, object) of a JSON Lines log; anything else becomes a fault.

    A last line without its line end that does not parse is one being written: a notice.
    """
    lines = data.split(b"\n")  # never splitlines(): U+2028 may stand inside a JSON text
    for number, raw in enumerate(lines, start=1):
        if not raw.strip():
            continue
        try:
            value = files.parse_json(raw.decode("utf-8"))
        except UnicodeDecodeError as error:
            problem = f"not UTF-8 at byte {error.start}"
        except DataError as error:
            problem = error.message
        else:
            if isinstance(value, dict):
                yield number, value
            else:
                reading.fault("not a JSON object", line=number)
            continue
        if number == len(lines):
            reading.notices.append(f"line {number} is cut off; import again when it is complete")
        else:
            reading.fault(problem, line=number)


def instant(value: Any) -> str | None:
    """Return a time as it stands when it is ISO 8601 with an offset, else None."""
    if not isinstance(value, str):
        return None
    try:
        parse_instant(value)
    except UsageError:
        return None
    return value.replace(" ", "T")


def digest_id(value: Mapping[str, Any], seen: Counter[str]) -> str:
    """Return a name for an event that has none: its digest, counted when it stands twice."""
    digest = files.sha256_bytes(repr(sorted(value.items())).encode("utf-8", "surrogatepass"))[:24]
    seen[digest] += 1
    return digest if seen[digest] == 1 else f"{digest}-{seen[digest]}"


def _read_events(data: bytes, name: str) -> SessionLog:
    """Read lines that are events already; `kind` may be missing, and `ts` be called `timestamp`."""
    reading = Reading(name=name)
    seen: Counter[str] = Counter()
    for number, value in numbered_objects(data, reading):
        event = {"kind": "message", **value}
        event["ts"] = instant(event.get("ts", event.pop("timestamp", None)))
        event.setdefault("id", digest_id(value, seen))
        problems = validate("conversation-event", event)
        if problems:
            reading.fault("; ".join(map(str, problems)), line=number)
            continue
        reading.session = reading.session or event.get("session", "")
        reading.add(**{"id_" if key == "id" else key: item for key, item in event.items()})
    reading.session = reading.session or f"jsonl:{name.rpartition('.')[0] or name}"
    return reading.done("jsonl")
