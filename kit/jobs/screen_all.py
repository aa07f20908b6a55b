"""Every active bundle screened in one go, with one card for all of them.

Each screen is a run of its own, under its own key and in its own folder; it only sends nothing. The
card is made of theirs by a run around them, which gives it a claim, a folder, receipts and a way
back after a crash like any other. Bundles whose data is complete at the same time share a card.
"""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from kit import files
from kit.bundle import Bundle, read_index, resolve
from kit.card import Card
from kit.clock import Clock
from kit.degradation import DegradationReport, Entry
from kit.errors import AlreadyDone, KitError, UsageError
from kit.jobs.llm_budget import deliver_budget_alert
from kit.jobs.screen import MARKET_CLOSED, NOTEBOOK, open_channels, run_screen, trade_date
from kit.jobs.screen_outcome import MergedOutcome, ScreenOutcome
from kit.jobs.screen_stages import CARD_FILE, DEGRADATION_FILE, PICKS_FILE
from kit.jobs.skip import record_skip
from kit.market import Calendar, calendar
from kit.runner import (
    FAILURE_WORDS,
    Execution,
    Executor,
    NotebookOutcome,
    ProgressEvent,
    Refusal,
    RunFailure,
    RunKey,
    RunOutcome,
    RunSpec,
    find_runs,
    perform,
)
from kit.runner.results import read_card
from kit.screen import ScreenLine, merged_card, problem_text
from kit.state import Store
from kit.workspace import Workspace

__all__ = ["KIND", "MergedOutcome", "run_all_active"]

KIND = "screens"
"""Kind of the run around several screens."""

_STOPPED = "⛔ 合并筛选没有跑完（{why}）：下面只有已经跑完的策略"


@dataclass(kw_only=True)
class _Group:
    """Bundles of one market whose data is complete at the same time of day."""

    name: str
    bundle: Bundle | None
    refs: list[str] = field(default_factory=list)


def run_all_active(
    workspace: Workspace,
    *,
    date: str | None = None,
    clock: Clock,
    store: Store,
    deliver: bool | None = None,
    again: bool = False,
    cron: bool = False,
    stream: TextIO | None = None,
    progress: Callable[[ProgressEvent], None] | None = None,
    executor: Executor | None = None,
    **options: Any,
) -> list[MergedOutcome]:
    """Screen every active bundle, and deliver one card for those that are due together.

    A bundle that cannot be screened is told on the card and stops nobody. A screen that was done
    under its key already is not done again, and stands on the card as it was.

    Args:
        workspace: Whose bundles.
        date: Trade date `YYYY-MM-DD`; None for the latest complete session, or, unattended, today.
        clock: Where time comes from.
        store: The state store.
        deliver: False sends nothing.
        again: Run new attempts of what is done.
        cron: The unattended contract.
        stream: Where the console channel writes; None leaves it out.
        progress: Takes every event of every run.
        executor: Runs each screen's notebook; a kernel by default.
        **options: `mode`, `limit`, `source` as `run_screen` takes them.

    Returns:
        One outcome a card.

    Raises:
        UsageError: `screen.nothing_active`; a malformed or future date.
        RegistryError: By hand: the registry cannot be read.
        ConfigError: By hand: a configuration file is missing or wrong.
    """
    job = _Job(
        workspace=workspace,
        clock=clock,
        store=store,
        date=date,
        deliver=deliver is not False,
        again=again,
        cron=cron,
        stream=stream,
        progress=progress,
        executor=executor,
        options=options,
    )
    try:
        groups = _groups(workspace)
    except UsageError:
        raise
    except KitError as error:
        if not cron:
            raise
        return [job.refused(error)]
    return [job.run(group) for group in groups]


def _groups(workspace: Workspace) -> list[_Group]:
    strategies = read_index(workspace).strategies
    refs = [
        f"{id_}@{strategy.latest_active_version}"
        for id_, strategy in sorted(strategies.items())
        if strategy.latest_active_version
    ]
    if not refs:
        raise UsageError(
            "screen.nothing_active",
            "no strategy has an active version",
            remedy="activate one: kit registry activate ID@VERSION --why '...'",
        )
    groups: dict[str, _Group] = {}
    unread = []
    for ref in refs:
        try:
            bundle = resolve(workspace, ref, verify=False)
        except KitError:
            unread.append(ref)  # told by its own run
            continue
        contract = bundle.manifest.data_contract
        name = f"{contract.market}-{contract.asof[0]:%H%M}"
        groups.setdefault(name, _Group(name=name, bundle=bundle)).refs.append(ref)
    if unread:
        first = next(iter(groups.values()), None) or _Group(name="unread", bundle=None)
        groups.setdefault(first.name, first).refs.extend(unread)
    return list(groups.values())


