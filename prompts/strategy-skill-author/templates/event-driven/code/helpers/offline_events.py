"""Offline equivalent of `event_sector_filter`: count a sector's words in the day's texts.

The names are those of the securities table: a sector it does not know cannot match.
"""

from __future__ import annotations

import json
from pathlib import Path

SECTOR_WORDS = {
    "银行": ("银行", "存款", "贷款", "降准"),
    "保险": ("保险", "保费"),
    "证券": ("券商", "证券公司", "两融", "并购重组"),
    "钢铁": ("钢铁", "铁矿石", "粗钢"),
    "汽车零部件": ("汽车", "重卡", "发动机", "新能源车"),
    "家居": ("家居", "家装", "橱柜"),
    "传媒": ("影视", "票房", "电影"),
    "通信": ("通信", "5G", "基站", "算力"),
}


def focus_sectors(inputs: dict) -> dict:
    """Return the sectors that enough lines of `news_summary` name, most often named first."""
    path = Path(__file__).resolve().parents[2] / "config.json"
    params = json.loads(path.read_text(encoding="utf-8"))["_kit"]["params"]
    lines = [line for line in inputs["news_summary"].splitlines() if line.strip()]
    known = inputs.get("known_sectors") or list(SECTOR_WORDS)
    hits = {
        sector: sum(any(word in line for word in words) for line in lines)
        for sector, words in SECTOR_WORDS.items()
        if sector in known
    }
    ranked = sorted(hits, key=lambda sector: (-hits[sector], sector))
    focus = [sector for sector in ranked if hits[sector] >= params["sector_min_hits"]][:3]
    told = "、".join(f"{sector} {hits[sector]} 条" for sector in focus) or "没有板块被提到"
    return {"focus_sectors": focus, "rationale": f"共 {len(lines)} 条，{told}"}
