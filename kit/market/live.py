"""A public source as a `BarSource`: what is asked for is fetched into the store, then read from it.

When the source fails, the last good series is served and named in `stale`; a symbol that never came
is absent, as from any source.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta

import polars as pl

from kit.clock import Clock, SystemClock
from kit.errors import DataError
from kit.market.adapters import open_adapter
from kit.market.calendars import calendar
from kit.market.sources import ParquetSource, market_of
from kit.market.store import BarStore
from kit.market.sync import BEGIN, Due, Outcome, Terms, sync
from kit.workspace import Workspace

__all__ = ["LiveSource", "due_sessions"]

_SHOWN = timedelta(days=60)  # far enough back to count how many sessions a tail is behind


class LiveSource(ParquetSource):
    """Daily bars of a source of `config/data.json`, through the workspace's store.

    Args:
        workspace: Whose configuration and store.
        name: The source.
        clock: Time; the newest session wanted is the last one that is over.

    Attributes:
        name: The source's name.
        outcomes: What became of each symbol that was asked for, by symbol.
    """

    def __init__(self, workspace: Workspace, name: str, clock: Clock | None = None) -> None:
        super().__init__(workspace.market_dir)
        self.name = name
        self.outcomes: dict[str, Outcome] = {}
        self._workspace = workspace
        self._clock = clock or SystemClock()
        self._terms = Terms.load(workspace, name)

    @property
    def stale(self) -> tuple[str, ...]:
        """Symbols whose bars are older than they should be, or the last good ones."""
        late = ("stale", "failed", "not_tried")
        return tuple(s for s, outcome in self.outcomes.items() if outcome.status in late)

    def bars(
        self, symbols: Sequence[str], start: date, end: date, interval: str = "1d"
    ) -> pl.LazyFrame:
        """Return bars, fetching first what is missing or old.

        Raises:
            DataError: `data.unknown_interval`; the first failure when nothing at all is held.
        """
        if interval != "1d":
            raise DataError(
                "data.unknown_interval",
                f"{self.name} serves daily bars here, not {interval!r}",
                remedy="import intraday bars: kit data import",
            )
        wanted = [symbol for symbol in dict.fromkeys(symbols) if symbol not in self.outcomes]
        if wanted:
            self._fetch(wanted)
        held = [s for s in symbols if s in self.outcomes and self.outcomes[s].rows]
        missing = [o for s in symbols if (o := self.outcomes.get(s)) is not None and not o.rows]
        if missing and not held:
            raise DataError(
                missing[0].code,
                f"{missing[0].symbol}: {missing[0].message}",
                where=self.name,
                remedy=f"see what happened: kit data sync --market cn --source {self.name}",
            )
        return super().bars(symbols, start, end, interval)

    def _fetch(self, symbols: Sequence[str]) -> None:
        store = BarStore(self._root)
        with open_adapter(self._workspace, self.name, self._terms.options) as adapter:
            for market in dict.fromkeys(market_of(symbol) for symbol in symbols):
                for outcome in sync(
                    adapter,
                    store,
                    [symbol for symbol in symbols if market_of(symbol) == market],
                    market=market,
                    due=due_sessions(self._workspace, market, self._clock),
                    terms=self._terms,
                    clock=self._clock,
                    start=BEGIN,
                    progress=_silent,
                ):
                    self.outcomes[outcome.symbol] = outcome


def _silent(text: str) -> None:
    del text


def due_sessions(workspace: Workspace, market: str, clock: Clock) -> Due:
    """Return up to when there should be bars: the market's last session that is over.

    Beyond the calendar's horizon that is today, and no tail is called stale.
    """
    book = calendar(workspace, market)
    now = clock.now()
    today = now.astimezone(book.tz).date()
    if not book.knows(today):
        return Due(until=today, sessions=())
    days = book.sessions(today - _SHOWN, today)
    over = tuple(day for day in days if (s := book.session(day)) is not None and s.close <= now)
    return Due(until=over[-1], sessions=over)
