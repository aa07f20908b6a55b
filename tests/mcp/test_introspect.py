from __future__ import annotations

from typing import Any

import pytest

from kit.errors import McpError
from kit.mcp import (
    const_value,
    find_field,
    input_fields,
    names_field,
    output_fields,
    payload_fields,
    required_inputs,
)
from kit.mcp.introspect import size_problem

RECORD = {
    "type": "object",
    "properties": {
        "date": {"type": "string"},
        "close_adj": {"type": "number", "unit": "CNY"},
        "volume_unit": {"const": "shares"},
    },
}
REF = {"$ref": "#/$defs/Bar"}
DEFS = {"$defs": {"Bar": RECORD}}


def inside(**schema: Any) -> dict[str, Any]:
    return {"type": "object", "properties": schema, **DEFS}


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        (RECORD, "close_adj"),
        ({"type": "array", "items": RECORD}, "[].close_adj"),
        (inside(result={"type": "array", "items": REF}), "result[].close_adj"),
        (inside(bars={"type": "array", "items": REF}), "bars[].close_adj"),
        (inside(pages={"items": {"items": REF}}), "pages[][].close_adj"),
        (inside(pair={"prefixItems": [{"type": "string"}, REF]}), "pair[].close_adj"),
        ({**DEFS, "additionalProperties": REF}, "*.close_adj"),
        (inside(by={"additionalProperties": {"items": REF}}), "by.*[].close_adj"),
        (inside(by={"patternProperties": {"^[0-9]{6}": REF}}), "by.*.close_adj"),
        ({**DEFS, **REF}, "close_adj"),
        (inside(bar={"anyOf": [{"type": "null"}, REF]}), "bar.close_adj"),
        (inside(bar={"oneOf": [{"type": "string"}, {"items": REF}]}), "bar[].close_adj"),
        (inside(bar={"allOf": [{"properties": {"x": {}}}, REF]}), "bar.close_adj"),
        (inside(bar={"$ref": "#/$defs/A~1B"}) | {"$defs": {"A/B": RECORD}}, "bar.close_adj"),
        (inside(bar={"if": {}, "then": REF}), "bar.close_adj"),
    ],
)
def test_a_field_is_found_through(schema: dict[str, Any], path: str) -> None:
    fields = output_fields(schema)
    assert path in fields
    assert fields[path].types == ("number",)
    assert fields[path].unit == "CNY"
    found = find_field(schema, "close_adj")
    assert found is not None
    assert found.path == path
    assert const_value(schema, "volume_unit") == "shares"


@pytest.mark.parametrize(
    "schema",
    [
        None,
        {},
        {"type": "object"},
        {"properties": {"result": {"type": "string"}}},
        {"$ref": "#/$defs/Nothing"},
        {"$ref": "http://127.0.0.1:9/schema.json"},
        {"properties": "close_adj", "allOf": None, "items": True, "additionalProperties": False},
        {"description": "has close_adj", "examples": [{"close_adj": 1}]},
    ],
)
def test_a_field_that_is_not_declared_is_not_found(schema: dict[str, Any] | None) -> None:
    assert find_field(schema, "close_adj") is None


def test_a_schema_inside_itself_ends() -> None:
    tree = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "parts": {"items": {"$ref": "#"}}},
    }
    assert list(output_fields(tree)) == ["name", "parts", "parts[]"]
    assert required_inputs({**tree, "required": ["parts"]}) == {"parts"}


def test_a_schema_that_unfolds_without_end_is_given_up() -> None:
    # Each level names the next twice: 2**40 paths.
    levels = {
        f"L{i}": {
            "properties": {side: {"$ref": f"#/$defs/L{i + 1}"} for side in ("a", "b")},
        }
        for i in range(40)
    }
    assert len(output_fields({"$ref": "#/$defs/L0", "$defs": levels})) <= 5000


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def chain(links: int, *, times: int = 1) -> dict[str, Any]:
    """Each definition names the next one, so many times over; listed last to first."""
    defs: dict[str, Any] = {f"d{links}": {"required": ["x"]}}
    for i in reversed(range(links)):
        defs[f"d{i}"] = {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * times}
    return {"$defs": defs, "$ref": "#/$defs/d0"}


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        (inside(bars={"type": "array", "items": REF}), ""),
        (nested(60), ""),
        ({"$ref": "#", "properties": {"a": {"$ref": "#"}}}, ""),
        (inside(**{f"f{i}": {} for i in range(4000)}), ""),
        (inside(**{f"f{i}": {} for i in range(6000)}), "is too large: more than 5000 parts"),
        (nested(400), "is nested more than 200 levels deep"),
        (chain(400), "is nested more than 200 levels deep"),
        (chain(30, times=3), "unfolds to more than 20000 parts"),
    ],
)
def test_a_schema_has_a_size_that_can_be_looked_at(schema: dict[str, Any], problem: str) -> None:
    assert size_problem(schema) == problem


