"""Who may be picked on a date: asked for, got, dropped, and why.

Nothing shrinks silently: every symbol asked for is either got or dropped with a reason in Chinese
that reports and cards print as it is.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Final

import polars as pl

from kit.errors import DataError
from kit.market.bars import collect
from kit.market.sources import BarSource, Security

__all__ = ["Dropped", "Universe", "resolve_universe"]

_SURVIVORSHIP: Final = "股票池按当前名单回看，没有历史成分，存在幸存者偏差"
_KINDS: Final = ("sample", "all")
_KEYS: Final = ("kind", "symbols", "boards", "industries")


@dataclass(frozen=True, kw_only=True)
class Dropped:
    """A symbol that was asked for and is not in the universe.

    Attributes:
        symbol: Its code.
        name: Its name, empty when the source does not know it.
        reason: Why, in Chinese.
    """

    symbol: str
    name: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Universe:
    """The answer to "which symbols".

    Attributes:
        asked: Every symbol the selector meant, in order.
        got: Those that can be used, as securities, in order.
        dropped: The others.
        note: What the reader should know about the list, in Chinese.
    """

    asked: tuple[str, ...]
    got: tuple[Security, ...]
    dropped: tuple[Dropped, ...]
    note: str

    @property
    def symbols(self) -> tuple[str, ...]:
        """Codes of `got`."""
        return tuple(security.symbol for security in self.got)

    def to_dict(self) -> dict[str, Any]:
        """Return counts and drops as JSON."""
        return {
            "asked": len(self.asked),
            "got": len(self.got),
            "dropped": [
                {"symbol": d.symbol, "name": d.name, "reason": d.reason} for d in self.dropped
            ],
            "note": self.note,
        }


def resolve_universe(
    source: BarSource,
    market: str,
    selector: Mapping[str, Any],
    on: date,
    *,
    since: date | None = None,
    interval: str = "1d",
) -> Universe:
    """Resolve a selector on a date.

    A symbol is got when the source knows it, it is not an index, it was listed by `on`, and it has
    a bar on the market's last session at or before `on` (with `since`: any bar from then
    to `on`).

    Args:
        source: Where securities and bars come from.
        market: Market of the symbols.
        selector: `{"kind": "sample"}` or `{"kind": "all"}` for all of the market, `{"symbols":
            [...]}` for a list; `boards` and `industries` narrow either.
        on: The date.
        since: First date of a backtest window; leave out for a screen.
        interval: Spacing of the bars that count.

    Raises:
        DataError: `market.bad_selector` for a selector that is not understood, `data.no_bars`
            when the source has nothing of the market by then.
    """
    _check(selector)
    known = {security.symbol: security for security in source.securities(market)}
    asked = _asked(selector, known)
    if not known:
        raise DataError(
            "data.no_bars",
            f"source {source.name} knows no security of market {market!r}",
            remedy="choose another market or source",
        )
    seen, newest = _seen(source, list(known), on, interval)
    if newest is None:
        raise DataError(
            "data.no_bars",
            f"source {source.name} has no {interval} bar of market {market!r} up to {on}",
            remedy=f"it begins on {source.coverage(market, interval).first}",
        )
    got: list[Security] = []
    dropped: list[Dropped] = []
    for symbol in asked:
        security = known.get(symbol)
        if security is None:
            dropped.append(Dropped(symbol=symbol, name="", reason=_unknown(symbol, known)))
            continue
        last = seen.get(symbol)
        reason = _reason(security, on) or _no_bar(last, since or newest, since, on)
        if reason:
            dropped.append(Dropped(symbol=symbol, name=security.name, reason=reason))
        else:
            got.append(security)
    note = _SURVIVORSHIP if "symbols" not in selector else f"指定名单；{_SURVIVORSHIP}"
    return Universe(asked=asked, got=tuple(got), dropped=tuple(dropped), note=note)


def _check(selector: Mapping[str, Any]) -> None:
    problem, hint = "", ""
    for key in selector:
        if key not in _KEYS:
            near = difflib.get_close_matches(key, _KEYS, 1)
            problem, hint = f"{key!r} is not a part of a selector", f"{near[0]}?" if near else ""
    if not problem and not selector:
        problem = "it is empty"
    elif not problem and selector.get("kind", "all") not in _KINDS:
        near = difflib.get_close_matches(str(selector["kind"]), _KINDS, 1)
        problem = f"kind {selector['kind']!r} is not one of {', '.join(_KINDS)}"
        hint = f"{near[0]}?" if near else ""
    for key in ("symbols", "boards", "industries"):
        value = selector.get(key)
        if value is not None and (
            isinstance(value, str) or not isinstance(value, Sequence) or not value
        ):
            problem = f"{key} must be a list that is not empty"
    if problem:
        raise DataError(
            "market.bad_selector",
            f"the universe selector is wrong: {problem}",
            where="universe",
            remedy=(f"did you mean {hint} " if hint else "")
            + 'write {"kind": "sample"}, {"symbols": [...]} or {"boards": [...]}',
        )


def _asked(selector: Mapping[str, Any], known: Mapping[str, Security]) -> tuple[str, ...]:
    """Return what the selector means; a market-wide one means no index in the first place."""
    named = selector.get("symbols")
    if named is None:
        pool = [symbol for symbol, security in known.items() if security.kind != "index"]
    else:
        pool = list(dict.fromkeys(str(symbol) for symbol in named))

    def fits(symbol: str) -> bool:
        security = known.get(symbol)
        if security is None:
            return True
        boards, industries = selector.get("boards"), selector.get("industries")
        return (boards is None or security.board in boards) and (
            industries is None or security.industry in industries
        )

    return tuple(symbol for symbol in pool if fits(symbol))


def _seen(
    source: BarSource, symbols: list[str], on: date, interval: str
) -> tuple[dict[str, date], date | None]:
    """Return each symbol's last bar date at or before `on`, and the newest of all."""
    bars = source.bars(symbols, date.min, on, interval)
    last = collect(bars.group_by("symbol").agg(pl.col("time").max()))
    times: list[datetime] = last["time"].to_list()
    seen = dict(zip(last["symbol"].to_list(), (t.date() for t in times), strict=True))
    return seen, max(seen.values(), default=None)


def _reason(security: Security, on: date) -> str:
    if security.kind == "index":
        return "指数不是可选标的"
    if security.listed_date is not None and security.listed_date > on:
        return f"{on} 尚未上市（{security.listed_date} 上市）"
    return ""


def _no_bar(last: date | None, needed: date, since: date | None, on: date) -> str:
    if last is None:
        return f"截至 {on} 没有行情"
    if last < needed:
        span = f"{since} 至 {on}" if since else str(needed)
        return f"{span} 没有行情（最后一根 {last}）"
    return ""


def _unknown(symbol: str, known: Mapping[str, Security]) -> str:
    near = difflib.get_close_matches(symbol, list(known), 1)
    return "数据源没有该代码" + (f"，是否为 {near[0]}" if near else "")
