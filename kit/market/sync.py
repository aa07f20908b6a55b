"""Bring the store up to date from a source, one symbol at a time, gently and without losing data.

A symbol's series is fetched whole and replaces the stored one only when it passed every check and
holds all that was there: otherwise the last good series stays. What is current is skipped, so an
interrupted sync goes on where it stopped. One host is asked by one command at a time, with a pause;
a source that fails several times in a row is left alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, timedelta
from typing import Any, Final

import polars as pl

from kit import files
from kit.clock import Clock
from kit.errors import DataError, KitError, UsageError
from kit.market.adapters import Adapter
from kit.market.adjusted import with_factors
from kit.market.bars import check_bars
from kit.market.intake import to_bars
from kit.market.store import BarStore, Series
from kit.workspace import Workspace

__all__ = ["BEGIN", "Due", "Outcome", "Terms", "sync"]

BEGIN: Final = date(1990, 12, 19)
"""First day asked for when nobody says otherwise: the first session of the mainland markets."""

_RETRIED: Final = ("source.timeout", "source.rate_limited", "source.failed", "mcp.timeout")
_LISTED: Final = timedelta(days=10)  # a series may begin this much after the day asked for
_PATIENCE: Final = 600.0  # seconds to wait for another command that asks the same host
_LIMITED: Final = ("ratelimit", "too many requests", "429", "每分钟最多访问", "频率", "频次")
_EMPTY: Final = ("PricesMissing", "TzMissing", "TickerMissing")


@dataclass(frozen=True, kw_only=True)
class Terms:
    """How a source is asked.

    Attributes:
        host: Who is asked; the pause is kept between all commands that ask the same one.
        pause_seconds: After each call.
        timeout_seconds: For one call.
        retries: Further attempts where that may help.
        failures_before_stop: Symbols in a row after which a source is left alone.
        deadline_seconds: For all symbols together.
        stale_sessions: Sessions the newest bar may be behind.
        options: What else the source needs to know.
    """

    host: str
    pause_seconds: float
    timeout_seconds: float
    retries: int
    failures_before_stop: int
    deadline_seconds: float
    stale_sessions: int
    options: Mapping[str, Any]

    @classmethod
    def load(cls, workspace: Workspace, source: str) -> Terms:
        """Read the terms of a source from `config/data.json`.

        Raises:
            UsageError: `data.unknown_source`.
            ConfigError: The file is missing or wrong.
        """
        book = workspace.config("data")
        if source not in book["sources"]:
            raise UsageError(
                "data.unknown_source",
                f"there is no source {source!r} to fetch from",
                where="config/data.json",
                remedy=f"sources: {', '.join(book['sources'])}",
            )
        common = {name: book[name] for name in ("deadline_seconds", "stale_sessions")}
        return cls(**book["sources"][source], **common)


@dataclass(frozen=True, kw_only=True)
class Due:
    """Up to when there should be bars.

    Attributes:
        until: The last day wanted.
        sessions: The market's sessions up to it, ascending, a few months of them; empty when the
            calendar does not know.
    """

    until: date
    sessions: tuple[date, ...]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of one symbol.

    Attributes:
        symbol: Its code.
        status: `fetched`, `current` (nothing to do), `stale` (fetched, but it ends too early),
            `failed` (the last good series, if any, stays) or `not_tried`.
        rows: Bars now stored.
        last: Newest bar now stored.
        code: Error code, empty when nothing went wrong.
        message: What went wrong.
    """

    symbol: str
    status: str
    rows: int = 0
    last: date | None = None
    code: str = ""
    message: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {**vars(self), "last": self.last.isoformat() if self.last else None}


def sync(
    adapter: Adapter,
    store: BarStore,
    symbols: Sequence[str],
    *,
    market: str,
    due: Due,
    terms: Terms,
    clock: Clock,
    start: date,
    progress: Callable[[str], None],
) -> Iterator[Outcome]:
    """Fetch daily bars of symbols into the store; yields an outcome as each is done.

    Args:
        adapter: The source.
        store: Where bars go.
        symbols: Whom to fetch.
        market: Their market.
        due: Up to when.
        terms: Pauses and limits.
        clock: Time.
        start: First day wanted.
        progress: Told a line a symbol.
    """
    begun, failures = clock.monotonic(), 0
    held = store.series(market, "1d")
    for place, symbol in enumerate(dict.fromkeys(symbols), start=1):
        had = held.get(symbol)
        if _is_current(had, adapter.name, start, due.until, clock):
            outcome = Outcome(symbol=symbol, status="current")
        elif clock.monotonic() - begun > terms.deadline_seconds:
            said = f"the deadline of {terms.deadline_seconds:g} s passed"
            outcome = _not_tried(symbol, "source.deadline", said)
        elif failures >= terms.failures_before_stop:
            said = f"{adapter.name} failed {failures} times in a row and is left alone"
            outcome = _not_tried(symbol, "source.stopped", said)
        else:
            outcome = _fetch(adapter, store, symbol, had, market, start, due, terms, clock)
            failures = failures + 1 if outcome.status == "failed" else 0
        if outcome.last is None and had is not None:
            outcome = replace(outcome, rows=had.rows, last=had.last.date())
        said = ", ".join(text for text in (outcome.status, outcome.message) if text)
        progress(f"{place}/{len(symbols)} {symbol}: {said}")
        yield outcome


