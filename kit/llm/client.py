"""The seam to a model: one request, one completion, or one explained failure.

`LiteLLM` is the client for real providers. litellm is imported when one is made, never with this
module: it costs seconds and 200 MB, which an offline run must not pay, nor a step's deadline.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from kit.errors import RunError
from kit.llm.mode import provider_key, provider_of
from kit.llm.models import Price

__all__ = ["LLM", "CallError", "Completion", "LiteLLM", "Request", "Usage"]


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is sent to a model.

    Attributes:
        model: `provider/name`.
        messages: `{"role", "content"}` objects, in order.
        temperature: Sampling temperature.
        max_tokens: Longest answer, in tokens.
        timeout_sec: Longest wait for the answer, in seconds.
        response_format: The API's structured-output argument.
        step: Whose request it is, for the account; not sent.
    """

    model: str
    messages: tuple[Mapping[str, str], ...]
    temperature: float
    max_tokens: int
    timeout_sec: float
    response_format: Mapping[str, Any]
    step: str = ""


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Tokens and money of one call; None where the provider did not say.

    Attributes:
        prompt_tokens: Tokens sent.
        completion_tokens: Tokens received.
        cost_usd: Cost in US dollars by litellm's price table.
    """

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cost_usd: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return dict(vars(self))


@dataclass(frozen=True, kw_only=True)
class Completion:
    """What a model answered.

    Attributes:
        text: The answer's text, unchecked.
        finish_reason: Why it stopped (`stop`, `length`, ...), or None.
        usage: Tokens and money.
        model: The model that answered, by its own word.
    """

    text: str
    finish_reason: str | None = None
    usage: Usage = field(default_factory=Usage)
    model: str = ""


class CallError(RunError):
    """One call brought no answer.

    Args:
        kind: `connection`, `rate_limited`, `timeout`, `no_key`, `refused`, `budget_exceeded` or
            `http_error`.
        message: What happened; holds no secret.
        retry_after: Seconds the provider asked to wait, where it did.
        charged: Whether the provider may have worked on it, and charge for it.
    """

    def __init__(
        self, kind: str, message: str, *, retry_after: float | None = None, charged: bool = False
    ) -> None:
        super().__init__(f"llm.{kind}", message, remedy=_MENDS.get(kind, _TRY_AGAIN))
        self.kind = kind
        self.retry_after = retry_after
        self.charged = charged


_TRY_AGAIN = "run again; the card was delivered without the model meanwhile"
_MENDS = {
    "no_key": "set the provider's key in the environment variable that config/llm.json names",
    "refused": "check the model's name and the key's rights at the provider",
    "budget_exceeded": "wait for the next month, or raise budget.monthly_usd in config/llm.json",
    "rate_limited": "wait, or lower the step's concurrency_limit",
}


class LLM(Protocol):
    """Anything that answers a request."""

    def complete(self, request: Request) -> Completion:
        """Answer one request, or raise `CallError`."""
        ...


class LiteLLM:
    """Real providers through litellm, one attempt a call: retries are the step's business.

    Making one imports litellm, so make it only when a step runs live.

    Args:
        config: `config/llm.json`: providers with `key_env` and `base_url`.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config
        self._litellm = _load()

    def complete(self, request: Request) -> Completion:
        """Answer one request.

        Raises:
            CallError: For whatever the network or the provider did.
        """
        provider = provider_of(request.model, self._config)
        entry: Mapping[str, Any] = self._config["providers"].get(provider, {})
        key = provider_key(provider, self._config)
        if key is None and entry.get("key_env") is not None:
            raise CallError("no_key", f"{entry['key_env']} is not set")
        if not entry:
            raise CallError("no_key", f"config/llm.json has no provider {provider!r}")
        litellm = self._litellm
        try:
            # Its hidden retries are off: a call that nobody counts would pass every limit.
            answer = litellm.completion(
                model=request.model,
                messages=[dict(message) for message in request.messages],
                temperature=request.temperature,
                max_tokens=request.max_tokens,
                timeout=request.timeout_sec,
                response_format=dict(request.response_format),
                num_retries=0,
                max_retries=0,
                # Servers of one's own take any key; the SDK underneath insists on having one.
                api_key=key or "none",
                api_base=entry.get("base_url"),
            )
            return _read(litellm, answer)
        except Exception as error:  # noqa: BLE001 - litellm raises its own and its SDKs' classes
            raise _explained(litellm, error, key) from None

    def price(self, model: str) -> Price | None:
        """Return the price of a model by litellm's table, None when it is not in there."""
        try:
            info = self._litellm.get_model_info(model)
            return Price(
                prompt=float(info["input_cost_per_token"]) * 1e6,
                completion=float(info["output_cost_per_token"]) * 1e6,
            )
        except Exception:  # noqa: BLE001 - it raises plain `Exception` for a model it does not know
            return None


