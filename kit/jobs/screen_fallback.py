"""The card of a screen whose notebook did not reach its end, from whatever it left."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import date
from pathlib import Path

from kit import __version__, files, screen
from kit.card import Card
from kit.clock import Clock, iso
from kit.degradation import DegradationReport, Entry, Policy, ReportBuilder
from kit.errors import KitError, StorageError
from kit.jobs.lock import LOCK_UNCHECKED
from kit.jobs.screen_stages import DEGRADATION_FILE, PICKS_FILE
from kit.runner import FAILURE_WORDS, RunFailure
from kit.screen import EMPTY_UNIVERSE, CardFacts, ScreenResult

__all__ = ["fallback_card"]

_UNFINISHED = "picks.unfinished.json"
_KILLED = {"kernel_died", "timeout", "interrupted", "output_too_large"}


def fallback_card(
    *, ref: str, day: date, next_session: date | None, policy: Policy, clock: Clock
) -> Callable[[Path, RunFailure], Card]:
    """Return the builder of the card of a run that failed.

    Args:
        ref: `id@version`.
        day: Trade date.
        next_session: Session after it, None when that is not known.
        policy: Words and actions for the failure; the bundle's, where it can be read.
        clock: For the instant of the card.
    """

    def build(folder: Path, failure: RunFailure) -> Card:
        now = clock.now()
        result = ScreenResult(
            skill_id=ref,
            date=day,
            asof=None,
            picks=(),
            universe=EMPTY_UNIVERSE,
            report=_report(folder, policy, failure),
            provenance={
                "run_id": failure.run_id,
                "kit_version": __version__,
                "run_at": iso(now),
                "bundle": None,
                "data": None,
                "next_session": next_session.isoformat() if next_session else None,
                "mode": "none",
                "steps": [],
                "sector_filter": None,
                "news": {"status": "not_needed", "count": 0},
                "env_lock": LOCK_UNCHECKED,
            },
        )
        _write_empty(folder, result)
        facts = CardFacts(
            card_id=failure.card_id,
            run_id=failure.run_id,
            ref=ref,
            day=day,
            next_session=next_session,
            today=now.date(),
        )
        return screen.screen_card(result, facts)

    return build


def _report(folder: Path, policy: Policy, failure: RunFailure) -> DegradationReport:
    """Return what the run had reported by then, and its failure."""
    entries: tuple[Entry, ...] = ()
    with contextlib.suppress(KitError):
        left = files.read_json(folder / DEGRADATION_FILE)
        entries = DegradationReport.from_dict(left).entries
    builder = ReportBuilder(policy)
    label = FAILURE_WORDS[failure.kind]
    builder.add(
        "kernel_died" if failure.kind in _KILLED else "notebook_failed",
        cell=failure.cell or "启动",
        error=f"{label}（{failure.message}）",
        kind=failure.kind,
        remedy=failure.remedy,
    )
    return DegradationReport(entries=(*entries, *builder.build().entries))


def _write_empty(folder: Path, result: ScreenResult) -> None:
    """Leave a result that agrees with the card; what the run had written is kept beside it."""
    with contextlib.suppress(StorageError, OSError):
        if (folder / PICKS_FILE).is_file():
            files.copy_file(folder / PICKS_FILE, folder / _UNFINISHED)
        if folder.is_dir():
            value = result.to_dict()
            files.write_json(folder / PICKS_FILE, value)
            files.write_json(folder / DEGRADATION_FILE, value["degradation_report"])
