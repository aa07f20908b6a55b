"""What a slot says, stripped of prices, and what is new in it against the last delivered slot.

The state keeps identities (which holding crossed what), not numbers, so that a price wobbling
between two slots is no news. Within a session `breaches_seen` only grows: what was reported once
and comes back is not reported as new again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kit.intraday import figures
from kit.intraday.book import Row
from kit.intraday.signals import LINE_NAMES, Signal

__all__ = [
    "Delivered",
    "Delta",
    "change_line",
    "compare",
    "folded",
    "new_labels",
    "semantic_state",
]

_COMPONENTS = {"breaches": "信号/触发档位", "quote_health": "行情状态"}
_MOST_NAMES = 4


@dataclass(frozen=True, kw_only=True)
class Delivered:
    """The last slot of a market whose card reached a channel.

    Attributes:
        slot: Its id.
        context_id: Its context.
        state: Its semantic state.
    """

    slot: str
    context_id: str
    state: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Delta:
    """What changed since the last delivered slot of the same session.

    Attributes:
        first: Whether no slot of this session has been delivered yet.
        components: Keys of the parts that changed.
        new_breaches: Breaches never seen before in this session.
        gone_breaches: Breaches of the last slot that no longer hold.
    """

    first: bool
    components: tuple[str, ...]
    new_breaches: tuple[Mapping[str, str], ...]
    gone_breaches: tuple[Mapping[str, str], ...]

    @property
    def changed(self) -> bool:
        """Whether there is anything new."""
        return self.first or bool(self.components)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "changed": self.changed,
            "first": self.first,
            "components": list(self.components),
            "new_breaches": [dict(breach) for breach in self.new_breaches],
            "gone_breaches": [dict(breach) for breach in self.gone_breaches],
        }


def semantic_state(
    session: str,
    rows: Sequence[Row],
    signals: Sequence[Signal],
    delivered: Delivered | None,
) -> dict[str, Any]:
    """Return the state of a slot.

    Args:
        session: `<market>:<trade date>`.
        rows: The holdings.
        signals: What stands out.
        delivered: The last delivered slot; what it has seen counts only within its session.
    """
    breaches = sorted((dict(signal.breach) for signal in signals), key=_identity)
    seen = {_identity(breach): breach for breach in _seen_before(session, delivered)}
    seen.update({_identity(breach): breach for breach in breaches})
    return {
        "session": session,
        "breaches": breaches,
        "breaches_seen": [dict(seen[key]) for key in sorted(seen)],
        "quote_health": {
            "missing": sorted(row.label for row in rows if row.price is None),
            "stale": sorted(row.label for row in rows if row.price is not None and not row.fresh),
        },
    }


def compare(state: Mapping[str, Any], delivered: Delivered | None) -> Delta:
    """Return what is new in a state; another session's slot is no baseline."""
    before = delivered.state if delivered else None
    if before is None or before["session"] != state["session"]:
        return Delta(
            first=True, components=(), new_breaches=tuple(state["breaches"]), gone_breaches=()
        )
    seen = {_identity(breach) for breach in before["breaches_seen"]}
    now = {_identity(breach) for breach in state["breaches"]}
    new = tuple(b for b in state["breaches"] if _identity(b) not in seen)
    gone = tuple(b for b in before["breaches"] if _identity(b) not in now)
    changed = []
    if new or gone:
        changed.append("breaches")
    if before["quote_health"] != state["quote_health"]:
        changed.append("quote_health")
    return Delta(first=False, components=tuple(changed), new_breaches=new, gone_breaches=gone)


def new_labels(delta: Delta) -> tuple[str, ...]:
    """Return the holdings with a breach seen for the first time this session, each once."""
    return tuple(dict.fromkeys(breach["ticker"] for breach in delta.new_breaches))


def change_line(delta: Delta, delivered: Delivered | None, rows: Sequence[Row]) -> str:
    """Write why this slot differs from the last delivered one; never empty.

    Args:
        delta: What is new.
        delivered: The last delivered slot.
        rows: The holdings, for what became of a breach that no longer stands.
    """
    names = new_labels(delta)
    told = f"（新触发：{'、'.join(names[:_MOST_NAMES])}{_more(names)}）" if names else ""
    if delta.first:
        return f"变化：今日首个送达时点，以此为基线{told}"
    if not delta.components:
        at = delivered.slot[11:16] if delivered else ""
        return f"变化：无（与上次送达 {at} 相比，触发档位与行情状态都没有变）"
    what = "、".join(_COMPONENTS[component] for component in delta.components)
    gone = tuple(dict.fromkeys(_released(breach, rows) for breach in delta.gone_breaches))
    if not names and gone:
        more = f"，另 {len(gone) - _MOST_NAMES} 条" if len(gone) > _MOST_NAMES else ""
        told = f"（{'；'.join(gone[:_MOST_NAMES])}{more}）"
    return f"变化：{what}{told}"


def folded(signals: Sequence[Signal], delta: Delta) -> tuple[Signal, ...]:
    """Return the signals that an earlier slot of this session has already told."""
    new = {_identity(breach) for breach in delta.new_breaches}
    return tuple(signal for signal in signals if _identity(signal.breach) not in new)


def _released(breach: Mapping[str, str], rows: Sequence[Row]) -> str:
    """Write what became of a breach that no longer stands; without a quote nobody knows."""
    label = breach["ticker"]
    row = next((row for row in rows if row.label == label), None)
    if row is None:
        return f"已解除：{label}"
    stop = breach["level"] == "STOP"
    if breach["kind"] == "move":
        what, now = "涨跌", figures.percent(row.day_pct)
        then = f"{label} 今日涨跌现为 {now}"
    else:
        line = row.holding.stop_price if stop else row.holding.trim_price
        what = LINE_NAMES["stop" if stop else "trim"]
        if line is None:
            return f"{label} 已不再设{what}"
        side = "以上" if stop else "以下"
        then = f"{label} 已回到{what} {figures.price(line)} {side}"
    return then if row.fresh else f"{label} 行情未证实，{what}未核对"


def _more(names: Sequence[str]) -> str:
    return f" 等 {len(names)} 只" if len(names) > _MOST_NAMES else ""


def _seen_before(session: str, delivered: Delivered | None) -> Sequence[Mapping[str, str]]:
    if delivered is None or delivered.state["session"] != session:
        return ()
    seen: Sequence[Mapping[str, str]] = delivered.state["breaches_seen"]
    return seen


def _identity(breach: Mapping[str, str]) -> tuple[str, ...]:
    return (breach["ticker"], breach["kind"], breach["level"], breach.get("direction", ""))
