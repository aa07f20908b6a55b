"""The daily screen, from the request to the receipts.

The request is checked before anything is claimed. What goes wrong after that still ends in a card:
the notebook's own when its flow could say what happened, or one built here from what it left.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any, TextIO

from kit import files, screen
from kit.bundle import Bundle, parse_ref, read_index, resolve
from kit.clock import Clock, iso, parse_date
from kit.degradation import Policy
from kit.delivery import Channel, ConsoleChannel, FileChannel, build_channels
from kit.errors import BundleError, ConfigError, DataError, KitError, UsageError
from kit.jobs.keys import key_names, require_key
from kit.jobs.llm_budget import deliver_budget_alert
from kit.jobs.lock import LOCK_FILE, force_channel, lock_variables
from kit.jobs.screen_fallback import fallback_card
from kit.jobs.screen_outcome import ScreenOutcome
from kit.jobs.screen_stages import PICKS_FILE
from kit.jobs.skip import record_skip
from kit.llm import offline_cause
from kit.market import Calendar, calendar, open_source
from kit.runner import Executor, ProgressEvent, Refusal, RunKey, RunOutcome, RunSpec, perform
from kit.screen import TradeDate
from kit.state import Store
from kit.workspace import Workspace

__all__ = [
    "MARKET_CLOSED",
    "NOTEBOOK",
    "ScreenOutcome",
    "open_channels",
    "run_screen",
    "trade_date",
]

NOTEBOOK = "production/daily_screen.ipynb"
MARKET_CLOSED = "market_closed"

# The limit of a bundle bounds its own work; starting a kernel and writing the run come on top.
_OVERHEAD_SEC = 60.0


@dataclass(frozen=True, kw_only=True)
class _Request:
    """A screen that may run: which bundle, which day.

    Attributes:
        ref: Pinned reference.
        bundle: The bundle; None when not even its manifest can be read.
        on: Trade date and what the calendar says of it.
        llm: `config/llm.json`; empty when it cannot be read.
        calendar: Calendar of its market; None when it is not known.
        tampered: Why it must not run; the notebook finds that out by itself, and says so.
        refused: Why an unattended run is impossible, and yet owes a card.
    """

    ref: str
    bundle: Bundle | None
    on: TradeDate
    llm: Mapping[str, Any] = field(default_factory=dict)
    calendar: Calendar | None = None
    tampered: BundleError | None = None
    refused: KitError | None = None

    @property
    def next_session(self) -> date | None:
        """The session after the trade date, None when the calendar does not say."""
        if self.calendar is None:
            return None
        try:
            return self.calendar.next(self.on.day)
        except DataError:
            return None


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
    forced_by: str | None = None,
    merged: bool = False,
    stream: TextIO | None = None,
    progress: Callable[[ProgressEvent], None] | None = None,
    executor: Executor | None = None,
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
        forced_by: Who chose to run against another channel than the lock's; None for nobody.
        merged: Whether it is one of several whose cards become one: nothing is sent, and what makes
            it impossible is told on its card, as it is unattended.
        stream: Where the console channel writes; None leaves it out.
        progress: Takes every event of the run.
        executor: Runs the notebook; a kernel by default.

    Raises:
        UsageError: A malformed or future date, a date whose data is not complete yet, a wrong mode
            or limit, a scheduled draft.
        RegistryError: By hand: no such strategy or version.
        BundleError: A draft that cannot be opened.
        DataError: By hand: the source has no bars for that date.
        ConfigError: By hand: a configuration file is missing or wrong, or `llm.no_key` when a
            model is demanded whose key is not set.
        LockError: `lock.force_scheduled`: unattended, another channel may not be chosen.
        AlreadyDone: The screen is done, or another process works on it.
    """
    if limit is not None and limit < 1:
        raise UsageError(
            "screen.bad_limit", f"{limit} is not a number of picks", remedy="use 1 or more"
        )
    told = cron or merged
    try:
        request = _request(workspace, ref, date, mode, clock, cron=cron)
    except UsageError:
        raise
    except KitError as error:
        if not told:
            raise
        request = _refused(workspace, ref, date, clock, error, cron=cron)
    if request is None:
        waiting = "the data of today's session is not complete yet"
        today = clock.now().date()
        return ScreenOutcome(
            status="not_due", ref=_named(workspace, ref), day=today, reason=waiting, cron=cron
        )
    day = request.on.day
    key = RunKey(
        kind="screen",
        subject=request.ref,
        trade_date=day,
        run_type="scheduled" if cron else "manual",
    )
    if request.on.closed:
        words = f"{day} 休市"
        skip = record_skip(workspace, store, clock, key, reason=MARKET_CLOSED, detail=words)
        reason = f"{MARKET_CLOSED}: {day} is no session"
        return ScreenOutcome(
            status="skipped", ref=request.ref, day=day, reason=reason, skip=skip, cron=cron
        )
    if not told and request.bundle is not None and request.tampered is None:
        for name, step in request.bundle.manifest.llm_steps.items():
            require_key(name, step.model, mode, request.llm, where=request.ref)
        _require_bars(workspace, source, request.bundle, day)
    if forced_by is not None and request.bundle is not None:
        force_channel(workspace, request.bundle, store, clock, forced_by, scheduled=cron)
    channels = open_channels(workspace, stream, cron=cron)
    send = deliver if deliver is not None else not request.ref.endswith("@draft")
    send = send and not merged
    run = perform(
        workspace,
        store,
        clock,
        _spec(workspace, request, key, mode, limit, source, clock, forced=forced_by is not None),
        fallback_card=fallback_card(
            ref=request.ref,
            day=day,
            next_session=request.next_session,
            policy=request.bundle.policy if request.bundle else Policy(),
            clock=clock,
            refused=request.refused,
        ),
        channels=channels,
        deliver=send,
        progress=progress,
        again=again,
        executor=Refusal(error=request.refused) if request.refused else executor,
    )
    if send:
        deliver_budget_alert(workspace, store, clock, channels)
    return ScreenOutcome(
        status=run.status,
        ref=request.ref,
        day=day,
        run=run,
        result=_left(run, PICKS_FILE),
        lock=_left(run, LOCK_FILE),
        cron=cron,
    )


