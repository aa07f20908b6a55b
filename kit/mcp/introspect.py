"""Which fields a JSON Schema, or an answer, holds, as dotted paths down to the record.

A path joins property names by dots; `[]` after a name is an element of an array, `*` a key that is
data rather than a name (a map from symbol to record): `bars[].close_adj`, `quotes.*.last`.
Wrappers (`{"result": [...]}`), `$ref`, `$defs`, `anyOf`, `allOf` and `oneOf` are walked through.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from kit.errors import McpError

__all__ = [
    "FieldInfo",
    "const_value",
    "find_field",
    "input_fields",
    "is_map",
    "local_reference",
    "names_field",
    "output_fields",
    "payload_fields",
    "required_inputs",
    "size_problem",
]

_Schema = Mapping[str, Any]
_BRANCHES = ("allOf", "anyOf", "oneOf", "then", "else")
# Enough to see whether a value is the same in every record.
_MOST_VALUES = 20
_MOST_NODES = 5000
_MOST_DEPTH = 200
_MOST_PATHS = 20_000


@dataclass(frozen=True, kw_only=True)
class FieldInfo:
    """One field of a schema or of an answer.

    Attributes:
        path: Dotted path, see this module.
        types: JSON types it may have, sorted; empty where the schema does not say.
        values: In a schema the values of `const` or `enum`; in an answer the distinct scalar
            values met, at most 20; empty where there are none.
        unit: The `unit` keyword of a schema, or None.
    """

    path: str
    types: tuple[str, ...] = ()
    values: tuple[Any, ...] = ()
    unit: str | None = None

    @property
    def const(self) -> Any:
        """The one value it can have, or has everywhere; None where there are more, or none."""
        return self.values[0] if len(self.values) == 1 else None


def output_fields(schema: _Schema | None) -> dict[str, FieldInfo]:
    """Return every field that an output schema names, containers included, by path.

    A field found in any branch of `anyOf` or `oneOf` is found. No schema has no fields.
    """
    found: dict[str, FieldInfo] = {}
    if schema is not None:
        # A schema can unfold without end; no real one has that many fields.
        for path, node in islice(_walk(schema, schema, "", ()), _MOST_NODES):
            if path:
                _note(found, path, _types(node), _fixed(node), _unit(node))
    return found


def input_fields(schema: _Schema) -> dict[str, FieldInfo]:
    """Return every argument that an input schema names, nested ones included, by path."""
    return output_fields(schema)


def required_inputs(schema: _Schema) -> frozenset[str]:
    """Return the paths of the arguments that a caller must give.

    A nested argument counts only where everything above it is required too; of `anyOf` and
    `oneOf` only what every branch requires counts.

    Raises:
        McpError: `mcp.bad_schema` where the schema never comes to an end.
    """
    return frozenset(_required(schema, schema, "", (), iter(range(_MOST_PATHS))))


def size_problem(schema: _Schema) -> str:
    """Say why a schema is too large to be looked at; empty when it is not.

    Counted are its parts, and the ways that lead to them through references: thirty definitions
    that each name the next one three times are few parts, and never come to an end.
    """
    known: dict[int, tuple[int, int]] = {}

    def measure(node: Any, depth: int) -> tuple[int, int]:
        """Return on how many ways, and how deep, one comes below a node."""
        if not isinstance(node, (dict, list)):
            return 0, 0
        if id(node) in known:
            return known[id(node)]
        if depth > _MOST_DEPTH or len(known) > _MOST_NODES:
            return 0, depth
        known[id(node)] = 1, 0  # inside itself it counts once
        parts = [*(node.values() if isinstance(node, dict) else node)]
        if isinstance(node, dict) and isinstance(node.get("$ref"), str):
            parts.append(local_reference(node["$ref"], schema))
        below = [measure(part, depth + 1) for part in parts]
        ways = 1 + sum(ways for ways, _ in below)
        known[id(node)] = ways, 1 + max((deep for _, deep in below), default=0)
        return known[id(node)]

    ways, deep = measure(schema, 0)
    if len(known) > _MOST_NODES:
        return f"is too large: more than {_MOST_NODES} parts"
    if deep > _MOST_DEPTH:
        return f"is nested more than {_MOST_DEPTH} levels deep"
    if ways > _MOST_PATHS:
        return f"unfolds to more than {_MOST_PATHS} parts"
    return ""


def names_field(name: str, path: str) -> bool:
    """Say whether a locked name means the field at `path`: the path itself, or its tail.

    `close_adj`, `bars[].close_adj` and `result.bars[].close_adj` all name the last. A `*` in
    either stands for any one part but the last.
    """
    wanted, have = _parts(name), _parts(path)
    if not wanted or len(wanted) > len(have):
        return False
    tail = have[len(have) - len(wanted) :]
    return wanted[-1] == tail[-1] and all(
        left == right or "*" in (left, right) for left, right in zip(wanted, tail, strict=True)
    )


def find_field(schema: _Schema | Mapping[str, FieldInfo] | None, name: str) -> FieldInfo | None:
    """Return the field that `name` means, the shallowest where several fit, or None.

    Args:
        schema: An output schema, or what `output_fields` or `payload_fields` returned.
        name: A field name, or a dotted path or the tail of one.
    """
    known: Mapping[str, Any] = schema or {}
    if known and all(isinstance(value, FieldInfo) for value in known.values()):
        fields: Mapping[str, FieldInfo] = known
    else:
        fields = output_fields(known)
    fits = [info for path, info in fields.items() if names_field(name, path)]
    return min(fits, key=lambda info: len(_parts(info.path)), default=None)


def const_value(schema: _Schema | None, name: str) -> Any:
    """Return the one value that a schema allows a field (`const`, or an `enum` of one), or None."""
    info = find_field(schema, name)
    return None if info is None else info.const


def payload_fields(payload: Any) -> dict[str, FieldInfo]:
    """Return every field of an answer, by path, with the types and values met.

    An object whose keys are all codes or dates is taken for a map: its keys become `*`.
    """
    found: dict[str, FieldInfo] = {}
    for path, value in _visit(payload, ""):
        if path:
            scalar = not isinstance(value, (dict, list))
            _note(found, path, (_type_name(value),), (value,) if scalar else (), None)
    return found


def is_map(value: Mapping[str, Any]) -> bool:
    """Say whether the keys of an object are data (codes, dates) rather than field names.

    Upper-case words may be either (`AAPL`, `PE`): they count as codes only where each holds a
    record.
    """
    holds_records = all(isinstance(item, (dict, list)) for item in value.values())
    pattern = _CODE if holds_records else _SURE_CODE
    return bool(value) and all(pattern.fullmatch(key) for key in value)


_SURE_CODE = re.compile(
    r"""
    \d{4}-?\d\d-?\d\d.*                     # a date or an instant
    | \d+                                   # 600519
    | [A-Z0-9]+\.[A-Z]{1,3}                 # 600519.SH, 0700.HK, BRK.B
    | [A-Za-z]{2}[._]?\d{5,6}               # sh.600519, SZ000001
    """,
    re.VERBOSE,
)
_CODE = re.compile(rf"(?:{_SURE_CODE.pattern}) | \^?[A-Z][A-Z0-9]*(?:[.\-][A-Z0-9]+)*", re.VERBOSE)


def _walk(
    node: Any, root: _Schema, path: str, seen: tuple[int, ...]
) -> Iterator[tuple[str, _Schema]]:
    """Yield every subschema with its path; a schema inside itself is entered once a branch."""
    if not isinstance(node, Mapping) or id(node) in seen or len(seen) > _MOST_DEPTH:
        return
    seen = (*seen, id(node))
    yield path, node
    for part in _alternatives(node, root):
        yield from _walk(part, root, path, seen)
    for name, child in _mapping(node, "properties").items():
        yield from _walk(child, root, f"{path}.{name}" if path else str(name), seen)
    for child in (*_mapping(node, "patternProperties").values(), node.get("additionalProperties")):
        yield from _walk(child, root, f"{path}.*" if path else "*", seen)
    items = node.get("items")
    for child in (items, *(node.get("prefixItems") or ())):
        yield from _walk(child, root, f"{path}[]", seen)


def _alternatives(node: _Schema, root: _Schema) -> Iterator[Any]:
    if isinstance(node.get("$ref"), str):
        yield local_reference(node["$ref"], root)
    for key in _BRANCHES:
        part = node.get(key)
        yield from part if isinstance(part, list) else [part]


def local_reference(reference: str, root: _Schema) -> Any:
    """Return what a `$ref` inside the same document points to; None where it leads nowhere."""
    if not reference.startswith("#"):
        return None
    node: Any = root
    for part in reference[1:].split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(node, Mapping) and key in node:
            node = node[key]
        elif isinstance(node, list) and key.isdigit() and int(key) < len(node):
            node = node[int(key)]
        else:
            return None
    return node


def _required(
    node: Any, root: _Schema, path: str, seen: tuple[int, ...], steps: Iterator[int]
) -> set[str]:
    if not isinstance(node, Mapping) or id(node) in seen:
        return set()
    if next(steps, None) is None:
        raise McpError("mcp.bad_schema", f"unfolds to more than {_MOST_PATHS} parts")
    seen = (*seen, id(node))
    found: set[str] = set()
    names = node.get("required")
    properties = _every_property(node, root) if names else {}
    for name in names if isinstance(names, list) else ():
        inner = f"{path}.{name}" if path else str(name)
        found.add(inner)
        for child in properties.get(name, ()):
            found |= _required(child, root, inner, seen, steps)
    if isinstance(node.get("$ref"), str):
        found |= _required(local_reference(node["$ref"], root), root, path, seen, steps)
    for part in node.get("allOf") or ():
        found |= _required(part, root, path, seen, steps)
    for key in ("anyOf", "oneOf"):
        branches = [_required(part, root, path, seen, steps) for part in node.get(key) or ()]
        if branches:
            found |= set.intersection(*branches)
    return found


def _every_property(node: Any, root: _Schema) -> dict[str, list[Any]]:
    """Return the subschemas of each property: `required` may stand beside another part's."""
    found: dict[str, list[Any]] = {}
    seen: set[int] = set()
    waiting = [node]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Mapping) and id(part) not in seen:
            seen.add(id(part))
            for name, child in _mapping(part, "properties").items():
                found.setdefault(name, []).append(child)
            waiting += _alternatives(part, root)
    return found


