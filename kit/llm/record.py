"""The record of a run's steps: one line of `llm.jsonl` for each answer or failure.

A line holds all that is needed to audit a step, and to answer it again later: model, rendered
request, every attempt, response, verdict, what the stand-in said, and hashes. Secrets are masked
before anything is written, and in an answer before anything is made of it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kit import files
from kit.llm.client import Completion
from kit.llm.mode import provider_key
from kit.llm.models import is_stub, knowledge_cutoff
from kit.llm.spec import StepResult, StepSpec, render_request
from kit.redact import Redactor
from kit.state.process import environment

__all__ = ["Asked", "Recorder", "Trial", "asked", "record_line"]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a step asks, and by what it is found again.

    Attributes:
        body: `model`, `params` and `request`, as recorded.
        sha256: Digest of it.
    """

    body: Mapping[str, Any]
    sha256: str


@dataclass
class Trial:
    """What a step has been through so far.

    Attributes:
        completion: The answer, when one came.
        attempts: Each call: its verdict, and what went wrong.
        shadow: What the stand-in said beside a model.
    """

    completion: Completion | None = None
    attempts: list[dict[str, str]] = field(default_factory=list)
    shadow: dict[str, Any] | None = None


class Recorder:
    """Appends to one `llm.jsonl`; safe to share between threads.

    Args:
        path: The file; made on the first line.
        secrets: Values that must never be written, beside those of the environment.
        config: `config/llm.json`; says which models are stubs, and what they may know.
    """

    def __init__(
        self,
        path: Path,
        secrets: Iterable[str] = (),
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self.path = path
        named = {f"SECRET_{i}": secret for i, secret in enumerate(secrets)}
        self._redactor = Redactor({**environment(), **named})
        self._config = config
        self._guard = threading.Lock()

    @classmethod
    def for_config(cls, path: Path, config: Mapping[str, Any]) -> Recorder:
        """Return a recorder that knows the models and keys of every configured provider."""
        keys = (provider_key(provider, config) for provider in config["providers"])
        return cls(path, [key for key in keys if key], config)

    def clean(self, value: Any) -> Any:
        """Return a JSON value that may be written: secrets masked, every text valid UTF-8."""
        return _writable(self._redactor.value(value))

    def append(self, line: Mapping[str, Any]) -> None:
        """Write one line; its shape is the schema `llm-record`."""
        known: dict[str, Any] = {}
        if self._config is not None:
            known["stub"] = is_stub(line["model"], self._config)
            known["knowledge_cutoff"] = knowledge_cutoff(line["model"], self._config)
        # A line that is replayed keeps what it said.
        safe = self.clean({**known, **line})
        with self._guard:
            files.append_json_line(self.path, safe)


def asked(spec: StepSpec, inputs: Mapping[str, Any]) -> Asked:
    """Return what a step asks with these inputs."""
    try:
        rendered = render_request(spec, inputs, 0)
        request: dict[str, Any] = {
            "messages": [dict(m) for m in rendered.messages],
            "response_format": dict(rendered.response_format),
        }
    except (TypeError, ValueError):
        request = {"messages": [], "response_format": {}}
    params = {
        "temperature": spec.temperature,
        "max_tokens": spec.max_tokens,
        "timeout_sec": spec.timeout_sec,
    }
    body = {"model": spec.model, "params": params, "request": request}
    return Asked(body=body, sha256=files.sha256_bytes(files.canonical_json(body)))


def record_line(
    spec: StepSpec,
    inputs: Mapping[str, Any],
    result: StepResult,
    ordinal: int,
    *,
    trial: Trial | None = None,
    noted: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the line of `llm.jsonl` for one result.

    Args:
        spec: The step.
        inputs: What it was given.
        result: What came of it.
        ordinal: Position of the inputs in their list.
        trial: The way there; None when nothing was tried.
        noted: What else is kept of the run: `cause`, `measured`.
    """
    trial = trial or Trial()
    completion = trial.completion
    question = asked(spec, inputs)
    text = completion.text if completion else None
    return {
        "step": spec.name,
        "ordinal": ordinal,
        "mode": str(result.mode),
        "quality": result.quality,
        "cause": None,
        **(noted or {}),
        "answered_by": completion.model if completion else None,
        **question.body,
        "request_sha256": question.sha256,
        "prompt_sha256": files.sha256_bytes(spec.system.encode()),
        "attempts": trial.attempts,
        "response": text,
        "response_sha256": None if text is None else _text_digest(text),
        "finish_reason": completion.finish_reason if completion else None,
        "value": result.value,
        "verdict": result.failure.kind if result.failure else "ok",
        "message": result.failure.message if result.failure else "",
        "shadow": trial.shadow,
        "usage": result.usage.to_dict(),
        "calls": result.calls,
        "latency_sec": result.latency_sec,
    }


def _writable(value: Any) -> Any:
    """Return the value with halves of surrogate pairs replaced; a model can send them."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, Mapping):
        return {_writable(key): _writable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_writable(item) for item in value]
    return value


def _text_digest(text: str) -> str:
    return files.sha256_bytes(text.encode("utf-8", "surrogatepass"))
