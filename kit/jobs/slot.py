"""One intraday slot, from the question whether it is due to the receipts of its card.

The notebook gathers, judges and checks; the runner owns the delivery. Whatever happens in between,
a card leaves: the notebook's own, the data block without a judgement when preflight got that far,
or a card that says that nothing could be had.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, TextIO

from kit import files
from kit.card import Card
from kit.clock import Clock, iso
from kit.delivery import build_channels
from kit.errors import KitError, UsageError
from kit.intraday import (
    CLOSED_REASONS,
    Portfolio,
    Product,
    Slot,
    failed_card,
    read_context,
    slot_card,
)
from kit.intraday.judgement import STEP
from kit.jobs.keys import key_names, require_key
from kit.jobs.llm_budget import deliver_budget_alert
from kit.jobs.skip import Skip, record_skip
from kit.jobs.slot_stages import CONTEXT_FILE, slot_at
from kit.llm import offline_cause
from kit.market import MarketInfo
from kit.runner import (
    FAILURE_WORDS,
    ProgressEvent,
    RunFailure,
    RunKey,
    RunOutcome,
    RunSpec,
    perform,
)
from kit.state import Store
from kit.text import clip, one_line
from kit.workspace import Workspace

__all__ = ["NOTEBOOK", "SlotOutcome", "run_slot"]

NOTEBOOK = "production/intraday_slot.ipynb"
MARKET_CLOSED = "market_closed"

_CAUSE_CHARS = 80
# From the root, or with folders before a file name; `3/7` is neither.
_PATH = re.compile(
    r"(?<![\w/\\])(?:(?:[A-Za-z]:|~)?(?:[/\\]+[\w.~@-]+)+|[\w.-]+(?:[/\\][\w.-]+)*[/\\][\w-]+\.[A-Za-z]\w*)"
)
_TOLD_BY_KIND = ("timeout", "interrupted")
# The notebook's headings are English; a reader of the card is told the step in Chinese.
_STEPS = {
    "Open the slot": "确定时点",
    "Quotes and holdings": "行情与持仓",
    "What is new": "变化对比",
    "What a model is given": "整理上下文",
    "Judgement": "判断",
    "Checks": "校验",
    "The card": "卡片",
}


@dataclass(frozen=True, kw_only=True)
class SlotOutcome:
    """What became of a slot.

    Attributes:
        status: `ok`, `degraded`, `failed` or `interrupted` when it ran; `skipped` when the market
            is closed; `not_due` when the schedule does not want it now.
        market: The market.
        slot: The slot; None when the half hour has none.
        reason: Why it did not run, or why the run failed, in words; empty when it went well.
        run: The run, when there was one.
        skip: The receipt, when it was skipped.
    """

    status: Literal["running", "ok", "degraded", "failed", "interrupted", "skipped", "not_due"]
    market: str
    slot: Slot | None = None
    reason: str = ""
    run: RunOutcome | None = None
    skip: Skip | None = None

    def error(self) -> KitError | None:
        """Return the error a command ends with by hand, None for exit code 0.

        A card that arrived is a success, whatever it had to say.
        """
        run = self.run
        if run is None or (run.status == "failed" and run.delivered):
            return None
        return run.error()

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form of `kit slot run --json`."""
        run = self.run
        return {
            "status": self.status,
            "market": self.market,
            "slot": self.slot.id if self.slot else None,
            "reason": self.reason,
            "run_id": run.run_id if run else None,
            "card": run.card.to_dict() if run and run.card else None,
            "receipts": [receipt.to_dict() for receipt in run.receipts] if run else [],
            "failure": run.failure.to_dict() if run and run.failure else None,
            "warnings": list(run.warnings) if run else [],
        }