def test_definitions_that_all_name_each_other_are_given_up() -> None:
    # Ten of them, each naming the other nine: 9! ways that meet nothing twice.
    names = [f"d{i}" for i in range(10)]
    every = {"allOf": [{"$ref": f"#/$defs/{name}"} for name in names]}
    schema = {"$defs": {name: dict(every) for name in names}, "$ref": "#/$defs/d0"}
    with pytest.raises(McpError, match="unfolds to more than 20000 parts"):
        required_inputs(schema)


def test_types_and_values_of_branches_are_put_together() -> None:
    schema = {
        "properties": {
            "adjust": {"anyOf": [{"const": "none"}, {"enum": ["forward", "none"]}]},
            "flag": {"enum": [True, 1]},
            "one": {"enum": ["shares"]},
            "when": {"type": ["string", "null"]},
        }
    }
    fields = output_fields(schema)
    assert fields["adjust"].values == ("none", "forward")
    assert fields["flag"].values == (True, 1)
    assert fields["flag"].types == ("boolean", "integer")
    assert fields["when"].types == ("null", "string")
    assert const_value(schema, "adjust") is None
    assert const_value(schema, "one") == "shares"
    assert const_value(schema, "absent") is None


@pytest.mark.parametrize(
    ("name", "path", "fits"),
    [
        ("close_adj", "bars[].close_adj", True),
        ("bars[].close_adj", "bars[].close_adj", True),
        ("bars[].close_adj", "result.bars[].close_adj", True),
        ("bars.close_adj", "bars[].close_adj", False),
        ("adj", "close_adj", False),
        ("quotes.*.last", "quotes.000001_SZ.last", True),
        ("quotes.AAPL.last", "quotes.*.last", True),
        ("result.bars[].close_adj", "bars[].close_adj", False),
        ("", "close_adj", False),
        ("close", "closes.*", False),
        ("closes.*", "closes.*", True),
        ("[].close", "[].close", True),
    ],
)
def test_a_name_means_a_path(name: str, path: str, fits: bool) -> None:
    assert names_field(name, path) is fits


def test_the_shallowest_field_is_meant() -> None:
    schema = {"properties": {"bars": {"items": RECORD}, "date": {"type": "integer"}}}
    found = find_field(schema, "date")
    assert found is not None
    assert found.types == ("integer",)


def test_inputs_and_what_is_required_of_them() -> None:
    schema = {
        "properties": {
            "codes": {"type": "array", "items": {"type": "string"}},
            "window": {"$ref": "#/$defs/Window"},
            "format": {"const": "json"},
        },
        "required": ["codes", "window"],
        "allOf": [{"required": ["format"]}],
        "anyOf": [{"required": ["start", "codes"]}, {"required": ["days", "start"]}],
        "$defs": {
            "Window": {"properties": {"from": {}, "to": {}}, "required": ["from"]},
        },
    }
    assert required_inputs(schema) == {"codes", "window", "window.from", "format", "start"}
    assert list(input_fields(schema)) == [
        "codes", "codes[]", "window", "window.from", "window.to", "format",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("payload", "paths"),
    [
        ({"bars": [{"date": "2024-09-18", "close": 1.5}]}, ["bars[].date", "bars[].close"]),
        ([{"close": 1}], ["[].close"]),
        ({"000001.SZ": [{"close": 1}], "600519.SH": [{"close": 2}]}, ["*[].close"]),
        ({"AAPL": {"last": 1}, "BRK.B": {"last": 2}}, ["*.last"]),
        ({"sh.600519": {"last": 1}}, ["*.last"]),
        ({"2024-09-18": 1.5, "2024-09-19": 1.6}, ["*"]),
        # Upper-case words that hold scalars are field names, and so are Chinese ones.
        ({"PE": 12.5, "PB": 1.1}, ["PE", "PB"]),
        ({"代码": "000001", "5日涨幅": 1.5}, ["代码", "5日涨幅"]),
        ({"bars": [{"close": 1}], "quotes": [{"close": 1}]}, ["bars[].close", "quotes[].close"]),
    ],
)
def test_fields_of_an_answer(payload: Any, paths: list[str]) -> None:
    fields = payload_fields(payload)
    leaves = [path for path, info in fields.items() if not {"array", "object"} & set(info.types)]
    assert leaves == paths


def test_values_of_an_answer_are_kept_for_comparison() -> None:
    rows = [{"unit": "shares", "n": i, "none": None} for i in range(100)]
    fields = payload_fields({"result": rows})
    assert fields["result[].unit"].const == "shares"
    assert fields["result[].n"].const is None
    assert len(fields["result[].n"].values) == 20
    assert fields["result[].none"].types == ("null",)
    assert find_field(fields, "unit") == fields["result[].unit"]
    assert find_field({}, "unit") is None
