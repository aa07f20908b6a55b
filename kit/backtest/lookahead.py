"""Prove that signals do not use the future: cut the data, ask again, compare.

**Prefix invariance.** What an engine said about a bar must not change when later bars arrive. A
fresh engine is run on everything up to a cut date, and each of its weights is compared with the
run on the whole panel; screens are compared the same way. A difference is a leak, whatever its
cause, and many leaks do not even make a backtest look better, so results are no substitute.

What it cannot see: a leak that never changes an output at the dates checked (a one-bar leak shows
only when the cut falls on its bar; by default cuts fall where weights change, and `exhaustive`
checks every date), data that was itself revised after the fact, and fills at prices that had
passed when the signal was known. The last is what `delay_test` is for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from kit.backtest.views import (
    TOLERANCE,
    Panel,
    View,
    ask_screen,
    ask_weights,
    bars_of,
    differ,
    differing_rows,
)
from kit.errors import GuardError, UsageError

if TYPE_CHECKING:
    from kit.bundle import SignalEngine

__all__ = ["DelayTest", "Leak", "LookaheadVerdict", "check_lookahead", "delay_test"]

_RUNS: Final = 10.0  # what the default check may cost, in runs over the whole panel
_SMALL: Final = 200_000  # bars that may always be computed: small panels get more cuts
_MOST: Final = 60  # cuts, at most, by default
_EVEN: Final = 8  # of which this many are spread evenly, wherever weights change
_SCREENS: Final = 12
_REANCHORED: Final = 4


@dataclass(frozen=True, kw_only=True)
class Leak:
    """One output of one symbol that changed when later bars arrived.

    Attributes:
        output: `generate`, `generate_panel`, `screen_today` or `screen_panel`; with `(levels)`
            when only the anchor of forward-adjusted prices moved, with `(repeat)` when two runs
            over the same bars differ.
        symbol: The symbol.
        first_bad_date: First bar whose output changed, of all the cuts.
        cut_date: Last date the engine was shown when that bar came out differently.
        detail: What it said with and without the later bars.
        reproduction: A few lines of Python, given `make_engine` and `panel`, that show it.
    """

    output: str
    symbol: str
    first_bad_date: date
    cut_date: date
    detail: str
    reproduction: str


@dataclass(frozen=True, kw_only=True)
class DelayTest:
    """The result with orders as they are, and one bar later.

    Attributes:
        immediate: The figure as run.
        delayed: The figure with every order one bar later.
        collapsed: Whether the first is too good and does not outlive a bar.
    """

    immediate: float
    delayed: float
    collapsed: bool

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class LookaheadVerdict:
    """What the check found.

    Attributes:
        ok: No leak, at least one date checked, and no collapse under delay.
        checked_dates: Cut dates, ascending.
        findings: One `Leak` per output and symbol, earliest bar first.
        skipped: Cuts at which the engine raised, with what it raised (often too short a history).
        one_bar_delay: `DelayTest.to_dict()`, None when not run.
    """

    ok: bool
    checked_dates: tuple[date, ...]
    findings: tuple[Leak, ...]
    skipped: tuple[str, ...] = ()
    one_bar_delay: dict[str, Any] | None = None

    def with_delay(self, test: DelayTest) -> LookaheadVerdict:
        """Return the verdict with a delay test that counts as well."""
        return replace(self, ok=self.ok and not test.collapsed, one_bar_delay=test.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, dates as ISO text."""
        leaks = [
            asdict(leak)
            | {
                "first_bad_date": leak.first_bad_date.isoformat(),
                "cut_date": leak.cut_date.isoformat(),
            }
            for leak in self.findings
        ]
        return {
            "ok": self.ok,
            "checked_dates": [day.isoformat() for day in self.checked_dates],
            "findings": leaks,
            "skipped": list(self.skipped),
            "one_bar_delay": self.one_bar_delay,
        }


