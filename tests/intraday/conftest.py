"""Two holdings with price lines, quotes at 10:03, and the shipped thresholds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from kit.intraday import Delivered, Gathered, Portfolio, Slot, preflight
from kit.market import Quote, QuoteBatch

SHANGHAI = ZoneInfo("Asia/Shanghai")
NOW = datetime(2024, 9, 18, 10, 3, tzinfo=SHANGHAI)


@pytest.fixture
def config() -> dict[str, Any]:
    return {
        "always_full": True,
        "owner_timezone": "Asia/Hong_Kong",
        "anomaly": {"move_pct": 3.0, "severe_pct": 5.0},
        "move_buckets": [
            {"level": "medium", "from_pct": 3.0},
            {"level": "high", "from_pct": 5.0},
            {"level": "extreme", "from_pct": 8.0},
        ],
    }


@pytest.fixture
def slot() -> Slot:
    return Slot(
        market="cn",
        id="2024-09-18T10:00:00+08:00",
        trade_date=date(2024, 9, 18),
        now=NOW,
        scheduled=NOW,
    )


@pytest.fixture
def portfolio() -> Portfolio:
    return Portfolio.from_dict(
        "cn",
        {
            "currency": "CNY",
            "indices": [],
            "holdings": [
                {"symbol": "600000.SH", "shares": 3000, "cost": 8.42, "stop_price": 8.05},
                {"symbol": "000151.SZ", "shares": 1500, "cost": 9.12, "trim_price": 10},
            ],
        },
    )


@pytest.fixture
def quote() -> Callable[..., Quote]:
    def make(symbol: str, price: float, prev_close: float, **changes: Any) -> Quote:
        facts = {
            "symbol": symbol,
            "name": symbol,
            "price": price,
            "prev_close": prev_close,
            "open": prev_close,
            "high": max(price, prev_close),
            "low": min(price, prev_close),
            "volume": 1000.0,
            "time": NOW,
            "source": "test",
            "stale": False,
        }
        return Quote(**{**facts, **changes})

    return make


@pytest.fixture
def batch(quote: Callable[..., Quote]) -> Callable[..., QuoteBatch]:
    """Quotes by price: `batch({"600000.SH": (8.31, 8.35)}, missing={"000151.SZ": "why"})`."""

    def make(
        prices: Mapping[str, tuple[float, float]],
        *,
        missing: Mapping[str, str] | None = None,
        stale: Mapping[str, datetime] | None = None,
    ) -> QuoteBatch:
        old = stale or {}
        return QuoteBatch(
            at=NOW,
            quotes={
                symbol: quote(symbol, *pair, stale=symbol in old, time=old.get(symbol, NOW))
                for symbol, pair in prices.items()
            },
            missing=missing or {},
        )

    return make


@pytest.fixture
def gather(slot: Slot, portfolio: Portfolio, config: dict[str, Any]) -> Callable[..., Gathered]:
    def run(quotes: QuoteBatch, delivered: Delivered | None = None, **changes: Any) -> Gathered:
        facts: dict[str, Any] = {
            "market_name": "A股",
            "config": config,
            "delivered": delivered,
            "generated_at": NOW,
            "source": "test",
        }
        return preflight(
            changes.pop("slot", slot),
            changes.pop("portfolio", portfolio),
            quotes,
            **{**facts, **changes},
        )

    return run


@pytest.fixture
def as_delivered() -> Callable[[Gathered], Delivered]:
    def make(gathered: Gathered) -> Delivered:
        context = gathered.context
        return Delivered(
            slot=context["slot"],
            context_id=context["context_id"],
            state=context["semantic_state"],
        )

    return make