@dataclass(kw_only=True)
class _Job:
    """Everything that is the same for all groups of one request."""

    workspace: Workspace
    clock: Clock
    store: Store
    date: str | None
    deliver: bool
    again: bool
    cron: bool
    stream: TextIO | None
    progress: Callable[[ProgressEvent], None] | None
    executor: Executor | None
    options: Mapping[str, Any]

    def run(self, group: _Group) -> MergedOutcome:
        """Run the screens of a group, and deliver their card."""
        day = self.clock.now().date()
        if group.bundle is not None:
            try:
                days: Calendar = calendar(
                    self.workspace, group.bundle.manifest.data_contract.market
                )
                found = trade_date(days, group.bundle, self.date, self.clock, cron=self.cron)
            except UsageError:
                raise
            except KitError as error:
                if not self.cron:
                    raise
                return self.refused(error, group.name)
            if found is None:
                waiting = "the data of today's session is not complete yet"
                return MergedOutcome(merged=self._outcome(group.name, day, "not_due", waiting))
            day = found.day
            if found.closed:
                return self._skipped(group, day)
        each = _Each(job=self, group=group, day=day)
        try:
            run = self._perform(group.name, day, each, each.fallback)
        except AlreadyDone as error:
            merged = self._outcome(group.name, day, "not_due", error.message)
            return MergedOutcome(merged=merged, already=error)
        merged = ScreenOutcome(status=run.status, ref=group.name, day=day, run=run, cron=self.cron)
        return MergedOutcome(merged=merged, screens=tuple(each.found))

    def refused(self, error: KitError, name: str = "all-active") -> MergedOutcome:
        """Tell, unattended, why nothing can be screened."""
        day = self.clock.now().date()

        def card(_: Path, failure: RunFailure) -> Card:
            notice = f"⛔ 每日筛选没有开始：{problem_text(error)}"
            return self.card([], failure.card_id, failure.run_id, day, notice)

        run = self._perform(name, day, Refusal(error=error), card)
        merged = ScreenOutcome(status=run.status, ref=name, day=day, run=run, cron=True)
        return MergedOutcome(merged=merged)

    def screen(self, ref: str, day: dt.date) -> ScreenOutcome:
        """Run one screen; whatever is wrong with it is in the outcome."""
        try:
            return run_screen(
                self.workspace,
                ref,
                date=day.isoformat(),
                clock=self.clock,
                store=self.store,
                again=self.again,
                cron=self.cron,
                merged=True,
                progress=self.progress,
                executor=self.executor,
                **self.options,
            )
        except AlreadyDone as error:
            return self._earlier(ref, day, error)
        except KitError as error:
            return self._outcome(ref, day, "failed", problem_text(error))
        except Exception as error:  # noqa: BLE001 - one bundle's surprise must not stop the others
            return self._outcome(ref, day, "failed", f"{type(error).__name__}: {error}")

    def _earlier(self, ref: str, day: dt.date, error: AlreadyDone) -> ScreenOutcome:
        """Return the screen that was done before under this key."""
        key = self._key(ref, day, "screen")
        done = [
            run
            for run in find_runs(self.workspace, trade_date=day.isoformat())
            if run.record is not None and run.record.key == key and run.record.status != "running"
        ]
        if error.code != "run.already_done" or not done:
            return self._outcome(ref, day, "failed", "另一进程正在运行它")
        record, folder = done[-1].record, done[-1].folder
        if record is None:  # never: filtered above
            raise error
        card = read_card(folder)
        run = RunOutcome(
            run_id=record.run_id,
            folder=folder,
            status=record.status,
            card=card if isinstance(card, Card) else None,
        )
        result: dict[str, Any] | None = None
        with contextlib.suppress(KitError):
            result = files.read_json(folder / PICKS_FILE)
        return ScreenOutcome(
            status=record.status, ref=ref, day=day, run=run, result=result, cron=self.cron
        )

    def _outcome(self, ref: str, day: dt.date, status: Any, reason: str) -> ScreenOutcome:
        return ScreenOutcome(status=status, ref=ref, day=day, reason=reason, cron=self.cron)

    def _skipped(self, group: _Group, day: dt.date) -> MergedOutcome:
        skip = record_skip(
            self.workspace,
            self.store,
            self.clock,
            self._key(group.name, day),
            reason=MARKET_CLOSED,
            detail=f"{day} 休市",
        )
        merged = ScreenOutcome(
            status="skipped",
            ref=group.name,
            day=day,
            reason=f"{MARKET_CLOSED}: {day} is no session",
            skip=skip,
            cron=self.cron,
        )
        return MergedOutcome(merged=merged)

    def _key(self, name: str, day: dt.date, kind: str = KIND) -> RunKey:
        return RunKey(
            kind=kind,
            subject=name,
            trade_date=day,
            run_type="scheduled" if self.cron else "manual",
        )

    def _perform(
        self,
        name: str,
        day: dt.date,
        executor: Executor,
        fallback: Callable[[Path, RunFailure], Card],
    ) -> RunOutcome:
        channels = open_channels(self.workspace, self.stream, cron=self.cron)
        run = perform(
            self.workspace,
            self.store,
            self.clock,
            RunSpec(
                key=self._key(name, day),
                notebook=self.workspace.notebooks / NOTEBOOK,
                parameters={"date": day.isoformat(), "mode": "auto", **self.options},
                display=f"screens {name} {day}",
            ),
            fallback_card=fallback,
            channels=channels,
            deliver=self.deliver,
            progress=self.progress,
            again=self.again,
            executor=executor,
        )
        if self.deliver:
            deliver_budget_alert(self.workspace, self.store, self.clock, channels)
        return run

    def card(
        self, found: list[ScreenOutcome], card_id: str, run_id: str, day: dt.date, notice: str = ""
    ) -> Card:
        """Build the card of what was screened so far."""
        return merged_card(
            [_line(outcome) for outcome in found],
            card_id=card_id,
            run_id=run_id,
            day=day,
            today=self.clock.now().date(),
            notice=notice,
        )