def check_lookahead(
    make_engine: Callable[[], SignalEngine],
    panel: Panel,
    *,
    dates: Sequence[date] | None = None,
    exhaustive: bool = False,
    screen: bool = True,
) -> LookaheadVerdict:
    """Compare what an engine says on cut panels with what it says on the whole.

    By default the cuts cost about ten runs over the whole panel (more on small panels, where a run
    is cheap): some evenly spread, the others where weights change, the largest changes first, for
    a rare rule acts there. The choice depends on the data and the code alone.

    Args:
        make_engine: Gives a new engine; each run gets its own.
        panel: A `MarketPanel`, or frames by symbol. `generate_panel` and `screen_panel` are
            checked when the engine has them and the panel is a `MarketPanel`.
        dates: Cut at these dates instead.
        exhaustive: Cut at every date, and screen on every date.
        screen: Compare screens too.

    Raises:
        GuardError: `lookahead.engine_failed` when the engine fails on the whole panel.
        UsageError: `lookahead.bad_dates`.
    """
    view = View(panel)
    vectorised = view.panel is panel and hasattr(panel, "upto")
    forms = ["generate"]
    if vectorised and callable(getattr(make_engine(), "generate_panel", None)):
        forms.append("generate_panel")
    full = {name: ask_weights(make_engine(), name, view.whole()) for name in forms}
    audit = _Audit(make_engine, view)
    for name in forms:
        again = ask_weights(make_engine(), name, view.whole())
        audit.compare(name, full[name], again, view.sessions[-1], view.panel, kind="repeat")
    cuts = _cuts(view, full["generate"], dates, exhaustive=exhaustive)
    for day in cuts:
        audit.weights(full, day)
    if view.levels_move():
        for day in _spread(cuts, _REANCHORED):
            audit.weights(full, day, reanchor=True)
    if screen:
        engine = make_engine()
        names = ["screen_today"] if callable(getattr(engine, "screen_today", None)) else []
        if vectorised and callable(getattr(engine, "screen_panel", None)):
            names.append("screen_panel")
        chosen = cuts if exhaustive or dates else _active(cuts, full["generate"])
        for day in chosen:
            audit.screens(names, day)
    return audit.verdict(cuts)


def delay_test(run: Callable[[int], float], *, floor: float = 3.0, keep: float = 0.5) -> DelayTest:
    """Run a backtest as it is and with orders one bar later, and compare.

    Filling at the close a signal was computed from (or at an open before it) gains from knowing
    the bar in advance; one bar later, nothing of that is left. No comparison of signals can see
    it, for the signals are clean.

    Limits: it proves nothing. A real edge of one day collapses too, and is then worth a look; a
    leak that reaches further than a bar survives the delay, and one that loses money never seems
    too good. The thresholds are a convention: an annual Sharpe ratio above 3 that more than halves.

    Args:
        run: Gives the annual Sharpe ratio for a delay of 0 or 1 bars.
        floor: Figures up to here are never suspicious.
        keep: Share of the figure that must be left.
    """
    immediate, delayed = float(run(0)), float(run(1))
    collapsed = immediate > floor and not delayed >= keep * immediate
    return DelayTest(immediate=immediate, delayed=delayed, collapsed=collapsed)


