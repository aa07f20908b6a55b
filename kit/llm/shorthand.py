"""Schema shorthand: what a prompt's front matter may say instead of a whole JSON Schema.

```yaml
output_schema:
  reason_text: string
  confidence: enum[high, medium, low]
  sectors: [string]
  note: string?            # optional: may be left out
  pick: {symbol: string, score: number}
```

A type name, `enum[...]`, a list of one item, or a nested mapping; a trailing `?` on the type or on
the key makes a field optional. A mapping that is JSON Schema already passes through. Compiled
objects are closed (`additionalProperties: false`): a model may not invent fields.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from kit.errors import BundleError
from kit.schemas import dotted, suggestion

__all__ = ["DIALECT", "TYPES", "compile_schema", "sample_value"]

DIALECT = "https://json-schema.org/draft/2020-12/schema"

TYPES: Mapping[str, Mapping[str, Any]] = {
    "string": {"type": "string"},
    "number": {"type": "number"},
    "float": {"type": "number"},
    "integer": {"type": "integer"},
    "int": {"type": "integer"},
    "boolean": {"type": "boolean"},
    "bool": {"type": "boolean"},
    "object": {"type": "object"},
    "array": {"type": "array"},
    "date": {"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}$"},
    "datetime": {"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}"},
    "any": {},
}
"""Word of the shorthand -> the JSON Schema it stands for."""

_JSON_TYPES = {"string", "number", "integer", "boolean", "object", "array", "null"}
# Keywords that only make sense in JSON Schema: beside `type`, one of them settles what is meant.
_STRUCTURAL = {
    "properties", "required", "items", "prefixItems", "enum", "const", "pattern", "format",
    "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "uniqueItems",
    "additionalProperties", "patternProperties", "exclusiveMinimum", "exclusiveMaximum",
}  # fmt: skip
_COMBINING = {"anyOf", "oneOf", "allOf"}
_ENUM = re.compile(r"enum\s*\[(.*)\]", re.DOTALL)
_SAMPLE_DATE = "2024-01-02"
_SAMPLE_INSTANT = "2024-01-02T09:30:00+08:00"
_MAX_DEPTH = 20


def compile_schema(shorthand: Any) -> dict[str, Any]:
    """Compile shorthand, or pass JSON Schema through, to a JSON Schema of draft 2020-12.

    Args:
        shorthand: The value of `input_schema` or `output_schema`.

    Returns:
        A schema whose `$schema` is set.

    Raises:
        BundleError: `prompt.shorthand`, with the dotted path of the field concerned in `where`.
    """
    compiled = _compile(shorthand, ())
    if "$schema" in compiled:
        return compiled
    return {"$schema": DIALECT, **compiled}


def sample_value(schema: Mapping[str, Any]) -> Any:
    """Make a value that satisfies a schema: what lint feeds to an offline equivalent.

    Optional fields are filled too. `const`, `default`, `examples` and `enum` are used where given.
    The result is the same on every call.
    """
    return _sample(schema, schema, 0)


def _compile(node: Any, path: tuple[str | int, ...]) -> dict[str, Any]:
    if len(path) > _MAX_DEPTH:
        raise _bad(path, f"nested deeper than {_MAX_DEPTH} levels")
    if isinstance(node, str):
        return _compile_word(node.strip(), path)
    if isinstance(node, Mapping):
        return dict(node) if _is_json_schema(node) else _compile_object(node, path)
    if isinstance(node, Sequence) and not isinstance(node, bytes):
        if len(node) != 1:
            raise _bad(path, f"a list names one item type, this one names {len(node)}")
        return {"type": "array", "items": _compile(node[0], (*path, 0))}
    raise _bad(path, f"{node!r} is neither a type, a list nor a mapping")


def _compile_word(word: str, path: tuple[str | int, ...]) -> dict[str, Any]:
    if word in TYPES:
        return dict(TYPES[word])
    enum = _ENUM.fullmatch(word)
    if enum:
        values = [value.strip().strip("'\"") for value in enum[1].split(",")]
        if not all(values) or len(set(values)) != len(values):
            raise _bad(path, f"{word!r} needs distinct values, separated by commas")
        return {"type": "string", "enum": values}
    if word.startswith("[") and word.endswith("]"):
        return {"type": "array", "items": _compile_word(word[1:-1].strip(), (*path, 0))}
    hint = suggestion(word, TYPES) or f"known: {', '.join(TYPES)}, enum[a, b], [type]"
    raise _bad(path, f"unknown type {word!r}; {hint}")


def _compile_object(node: Mapping[Any, Any], path: tuple[str | int, ...]) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    required: list[str] = []
    for key, value in node.items():
        if not isinstance(key, str):
            raise _bad(path, f"the field name {key!r} is not text")
        name = key.rstrip("?")
        optional = key.endswith("?")
        if isinstance(value, str) and value.rstrip().endswith("?"):
            optional = True
            value = value.rstrip()[:-1]
        if not name or name in properties:
            raise _bad((*path, key), "an empty field name, or one that stands twice")
        properties[name] = _compile(value, (*path, name))
        if not optional:
            required.append(name)
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _is_json_schema(node: Mapping[Any, Any]) -> bool:
    if "$schema" in node or "$ref" in node:
        return True
    if any(isinstance(node.get(key), list) for key in _COMBINING):
        return True
    kind = node.get("type")
    kinds = kind if isinstance(kind, list) else [kind]
    if not kinds or not all(isinstance(k, str) and k in _JSON_TYPES for k in kinds):
        # `{enum: [a, b]}` alone: in shorthand a list has one item type, and `a` is none.
        return set(node) == {"enum"} and isinstance(node["enum"], list)
    return set(node) == {"type"} or not _STRUCTURAL.isdisjoint(node)


def _sample(node: Any, root: Mapping[str, Any], depth: int) -> Any:
    if not isinstance(node, Mapping) or depth > _MAX_DEPTH:
        return None
    if "const" in node:
        return node["const"]
    if "default" in node:
        return node["default"]
    for key in ("examples", "enum"):
        if isinstance(node.get(key), list) and node[key]:
            return node[key][0]
    if isinstance(node.get("$ref"), str):
        return _sample(_local(node["$ref"], root), root, depth + 1)
    for key in ("anyOf", "oneOf"):
        if isinstance(node.get(key), list) and node[key]:
            return _sample(node[key][0], root, depth + 1)
    if isinstance(node.get("allOf"), list):
        merged: dict[str, Any] = {key: value for key, value in node.items() if key != "allOf"}
        for part in node["allOf"]:
            merged.update(part)
        return _sample(merged, root, depth + 1)
    return _sample_type(node, root, depth)


def _sample_type(node: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Any:
    kind = node.get("type")
    if isinstance(kind, list):
        kind = kind[0]
    if kind == "object" or (kind is None and "properties" in node):
        return {
            name: _sample(value, root, depth + 1)
            for name, value in node.get("properties", {}).items()
        }
    if kind == "array":
        count = max(int(node.get("minItems", 1)), 1 if "items" in node else 0)
        return [_sample(node.get("items", {}), root, depth + 1) for _ in range(count)]
    if kind in {"number", "integer"}:
        low = node.get("minimum", node.get("exclusiveMinimum", 0))
        number = low + 1 if "exclusiveMinimum" in node and "minimum" not in node else low
        return min(number, node["maximum"]) if "maximum" in node else number
    if kind == "boolean":
        return False
    return None if kind == "null" else _sample_text(node)


def _sample_text(node: Mapping[str, Any]) -> str:
    candidates = ("text", _SAMPLE_DATE, _SAMPLE_INSTANT, "000001.SZ", "1")
    pattern = node.get("pattern")
    if isinstance(pattern, str):
        return next((text for text in candidates if re.search(pattern, text)), candidates[0])
    by_format = {"date": _SAMPLE_DATE, "date-time": _SAMPLE_INSTANT}
    text = by_format.get(str(node.get("format")), candidates[0])
    return text.ljust(int(node.get("minLength", 0)), "x")[: node.get("maxLength")]


def _local(reference: str, root: Mapping[str, Any]) -> Any:
    node: Any = root
    for part in reference.removeprefix("#").strip("/").split("/"):
        if part:
            node = node.get(part.replace("~1", "/").replace("~0", "~"), {})
    return node


def _bad(path: tuple[str | int, ...], message: str) -> BundleError:
    return BundleError(
        "prompt.shorthand",
        message,
        where=dotted(path),
        remedy="write each field as `name: string`, `name: [string]`, `name: enum[a, b]` "
        "or a nested mapping; a trailing `?` makes it optional",
    )
