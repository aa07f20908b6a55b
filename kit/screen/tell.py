"""What of a screen did not run as designed, told to the degradation report.

Each function looks at one stage, records one entry a trigger, and leaves the words and the action
to the policy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kit.degradation import ABORT, DegradationReport, Entry, ReportBuilder, failure_label
from kit.degradation.wording import fill
from kit.llm import StepResult, StepSpec
from kit.llm.agreement import NOT_MEASURED
from kit.screen.data import ScreenData
from kit.screen.picks import Rejected
from kit.screen.wording import CAUSES, time_text

if TYPE_CHECKING:
    from kit.market import Calendar

__all__ = [
    "tell_data",
    "tell_failures",
    "tell_offline",
    "tell_rejected",
    "tell_shortfall",
    "worded",
]

_NO_ACCOUNT = "花费账目无法登记"
_NOTHING = "今天没有符合条件的股票，不操作"
_NOTHING_USABLE = "规则的结果都不可用，今天有没有机会无从判断；不操作，先请策略作者修正"
_REJECTED = "规则返回的 {count} 只{why}，不采用（{symbols}）"
_BY_DEFAULT = "（策略未写此规则，按默认处理）"
_LIMITS = {name: name for name in ("budget_exceeded", "limit_exceeded", "runtime_exceeded")}


def tell_data(report: ReportBuilder, data: ScreenData, calendar: Calendar) -> None:
    """Record what the data stage found: an unknown calendar, age, missing fields, nobody left."""
    if calendar.is_session(data.day) is None:
        report.add("calendar_unknown", date=data.day, known_until=calendar.known_until)
    # A policy that names no tolerance tolerates nothing.
    allowed = report.policy.rule("data_freshness_violation").params.get("max_lag_minutes", 0)
    if data.lag_minutes > allowed:
        report.add(
            "data_freshness_violation",
            lag_minutes=data.lag_minutes,
            max_lag_minutes=allowed,
            data_time=time_text(data.data_time),
            expected_time=time_text(data.expected_time),
        )
    for name, symbols in data.missing.items():
        report.add("required_field_missing", count=len(symbols), symbols=symbols, field=name)
    if data.panel is None:
        universe = data.universe
        report.add(
            "data_unavailable",
            error=f"要求 {universe.asked} 只，取到 {universe.got} 只，没有一只可参与筛选"
            f"（最近一根 {data.data_date}）",
        )


def tell_rejected(report: ReportBuilder, rejected: Sequence[Rejected]) -> None:
    """Record what the rule returned and cannot be used, one entry for each thing that is wrong.

    A symbol counts once, however often it came. Another copy of a pick that is taken lacks nothing
    and is no entry; the card says it beside the universe.
    """
    groups: dict[tuple[str, str], dict[str, None]] = {}
    for reject in rejected:
        if not reject.repeated:
            groups.setdefault((reject.field, reject.reason), {})[reject.symbol] = None
    for (name, why), found in groups.items():
        symbols = list(found)
        report.add(
            "required_field_missing", count=len(symbols), symbols=symbols, field=name, why=why
        )


def tell_shortfall(report: ReportBuilder, actual: int, target: int, unusable: int) -> None:
    """Record that there are fewer picks than wanted.

    Args:
        report: The run's report.
        actual: How many there are.
        target: How many were wanted.
        unusable: How many more the rule returned that cannot be used.
    """
    more: dict[str, Any] = {"unusable": unusable} if unusable else {}
    report.add("picks_count_below_target", actual=actual, target=target, **more)


def worded(report: DegradationReport) -> DegradationReport:
    """Return the report with the words that depend on more than its trigger.

    The policy's text of a missing field speaks of data; what a rule returned has reasons of its
    own. And advice on a short list is no advice on an empty one.
    """
    return DegradationReport(entries=tuple(_worded(entry) for entry in report.entries))


def _worded(entry: Entry) -> Entry:
    details = entry.details
    if entry.trigger == "required_field_missing" and "why" in details:
        # Whether a rule of the strategy's own decided stays said.
        tail = _BY_DEFAULT if entry.reason.endswith(_BY_DEFAULT) else ""
        return replace(entry, reason=fill(_REJECTED, details) + tail)
    if (
        entry.trigger == "picks_count_below_target"
        and entry.action != ABORT
        and details.get("actual") == 0
    ):
        return replace(entry, impact=_NOTHING_USABLE if details.get("unusable") else _NOTHING)
    return entry


def tell_offline(
    report: ReportBuilder, spec: StepSpec, cause: str, measured: str = NOT_MEASURED
) -> str:
    """Record that a step's stand-in answers, and return the action the policy takes.

    Args:
        report: The run's report.
        spec: The step.
        cause: Why no model is asked, as `kit.llm.offline_cause` says it.
        measured: How far it agreed with models, as far as that was measured (zh-CN).
    """
    return report.add(
        "llm_offline_equivalent",
        step=spec.name,
        quality=spec.quality,
        cause=CAUSES[cause],
        agreement=measured,
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
            # A limit is written `name=number`; anything else says why there is no account of it.
            limit = limit if "=" in limit or kind == "runtime_exceeded" else _NO_ACCOUNT
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