def _is_current(had: Series | None, source: str, start: date, target: date, clock: Clock) -> bool:
    if had is None or had.source.removeprefix("synthetic via ").split(" ")[0] != source:
        return False
    today = had.as_of is not None and had.as_of.date() == clock.now().date()
    return had.last.date() >= target and (had.first.date() <= start + _LISTED or today)


def _not_tried(symbol: str, code: str, message: str) -> Outcome:
    return Outcome(symbol=symbol, status="not_tried", code=code, message=message)


def _fetch(
    adapter: Adapter,
    store: BarStore,
    symbol: str,
    had: Series | None,
    market: str,
    start: date,
    due: Due,
    terms: Terms,
    clock: Clock,
) -> Outcome:
    try:
        bars = _ask(adapter, store, symbol, market, (start, due.until), terms, clock)
        if had is not None:
            _refuse_shrunk(store.read(market, "1d", symbol), bars, start)
        store.write(market, "1d", bars)
    except KitError as error:
        return Outcome(symbol=symbol, status="failed", code=error.code, message=str(error))
    last: date = bars.get_column("time").to_list()[-1].date()
    behind = sum(session > last for session in due.sessions)
    done = Outcome(symbol=symbol, status="fetched", rows=len(bars), last=last)
    if behind <= terms.stale_sessions:
        return done
    return replace(
        done,
        status="stale",
        code="source.stale",
        message=f"its last bar is {last}, {behind} sessions or more before {due.until}",
    )


def _ask(
    adapter: Adapter,
    store: BarStore,
    symbol: str,
    market: str,
    span: tuple[date, date],
    terms: Terms,
    clock: Clock,
) -> pl.DataFrame:
    """Ask for one symbol, again where that may help, and bring the answer to our columns."""
    from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential

    hosts = store.root / ".hosts"
    files.make_dir(hosts)
    door = hosts / f"{files.sha256_bytes(terms.host.encode())[:12]}.lock"

    def once() -> pl.DataFrame:
        # Held through the pause: all commands on this machine together keep the rate.
        with files.lock(door, timeout=_PATIENCE):
            raw = _bounded(lambda: adapter.fetch(symbol, *span), terms.timeout_seconds)
            clock.sleep(terms.pause_seconds)
        bars = to_bars(
            raw.rows,
            raw.mapping,
            market=market,
            source=raw.source,
            as_of=clock.now().astimezone(UTC).replace(tzinfo=None),
            symbol=symbol,
            where=adapter.name,
        )
        others = set(bars.get_column("symbol").unique()) - {symbol}
        if others:
            raise DataError(
                "source.failed",
                f"asked for {symbol}, it answered with {', '.join(sorted(others))}",
                where=adapter.name,
            )
        bars = bars if raw.factors is None else with_factors(bars, raw.factors)
        bars = bars.filter(pl.col("time").dt.date().is_between(*span))
        check_bars(bars, where=adapter.name)
        return bars

    retrying = Retrying(
        stop=stop_after_attempt(terms.retries + 1),
        wait=wait_exponential(multiplier=max(terms.pause_seconds, 0.5), max=60),
        retry=retry_if_exception(lambda e: isinstance(e, KitError) and e.code in _RETRIED),
        sleep=clock.sleep,
        reraise=True,
    )
    found: pl.DataFrame = retrying(once)
    return found


def _bounded(call: Callable[[], Any], seconds: float) -> Any:
    """Run a library's call with a time limit, and name what goes wrong in it.

    A call that hangs is left behind in a thread that does not keep the process alive.
    """
    box: list[Any] = []

    def run() -> None:
        try:
            box.append((call(), None))
        except Exception as error:  # noqa: BLE001 - a library may raise anything; it is named below
            box.append((None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if not box:
        raise DataError(
            "source.timeout",
            f"no answer within {seconds:g} s",
            remedy="try later; sources.*.timeout_seconds in config/data.json sets the limit",
        )
    answer, error = box[0]
    if error is None:
        return answer
    raise error if isinstance(error, KitError) else _named(error) from error


def _named(error: Exception) -> DataError:
    """Turn what a library raised into a failure with a name."""
    kind, said = type(error).__name__, str(error)
    text = f"{kind}: {said}"
    if any(word in text.lower() for word in _LIMITED):
        return DataError("source.rate_limited", text, remedy="ask less often: pause_seconds")
    if any(word in kind for word in _EMPTY):
        return DataError("data.no_bars", text, remedy="check the symbol and the dates")
    if "timeout" in kind.lower() or isinstance(error, TimeoutError):
        return DataError("source.timeout", text, remedy="try later")
    return DataError("source.failed", text, remedy="try later, or use another source")


def _refuse_shrunk(old: pl.DataFrame, new: pl.DataFrame, start: date) -> None:
    """Keep the last good series when the new one lacks bars that it holds."""
    times = old.filter(pl.col("time").dt.date() >= start).get_column("time")
    lost = times.filter(~times.is_in(new.get_column("time").implode()))
    if len(lost):
        raise DataError(
            "source.shrunk",
            f"the answer lacks {len(lost)} stored bars, from {lost.to_list()[0]:%Y-%m-%d} on",
            remedy="the stored series stays; to begin anew, import it again",
        )
