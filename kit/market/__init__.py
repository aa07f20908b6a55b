"""Market data: bars, the panel strategies see, universes, calendars, trading rules, quotes.

Names are imported when first used, so that touching one does not load pandas and polars for all.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kit.market.bars import (
        ADJUST_KINDS,
        BAR_COLUMNS,
        BarProblem,
        any_synthetic,
        check_bars,
        find_problems,
        fingerprint_frame,
    )
    from kit.market.by_day import DayRules, day_rules
    from kit.market.calendars import Calendar, Session, calendar
    from kit.market.context import context_lag, with_context
    from kit.market.fees import Fees, FeeSchedule
    from kit.market.markets import MarketInfo, market_info, market_names
    from kit.market.news import NewsBatch, NewsItem, NewsSource, SampleNews
    from kit.market.panel import ADJUSTMENTS, MarketPanel, load_panel
    from kit.market.quotes import Quote, QuoteBatch, QuoteSource, sample_quotes
    from kit.market.rules import MarketRules
    from kit.market.sources import (
        BarSource,
        Coverage,
        ParquetSource,
        SampleSource,
        Security,
        board_of,
        market_of,
        open_source,
    )
    from kit.market.universe import Dropped, Universe, resolve_universe

__all__ = [
    "ADJUSTMENTS",
    "ADJUST_KINDS",
    "BAR_COLUMNS",
    "BarProblem",
    "BarSource",
    "Calendar",
    "Coverage",
    "DayRules",
    "Dropped",
    "FeeSchedule",
    "Fees",
    "MarketInfo",
    "MarketPanel",
    "MarketRules",
    "NewsBatch",
    "NewsItem",
    "NewsSource",
    "ParquetSource",
    "Quote",
    "QuoteBatch",
    "QuoteSource",
    "SampleNews",
    "SampleSource",
    "Security",
    "Session",
    "Universe",
    "any_synthetic",
    "board_of",
    "calendar",
    "check_bars",
    "context_lag",
    "day_rules",
    "find_problems",
    "fingerprint_frame",
    "load_panel",
    "market_info",
    "market_names",
    "market_of",
    "open_source",
    "resolve_universe",
    "sample_quotes",
    "with_context",
]

_HOMES = {
    "bars": (
        "ADJUST_KINDS",
        "BAR_COLUMNS",
        "BarProblem",
        "any_synthetic",
        "check_bars",
        "find_problems",
        "fingerprint_frame",
    ),
    "calendars": ("Calendar", "Session", "calendar"),
    "context": ("context_lag", "with_context"),
    "by_day": ("DayRules", "day_rules"),
    "fees": ("FeeSchedule", "Fees"),
    "markets": ("MarketInfo", "market_info", "market_names"),
    "news": ("NewsBatch", "NewsItem", "NewsSource", "SampleNews"),
    "panel": ("ADJUSTMENTS", "MarketPanel", "load_panel"),
    "quotes": ("Quote", "QuoteBatch", "QuoteSource", "sample_quotes"),
    "rules": ("MarketRules",),
    "sources": (
        "BarSource",
        "Coverage",
        "ParquetSource",
        "SampleSource",
        "Security",
        "board_of",
        "market_of",
        "open_source",
    ),
    "universe": ("Dropped", "Universe", "resolve_universe"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
