"""The markets of a workspace, as `config/markets.json` describes them."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from datetime import time
from typing import Any
from zoneinfo import ZoneInfo

from kit.errors import UsageError
from kit.workspace import Workspace

__all__ = ["MarketInfo", "market_config", "market_info", "market_names"]


@dataclass(frozen=True, kw_only=True)
class MarketInfo:
    """What is true of a whole market.

    Attributes:
        market: Its key: `cn`, `hk` or `us`.
        name: Its Chinese name, for cards.
        enabled: Whether its slots are scheduled.
        exchange: Calendar code, such as `XSHG`.
        timezone: Zone of the exchange.
        currency: ISO code.
        benchmark: Symbol of its index, None when it has none here.
        slots: Local times of its intraday slots, ascending as written.
        quote_stale_minutes: Trading minutes after which a quote is stale.
        has_rules: Whether trading rules are on file.
    """

    market: str
    name: str
    enabled: bool
    exchange: str
    timezone: str
    currency: str
    benchmark: str | None
    slots: tuple[time, ...]
    quote_stale_minutes: int
    has_rules: bool

    @property
    def zone(self) -> ZoneInfo:
        """The exchange's time zone."""
        return ZoneInfo(self.timezone)


def market_names(workspace: Workspace) -> tuple[str, ...]:
    """Return the keys of all markets on file."""
    return tuple(workspace.config("markets")["markets"])


def market_config(workspace: Workspace, market: str) -> dict[str, Any]:
    """Return the raw entry of one market.

    Raises:
        UsageError: `market.unknown`.
        ConfigError: The file is missing or wrong.
    """
    entries: dict[str, dict[str, Any]] = workspace.config("markets")["markets"]
    if market not in entries:
        near = difflib.get_close_matches(market.lower(), entries, 1)
        raise UsageError(
            "market.unknown",
            f"there is no market {market!r}",
            where="config/markets.json",
            remedy=(f"did you mean {near[0]}? " if near else "") + f"markets: {', '.join(entries)}",
        )
    return entries[market]


def market_info(workspace: Workspace, market: str) -> MarketInfo:
    """Return one market.

    Raises:
        UsageError: `market.unknown`.
        ConfigError: The file is missing or wrong.
    """
    entry = market_config(workspace, market)
    return MarketInfo(
        market=market,
        name=entry["name"],
        enabled=entry["enabled"],
        exchange=entry["exchange"],
        timezone=entry["timezone"],
        currency=entry["currency"],
        benchmark=entry["benchmark"],
        slots=tuple(time.fromisoformat(text) for text in entry["slots"]),
        quote_stale_minutes=entry["quote_stale_minutes"],
        has_rules="rules" in entry,
    )