class _Audit:
    """Runs on cut panels, and what came of them."""

    def __init__(self, make_engine: Callable[[], Any], view: View) -> None:
        self._make = make_engine
        self._view = view
        self._leaks: dict[tuple[str, str], Leak] = {}
        self._skipped: list[str] = []
        self._failed: set[date] = set()

    def weights(
        self, full: dict[str, dict[str, pd.Series]], day: date, *, reanchor: bool = False
    ) -> None:
        """Run every form on the bars up to a day, and compare."""
        for name, weights in full.items():
            cut = self._view.upto(day, reanchor=reanchor)
            try:
                part = ask_weights(self._make(), name, cut)
            except GuardError as error:
                self._skip(day, error)
                continue
            self.compare(name, weights, part, day, cut, kind="levels" if reanchor else "")

    def compare(
        self,
        name: str,
        full: dict[str, pd.Series],
        part: dict[str, pd.Series],
        day: date,
        cut: Panel,
        *,
        kind: str = "",
    ) -> None:
        """Note the first bar of each symbol at which two runs differ."""
        for symbol in cut:
            # A leak shows whatever the prices are anchored at, and is told once.
            if kind == "levels" and (name, symbol) in self._leaks:
                continue
            index = bars_of(full.get(symbol), part.get(symbol))
            index = index[index < pd.Timestamp(day) + pd.Timedelta(days=1)]
            bad = differing_rows(full.get(symbol), part.get(symbol), index, TOLERANCE)
            if not len(bad):
                continue
            stamp = bad[0]
            with_later, without = _at(full.get(symbol), stamp), _at(part.get(symbol), stamp)
            said = {
                "": f"weight {with_later} with the bars after {day}, {without} without them",
                "repeat": f"weight {with_later}, and {without} in a second run on the same bars",
                "levels": f"weight {with_later} with prices adjusted as of the end of the panel, "
                f"{without} as of {day}: the rule depends on the price level",
            }[kind]
            self._note(name, symbol, stamp, day, said, kind)

    def screens(self, names: Sequence[str], day: date) -> None:
        """Screen one date with and without the bars after it."""
        limit = len(self._view.panel)
        for name in names:
            try:
                full = ask_screen(self._make(), name, self._view.whole(), day, limit)
                part = ask_screen(self._make(), name, self._view.upto(day), day, limit)
            except GuardError as error:
                self._skip(day, error)
                continue
            found = differ(full, part, TOLERANCE)
            if found:
                self._note(name, found[0], pd.Timestamp(day), day, found[1], "")

    def _skip(self, day: date, error: GuardError) -> None:
        self._failed.add(day)
        self._skipped.append(f"{day}: {error.message}")

    def _note(
        self, name: str, symbol: str, stamp: pd.Timestamp, day: date, said: str, kind: str
    ) -> None:
        output = f"{name} ({kind})" if kind else name
        known = self._leaks.get((output, symbol))
        if known is not None and known.first_bad_date <= stamp.date():
            return
        self._leaks[output, symbol] = Leak(
            output=output,
            symbol=symbol,
            first_bad_date=stamp.date(),
            cut_date=day,
            detail=said,
            reproduction=_reproduction(name, symbol, stamp, day, kind),
        )

    def verdict(self, cuts: Sequence[date]) -> LookaheadVerdict:
        checked = tuple(day for day in cuts if day not in self._failed)
        leaks = sorted(
            self._leaks.values(), key=lambda leak: (leak.first_bad_date, leak.output, leak.symbol)
        )
        return LookaheadVerdict(
            ok=bool(checked) and not leaks,
            checked_dates=checked,
            findings=tuple(leaks),
            skipped=tuple(self._skipped),
        )


def _at(series: pd.Series | None, stamp: pd.Timestamp) -> str:
    if series is None or stamp not in series.index:
        return "nothing"
    return f"{float(np.atleast_1d(np.asarray(series.loc[stamp]))[-1]):.10g}"


def _reproduction(name: str, symbol: str, stamp: pd.Timestamp, day: date, kind: str) -> str:
    cut = f'pd.Timestamp("{day}")'
    again = {
        "": f"panel.upto({cut}.date())",
        "levels": f"panel.upto({cut}.date(), reanchor=True)",
        "repeat": "panel",
    }[kind]
    lines = [
        "import pandas as pd",
        "# panel: a MarketPanel; with plain frames, cut each one with frame.loc[:day]",
    ]
    for label, what in (("full", "panel"), ("part", again)):
        if name.startswith("screen"):
            ask = f"make_engine().{name}({what}, {cut}.date(), None, len(panel))"
            lines.append(f'{label} = [p for p in {ask} if p.symbol == "{symbol}"]')
        else:
            ask = f'make_engine().{name}({what})["{symbol}"]'
            lines.append(f'{label} = {ask}.get(pd.Timestamp("{stamp}"))')
    return "\n".join([*lines, "print(full, part)"])


