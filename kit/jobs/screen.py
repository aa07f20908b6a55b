"""The daily screen, from the request to the receipts.

The request is checked before anything is claimed. What goes wrong after that still ends in a card:
the notebook's own when its flow could say what happened, or one built here from what it left.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any, Literal, TextIO

from kit import __version__, files, screen
from kit.bundle import Bundle, parse_ref, read_index, resolve
from kit.card import Card
from kit.clock import Clock, iso, parse_date
from kit.degradation import DegradationReport, Entry, Policy, ReportBuilder
from kit.delivery import Receipt, build_channels
from kit.errors import (
    BundleError,
    DataError,
    GuardError,
    KitError,
    LockError,
    RunError,
    StorageError,
    UsageError,
)
from kit.jobs.screen_stages import DEGRADATION_FILE, PICKS_FILE
from kit.jobs.skip import Skip, record_skip
from kit.llm import offline_cause
from kit.llm.mode import provider_of
from kit.market import Calendar, calendar, open_source
from kit.runner import ProgressEvent, RunFailure, RunKey, RunOutcome, RunSpec, perform
from kit.screen import EMPTY_UNIVERSE, CardFacts, ScreenResult, TradeDate
from kit.state import Store
from kit.workspace import Workspace

__all__ = ["NOTEBOOK", "ScreenOutcome", "run_screen"]

NOTEBOOK = "production/daily_screen.ipynb"
MARKET_CLOSED = "market_closed"

# The limit of a bundle bounds its own work; starting a kernel and writing the run come on top.
_OVERHEAD_SEC = 60.0
_UNFINISHED = "picks.unfinished.json"
_KILLED = {"kernel_died", "timeout", "interrupted", "output_too_large"}
_FAILURES: Mapping[str, str] = {
    "cell_error": "流程出错",
    "exited": "流程提前退出",
    "kernel_died": "运行进程退出",
    "timeout": "超过时限",
    "interrupted": "被中断",
    "output_too_large": "输出过多",
    "missing_result": "缺少结果",
    "bad_result": "结果无效",
    "refused": "运行前检查未通过",
    "storage": "磁盘不可写",
    "crashed": "运行器故障",
}
# What an abort means to a shell, by the stage it happened in.
_ABORTED: Mapping[str, type[KitError]] = {
    "bundle": GuardError,
    "env_lock": LockError,
    "data": DataError,
    "news": DataError,
}

Status = Literal["running", "ok", "degraded", "failed", "interrupted", "skipped", "not_due"]


@dataclass(frozen=True, kw_only=True)
class ScreenOutcome:
    """What became of a screen.

    Attributes:
        status: `ok`, `degraded`, `failed` or `interrupted` when it ran; `skipped` on a closed day;
            `not_due` when an unattended run comes before the day's data is complete.
        ref: `id@version` or `id@draft`.
        day: Trade date.
        reason: Why it did not run, in words; empty when it ran.
        run: The run, when there was one.
        result: Content of `picks.json`, when the run left it.
        skip: The receipt of a skipped run.
        cron: Whether the unattended contract holds.
    """

    status: Status
    ref: str
    day: date
    reason: str = ""
    run: RunOutcome | None = None
    result: Mapping[str, Any] | None = None
    skip: Skip | None = None
    cron: bool = False

    @property
    def receipts(self) -> tuple[Receipt, ...]:
        """What each channel said; empty when nothing was to be delivered."""
        return self.run.receipts if self.run else ()

    @property
    def exit_code(self) -> int:
        """Exit code of the command: by hand what happened, under cron whether it was told."""
        error = self.error()
        return error.exit_code if error else 0

    def error(self) -> KitError | None:
        """Return the error the command ends with, None for exit code 0.

        Unattended, an abort or a failure that was delivered or recorded is a success; a card that
        no channel took, or an interruption, is not.
        """
        run = self.run
        if run is None:
            return None
        if not self.cron:
            return run.error() or self._abort_error()
        if run.receipts and not run.delivered:
            # The failure of the run, if any, is in its record; that nobody was told is the news.
            return replace(run, failure=None).error()
        told = run.delivered or run.folder is not None
        return None if told and self.status != "interrupted" else run.error()

    def _abort_error(self) -> KitError | None:
        report = (self.result or {}).get("degradation_report", {})
        for entry in report.get("entries", ()):
            if entry["action"] == "abort_with_report":
                stage = entry["step"] or _stage_of(entry["trigger"])
                kind = _ABORTED.get(stage, RunError)
                details = entry["details"]
                message = str(details.get("message") or details.get("error") or entry["reason"])
                remedy = str(details.get("remedy") or details.get("remedy_hint") or "")
                code = _CODES.get(entry["trigger"], "screen.aborted")
                return kind(code, message, where=self.ref, remedy=remedy or _look(self.run))
        return None

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form of `kit screen --json`."""
        run = self.run
        return {
            "status": self.status,
            "ref": self.ref,
            "date": self.day.isoformat(),
            "reason": self.reason,
            "exit_code": self.exit_code,
            "run_id": run.run_id if run else None,
            "result": None if self.result is None else dict(self.result),
            "card": run.card.to_dict() if run and run.card else None,
            "receipts": [receipt.to_dict() for receipt in self.receipts],
            "failure": run.failure.to_dict() if run and run.failure else None,
            "warnings": list(run.warnings) if run else [],
        }


