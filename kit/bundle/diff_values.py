"""Tell how a JSON value changed, in the fewest words that name the place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kit import files

__all__ = ["MISSING", "value_changes"]

MISSING = object()
"""Stands for a value that is not there."""

_KEYS = ("name", "tool_name", "alias", "trigger")
_MAX_SHOWN = 60


def value_changes(path: str, old: Any, new: Any) -> Iterator[str]:
    """Describe how a JSON value changed, at the deepest place where it is still one change.

    Args:
        path: How the value is called.
        old: The value before, or `MISSING`.
        new: The value after, or `MISSING`.

    Yields:
        Texts such as `limits.production_max_llm_calls 20 -> 30`; nothing when nothing changed.
    """
    if old == new and _same_types(old, new):
        return
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in sorted({*old, *new}):
            yield from value_changes(f"{path}.{key}", old.get(key, MISSING), new.get(key, MISSING))
    elif isinstance(old, list) and isinstance(new, list) and _keyed(old) and _keyed(new):
        before, after = _by_key(old), _by_key(new)
        for key in sorted({*before, *after}):
            yield from value_changes(
                f"{path}[{key}]", before.get(key, MISSING), after.get(key, MISSING)
            )
        if before == after:
            yield f"{path}: order changed"
    elif old is MISSING:
        yield f"{path} added: {_short(new)}"
    elif new is MISSING:
        yield f"{path} removed"
    else:
        yield f"{path} {_short(old)} -> {_short(new)}"


def _same_types(old: Any, new: Any) -> bool:
    """Whether equal values are equal in JSON too: 1, 1.0 and true are three things there."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return all(_same_types(item, new[key]) for key, item in old.items())
    if isinstance(old, list) and isinstance(new, list):
        return all(map(_same_types, old, new))
    return type(old) is type(new)


def _keyed(items: list[Any]) -> bool:
    names = [_key(item) for item in items]
    return all(names) and len(set(names)) == len(names)


def _key(item: Any) -> str | None:
    if not isinstance(item, Mapping):
        return None
    found = next((str(item[key]) for key in _KEYS if key in item), None)
    return f"{found} {item['step']}" if found and "step" in item else found


def _by_key(items: list[Any]) -> dict[str, Any]:
    return {str(_key(item)): item for item in items}


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else files.canonical_json(value).decode("utf-8")
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 1]}…"
