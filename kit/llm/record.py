"""The record of a run's steps: one line of `llm.jsonl` for each answer or failure.

A line holds all that is needed to audit a step, and to answer it again later: model, rendered
request, response, verdict, and hashes. Secrets are replaced before anything is written.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from kit import files
from kit.llm.client import Completion
from kit.llm.mode import provider_key
from kit.llm.spec import StepResult, StepSpec, render_request

__all__ = ["Recorder", "record_line", "redacted"]

_MASK = "***"
# The forms in which keys turn up in texts: bearer headers, and the common prefixes of keys.
_SECRET_FORMS = re.compile(r"(?i)\bbearer\s+[\w.~+/=-]{8,}|\b(?:sk|pk|rk|ak)-[\w-]{16,}")


class Recorder:
    """Appends to one `llm.jsonl`; safe to share between threads.

    Args:
        path: The file; made on the first line.
        secrets: Values that must never be written.
    """

    def __init__(self, path: Path, secrets: Iterable[str] = ()) -> None:
        self.path = path
        self._secrets = tuple(secret for secret in secrets if secret)
        self._guard = threading.Lock()

    @classmethod
    def for_config(cls, path: Path, config: Mapping[str, Any]) -> Recorder:
        """Return a recorder that knows the keys of every configured provider."""
        keys = (provider_key(provider, config) for provider in config["providers"])
        return cls(path, [key for key in keys if key])

    def append(self, line: Mapping[str, Any]) -> None:
        """Write one line; its shape is the schema `llm-record`."""
        safe = redacted(line, self._secrets)
        with self._guard:
            files.append_json_line(self.path, safe)


def redacted(value: Any, secrets: Iterable[str] = ()) -> Any:
    """Return a JSON value with every secret masked, keys of objects included."""
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, _MASK)
        value = _SECRET_FORMS.sub(_MASK, value)
        # Half a surrogate pair cannot be written as UTF-8; a model can still send one.
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, Mapping):
        return {redacted(str(k), secrets): redacted(v, secrets) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [redacted(item, secrets) for item in value]
    return value


def record_line(
    spec: StepSpec,
    inputs: Mapping[str, Any],
    result: StepResult,
    completion: Completion | None,
    ordinal: int,
) -> dict[str, Any]:
    """Return the line of `llm.jsonl` for one result."""
    try:
        request: dict[str, Any] = {
            "messages": [dict(m) for m in render_request(spec, inputs, 0).messages],
            "response_format": {"type": "json_object"},
        }
    except (TypeError, ValueError):
        request = {"messages": [], "response_format": {}}
    params = {
        "temperature": spec.temperature,
        "max_tokens": spec.max_tokens,
        "timeout_sec": spec.timeout_sec,
    }
    digest = files.canonical_json({"model": spec.model, "params": params, "request": request})
    text = completion.text if completion else None
    return {
        "step": spec.name,
        "ordinal": ordinal,
        "mode": str(result.mode),
        "quality": result.quality,
        "model": spec.model,
        "answered_by": completion.model if completion else None,
        "params": params,
        "request": request,
        "request_sha256": files.sha256_bytes(digest),
        "prompt_sha256": files.sha256_bytes(spec.system.encode()),
        "response": text,
        "response_sha256": None if text is None else _text_digest(text),
        "finish_reason": completion.finish_reason if completion else None,
        "value": result.value,
        "verdict": result.failure.kind if result.failure else "ok",
        "message": result.failure.message if result.failure else "",
        "usage": result.usage.to_dict(),
        "calls": result.calls,
        "latency_sec": result.latency_sec,
    }


def _text_digest(text: str) -> str:
    return files.sha256_bytes(text.encode("utf-8", "surrogatepass"))
