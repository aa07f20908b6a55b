"""JSON Schemas of every file and wire shape, and the one place that imports jsonschema.

Schemas live beside this module as `<name>.json` (draft 2020-12). Problems come back all at once,
each with a dotted path such as `env_lock.required_mcps[1].min_version`.
"""

from __future__ import annotations

import difflib
import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from kit.errors import DataError, KitError

__all__ = [
    "Problem",
    "check",
    "dotted",
    "load",
    "names",
    "schema_problem",
    "suggestion",
    "validate",
    "validate_with",
]

_FOLDER = Path(__file__).parent


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One thing wrong with a value.

    Attributes:
        path: Dotted path to the value, empty for the value itself.
        message: What is wrong.
        hint: How to mend it, possibly empty.
    """

    path: str
    message: str
    hint: str = ""

    def __str__(self) -> str:
        text = f"{self.path}: {self.message}" if self.path else self.message
        return f"{text} ({self.hint})" if self.hint else text


def names() -> list[str]:
    """Return the names of all schemas."""
    return sorted(path.stem for path in _FOLDER.glob("*.json"))


@cache
def _text(name: str) -> str:
    return (_FOLDER / f"{name}.json").read_text(encoding="utf-8")


def load(name: str) -> dict[str, Any]:
    """Return a fresh copy of the schema called `name`."""
    schema: dict[str, Any] = json.loads(_text(name))
    return schema


@cache
def _named_validator(name: str) -> Any:
    return _validator(load(name))


def _validator(schema: Mapping[str, Any], *, foreign: bool = False) -> Any:
    # jsonschema imports rfc3987-syntax for a format nobody uses here; that import alone costs 2 s.
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend, validator_for
    from referencing import Registry

    # A registry of its own: a `$ref` of a foreign schema is never fetched from its address.
    kind: Any = validator_for(schema, default=Draft202012Validator)
    if foreign:
        kind = extend(kind, {"pattern": None})  # type: ignore[no-untyped-call]
    return kind(schema, registry=Registry())


def validate(name: str, value: Any) -> list[Problem]:
    """Check `value` against a named schema; an empty list means it is valid."""
    return _problems(_named_validator(name), value)


def validate_with(schema: Mapping[str, Any], value: Any, *, foreign: bool = False) -> list[Problem]:
    """Check `value` against a schema given as a mapping.

    Args:
        schema: The schema.
        value: The value.
        foreign: Whether somebody else wrote the schema. Its `pattern`s are then let be: they are
            written for another engine, and one may keep this one busy for ever.
    """
    return _problems(_validator(schema, foreign=foreign), value)


def schema_problem(schema: Mapping[str, Any]) -> str:
    """Say why a schema that came from outside is no usable JSON Schema; empty when it is one."""
    from jsonschema import FormatChecker, SchemaError

    try:
        # No formats: a `pattern` may be written for another engine, and is let be.
        _validator(schema).check_schema(schema, format_checker=FormatChecker(formats=()))
    except SchemaError as error:
        path = dotted(error.absolute_path)
        return f"{path}: {_short(error.message)}" if path else _short(error.message)
    except RecursionError:
        return "is nested too deeply"
    return ""


def check(
    name: str,
    value: Any,
    error: type[KitError] = DataError,
    code: str = "data.schema",
    where: str = "",
) -> None:
    """Raise `error` with every problem of `value` against a named schema.

    Raises:
        KitError: Of the given class; `details["problems"]` lists path, message and hint.
    """
    problems = validate(name, value)
    if not problems:
        return
    shown = "; ".join(str(problem) for problem in problems[:5])
    more = f"; and {len(problems) - 5} more" if len(problems) > 5 else ""
    raise error(
        code,
        f"{shown}{more}",
        where=where,
        remedy="mend the values named above",
        details={"problems": [vars(problem) for problem in problems]},
    )


def dotted(parts: Iterable[str | int]) -> str:
    """Join path parts: names by dots, positions in brackets."""
    text = ""
    for part in parts:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return `did you mean 'x'?` for the nearest known word, or an empty string."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"did you mean {near[0]!r}?" if near else ""


def _problems(validator: Any, value: Any) -> list[Problem]:
    found: list[Problem] = []
    for error in sorted(validator.iter_errors(value), key=lambda e: [str(p) for p in e.path]):
        found.extend(_explain(error))
    return found


def _explain(error: Any) -> list[Problem]:
    path = dotted(error.absolute_path)
    if error.validator in {"anyOf", "oneOf"} and error.context:
        # The branch that got furthest says most about what was meant.
        best = max(error.context, key=lambda e: len(e.absolute_path))
        if len(best.absolute_path) > len(error.absolute_path):
            return _explain(best)
    if error.validator in {"additionalProperties", "unevaluatedProperties"} and isinstance(
        error.instance, dict
    ):
        known = list(error.schema.get("properties", {}))
        patterns = list(error.schema.get("patternProperties", {}))
        import re

        unknown = [
            key
            for key in error.instance
            if key not in known and not any(re.search(pattern, key) for pattern in patterns)
        ]
        return [
            Problem(
                path=dotted([*error.absolute_path, key]),
                message="unknown key",
                hint=suggestion(key, known) or f"known keys: {', '.join(known)}",
            )
            for key in unknown
        ]
    if error.validator == "required":
        missing = [key for key in error.validator_value if key not in error.instance]
        # jsonschema reports one error a missing key; name just this one.
        key = next((key for key in missing if error.message.startswith(repr(key))), missing[0])
        return [Problem(path=dotted([*error.absolute_path, key]), message="missing")]
    return [Problem(path=path, message=_short(error.message))]


def _short(message: str, limit: int = 300) -> str:
    return message if len(message) <= limit else message[: limit - 1] + "…"
