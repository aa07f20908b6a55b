"""Run the LLM steps of one screen: mode, limits and deadline of the run, and what policy says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kit import screen
from kit.bundle import Bundle
from kit.clock import Clock
from kit.degradation import ABORT, ReportBuilder
from kit.llm import (
    CallLimits,
    LiteLLM,
    Mode,
    Recorder,
    StepResult,
    StepSpec,
    offline_cause,
    run_each,
    run_step,
)
from kit.llm.step import Check
from kit.screen import StepNote

__all__ = ["StepRunner"]


@dataclass(kw_only=True)
class StepRunner:
    """Runs the steps of a bundle within one screen.

    Attributes:
        bundle: Whose steps.
        report: Where degradations go.
        requested: `auto`, `live` or `offline`.
        config: `config/llm.json`.
        recorder: Where answers are recorded.
        timer: Where durations come from.
        started: `timer.monotonic()` at the start of the run; its time limit counts from there.
        notes: How each step went, in order.
    """

    bundle: Bundle
    report: ReportBuilder
    requested: str
    config: Mapping[str, Any]
    recorder: Recorder
    timer: Clock
    started: float
    notes: list[StepNote] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self._limits = CallLimits(self.bundle.manifest.limits.production_max_llm_calls)
        self._client: LiteLLM | None = None
        self._optional_stopped = False

    def specs(self, *, per_pick: bool) -> list[StepSpec]:
        """Return the steps that run before the screen, or those that run once for each pick.

        Raises:
            BundleError: A stand-in cannot be loaded.
        """
        steps = self.bundle.manifest.llm_steps.values()
        return [self.bundle.step(step.name) for step in steps if step.per_pick == per_pick]

    def answers(
        self, spec: StepSpec, inputs: Sequence[Mapping[str, Any]], check: Check
    ) -> list[StepResult]:
        """Run a step as the policy allows; an empty list when it does not run at all."""
        cause = offline_cause(self.requested, self.config, model=spec.model)
        stopped = self._stopped(spec, cause)
        if stopped:
            self._note(spec, None, [], len(inputs), stopped)
            return []
        mode = Mode.OFFLINE if cause else Mode.LIVE
        runtime = self.bundle.manifest.limits.production_runtime_sec
        around: dict[str, Any] = {
            "mode": mode,
            "llm": self.model() if mode == Mode.LIVE else None,
            "recorder": self.recorder,
            "limits": self._limits,
            "check": check,
            "deadline": self.started + runtime,
            "clock": self.timer,
        }
        if spec.invocation_mode == "single":
            results = [run_step(spec, each, **around) for each in inputs]
        else:
            results = run_each(spec, inputs, **around)
        actions = screen.tell_failures(self.report, spec.name, results, runtime)
        self._optional_stopped = self._optional_stopped or "stop_optional_steps" in actions
        self._note(spec, mode, results, len(inputs), "")
        return results

    def model(self) -> LiteLLM:
        """Return the client, made when the first live step needs it."""
        if self._client is None:
            self._client = LiteLLM(self.config)
        return self._client

    def _stopped(self, spec: StepSpec, cause: str | None) -> str:
        """Say why a step does not run, in Chinese; empty when it does."""
        if self._optional_stopped:
            return "可选步骤已停止"
        if cause is None:
            return ""
        action = screen.tell_offline(self.report, spec, cause)
        if action == "use_offline_equivalent":
            return ""
        return "按降级规则中止" if action == ABORT else "按降级规则不用离线等价"

    def _note(
        self,
        spec: StepSpec,
        mode: Mode | None,
        results: Sequence[StepResult],
        total: int,
        note: str,
    ) -> None:
        self.notes.append(
            StepNote(
                step=spec.name,
                mode=mode,
                quality="model" if mode == Mode.LIVE else spec.quality,
                model=spec.model,
                ok=sum(result.ok for result in results),
                total=total,
                calls=sum(result.calls for result in results),
                note=note,
            )
        )
