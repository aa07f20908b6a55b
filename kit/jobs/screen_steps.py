"""Run the LLM steps of one screen: mode, limits and deadline of the run, and what policy says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kit import screen
from kit.bundle import Bundle
from kit.clock import Clock
from kit.degradation import ABORT, ReportBuilder
from kit.errors import UsageError
from kit.jobs.llm_budget import audit_step, metered_model
from kit.llm import (
    LLM,
    CallLimits,
    Mode,
    Recorder,
    ReplaySource,
    StepFailure,
    StepResult,
    StepSpec,
    offline_cause,
    run_each,
    run_step,
)
from kit.llm.agreement import NOT_MEASURED
from kit.llm.models import takes_json_schema
from kit.llm.record import record_line
from kit.llm.step import Check
from kit.screen import StepNote
from kit.state import Store

__all__ = ["StepRunner"]


@dataclass(kw_only=True)
class StepRunner:
    """Runs the steps of a bundle within one screen.

    Attributes:
        bundle: Whose steps.
        report: Where degradations go.
        requested: `auto`, `live`, `offline` or `replay`.
        config: `config/llm.json`.
        recorder: Where answers are recorded.
        timer: Where durations come from.
        started: `timer.monotonic()` at the start of the run; its time limit counts from there.
        store: Where spending and fallbacks are accounted.
        run_id: The run, for the account.
        measured: Writes how far a step's stand-in agreed with models; None until it is measured.
        replay: The record that answers when a replay is requested.
        notes: How each step went, in order.
    """

    bundle: Bundle
    report: ReportBuilder
    requested: str
    config: Mapping[str, Any]
    recorder: Recorder
    timer: Clock
    started: float
    store: Store
    run_id: str
    measured: Callable[[str], str | None] = lambda _: None
    replay: ReplaySource | None = None
    notes: list[StepNote] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        if self.requested == Mode.REPLAY and self.replay is None:
            raise UsageError(
                "llm.bad_mode", "a replay needs the record of a run", remedy="kit replay RUN"
            )
        self._limits = CallLimits(self.bundle.manifest.limits.production_max_llm_calls)
        self._client: LLM | None = None
        self._optional_stopped = False

    def specs(self, *, per_pick: bool) -> list[StepSpec]:
        """Return the steps that run before the screen, or those that run once for each pick.

        Raises:
            BundleError: A stand-in cannot be loaded.
        """
        steps = self.bundle.manifest.llm_steps.values()
        found = [self.bundle.step(step.name) for step in steps if step.per_pick == per_pick]
        return [
            replace(spec, json_schema=takes_json_schema(spec.model, self.config)) for spec in found
        ]

    def answers(
        self, spec: StepSpec, inputs: Sequence[Mapping[str, Any]], check: Check
    ) -> list[StepResult]:
        """Run a step as the policy allows; an empty list when it does not run at all."""
        noted = self._noted(spec)
        cause = noted["cause"]
        stopped = self._stopped(spec, noted)
        if stopped:
            self._keep_why(spec, inputs, noted, stopped)
            self._note(spec, None, [], len(inputs), stopped)
            return []
        answered = Mode.OFFLINE if cause else Mode.LIVE
        mode = answered if self.replay is None else Mode.REPLAY
        runtime = self.bundle.manifest.limits.production_runtime_sec
        around: dict[str, Any] = {
            "mode": mode,
            "llm": self.model() if mode == Mode.LIVE else None,
            "recorder": self.recorder,
            "limits": self._limits,
            "check": check,
            "deadline": self.started + runtime,
            "noted": noted,
            "replay": self.replay,
            "clock": self.timer,
        }
        if spec.invocation_mode == "single":
            results = [run_step(spec, each, **around) for each in inputs]
        else:
            results = run_each(spec, inputs, **around)
        actions = screen.tell_failures(self.report, spec.name, results, runtime)
        self._optional_stopped = self._optional_stopped or "stop_optional_steps" in actions
        self._note(spec, answered, results, len(inputs), "")
        return results

    def model(self) -> LLM:
        """Return the client, made when the first live step needs it."""
        if self._client is None:
            self._client = metered_model(self.config, self.store, self.timer)
        return self._client

    def _noted(self, spec: StepSpec) -> Mapping[str, Any]:
        """Return why no model is asked, and how good the stand-in is; a replay says what was."""
        if self.replay is not None:
            return self.replay.noted(spec.name)
        cause = offline_cause(self.requested, self.config, model=spec.model)
        return {"cause": cause, "measured": self.measured(spec.name) if cause else None}

    def _keep_why(
        self,
        spec: StepSpec,
        inputs: Sequence[Mapping[str, Any]],
        noted: Mapping[str, Any],
        why: str,
    ) -> None:
        """Record why a step did not run where only the policy and the missing model say so."""
        if noted["cause"] is None or not inputs:
            return
        result = StepResult(
            step=spec.name,
            ok=False,
            value=None,
            failure=StepFailure(kind="not_run", message=why),
            mode=Mode.OFFLINE,
            quality=spec.quality,
        )
        self.recorder.append(record_line(spec, inputs[0], result, 0, noted=noted))

    def _stopped(self, spec: StepSpec, noted: Mapping[str, Any]) -> str:
        """Say why a step does not run, in Chinese; empty when it does."""
        if self._optional_stopped:
            return "可选步骤已停止"
        if noted["cause"] is None:
            return ""
        measured = noted["measured"] or NOT_MEASURED
        action = screen.tell_offline(self.report, spec, noted["cause"], measured)
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
        if self.replay is None:
            audit_step(
                self.store,
                self.timer,
                run_id=self.run_id,
                ref=self.bundle.ref,
                step=spec.name,
                mode=mode,
                results=results,
                total=total,
            )
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
