"""The screen card: what was found, what did not run as designed, and where it all comes from."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from kit.card import HIGH, PROVENANCE, Block, Card
from kit.degradation import QUALITIES, DegradationReport, step_label
from kit.screen.data import ScreenUniverse
from kit.screen.picks import Candidate
from kit.screen.result import Explained, ScreenResult
from kit.screen.steps import StepNote
from kit.screen.wording import (
    CONFIDENCE,
    FIELDS,
    MODES,
    NO_PICKS,
    REASON_MODES,
    SYNTHETIC,
    amount,
    code_of,
    day_text,
    figure,
    numberless,
    time_text,
)

__all__ = ["CardFacts", "mode_of", "screen_card", "screen_title"]

_MAX_FIELDS = 8
_MAX_REASONS = 3
_MAX_NAMED = 7
_FOUND_NOTHING = "规则正常跑完，没有标的命中；这不是故障"
_ABORTED = "流程已中止，原因见下方降级报告；请勿理解为「没有机会」"
_ALL_REJECTED = "规则返回 {count} 条结果，没有一条可用，原因见下方降级报告；请勿理解为「没有机会」"
_NOT_ADVICE = "研究输出，不是下单指令"


@dataclass(frozen=True, kw_only=True)
class CardFacts:
    """What the card says beside the result.

    Attributes:
        card_id: Short id of the card.
        run_id: Id of the run.
        ref: `id@version` or `id@draft`.
        day: Trade date.
        next_session: Session after it; None when the calendar does not say.
        source: Name of the bar source; empty when none was opened.
        synthetic: Whether the bars are generated.
        currency: ISO code of prices.
        prices: Symbol -> newest close as it traded.
        restated: Symbols whose source only has forward-adjusted prices.
        steps: How the LLM steps went.
        news: What became of the news, zh-CN; empty when no step wanted any.
        lock_note: Whether the environment lock was checked, zh-CN; empty when it was not.
        market_zone: Word for the zone of times on the card.
        today: Date on which the run takes place; None for the trade date.
        settings: Names of fields that repeat a parameter of the rule; they are not shown.
    """

    card_id: str
    run_id: str
    ref: str
    day: date
    next_session: date | None = None
    source: str = ""
    synthetic: bool = False
    currency: str = "CNY"
    prices: Mapping[str, float] = field(default_factory=dict)
    restated: frozenset[str] = frozenset()
    steps: Sequence[StepNote] = ()
    news: str = ""
    lock_note: str = ""
    market_zone: str = "北京时间"
    today: date | None = None
    settings: frozenset[str] = frozenset()


def screen_title(ref: str, day: date, today: date | None = None) -> str:
    """Return the first line: strategy, version and date; a draft is called one."""
    draft = "【草稿】" if ref.endswith("@draft") else ""
    return f"{draft}{ref} {day_text(day, today)}"


def mode_of(steps: Sequence[StepNote]) -> str:
    """Return how a run's steps were answered: `live`, `offline`, `mixed`, or `none`."""
    modes = {str(step.mode) for step in steps if step.mode is not None}
    return "mixed" if len(modes) > 1 else next(iter(modes), "none")


def screen_card(result: ScreenResult, facts: CardFacts) -> Card:
    """Build the card of a screen."""
    report = result.report
    mode = mode_of(facts.steps)
    blocks = [_conclusion(result)]
    if facts.synthetic:
        blocks.append(
            _block("synthetic", (f"⚠️ {SYNTHETIC}，不是真实行情",), emphasis=HIGH, keep=True)
        )
    if report.degraded:
        blocks.append(_degradation(report))
    blocks += [_pick(n, pick, facts) for n, pick in enumerate(result.picks, start=1)]
    if result.universe.asked:
        blocks.append(_universe(result.universe, result.repeated))
    lines = [facts.news] if facts.news else []
    lines += [_step_line(step) for step in facts.steps]
    if lines:
        blocks.append(_block("steps", lines, keep=True))
    blocks.append(_block("times", _times(result, facts), keep=True))
    blocks.append(_block(PROVENANCE, (_provenance(facts, mode),)))
    return Card(
        card_id=facts.card_id,
        kind="screen",
        title=numberless(screen_title(facts.ref, facts.day, facts.today)),
        blocks=tuple(blocks),
        mode=mode,
        meta=_meta(result, facts),
    )


def _meta(result: ScreenResult, facts: CardFacts) -> dict[str, Any]:
    return {
        "run_id": facts.run_id,
        "skill_id": result.skill_id,
        "date": result.date.isoformat(),
        "picks": [pick.pick.symbol for pick in result.picks],
        "aborted": result.report.aborted,
        "degradation_codes": [entry.code for entry in result.report.entries],
        "synthetic": facts.synthetic,
    }


def _block(
    kind: str, lines: Sequence[str], *, emphasis: str = "normal", keep: bool = False
) -> Block:
    """Return a block whose lines hold no word for "no number"."""
    clean = tuple(numberless(line) for line in lines)
    return Block(kind=kind, lines=clean, emphasis=emphasis, keep=keep)


def _conclusion(result: ScreenResult) -> Block:
    if result.picks:
        return _block("conclusion", (f"{len(result.picks)} 只候选",), keep=True)
    if result.report.aborted:
        return _block("conclusion", (f"🔴 {NO_PICKS}", _ABORTED), emphasis=HIGH, keep=True)
    if result.rejected:
        lines = (f"🔴 {NO_PICKS}", _ALL_REJECTED.format(count=result.rejected))
        return _block("conclusion", lines, emphasis=HIGH, keep=True)
    if result.report.degraded and not result.universe.screened:
        return _block(
            "conclusion", (f"🔴 {NO_PICKS}", "没有标的可参与筛选"), emphasis=HIGH, keep=True
        )
    return _block("conclusion", (NO_PICKS, _FOUND_NOTHING), keep=True)


