"""How far the offline equivalents of a strategy's steps agreed with models, over its recorded runs.

Each live answer was recorded with what the stand-in said to the same request. A request counts
once, however often it was asked; answers of stubs count nowhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from kit import files
from kit.bundle import Bundle, Finding, Ref, parse_ref, resolve
from kit.errors import BundleError, DataError, UsageError
from kit.llm.agreement import NOT_MEASURED, Agreement, agreement_text, mean_interval
from kit.llm.mode import Mode
from kit.runner.record import find_runs
from kit.schemas import suggestion
from kit.workspace import Workspace

__all__ = [
    "agreement",
    "exact_findings",
    "measured_agreement",
    "measured_text",
    "words",
]

_LLM_FILE = "llm.jsonl"
_FINISHED = {"ok", "degraded"}
_LATEST_DAYS = 250  # a year of sessions; older answers come from other models and prompts


@dataclass
class _Pairs:
    """The pairs of one step: request -> trade date and agreement by field."""

    found: dict[str, tuple[str, Mapping[str, Mapping[str, Any]]]] = field(default_factory=dict)
    left_out: int = 0

    def take(self, day: str, line: Mapping[str, Any]) -> None:
        shadow = line.get("shadow") or {}
        fields = shadow.get("agreement")
        # A record that does not say who answered proves nothing.
        if line["verdict"] != "ok" or line.get("stub", True) or not fields:
            self.left_out += 1
        else:
            self.found.setdefault(line["request_sha256"], (day, fields))

    def measure(self, step: str) -> Agreement:
        by_field: dict[str, list[float]] = {}
        measures: dict[str, str] = {}
        scores = []
        for _, fields in self.found.values():
            scores.append(math.fsum(each["score"] for each in fields.values()) / len(fields))
            for name, each in fields.items():
                by_field.setdefault(name, []).append(each["score"])
                measures[name] = each["measure"]
        mean, low, high = mean_interval(scores)
        return Agreement(
            step=step,
            count=len(scores),
            days=len({day for day, _ in self.found.values()}),
            mean=mean,
            low=low,
            high=high,
            fields={
                name: {"measure": measures[name], "mean": math.fsum(values) / len(values)}
                for name, values in by_field.items()
            },
            left_out=self.left_out,
        )


def agreement(workspace: Workspace, ref: str, step: str | None = None) -> list[Agreement]:
    """Measure the steps of a strategy over the latest year of its recorded screens.

    Args:
        workspace: Whose runs.
        ref: `id` for all versions together, `id@version` or `id@draft` for one.
        step: Only this step.

    Raises:
        RegistryError: There is no such strategy or version.
        UsageError: `llm.unknown_step`.
    """
    wanted = parse_ref(ref)
    steps = list(resolve(workspace, ref, verify=False).manifest.llm_steps)
    if step is not None and step not in steps:
        raise UsageError(
            "llm.unknown_step",
            f"{ref} has no step {step!r}",
            remedy=suggestion(step, steps) or f"its steps: {', '.join(steps) or 'none'}",
        )
    return _measured(workspace, wanted, [step] if step else steps)


def measured_agreement(workspace: Workspace, strategy_id: str, step: str) -> Agreement | None:
    """Return how far a step's offline equivalent agreed with models; None until it is measured.

    Args:
        workspace: Whose runs.
        strategy_id: The strategy; all its versions count together.
        step: Name of the step.
    """
    (found,) = _measured(workspace, parse_ref(strategy_id), [step])
    return found if found.measured else None


def exact_findings(workspace: Workspace, root: Path) -> list[Finding]:
    """Find steps whose stand-in is declared exact, and that disagreed with a model in a run.

    Args:
        workspace: Whose runs.
        root: The bundle; only its own runs count. One that cannot be read has other findings.
    """
    try:
        bundle = Bundle.open(root)
    except BundleError:
        return []
    offline = {name: prompt.offline for name, prompt in bundle.prompts.items()}
    exact = [name for name, stand_in in offline.items() if stand_in and stand_in.quality == "exact"]
    return [
        Finding(
            rule="prompt.offline_not_exact",
            severity="error",
            path=f"prompts/{found.step}.md",
            message=f"declared exact, but its recorded agreement is {found.mean:.1%} "
            f"over {found.count} answer(s)",
            mend="declare `approximate`, and say what the stand-in does otherwise",
        )
        for found in _measured(workspace, parse_ref(bundle.ref), exact)
        if found.count and found.mean < 1
    ]


def measured_text(workspace: Workspace, strategy_id: str, step: str) -> str | None:
    """Return `measured_agreement` in words (zh-CN), None until there is one."""
    found = measured_agreement(workspace, strategy_id, step)
    return None if found is None else words(found)


def words(found: Agreement) -> str:
    """Write an agreement for a reader; `未测` until it is measured (zh-CN)."""
    if not found.measured:
        return NOT_MEASURED
    return agreement_text(found.mean, found.low, found.high, found.count)


def _measured(workspace: Workspace, wanted: Ref, steps: Sequence[str]) -> list[Agreement]:
    pairs = {name: _Pairs() for name in steps}
    for day, line in _live_lines(workspace, wanted.id, wanted.version):
        if line["step"] in pairs:
            pairs[line["step"]].take(day, line)
    return [found.measure(name) for name, found in pairs.items()]


def _live_lines(
    workspace: Workspace, strategy_id: str, version: str | None
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Find the lines that a model was asked for, the latest trade date first."""
    runs_of_it = find_runs(workspace, prefix=f"screen-{strategy_id}@")
    by_day = groupby(runs_of_it, key=lambda run: run.run_id.partition("/")[0])
    for number, (day, runs) in enumerate(by_day):
        if number == _LATEST_DAYS:
            return
        for run in runs:
            if run.record is None or run.state not in _FINISHED or run.record.key.kind != "screen":
                continue
            name, _, its_version = run.record.key.subject.partition("@")
            if name != strategy_id or version not in {None, its_version}:
                continue
            for line in _lines(run.folder / _LLM_FILE):
                if line.get("mode") == Mode.LIVE:
                    yield day, line


def _lines(path: Path) -> list[Mapping[str, Any]]:
    try:
        return files.read_json_lines(path)
    except DataError:  # a run without steps, or a damaged record: no evidence either way
        return []
