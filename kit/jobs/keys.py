"""The keys of the models that a job asks: demanded by hand, and passed on to its kernel."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kit.errors import ConfigError
from kit.llm import Mode, offline_cause, resolve_mode
from kit.llm.mode import provider_of

__all__ = ["key_names", "require_key"]


def require_key(step: str, model: str, mode: str, llm: Mapping[str, Any], *, where: str) -> None:
    """Refuse a run that demands a model it cannot ask, before anything is claimed.

    Unattended it goes on: its card says which step failed, and why.

    Args:
        step: Name of the step.
        model: Its model, `provider/name`.
        mode: What was asked for.
        llm: `config/llm.json`.
        where: What would run.

    Raises:
        ConfigError: `llm.no_key`.
    """
    if mode != Mode.LIVE or offline_cause(mode, llm, model=model) is not None:
        return
    if resolve_mode("auto", llm, model=model) is Mode.LIVE:
        return
    provider = provider_of(model, llm)
    variable = (llm["providers"].get(provider) or {}).get("key_env")
    raise ConfigError(
        "llm.no_key",
        f"step {step} asks {model}, and "
        + (f"{variable} is not set" if variable else f"provider {provider} is not set up"),
        where=where,
        remedy=(f"set {variable}" if variable else f"give {provider} in config/llm.json")
        + ", or use --mode offline",
    )


def key_names(models: Iterable[str], mode: str, llm: Mapping[str, Any]) -> frozenset[str]:
    """Return the variables that hold the keys of the models that a kernel may ask."""
    asked = (model for model in models if offline_cause(mode, llm, model=model) is None)
    entries = (llm["providers"].get(provider_of(model, llm)) or {} for model in asked)
    return frozenset(entry["key_env"] for entry in entries if entry.get("key_env"))
