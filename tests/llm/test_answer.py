"""Reading a model's answer: what is tolerated, and everything that is not."""

from __future__ import annotations

import pytest

from kit.llm.answer import AnswerError, closed, read_answer, valid_value

SCHEMA = {
    "type": "object",
    "properties": {
        "reason_text": {"type": "string"},
        "confidence": {"enum": ["high", "medium", "low"]},
        "score": {"type": "number"},
    },
    "required": ["reason_text", "confidence"],
}
GOOD = '{"reason_text": "回踩", "confidence": "high"}'
VALUE = {"reason_text": "回踩", "confidence": "high"}


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        f"\n  {GOOD}\n",
        f"```json\n{GOOD}\n```",
        f"```\n{GOOD}\n```",
        f"\n```JSON\r\n{GOOD}\r\n```\n",
        '{\n  "confidence": "high",\n  "reason_text": "回踩"\n}',
    ],
)
def test_taken(text: str) -> None:
    assert read_answer(text, "stop", SCHEMA) == VALUE
    assert read_answer(text, None, SCHEMA) == VALUE


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        '"text"',
        f"Here it is:\n{GOOD}",
        f"{GOOD}\nHope that helps!",
        f"Sure!\n```json\n{GOOD}\n```",
        f"```json\n{GOOD}\n```\nDone.",
        f"```json\n{GOOD}\n```\n```json\n{GOOD}\n```",
        f"```python\n{GOOD}\n```",
        GOOD + GOOD,
        '{"reason_text": "a", "reason_text": "b", "confidence": "high"}',
        '{"reason_text": "a", "confidence": "high", "extra": 1}',
        '{"reason_text": "a", "confidence": "High"}',
        '{"reason_text": "a", "confidence": "certain"}',
        '{"reason_text": "a"}',
        '{"reason_text": null, "confidence": "high"}',
        '{"reason_text": "a", "confidence": "high", "score": NaN}',
        '{"reason_text": "a", "confidence": "high", "score": Infinity}',
        '{"reason_text": "a", "confidence": "high", "score": 1e999}',
        '{"reason_text": "\\ud800", "confidence": "high"}',
        '{"reason_text": "a", "confidence": "high", "score": ' + "9" * 5000 + "}",
        "{'reason_text': 'a', 'confidence': 'high'}",
        '{"reason_text": "a", "confidence": "high",}',
        "[" * 100_000,
        '{"reason_text": "' + "x" * 300_000 + '", "confidence": "high"}',
        "\ufeff" + GOOD,
    ],
)
def test_refused_as_off_schema(text: str) -> None:
    with pytest.raises(AnswerError) as caught:
        read_answer(text, "stop", SCHEMA)
    assert caught.value.kind == "off_schema"
    assert caught.value.message


@pytest.mark.parametrize(
    ("finish", "kind"),
    [("length", "truncated"), ("content_filter", "refused"), ("tool_calls", "off_schema")],
)
def test_an_answer_that_did_not_end_by_itself_is_refused(finish: str, kind: str) -> None:
    with pytest.raises(AnswerError) as caught:
        read_answer(GOOD, finish, SCHEMA)
    assert caught.value.kind == kind


def test_nested_objects_are_closed_too() -> None:
    schema = {
        "type": "object",
        "properties": {
            "rows": {
                "type": "array",
                "items": {"type": "object", "properties": {"a": {"type": "integer"}}},
            }
        },
    }
    assert valid_value({"rows": [{"a": 1}]}, schema) == {"rows": [{"a": 1}]}
    with pytest.raises(AnswerError, match="unknown key"):
        valid_value({"rows": [{"a": 1, "b": 2}]}, schema)


def test_closing_leaves_values_branches_and_open_objects_alone() -> None:
    schema = {
        "type": "object",
        "properties": {
            "properties": {"enum": [{"properties": {}}]},
            "open": {"type": "object", "additionalProperties": {"type": "number"}},
            "free": {"type": "object"},
        },
        "allOf": [{"properties": {"open": {}}}],
    }
    expected = {**schema, "additionalProperties": False}
    assert closed(schema) == expected


@pytest.mark.parametrize("value", [{1: "a"}, {"reason_text": {1}}, {"reason_text": b"x"}])
def test_a_stand_ins_python_values_must_be_json(value: object) -> None:
    with pytest.raises(AnswerError):
        valid_value(value, SCHEMA)
