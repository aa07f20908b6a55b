"""Offline equivalent of `event_company_filter`: whose own texts speak of technology.

The items of the news window are read one by one. An item speaks for a company of the universe when
it names that company's symbol and holds one of the words below; a company that enough items speak
for is in focus. No rally abroad, no text, or no company with enough items means no filter at all:
silence never narrows the universe.
"""

from __future__ import annotations

import json
from pathlib import Path

# What ties a company here to large technology names abroad: what it builds with, and for whom.
EVENT_WORDS = (
    "科技",
    "数字化",
    "数字科技",
    "云计算",
    "云服务",
    "人工智能",
    "大模型",
    "算力",
    "芯片",
    "大数据",
    "区块链",
    "元宇宙",
    "互联网",
    "信息系统",
    "手机银行",
    "跨境电商",
)


def focus_companies(inputs: dict) -> dict:
    """Return the companies whose own items speak of technology, most often first.

    Args:
        inputs: `today`, `context_moves` (the basket's moves), `news_window` {start, end, items} and
            `known_companies` [{symbol, name, industry}].

    Returns:
        `focus_sectors`, always empty here; `focus_companies`, symbols, possibly none; and a
        Chinese `rationale` with the counts.
    """
    params = _params()
    up = [move for move in inputs["context_moves"] if (move.get("change_pct") or 0) > 0]
    moved = f"美股篮子 {len(up)}/{len(inputs['context_moves'])} 只上涨"
    items = inputs["news_window"].get("items") or []
    if not items:
        return _answer([], f"{moved}；没有公司事件输入，不过滤")
    known = {company["symbol"]: company for company in inputs["known_companies"]}
    hits = {
        symbol: sum(symbol in item.get("symbols", ()) and _speaks(item) for item in items)
        for symbol in known
    }
    enough = params["event_min_hits"]
    focus = [symbol for symbol in known if hits[symbol] >= enough]
    focus = sorted(focus, key=lambda symbol: (-hits[symbol], symbol))
    focus = focus[: params["event_max_companies"]]
    if not focus:
        return _answer([], f"{moved}；{len(items)} 条事件都与科技无关，不过滤")
    told = "、".join(f"{known[symbol].get('name', symbol)} {hits[symbol]} 条" for symbol in focus)
    return _answer(focus, f"{moved}；{len(items)} 条事件中提到科技的：{told}")


def _speaks(item: dict) -> bool:
    text = f"{item.get('title', '')} {item.get('summary', '')}"
    return any(word in text for word in EVENT_WORDS)


def _answer(focus: list[str], rationale: str) -> dict:
    return {"focus_sectors": [], "focus_companies": focus, "rationale": rationale}


def _params() -> dict:
    path = Path(__file__).resolve().parents[2] / "config.json"
    return json.loads(path.read_text(encoding="utf-8"))["_kit"]["params"]