def _request(
    workspace: Workspace, ref: str, text: str | None, mode: str, clock: Clock, *, cron: bool
) -> _Request | None:
    """Find bundle and date, or None when an unattended run is not due yet."""
    llm = workspace.config("llm")
    offline_cause(mode, llm)
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
    if bundle is None:
        day = parse_date(text) if text else clock.now().date()
        return _Request(
            ref=_named(workspace, ref),
            bundle=None,
            tampered=tampered,
            on=_blind_date(day, cron=cron),
            llm=llm,
        )
    days = calendar(workspace, bundle.manifest.data_contract.market)
    found = trade_date(days, bundle, text, clock, cron=cron)
    if found is None:
        return None
    return _Request(
        ref=bundle.ref, bundle=bundle, tampered=tampered, on=found, calendar=days, llm=llm
    )


def _refused(
    workspace: Workspace, ref: str, text: str | None, clock: Clock, error: KitError, *, cron: bool
) -> _Request:
    """Return a request that cannot run, and owes a card that says why."""
    day = _blind_date(parse_date(text) if text else clock.now().date(), cron=cron)
    return _Request(ref=_named(workspace, ref), bundle=None, on=day, refused=error)


def _blind_date(day: date, *, cron: bool) -> TradeDate:
    """Return a date of a market that could not be read: unattended, weekends stay quiet."""
    return TradeDate(day=day, open=None if cron else True)


def trade_date(
    days: Calendar, bundle: Bundle, text: str | None, clock: Clock, *, cron: bool
) -> TradeDate | None:
    """Return the date a screen speaks for; None when an unattended one is not due yet.

    Raises:
        UsageError: A malformed or future date, or one whose data is not complete yet.
    """
    asof, now = bundle.manifest.data_contract.asof, clock.now()
    if text is not None:
        return screen.requested_date(parse_date(text), days, asof, now)
    return screen.due_date(days, asof, now) if cron else screen.latest_date(days, asof, now)


def _named(workspace: Workspace, ref: str) -> str:
    """Return `id@version` of a reference, `id@unknown` when the registry does not say."""
    wanted = parse_ref(ref)
    if wanted.version is not None:
        return str(wanted)
    active: str | None = None
    with contextlib.suppress(KitError, KeyError):
        active = read_index(workspace).strategies[wanted.id].latest_active_version
    return f"{wanted.id}@{active or 'unknown'}"


def open_channels(workspace: Workspace, stream: TextIO | None, *, cron: bool) -> list[Channel]:
    """Build the channels; unattended, a broken configuration still leaves the run folder."""
    try:
        return build_channels(workspace, stream=stream)
    except ConfigError:
        if not cron:
            raise
        built: list[Channel] = [FileChannel()]
        return built if stream is None else [*built, ConsoleChannel(stream=stream)]


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
    *,
    forced: bool,
) -> RunSpec:
    bundle = request.bundle
    parameters = {
        "bundle": request.ref,
        "date": request.on.day.isoformat(),
        "mode": mode,
        "limit": limit,
        "source": source,
        "now": iso(clock.now()),
        "force_channel": forced,
    }
    spec = RunSpec(
        key=key,
        notebook=workspace.notebooks / NOTEBOOK,
        parameters=parameters,
        display=f"screen {request.ref} {request.on.day}",
        facts={
            "mode": mode,
            "source": source,
            "bundle_digest": bundle.digest if bundle and not request.tampered else None,
        },
    )
    if bundle is None:
        return spec
    models = [step.model for step in bundle.manifest.llm_steps.values()]
    return RunSpec(
        **{
            **vars(spec),
            "time_limit_sec": bundle.manifest.limits.production_runtime_sec + _OVERHEAD_SEC,
            "kernel_secrets": key_names(models, mode, request.llm) | _lock_names(workspace, bundle),
        }
    )


def _lock_names(workspace: Workspace, bundle: Bundle) -> frozenset[str]:
    """Return what the lock's check reads; a configuration that is wrong is told by the stage."""
    try:
        return lock_variables(workspace, bundle)
    except ConfigError:
        return frozenset(bundle.manifest.env_lock.required_env)


def _left(run: RunOutcome, name: str) -> dict[str, Any] | None:
    if run.folder is None:
        return None
    try:
        value: dict[str, Any] = files.read_json(run.folder / name)
    except KitError:
        return None
    return value