def run_slot(
    workspace: Workspace,
    market: str,
    *,
    now: datetime | None = None,
    clock: Clock,
    store: Store,
    mode: str = "auto",
    deliver: bool = True,
    again: bool = False,
    if_due: bool = False,
    cron: bool = False,
    stream: TextIO | None = None,
    progress: Callable[[ProgressEvent], None] | None = None,
) -> SlotOutcome:
    """Run the slot that an instant belongs to.

    By hand any instant of a session runs its half hour's slot; a half hour without a slot is
    refused, and so is a market whose holdings cannot be read. With `if_due` nothing happens outside
    the slot's own window, and a due slot of a closed market leaves a receipt.

    Args:
        workspace: Whose holdings and configuration.
        market: `cn`, `hk` or `us`.
        now: Aware instant; the clock's by default. Quotes are taken as of it.
        clock: Where time comes from.
        store: The state store.
        mode: `auto`, `live` or `offline`.
        deliver: Whether the card is sent.
        again: Run a new attempt of a slot that is done.
        if_due: Run only when the schedule wants the slot now.
        cron: The unattended contract; implies `if_due`.
        stream: Where the console channel writes; None leaves it out.
        progress: Takes every event of the run.

    Raises:
        UsageError: `market.unknown`, `slot.future`, `slot.not_a_slot` (by hand), `llm.bad_mode`.
        ConfigError: A configuration file is missing or wrong; by hand also `slot.no_holdings`, and
            `llm.no_key` when a model is demanded whose key is not set.
        AlreadyDone: The slot is done, or another process works on it.
    """
    at = now or clock.now()
    if at > clock.now():
        raise UsageError(
            "slot.future",
            f"{iso(at)} lies in the future",
            remedy="name a past instant of a session, or leave --now out",
        )
    scheduled = cron or if_due
    try:
        slot, info = slot_at(workspace, market, at)
    except UsageError as error:
        if not scheduled or error.code != "slot.not_a_slot":
            raise
        return SlotOutcome(status="not_due", market=market, reason=error.message)
    config = workspace.config("intraday")
    waiting = _not_due(slot, info, config) if scheduled else ""
    if waiting:
        return SlotOutcome(status="not_due", market=market, slot=slot, reason=waiting)
    key = RunKey(
        kind="slot",
        subject=market,
        trade_date=slot.trade_date,
        slot=slot.id,
        run_type="scheduled" if cron else "manual",
    )
    if slot.closed is not None:
        words = CLOSED_REASONS[slot.closed]
        skip = record_skip(workspace, store, clock, key, reason=MARKET_CLOSED, detail=words)
        reason = f"{MARKET_CLOSED}: {slot.closed.replace('_', ' ')}"
        return SlotOutcome(status="skipped", market=market, slot=slot, reason=reason, skip=skip)
    if not scheduled:
        # A person can mend the file at once; an unattended slot sends its loud card instead.
        Portfolio.load(workspace, market)
    llm, model = workspace.config("llm"), config["judgement"]["model"]
    cause = offline_cause(mode, llm, model=model)
    if not scheduled:
        require_key(STEP, model, mode, llm, where=f"slot {market}")
    spec = RunSpec(
        key=key,
        notebook=workspace.notebooks / NOTEBOOK,
        parameters={"market": market, "now": iso(slot.now), "mode": mode},
        time_limit_sec=config["time_limit_sec"],
        display=f"slot {market} {slot.id[11:16]}",
        facts={
            "mode": "offline" if cause else "live",
            "slot": slot.id,
            "portfolio_sha256": _digest(workspace.config_dir / "portfolio.json"),
        },
        kernel_secrets=key_names([model], mode, llm),
    )
    channels = build_channels(workspace, stream=stream)
    run = perform(
        workspace,
        store,
        clock,
        spec,
        fallback_card=_fallback(slot, info, config["owner_timezone"]),
        channels=channels,
        deliver=deliver,
        progress=progress,
        again=again,
    )
    if deliver:
        deliver_budget_alert(workspace, store, clock, channels)
    reason = run.failure.message if run.failure else ""
    return SlotOutcome(status=run.status, market=market, slot=slot, reason=reason, run=run)


def _not_due(slot: Slot, info: MarketInfo, config: Mapping[str, Any]) -> str:
    """Say why the schedule does not want this slot at this moment; empty when it does."""
    if not info.enabled:
        return f"market {info.market} is not enabled in config/markets.json"
    if slot.scheduled is None:
        return "no slot is scheduled in this half hour"
    window: int = config["catch_up_minutes"]
    if not slot.is_due(window):
        return (
            f"the slot is due at {slot.scheduled:%H:%M} and for {window} minutes after, "
            f"not at {slot.now:%H:%M}"
        )
    return ""


def _digest(path: Path) -> str | None:
    """Return the SHA-256 of a file, None when it cannot be read: the run will say so itself."""
    try:
        return files.sha256_file(path)
    except OSError:
        return None


def _fallback(
    slot: Slot, info: MarketInfo, owner_timezone: str
) -> Callable[[Path, RunFailure], Card]:
    """Return the builder of the card of a run that failed, from whatever it left."""

    def build(folder: Path, failure: RunFailure) -> Card:
        reason = FAILURE_WORDS[failure.kind]
        if failure.cell:
            reason = f"{reason}，停在「{_STEPS.get(failure.cell, failure.cell)}」"
        cause = _cause(failure)
        if cause:
            reason = f"{reason}：{cause}"
        context = _left_context(folder, slot)
        if context is None:
            return failed_card(
                slot,
                market_name=info.name,
                owner_timezone=owner_timezone,
                run_id=failure.run_id,
                card_id=failure.card_id,
                reason=reason,
            )
        product = Product(
            run_id=failure.run_id,
            card_id=failure.card_id,
            verdict="fail",
            mode="",
            failure=reason,
        )
        return slot_card(context, product)

    return build


def _cause(failure: RunFailure) -> str:
    """Return what a failure says of itself: one short line, files named without their folders."""
    if failure.kind in _TOLD_BY_KIND:
        return ""
    # The message of a failed cell opens with the cell's name, which the card has told already.
    own = failure.kind == "cell_error" and (failure.evalue or failure.ename)
    text = one_line(own or failure.message)
    return clip(_PATH.sub(lambda path: re.split(r"[/\\]", path[0])[-1], text), _CAUSE_CHARS)


def _left_context(folder: Path, slot: Slot) -> dict[str, Any] | None:
    """Return the context that preflight left for this slot, None when there is no whole one."""
    try:
        context = read_context(files.read_json(folder / CONTEXT_FILE))
    except KitError:
        return None
    return context if context["slot"] == slot.id else None