_CODES = {
    "bundle_tampered": "bundle.tampered",
    "env_lock_failed": "lock.env_missing",
    "data_unavailable": "data.no_bars",
    "screen_failed": "screen.failed",
}


@dataclass(frozen=True, kw_only=True)
class _Request:
    """A screen that may run: which bundle, which day.

    Attributes:
        ref: Pinned reference.
        bundle: The bundle; None when not even its manifest can be read.
        tampered: Why it must not run.
        date: Trade date and what the calendar says of it.
        calendar: Calendar of its market; None with the bundle.
    """

    ref: str
    bundle: Bundle | None
    tampered: BundleError | None
    date: TradeDate
    calendar: Calendar | None


def run_screen(
    workspace: Workspace,
    ref: str,
    *,
    date: str | None = None,
    mode: str = "auto",
    clock: Clock,
    store: Store,
    deliver: bool | None = None,
    again: bool = False,
    cron: bool = False,
    limit: int | None = None,
    source: str = "sample",
    stream: TextIO | None = None,
    progress: Callable[[ProgressEvent], None] | None = None,
) -> ScreenOutcome:
    """Run the screen of a bundle for one trade date.

    Args:
        workspace: Where bundles and configuration stand.
        ref: `id` (the active version), `id@version` or `id@draft`.
        date: Trade date `YYYY-MM-DD`; None for the latest complete session, or, unattended, today.
        mode: `auto`, `live` or `offline`.
        clock: Where time comes from.
        store: The state store.
        deliver: Whether the card is sent; None sends it for a frozen version only.
        again: Run a new attempt of a screen that is done.
        cron: The unattended contract: only when due, exit 0 once the outcome was told.
        limit: Most picks; None for the bundle's own.
        source: Bar source.
        stream: Where the console channel writes; None leaves it out.
        progress: Takes every event of the run.

    Raises:
        UsageError: A malformed or future date, a date whose data is not complete yet, a wrong mode
            or limit, a scheduled draft.
        RegistryError: No such strategy or version.
        BundleError: A draft that cannot be opened.
        DataError: By hand: the source has no bars for that date.
        ConfigError: A configuration file is missing or wrong.
        AlreadyDone: The screen is done, or another process works on it.
    """
    llm = workspace.config("llm")
    offline_cause(mode, llm)
    if limit is not None and limit < 1:
        raise UsageError(
            "screen.bad_limit", f"{limit} is not a number of picks", remedy="use 1 or more"
        )
    request = _request(workspace, ref, date, clock, cron=cron)
    if request is None:
        pinned, day = _pinned(workspace, ref), clock.now().date()
        waiting = "the data of today's session is not complete yet"
        return ScreenOutcome(status="not_due", ref=pinned, day=day, reason=waiting, cron=cron)
    day = request.date.day
    key = RunKey(
        kind="screen",
        subject=request.ref,
        trade_date=day,
        run_type="scheduled" if cron else "manual",
    )
    if request.date.closed:
        words = f"{day} 休市"
        skip = record_skip(workspace, store, clock, key, reason=MARKET_CLOSED, detail=words)
        reason = f"{MARKET_CLOSED}: {day} is no session"
        return ScreenOutcome(
            status="skipped", ref=request.ref, day=day, reason=reason, skip=skip, cron=cron
        )
    if not cron and request.bundle is not None and request.tampered is None:
        _require_bars(workspace, source, request.bundle, day)
    run = perform(
        workspace,
        store,
        clock,
        _spec(workspace, request, key, mode, limit, source, clock, llm),
        fallback_card=_fallback(request, clock),
        channels=build_channels(workspace, stream=stream),
        deliver=deliver if deliver is not None else not request.ref.endswith("@draft"),
        progress=progress,
        again=again,
    )
    return ScreenOutcome(
        status=run.status,
        ref=request.ref,
        day=day,
        run=run,
        result=_result(run),
        cron=cron,
    )


