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

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from kit.backtest.cuts import active, choose_cuts, spread
from kit.backtest.views import (
    TOLERANCE,
    Panel,
    View,
    ask_screen,
    ask_weights,
    differ,
    differing_bars,
)
from kit.errors import GuardError

if TYPE_CHECKING:
    from kit.bundle import SignalEngine

__all__ = ["Leak", "LookaheadVerdict", "check_lookahead"]

# What the default check may cost is more on a small panel, where a backtest is not dear either.
_LARGE: Final = 100_000  # bars
_RUNS: Final = (12.0, 5.0)  # for the cuts, in runs over the whole panel: small, large
_OTHER_RUNS: Final = 1.0  # and for those of the form that backtests do not ask
_SCREENS: Final = (4, 2)  # dates to screen
_REANCHORED: Final = 2


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

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, dates as ISO text."""
        days = {"first_bad_date": str(self.first_bad_date), "cut_date": str(self.cut_date)}
        return asdict(self) | days


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

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, dates as ISO text."""
        return {
            "ok": self.ok,
            "checked_dates": [day.isoformat() for day in self.checked_dates],
            "findings": [leak.to_dict() for leak in self.findings],
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

    By default all of it costs less than ten backtests: some cuts are evenly spread, the others
    fall where weights change, the largest changes first, for a rare rule acts there. The form that
    backtests ask gets most of them; lint proves that the other one agrees with it.

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
    engine = make_engine()
    vectorised = view.panel is panel and hasattr(panel, "upto")
    forms, names = (
        [
            name
            for name in (f"{verb}_panel", plain)
            if callable(getattr(engine, name, None)) and (vectorised or name == plain)
        ]
        for verb, plain in (("generate", "generate"), ("screen", "screen_today"))
    )
    full = {name: ask_weights(make_engine(), name, view.whole()) for name in forms}
    audit = _Audit(make_engine, view, full)
    again = ask_weights(make_engine(), forms[0], view.whole())
    audit.compare(forms[0], again, view.sessions[-1], view.panel, kind="repeat")
    every, large = exhaustive or dates is not None, view.rows > _LARGE
    cuts = choose_cuts(view, full[forms[0]], dates, exhaustive=exhaustive, runs=_RUNS[large])
    for day in cuts:
        audit.weights(forms[0], day)
    for name in forms[1:]:
        fewer = choose_cuts(view, full[name], dates, exhaustive=exhaustive, runs=_OTHER_RUNS)
        for day in fewer:
            audit.weights(name, day)
    if view.levels_move():
        for day in spread(cuts, _REANCHORED):
            audit.weights(forms[0], day, reanchor=True)
    if screen:
        for day in cuts if every else active(cuts, full[forms[0]], _SCREENS[large]):
            audit.screens(names, day)
    return audit.verdict(cuts)


class _Audit:
    """Runs on cut panels, and what came of them."""

    def __init__(
        self,
        make_engine: Callable[[], Any],
        view: View,
        full: dict[str, dict[str, pd.Series]],
    ) -> None:
        self._make = make_engine
        self._view = view
        self._full = full
        self._leaks: dict[tuple[str, str], Leak] = {}
        self._skipped: list[str] = []
        self._failed: set[date] = set()

    def weights(self, name: str, day: date, *, reanchor: bool = False) -> None:
        """Ask a form on the bars up to a day, and compare."""
        cut = self._view.upto(day, reanchor=reanchor)
        try:
            part = ask_weights(self._make(), name, cut)
        except GuardError as error:
            self._skip(day, error)
            return
        self.compare(name, part, day, cut, kind="levels" if reanchor else "")

    def compare(
        self, name: str, part: dict[str, pd.Series], day: date, cut: Panel, *, kind: str = ""
    ) -> None:
        """Note the first bar of each symbol at which two runs differ."""
        full = self._full[name]
        end = pd.Timestamp(day) + pd.Timedelta(days=1)
        for symbol in cut:
            # A leak shows whatever the prices are anchored at, and is told once.
            if kind == "levels" and (name, symbol) in self._leaks:
                continue
            bad = differing_bars(full.get(symbol), part.get(symbol), end, TOLERANCE)
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
        "# panel: a MarketPanel; make_engine: gives a new engine",
    ]
    for label, what in (("full", "panel"), ("part", again)):
        if name.startswith("screen"):
            ask = f"make_engine().{name}({what}, {cut}.date(), None, len(panel))"
            lines.append(f'{label} = [p for p in {ask} if p.symbol == "{symbol}"]')
        else:
            shown = f"dict({what})" if name == "generate" else what
            ask = f'make_engine().{name}({shown})["{symbol}"]'
            lines.append(f'{label} = {ask}.get(pd.Timestamp("{stamp}"))')
    return "\n".join([*lines, "print(full, part)"])