@dataclass(kw_only=True)
class _Each:
    """Runs the screens of a group one after the other, in the place of a notebook."""

    job: _Job
    group: _Group
    day: dt.date
    found: list[ScreenOutcome] = field(default_factory=list)

    def check(self, notebook: Path, parameters: Mapping[str, Any]) -> None:
        """Let it pass: every screen checks its own."""

    def execute(self, execution: Execution) -> NotebookOutcome:
        """Run every screen, and write their card."""
        began = execution.clock.monotonic()
        for ref in self.group.refs:
            stopped = execution.stop.requested or (
                bool(self.found) and self.found[-1].status == "interrupted"
            )
            if stopped:
                break
            self.found.append(self.job.screen(ref, self.day))
            execution.beat()
        seconds = execution.clock.monotonic() - began
        if execution.stop.requested or self.found[-1].status == "interrupted":
            said = f"stopped after {len(self.found)} of {len(self.group.refs)} screens"
            failure = RunFailure(kind="interrupted", message=said)
            return NotebookOutcome(failure=failure, seconds=seconds)
        reserved = execution.reserved
        card = self.job.card(self.found, reserved["card_id"], reserved["run_id"], self.day)
        entries = [Entry(**entry) for line in self.found for entry in _line(line).entries]
        report = DegradationReport(entries=tuple(entries))
        files.write_json(execution.folder / DEGRADATION_FILE, report.to_dict())
        files.write_json(execution.folder / CARD_FILE, card.to_dict())
        return NotebookOutcome(failure=None, seconds=seconds)

    def fallback(self, _: Path, failure: RunFailure) -> Card:
        """Build the card of a run that did not get through, from the screens that did."""
        notice = _STOPPED.format(why=FAILURE_WORDS[failure.kind])
        return self.job.card(self.found, failure.card_id, failure.run_id, self.day, notice)


def _line(outcome: ScreenOutcome) -> ScreenLine:
    run = outcome.run
    return ScreenLine(
        ref=outcome.ref,
        status=outcome.status,
        run_id=run.run_id if run else "",
        card=run.card if run else None,
        report=(outcome.result or {}).get("degradation_report"),
        problem=outcome.reason,
    )
