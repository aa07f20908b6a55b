"""The LLM steps of a screen: their inputs, what their answers mean, and how failures are told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kit.degradation import ReportBuilder, failure_label
from kit.llm import Mode, StepResult, StepSpec
from kit.screen.picks import Candidate
from kit.screen.wording import CAUSES
from kit.text import clip, one_line

__all__ = [
    "StepNote",
    "explanation_inputs",
    "filter_check",
    "filter_inputs",
    "read_sectors",
    "tell_failures",
    "tell_offline",
]

_SECTOR_KEYS = ("focus_sectors", "sector_filter", "sectors")
_MAX_SECTORS = 20
_MAX_SECTOR_TEXT = 20
_LIMITS = {"limit_exceeded": "limit_exceeded", "runtime_exceeded": "runtime_exceeded"}


@dataclass(frozen=True, kw_only=True)
class StepNote:
    """How one LLM step went, for the card and the result.

    Attributes:
        step: Name of the step.
        mode: Who answered; None when the step did not run.
        quality: Declared quality of the stand-in, or `model`.
        model: The step's model.
        ok: Answers taken.
        total: Answers wanted.
        calls: Calls made to a model.
        note: Anything a reader should know, in Chinese.
    """

    step: str
    mode: Mode | None
    quality: str
    model: str
    ok: int = 0
    total: int = 0
    calls: int = 0
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form used in the result's provenance."""
        return {
            "step": self.step,
            "mode": None if self.mode is None else str(self.mode),
            "quality": self.quality,
            "model": self.model,
            "ok": self.ok,
            "total": self.total,
            "calls": self.calls,
            "note": self.note,
        }


def filter_inputs(spec: StepSpec, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a step before the screen is given: the facts its input schema names.

    Args:
        spec: The step.
        facts: Everything the flow knows, by input name.
    """
    wanted = spec.input_schema.get("properties", {})
    return {name: facts[name] for name in wanted if name in facts}


def filter_check(inputs: Mapping[str, Any], value: Mapping[str, Any]) -> str | None:
    """Say what is wrong with a sector answer beyond its schema: sectors out of thin air."""
    if inputs.get("news_summary") == "" and _sectors(value):
        return "sectors were named although there was no news"
    return None


def read_sectors(
    value: Mapping[str, Any], known: Sequence[str]
) -> tuple[list[str] | None, list[str]]:
    """Read the sectors to keep from a step's answer.

    Args:
        value: The answer.
        known: Sectors of the universe.

    Returns:
        The known sectors, or None for no filter; and the names that no stock of the universe has.
    """
    named = list(dict.fromkeys(clip(one_line(s), _MAX_SECTOR_TEXT) for s in _sectors(value)))
    kept = [sector for sector in named if sector in known]
    unknown = [sector for sector in named if sector not in known]
    return kept[:_MAX_SECTORS] or None, unknown[:_MAX_SECTORS]


def _sectors(value: Mapping[str, Any]) -> list[str]:
    for key in _SECTOR_KEYS:
        found = value.get(key)
        if isinstance(found, list):
            return [item for item in found if isinstance(item, str)]
    return []


def explanation_inputs(
    pick: Candidate, today: str, sectors: Sequence[str] | None, news: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what the explanation of one pick is made from."""
    return {
        "pick": pick.to_dict(),
        "context": {
            "today": today,
            "sector_filter": list(sectors or ()),
            "news_window": dict(news),
        },
    }


def tell_offline(report: ReportBuilder, spec: StepSpec, cause: str) -> str:
    """Record that a step's stand-in answers, and return the action the policy takes.

    Args:
        report: The run's report.
        spec: The step.
        cause: Why no model is asked, as `kit.llm.offline_cause` says it.
    """
    return report.add(
        "llm_offline_equivalent",
        step=spec.name,
        quality=spec.quality,
        cause=CAUSES[cause],
        # Measured from recorded pairs of answers; there are none of this step yet.
        agreement="未测",
    )


def tell_failures(
    report: ReportBuilder, step: str, results: Sequence[StepResult], runtime_sec: float
) -> set[str]:
    """Record the failures of a step's answers, one entry a trigger.

    Returns:
        The actions the policy takes; empty when nothing failed.
    """
    kinds = Counter(result.failure.kind for result in results if result.failure)
    messages = [result.failure.message for result in results if result.failure]
    total = len(results)
    actions = set()
    for kind, trigger in _LIMITS.items():
        if kinds[kind]:
            limit = f"{runtime_sec:g} 秒" if kind == "runtime_exceeded" else _first(results, kind)
            actions.add(
                report.add(trigger, step=step, failed=kinds[kind], total=total, limit=limit)
            )
    others = [(kind, count) for kind, count in kinds.most_common() if kind not in _LIMITS]
    if others:
        failed = sum(count for _, count in others)
        labels = [
            failure_label(kind) if len(others) == 1 else f"{failure_label(kind)} {count} 次"
            for kind, count in others
        ]
        actions.add(
            report.add(
                "llm_step_failed",
                step=step,
                failed=failed,
                total=total,
                kind=labels,
                messages=messages[:3],
            )
        )
    return actions


def _first(results: Sequence[StepResult], kind: str) -> str:
    """Return the message of the first failure of a kind."""
    return next(r.failure.message for r in results if r.failure and r.failure.kind == kind)
