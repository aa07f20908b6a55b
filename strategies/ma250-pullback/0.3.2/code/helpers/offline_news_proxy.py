"""Offline equivalent of `event_sector_filter`: count a sector's words in the day's texts.

The texts are read line by line. A line speaks for a sector when it holds one of the sector's
words; a sector that enough lines speak for is in focus. No text, or no sector with enough lines,
means no filter at all: silence never narrows the universe.
"""

from __future__ import annotations

import json
from pathlib import Path

# Industry names are those of the securities table; a sector the table does not know cannot match.
SECTOR_WORDS = {
    "银行": ("银行", "存款", "贷款", "净息差", "降准", "不良率", "信贷"),
    "保险": ("保险", "保费", "寿险", "新业务价值", "偿付能力"),
    "证券": ("券商", "证券公司", "两融", "投行", "IPO", "并购重组", "成交额放大"),
    "钢铁": ("钢铁", "铁矿石", "粗钢", "螺纹钢", "铸管", "焦炭"),
    "汽车零部件": ("汽车", "重卡", "发动机", "商用车", "新能源车"),
    "家居": ("家居", "定制家具", "地产竣工", "家装", "橱柜"),
    "传媒": ("影视", "票房", "电影", "院线", "春节档"),
    "通信": ("通信", "5G", "基站", "算力", "运营商"),
    "贸易": ("外贸", "进出口", "一带一路", "关税", "出口退税"),
}


def focus_sectors(inputs: dict) -> dict:
    """Return the sectors that the texts speak for, most mentioned first.

    Args:
        inputs: `news_summary`, one item a line; optional `known_sectors` limits the answer.

    Returns:
        `focus_sectors`, possibly empty, and a Chinese `rationale` with the counts.
    """
    params = _params()
    lines = [line.strip() for line in inputs["news_summary"].splitlines() if line.strip()]
    if not lines:
        return {"focus_sectors": [], "rationale": "没有新闻输入，不做板块过滤"}
    known = inputs.get("known_sectors") or list(SECTOR_WORDS)
    hits = {
        sector: sum(any(word in line for word in words) for line in lines)
        for sector, words in SECTOR_WORDS.items()
        if sector in known
    }
    ranked = sorted(hits.items(), key=lambda item: (-item[1], item[0]))
    enough = params["sector_min_hits"]
    focus = [(sector, count) for sector, count in ranked if count >= enough]
    focus = focus[: params["sector_max_count"]]
    if not focus:
        told = f"共 {len(lines)} 条，没有板块达到 {enough} 条，不做板块过滤"
        return {"focus_sectors": [], "rationale": told}
    told = "、".join(f"{sector} {count} 条" for sector, count in focus)
    return {
        "focus_sectors": [sector for sector, _ in focus],
        "rationale": f"共 {len(lines)} 条，提及较多：{told}",
    }


def _params() -> dict:
    path = Path(__file__).resolve().parents[2] / "config.json"
    return json.loads(path.read_text(encoding="utf-8"))["_kit"]["params"]
