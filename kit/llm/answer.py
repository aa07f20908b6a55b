"""Read a model's answer strictly: one JSON value that matches the schema, or a refusal.

Tolerated: one code fence around the whole message. Refused: prose around the JSON, NaN, duplicate
or extra keys, a value outside an enum, text that is not valid Unicode, an answer cut short.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from kit import files, schemas
from kit.errors import DataError

__all__ = ["AnswerError", "closed", "read_answer", "valid_value"]

# An answer longer than this is not a step's answer; it bounds memory and parsing.
_MAX_ANSWER_CHARS = 200_000
_FENCE = re.compile(r"\A```(?:json)?[ \t]*\r?\n(.*?)\r?\n?```\Z", re.DOTALL | re.IGNORECASE)
_MAPS_OF_SCHEMAS = {"properties", "$defs", "patternProperties", "dependentSchemas"}
# Values, and branches that each see only a part of the object: both stay as they are.
_LEFT_ALONE = {
    "allOf", "const", "default", "else", "enum", "examples", "if", "not", "required", "then",
}  # fmt: skip


class AnswerError(DataError):
    """An answer that is not taken.

    Args:
        kind: `off_schema`, `truncated` or `refused`.
        message: What is wrong with it.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"llm.{kind}", message, remedy="the step takes its fallback")
        self.kind = kind


def read_answer(text: str, finish_reason: str | None, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON object in a model's answer.

    Args:
        text: The whole message.
        finish_reason: The API's word on why the model stopped.
        schema: The step's output schema.

    Raises:
        AnswerError: With the first reason found.
    """
    if finish_reason == "length":
        raise AnswerError("truncated", "the answer was cut at max_tokens")
    if finish_reason == "content_filter":
        raise AnswerError("refused", "the provider's filter withheld the answer")
    if finish_reason not in {None, "stop"}:
        raise AnswerError("off_schema", f"the model stopped with {finish_reason!r}")
    if len(text) > _MAX_ANSWER_CHARS:
        raise AnswerError("off_schema", f"the answer has {len(text)} characters")
    body = text.strip()
    fenced = _FENCE.match(body)
    if fenced:
        body = fenced.group(1)
    try:
        value = files.parse_json(body)
    except DataError as error:
        raise AnswerError("off_schema", f"not one JSON object: {error}") from error
    return valid_value(value, schema)


def valid_value(value: Any, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return `value` when it is a JSON object that matches the schema, with no key beyond it.

    Raises:
        AnswerError: `off_schema`, with the first problems.
    """
    if not isinstance(value, dict):
        raise AnswerError("off_schema", f"must be a JSON object, is {type(value).__name__}")
    foreign = _foreign(value, "")
    if foreign:
        raise AnswerError("off_schema", foreign)
    problems = schemas.validate_with(closed(schema), value)
    if problems:
        raise AnswerError("off_schema", "; ".join(str(problem) for problem in problems[:3]))
    return value


def closed(schema: Any) -> Any:
    """Return the schema with every object that lists its properties closed to others."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    result: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _MAPS_OF_SCHEMAS and isinstance(value, Mapping):
            result[key] = {name: closed(item) for name, item in value.items()}
        else:
            result[key] = value if key in _LEFT_ALONE else closed(value)
    if isinstance(schema.get("properties"), Mapping):
        result.setdefault("additionalProperties", False)
    return result


def _foreign(value: Any, path: str) -> str:
    """Name the first value that JSON, or UTF-8, cannot carry; empty when there is none."""
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                return f"{path or 'the object'} has a key that is not text"
            found = _foreign(key, path) or _foreign(item, f"{path}.{key}" if path else key)
            if found:
                return found
        return ""
    if isinstance(value, list):
        found_items = (_foreign(item, f"{path}[{i}]") for i, item in enumerate(value))
        return next((found for found in found_items if found), "")
    if isinstance(value, float) and not math.isfinite(value):
        return f"{path}: not a finite number"
    if isinstance(value, str):
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            return f"{path}: not valid Unicode text"
        return ""
    if value is None or isinstance(value, bool | int | float):
        return ""
    return f"{path}: {type(value).__name__} is not a JSON type"
