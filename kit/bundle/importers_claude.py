"""Claude Code's session logs: `~/.claude/projects/<project>/<session>.jsonl`.

One entry a line. An entry with a `message` is a turn, its content a text or a list of blocks; every
block of several becomes an event of its own, named `<uuid>#<block>`. The other types of entries
are the agent's bookkeeping, but for summaries, system notes and prompts that waited in the queue.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from kit.bundle.importers import Reading, SessionLog, digest_id, instant, numbered_objects

__all__ = ["read_claude"]


def read_claude(data: bytes, name: str) -> SessionLog:
    """Read a log; see `kit.bundle.importers.read_log`."""
    reading = Reading(name=name)
    entries = list(numbered_objects(data, reading))
    times = [ts for _, entry in entries if (ts := instant(entry.get("timestamp")))]
    sessions = [_text(entry.get("sessionId")) for _, entry in entries]
    reading.session = next(filter(None, sessions), None) or name.partition(".")[0]
    seen: Counter[str] = Counter()
    last = times[0] if times else None
    for number, entry in entries:
        ts = instant(entry.get("timestamp"))
        if last is None:
            reading.fault("no entry of the log has a time", line=number)
            break
        before = len(reading.events)
        id_ = entry["uuid"] if isinstance(entry.get("uuid"), str) else digest_id(entry, seen)
        _read_entry(reading, entry, ts or last, id_)
        if ts is None and len(reading.events) > before and entry.get("type") != "summary":
            reading.fault("has no time; that of the entry before it is used", line=number)
        last = ts or last
    _drop_echoes(reading)
    return reading.done("claude-code")


def _read_entry(reading: Reading, entry: Mapping[str, Any], ts: str, id_: str) -> None:
    kind = str(entry.get("type"))
    marks: dict[str, Any] = {
        "sidechain": entry.get("isSidechain") is True,
        "meta": entry.get("isMeta") is True or entry.get("isCompactSummary") is True,
    }
    message, attachment = entry.get("message"), entry.get("attachment")
    if isinstance(message, dict) and "content" in message:
        role = message.get("role") if message.get("role") in ("user", "assistant") else kind
        marks["model"] = _text(message.get("model"))
        _read_turn(reading, ts, "user" if role == "user" else "assistant", message, id_, marks)
    elif kind == "summary":
        reading.add(ts, "system", "note", entry.get("summary"), id_, type=kind)
    elif kind == "system" and entry.get("content"):
        type_ = str(entry.get("subtype") or kind)
        reading.add(ts, "system", "note", entry["content"], id_, type=type_, **marks)
    elif kind == "queue-operation" and entry.get("content"):
        reading.add(ts, "user", "message", entry["content"], id_, type=kind)
    elif isinstance(attachment, dict) and attachment.get("type") == "queued_command":
        prompt = attachment.get("prompt")
        reading.add(ts, "user", "message", prompt, id_, type="queued_command", **marks)
    else:
        reading.left_out[kind] += 1


def _read_turn(
    reading: Reading,
    ts: str,
    role: str,
    message: Mapping[str, Any],
    id_: str,
    marks: Mapping[str, Any],
) -> None:
    content = message["content"]
    if not isinstance(content, list):
        reading.add(ts, role, "message", content, f"{id_}#0", **marks)
        return
    for position, block in enumerate(content):
        name = f"{id_}#{position}"
        type_ = block.get("type") if isinstance(block, dict) else None
        if not isinstance(block, dict):
            reading.add(ts, role, "message", block, name, **marks)
        elif type_ == "text":
            reading.add(ts, role, "message", block.get("text"), name, **marks)
        elif type_ == "thinking":
            reading.add(ts, role, "note", block.get("thinking"), name, type=type_, **marks)
        elif type_ in ("tool_use", "server_tool_use"):
            call = {"tool": block.get("name"), "input": block.get("input")}
            extra = {"call": _text(block.get("id")), **marks}
            reading.add(ts, "assistant", "tool_call", call, name, **extra)
        elif type_ == "tool_result" or str(type_).endswith("_tool_result"):
            extra = {"call": _text(block.get("tool_use_id")), **marks}
            failed = block.get("is_error") is True
            output = block.get("content")
            reading.add(ts, "tool", "tool_result", output, name, error=failed, **extra)
        else:
            reading.add(ts, role, "note", block, name, type=str(type_), **marks)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _drop_echoes(reading: Reading) -> None:
    """Drop prompts of the queue that stand as turns of their own, too: they are the same words."""
    said = {
        event["content"]
        for event in reading.events
        if event["role"] == "user"
        and event.get("type") != "queue-operation"
        and isinstance(event["content"], str)
    }
    kept: list[dict[str, Any]] = []
    for event in reading.events:
        echo = event.get("type") == "queue-operation"
        if echo and isinstance(event["content"], str) and event["content"] in said:
            reading.left_out["queue-operation"] += 1
            continue
        if echo and isinstance(event["content"], str):
            said.add(event["content"])
        kept.append(event)
    reading.events = kept
