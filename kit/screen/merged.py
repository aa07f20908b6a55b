"""One card for several screens: every strategy on a line of its own, then what they found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from kit.card import HIGH, PROVENANCE, Block, Card
from kit.degradation import ABORT, TRIGGERS
from kit.screen.wording import NO_PICKS, SYNTHETIC, day_text, numberless

__all__ = ["ScreenLine", "merged_card"]

# With more picks than this a card shows one line a pick; the reasons stand in each run's own card.
_WHOLE = 7
_MANY = "说明与指标见各策略的卡片（kit show）"


@dataclass(frozen=True, kw_only=True)
class ScreenLine:
    """What became of one strategy.

    Attributes:
        ref: `id@version`.
        status: As of its run: `ok`, `degraded`, `failed`, `interrupted`.
        run_id: Its run; empty when there was none.
        card: Its own card; None when there is none.
        report: Its degradation report, as in `picks.json`; None when it left none.
        problem: Why there is no card (zh-CN).
    """

    ref: str
    status: str
    run_id: str = ""
    card: Card | None = None
    report: Mapping[str, Any] | None = None
    problem: str = ""

    @property
    def picks(self) -> tuple[Block, ...]:
        """The blocks of its picks."""
        return tuple(b for b in self.card.blocks if b.kind == "pick") if self.card else ()

    @property
    def name(self) -> str:
        """The strategy; marked when its bars were generated."""
        synthetic = self.card is not None and self.card.meta.get("synthetic")
        return f"{self.ref}（{SYNTHETIC}）" if synthetic else self.ref

    @property
    def entries(self) -> Sequence[Mapping[str, Any]]:
        """Its degradations, in the order of its flow."""
        return self.report["entries"] if self.report else ()

    @property
    def broken(self) -> str:
        """Why it published nothing, when something stopped it (zh-CN); empty when nothing did."""
        if self.card is None:
            return self.problem or "没有结果"
        stopped = [e for e in self.entries if e["action"] == ABORT]
        return f"{stopped[0]['code']} {stopped[0]['reason']}" if stopped else ""


def merged_card(
    lines: Sequence[ScreenLine],
    *,
    card_id: str,
    run_id: str,
    day: date,
    today: date,
    notice: str = "",
) -> Card:
    """Build the card of several screens.

    Args:
        lines: One a strategy.
        card_id: Short id of the card.
        run_id: The run that made them.
        day: Trade date.
        today: Date on which the run takes place.
        notice: What a reader must not miss about the run as a whole (zh-CN).
    """
    blocks = [_block("notice", [notice], emphasis=HIGH, keep=True)] if notice else []
    blocks.append(_conclusion(lines, cut_short=bool(notice)))
    if lines:
        blocks.append(_summary(lines))
    if degradations := _degradations(lines):
        blocks.append(_block("degradation", degradations))
    blocks += _picks(lines)
    first = next((line.card for line in lines if line.card and line.card.block("times")), None)
    if first is not None and (times := first.block("times")):
        blocks.append(times)
    blocks.append(_block(PROVENANCE, [f"运行 {run_id}"]))
    modes = {line.card.mode for line in lines if line.card} - {"none"}
    return Card(
        card_id=card_id,
        kind="screen",
        title=f"每日筛选{f' {len(lines)} 个策略' if lines else ''} {day_text(day, today)}",
        blocks=tuple(blocks),
        mode="mixed" if len(modes) > 1 else next(iter(modes), "none"),
        meta={
            "run_id": run_id,
            "date": day.isoformat(),
            "screens": [
                {
                    "skill_id": line.ref,
                    "status": line.status,
                    "run_id": line.run_id,
                    "picks": line.card.meta.get("picks", []) if line.card else [],
                    "degradation_codes": [entry["code"] for entry in line.entries],
                }
                for line in lines
            ],
        },
    )


def _conclusion(lines: Sequence[ScreenLine], *, cut_short: bool) -> Block:
    found = sum(len(line.picks) for line in lines)
    broken = sum(bool(line.broken) for line in lines)
    loud = not found and (broken > 0 or cut_short)
    said = [f"共 {found} 只候选" if found else f"🔴 {NO_PICKS}" if loud else NO_PICKS]
    if broken:
        said.append(f"⛔ {broken} 个策略没有跑成，原因见下；请勿理解为「没有机会」")
    return _block("conclusion", said, emphasis=HIGH if loud else "normal", keep=True)


def _summary(lines: Sequence[ScreenLine]) -> Block:
    said = []
    for number, line in enumerate(lines, start=1):
        if line.broken:
            said.append(f"🔴 {number}. {line.ref}：没有跑成（{line.broken}）")
            continue
        codes = "、".join(dict.fromkeys(str(entry["code"]) for entry in line.entries))
        found = f"{len(line.picks)} 只候选" if line.picks else "没有候选"
        said.append(f"{number}. {line.name}：{found}" + (f" · ⛔ {codes}" if codes else ""))
    return _block("screens", said, keep=True)


def _degradations(lines: Sequence[ScreenLine]) -> list[str]:
    """Say each degradation once, and of how many strategies it is true."""
    found: Counter[tuple[str, str]] = Counter()
    impacts: dict[tuple[str, str], str] = {}
    for line in lines:
        for entry in line.entries:
            if entry["action"] == ABORT:
                continue  # stands beside the strategy
            key = (entry["code"], entry["reason"])
            found[key] += 1
            impacts[key] = entry["impact"]
    order = {trigger.code: place for place, trigger in enumerate(TRIGGERS.values())}
    said = []
    told: set[str] = set()
    for key in sorted(found, key=lambda key: order.get(key[0], len(order))):
        many = f"（{found[key]} 个策略）" if len(lines) > 1 else ""
        said.append(f"⛔ {key[0]} {key[1]}{many}")
        if impacts[key] not in told:
            told.add(impacts[key])
            said.append(f"　↳ {impacts[key]}")
    return said


def _picks(lines: Sequence[ScreenLine]) -> list[Block]:
    whole = sum(len(line.picks) for line in lines) <= _WHOLE
    blocks = []
    for number, line in enumerate(lines, start=1):
        if not line.picks:
            continue
        shown = [
            text for block in line.picks for text in (block.lines if whole else block.lines[:1])
        ]
        blocks.append(_block("pick", [f"{number}. {line.name}", *(f"　{text}" for text in shown)]))
    if blocks and not whole:
        blocks.append(_block("pick_note", [_MANY]))
    return blocks


def _block(
    kind: str, lines: Sequence[str], *, emphasis: str = "normal", keep: bool = False
) -> Block:
    clean = tuple(numberless(line) for line in lines)
    return Block(kind=kind, lines=clean, emphasis=emphasis, keep=keep)
