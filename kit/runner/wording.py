"""Every Chinese sentence the runner itself puts on a card.

Used when no job could build a card, and to say on a card what a person must know about the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kit.card import HIGH, PROVENANCE, Block, Card
from kit.runner.failure import RunFailure
from kit.runner.identity import RunKey

__all__ = ["FAILURE_WORDS", "emergency_card", "with_notice"]

UNCLAIMED = "⚠ 状态库无法写入：本次运行未登记，同一卡片可能被另一次运行再次发送。"
UNPUBLISHED = "⚠ 运行目录无法写入：本次运行没有留下完整记录，卡片由内存直接发出。"

_TITLE = "🧯 {kind} {subject} {date}：运行失败"
_CONCLUSION = "本次没有可用结果，请勿据此操作。"
FAILURE_WORDS: Mapping[str, str] = {
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


def emergency_card(key: RunKey, failure: RunFailure) -> Card:
    """Build the card of last resort: that the run failed, where, why, and what to do."""
    reason = FAILURE_WORDS[failure.kind]
    where = f"（{failure.cell}）" if failure.cell else ""
    lines = [_CONCLUSION, f"原因：{reason}{where}", f"详情：{failure.message[:200]}"]
    if failure.remedy:
        lines.append(f"重跑：{failure.remedy}")
    return Card(
        card_id=failure.card_id,
        kind=key.kind if key.kind in ("screen", "slot") else "screen",
        title=_TITLE.format(kind=key.kind, subject=key.subject, date=key.trade_date.isoformat()),
        blocks=(
            Block(kind="failure", lines=tuple(lines), emphasis=HIGH, keep=True),
            Block(kind=PROVENANCE, lines=(f"运行 {failure.run_id}",)),
        ),
        mode="none",
        meta={"run_id": failure.run_id, "failure": failure.kind},
    )


def with_notice(card: Card, line: str) -> Card:
    """Put a line a person must not miss before everything else on a card."""
    notice = Block(kind="notice", lines=(line,), emphasis=HIGH, keep=True)
    return replace(card, blocks=(notice, *card.blocks))
