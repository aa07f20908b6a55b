"""The card of a screen whose notebook did not reach its end, from whatever it left."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from datetime import date
from pathlib import Path

from kit import __version__, files, screen
from kit.card import Card
from kit.clock import Clock, iso
from kit.degradation import DegradationReport, Entry, Policy, ReportBuilder
from kit.errors import KitError, StorageError
from kit.jobs.lock import LOCK_UNCHECKED
from kit.jobs.screen_news import NO_NEWS_WANTED
from kit.jobs.screen_stages import DEGRADATION_FILE, PICKS_FILE
from kit.runner import FAILURE_WORDS, RunFailure
from kit.screen import EMPTY_UNIVERSE, CardFacts, ScreenResult
from kit.text import clip, one_line

__all__ = ["fallback_card"]

_UNFINISHED = "picks.unfinished.json"
# The notebook's headings are English; a reader of the card is told the stage in Chinese.
_STAGES = {
    "Bundle": "策略包",
    "Environment lock": "环境锁",
    "Data": "行情",
    "News": "新闻",
    "Sector filter": "板块过滤",
    "Screen": "筛选",
    "Rank and cut": "排序",
    "Reasons": "说明",
    "Result": "结果",
    "Card": "卡片",
    "End": "结束",
}
_FILE = re.compile(r"[\w.-]+\.(?:ipynb|json|py)\b")
_MAX_CAUSE = 120
_KILLED = {"kernel_died", "timeout", "interrupted", "output_too_large"}


def fallback_card(
    *,
    ref: str,
    day: date,
    next_session: date | None,
    policy: Policy,
    clock: Clock,
    refused: KitError | None = None,
) -> Callable[[Path, RunFailure], Card]:
    """Return the builder of the card of a run that failed.

    Args:
        ref: `id@version`.
        day: Trade date.
        next_session: Session after it, None when that is not known.
        policy: Words and actions for the failure; the bundle's, where it can be read.
        clock: For the instant of the card.
        refused: Why it could not run at all.
    """

    def build(folder: Path, failure: RunFailure) -> Card:
        now = clock.now()
        result = ScreenResult(
            skill_id=ref,
            date=day,
            asof=None,
            picks=(),
            universe=EMPTY_UNIVERSE,
            report=_report(folder, policy, failure, refused),
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
                "news": dict(NO_NEWS_WANTED),
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


def _report(
    folder: Path, policy: Policy, failure: RunFailure, refused: KitError | None
) -> DegradationReport:
    """Return what the run had reported by then, and its failure."""
    entries: tuple[Entry, ...] = ()
    with contextlib.suppress(KitError):
        left = files.read_json(folder / DEGRADATION_FILE)
        entries = DegradationReport.from_dict(left).entries
    builder = ReportBuilder(policy)
    label = FAILURE_WORDS[failure.kind]
    cause = screen.problem_text(refused) if refused else _cause(failure)
    builder.add(
        "kernel_died" if failure.kind in _KILLED else "notebook_failed",
        cell=_STAGES.get(failure.cell, failure.cell) or "启动",
        error=f"{label}（{cause}）" if cause else label,
        message=failure.message,
        kind=failure.kind,
        remedy=failure.remedy,
    )
    return DegradationReport(entries=(*entries, *builder.build().entries))


def _cause(failure: RunFailure) -> str:
    """Return what a failure says of itself, as far as it is no English sentence of ours."""
    if failure.kind == "cell_error":
        return clip(one_line(f"{failure.ename}: {failure.evalue}"), _MAX_CAUSE)
    named = _FILE.search(failure.message) if failure.code else None
    return f"{named[0]}，{failure.code}" if named else failure.code


def _write_empty(folder: Path, result: ScreenResult) -> None:
    """Leave a result that agrees with the card; what the run had written is kept beside it."""
    with contextlib.suppress(StorageError, OSError):
        if (folder / PICKS_FILE).is_file():
            files.copy_file(folder / PICKS_FILE, folder / _UNFINISHED)
        if folder.is_dir():
            value = result.to_dict()
            files.write_json(folder / PICKS_FILE, value)
            files.write_json(folder / DEGRADATION_FILE, value["degradation_report"])
