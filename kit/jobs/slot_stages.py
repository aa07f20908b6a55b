"""The stages of an intraday slot, as the notebook calls them: one method a cell.

Each stage leaves its evidence in the run folder and returns something that shows itself in the
notebook. Nothing here sends: the runner does, once the notebook has ended.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from sqlalchemy import select

from kit import files
from kit.card import render_card
from kit.clock import SystemClock, parse_instant
from kit.degradation import Policy, ReportBuilder, Rule, failure_label
from kit.envlock import LockAnswer
from kit.errors import DataError, KitError, StorageError, UsageError
from kit.intraday import (
    Delivered,
    Finding,
    Gathered,
    Judgement,
    Portfolio,
    Product,
    Slot,
    check_judgement,
    core_packet,
    judgement_step,
    preflight,
    resolve_slot,
    slot_card,
    verdict_of,
)
from kit.intraday import wording as words
from kit.intraday.judgement import STEP
from kit.jobs.llm_budget import metered_model
from kit.jobs.lock import LOCK_FILE
from kit.jobs.view import View
from kit.llm import Mode, Recorder, ReplaySource, StepResult, offline_cause, run_step
from kit.market import (
    MarketInfo,
    QuoteBatch,
    QuoteSource,
    calendar,
    market_info,
    open_source,
    sample_quotes,
)
from kit.state import Store, tables
from kit.workspace import Workspace

__all__ = ["CONTEXT_FILE", "SlotRun", "last_delivered", "slot_at"]

CONTEXT_FILE = "context.json"
PACKET_FILE = "packet.json"
PROSE_FILE = "prose.md"
CHECKS_FILE = "checks.json"
CARD_FILE = "card.json"
DEGRADATION_FILE = "degradation.json"
LLM_FILE = "llm.jsonl"


def slot_at(workspace: Workspace, market: str, now: datetime) -> tuple[Slot, MarketInfo]:
    """Return the slot of a market at an aware instant, and the market.

    Raises:
        UsageError: `market.unknown`, or `slot.not_a_slot`.
        ConfigError: A configuration file is missing or wrong.
    """
    info = market_info(workspace, market)
    return resolve_slot(market, info.slots, calendar(workspace, market), now), info


def last_delivered(store: Store, slot: Slot) -> Delivered | None:
    """Return the latest earlier slot of the day whose card reached a channel and was no failure.

    The card in the outbox carries its slot's state, so this works after run folders are gone.

    Raises:
        StorageError: The store cannot be read.
    """
    rows = tables.deliveries
    prefix = f"{slot.trade_date.isoformat()}/slot-{slot.market}-"
    query = (
        select(rows.c.payload)
        .where(rows.c.state == "sent", rows.c.run_id.startswith(prefix, autoescape=True))
        .order_by(rows.c.id)
    )
    with store.read() as connection:
        payloads = connection.execute(query).scalars().all()
    metas = [files.parse_json(payload)["meta"] for payload in payloads]
    earlier = [
        meta
        for meta in metas
        if meta.get("product") in ("pass", "warn") and meta.get("state") and meta["slot"] < slot.id
    ]
    if not earlier:
        return None
    # max keeps the first of equals; of several runs of one slot the last one sent counts.
    last = max(reversed(earlier), key=lambda meta: str(meta["slot"]))
    return Delivered(slot=last["slot"], context_id=last["context_id"], state=last["state"])


@dataclass(kw_only=True)
class SlotRun:
    """One slot while its notebook runs; call the stages in order.

    Attributes:
        workspace: Whose holdings, prompt and configuration are used.
        slot: The slot.
        info: Its market.
        mode: `live` or `offline`; what was decided before the notebook started.
        cause: Why it is offline: `forced`, `requested` or `no_key`; empty when live.
        folder: Run folder; every stage leaves its evidence there.
        run_id: The run.
        card_id: Id of the card.
        store: Where deliveries are remembered; None looks nowhere.
        quotes: Who serves the quotes.
        replay: The record that answers in the model's place, where a run is done over.
    """

    workspace: Workspace
    slot: Slot
    info: MarketInfo
    mode: Mode
    cause: str
    folder: Path
    run_id: str
    card_id: str
    store: Store | None
    quotes: QuoteSource
    replay: ReplaySource | None = None
    gathered: Gathered | None = field(default=None, init=False)
    result: StepResult | None = field(default=None, init=False)
    judgement: Judgement | None = field(default=None, init=False)
    findings: tuple[Finding, ...] = field(default=(), init=False)

    @classmethod
    def open(
        cls,
        *,
        market: str,
        now: str,
        mode: str = "auto",
        run_folder: str = "",
        run_id: str = "",
        card_id: str = "",
        replay: str = "",
        workspace: Workspace | None = None,
    ) -> SlotRun:
        """Open a slot.

        Args:
            market: `cn`, `hk` or `us`.
            now: The instant, ISO 8601 with offset.
            mode: `auto`, `live` or `offline`.
            run_folder: Where evidence goes; empty for a new temporary folder, as in a run by hand.
            run_id: The run, given by the runner.
            card_id: Id of the card, given by the runner.
            replay: Run folder whose model answer is given again; empty for a new run.
            workspace: The workspace; found from the environment or the current folder by default.

        Raises:
            UsageError: `slot.closed` when the market is closed then; see also `slot_at`.
            ConfigError: The workspace or one of its files.
        """
        found = workspace or Workspace.find()
        slot, info = slot_at(found, market, parse_instant(now))
        if slot.closed is not None:
            raise UsageError(
                "slot.closed",
                f"the {market} market is closed at {slot.now:%Y-%m-%d %H:%M} "
                f"({slot.closed.replace('_', ' ')})",
                remedy="name an instant within a session",
            )
        config = found.config("intraday")
        recorded = ReplaySource.read(Path(replay) / LLM_FILE) if replay else None
        if recorded is None:
            cause = offline_cause(mode, found.config("llm"), model=config["judgement"]["model"])
        else:
            cause = recorded.noted(STEP)["cause"]
        source = open_source(found)
        return cls(
            workspace=found,
            slot=slot,
            info=info,
            mode=Mode.OFFLINE if cause else Mode.LIVE,
            cause=cause or "",
            folder=Path(run_folder) if run_folder else Path(tempfile.mkdtemp(prefix="kit-slot-")),
            run_id=run_id or f"by-hand/slot-{market}-{slot.hhmm}",
            card_id=card_id or "by-hand",
            store=Store(found.state_path) if found.state_path.is_file() else None,
            quotes=sample_quotes(source, found),
            replay=recorded,
        )

    # Stages

    def gather(self) -> View:
        """Preflight: quotes, holdings, signals, delta; writes `context.json`.

        Raises:
            ConfigError: The holdings cannot be read: without them there is no table.
        """
        portfolio = Portfolio.load(self.workspace, self.slot.market)
        symbols = [*(holding.symbol for holding in portfolio.holdings), *portfolio.indices]
        delivered, errors = self._delivered()
        batch = self._quotes(symbols)
        self.gathered = preflight(
            self.slot,
            portfolio,
            batch,
            market_name=self.info.name,
            config=self.config,
            delivered=delivered,
            generated_at=self.slot.now,
            source=self.quotes.name,
            errors=errors,
            synthetic=batch.synthetic,
        )
        files.write_json(self.folder / CONTEXT_FILE, dict(self.gathered.context))
        # A slot checks the servers that it calls, and calls none: nothing is started.
        answer = LockAnswer(skill_id=f"slot-{self.slot.market}")
        files.write_json(self.folder / LOCK_FILE, answer.to_dict())
        return View(
            f"行情 {self.gathered.context['title']}",
            ("代码", "名称", "现价", "昨收", "时间", "证实", "问题"),
            tuple(
                (
                    row.label,
                    row.name,
                    row.price,
                    row.prev_close,
                    words.dated(row.time, self.slot.now) if row.time else "",
                    "是" if row.fresh else "否",
                    row.problem,
                )
                for row in self.gathered.rows
            ),
        )

    def delta(self) -> View:
        """Show what is new since the last delivered slot."""
        context = self._context()
        delta, before = context["semantic_delta"], context["last_delivered"]
        rows = [("上次送达", before["slot"] if before else "无")]
        rows.append(("变化部分", "、".join(delta["components"]) or "无"))
        rows += [("新触发", _breach(breach)) for breach in delta["new_breaches"]]
        rows += [("已解除", _breach(breach)) for breach in delta["gone_breaches"]]
        return View("与上次送达相比", ("项", "内容"), tuple(rows))

    def packet(self) -> View:
        """Show the index of what a model is given; writes `packet.json`."""
        packet = core_packet(self._context())
        files.write_json(self.folder / PACKET_FILE, packet)
        rows = [
            (name, "core", len(files.canonical_json(value)))
            for name, value in packet.items()
            if name != "index"
        ]
        rows += [(row["name"], "reference", row["bytes"]) for row in packet["index"]["references"]]
        return View(f"上下文 {packet['index']['context_id']}", ("字段", "层", "字节"), tuple(rows))

    def judge(self) -> View:
        """Ask for the judgement, or list facts in its place; writes `prose.md` and `llm.jsonl`."""
        packet = core_packet(self._context())
        step = judgement_step(self.workspace, self.config)
        self.result = run_step(
            step,
            packet,
            mode=self.mode if self.replay is None else Mode.REPLAY,
            llm=self._model(),
            recorder=Recorder.for_config(self.folder / LLM_FILE, self.workspace.config("llm")),
            noted={"cause": self.cause or None},
            replay=self.replay,
        )
        self.judgement = Judgement.from_result(self.result)
        text = self.judgement.text if self.judgement else ""
        if self.result.failure is not None:
            text = f"没有判断：{failure_label(self.result.failure.kind)}\n"
        files.write_text(self.folder / PROSE_FILE, text)
        return View(f"判断（{words.MODES[str(self.mode)]}）", text=text)

    def check(self) -> View:
        """Check the judgement's own text; writes `checks.json` and `degradation.json`."""
        if self.judgement is not None:
            self.findings = check_judgement(self.judgement, core_packet(self._context()))
        value = {
            "verdict": self.verdict,
            "findings": [finding.to_dict() for finding in self.findings],
        }
        files.write_json(self.folder / CHECKS_FILE, value)
        files.write_json(self.folder / DEGRADATION_FILE, self._report())
        rows = tuple((f.severity, f.rule, f.message) for f in self.findings)
        return View(f"校验：{self.verdict}", ("级别", "规则", "说明"), rows)

    def card(self) -> View:
        """Assemble the card; writes `card.json`."""
        failure = self.result.failure if self.result else None
        card = slot_card(
            self._context(),
            Product(
                run_id=self.run_id,
                card_id=self.card_id,
                verdict=self.verdict,
                mode=str(self.mode),
                judgement=self.judgement,
                findings=self.findings,
                failure=f"模型{failure_label(failure.kind)}" if failure else "",
            ),
        )
        files.write_json(self.folder / CARD_FILE, card.to_dict())
        return View("卡片", text=render_card(card, "plain"))

    # What stages share

    @cached_property
    def config(self) -> dict[str, Any]:
        """`config/intraday.json`."""
        return self.workspace.config("intraday")

    @property
    def verdict(self) -> Any:
        """`pass`, `warn` or `fail`; a slot without a judgement fails."""
        return verdict_of(self.findings) if self.judgement is not None else "fail"

    def _context(self) -> Mapping[str, Any]:
        if self.gathered is None:
            raise UsageError(
                "slot.order",
                "this stage comes after gather()",
                remedy="run the notebook from the top",
            )
        return self.gathered.context

    def _quotes(self, symbols: list[str]) -> QuoteBatch:
        """Ask the source once; a source that fails as a whole leaves every symbol missing."""
        try:
            return self.quotes.quotes(symbols, self.slot.now)
        except (DataError, StorageError) as error:
            reason = f"行情源 {self.quotes.name} 出错 {error.code}"
            return QuoteBatch(at=self.slot.now, quotes={}, missing=dict.fromkeys(symbols, reason))

    def _delivered(self) -> tuple[Delivered | None, tuple[str, ...]]:
        if self.store is None:
            return None, ()
        try:
            return last_delivered(self.store, self.slot), ()
        except (KitError, OSError, LookupError, TypeError):
            # Whatever is wrong with old cards must not stop this one; the card says so.
            return None, (words.DELIVERED_UNREADABLE,)

    def _model(self) -> Any:
        if self.mode is not Mode.LIVE:
            return None
        store = self.store or Store(self.workspace.state_path)
        return metered_model(self.workspace.config("llm"), store, SystemClock())

    def _report(self) -> dict[str, Any]:
        """Return what did not run as designed, for `degradation.json` and the run's status."""
        report = ReportBuilder(_POLICY)
        context = self._context()
        missing = [row.label for row in self._rows() if row.price is None]
        stale = [row.time for row in self._rows() if row.time is not None and not row.fresh]
        if missing:
            report.add("required_field_missing", field="price", count=len(missing), symbols=missing)
        if stale:
            oldest = min(stale)
            lag = int((self.slot.now - oldest).total_seconds() // 60)
            report.add(
                "data_freshness_violation",
                lag_minutes=lag,
                max_lag_minutes=self.info.quote_stale_minutes,
                data_time=f"{oldest:%Y-%m-%d %H:%M}",
                expected_time=f"{self.slot.now:%Y-%m-%d %H:%M}",
                stopped_at=self._stopped_at(oldest),
            )
        if not context["calendar_known"]:
            report.add("calendar_unknown", date=context["date"])
        if self.cause:
            cause = words.CAUSES[self.cause]
            report.add("llm_offline_equivalent", step=STEP, quality="partial", cause=cause)
        failure = self.result.failure if self.result else None
        if failure is not None:
            report.add(
                "llm_step_failed", step=STEP, failed=1, total=1, kind=failure_label(failure.kind)
            )
        return report.build().to_dict()

    def _stopped_at(self, at: datetime) -> str:
        session = calendar(self.workspace, self.slot.market).session(at.date())
        return words.stopped_at(
            at,
            self.slot.now,
            zone=ZoneInfo(self.config["owner_timezone"]),
            close=session is not None and at >= session.close,
        )

    def _rows(self) -> tuple[Any, ...]:
        return self.gathered.rows if self.gathered is not None else ()


_POLICY = Policy(
    rules=(
        Rule(
            trigger="required_field_missing",
            action="skip_affected_picks",
            report_text=words.DEGRADED["quotes_missing"],
        ),
        Rule(
            trigger="data_freshness_violation",
            action="push_with_warning",
            report_text=words.DEGRADED["quotes_stale"],
        ),
        Rule(
            trigger="llm_offline_equivalent",
            action="use_offline_equivalent",
            report_text=words.DEGRADED["offline"],
        ),
        Rule(trigger="llm_step_failed", action="skip_step", report_text=words.DEGRADED["failed"]),
    )
)


def _breach(breach: Mapping[str, str]) -> str:
    return " ".join([breach["ticker"], breach["level"], breach.get("direction", "")]).strip()
