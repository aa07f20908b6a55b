"""The degradation report: what did not run as designed, why, and what that means for the reader.

A run adds to a `ReportBuilder` in the order of its flow; the built report travels inside the
result and is printed on the card.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kit import schemas
from kit.degradation import wording
from kit.degradation.policy import Policy
from kit.degradation.triggers import ABORT, TRIGGERS
from kit.errors import DataError

__all__ = ["DegradationReport", "Entry", "ReportBuilder"]

_BY_DEFAULT = "（策略未写此规则，按默认处理）"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One degradation.

    Attributes:
        code: Stable short code, `D-0NN`.
        trigger: Name of the trigger.
        step: LLM step concerned, or None.
        action: What was done about it.
        by_default: Whether the action came from the vocabulary, for want of a rule.
        reason: What happened, zh-CN.
        impact: What the reader should do differently, zh-CN.
        details: Machine-readable facts (JSON values).
    """

    code: str
    trigger: str
    step: str | None
    action: str
    by_default: bool
    reason: str
    impact: str
    details: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "code": self.code,
            "trigger": self.trigger,
            "step": self.step,
            "action": self.action,
            "by_default": self.by_default,
            "reason": self.reason,
            "impact": self.impact,
            "details": dict(self.details),
        }


@dataclass(frozen=True, kw_only=True)
class DegradationReport:
    """All degradations of one run, in the order of its flow.

    Attributes:
        entries: The degradations.
    """

    entries: tuple[Entry, ...] = ()

    @property
    def degraded(self) -> bool:
        """Whether anything did not run as designed."""
        return bool(self.entries)

    @property
    def aborted(self) -> bool:
        """Whether the run publishes no pick because of a degradation."""
        return any(entry.action == ABORT for entry in self.entries)

    @property
    def degraded_steps(self) -> tuple[str, ...]:
        """Names of the steps or stages concerned, each once."""
        return _each_once(entry.step or TRIGGERS[entry.trigger].stage for entry in self.entries)

    @property
    def reasons(self) -> tuple[str, ...]:
        """One reason for each entry, zh-CN."""
        return tuple(entry.reason for entry in self.entries)

    @property
    def impact(self) -> tuple[str, ...]:
        """What the reader should do differently, each advice once, zh-CN."""
        return _each_once(entry.impact for entry in self.entries)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, which the schema `degradation` describes."""
        return {
            "degraded": self.degraded,
            "degraded_steps": list(self.degraded_steps),
            "reasons": list(self.reasons),
            "impact": list(self.impact),
            "entries": [entry.to_dict() for entry in self.entries],
        }

    @classmethod
    def from_dict(cls, value: Any) -> DegradationReport:
        """Read the JSON form.

        Raises:
            DataError: `data.schema`; also when the summary lists do not follow from the entries.
        """
        schemas.check("degradation", value, where="degradation")
        report = cls(entries=tuple(Entry(**row) for row in value["entries"]))
        if report.to_dict() != value:
            raise DataError(
                "data.schema",
                "the report's lists do not follow from its entries",
                where="degradation",
                remedy="write the report with kit.degradation, not by hand",
            )
        return report


class ReportBuilder:
    """Collects degradations while a run goes on.

    Args:
        policy: The bundle's policy, which decides the actions.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._entries: list[Entry] = []

    @property
    def aborted(self) -> bool:
        """Whether some entry so far aborts the run."""
        return self.build().aborted

    def add(self, trigger: str, *, step: str | None = None, **details: Any) -> str:
        """Record one degradation and return the action to take.

        Args:
            trigger: A name of the vocabulary.
            step: The LLM step concerned; also available to texts as `{step}`.
            **details: Facts for the texts and for machines. `field` and `mcp_name` also select
                the rule, where they are single names.

        Returns:
            The action: the manifest rule's, or the trigger's default.

        Raises:
            KeyError: The trigger is not in the vocabulary: a mistake of the caller.
        """
        known = TRIGGERS[trigger]
        named_field, mcp = details.get("field"), details.get("mcp_name")
        rule = self.policy.rule(
            trigger,
            step,
            field=named_field if isinstance(named_field, str) else None,
            mcp=mcp if isinstance(mcp, str) else None,
        )
        facts = {**rule.params, **details} | ({"step": step} if step else {})
        reason = wording.fill(rule.report_text or known.reason, facts)
        if rule.by_default and known.owed:
            reason += _BY_DEFAULT
        self._entries.append(
            Entry(
                code=known.code,
                trigger=trigger,
                step=step,
                action=rule.action,
                by_default=rule.by_default,
                reason=reason,
                impact=known.impacts[rule.action],
                details=wording.json_safe(facts),
            )
        )
        return rule.action

    def build(self) -> DegradationReport:
        """Return the report of everything added so far."""
        return DegradationReport(entries=tuple(self._entries))


def _each_once(items: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(items))
