"""The screen stage: run a bundle's rule, and trust nothing of what comes back.

The rule is code of a bundle; it may raise, or return symbols nobody asked about, NaN, or the same
stock twice. Every such thing becomes a rejection with a name, never a traceback on a card.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from kit.errors import BundleError
from kit.text import clip, one_line

__all__ = ["Candidate", "Rejected", "check_picks", "cut", "run_rule"]

_MAX_FIELD_TEXT = 80
_MAX_FIELDS = 60


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One stock that passed the rule and the checks.

    Attributes:
        symbol: Exchange symbol.
        name: Its name.
        score: What the rule ranks by; finite.
        fields: What the rule measured: finite numbers, texts, booleans or None.
        matched_rules: Ids of the rules that fired.
    """

    symbol: str
    name: str
    score: float
    fields: Mapping[str, Any]
    matched_rules: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form that explanation steps take."""
        return {
            "symbol": self.symbol,
            "name": self.name,
            "score": self.score,
            "fields": dict(self.fields),
            "matched_rules": list(self.matched_rules),
        }


@dataclass(frozen=True, kw_only=True)
class Rejected:
    """Something the rule returned that is not taken.

    Attributes:
        symbol: The symbol as returned, or a description.
        field: What is wrong with it: `symbol`, `score`, `fields`, `matched_rules`, a field's name.
        reason: Why, in Chinese.
        repeated: Whether it is only another copy of a pick that is taken.
    """

    symbol: str
    field: str
    reason: str
    repeated: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form used in `signals.json`."""
        return dict(vars(self))


def run_rule(
    engine: Any,
    method: str,
    data_map: Any,
    today: date,
    sector_filter: Sequence[str] | None,
    limit: int,
) -> list[Any]:
    """Call the rule once, its vectorised form when it has one.

    Args:
        engine: Instance of the bundle's engine.
        method: Name of the plain form, `screen_today`.
        data_map: The panel.
        today: Session of the newest bar.
        sector_filter: Sectors to keep, or None.
        limit: Most picks wanted.

    Raises:
        BundleError: `screen.failed`, saying what the rule raised or returned.
    """
    call = getattr(engine, "screen_panel", None)
    name = "screen_panel" if callable(call) else method
    sectors = list(sector_filter) if sector_filter else None
    try:
        found = getattr(engine, name)(data_map, today, sectors, limit)
    except Exception as error:  # a bundle's code may raise anything
        message = one_line(f"{type(error).__name__}: {error}")
        raise _failed(f"{name} raised {clip(message, 200)}") from error
    if not isinstance(found, list | tuple):
        kind = type(found).__name__
        raise _failed(f"{name} returned {kind}, not a list", returned=kind)
    return list(found)


def _failed(message: str, **details: str) -> BundleError:
    return BundleError(
        "screen.failed",
        message,
        where="code/signal_engine.py",
        remedy="run the screen on the draft, and mend the rule",
        details=details,
    )


def check_picks(
    found: Iterable[Any], names: Mapping[str, str]
) -> tuple[list[Candidate], list[Rejected]]:
    """Check what the rule returned.

    Args:
        found: Objects with symbol, score, fields and matched_rules, best first.
        names: Symbol -> name of everything that was screened.

    Returns:
        Those that can be used, in the order given, and the others.
    """
    kept: list[Candidate] = []
    rejected: list[Rejected] = []
    seen: set[str] = set()
    for item in found:
        checked = _check_one(item, names, seen)
        if isinstance(checked, Candidate):
            seen.add(checked.symbol)
            kept.append(checked)
        else:
            rejected.append(checked)
    return kept, rejected


def cut(candidates: Sequence[Candidate], limit: int) -> list[Candidate]:
    """Keep the first `limit`, in the rule's own order."""
    return list(candidates[:limit])


def _check_one(item: Any, names: Mapping[str, str], seen: set[str]) -> Candidate | Rejected:
    parts = {key: getattr(item, key, None) for key in ("symbol", "score", "fields")}
    symbol = parts["symbol"]
    if not isinstance(symbol, str):
        shown = clip(one_line(repr(item)), _MAX_FIELD_TEXT)
        return Rejected(symbol=shown, field="symbol", reason="没有代码")
    label = clip(one_line(symbol), 20)
    if symbol not in names:
        return Rejected(symbol=label, field="symbol", reason="不在参与筛选的标的中")
    if symbol in seen:
        return Rejected(symbol=label, field="symbol", reason="重复返回", repeated=True)
    score = _plain(parts["score"])
    if isinstance(score, bool) or not isinstance(score, int | float) or not math.isfinite(score):
        return Rejected(symbol=label, field="score", reason="评分不是有限数值")
    fields = parts["fields"]
    if not isinstance(fields, Mapping) or len(fields) > _MAX_FIELDS:
        return Rejected(symbol=label, field="fields", reason="指标不是键值表")
    values: dict[str, Any] = {}
    for key, value in fields.items():
        plain = _plain(value)
        if not isinstance(key, str) or not _is_field(plain):
            name = clip(one_line(str(key)), _MAX_FIELD_TEXT)
            return Rejected(symbol=label, field=name, reason=f"指标 {name} 不是有限数值或文字")
        text = isinstance(plain, str)
        values[one_line(key)] = clip(one_line(plain), _MAX_FIELD_TEXT) if text else plain
    rules = getattr(item, "matched_rules", None)
    if not isinstance(rules, list | tuple) or not all(isinstance(rule, str) for rule in rules):
        return Rejected(symbol=label, field="matched_rules", reason="命中规则不是名称列表")
    return Candidate(
        symbol=symbol,
        name=names[symbol],
        score=float(score),
        fields=values,
        matched_rules=tuple(clip(one_line(rule), _MAX_FIELD_TEXT) for rule in rules),
    )


def _plain(value: Any) -> Any:
    """Return numpy's scalars as Python's own."""
    # numpy's float64 is a float too, but prints and dumps unlike one.
    item = getattr(value, "item", None)
    scalar = type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0
    return item() if scalar and callable(item) else value


def _is_field(value: Any) -> bool:
    if value is None or isinstance(value, bool | str):
        return True
    if isinstance(value, int):
        # Beyond this an integer has more digits than Python writes.
        return abs(value) < 10**18
    return isinstance(value, float) and math.isfinite(value)
