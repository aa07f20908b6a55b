"""What a step before the screen may look at beside the universe: moves abroad, and the news."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Final

from kit.clock import iso
from kit.degradation import ReportBuilder
from kit.screen.wording import time_text
from kit.text import clip, one_line

if TYPE_CHECKING:
    import pandas as pd

    from kit.market import MarketPanel
    from kit.market.context import ContextLag

__all__ = ["context_moves", "news_items", "news_line", "news_of", "news_summary", "tell_context"]

_LONGER: Final = 5  # sessions of the longer of the two moves that are shown
_MAX_ITEMS: Final = 40
_MAX_SYMBOL: Final = 20
_MAX_SYMBOLS: Final = 20
_MAX_TITLE: Final = 80
_MAX_SUMMARY: Final = 300


def context_moves(panel: MarketPanel | None, day: date) -> list[dict[str, Any]]:
    """Return the moves of the panel's context that became known with a session.

    Args:
        panel: The screened panel, up to the session.
        day: The session; a series without a bar dated to it has nothing new, and is left out.

    Returns:
        {symbol, name, change_pct, change_5_pct} a series; a change is null without enough bars.
    """
    if panel is None or panel.context is None:
        return []
    moves = []
    for symbol in panel.context:
        close = panel[symbol]["close"]
        if close.index[-1].date() != day:
            continue
        security = panel.context.securities.get(symbol)
        moves.append(
            {
                "symbol": symbol,
                "name": security.name if security else symbol,
                "change_pct": _change(close, 1),
                f"change_{_LONGER}_pct": _change(close, _LONGER),
            }
        )
    return moves


def _change(close: pd.Series, bars: int) -> float | None:
    if len(close) <= bars:
        return None
    return round((float(close.iloc[-1]) / float(close.iloc[-1 - bars]) - 1) * 100, 2)


def news_items(
    found: Iterable[tuple[datetime, Sequence[str], str, str]],
) -> list[dict[str, Any]]:
    """Return news as steps are given it: bounded, on one line each, the newest of too many.

    Args:
        found: Time of publication, symbols, title and summary of each item, oldest first.

    Returns:
        {published_at, symbols, title, summary}, oldest first.
    """
    return [
        {
            "published_at": iso(at),
            "symbols": [clip(one_line(symbol), _MAX_SYMBOL) for symbol in symbols[:_MAX_SYMBOLS]],
            "title": clip(one_line(title), _MAX_TITLE),
            "summary": clip(one_line(summary), _MAX_SUMMARY),
        }
        for at, symbols, title, summary in [*found][-_MAX_ITEMS:]
    ]


def news_line(account: Mapping[str, Any]) -> str:
    """Write for a card what became of the news (zh-CN): fetched or not, found, left aside.

    Args:
        account: {status, count, undated, left_out, source, synthetic}.
    """
    if account["status"] == "not_fetched":
        return "新闻：未获取"
    parts = [f"取到 {account['count']} 条" if account["count"] else "窗口内没有"]
    if account["left_out"]:
        parts.append(f"略去 {account['left_out']} 条")
    if account["undated"]:
        parts.append(f"无日期不采用 {account['undated']} 条")
    tail = f"（{account['source']}{'，合成数据' if account['synthetic'] else ''}）"
    return f"新闻：{'，'.join(parts)}{tail}"


def news_summary(window: Mapping[str, Any]) -> str:
    """Return a news window as text, one item a line; empty when there is none."""
    return "\n".join(
        f"{item['published_at'][:10]} {'、'.join(item['symbols'])} {item['summary']}"
        for item in window.get("items", ())
    )


def news_of(window: Mapping[str, Any], symbol: str) -> dict[str, Any]:
    """Return the titles and times of a window's items that concern one stock; {} for none."""
    found = [
        {"published_at": item["published_at"], "title": item["title"]}
        for item in window.get("items", ())
        if symbol in item["symbols"]
    ]
    return {"start": window["start"], "end": window["end"], "items": found} if found else {}


def tell_context(report: ReportBuilder, lags: Iterable[ContextLag]) -> None:
    """Record series of other markets that lack sessions which were over before the open."""
    allowed = report.policy.rule("data_freshness_violation").params.get("max_lag_minutes", 0)
    for lag in lags:
        if lag.minutes > allowed:
            report.add(
                "data_freshness_violation",
                lag_minutes=lag.minutes,
                max_lag_minutes=allowed,
                data_time=f"{time_text(lag.data_time)}（{'、'.join(lag.symbols)}）",
                expected_time=time_text(lag.expected_time),
            )
