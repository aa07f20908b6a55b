"""One locked tool against the live one: what is found, what is not, and what is said of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from kit.bundle.manifest import LockedTool
from kit.envlock.tools import Stored, ToolDiff, compare_tool
from kit.mcp import ToolInfo

Make = Callable[..., dict[str, Any]]
NOTHING_MISSING: dict[str, list[Any]] = {
    "missing_input_fields": [], "new_required_inputs": [], "missing_output_fields": [],
    "value_mismatches": [], "type_changes": [],
}  # fmt: skip


def live(tool: Mapping[str, Any]) -> ToolInfo:
    return ToolInfo(
        name=tool["name"],
        description=tool["description"],
        declared=tool,
        annotations={},
        meta={},
    )


def compare(
    tool: Mapping[str, Any],
    *,
    stored: Mapping[str, Any] | None = None,
    answer: Any = None,
    **lock: Any,
) -> ToolDiff:
    locked = LockedTool(
        tool_name="get_bars",
        required_input_fields=("codes",),
        required_output_fields=tuple(lock.pop("outputs", ("close", "volume"))),
        required_values=lock.pop("values", {}),
        canary=None if answer is None else {"arguments": {"codes": ["000001.SZ"]}},
    )
    frozen = stored and Stored(input=stored["inputSchema"], output=stored.get("outputSchema"))
    return compare_tool(locked, live(tool), frozen or None, lambda _arguments: answer)


def found(diff: ToolDiff) -> dict[str, Any]:
    return {key: value for key in NOTHING_MISSING if (value := getattr(diff, key))}


def test_all_is_well(bars: Make) -> None:
    diff = compare(bars(), stored=bars(), values={"volume_unit": "shares"})
    assert (diff.failed, diff.evidence, found(diff)) == (False, "schema", {})


RECORD = {"type": "object", "properties": {"close": {"type": "number"}, "volume": {}}}


@pytest.mark.parametrize(
    "schema",
    [
        RECORD,
        {"type": "array", "items": RECORD},
        {"type": "object", "properties": {"result": {"type": "array", "items": RECORD}}},
        {"type": "object", "additionalProperties": {"type": "array", "items": RECORD}},
        {"type": "object", "patternProperties": {"^[0-9]": RECORD}},
        {"$ref": "#/$defs/Bar", "$defs": {"Bar": RECORD}},
        {"anyOf": [{"type": "null"}, RECORD]},
        {"allOf": [{"properties": {"close": {}}}, {"properties": {"volume": {}}}]},
    ],
    ids=["plain", "array", "wrapped", "map", "pattern", "ref", "anyOf", "allOf"],
)
def test_fields_are_found_down_to_the_record(bars: Make, schema: dict[str, Any]) -> None:
    assert not compare(bars(outputSchema=schema)).failed


def test_a_dotted_path_means_that_place(bars: Make) -> None:
    assert not compare(bars(), outputs=["bars[].close"]).failed
    assert compare(bars(), outputs=["quotes[].close"]).missing_output_fields == ["quotes[].close"]


def test_a_renamed_field_is_missing_and_what_is_there_is_named(bars: Make) -> None:
    now = bars(fields={"close": None, "adj_close": {"type": "number"}})
    diff = compare(now, stored=bars())
    assert diff.reason == "changed"
    assert found(diff) == {"missing_output_fields": ["close"]}
    assert diff.actual_output_fields == [
        "bars[].symbol", "bars[].date", "bars[].volume", "bars[].volume_unit", "bars[].adj_close",
    ]  # fmt: skip
    assert diff.changed_since_freeze == [
        "output bars[].close removed", "output bars[].adj_close added",
    ]  # fmt: skip


def test_a_new_argument_that_must_be_given(bars: Make) -> None:
    inputs = {"market": {"type": "string"}}
    assert not compare(bars(inputs=inputs)).failed
    diff = compare(bars(inputs=inputs, required=["market"]), stored=bars())
    assert found(diff) == {"new_required_inputs": ["market"]}
    assert diff.changed_since_freeze == ["input market added"]
    assert "now demands market" in diff.message


def test_an_argument_that_is_gone(bars: Make) -> None:
    tool = bars()
    tool["inputSchema"] = {"type": "object", "properties": {"symbols": {}}}
    assert found(compare(tool)) == {"missing_input_fields": ["codes"]}


@pytest.mark.parametrize(
    ("was", "now", "changed"),
    [
        ("number", "string", True),
        ("number", "integer", False),
        ("integer", "number", True),
        (["number", "null"], "number", False),
        ("number", ["number", "null"], True),
    ],
)
def test_output_types_may_narrow_only(bars: Make, was: Any, now: Any, changed: bool) -> None:
    before, after = (bars(fields={"close": {"type": kind}}) for kind in (was, now))
    changes = compare(after, stored=before).type_changes
    assert bool(changes) is changed
    for entry in changes:
        kinds = [[k] if isinstance(k, str) else sorted(k) for k in (was, now)]
        assert entry == {"field": "close", "what": "type", "stored": kinds[0], "live": kinds[1]}


def test_an_input_type_may_widen_only(bars: Make) -> None:
    text, either = {"type": "string"}, {"type": ["string", "array"]}
    assert not compare(bars(inputs={"codes": either}), stored=bars(inputs={"codes": text})).failed
    diff = compare(bars(inputs={"codes": text}), stored=bars(inputs={"codes": either}))
    assert [entry["field"] for entry in diff.type_changes] == ["codes"]


def test_a_unit_written_in_the_schema_is_compared(bars: Make) -> None:
    before, after = (
        bars(fields={"volume": {"type": "number", "unit": unit}}) for unit in ("shares", "lots")
    )
    change = {"field": "volume", "what": "unit", "stored": "shares", "live": "lots"}
    assert found(compare(after, stored=before)) == {"type_changes": [change]}


def test_a_name_beside_the_record_is_no_word_for_the_one_in_it(bars: Make) -> None:
    dropped = {"type": "array", "items": {"properties": {"symbol": {"type": "string"}}}}
    before, after = bars(), bars(fields={"symbol": None})
    for tool in (before, after):
        tool["outputSchema"]["properties"]["dropped"] = dropped
    diff = compare(after, stored=before, outputs=["symbol"])
    assert found(diff) == {"missing_output_fields": ["symbol"]}


# values and the canary


def test_a_value_is_read_from_the_schema(bars: Make) -> None:
    lots = bars(fields={"volume_unit": {"const": "lots"}})
    diff = compare(lots, values={"volume_unit": "shares"})
    wrong = {"field": "volume_unit", "required": "shares", "actual": ["lots"]}
    assert (diff.reason, found(diff)) == ("changed", {"value_mismatches": [wrong]})
    assert not compare(bars(fields={"volume_unit": {"enum": ["shares"]}}),
                       values={"volume_unit": "shares"}).failed  # fmt: skip


def test_lots_for_shares_are_found_by_the_canary(bars: Make) -> None:
    tool = bars(outputSchema=None)
    row = {"close": 12.5, "volume": 100, "volume_unit": "shares"}
    values = {"volume_unit": "shares"}
    good = compare(tool, answer={"result": [row]}, values=values)
    assert (good.failed, good.evidence) == (False, "canary")
    rows = [row, {**row, "volume_unit": "lots"}]
    mixed = compare(tool, answer={"result": rows}, values=values)
    assert mixed.failed
    lots = compare(tool, answer={"result": rows[1:]}, values=values)
    wrong = {"field": "volume_unit", "required": "shares", "actual": ["lots"]}
    assert (lots.reason, lots.evidence) == ("changed", "canary")
    assert found(lots) == {"value_mismatches": [wrong]}


def test_a_value_that_nothing_shows_is_unverifiable(bars: Make) -> None:
    tool = bars(fields={"volume_unit": {"type": "string"}})
    diff = compare(tool, values={"volume_unit": "shares"})
    assert (diff.reason, diff.evidence) == ("unverifiable", "unverifiable")
    assert diff.value_mismatches == [{"field": "volume_unit", "required": "shares", "actual": []}]


@pytest.mark.parametrize(
    "schema",
    [None, {}, {"type": "object"},
     {"type": "object", "properties": {"result": {"type": "string"}}}],
)  # fmt: skip
def test_a_tool_that_declares_nothing_needs_a_canary(bars: Make, schema: Any) -> None:
    tool = bars(outputSchema=schema)
    diff = compare(tool)
    assert (diff.reason, diff.evidence) == ("unverifiable", "unverifiable")
    assert diff.missing_output_fields == ["close", "volume"]
    row = {"close": 12.5, "volume": 100}
    for answer in ([row], {"result": [row]}, {"000001.SZ": [row]}, {"rows": {"2024-09-18": row}}):
        assert not compare(tool, answer=answer).failed
    lost = compare(tool, answer=[{"close": 12.5, "vol": 100}])
    assert (lost.reason, lost.missing_output_fields) == ("changed", ["volume"])
    assert lost.actual_output_fields == ["[].close", "[].vol"]
