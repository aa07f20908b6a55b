"""What `config/llm.json` says of a model: its price, its knowledge, and whether it is one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal
from urllib.parse import urlsplit

from kit.llm.mode import provider_of

__all__ = [
    "Knowledge",
    "Price",
    "ceiling_price",
    "configured_price",
    "is_stub",
    "knowledge_cutoff",
    "knowledge_label",
    "takes_json_schema",
]

Knowledge = Literal["in-knowledge", "after-cutoff", "unknown-cutoff"]

_LOOPBACK = {"localhost", "127.0.0.1", "::1"}


@dataclass(frozen=True, kw_only=True)
class Price:
    """What a model costs.

    Attributes:
        prompt: US dollars for a million tokens sent.
        completion: US dollars for a million tokens received.
    """

    prompt: float
    completion: float

    def micro_usd(self, prompt_tokens: int, completion_tokens: int) -> int:
        """Return what so many tokens cost, in millionths of a dollar, rounded up."""
        return math.ceil(self.prompt * prompt_tokens + self.completion * completion_tokens)


# What a model of unknown price is counted as where the configuration names nothing: dearer than
# what a screen would sensibly ask.
_CEILING = Price(prompt=15.0, completion=75.0)


def configured_price(model: str, config: Mapping[str, Any]) -> Price | None:
    """Return the price override of a model, or None."""
    entry = config.get("prices", {}).get(model)
    return Price(**entry) if entry else None


def ceiling_price(config: Mapping[str, Any]) -> Price:
    """Return what a model of unknown price is counted as."""
    entry = config.get("budget", {}).get("ceiling")
    return Price(**entry) if entry else _CEILING


def is_stub(model: str, config: Mapping[str, Any]) -> bool:
    """Say whether a model's answers prove nothing about models.

    A provider says so with `stub`; where it does not, a server on this machine is taken for one.
    """
    entry = config["providers"].get(provider_of(model, config), {})
    on_loopback = urlsplit(entry.get("base_url", "")).hostname in _LOOPBACK
    return bool(entry.get("stub", on_loopback))


def takes_json_schema(model: str, config: Mapping[str, Any]) -> bool:
    """Say whether a model's provider is on the list of those that keep to a JSON Schema."""
    entry = config["providers"].get(provider_of(model, config), {})
    return bool(entry.get("json_schema", False))


def knowledge_cutoff(model: str, config: Mapping[str, Any]) -> str | None:
    """Return the last day that a model may know of, `YYYY-MM-DD`; None when it is not written."""
    found = config.get("cutoffs", {}).get(model)
    return None if found is None else str(found)


def knowledge_label(model: str, first: date, config: Mapping[str, Any]) -> Knowledge:
    """Label a window of dates whose model answers may be memory, not judgement.

    Args:
        model: `provider/name`.
        first: First day of the window.
        config: `config/llm.json`.
    """
    cutoff = knowledge_cutoff(model, config)
    if cutoff is None:
        return "unknown-cutoff"
    return "in-knowledge" if first <= date.fromisoformat(cutoff) else "after-cutoff"
