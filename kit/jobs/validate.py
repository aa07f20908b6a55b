"""Validate a bundle: every guard at once, the dear ones too, and how to see a leak for oneself.

Beside what each backtest measures, the lookahead guard cuts a sample of symbols at every date, and
the result is compared with random ones. Nothing is written but the count of the trial.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kit.backtest import BacktestResult
from kit.backtest.control import random_control
from kit.backtest.lookahead import Leak
from kit.backtest.sample import exhaustive_sample, shrunk
from kit.backtest.verdicts import BLOCKING, GUARDS, judged
from kit.clock import Clock
from kit.jobs.backtest import facts_of
from kit.jobs.lock import require_lock
from kit.jobs.study import Study, open_study
from kit.workspace import Workspace

__all__ = ["Validation", "validate"]

_SNIPPET = """\
from kit.jobs.study import open_study
from kit.workspace import Workspace

study = open_study(Workspace.find(), "{ref}", source="{source}")
make_engine = study.bundle.engine
panel = study.panel{select}
"""


@dataclass(frozen=True, kw_only=True)
class Validation:
    """What the guards said of a bundle.

    Attributes:
        ref: `id@version` or `id@draft`.
        guards: Guard -> verdict as `engine.json` writes it; `control` beside them.
        leak: The first leak, or None.
        snippet: A few lines of Python that show it when run in the workspace; empty without one.
    """

    ref: str
    guards: Mapping[str, Any]
    leak: Leak | None = None
    snippet: str = ""

    @property
    def ok(self) -> bool:
        """Whether every guard that refuses is content."""
        return all(self.guards[name]["ok"] for name in BLOCKING)

    def rows(self) -> list[tuple[str, str, str]]:
        """Return guard, `ok`, `refused` or `look twice`, and what it found."""
        found = []
        for name in GUARDS:
            ok, said = judged(name, self.guards.get(name))
            refused = "refused" if name in BLOCKING else "look twice"
            found.append((name, "ok" if ok else refused, said))
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return the shape `kit validate --json` prints."""
        leak = self.leak
        return {
            "ref": self.ref,
            "ok": self.ok,
            "guards": dict(self.guards),
            "leak": leak
            and {
                "output": leak.output,
                "symbol": leak.symbol,
                "first_bad_date": str(leak.first_bad_date),
                "detail": leak.detail,
                "reproduction": self.snippet,
            },
        }


def validate(
    workspace: Workspace,
    ref: str,
    *,
    clock: Clock,
    source: str = "sample",
    progress: Callable[[str], None] = lambda _message: None,
) -> Validation:
    """Run every guard on a draft or a version.

    Args:
        workspace: The workspace.
        ref: `id` (the active version), `id@version` or `id@draft`.
        clock: Gives the trial its time.
        source: Name of the bar source.
        progress: Called with the name of each stage.

    Raises:
        KitError: As `open_study`, `require_lock` and `run_backtest`.
    """
    progress("load")
    study = open_study(workspace, ref, source=source)
    progress("lock")
    require_lock(workspace, study.bundle, clock=clock)
    progress("simulate")
    result = study.inputs.simulate(study.bundle.engine())
    progress("guards")
    guards = facts_of(workspace, study, result, clock=clock)
    verdict = guards.lookahead
    progress("every date of a sample")
    sample = exhaustive_sample(study.bundle.engine, study.panel)
    findings = sorted(
        (*verdict.findings, *sample.findings), key=lambda leak: (leak.first_bad_date, leak.symbol)
    )
    progress("random controls")
    return Validation(
        ref=study.bundle.ref,
        guards=guards.guards()
        | {
            "lookahead": verdict.to_dict()
            | {
                "ok": verdict.ok and sample.ok,
                "checked_dates": sorted(
                    {str(day) for day in (*verdict.checked_dates, *sample.checked_dates)}
                ),
                "findings": [leak.to_dict() for leak in findings],
                "skipped": [*verdict.skipped, *sample.skipped],
            },
            "control": _control(result),
        },
        **(_shown(study, findings[0]) if findings else {}),
    )


def _control(result: BacktestResult) -> dict[str, Any] | None:
    control = random_control(result)
    return None if control is None else control.to_dict()


def _shown(study: Study, leak: Leak) -> dict[str, Any]:
    """Return the leak and a snippet that shows it, on its symbol alone where that is enough."""
    symbols, leak = shrunk(study.bundle.engine, study.panel, leak)
    select = "" if symbols is None else f".select({list(symbols)})"
    head = _SNIPPET.format(ref=study.bundle.ref, source=study.source, select=select)
    return {"leak": leak, "snippet": f"{head}\n{leak.reproduction}"}
