"""The name of a conversation without a model: counted words, of which the leading ones are joined.

`offline_slug` is the offline equivalent that `prompts/conversation-slug.md` declares.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from kit.redact import MASK

__all__ = ["excerpt", "offline_slug"]

_MAX_MESSAGES = 12
_MAX_TEXT = 1_000
_LEAST_WORDS, _MOST_WORDS = 3, 4
_LONGEST = 24

# What researchers say of a rule, in the order of the work; the first column also opens a slug.
_ACTIONS = {
    "收紧": "tighten", "放宽": "loosen", "调": "tune", "修": "fix", "新增": "add", "加上": "add",
    "增加": "add", "去掉": "drop", "删": "drop", "换成": "replace", "改": "change",
    "比较": "compare", "对比": "compare", "解释": "explain", "验证": "validate", "检查": "check",
    "冻结": "freeze", "回测": "backtest", "发布": "release",
}  # fmt: skip
_TERMS = {
    "回踩": "pullback", "回调": "pullback", "均线": "average", "年线": "ma250",
    "突破": "breakout", "放量": "volume", "缩量": "volume", "成交量": "volume", "量能": "volume",
    "换手": "turnover", "止损": "stop", "止盈": "take-profit", "仓位": "position",
    "持仓": "holdings", "板块": "sector", "行业": "sector", "新闻": "news", "公告": "filings",
    "事件": "event", "情绪": "sentiment", "过滤": "filter", "筛选": "screen", "选股": "screen",
    "排序": "ranking", "阈值": "threshold", "参数": "params", "提示词": "prompt",
    "模板": "template", "涨停": "limit-up", "跌停": "limit-down", "停牌": "halt",
    "财报": "earnings", "估值": "valuation", "分红": "dividend", "北向": "northbound",
    "港股": "hk", "美股": "us", "航天": "aerospace", "半导体": "chips", "银行": "banks",
    "成本": "costs", "滑点": "slippage", "回撤": "drawdown", "前视": "lookahead",
    "预热": "warmup", "环境锁": "lock", "数据": "data", "行情": "bars", "报告": "report",
    "笔记本": "notebook",
}  # fmt: skip
_ENGLISH_ACTIONS = {
    *_ACTIONS.values(),
    "make",
    "remove",
    "raise",
    "lower",
    "write",
    "test",
    "split",
}
_STOP_WORDS = """
a about after all also am an and any are as at be because been before but by can could did do
does done else for from get go got had has have he her here him his how i if in into is it
its just let like look make me more most my need no not now of off ok okay on one only or
our out over please run say see she should show so some such take tell than that the their
them then there these they thing this those to too up us use used using very want was way we
well were what when where which while who why will with would yes you your file files text
message content tool input output true false null none json md py csv ipynb jsonl yaml txt
http https www com path draft strategies home user users tmp code src bash read write
helpers references edit grep glob ls cat cd sed python command description kit
"""
_STOP = frozenset(_STOP_WORDS.split())
_WORD = re.compile(
    "|".join(sorted(map(re.escape, (*_ACTIONS, *_TERMS)), key=len, reverse=True))
    + r"|[A-Za-z][A-Za-z0-9_]*(?:[-_][A-Za-z0-9]+)*|(?<![\w.])\d+(?:\.\d+)?(?![\w.]|:\d)"
)
_WEIGHTS = {"user": 3, "assistant": 1, "tool": 1, "system": 0}
_FIRST = 3  # the first words of the user weigh as much more


def excerpt(events: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return what a summary needs of a conversation: its first turns, as {role, text}, bounded."""
    found: list[dict[str, str]] = []
    for event in events:
        if event.get("meta") or event.get("sidechain") or event["kind"] == "tool_result":
            continue
        text = " ".join(_texts(event["content"]))[:_MAX_TEXT]
        if text.strip():
            found.append({"role": event["role"], "text": text})
        if len(found) == _MAX_MESSAGES:
            break
    return found


def offline_slug(inputs: dict[str, Any]) -> dict[str, Any]:
    """Name a conversation from its words.

    Args:
        inputs: `{"strategy_id", "date", "messages": [{"role", "text"}]}`.

    Returns:
        `{"slug"}`: three or four lower-case words, hyphenated; never empty.
    """
    own = str(inputs["strategy_id"])
    scores: Counter[str] = Counter()
    numbers: list[str] = []
    bonus = _FIRST
    for message in inputs["messages"]:
        weight = _WEIGHTS.get(message["role"], 0)
        if message["role"] == "user":
            weight, bonus = weight * bonus, 1
        for term in _terms(message["text"].replace(MASK, " ")):
            if term[0].isdigit():
                numbers.append(term)
            elif term != own:
                # A name with an underscore was chosen by somebody: a parameter, a step, a file.
                scores[term] += weight * (2 if "-" in term or term in _ENGLISH_ACTIONS else 1)
    leading = [term for term, score in scores.most_common() if score > 0]
    action = next((term for term in leading if term in _ENGLISH_ACTIONS), None)
    ordered = [action] if action else []
    ordered += [term for term in leading if term not in _ENGLISH_ACTIONS]
    fillers = [*numbers[:2], *own.split("-"), *str(inputs["date"]).split("-")]
    return {"slug": "-".join(_fill(ordered, fillers))}


def _terms(text: str) -> Iterator[str]:
    for match in _WORD.finditer(text):
        found = match[0]
        if found in _ACTIONS or found in _TERMS:
            yield _ACTIONS.get(found) or _TERMS[found]
        elif found[0].isdigit():
            yield found.removesuffix(".0").replace(".", "-")
        else:
            # lowerCamel reads as two words; a long mixture of letters and digits is some id.
            word = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", found).replace("_", "-").lower().strip("-")
            word = re.sub(r"-+", "-", word)
            random = len(word) > 12 and re.search(r"[a-f0-9]{8}", word) and re.search(r"\d", word)
            if 1 < len(word) <= _LONGEST and word not in _STOP and not random:
                yield word


def _fill(terms: Sequence[str], fillers: Sequence[str]) -> list[str]:
    """Take leading terms up to the most words, then fill up to the least."""
    words: list[str] = []
    for term in (*terms, *fillers):
        parts = [part for part in term.split("-") if part]
        if len(words) >= _LEAST_WORDS:
            break
        if any(part in words for part in parts) or len(words) + len(parts) > _MOST_WORDS:
            continue
        words += parts
    return words or ["conversation"]


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts of an event's content, however deep they lie."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)
