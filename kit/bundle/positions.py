"""Where in a JSON text a dotted path stands, so that a schema problem can name its line."""

from __future__ import annotations

import json
import re
from json.decoder import scanstring  # type: ignore[attr-defined]

from kit.schemas import dotted

__all__ = ["json_lines", "line_of"]

_SPACE = re.compile(r"[ \t\n\r]*")
_SCALAR = json.JSONDecoder()


def json_lines(text: str) -> dict[str, int]:
    """Map every dotted path of a valid JSON text to the line of its key or item.

    Returns:
        Paths as `kit.schemas` writes them (`rules[2].action`); the root is the empty path.
    """
    places: dict[str, int] = {}
    _value(text, _skip(text, 0), (), places)
    return places


def line_of(places: dict[str, int], path: str) -> int:
    """Return the line of a path, or of its nearest ancestor: a missing key has no line itself."""
    while path not in places:
        path = re.sub(r"(?:\.?[^.\[\]]+|\[\d+\])$", "", path)
        if not path:
            return places.get("", 1)
    return places[path]


def _value(text: str, at: int, path: tuple[str | int, ...], places: dict[str, int]) -> int:
    places.setdefault(dotted(path), text.count("\n", 0, at) + 1)
    if text[at] == "{":
        return _members(text, at + 1, path, places)
    if text[at] == "[":
        return _items(text, at + 1, path, places)
    return int(_SCALAR.raw_decode(text, at)[1])


def _members(text: str, at: int, path: tuple[str | int, ...], places: dict[str, int]) -> int:
    at = _skip(text, at)
    while text[at] != "}":
        places_at = at
        key, at = scanstring(text, at + 1)
        inner = (*path, key)
        places[dotted(inner)] = text.count("\n", 0, places_at) + 1
        at = _skip(text, _skip(text, at) + 1)
        at = _skip(text, _value(text, at, inner, places))
        if text[at] == ",":
            at = _skip(text, at + 1)
    return at + 1


def _items(text: str, at: int, path: tuple[str | int, ...], places: dict[str, int]) -> int:
    at = _skip(text, at)
    position = 0
    while text[at] != "]":
        at = _skip(text, _value(text, at, (*path, position), places))
        position += 1
        if text[at] == ",":
            at = _skip(text, at + 1)
    return at + 1


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at
