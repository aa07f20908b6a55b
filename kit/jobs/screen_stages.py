"""The stages of a daily screen, as the notebook calls them: one method a cell.

Each stage shows itself in its cell and leaves its evidence in the run folder. When a degradation
aborts the run, the stages after it say so and do nothing, until the result and the card, which are
always written. Nothing here sends: the runner does, once the notebook has ended.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from functools import partial, wraps
from pathlib import Path
from typing import Any

from kit import __version__, files, screen
from kit.bundle import Bundle, resolve
from kit.card import Card, render_card
from kit.clock import Clock, SystemClock, iso, parse_date, parse_instant
from kit.degradation import Policy, ReportBuilder
from kit.errors import BundleError, DataError, KitError, RunError, StorageError
from kit.jobs.agreement import measured_text
from kit.jobs.lock import (
    LOCK_FILE,
    LOCK_UNCHECKED,
    LockCheck,
    bundle_lock,
    lock_facts,
    lock_note,
    lock_rows,
    recorded_lock,
    tell_lock,
)
from kit.jobs.recording import record_panel
from kit.jobs.screen_news import (
    NEWS_FILE,
    NO_NEWS_WANTED,
    News,
    NewsFeed,
    fetch_news,
    recorded_news,
)
from kit.jobs.screen_steps import StepRunner
from kit.jobs.view import View
from kit.llm import Recorder, ReplaySource, StepResult, StepSpec, offline_cause
from kit.market import (
    BarSource,
    Calendar,
    MarketInfo,
    calendar,
    context_lag,
    market_info,
    open_source,
    with_context,
)
from kit.market.context import ContextLag
from kit.screen import (
    EMPTY_UNIVERSE,
    Candidate,
    CardFacts,
    Explained,
    Rejected,
    ScreenData,
    ScreenResult,
    StepNote,
)
from kit.screen.dates import latest_date
from kit.state import Store
from kit.workspace import Workspace

__all__ = ["CARD_FILE", "DEGRADATION_FILE", "LLM_FILE", "PICKS_FILE", "SIGNALS_FILE", "ScreenRun"]

SIGNALS_FILE = "signals.json"
PICKS_FILE = "picks.json"
DEGRADATION_FILE = "degradation.json"
CARD_FILE = "card.json"
LLM_FILE = "llm.jsonl"

EXPLANATION = "pick_explanation"
_ZONES = {
    "Asia/Shanghai": "北京时间",
    "Asia/Hong_Kong": "香港时间",
    "America/New_York": "美东时间",
}
_NEWS_KEYS = {"news", "news_summary", "news_window"}
_NEWS_STATES = {"found": "取到", "none_found": "没有找到", "not_fetched": "未获取"}


def _stage(method: Callable[[ScreenRun], View]) -> Callable[[ScreenRun], View]:
    """Make a stage that does nothing once the run was aborted, and that aborts on bundle code."""

    @wraps(method)
    def run(self: ScreenRun) -> View:
        if self.aborted:
            return View("已中止：本阶段不再执行", text="原因见结果中的降级报告")
        try:
            return method(self)
        except BundleError as error:
            said = screen.problem_text(error)
            self.report.add("screen_failed", error=said, message=error.message, where=error.where)
            return View("策略代码出错", ("说明", "详情"), ((said, error.message),))
        finally:
            # What is known by now, for the card of a run that dies in a later stage.
            self._keep_report()

    return run


@dataclass(kw_only=True)
class ScreenRun:
    """One screen while its notebook runs; call the stages in order.

    Attributes:
        workspace: Where bundles and configuration stand.
        ref: The bundle as asked for: `id`, `id@version`, `id@draft`.
        day: Trade date; None until the bundle says which one is the latest.
        mode: `auto`, `live` or `offline`.
        now: The instant the run speaks from, aware.
        folder: Run folder.
        run_id: The run.
        card_id: Id of the card.
        source_name: Which bar source to read.
        limit: Most picks; None for the bundle's own.
        timer: Where durations and deadlines come from.
        force_channel: Whether another channel of a server than the lock's is a warning only.
        lock: Checks the bundle's environment lock.
        feed: Fetches the news.
        replay: Folder of a run whose lock, news and answers are given again; None for a new run.
    """

    workspace: Workspace
    ref: str
    day: date | None
    mode: str
    now: datetime
    folder: Path
    run_id: str
    card_id: str
    source_name: str
    limit: int | None = None
    timer: Clock = field(default_factory=SystemClock)
    force_channel: bool = False
    lock: LockCheck = bundle_lock
    feed: NewsFeed = fetch_news
    replay: Path | None = None

    bundle: Bundle | None = field(default=None, init=False)
    report: ReportBuilder = field(init=False)
    data: ScreenData | None = field(default=None, init=False)
    found: list[Candidate] = field(default_factory=list, init=False)
    rejected: list[Rejected] = field(default_factory=list, init=False)
    picks: list[Candidate] = field(default_factory=list, init=False)
    explained: list[Explained] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.report = ReportBuilder(Policy())
        self._started = self.timer.monotonic()
        self._llm_config = self.workspace.config("llm")
        self._steps: StepRunner | None = None
        self._source: BarSource | None = None
        self._calendar: Calendar | None = None
        self._market: MarketInfo | None = None
        self._sectors: list[str] | None = None
        self._lock = dict(LOCK_UNCHECKED)
        self._news: News | None = None
        self._result: ScreenResult | None = None
        self._card: Card | None = None

    @classmethod
    def open(
        cls,
        *,
        bundle: str,
        date: str = "",
        mode: str = "auto",
        now: str = "",
        limit: int | None = None,
        source: str = "sample",
        run_folder: str = "",
        run_id: str = "",
        card_id: str = "",
        force_channel: bool = False,
        replay: str = "",
        workspace: Workspace | None = None,
        timer: Clock | None = None,
        lock: LockCheck = bundle_lock,
        feed: NewsFeed = fetch_news,
    ) -> ScreenRun:
        """Open a screen.

        Args:
            bundle: `id` (the active version), `id@version` or `id@draft`.
            date: Trade date `YYYY-MM-DD`; empty for the latest complete session.
            mode: `auto`, `live` or `offline`.
            now: The instant to speak from, ISO 8601 with offset; empty for the present.
            limit: Most picks; None for the bundle's own.
            source: Bar source.
            run_folder: Where evidence goes; empty for a new temporary folder, as in a run by hand.
            run_id: The run, given by the runner.
            card_id: Id of the card, given by the runner.
            force_channel: Whether another channel than the lock's is a warning only.
            replay: Run folder whose lock, news and model answers are given again: no server is
                started and no model is asked. Empty for a new run.
            workspace: The workspace; found from the environment or the current folder by default.
            timer: Where durations come from.
            lock: Checks the bundle's environment lock.
            feed: Fetches the news.

        Raises:
            UsageError: A malformed date, instant or mode.
            ConfigError: The workspace or `config/llm.json`.
        """
        found = workspace or Workspace.find()
        clock = timer or SystemClock()
        # A wrong mode is refused here, not in the middle of the flow.
        offline_cause(mode, found.config("llm"))
        recorded = Path(replay) if replay else None
        return cls(
            workspace=found,
            ref=bundle,
            day=parse_date(date) if date else None,
            mode=mode,
            now=parse_instant(now) if now else clock.now(),
            folder=Path(run_folder) if run_folder else Path(tempfile.mkdtemp(prefix="kit-screen-")),
            run_id=run_id or f"by-hand/screen-{bundle}",
            card_id=card_id or "by-hand",
            source_name=source,
            limit=limit,
            timer=clock,
            force_channel=force_channel,
            lock=recorded_lock(recorded) if recorded else lock,
            feed=recorded_news(recorded) if recorded else feed,
            replay=recorded,
        )

    @property
    def aborted(self) -> bool:
        """Whether a degradation ended the run before its time."""
        return self.report.aborted

    @property
    def notes(self) -> list[StepNote]:
        """How the LLM steps went so far."""
        return self._steps.notes if self._steps else []

    # Stages

    def load_bundle(self) -> View:
        """Open the bundle and verify every file of it.

        Raises:
            RegistryError: There is no such bundle; nothing can be said about it on a card.
            BundleError: A draft that cannot be opened: its author wants to know where. So does who
                replays a run.
            DataError: The record to replay from cannot be read.
        """
        try:
            bundle = resolve(self.workspace, self.ref)
        except BundleError as error:
            if self.ref.endswith("@draft") or self.replay:
                raise
            self.report.add("bundle_tampered", files=_files_of(error), message=error.message)
            self._keep_report()
            return View("策略包校验未通过", ("文件", "说明"), ((error.where, error.message),))
        self.bundle = bundle
        self.report = ReportBuilder(bundle.policy)
        self._steps = StepRunner(
            bundle=bundle,
            report=self.report,
            requested=self.mode,
            config=self._llm_config,
            recorder=Recorder.for_config(self.folder / LLM_FILE, self._llm_config),
            timer=self.timer,
            started=self._started,
            store=Store(self.workspace.state_path),
            run_id=self.run_id,
            measured=partial(measured_text, self.workspace, bundle.manifest.strategy_id),
            replay=ReplaySource.read(self.replay / LLM_FILE) if self.replay else None,
        )
        rows = [
            ("策略", bundle.ref),
            ("校验", "草稿，不校验" if bundle.is_draft else "全部文件与 checksums.txt 一致"),
            ("摘要", bundle.digest[:16]),
            *((name, value) for name, value in bundle.params.items()),
            *(("降级规则被忽略", problem) for problem in bundle.policy.ignored),
        ]
        return View(f"策略包 {bundle.ref}", ("项", "内容"), tuple(rows))

    @_stage
    def check_lock(self) -> View:
        """Check everything the bundle demands of its environment; writes `lock.json`."""
        bundle = self._bundle()
        try:
            answer = self.lock(self.workspace, bundle, forced=self.force_channel)
        except StorageError:
            raise
        except KitError as error:
            self._lock = {**LOCK_UNCHECKED, "status": "failed"}
            self.report.add(
                "env_lock_failed",
                names=[error.where],
                remedy_hint=screen.problem_text(error),
                message=error.message,
                remedy=error.remedy,
            )
            return View("环境锁", ("说明", "处理"), ((error.message, error.remedy),))
        files.write_json(self.folder / LOCK_FILE, answer.to_dict())
        self._lock = lock_facts(answer)
        tell_lock(self.report, answer)
        return View("环境锁", ("项", "状态"), tuple(lock_rows(answer)))

    @_stage
    def load_data(self) -> View:
        """Resolve the universe, open the bars, measure how fresh they are."""
        contract = self._bundle().manifest.data_contract
        try:
            self._market = market_info(self.workspace, contract.market)
            self._calendar = calendar(self.workspace, contract.market)
            if self.day is None:
                self.day = latest_date(self._calendar, contract.asof, self.now).day
            self._source = open_source(self.workspace, self.source_name)
            data = screen.load_data(self._source, contract, self.day, self._calendar)
            self.data, lags = self._beside(data)
        except StorageError:
            raise
        except KitError as error:
            self.report.add(
                "data_unavailable",
                error=screen.problem_text(error),
                message=error.message,
                remedy=error.remedy,
            )
            return View("行情不可用", ("说明", "处理"), ((error.message, error.remedy),))
        if self.replay is None:
            record_panel(self._bundle())
        screen.tell_data(self.report, self.data, self._calendar)
        screen.tell_context(self.report, lags)
        data, universe = self.data, self.data.universe
        rows = [
            ("交易日", data.day),
            ("数据时点", f"{data.data_time:%Y-%m-%d %H:%M %Z}"),
            ("延迟（分钟）", data.lag_minutes),
            ("要求 / 取到 / 参与", f"{universe.asked} / {universe.got} / {universe.screened}"),
            ("面板", data.panel),
            *((f"剔除 {drop.symbol}", drop.reason) for drop in universe.dropped[:20]),
        ]
        return View(f"行情 {self._source.name}", ("项", "内容"), tuple(rows))

    @_stage
    def news(self) -> View:
        """Collect the news between the previous close and now, where a step wants them."""
        wanted = [
            spec.name
            for spec in self._specs(per_pick=False)
            if _NEWS_KEYS & set(spec.input_schema.get("properties", {}))
        ]
        if not wanted:
            return View("新闻", text="没有步骤需要新闻")
        self._news = news = self.feed(self.workspace, self._bundle(), *self._news_span())
        files.write_json(self.folder / NEWS_FILE, news.to_dict())
        if news.status == "not_fetched":
            self.report.add(
                "news_not_fetched", error=news.problem, message=news.detail, steps=wanted
            )
        title = f"新闻：{iso(news.start)} 之后，到 {iso(news.end)}，{_NEWS_STATES[news.status]}"
        rows = [
            (item["published_at"], "、".join(item["symbols"]), item["title"]) for item in news.items
        ]
        if rows:
            return View(title, ("时间", "标的", "标题"), tuple(rows))
        return View(title, text=news.problem or screen.news_line(news.account))

    @_stage
    def sector_filter(self) -> View:
        """Run the steps that stand before the screen, and read the sectors they name."""
        rows: list[tuple[Any, ...]] = []
        for spec in self._specs(per_pick=False):
            results = self._step_runner().answers(
                spec, [self._filter_inputs(spec)], screen.filter_check
            )
            if self.aborted:
                break
            value = results[0].value if results else None
            if value is None:
                rows.append((spec.name, self.notes[-1].note or "没有答案", ""))
                continue
            known = [*self._known_sectors(), *self._data().securities]
            sectors, unknown = screen.read_sectors(value, known)
            self._sectors = sectors or self._sectors
            told = "、".join(sectors or ()) or "不过滤"
            more = f"（股票池没有：{'、'.join(unknown)}）" if unknown else ""
            rows.append((spec.name, told + more, str(value.get("rationale", ""))))
        if not rows and not self.aborted:
            return View("板块过滤", text="本策略没有这一步骤")
        return View("板块过滤", ("步骤", "板块", "理由"), tuple(rows))

    @_stage
    def screen(self) -> View:
        """Run the rule once, and check what it returns."""
        bundle, data = self._bundle(), self._data()
        if data.panel is None:
            return View("筛选", text="没有标的可参与筛选")
        returned = screen.run_rule(
            bundle.engine(),
            bundle.manifest.execution.screen_method,
            data.panel,
            data.data_date,
            self._sectors,
            self._limit(),
        )
        names = {symbol: security.name for symbol, security in data.securities.items()}
        self.found, self.rejected = screen.check_picks(returned, names)
        screen.tell_rejected(self.report, self.rejected)
        rows: list[tuple[Any, ...]] = [
            (pick.symbol, pick.name, pick.score, "、".join(pick.matched_rules))
            for pick in self.found
        ]
        rows += [(reject.symbol, "不采用", None, reject.reason) for reject in self.rejected]
        return View(f"筛选：返回 {len(returned)} 只", ("代码", "名称", "评分", "规则"), tuple(rows))

    @_stage
    def rank(self) -> View:
        """Cut to the limit, in the rule's own order."""
        limit = self._limit()
        self.picks = screen.cut(self.found, limit)
        if len(self.picks) < limit:
            screen.tell_shortfall(self.report, len(self.picks), limit, self._unusable())
        rows = [(n, p.symbol, p.name, p.score) for n, p in enumerate(self.picks, start=1)]
        return View(f"排序：取前 {limit} 只", ("序", "代码", "名称", "评分"), tuple(rows))

    @_stage
    def explain(self) -> View:
        """Write the reason of each pick: the step's answer, or the template in its place."""
        day = self._data().day.isoformat()
        spec = next((s for s in self._specs(per_pick=True) if s.name == EXPLANATION), None)
        spec = spec or next(iter(self._specs(per_pick=True)), None)
        results: Sequence[StepResult] = ()
        if spec is not None and self.picks:
            inputs = [
                screen.explanation_inputs(
                    pick, day, self._sectors, screen.news_of(self._window, pick.symbol)
                )
                for pick in self.picks
            ]
            results = self._step_runner().answers(spec, inputs, self._check_reason)
        if self.aborted:
            return View("说明", text="已中止")
        answers: list[StepResult | None] = [*results] or [None] * len(self.picks)
        self.explained = [
            self._explained(pick, answer) for pick, answer in zip(self.picks, answers, strict=True)
        ]
        rows = [(e.pick.symbol, e.reason_mode, e.confidence, e.reason_text) for e in self.explained]
        return View("说明", ("代码", "来源", "置信", "文字"), tuple(rows))

    def result(self) -> View:
        """Put the result together; writes `picks.json` and its like, whatever happened.

        Raises:
            DataError: The result does not match its schema: a fault of the kit.
        """
        report = screen.worded(self.report.build())
        picks = [] if report.aborted else self.explained
        self._result = ScreenResult(
            skill_id=self._skill_id(),
            date=self._day(),
            asof=self.data.data_time if self.data else None,
            picks=picks,
            universe=self.data.universe if self.data else EMPTY_UNIVERSE,
            report=report,
            provenance=self._provenance(),
            rejected=self._unusable(),
            repeated=list(dict.fromkeys(r.symbol for r in self.rejected if r.repeated)),
        )
        value = self._result.to_dict()
        signals = {
            "found": [candidate.to_dict() for candidate in self.found],
            "rejected": [reject.to_dict() for reject in self.rejected],
        }
        files.write_json(self.folder / SIGNALS_FILE, signals)
        files.write_json(self.folder / PICKS_FILE, value)
        files.write_json(self.folder / DEGRADATION_FILE, value["degradation_report"])
        rows = [(entry.code, entry.action, entry.reason, entry.impact) for entry in report.entries]
        title = f"结果：{len(picks)} 只候选，降级 {len(report.entries)} 项"
        return View(title, ("码", "处理", "原因", "影响"), tuple(rows))

    def card(self) -> View:
        """Write the card; `card.json`.

        Raises:
            RunError: `screen.no_result` when `result` did not run.
        """
        if self._result is None:
            raise _out_of_order("result")
        synthetic = bool(self.data and self.data.panel and self.data.panel.synthetic)
        self._card = screen.screen_card(
            self._result,
            CardFacts(
                card_id=self.card_id,
                run_id=self.run_id,
                ref=self._skill_id(),
                day=self._day(),
                next_session=self._next_session(),
                source=self._source.name if self._source else "",
                synthetic=synthetic,
                currency=self._market.currency if self._market else "CNY",
                prices=self.data.prices if self.data else {},
                restated=self.data.restated if self.data else frozenset(),
                steps=self.notes,
                lock_note=lock_note(self.bundle, self._lock),
                news=screen.news_line(self._news.account) if self._news else "",
                today=self.now.date(),
                settings=frozenset(self.bundle.params) if self.bundle else frozenset(),
                market_zone=_ZONES.get(self._market.timezone, self._market.timezone)
                if self._market
                else "北京时间",
            ),
        )
        files.write_json(self.folder / CARD_FILE, self._card.to_dict())
        return View("卡片", text=render_card(self._card, "plain"))

    def finish(self) -> bool:
        """Say that the flow reached its end with everything written.

        Raises:
            RunError: `screen.no_result` when the card was not made.
        """
        if self._card is None:
            raise _out_of_order("card")
        return True

    # Steps

    def _specs(self, *, per_pick: bool) -> list[StepSpec]:
        return self._step_runner().specs(per_pick=per_pick)

    def _step_runner(self) -> StepRunner:
        if self._steps is None:
            raise _out_of_order("load_bundle")
        return self._steps

    def _filter_inputs(self, spec: StepSpec) -> dict[str, Any]:
        data = self._data()
        facts: dict[str, Any] = {
            "today": data.day.isoformat(),
            "market": data.panel.market if data.panel else "",
            "news_summary": screen.news_summary(self._window),
            "news_window": self._window,
            # Names the markets that the news may speak of; without news there is none.
            "reference_markets": [],
            "context_moves": screen.context_moves(data.panel, data.data_date),
            "known_sectors": self._known_sectors(),
            "known_companies": [
                {"symbol": s.symbol, "name": s.name, "industry": s.industry}
                for s in data.securities.values()
            ],
        }
        return screen.filter_inputs(spec, facts)

    def _beside(self, data: ScreenData) -> tuple[ScreenData, list[ContextLag]]:
        """Put the contract's series of other markets beside the panel; say which are behind."""
        contract = self._bundle().manifest.data_contract
        if data.panel is None or self._source is None or not contract.context:
            return data, []
        first = screen.window_start(contract, data.day)
        panel = with_context(
            data.panel, self.workspace, self._source, contract.context, first, data.day
        )
        lags = context_lag(self.workspace, panel, contract.context, data.day)
        return replace(data, panel=panel), lags

    def _news_span(self) -> tuple[datetime, datetime]:
        """Return the previous close, and the moment of the screen: never past the next open."""
        day, days = self._day(), self._calendar
        following = self._next_session()
        before = days.session(days.previous(day)) if days else None
        after = days.session(following) if days and following else None
        end = min(self.now, after.open) if after else self.now
        start = before.close if before else end
        return min(start, end), end

    def _known_sectors(self) -> list[str]:
        return sorted({s.industry for s in self._data().securities.values() if s.industry})

    def _check_reason(self, inputs: Any, value: Any) -> str | None:
        symbol = inputs["pick"]["symbol"]
        pick = next(pick for pick in self.picks if pick.symbol == symbol)
        day = self._data().day.isoformat()
        return screen.check_reason(value.get("reason_text"), pick, self._facts(symbol), day)

    def _facts(self, symbol: str) -> list[float]:
        """Return the numbers a reason may quote beside the pick's own fields."""
        price = self._data().prices.get(symbol)
        numbers = screen.params_numbers(self._bundle().params)
        return numbers if price is None else [price, *numbers]

    def _explained(self, pick: Candidate, answer: StepResult | None) -> Explained:
        if answer is not None and answer.value is not None:
            return Explained(
                pick=pick,
                reason_text=screen.reason_line(answer.value["reason_text"]),
                confidence=screen.confidence_of(answer.value),
                reason_mode=str(answer.mode),
            )
        data = self._data()
        text = screen.render_template(
            self._bundle().reason_template, pick, data.prices.get(pick.symbol), data.day.isoformat()
        )
        return Explained(pick=pick, reason_text=text, confidence=None, reason_mode="template")

    @property
    def _window(self) -> dict[str, Any]:
        return self._news.window if self._news else {}

    # Facts

    def _keep_report(self) -> None:
        report = screen.worded(self.report.build())
        files.write_json(self.folder / DEGRADATION_FILE, report.to_dict())

    def _unusable(self) -> int:
        return sum(not reject.repeated for reject in self.rejected)

    def _provenance(self) -> dict[str, Any]:
        data, bundle = self.data, self.bundle
        following = self._next_session()
        panel = data.panel if data else None
        return {
            "run_id": self.run_id,
            "kit_version": __version__,
            "run_at": iso(self.now),
            "bundle": {"ref": bundle.ref, "digest": bundle.digest} if bundle else None,
            "data": {
                "source": self._source.name,
                "synthetic": bool(panel is not None and panel.synthetic),
                "adjustment": bundle.manifest.data_contract.adjustment,
                "fingerprint": panel.fingerprint if panel is not None else None,
                "note": data.universe.note,
            }
            if data is not None and bundle is not None and self._source is not None
            else None,
            "next_session": following.isoformat() if following else None,
            "mode": screen.mode_of(self.notes),
            "steps": [note.to_dict() for note in self.notes],
            "sector_filter": self._sectors,
            "news": self._news.account if self._news else dict(NO_NEWS_WANTED),
            "env_lock": dict(self._lock),
        }

    def _next_session(self) -> date | None:
        if self._calendar is None:
            return None
        try:
            return self._calendar.next(self._day())
        except DataError:
            return None

    def _limit(self) -> int:
        own = self._bundle().config["_kit"].get("limit")
        if self.limit is None and own is None:
            raise BundleError(
                "screen.no_limit",
                "the bundle does not say how many picks it wants",
                where="config.json: _kit.limit",
                remedy="set it, or pass --limit",
            )
        return int(self.limit if self.limit is not None else own)

    def _skill_id(self) -> str:
        if self.bundle is not None:
            return self.bundle.ref
        # What is asked for is pinned by the job; only by hand the version may be left open.
        return self.ref if "@" in self.ref else f"{self.ref}@unknown"

    def _day(self) -> date:
        return self.day or self.now.date()

    def _bundle(self) -> Bundle:
        if self.bundle is None:
            raise _out_of_order("load_bundle")
        return self.bundle

    def _data(self) -> ScreenData:
        if self.data is None:
            raise _out_of_order("load_data")
        return self.data


def _files_of(error: BundleError) -> list[str]:
    differences = error.details.get("differences", ())
    return [difference["path"] for difference in differences] or [error.where or error.message]


def _out_of_order(stage: str) -> RunError:
    return RunError(
        "screen.out_of_order",
        f"the stage {stage!r} has not run",
        remedy="run the notebook from the top",
    )
