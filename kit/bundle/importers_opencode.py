"""opencode's session export, what `opencode export SESSION` prints.

One JSON document: `info` of the session, and `messages`, each with `info` (role, times in
milliseconds since 1970) and `parts`. A tool part holds the call and, once it ended, its result.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from kit import files
from kit.bundle.importers import Reading, SessionLog
from kit.errors import DataError

__all__ = ["read_opencode"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BOOKKEEPING = {"step-start", "step-finish", "snapshot"}


def read_opencode(data: bytes, name: str) -> SessionLog:
    """Read an export; see `kit.bundle.importers.read_log`.

    Raises:
        DataError: `conversation.unreadable` when it is no such document.
    """
    try:
        export = files.parse_json(data.decode("utf-8"), where=name)
    except (DataError, UnicodeDecodeError) as error:
        where = error.where if isinstance(error, DataError) else name
        problem = error.message if isinstance(error, DataError) else "not UTF-8"
        raise _unreadable(problem, where) from error
    if not isinstance(export, dict) or not isinstance(export.get("messages"), list):
        raise _unreadable("not an object with `info` and `messages`", name)
    reading = Reading(name=name)
    info = _object(export.get("info"))
    reading.session = str(info.get("id") or name.partition(".")[0])
    last = _instant(_object(info.get("time")).get("created"))
    for position, message in enumerate(export["messages"]):
        place = f"messages[{position}]"
        head = _object(_object(message).get("info"))
        parts = _object(message).get("parts")
        if not head or not isinstance(parts, list):
            reading.fault("not a message: {info, parts}", place=place)
            continue
        ts = _instant(_object(head.get("time")).get("created")) or last
        if ts is None:
            reading.fault("has no time", place=place)
            continue
        last = ts
        _read_message(reading, head, parts, ts, place)
    return reading.done("opencode")


def _read_message(
    reading: Reading, head: Mapping[str, Any], parts: list[Any], ts: str, place: str
) -> None:
    role = "user" if head.get("role") == "user" else "assistant"
    owner = str(head.get("id") or place)
    model = "/".join(str(head[key]) for key in ("providerID", "modelID") if head.get(key))
    marks = {"model": model if role == "assistant" else None}
    for position, part in enumerate(parts):
        if not isinstance(part, dict) or not isinstance(part.get("type"), str):
            reading.fault("not a part", place=f"{place}.parts[{position}]")
            continue
        _read_part(reading, part, role, ts, str(part.get("id") or f"{owner}#{position}"), marks)
    if head.get("error"):
        marks |= {"type": "error"}
        reading.add(ts, role, "note", head["error"], f"{owner}#error", error=True, **marks)


def _read_part(
    reading: Reading,
    part: Mapping[str, Any],
    role: str,
    ts: str,
    id_: str,
    marks: Mapping[str, Any],
) -> None:
    type_ = part["type"]
    start = _instant(_object(part.get("time")).get("start")) or ts
    if type_ == "text":
        meta = part.get("synthetic") is True
        reading.add(start, role, "message", part.get("text"), id_, meta=meta, **marks)
    elif type_ == "reasoning":
        reading.add(start, role, "note", part.get("text"), id_, type=type_, **marks)
    elif type_ == "tool":
        _read_tool(reading, part, ts, id_, marks)
    elif type_ in _BOOKKEEPING:
        reading.left_out[type_] += 1
    else:
        own = {"id", "sessionID", "messageID", "type"}
        rest = {key: value for key, value in part.items() if key not in own}
        reading.add(start, role, "note", rest, id_, type=type_, **marks)


def _read_tool(
    reading: Reading, part: Mapping[str, Any], ts: str, id_: str, marks: Mapping[str, Any]
) -> None:
    state = _object(part.get("state"))
    time = _object(state.get("time"))
    start = _instant(time.get("start")) or ts
    call = part.get("callID")
    extra = {"call": call if isinstance(call, str) else None, **marks}
    told = {"tool": part.get("tool"), "input": state.get("input")}
    reading.add(start, "assistant", "tool_call", told, id_, **extra)
    status = state.get("status")
    if status not in ("completed", "error"):
        reading.notices.append(f"{part.get('tool')} was {status or 'pending'} when exported")
        return
    failed = status == "error"
    output = state.get("error") if failed else state.get("output")
    end = _instant(time.get("end")) or start
    reading.add(end, "tool", "tool_result", output, f"{id_}#result", error=failed, **extra)


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _instant(milliseconds: Any) -> str | None:
    """Write milliseconds since 1970 as ISO 8601, or return None when they are no such number."""
    if not isinstance(milliseconds, int | float) or isinstance(milliseconds, bool):
        return None
    try:
        moment = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None
    return moment.isoformat(timespec="milliseconds")


def _unreadable(message: str, where: str) -> DataError:
    return DataError(
        "conversation.unreadable",
        message,
        where=where,
        remedy="write it anew: opencode export SESSION > session.json",
    )
