"""Answer the steps of a run from its record: the same request gets the same answer, or an error.

A request is found by step, digest and position. One that was never made is not answered: the error
shows where it first differs from the recorded one.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from os.path import commonprefix
from pathlib import Path
from typing import Any

from kit import files, schemas
from kit.errors import DataError, RunError
from kit.llm.answer import AnswerError, valid_value
from kit.llm.client import Usage
from kit.llm.mode import Mode
from kit.llm.record import asked
from kit.llm.spec import StepFailure, StepResult, StepSpec
from kit.redact import Redactor

__all__ = ["ReplaySource", "first_difference"]

_AROUND = 30  # characters shown on either side of a difference


class ReplaySource:
    """The recorded answers of one run; each is given once.

    Args:
        lines: Lines of `llm.jsonl`, in order.
        where: Whose record it is, for messages.
    """

    def __init__(self, lines: Iterable[Mapping[str, Any]], where: str = "") -> None:
        self._where = where
        self._lines = list(lines)
        self._left: dict[tuple[str, str, int], deque[Mapping[str, Any]]] = defaultdict(deque)
        for line in self._lines:
            self._left[line["step"], line["request_sha256"], line["ordinal"]].append(line)

    @classmethod
    def read(cls, path: Path) -> ReplaySource:
        """Read a run's `llm.jsonl`; a run without steps has none, and nothing to replay.

        Raises:
            DataError: `llm.bad_record`, with the line.
        """
        lines = files.read_json_lines(path) if path.exists() else []
        for number, line in enumerate(lines, start=1):
            where = f"{path.name}:{number}"
            schemas.check("llm-record", line, error=DataError, code="llm.bad_record", where=where)
        return cls(lines, path.parent.as_posix())

    def noted(self, step: str) -> Mapping[str, Any]:
        """Return what the record keeps of the run beside a step: `cause`, `measured`."""
        line = next((line for line in self._lines if line["step"] == step), {})
        return {name: line.get(name) for name in ("cause", "measured")}

    def take(
        self, spec: StepSpec, inputs: Mapping[str, Any], ordinal: int
    ) -> tuple[StepResult, Mapping[str, Any]]:
        """Return the recorded result of a request, and its line.

        Raises:
            RunError: `llm.replay_miss`: this request was not made, or its answer does not fit.
        """
        question = asked(spec, inputs)
        waiting = self._left.get((spec.name, question.sha256, ordinal))
        if not waiting:
            body = Redactor().value(dict(question.body))
            raise self._miss(spec.name, ordinal, self._difference(spec.name, ordinal, body))
        line = waiting.popleft()
        failure = None
        if line["verdict"] != "ok":
            failure = StepFailure(kind=line["verdict"], message=line["message"])
        else:
            try:
                valid_value(line["value"], spec.output_schema)
            except AnswerError as error:
                raise self._miss(spec.name, ordinal, error.message) from error
        result = StepResult(
            step=spec.name,
            ok=failure is None,
            value=line["value"],
            failure=failure,
            mode=Mode(line["mode"]),
            quality=line["quality"],
            usage=Usage(**line["usage"]),
            latency_sec=line["latency_sec"],
            calls=line["calls"],
        )
        return result, line

    def _difference(self, step: str, ordinal: int, body: Mapping[str, Any]) -> str:
        lines = [line for line in self._lines if line["step"] == step]
        if not lines:
            return "the record has no answer of this step"
        nearest = next((line for line in lines if line["ordinal"] == ordinal), lines[-1])
        then = {name: nearest[name] for name in body}
        return first_difference(then, body) or "it was asked more often than it was recorded"

    def _miss(self, step: str, ordinal: int, what: str) -> RunError:
        return RunError(
            "llm.replay_miss",
            f"step {step}, request {ordinal + 1}: {what}",
            where=self._where,
            remedy="replay with the bundle, prompts and data of that run, or run it anew",
        )


def first_difference(then: Any, now: Any, path: str = "") -> str:
    """Say where two JSON values first differ, with the text around; empty when they do not."""
    if isinstance(then, Mapping) and isinstance(now, Mapping):
        for key in (*then, *(key for key in now if key not in then)):
            where = f"{path}.{key}" if path else str(key)
            if key not in then or key not in now:
                return f"{where} is {'new' if key not in then else 'gone'}"
            if found := first_difference(then[key], now[key], where):
                return found
        return ""
    if isinstance(then, list) and isinstance(now, list):
        for i, (one, other) in enumerate(zip(then, now, strict=False)):
            if found := first_difference(one, other, f"{path}[{i}]"):
                return found
        return "" if len(then) == len(now) else f"{path} has another length"
    if then == now:
        return ""
    if isinstance(then, str) and isinstance(now, str):
        at = len(commonprefix([then, now]))  # noqa: RUF071 - characters are what is meant
        was, is_ = (repr(text[max(0, at - _AROUND) : at + _AROUND]) for text in (then, now))
        return f"{path} differs at character {at + 1}: recorded {was}, now {is_}"
    return f"{path}: recorded {then!r}, now {now!r}"