def _cuts(
    view: View,
    weights: dict[str, pd.Series],
    dates: Iterable[date] | None,
    *,
    exhaustive: bool,
) -> list[date]:
    """Choose the dates to cut at."""
    sessions = view.sessions
    if dates is not None:
        wanted = sorted({day for day in dates if sessions[0] <= day <= sessions[-1]})
        if not wanted:
            raise UsageError(
                "lookahead.bad_dates",
                "none of the dates to check lies inside the panel",
                remedy=f"the panel runs from {sessions[0]} to {sessions[-1]}",
            )
        return wanted
    if exhaustive:
        return sessions
    # The last date of all is no cut: nothing comes after it.
    open_to_doubt = sessions[:-1] or sessions
    size = len(open_to_doubt)
    places = [round((k + 1) * size / (_EVEN + 1)) - 1 for k in range(_EVEN)]
    chosen = dict.fromkeys(place for place in places if place >= 0)
    budget = max(_RUNS, _SMALL / max(view.rows, 1)) - sum((p + 1) / size for p in chosen)
    for place in _interesting(weights, open_to_doubt):
        cost = (place + 1) / size
        if place in chosen or cost > budget:
            continue
        if len(chosen) >= _MOST:
            break
        chosen[place] = None
        budget -= cost
    return [open_to_doubt[place] for place in sorted(chosen)] or sessions


def _interesting(weights: dict[str, pd.Series], sessions: Sequence[date]) -> list[int]:
    """Order sessions by how much they promise: where a rare or a large change of weights is.

    Half of the list goes by the size of the change, half is a spread over all changes; they are
    interleaved, so that whatever part of it is used holds both.
    """
    index = pd.DatetimeIndex(list(sessions))
    moved = np.zeros(len(index))
    for series in weights.values():
        steps = series.fillna(0.0).diff().abs()
        # A rule that stood still for long before it moved is the rarer one.
        rare = 1 / max(int((steps > TOLERANCE).sum()), 1)
        days = pd.DatetimeIndex(series.index).normalize()
        by_day = steps.fillna(0.0).groupby(days).max().reindex(index).fillna(0.0)
        moved += by_day.to_numpy() * rare
    changes = np.flatnonzero(moved > 0)
    largest = [int(place) for place in changes[np.argsort(-moved[changes], kind="stable")]]
    halves = _halving(len(changes))
    spread = [int(changes[place]) for place in halves]
    mixed = [place for pair in zip(largest, spread, strict=True) for place in pair]
    # Where nothing changes there is still the plain grid, finer and finer.
    return list(dict.fromkeys([*mixed, *_halving(len(sessions))]))


def _halving(count: int) -> list[int]:
    """Return 0 .. count - 1 so that every beginning of the list is spread over the whole."""
    found: dict[int, None] = {}
    parts = 2
    while len(found) < count:
        for k in range(1, parts, 2):
            found.setdefault(k * count // parts)
        if parts > count:
            found |= dict.fromkeys(place for place in range(count) if place not in found)
        parts *= 2
    return list(found)


def _spread(cuts: Sequence[date], count: int) -> list[date]:
    """Return at most `count` dates spread over the cuts."""
    places = np.unique(np.linspace(0, len(cuts) - 1, min(count, len(cuts))).round().astype(int))
    return [cuts[int(place)] for place in places]


def _active(cuts: Sequence[date], weights: dict[str, pd.Series]) -> list[date]:
    """Return dates to screen: those with a weight first, for a screen probably picks there."""
    held: set[date] = set()
    for series in weights.values():
        held.update(stamp.date() for stamp in series.index[series.fillna(0.0) != 0.0])
    busy = _spread([day for day in cuts if day in held], _SCREENS * 2 // 3)
    others = [day for day in cuts if day not in busy]
    return sorted([*busy, *_spread(others, _SCREENS - len(busy))]) if others else busy