def _mapping(node: _Schema, key: str) -> Mapping[str, Any]:
    value = node.get(key)
    return value if isinstance(value, Mapping) else {}


def _types(node: _Schema) -> tuple[str, ...]:
    kind = node.get("type")
    kinds = kind if isinstance(kind, list) else [kind]
    named = tuple(str(k) for k in kinds if isinstance(k, str))
    return named or tuple(_type_name(value) for value in _fixed(node))


def _fixed(node: _Schema) -> tuple[Any, ...]:
    if "const" in node:
        return (node["const"],)
    values = node.get("enum")
    return tuple(values) if isinstance(values, list) else ()


def _unit(node: _Schema) -> str | None:
    unit = node.get("unit")
    return unit if isinstance(unit, str) else None


def _note(
    found: dict[str, FieldInfo],
    path: str,
    types: tuple[str, ...],
    values: tuple[Any, ...],
    unit: str | None,
) -> None:
    old = found.get(path, FieldInfo(path=path))
    kept = list(old.values)
    for value in values:
        # 1 and True are equal in Python and are two values in JSON.
        if len(kept) < _MOST_VALUES and not any(
            type(value) is type(have) and value == have for have in kept
        ):
            kept.append(value)
    found[path] = FieldInfo(
        path=path,
        types=tuple(sorted({*old.types, *types})),
        values=tuple(kept),
        unit=old.unit or unit,
    )


def _visit(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    yield path, value
    if isinstance(value, dict):
        a_map = is_map(value)
        for key, item in value.items():
            name = "*" if a_map else key
            yield from _visit(item, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for item in value:
            yield from _visit(item, f"{path}[]")


def _type_name(value: Any) -> str:
    if value is None:
        return "null"
    for kind, name in _TYPE_NAMES:
        if isinstance(value, kind):
            return name
    return type(value).__name__


# bool before int: it is one in Python.
_TYPE_NAMES: tuple[tuple[type, str], ...] = (
    (bool, "boolean"),
    (int, "integer"),
    (float, "number"),
    (str, "string"),
    (dict, "object"),
    (list, "array"),
)


def _parts(path: str) -> list[str]:
    return [part for part in path.removeprefix("$.").replace("[]", ".[]").split(".") if part]
