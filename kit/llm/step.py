"""Run one LLM step: a declared call site with a schema on both sides and a stand-in beside it.

`run_step` never raises for what a model, a network or a bundle's stand-in can do: it returns a
value or a failure. There is no corrective retry: an answer off schema fails at once. A connection
error or a 429 is tried once more, within the step's own deadline, and every attempt is counted.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from kit import files, schemas
from kit.clock import Clock, SystemClock
from kit.llm.answer import AnswerError, read_answer, valid_value
from kit.llm.client import LLM, CallError, Completion, Request, Usage
from kit.llm.limits import CallLimits
from kit.llm.mode import Mode
from kit.llm.record import Recorder, record_line
from kit.llm.spec import StepFailure, StepResult, StepSpec, render_request
from kit.text import clip, visible

__all__ = ["Check", "StepFailure", "StepResult", "StepSpec", "run_each", "run_step"]

Check = Callable[[Mapping[str, Any], Mapping[str, Any]], str | None]

# One text of the inputs (a headline, a summary) is cut at this many characters.
_MAX_INPUT_TEXT = 4_000
_FIRST_PAUSE_SEC = 0.5
_RETRIED = {"connection", "rate_limited"}


@dataclass
class _Trial:
    """What a live step has been through so far."""

    completion: Completion | None = None
    calls: int = 0


@dataclass(frozen=True, kw_only=True)
class _Setting:
    """Everything around a step that is the same for all inputs of a run."""

    mode: Mode
    llm: LLM | None
    recorder: Recorder | None
    limits: CallLimits
    check: Check | None
    deadline: float | None
    clock: Clock = field(default_factory=SystemClock)


def run_step(
    spec: StepSpec,
    inputs: Mapping[str, Any],
    *,
    mode: Mode,
    llm: LLM | None = None,
    recorder: Recorder | None = None,
    limits: CallLimits | None = None,
    check: Check | None = None,
    deadline: float | None = None,
    clock: Clock | None = None,
) -> StepResult:
    """Run one step on one set of inputs.

    Args:
        spec: The step.
        inputs: JSON values, valid under `spec.input_schema`; texts are cleaned and bounded.
        mode: Who answers.
        llm: The client; needed when the mode is live.
        recorder: Where the answer is recorded.
        limits: Counters shared by the run's steps; without it only `spec.max_calls` holds.
        check: Looks at (inputs, answer) and returns what is wrong with the answer, or None.
        deadline: `clock.monotonic()` value at which the whole run stops asking.
        clock: Where time comes from.

    Returns:
        A value or a failure; never an exception for what a model or a network can do.
    """
    setting = _Setting(
        mode=mode,
        llm=llm,
        recorder=recorder,
        limits=limits or CallLimits(),
        check=check,
        deadline=deadline,
        clock=clock or SystemClock(),
    )
    return _run(spec, inputs, setting, 0)


def run_each(
    spec: StepSpec,
    inputs_list: Sequence[Mapping[str, Any]],
    *,
    mode: Mode,
    llm: LLM | None = None,
    recorder: Recorder | None = None,
    limits: CallLimits | None = None,
    check: Check | None = None,
    deadline: float | None = None,
    clock: Clock | None = None,
) -> list[StepResult]:
    """Run one step on many inputs, at most `spec.concurrency_limit` at a time.

    One slow or failing answer neither delays nor fails another. Arguments are those of `run_step`.

    Returns:
        One result for each input, in the order of the inputs.
    """
    setting = _Setting(
        mode=mode,
        llm=llm,
        recorder=recorder,
        limits=limits or CallLimits(),
        check=check,
        deadline=deadline,
        clock=clock or SystemClock(),
    )
    if mode == Mode.OFFLINE or len(inputs_list) < 2:
        # Stand-ins are quick and may not be thread-safe.
        return [_run(spec, inputs, setting, i) for i, inputs in enumerate(inputs_list)]
    with ThreadPoolExecutor(max_workers=max(1, spec.concurrency_limit)) as pool:
        waiting = [
            pool.submit(_run, spec, inputs, setting, i) for i, inputs in enumerate(inputs_list)
        ]
        return [each.result() for each in waiting]


def _run(spec: StepSpec, inputs: Mapping[str, Any], around: _Setting, ordinal: int) -> StepResult:
    started = around.clock.monotonic()
    trial = _Trial()
    value: dict[str, Any] | None = None
    failure: StepFailure | None = None
    safe_inputs = _cleaned(inputs)
    try:
        _check_inputs(spec, safe_inputs)
        if around.mode == Mode.LIVE:
            value = _ask_model(spec, safe_inputs, around, trial)
        else:
            value = _ask_offline(spec, safe_inputs)
        _check_value(safe_inputs, value, around.check)
    except (CallError, AnswerError) as error:
        value, failure = None, StepFailure(kind=error.kind, message=error.message)
    latency = max(0.0, around.clock.monotonic() - started)
    result = StepResult(
        step=spec.name,
        ok=failure is None,
        value=value,
        failure=failure,
        mode=around.mode,
        quality="model" if around.mode == Mode.LIVE else spec.quality,
        usage=trial.completion.usage if trial.completion else Usage(),
        latency_sec=round(latency, 3),
        calls=trial.calls,
    )
    if around.recorder is not None:
        around.recorder.append(record_line(spec, safe_inputs, result, trial.completion, ordinal))
    return result


def _cleaned(value: Any) -> Any:
    """Return the inputs as plain JSON with every text made visible and bounded."""
    if isinstance(value, str):
        return clip(visible(value), _MAX_INPUT_TEXT)
    if isinstance(value, Mapping):
        return {visible(str(key)): _cleaned(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_cleaned(item) for item in value]
    return value


def _check_inputs(spec: StepSpec, inputs: Any) -> None:
    try:
        files.canonical_json(inputs)
    except (TypeError, ValueError) as error:
        raise AnswerError("bad_input", f"the inputs are not JSON: {error}") from error
    problems = schemas.validate_with(spec.input_schema, inputs)
    if problems:
        raise AnswerError("bad_input", "; ".join(str(problem) for problem in problems[:3]))


def _check_value(inputs: Mapping[str, Any], value: Mapping[str, Any], check: Check | None) -> None:
    wrong = check(inputs, value) if check else None
    if wrong:
        raise AnswerError("off_schema", wrong)


def _ask_offline(spec: StepSpec, inputs: dict[str, Any]) -> dict[str, Any]:
    if spec.offline is None:
        raise AnswerError("offline_failed", "the step has no offline equivalent")
    try:
        # A copy: the stand-in may scribble on its argument.
        value = spec.offline(deepcopy(inputs))
    except Exception as error:  # a bundle's code may raise anything
        raise AnswerError("offline_failed", f"{type(error).__name__}: {error}") from error
    return valid_value(value, spec.output_schema)


def _ask_model(
    spec: StepSpec, inputs: dict[str, Any], around: _Setting, trial: _Trial
) -> dict[str, Any]:
    if around.llm is None:
        raise CallError("no_key", "no client is configured")
    end = around.clock.monotonic() + spec.timeout_sec
    if around.deadline is not None:
        end = min(end, around.deadline)
    earlier: CallError | None = None
    while True:
        left = end - around.clock.monotonic()
        if left <= 0:
            raise _late(around) or CallError("timeout", f"no answer in {spec.timeout_sec:g} s")
        limit = around.limits.take(spec.name, spec.max_calls)
        if limit is not None:
            raise earlier or CallError("limit_exceeded", limit)
        trial.calls += 1
        try:
            completion = _within(left, around.llm, render_request(spec, inputs, left))
            break
        except CallError as error:
            if error.kind == "timeout":
                raise _late(around) or error from None
            pause = _FIRST_PAUSE_SEC if error.retry_after is None else error.retry_after
            left = end - around.clock.monotonic()
            if error.kind not in _RETRIED or trial.calls > 1 or pause >= left:
                raise
            earlier = error
            around.clock.sleep(pause)
    trial.completion = completion
    return read_answer(completion.text, completion.finish_reason, spec.output_schema)


def _late(around: _Setting) -> CallError | None:
    """Return the failure of a run whose time is used up, or None while there is some left."""
    if around.deadline is None or around.clock.monotonic() < around.deadline:
        return None
    return CallError("runtime_exceeded", "the run's time is used up")


def _within(seconds: float, llm: LLM, request: Request) -> Completion:
    """Wait for an answer at most that long.

    A client's own timeout counts from the last byte, so a server that drips bytes could hold the
    run for ever; the waiting thread is left behind instead (a daemon, it ends with the process).
    """
    box: queue.SimpleQueue[Completion | CallError] = queue.SimpleQueue()

    def work() -> None:
        try:
            box.put(llm.complete(request))
        except CallError as error:
            box.put(error)
        except Exception as error:  # noqa: BLE001 - a client may raise anything; the step must not
            box.put(CallError("http_error", f"{type(error).__name__}: {error}"))

    threading.Thread(target=work, name=f"llm-{request.model}", daemon=True).start()
    try:
        answer = box.get(timeout=seconds)
    except queue.Empty:
        raise CallError("timeout", f"no answer in {seconds:.1f} s") from None
    if isinstance(answer, CallError):
        raise answer
    return answer