def _request(
    workspace: Workspace, ref: str, text: str | None, clock: Clock, *, cron: bool
) -> _Request | None:
    """Find bundle and date, or None when an unattended run is not due yet."""
    wanted = parse_ref(ref)
    if cron and wanted.is_draft:
        raise UsageError(
            "screen.draft_scheduled",
            f"{ref} is a draft; only frozen versions run unattended",
            remedy=f"freeze it: kit freeze {wanted.id}",
        )
    bundle: Bundle | None = None
    tampered: BundleError | None = None
    try:
        bundle = resolve(workspace, ref)
    except BundleError as error:
        if wanted.is_draft:
            raise
        tampered = error
        with contextlib.suppress(KitError):
            bundle = resolve(workspace, ref, verify=False)
    pinned = bundle.ref if bundle is not None else _pinned(workspace, ref)
    if bundle is None:
        day = parse_date(text) if text else clock.now().date()
        # Which market it is for cannot be read, so no calendar can excuse the card.
        found = TradeDate(day=day, open=True)
        return _Request(ref=pinned, bundle=None, tampered=tampered, date=found, calendar=None)
    contract = bundle.manifest.data_contract
    days = calendar(workspace, contract.market)
    found_date = _trade_date(days, bundle, text, clock, cron=cron)
    if found_date is None:
        return None
    return _Request(ref=pinned, bundle=bundle, tampered=tampered, date=found_date, calendar=days)


def _trade_date(
    days: Calendar, bundle: Bundle, text: str | None, clock: Clock, *, cron: bool
) -> TradeDate | None:
    asof, now = bundle.manifest.data_contract.asof, clock.now()
    if text is not None:
        return screen.requested_date(parse_date(text), days, asof, now)
    return screen.due_date(days, asof, now) if cron else screen.latest_date(days, asof, now)


def _pinned(workspace: Workspace, ref: str) -> str:
    """Return `id@version` of a reference whose bundle cannot be opened."""
    wanted = parse_ref(ref)
    if wanted.version is not None:
        return str(wanted)
    active = read_index(workspace).strategies[wanted.id].latest_active_version
    return f"{wanted.id}@{active}"


def _require_bars(workspace: Workspace, source: str, bundle: Bundle, day: date) -> None:
    """Refuse a date for which the source has no bar at all, before anything is claimed."""
    contract = bundle.manifest.data_contract
    bars = open_source(workspace, source)
    held = bars.coverage(contract.market)
    first = screen.window_start(contract, day)
    if held.first <= day and held.last >= first:
        return
    raise DataError(
        "screen.no_bars",
        f"source {bars.name} has no {contract.market} bars from {first} to {day}; "
        f"it covers {held.first} to {held.last}",
        where=bundle.ref,
        remedy=f"name a date it covers, for example --date {held.last}",
        details={"first": held.first.isoformat(), "last": held.last.isoformat()},
    )


