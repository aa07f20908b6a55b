"""Run one LLM step: a declared call site with a schema on both sides and a stand-in beside it.

`run_step` never raises for what a model, a network or a bundle's stand-in can do: it returns a
value or a failure. There is no corrective retry: an answer off schema fails at once. A connection
error or a 429 is tried once more, within the step's own deadline, and every attempt is counted.

Beside a live answer the stand-in answers too, in the shadow: the record keeps both, and how far
they agree. A replay takes both from the record of a run.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

from kit import files, schemas
from kit.clock import Clock, SystemClock
from kit.llm.agreement import compare
from kit.llm.answer import AnswerError, read_answer, valid_value
from kit.llm.client import LLM, CallError, Usage
from kit.llm.limits import CallLimits
from kit.llm.mode import Mode
from kit.llm.record import Recorder, Trial, record_line
from kit.llm.replay import ReplaySource
from kit.llm.spec import StepFailure, StepResult, StepSpec, render_request
from kit.text import clip, visible

__all__ = ["Check", "StepFailure", "StepResult", "StepSpec", "run_each", "run_step"]

Check = Callable[[Mapping[str, Any], Mapping[str, Any]], str | None]
_T = TypeVar("_T")

# One text of the inputs (a headline, a summary) is cut at this many characters, and all of them
# together must leave room in any model's window.
_MAX_INPUT_TEXT = 4_000
_MAX_INPUT_BYTES = 400_000
_FIRST_PAUSE_SEC = 0.5
_SHADOW_SEC = 2.0
_RETRIED = {"connection", "rate_limited"}


@dataclass(frozen=True, kw_only=True)
class _Setting:
    """Everything around a step that is the same for all inputs of a run."""

    mode: Mode
    llm: LLM | None
    recorder: Recorder | None
    limits: CallLimits
    check: Check | None
    deadline: float | None
    noted: Mapping[str, Any] | None
    replay: ReplaySource | None
    clock: Clock
    # Stand-ins may not be thread-safe: in the shadow of concurrent answers they take turns.
    turn: threading.Lock = field(default_factory=threading.Lock)


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
    noted: Mapping[str, Any] | None = None,
    replay: ReplaySource | None = None,
    clock: Clock | None = None,
) -> StepResult:
    """Run one step on one set of inputs.

    Args:
        spec: The step.
        inputs: JSON values, valid under `spec.input_schema`; texts are cleaned and bounded.
        mode: Who answers.
        llm: The client; needed when the mode is live. `Metered` pays for it out of a budget.
        recorder: Where the answer is recorded.
        limits: Counters shared by the run's steps; without it only `spec.max_calls` holds.
        check: Looks at (inputs, answer) and returns what is wrong with the answer, or None.
        deadline: `clock.monotonic()` value at which the whole run stops asking.
        noted: What the record keeps of the run: `cause`, `measured`; see its schema.
        replay: The record that answers when the mode is replay.
        clock: Where time comes from.

    Returns:
        A value or a failure; never an exception for what a model or a network can do.

    Raises:
        RunError: `llm.replay_miss`: the record does not hold this request.
    """
    return run_each(
        spec,
        [inputs],
        mode=mode,
        llm=llm,
        recorder=recorder,
        limits=limits,
        check=check,
        deadline=deadline,
        noted=noted,
        replay=replay,
        clock=clock,
    )[0]


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
    noted: Mapping[str, Any] | None = None,
    replay: ReplaySource | None = None,
    clock: Clock | None = None,
) -> list[StepResult]:
    """Run one step on many inputs, at most `spec.concurrency_limit` at a time.

    One slow or failing answer neither delays nor fails another. Arguments are those of `run_step`.

    Returns:
        One result for each input, in the order of the inputs.

    Raises:
        RunError: As `run_step`.
    """
    setting = _Setting(
        mode=mode,
        llm=llm,
        recorder=recorder,
        limits=limits or CallLimits(),
        check=check,
        deadline=deadline,
        noted=noted,
        replay=replay,
        clock=clock or SystemClock(),
    )
    if mode != Mode.LIVE or len(inputs_list) < 2:
        # Stand-ins are quick and may not be thread-safe.
        return [_run(spec, inputs, setting, i) for i, inputs in enumerate(inputs_list)]
    with ThreadPoolExecutor(max_workers=max(1, spec.concurrency_limit)) as pool:
        waiting = [
            pool.submit(_run, spec, inputs, setting, i) for i, inputs in enumerate(inputs_list)
        ]
        return [each.result() for each in waiting]


def _run(spec: StepSpec, inputs: Mapping[str, Any], around: _Setting, ordinal: int) -> StepResult:
    safe_inputs = _shown(inputs, _MAX_INPUT_TEXT)
    if around.mode == Mode.REPLAY:
        return _replayed(spec, safe_inputs, around, ordinal)
    started = around.clock.monotonic()
    trial = Trial()
    value: dict[str, Any] | None = None
    failure: StepFailure | None = None
    try:
        _check_inputs(spec, safe_inputs)
        if around.mode == Mode.LIVE:
            value = _ask_model(spec, safe_inputs, around, trial)
        else:
            value = _ask_offline(spec, safe_inputs)
        _check_value(safe_inputs, value, around.check)
    except (CallError, AnswerError) as error:
        value, failure = None, StepFailure(kind=error.kind, message=_clean(around, error.message))
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
        calls=len(trial.attempts),
    )
    if around.recorder is not None:
        if around.mode == Mode.LIVE and spec.offline and trial.attempts:
            trial.shadow = _shadow(spec, safe_inputs, value, around)
        line = record_line(spec, safe_inputs, result, ordinal, trial=trial, noted=around.noted)
        around.recorder.append(line)
    return result


def _replayed(spec: StepSpec, inputs: dict[str, Any], around: _Setting, ordinal: int) -> StepResult:
    result, line = (around.replay or ReplaySource([])).take(spec, inputs, ordinal)
    if around.recorder is not None:
        around.recorder.append(line)
    return result


def _shadow(
    spec: StepSpec, inputs: dict[str, Any], value: dict[str, Any] | None, around: _Setting
) -> dict[str, Any]:
    """Return what the stand-in says beside a model, and how far the two agree."""
    said: dict[str, Any] = {"verdict": "ok", "message": "", "value": None, "agreement": None}
    try:
        with around.turn:
            stood = _within(_SHADOW_SEC, lambda: _ask_offline(spec, inputs))
        _check_value(inputs, stood, around.check)
    except (CallError, AnswerError) as error:
        return said | {"verdict": error.kind, "message": error.message}
    said["value"] = stood
    if value is not None:
        said["agreement"] = compare(spec.output_schema, value, stood)
    return said


def _clean(around: _Setting, text: str) -> str:
    """Mask secrets before a text goes anywhere: what is shown is then what is recorded."""
    return text if around.recorder is None else str(around.recorder.clean(text))


def _shown(value: Any, most: int | None = None) -> Any:
    """Return plain JSON with every text made visible and, where `most` is given, bounded."""
    if isinstance(value, str):
        text = visible(value)
        return text if most is None else clip(text, most)
    if isinstance(value, Mapping):
        return {visible(str(key)): _shown(item, most) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_shown(item, most) for item in value]
    return value


def _check_inputs(spec: StepSpec, inputs: Any) -> None:
    try:
        size = len(files.canonical_json(inputs))
    except (TypeError, ValueError) as error:
        raise AnswerError("bad_input", f"the inputs are not JSON: {error}") from error
    if size > _MAX_INPUT_BYTES:
        raise AnswerError("bad_input", f"the inputs have {size:,} bytes of {_MAX_INPUT_BYTES:,}")
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
    spec: StepSpec, inputs: dict[str, Any], around: _Setting, trial: Trial
) -> dict[str, Any]:
    llm = around.llm
    if llm is None:
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
        request = render_request(spec, inputs, left)
        try:
            completion = _within(left, lambda: llm.complete(request))  # noqa: B023 - called at once
            break
        except CallError as error:
            if error.kind == "budget_exceeded":
                raise  # refused before anything was sent
            trial.attempts.append({"verdict": error.kind, "message": _clean(around, error.message)})
            if error.kind == "timeout":
                raise _late(around) or error from None
            pause = _FIRST_PAUSE_SEC if error.retry_after is None else error.retry_after
            left = end - around.clock.monotonic()
            if error.kind not in _RETRIED or len(trial.attempts) > 1 or pause >= left:
                raise
            earlier = error
            around.clock.sleep(pause)
    trial.attempts.append({"verdict": "answered", "message": ""})
    completion = replace(completion, text=_clean(around, completion.text))
    trial.completion = completion
    value = read_answer(completion.text, completion.finish_reason, spec.output_schema)
    # What nobody can see says nothing; without it the answer must still fit.
    return valid_value(_shown(value), spec.output_schema)


def _late(around: _Setting) -> CallError | None:
    """Return the failure of a run whose time is used up, or None while there is some left."""
    if around.deadline is None or around.clock.monotonic() < around.deadline:
        return None
    return CallError("runtime_exceeded", "the run's time is used up")


def _within(seconds: float, work: Callable[[], _T]) -> _T:
    """Wait for an answer at most that long.

    A client's own timeout counts from the last byte, so a server that drips bytes could hold the
    run for ever; the waiting thread is left behind instead (a daemon, it ends with the process).
    """
    box: queue.SimpleQueue[tuple[_T | None, Exception | None]] = queue.SimpleQueue()

    def answer() -> None:
        try:
            box.put((work(), None))
        except (CallError, AnswerError) as error:
            box.put((None, error))
        except BaseException as error:  # noqa: BLE001 - whoever answers may raise anything; the step must not
            box.put((None, CallError("http_error", f"{type(error).__name__}: {error}")))

    threading.Thread(target=answer, name="llm-step", daemon=True).start()
    try:
        found, error = box.get(timeout=seconds)
    except queue.Empty:
        raise CallError("timeout", f"no answer in {seconds:.1f} s") from None
    if error is not None:
        raise error
    return cast("_T", found)
