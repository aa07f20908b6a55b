"""One locked tool against the live one: arguments, output fields, values, types.

Evidence is the tool's own output schema; where that leaves something open, the manifest's canary,
one real call whose answer is looked at; what neither shows is unverifiable, which is a failure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kit.bundle.manifest import LockedTool
from kit.errors import McpError
from kit.mcp import (
    FieldInfo,
    ToolInfo,
    find_field,
    input_fields,
    names_field,
    output_fields,
    payload_fields,
    required_inputs,
)

__all__ = ["CANARY", "SCHEMA", "UNVERIFIABLE", "Stored", "ToolDiff", "compare_tool"]

SCHEMA = "schema"
CANARY = "canary"
UNVERIFIABLE = "unverifiable"

Fields = Mapping[str, FieldInfo]


@dataclass(frozen=True, kw_only=True)
class Stored:
    """A tool's schemas as they were at freeze."""

    input: Mapping[str, Any]
    output: Mapping[str, Any] | None


@dataclass(kw_only=True)
class ToolDiff:
    """What was found of one tool; `failed` says whether anything is wrong.

    Attributes:
        reason: `no_tool`, `repeated_tool`, `bad_schema`, `unverifiable`, `changed`, or what became
            of the canary's call (`timeout`, `tool_error`, `exited`, ...); empty when all is well.
        message: What happened, in one sentence.
        evidence: What the outputs were checked against.
        missing_input_fields: Locked arguments the tool does not take.
        new_required_inputs: Arguments it demands and the lock does not name.
        missing_output_fields: Locked fields it does not show.
        actual_output_fields: The fields it shows instead.
        value_mismatches: {field, required, actual} of locked values; `actual` lists what was seen.
        type_changes: {field, what, stored, live} against the schemas stored at freeze.
        changed_since_freeze: Every difference to the stored schemas, in words.
        stderr_tail: Last lines of a server that failed in the canary's call.
    """

    reason: str = ""
    message: str = ""
    evidence: str = SCHEMA
    missing_input_fields: list[str] = field(default_factory=list)
    new_required_inputs: list[str] = field(default_factory=list)
    missing_output_fields: list[str] = field(default_factory=list)
    actual_output_fields: list[str] = field(default_factory=list)
    value_mismatches: list[dict[str, Any]] = field(default_factory=list)
    type_changes: list[dict[str, Any]] = field(default_factory=list)
    changed_since_freeze: list[str] = field(default_factory=list)
    stderr_tail: str = ""

    @property
    def failed(self) -> bool:
        """Whether the lock refuses this tool."""
        return bool(self.reason)


def compare_tool(
    locked: LockedTool,
    live: ToolInfo,
    stored: Stored | None,
    call: Callable[[Mapping[str, Any]], Any],
) -> ToolDiff:
    """Compare a locked tool with the live one.

    Args:
        locked: What the manifest relies on.
        live: The tool, as its server lists it.
        stored: Its schemas at freeze; None in a draft, or in a version older than they are.
        call: Calls the tool with the canary's arguments and returns the payload.
    """
    diff = ToolDiff()
    if live.problem:
        diff.reason, diff.message, diff.evidence = "bad_schema", live.problem, UNVERIFIABLE
        return diff
    try:
        _compare_inputs(diff, locked, live.input_schema, stored)
    except McpError as error:
        diff.reason, diff.message, diff.evidence = "bad_schema", error.message, UNVERIFIABLE
        return diff
    _compare_outputs(diff, locked, output_fields(live.output_schema), call)
    if stored is not None:
        diff.type_changes = _type_changes(locked, live, stored)
        moved = _lost_places(locked, live, stored)
        diff.missing_output_fields += [n for n in moved if n not in diff.missing_output_fields]
    wrong = (
        diff.missing_input_fields
        or diff.new_required_inputs
        or diff.missing_output_fields
        or diff.value_mismatches
        or diff.type_changes
    )
    if wrong and not diff.reason:
        diff.reason, diff.message = "changed", _said(diff)
    if diff.failed and stored is not None:
        diff.changed_since_freeze = _changes(live, stored)
    return diff


def _compare_inputs(
    diff: ToolDiff, locked: LockedTool, schema: Mapping[str, Any], stored: Stored | None
) -> None:
    known = input_fields(schema)
    names = locked.required_input_fields
    diff.missing_input_fields = [name for name in names if find_field(known, name) is None]
    before = required_inputs(stored.input) if stored else None
    for path in sorted(required_inputs(schema)):
        # What an object argument must hold is not locked by name: it is compared with freeze.
        inner = "." in path
        seen = path in before if before is not None else inner
        if not (seen if inner else any(names_field(name, path) for name in names)):
            diff.new_required_inputs.append(path)


