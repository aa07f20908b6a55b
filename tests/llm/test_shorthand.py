from __future__ import annotations

from typing import Any

import pytest

from kit import schemas
from kit.errors import BundleError
from kit.llm.shorthand import DIALECT, TYPES, compile_schema, sample_value


def test_a_mapping_becomes_a_closed_object() -> None:
    compiled = compile_schema({"symbol": "string", "score": "number"})
    assert compiled == {
        "$schema": DIALECT,
        "type": "object",
        "properties": {"symbol": {"type": "string"}, "score": {"type": "number"}},
        "required": ["symbol", "score"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    ("shorthand", "expected"),
    [
        ("[string]", {"type": "array", "items": {"type": "string"}}),
        (["string"], {"type": "array", "items": {"type": "string"}}),
        ("enum[high, medium, low]", {"type": "string", "enum": ["high", "medium", "low"]}),
        ("enum['a', \"b\"]", {"type": "string", "enum": ["a", "b"]}),
        ("float", {"type": "number"}),
        ("object", {"type": "object"}),
        ("any", {}),
        (
            "[[integer]]",
            {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
        ),
    ],
)
def test_words(shorthand: Any, expected: dict[str, Any]) -> None:
    assert compile_schema({"x": shorthand})["properties"]["x"] == expected


@pytest.mark.parametrize("field", [{"note": "string?"}, {"note?": "string"}])
def test_a_question_mark_makes_a_field_optional(field: dict[str, str]) -> None:
    compiled = compile_schema({"reason": "string", **field})
    assert compiled["required"] == ["reason"]
    assert not schemas.validate_with(compiled, {"reason": "x"})
    assert not schemas.validate_with(compiled, {"reason": "x", "note": "y"})
    assert schemas.validate_with(compiled, {"reason": "x", "note": 1})


def test_nested_mappings_and_lists_of_mappings() -> None:
    compiled = compile_schema({"picks": [{"symbol": "string", "tags": "[string]"}]})
    good = {"picks": [{"symbol": "600000.SH", "tags": ["a"]}]}
    assert not schemas.validate_with(compiled, good)
    problems = schemas.validate_with(compiled, {"picks": [{"symbol": 1, "tags": []}]})
    assert [problem.path for problem in problems] == ["picks[0].symbol"]


def test_a_field_named_type_is_a_field() -> None:
    compiled = compile_schema({"type": "string", "title": "string"})
    assert set(compiled["properties"]) == {"type", "title"}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
        {"type": "array", "items": {"type": "number"}},
        {"type": "string", "minLength": 3},
        {"anyOf": [{"type": "string"}, {"type": "null"}]},
        {"type": ["string", "null"]},
    ],
)
def test_json_schema_passes_through(schema: dict[str, Any]) -> None:
    assert compile_schema(schema) == {"$schema": DIALECT, **schema}
    assert compile_schema({"x": schema})["properties"]["x"] == schema


@pytest.mark.parametrize(
    ("shorthand", "path", "word"),
    [
        ({"a": "strng"}, "a", "string"),
        ({"a": {"b": "enum[]"}}, "a.b", "distinct"),
        ({"a": "enum[x, x]"}, "a", "distinct"),
        ({"a": ["string", "number"]}, "a", "names 2"),
        ({"a": []}, "a", "names 0"),
        ({"a": 3}, "a", "neither"),
        ({"a": None}, "a", "neither"),
        ({1: "string"}, "", "not text"),
        ({"a": "string", "a?": "string"}, "a?", "twice"),
        ({"?": "string"}, "?", "empty"),
    ],
)
def test_mistakes_name_their_field(shorthand: Any, path: str, word: str) -> None:
    with pytest.raises(BundleError, match=word) as error:
        compile_schema(shorthand)
    assert error.value.code == "prompt.shorthand"
    assert error.value.where == path
    assert error.value.remedy


def test_bottomless_nesting_is_refused() -> None:
    deep: Any = "string"
    for _ in range(50):
        deep = {"x": deep}
    with pytest.raises(BundleError, match="deeper"):
        compile_schema(deep)


@pytest.mark.parametrize(
    "schema",
    [
        *[compile_schema({"x": word}) for word in TYPES],
        compile_schema({"a": "enum[x, y]", "b": "[date]", "c": {"d?": "datetime"}}),
        {"type": "number", "minimum": 3},
        {"type": "integer", "exclusiveMinimum": 0},
        {"type": "integer", "minimum": 2, "maximum": 2},
        {"type": "string", "minLength": 10},
        {"type": "string", "maxLength": 2},
        {"type": "array", "items": {"type": "string"}, "minItems": 3},
        {"type": ["string", "null"]},
        {"const": 7},
        {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        {"allOf": [{"type": "object"}, {"properties": {"a": {"type": "string"}}}]},
        {"$ref": "#/$defs/p", "$defs": {"p": {"type": "object", "properties": {}}}},
    ],
)
def test_samples_satisfy_their_schema(schema: dict[str, Any]) -> None:
    value = sample_value(schema)
    assert schemas.validate_with(schema, value) == []
    assert sample_value(schema) == value
