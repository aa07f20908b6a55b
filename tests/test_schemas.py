from __future__ import annotations

import pytest

from kit import schemas
from kit.errors import DataError

SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["env_lock"],
    "properties": {
        "env_lock": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "properties": {"min_version": {"type": "string"}, "name": {"type": "string"}},
            },
        }
    },
    "patternProperties": {"^x-": {}},
}


def test_paths_are_dotted_with_brackets() -> None:
    problems = schemas.validate_with(SCHEMA, {"env_lock": [{}, {"min_version": 1}]})
    assert [p.path for p in problems] == ["env_lock[1].min_version"]


def test_unknown_keys_get_a_suggestion_and_x_keys_pass() -> None:
    problems = schemas.validate_with(SCHEMA, {"env_lock": [{"min_versoin": "1"}], "x-note": 1})
    assert [(p.path, p.message, p.hint) for p in problems] == [
        ("env_lock[0].min_versoin", "unknown key", "did you mean 'min_version'?")
    ]


def test_missing_keys_are_named() -> None:
    assert [str(p) for p in schemas.validate_with(SCHEMA, {})] == ["env_lock: missing"]


def test_all_problems_come_at_once() -> None:
    value = {"env_lock": [{"name": 1}, {"min_version": 2}], "z": 0}
    assert len(schemas.validate_with(SCHEMA, value)) == 3


def test_check_raises_with_everything() -> None:
    with pytest.raises(DataError) as error:
        schemas.check("config-markets", {"market": {}})
    assert error.value.code == "data.schema"
    assert error.value.details["problems"]


def test_every_shipped_schema_is_a_valid_2020_12_schema() -> None:
    from jsonschema import Draft202012Validator

    assert schemas.names()
    for name in schemas.names():
        schema = schemas.load(name)
        assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema", name
        Draft202012Validator.check_schema(schema)