def _load() -> Any:
    # Read by litellm while it is imported; without it the import fetches a price table.
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    import litellm

    litellm.suppress_debug_info = True
    litellm.telemetry = False
    litellm.drop_params = True
    return litellm


def _read(litellm: Any, answer: Any) -> Completion:
    if not answer.choices:
        raise CallError("http_error", "the answer holds no choice", charged=True)
    choice = answer.choices[0]
    if getattr(choice.message, "refusal", None):
        raise CallError("refused", "the model declined to answer", charged=True)
    usage = getattr(answer, "usage", None)
    return Completion(
        text=choice.message.content or "",
        finish_reason=choice.finish_reason,
        usage=Usage(
            prompt_tokens=getattr(usage, "prompt_tokens", None),
            completion_tokens=getattr(usage, "completion_tokens", None),
            cost_usd=_cost(litellm, answer),
        ),
        model=str(answer.model or ""),
    )


def _cost(litellm: Any, answer: Any) -> float | None:
    try:
        return float(litellm.completion_cost(completion_response=answer))
    except Exception:  # noqa: BLE001 - an unknown model has no price; that is an answer too
        return None


def _explained(litellm: Any, error: Exception, key: str | None) -> CallError:
    """Classify what litellm raised; its class names are the stable part, its texts are not."""
    message = f"{type(error).__name__}: {error}"
    if key:
        message = message.replace(key, "***")
    message = " ".join(message.split())[:300]
    known = litellm.exceptions
    if isinstance(error, CallError):
        return error
    if isinstance(error, known.Timeout):
        return CallError("timeout", message, charged=True)
    if isinstance(error, known.RateLimitError):
        return CallError("rate_limited", message, retry_after=_retry_after(error))
    if isinstance(error, known.AuthenticationError | known.PermissionDeniedError):
        return CallError("no_key", message)
    if isinstance(error, known.ContentPolicyViolationError):
        return CallError("refused", message)
    # litellm wraps a dropped connection as its own InternalServerError: look at the cause.
    if isinstance(error, known.APIConnectionError) or _is_connection(error):
        return CallError("connection", message, charged=not _is_connection(error, connecting=True))
    # Only a status that blames the request proves that no model worked on it.
    blamed = getattr(error, "status_code", None) in range(400, 500)
    return CallError("http_error", message, charged=not blamed)


def _is_connection(error: BaseException, *, connecting: bool = False) -> bool:
    """Say whether the network failed; `connecting`: before anything could be sent."""
    import httpx

    wanted: tuple[type[BaseException], ...] = (httpx.TransportError, ConnectionError)
    if connecting:
        wanted = (httpx.ConnectError, httpx.ConnectTimeout, ConnectionRefusedError)
    current: BaseException | None = error
    for _ in range(10):
        if current is None:
            break
        # A status error is an answer; only what never became one is a connection's fault.
        if isinstance(current, wanted):
            return True
        current = current.__cause__ or current.__context__
    return False


def _retry_after(error: Any) -> float | None:
    headers = getattr(getattr(error, "response", None), "headers", None)
    text = headers.get("retry-after") if headers is not None else None
    try:
        seconds = float(text or "")
    except ValueError:
        return None
    return seconds if seconds >= 0 else None