def _degradation(report: DegradationReport) -> Block:
    lines = [f"⛔ 降级 {len(report.entries)} 项"]
    told: set[str] = set()
    for entry in report.entries:
        lines.append(f"{entry.code} {entry.reason}")
        # The same advice once: the reader is told what to do, not how often.
        if entry.impact not in told:
            told.add(entry.impact)
            lines.append(f"　↳ {entry.impact}")
    return _block("degradation", lines, keep=True, emphasis=HIGH if report.aborted else "normal")


def _pick(number: int, explained: Explained, facts: CardFacts) -> Block:
    pick = explained.pick
    price = facts.prices.get(pick.symbol)
    money = "价格未知" if price is None else amount(price, facts.currency)
    if price is not None and pick.symbol in facts.restated:
        money += "（前复权价）"
    name = "" if pick.name == pick.symbol else f" {pick.name}"
    head = f"{number}. {code_of(pick.symbol)}{name}"
    confidence = CONFIDENCE.get(explained.confidence or "")
    source = REASON_MODES[explained.reason_mode] + (f"·置信度{confidence}" if confidence else "")
    return _block(
        "pick",
        (
            f"{head} {money}{_score(pick)}",
            f"　{_figures(pick.fields, price, facts.settings)}",
            f"　说明（{source}）：{explained.reason_text}",
        ),
    )


def _score(pick: Candidate) -> str:
    """Return the score, unless it stands among the figures already, as such or as a percentage."""
    for value in pick.fields.values():
        if isinstance(value, bool) or not isinstance(value, int | float) or not value:
            continue
        share = figure(abs(pick.score) * 100, 2) == figure(abs(value), 2)
        if share or math.isclose(abs(pick.score), abs(value), rel_tol=1e-3):
            return ""
    return f" 评分 {figure(pick.score)}"


def _figures(fields: Mapping[str, Any], price: float | None, settings: frozenset[str]) -> str:
    """Return the measured figures; the close is not repeated when it is the price shown."""
    shown = []
    for name, value in fields.items():
        if name in settings or isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if name == "close" and price is not None and round(value, 3) == round(price, 3):
            continue
        label = FIELDS.get(name, name)
        if label.endswith("%"):
            shown.append(f"{label[:-1]} {figure(value, 2)}%")
        elif name.endswith("_pct"):
            shown.append(f"{name.removesuffix('_pct')} {figure(value, 2)}%")
        else:
            shown.append(f"{label} {figure(value)}")
    text = " · ".join(shown[:_MAX_FIELDS]) or "规则未给出指标"
    return text + (f" · 另 {len(shown) - _MAX_FIELDS} 项见报告" if len(shown) > _MAX_FIELDS else "")


def _universe(universe: ScreenUniverse, repeated: Sequence[str]) -> Block:
    counts = (
        f"要求 {universe.asked} 只",
        f"取到 {universe.got} 只",
        f"参与筛选 {universe.screened} 只",
        f"剔除 {len(universe.dropped)} 只",
    )
    lines = [f"股票池：{'，'.join(counts)}"]
    reasons = Counter(drop.reason for drop in universe.dropped).most_common()
    for reason, count in reasons[:_MAX_REASONS]:
        codes = [code_of(drop.symbol) for drop in universe.dropped if drop.reason == reason]
        lines.append(f"　剔除 {count} 只（{_named(codes)}）：{reason}")
    if len(reasons) > _MAX_REASONS:
        rest = sum(count for _, count in reasons[_MAX_REASONS:])
        lines.append(f"　另 {rest} 只的原因见报告")
    if repeated:
        codes = [code_of(symbol) for symbol in repeated]
        lines.append(f"　规则重复返回 {len(codes)} 只（{_named(codes)}），每只只计一次")
    return _block("universe", lines, keep=True)


def _named(codes: Sequence[str]) -> str:
    return "、".join(codes[:_MAX_NAMED]) + ("等" if len(codes) > _MAX_NAMED else "")


def _step_line(step: StepNote) -> str:
    name = step_label(step.step)
    if step.mode is None:
        return f"{name}：未运行（{step.note}）" if step.note else f"{name}：未运行"
    who = f"模型 {step.model}" if step.mode == "live" else "离线规则"
    quality = "" if step.mode == "live" else f"（{QUALITIES[step.quality]}）"
    done = f"，成功 {step.ok}/{step.total}" if step.total != 1 or step.ok != 1 else ""
    note = f"，{step.note}" if step.note else ""
    return f"{name}：{who}{quality}{done}{note}"


def _times(result: ScreenResult, facts: CardFacts) -> tuple[str, ...]:
    asof = f"数据时点 {time_text(result.asof)} 收盘" if result.asof is not None else "数据时点 无"
    if result.asof is None and facts.next_session is None:
        # Nothing was read, the calendar neither: that says nothing of what it knows.
        return (f"{asof}（{facts.market_zone}）", _NOT_ADVICE)
    following = (
        day_text(facts.next_session, facts.day) if facts.next_session else "下一交易日（日历未知）"
    )
    return (f"{asof} · 供 {following} 开盘参考（{facts.market_zone}）", _NOT_ADVICE)


def _provenance(facts: CardFacts, mode: str) -> str:
    parts = [f"运行 {facts.run_id}"]
    parts.append(f"数据 {facts.source}" if facts.source else "数据 未读取")
    parts.append(f"模式 {MODES[mode]}")
    if facts.lock_note:
        parts.append(facts.lock_note)
    return " · ".join(parts)
