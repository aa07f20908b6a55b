"""How a step is answered: by a model, or by its offline equivalent.

`auto` asks a model when the key of the step's provider is configured, and otherwise the offline
equivalent. `replay` answers from the record of a run. `KIT_MODE=offline` in the environment
overrules every other request: the demo and the tests can then never reach a provider.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from kit.errors import UsageError
from kit.schemas import suggestion
from kit.workspace import environ

__all__ = ["REQUESTS", "Mode", "offline_cause", "provider_key", "provider_of", "resolve_mode"]

REQUESTS = ("auto", "live", "offline", "replay")
# What the environment may say: it takes models away, and never asks for one.
_FORCED = ("auto", "offline")


class Mode(StrEnum):
    """Who answers a step."""

    LIVE = "live"
    OFFLINE = "offline"
    REPLAY = "replay"


def resolve_mode(requested: str, config: Mapping[str, Any], *, model: str | None = None) -> Mode:
    """Decide the mode of one step.

    Args:
        requested: `auto`, `live`, `offline` or `replay`.
        config: `config/llm.json`.
        model: The step's model, `provider/name`; without it any configured provider counts.

    Returns:
        The mode. `live` without a key stays live: its calls fail and take their fallback.

    Raises:
        UsageError: `llm.bad_mode`.
    """
    cause = offline_cause(requested, config, model=model)
    if cause == Mode.REPLAY:
        return Mode.REPLAY
    return Mode.OFFLINE if cause else Mode.LIVE


def offline_cause(
    requested: str, config: Mapping[str, Any], *, model: str | None = None
) -> str | None:
    """Say why no model is asked: `forced`, `requested`, `no_key`, `replay`; None for a live step.

    Raises:
        UsageError: `llm.bad_mode`, of the request or of `KIT_MODE`.
    """
    _known(requested, REQUESTS, "a mode")
    forced = _known(environ("KIT_MODE", "auto"), _FORCED, "a value of KIT_MODE")
    if requested == Mode.REPLAY:
        return "replay"
    if forced == Mode.OFFLINE:
        return "forced"
    if requested == Mode.OFFLINE:
        return "requested"
    if requested == Mode.LIVE or _is_configured(config, model):
        return None
    return "no_key"


def provider_of(model: str, config: Mapping[str, Any]) -> str:
    """Return the provider part of `provider/name`, or the configured default provider."""
    provider, slash, _ = model.partition("/")
    return provider if slash else str(config["default_provider"])


def provider_key(provider: str, config: Mapping[str, Any]) -> str | None:
    """Return the key of a provider from the environment variable that the config names."""
    entry = config["providers"].get(provider)
    name = entry.get("key_env") if entry else None
    return environ(name) if name else None


def _known(value: str | None, known: tuple[str, ...], what: str) -> str | None:
    if value not in known:
        raise UsageError(
            "llm.bad_mode",
            f"{value!r} is not {what}",
            remedy=suggestion(str(value), known) or f"one of: {', '.join(known)}",
        )
    return value


def _is_configured(config: Mapping[str, Any], model: str | None) -> bool:
    providers = config["providers"]
    names = [provider_of(model, config)] if model else list(providers)
    return any(_answers(providers.get(name), name, config) for name in names)


def _answers(entry: Mapping[str, Any] | None, name: str, config: Mapping[str, Any]) -> bool:
    if entry is None:
        return False
    # A server of one's own needs an address, not a key.
    if entry.get("key_env") is None:
        return bool(entry.get("base_url"))
    return provider_key(name, config) is not None
