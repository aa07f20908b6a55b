"""Fill report texts: named placeholders only, and nothing a detail says can become more than text.

`str.format` would let a text reach into objects (`{step.__class__}`), so texts are parsed here and
only plain `{name}` fields are filled.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from pathlib import Path
from string import Formatter
from types import MappingProxyType
from typing import Any

from kit.text import clip, one_line

__all__ = ["QUALITIES", "fill", "json_safe", "placeholders", "shown", "step_label"]

QUALITIES: Mapping[str, str] = MappingProxyType(
    {"exact": "等价", "approximate": "近似", "partial": "部分", "model": "模型"}
)
# Steps that many bundles have, in the words of a reader; any other one is shown by its name.
_STEPS: Mapping[str, str] = MappingProxyType(
    {
        "event_company_filter": "公司事件过滤",
        "event_sector_filter": "板块过滤",
        "pick_explanation": "入选说明",
    }
)

_MAX_SHOWN = 120
_MAX_LISTED = 5
_UNKNOWN = "未知"


def placeholders(text: str) -> frozenset[str]:
    """Return the placeholder names of a report text.

    Raises:
        ValueError: Unbalanced braces, or a field that is not a plain name.
    """
    names = set()
    for _, name, spec, conversion in Formatter().parse(text):
        if name is None:
            continue
        if not name.isidentifier() or spec or conversion:
            raise ValueError(f"{{{name}}} must be a plain name such as {{count}}")
        names.add(name)
    return frozenset(names)


def step_label(name: str) -> str:
    """Return what a step is called on a card."""
    return _STEPS.get(name, name)


def fill(text: str, details: Mapping[str, Any]) -> str:
    """Fill the placeholders of a report text; a missing detail reads `未知`.

    Steps and qualities are written in the words of a reader; the details keep their codes.
    """
    words = {"step": _STEPS, "quality": QUALITIES}
    parts = []
    for literal, name, _, _ in Formatter().parse(text):
        parts.append(literal)
        if name is not None:
            value = details.get(name)
            if isinstance(value, str):
                value = words.get(name, {}).get(value, value)
            parts.append(_UNKNOWN if value is None else shown(value))
    return "".join(parts)


def shown(value: Any) -> str:
    """Write one detail for a reader: lists shortened and counted, long text cut, one line."""
    if isinstance(value, str):
        text = value
    elif isinstance(value, Mapping):
        text = "、".join(f"{key}={shown(item)}" for key, item in value.items())
    elif isinstance(value, Iterable):
        items = [shown(item) for item in value]
        text = "、".join(items[:_MAX_LISTED])
        if len(items) > _MAX_LISTED:
            text += f" 等 {len(items)} 项"
    elif isinstance(value, float):
        text = f"{value:g}"
    else:
        text = str(value)
    return clip(one_line(text), _MAX_SHOWN)


def json_safe(value: Any) -> Any:
    """Return `value` as plain JSON: numpy scalars, dates and paths become numbers and text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Path):
        return value.as_posix()
    if isinstance(value, Mapping):
        return {str(key): json_safe(item) for key, item in value.items()}
    if hasattr(value, "item") and not isinstance(value, Iterable):
        return json_safe(value.item())
    if isinstance(value, set | frozenset):
        return sorted((json_safe(item) for item in value), key=json.dumps)
    if isinstance(value, Iterable):
        return [json_safe(item) for item in value]
    return str(value)
