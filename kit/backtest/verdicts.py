"""What each guard said, in a sentence: for the freeze report and for `kit validate`.

Guards are read as `engine.json` holds them. Lookahead and warm-up refuse; the others inform, and
their `ok` only says whether there is reason to look twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

__all__ = ["BLOCKING", "GUARDS", "judged"]

BLOCKING: Final = ("lookahead", "warmup")
_PROBABLE: Final = 0.95  # the level at which such figures are conventionally believed
_RARE: Final = 0.05


def judged(name: str, value: Any) -> tuple[bool, str]:
    """Return whether a guard is content, and what it found.

    Args:
        name: A key of `GUARDS`.
        value: What `engine.json` holds under it; None when it was not run.
    """
    return GUARDS[name](value) if value else (False, "not measured")


def _lookahead(verdict: Mapping[str, Any]) -> tuple[bool, str]:
    if verdict["ok"]:
        return True, f"outputs unchanged on {len(verdict['checked_dates'])} truncations"
    if not verdict["checked_dates"]:
        skipped = "; ".join(verdict["skipped"][:1])
        return False, f"no truncation could be checked: {skipped}"
    if not verdict["findings"]:
        return False, "the result does not outlive one bar of delay"
    leak = verdict["findings"][0]
    said = f"{leak['output']} of {leak['symbol']} changes from {leak['first_bad_date']} on"
    return False, said


def _warmup(verdict: Mapping[str, Any]) -> tuple[bool, str]:
    return verdict["ok"], f"{verdict['needed']} bars needed, {verdict['declared']} declared"


def _costs(costs: Mapping[str, Any]) -> tuple[bool, str]:
    """The result under doubled costs and with a delay, and what could not be filled."""
    doubled, later = (costs[name]["total_return"] for name in ("doubled_costs", "one_bar_later"))
    said = (
        f"return {_percent(costs['as_is']['total_return'])}; {_percent(doubled)} with doubled "
        f"costs, {_percent(later)} one bar later; {_percent(costs['unfilled_share'])} of the "
        "intents unfilled"
    )
    return min(doubled or 0.0, later or 0.0) > 0, said


def _trials(trials: Mapping[str, Any]) -> tuple[bool, str]:
    deflated = trials["deflated_sharpe"]
    said = (
        f"1 of {trials['tried']} tried; deflated Sharpe ratio {_percent(deflated)}: the chance "
        "that it is better than the best of so many lucky ones"
    )
    return deflated is not None and deflated >= _PROBABLE, said


def _folds(folds: Sequence[Mapping[str, Any]]) -> tuple[bool, str]:
    won = sum(fold["total_return"] > 0 for fold in folds)
    worst = min(folds, key=lambda fold: float(fold["total_return"]))
    said = (
        f"gained in {won} of {len(folds)} folds; worst {_percent(worst['total_return'])} from "
        f"{worst['start']} to {worst['end']}"
    )
    return 2 * won > len(folds), said


def _control(control: Mapping[str, Any]) -> tuple[bool, str]:
    said = (
        f"p = {control['p_value']:.3f} against {control['draws']} random ones of the same exposure "
        f"and turnover; Sharpe ratio {control['sharpe']:.2f}, theirs {control['median']:.2f}"
    )
    return control["p_value"] <= _RARE, said


def _percent(value: float | None) -> str:
    return "no value" if value is None else f"{value:.1%}"


GUARDS: Final[Mapping[str, Callable[[Any], tuple[bool, str]]]] = {
    "lookahead": _lookahead,
    "warmup": _warmup,
    "costs": _costs,
    "trials": _trials,
    "folds": _folds,
    "control": _control,
}
"""Guard -> what reads its verdict, in the order in which they are shown."""
