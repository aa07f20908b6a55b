"""The card of a slot: data blocks, judgement, banner and provenance in their contracted order.

Also the card of a slot whose notebook died: it is built from the context that preflight left, or,
when there is none, says only that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from kit.card import HIGH, PROVENANCE, Block, Card
from kit.intraday import wording
from kit.intraday.checks import Finding, Verdict
from kit.intraday.judgement import Judgement
from kit.intraday.slots import Slot

__all__ = ["BLOCK_ORDER", "Product", "failed_card", "failure_banner", "slot_card"]

BLOCK_ORDER = (
    "banner",
    "p0",
    "change",
    "health",
    "book",
    "table",
    "marks",
    "signals",
    "candidates",
    "add_side",
    "next_trigger",
    "view",
    "advice",
    PROVENANCE,
)
"""Kinds of blocks after the title, in the order of every slot card; absent ones are left out."""

_MOST_BULLETS = 4
_MOST_WARNINGS = 2


@dataclass(frozen=True, kw_only=True)
class Product:
    """What is known of a slot when its card is made.

    Attributes:
        run_id: The run.
        card_id: Id of the card.
        verdict: `pass`, `warn` or `fail`.
        mode: `live`, `offline` or `replay`; how the judgement was made, or would have been.
        judgement: The judgement; left out of the card when the verdict is `fail`.
        findings: What the checks found.
        failure: Why there is no judgement, in words of the card; empty when there is one.
    """

    run_id: str
    card_id: str
    verdict: Verdict
    mode: str
    judgement: Judgement | None = None
    findings: Sequence[Finding] = ()
    failure: str = ""


def slot_card(context: Mapping[str, Any], product: Product) -> Card:
    """Build the card of a slot from its context.

    Args:
        context: The sealed context; its data blocks are taken as they stand.
        product: Everything else.
    """
    data = [
        Block(
            kind=row["kind"],
            lines=tuple(row["lines"]),
            keep=row["kind"] in ("change", "health", "book", "table"),
            bold_rows=tuple(row["bold_rows"]),
        )
        for row in context["card_blocks"]
    ]
    at = datetime.fromisoformat(context["data_time"]) if context["data_time"] else None
    now = datetime.fromisoformat(context["slot"])
    blocks = [
        *_banner(product),
        *data,
        *_judgement_blocks(product),
        *_advice(product),
        _provenance(product.run_id, _as_of(at, now), product.mode, context["quote_source"]),
    ]
    blocks.sort(key=lambda block: BLOCK_ORDER.index(block.kind))
    return Card(
        card_id=product.card_id,
        kind="slot",
        title=context["title"],
        blocks=tuple(blocks),
        mode=_card_mode(product),
        meta={
            "run_id": product.run_id,
            "market": context["market"],
            "slot": context["slot"],
            "context_id": context["context_id"],
            "product": product.verdict,
            "generated_at": context["generated_at"],
            "state": context["semantic_state"],
        },
    )


def failed_card(
    slot: Slot,
    *,
    market_name: str,
    owner_timezone: str,
    run_id: str,
    card_id: str,
    reason: str,
) -> Card:
    """Build the card of a slot that left no context: loud, and without a table.

    Args:
        slot: The slot.
        market_name: The market's Chinese name.
        owner_timezone: Zone of the times on the card.
        run_id: The run.
        card_id: Id of the card.
        reason: What happened, in words of the card.
    """
    zone = ZoneInfo(owner_timezone)
    return Card(
        card_id=card_id,
        kind="slot",
        title=wording.title(market_name, slot.now.astimezone(zone), synthetic=False),
        blocks=(
            Block(
                kind="health",
                lines=(
                    f"⛔ 数据降级：本时点没有取到任何数据（{reason}）",
                    "持仓表与信号缺失，不代表没有异动；请直接查看行情。",
                ),
                emphasis=HIGH,
                keep=True,
            ),
            _provenance(run_id, "", "", ""),
        ),
        mode="none",
        meta={
            "run_id": run_id,
            "market": slot.market,
            "slot": slot.id,
            "context_id": None,
            "product": "fail",
        },
    )


def failure_banner(reason: str) -> str:
    """Write the banner of a card that carries data and no judgement."""
    return f"🔴 本时点没有判断（{reason}），仅发布数据块"


def _banner(product: Product) -> list[Block]:
    if product.failure:
        lines = [failure_banner(product.failure)]
    elif product.verdict == "fail":
        wrong = [f for f in product.findings if f.severity != "advisory"]
        lines = [f"🔴 校验未通过（{len(wrong)} 项），仅发布数据块："]
        lines += [f"· {finding.message}" for finding in wrong[:_MOST_BULLETS]]
    elif product.verdict == "warn":
        wrong = [f for f in product.findings if f.severity == "escalating"]
        told = "；".join(finding.message for finding in wrong[:_MOST_WARNINGS])
        lines = [f"🟠 校验警告（{len(wrong)}）：{told}"]
    else:
        return []
    return [Block(kind="banner", lines=tuple(lines), emphasis=HIGH, keep=True)]


def _judgement_blocks(product: Product) -> list[Block]:
    judgement = product.judgement
    if judgement is None or product.verdict == "fail":
        return []
    notes = [f"· {ticker}：{note}" for ticker, note in judgement.notes.items()]
    blocks = [Block(kind="view", lines=(*judgement.view, *notes))]
    if judgement.next_trigger:
        blocks.append(Block(kind="next_trigger", lines=(judgement.next_trigger,)))
    return blocks


def _advice(product: Product) -> list[Block]:
    if product.verdict == "fail":
        return []
    told = [f.message for f in product.findings if f.severity == "advisory"]
    if not told:
        return []
    return [Block(kind="advice", lines=tuple(f"ℹ️ 校验提示：{text}" for text in told[:2]))]


def _as_of(at: datetime | None, now: datetime) -> str:
    """Write the time of the data, and its age when that is more than a week."""
    if at is None:
        return ""
    age = wording.aged(at, now)
    return wording.dated(at, now) + (f"（{age}前）" if age else "")


def _provenance(run_id: str, data_time: str, mode: str, source: str) -> Block:
    parts = [f"运行 {run_id}"]
    if data_time:
        parts.append(f"数据截至 {data_time}")
    if mode in wording.MODES:
        parts.append(wording.MODES[mode])
    if source:
        parts.append(f"行情源 {source}")
    return Block(kind=PROVENANCE, lines=("｜".join(parts),), keep=True)


def _card_mode(product: Product) -> str:
    return product.mode if product.mode in ("live", "offline") else "none"