def _spec(
    workspace: Workspace,
    request: _Request,
    key: RunKey,
    mode: str,
    limit: int | None,
    source: str,
    clock: Clock,
    llm: Mapping[str, Any],
) -> RunSpec:
    bundle = request.bundle
    parameters = {
        "bundle": request.ref,
        "date": request.date.day.isoformat(),
        "mode": mode,
        "limit": limit,
        "source": source,
        "now": iso(clock.now()),
    }
    spec = RunSpec(
        key=key,
        notebook=workspace.notebooks / NOTEBOOK,
        parameters=parameters,
        display=f"screen {request.ref} {request.date.day}",
        facts={
            "mode": mode,
            "source": source,
            "bundle_digest": bundle.digest if bundle and not request.tampered else None,
        },
    )
    if bundle is None:
        return spec
    return RunSpec(
        **{
            **vars(spec),
            "time_limit_sec": bundle.manifest.limits.production_runtime_sec + _OVERHEAD_SEC,
            "kernel_secrets": _key_names(bundle, mode, llm),
        }
    )


def _key_names(bundle: Bundle, mode: str, llm: Mapping[str, Any]) -> frozenset[str]:
    """Return the variables that hold the keys of the models the run may ask."""
    models = [
        step.model
        for step in bundle.manifest.llm_steps.values()
        if offline_cause(mode, llm, model=step.model) is None
    ]
    entries = (llm["providers"].get(provider_of(model, llm)) or {} for model in models)
    return frozenset(entry["key_env"] for entry in entries if entry.get("key_env"))


def _fallback(request: _Request, clock: Clock) -> Callable[[Path, RunFailure], Card]:
    """Return the builder of the card of a run that failed, from whatever it left."""

    def build(folder: Path, failure: RunFailure) -> Card:
        report = _report(folder, request, failure)
        now = clock.now()
        result = ScreenResult(
            skill_id=request.ref,
            date=request.date.day,
            asof=None,
            picks=(),
            universe=EMPTY_UNIVERSE,
            report=report,
            provenance={
                "run_id": failure.run_id,
                "kit_version": __version__,
                "run_at": iso(now),
                "bundle": None,
                "data": None,
                "next_session": None,
                "mode": "none",
                "steps": [],
                "sector_filter": None,
                "news": {"status": "not_needed", "count": 0},
                "env_lock": {"env_checked": [], "mcps_unchecked": [], "dbs_unchecked": []},
            },
        )
        _write_empty(folder, result)
        return screen.screen_card(
            result,
            CardFacts(
                card_id=failure.card_id,
                run_id=failure.run_id,
                ref=request.ref,
                day=request.date.day,
                next_session=_next_session(request),
                today=now.date(),
            ),
        )

    return build


def _report(folder: Path, request: _Request, failure: RunFailure) -> DegradationReport:
    """Return what the run had reported by then, and its failure."""
    entries: tuple[Entry, ...] = ()
    with contextlib.suppress(KitError):
        left = files.read_json(folder / DEGRADATION_FILE)
        entries = DegradationReport.from_dict(left).entries
    builder = ReportBuilder(request.bundle.policy if request.bundle else Policy())
    label = _FAILURES.get(failure.kind, failure.kind)
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


def _next_session(request: _Request) -> date | None:
    if request.calendar is None:
        return None
    try:
        return request.calendar.next(request.date.day)
    except DataError:
        return None


def _result(run: RunOutcome) -> dict[str, Any] | None:
    if run.folder is None:
        return None
    try:
        value: dict[str, Any] = files.read_json(run.folder / PICKS_FILE)
    except KitError:
        return None
    return value


def _stage_of(trigger: str) -> str:
    from kit.degradation import TRIGGERS

    return TRIGGERS[trigger].stage


def _look(run: RunOutcome | None) -> str:
    return f"look at it: kit show {run.run_id}" if run else ""