def _compare_outputs(
    diff: ToolDiff,
    locked: LockedTool,
    declared: Fields,
    call: Callable[[Mapping[str, Any]], Any],
) -> None:
    missing, wrong, open_values = _look(locked, declared)
    diff.actual_output_fields = _leaves(declared)
    undeclared = [name for name in open_values if name not in missing]
    if (missing or undeclared) and locked.canary is not None:
        try:
            seen = payload_fields(call(locked.canary["arguments"]))
        except McpError as error:
            diff.reason = error.code.removeprefix("mcp.")
            diff.message, diff.evidence = f"canary: {error.message}", UNVERIFIABLE
            diff.stderr_tail = str(error.details.get("stderr_tail", ""))
            return
        # What the schema contradicts stays wrong, whatever one answer looks like.
        missing = [name for name in missing if find_field(seen, name) is None]
        _, wrong_there, open_values = _look(locked, seen)
        known = {entry["field"] for entry in wrong}
        wrong += [entry for entry in wrong_there if entry["field"] not in known]
        undeclared = [name for name in open_values if name not in missing]
        diff.evidence = CANARY
        diff.actual_output_fields = _leaves(seen)
    diff.missing_output_fields, diff.value_mismatches = missing, wrong
    if missing and diff.evidence == SCHEMA and _tells_nothing(declared):
        diff.reason, diff.evidence = UNVERIFIABLE, UNVERIFIABLE
        diff.message = "the tool declares no output fields, and the lock has no canary"
    elif undeclared and not (missing or wrong):
        diff.reason, diff.evidence = UNVERIFIABLE, UNVERIFIABLE
        diff.message = f"nothing shows the value of {', '.join(undeclared)}"
    diff.value_mismatches += [
        {"field": name, "required": locked.required_values[name], "actual": []}
        for name in undeclared
    ]


def _look(locked: LockedTool, fields: Fields) -> tuple[list[str], list[dict[str, Any]], list[str]]:
    """Return the locked fields that are missing, the values that differ, the values left open."""
    found = {name: find_field(fields, name) for name in _outputs(locked)}
    missing = [name for name, info in found.items() if info is None]
    wrong, unknown = [], []
    for name, required in locked.required_values.items():
        info = found[name]
        if info is None or not info.values:
            unknown.append(name)
        elif not any(_same(value, required) for value in info.values):
            wrong.append({"field": name, "required": required, "actual": list(info.values)})
        elif len(info.values) > 1:
            unknown.append(name)
    return missing, wrong, unknown


def _outputs(locked: LockedTool) -> list[str]:
    return list(dict.fromkeys([*locked.required_output_fields, *locked.required_values]))


def _same(left: Any, right: Any) -> bool:
    return isinstance(left, bool) == isinstance(right, bool) and bool(left == right)


def _tells_nothing(declared: Fields) -> bool:
    """Say whether a schema is none, or only the wrapper that a library puts around any text."""
    return len(declared) < 2 and not any(
        {"number", "integer", "boolean"} & set(info.types) for info in declared.values()
    )


def _leaves(fields: Fields) -> list[str]:
    return [
        path
        for path in fields
        if not any(other.startswith((f"{path}.", f"{path}[]")) for other in fields)
    ]


def _type_changes(locked: LockedTool, live: ToolInfo, stored: Stored) -> list[dict[str, Any]]:
    changes: list[dict[str, Any]] = []
    for names, was, now, taken in (
        (locked.required_input_fields, stored.input, live.input_schema, True),
        (_outputs(locked), stored.output, live.output_schema, False),
    ):
        before, after = output_fields(was), output_fields(now)
        for name in names:
            old, new = find_field(before, name), find_field(after, name)
            if old is None or new is None:
                continue
            # An argument may come to take more, a result may come to give less.
            grown = _beyond(old, new) if taken else _beyond(new, old)
            if old.types and new.types and grown:
                changes.append(
                    {"field": name, "what": "type", "stored": [*old.types], "live": [*new.types]}
                )
            if old.unit is not None and old.unit != new.unit:
                changes.append(
                    {"field": name, "what": "unit", "stored": old.unit, "live": new.unit}
                )
    return changes


def _lost_places(locked: LockedTool, live: ToolInfo, stored: Stored) -> list[str]:
    """Return the locked fields that stand in fewer places than at freeze.

    A name such as `symbol` may stand in the record and beside it: the one is no word for the other.
    """
    before, after = output_fields(stored.output), output_fields(live.output_schema)
    lost = []
    for name in _outputs(locked) if live.output_schema is not None else ():
        was, now = ({p for p in each if names_field(name, p)} for each in (before, after))
        if was - now and not now - was:
            lost.append(name)
    return lost


def _beyond(info: FieldInfo, other: FieldInfo) -> set[str]:
    """Return the types of one that the other does not have; every integer is a number."""
    known = {*other.types, *(["integer"] if "number" in other.types else [])}
    return set(info.types) - known


def _changes(live: ToolInfo, stored: Stored) -> list[str]:
    said = []
    for word, was, now in (
        ("input", stored.input, live.input_schema),
        ("output", stored.output, live.output_schema),
    ):
        before, after = output_fields(was), output_fields(now)
        said += [f"{word} {path} removed" for path in before if path not in after]
        said += [f"{word} {path} added" for path in after if path not in before]
        said += [
            f"{word} {path}: {_described(before[path])} -> {_described(after[path])}"
            for path in before
            if path in after and before[path] != after[path]
        ]
    return said


def _described(info: FieldInfo) -> str:
    parts = ["|".join(info.types) or "any"]
    if info.values:
        parts.append("/".join(map(str, info.values)))
    if info.unit:
        parts.append(f"in {info.unit}")
    return " ".join(parts)


def _said(diff: ToolDiff) -> str:
    parts = [
        ("no longer takes", diff.missing_input_fields),
        ("now demands", diff.new_required_inputs),
        ("no longer gives", diff.missing_output_fields),
        ("has another value in", [entry["field"] for entry in diff.value_mismatches]),
        ("has another type or unit in", [entry["field"] for entry in diff.type_changes]),
    ]
    return "; ".join(f"{words} {', '.join(names)}" for words, names in parts if names)
