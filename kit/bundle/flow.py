"""The stages of the daily flow, in order: what How to Invoke must list, and the screen runs.

Cron runs the fixed notebook flow; an agent follows SKILL.md. Both must do the same things in the
same order, so the order is derived here once, from the manifest.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from kit.bundle.manifest import Manifest
from kit.bundle.markdown import Item, code_spans

__all__ = ["Stage", "daily_stages", "stage_of"]

_WORDS: Mapping[str, tuple[str, ...]] = {
    "load": ("load", "verify", "加载", "校验"),
    "lock": ("lock", "环境锁", "环境检查"),
    "data": ("data", "bars", "panel", "candidates", "数据", "行情", "候选域", "取数"),
    "news": ("news", "新闻", "消息"),
    "screen": ("screen", "筛选"),
    "rank": ("rank", "sort", "排序", "截断"),
    "report": ("report", "result", "报告", "结果"),
    "card": ("card", "push", "deliver", "卡片", "推送"),
}
_LEAD = re.compile(r"\s*\*\*(.+?)\*\*")


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One stage of the daily flow.

    Attributes:
        name: `load`, `lock`, `data`, `news`, the name of an LLM step, `screen`, `rank`, `report`,
            or `card`.
        required: Whether How to Invoke must list it.
        mark: Code span that identifies the stage (`prompts/x.md`, a method), or None.
        words: Words in an entry's bold lead that identify it.
    """

    name: str
    required: bool
    mark: str | None = None
    words: tuple[str, ...] = ()


def daily_stages(manifest: Manifest) -> list[Stage]:
    """Return the stages of a bundle's daily flow, in the order in which the screen runs them.

    Steps called once stand before the screen, behind the news they read; steps called for each
    pick stand after rank and cut.
    """
    steps = manifest.llm_steps.values()
    before = [step for step in steps if not step.per_pick]
    after = [step for step in steps if step.per_pick]
    return [
        _worded("load", required=False),
        _worded("lock", required=False),
        _worded("data", required=True),
        _worded("news", required=bool(before)),
        *(Stage(name=step.name, required=True, mark=step.prompt_path) for step in before),
        Stage(
            name="screen",
            required=True,
            mark=manifest.execution.screen_method,
            words=_WORDS["screen"],
        ),
        _worded("rank", required=True),
        *(Stage(name=step.name, required=True, mark=step.prompt_path) for step in after),
        _worded("report", required=True),
        _worded("card", required=False),
    ]


def stage_of(item: Item, stages: list[Stage]) -> Stage | None:
    """Return the stage that an entry of the flow describes, or None.

    A code span that names the stage's prompt or method decides; else the first stage word in the
    entry's bold lead.
    """
    spans = [span for _, span in code_spans(item.text)]
    for stage in stages:
        if stage.mark and any(_names(span, stage.mark) for span in spans):
            return stage
    lead = _LEAD.match(item.text)
    if lead is None:
        return None
    text = lead[1].lower()
    found = [
        (match.start(), position)
        for position, stage in enumerate(stages)
        for word in stage.words
        if (match := re.search(_pattern(word), text))
    ]
    return stages[min(found)[1]] if found else None


def _worded(name: str, *, required: bool) -> Stage:
    return Stage(name=name, required=required, words=_WORDS[name])


def _names(span: str, mark: str) -> bool:
    """Whether a code span is the mark, or ends with it as a method or function call."""
    bare = span.partition("(")[0]
    return bare == mark or re.search(rf"(?:\.|::){re.escape(mark)}$", bare) is not None


def _pattern(word: str) -> str:
    return rf"\b{word}" if word.isascii() else re.escape(word)
