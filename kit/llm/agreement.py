"""How far two answers agree: the model's, and that of the step's offline equivalent.

Only what can be compared is: enums by equality, lists as sets (Jaccard) or, where the schema marks
a list with `"x-ranking": true`, by their order (average overlap). Free text and measured numbers
are left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kit import files

__all__ = [
    "LEAST",
    "NOT_MEASURED",
    "Agreement",
    "agreement_text",
    "compare",
    "jaccard",
    "mean_interval",
    "overlap",
]

NOT_MEASURED = "未测"
"""What a reader is told of an agreement that nobody has measured."""


LEAST = 20
"""Fewer pairs of answers than this measure nothing."""

_Z = 1.959964  # 97.5 % of the normal distribution


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """How far the offline equivalent of one step agreed with a model.

    Attributes:
        step: Name of the step.
        count: Pairs of answers compared; each request counts once.
        days: Trade dates they come from.
        mean: Mean agreement of a pair, 0 to 1.
        low: Lower end of its 95 % interval.
        high: Upper end.
        fields: Mean agreement of each compared field, and how it was compared.
        left_out: Answers that are no evidence: of stubs, failed, or with nothing to compare.
    """

    step: str
    count: int
    days: int
    mean: float
    low: float
    high: float
    fields: Mapping[str, Mapping[str, Any]]
    left_out: int = 0

    @property
    def measured(self) -> bool:
        """Whether there are enough pairs for the figure to mean something."""
        return self.count >= LEAST

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form; the figures are null until measured."""
        figures = {"mean": self.mean, "low": self.low, "high": self.high}
        shown = figures if self.measured else dict.fromkeys(figures)
        return {**vars(self), **shown, "measured": self.measured, "fields": dict(self.fields)}


def agreement_text(mean: float, low: float, high: float, count: int) -> str:
    """Write a measured agreement with its 95 % interval for a reader (zh-CN)."""
    return f"{mean:.0%}（95% 区间 {low:.0%}-{high:.0%}，{count} 次）"


def compare(
    schema: Mapping[str, Any], left: Any, right: Any, path: str = ""
) -> dict[str, dict[str, Any]]:
    """Compare two answers under their schema.

    Returns:
        Dotted field -> `{"measure": "equality" | "jaccard" | "overlap", "score": 0..1}`.
    """
    found: dict[str, dict[str, Any]] = {}
    for name, node in schema.get("properties", {}).items():
        where = f"{path}.{name}" if path else name
        one, other = left.get(name), right.get(name)
        if one is None and other is None:
            continue
        if "properties" in node:
            found |= compare(node, one or {}, other or {}, where)
        elif (measure := _measure(node)) is not None:
            score = 0.0 if one is None or other is None else _SCORES[measure](one, other)
            found[where] = {"measure": measure, "score": round(score, 6)}
    return found


def jaccard(left: Sequence[Any], right: Sequence[Any]) -> float:
    """Return the shared part of two sets; two empty ones are the same."""
    one, other = _keys(left), _keys(right)
    union = set(one) | set(other)
    return len(set(one) & set(other)) / len(union) if union else 1.0


def overlap(left: Sequence[Any], right: Sequence[Any]) -> float:
    """Return the average overlap of two rankings: the mean, over depths, of the shared part."""
    one, other = _keys(left), _keys(right)
    deepest = max(len(one), len(other))
    if not deepest:
        return 1.0
    return sum(len(set(one[:d]) & set(other[:d])) / d for d in range(1, deepest + 1)) / deepest


def mean_interval(scores: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean of scores and its 95 % interval.

    Wilson's score interval. Of scores between 0 and 1 none vary more than hits and misses of the
    same mean, so for Jaccard and overlap it is too wide rather than too narrow, and it says
    something where every score is the same.
    """
    n = len(scores)
    if not n:
        return 0.0, 0.0, 1.0
    p = math.fsum(scores) / n
    spread = 1 + _Z**2 / n
    middle = (p + _Z**2 / (2 * n)) / spread
    half = _Z / spread * math.sqrt(p * (1 - p) / n + _Z**2 / (4 * n**2))
    return p, max(0.0, round(middle - half, 9)), min(1.0, round(middle + half, 9))


def _measure(node: Mapping[str, Any]) -> str | None:
    if "enum" in node or "const" in node or node.get("type") in {"boolean", "integer"}:
        return "equality"
    items = node.get("items")
    if node.get("type") != "array" or not isinstance(items, Mapping) or "properties" in items:
        return None
    return "overlap" if node.get("x-ranking") is True else "jaccard"


def _equality(left: Any, right: Any) -> float:
    return float(left == right)


def _keys(values: Sequence[Any]) -> list[bytes]:
    return list(dict.fromkeys(files.canonical_json(value) for value in values))


_SCORES = {"equality": _equality, "jaccard": jaccard, "overlap": overlap}
