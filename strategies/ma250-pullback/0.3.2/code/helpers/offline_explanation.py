"""Offline equivalent of `pick_explanation`: say in one sentence what the rule measured.

Every number is one of the pick's fields; nothing is computed or judged. Prices are written with two
decimals where that is all they have.
"""

from __future__ import annotations


def explain(inputs: dict) -> dict:
    """Return the reason text of one pick, and a confidence counted from three facts.

    Args:
        inputs: `pick` {symbol, name, score, fields, matched_rules} and `context`
            {today, sector_filter, news_window}.

    Returns:
        `reason_text` (Chinese, one or two sentences) and `confidence`.
    """
    pick = inputs["pick"]
    fields = pick["fields"]
    parts = [part(fields) for part in (_close, _low, _trend, _volume)]
    told = [part for part in parts if part]
    if not told:
        return {"reason_text": f"{pick['name']}符合规则，指标未随信号给出。", "confidence": "low"}
    text = "；".join(told) + "。" + _sector(fields, inputs["context"])
    return {"reason_text": text, "confidence": _confidence(fields)}


def _close(fields: dict) -> str:
    if not _has(fields, "close", "ma250", "distance_pct"):
        return ""
    close, line = _price(fields["close"]), _price(fields["ma250"])
    return f"收盘 {close} 元，高出年线 {line} 元 {fields['distance_pct']}%"


def _low(fields: dict) -> str:
    if not _has(fields, "low", "low_distance_pct"):
        return ""
    low, distance = _price(fields["low"]), fields["low_distance_pct"]
    if distance < 0:
        return f"盘中最低 {low} 元，跌破年线后收回"
    return f"盘中最低 {low} 元，距年线 {distance}%"


def _trend(fields: dict) -> str:
    if not _has(fields, "ma250_trend_pct", "trend_bars", "closes_above"):
        return ""
    bars = fields["trend_bars"]
    return (
        f"年线 {bars} 日上移 {fields['ma250_trend_pct']}%，"
        f"此前 {bars} 日有 {fields['closes_above']} 日收在线上"
    )


def _volume(fields: dict) -> str:
    if not _has(fields, "volume_ratio", "volume_window"):
        return ""
    ratio = fields["volume_ratio"]
    word = "缩量" if ratio < 1 else "未明显放量"
    return f"成交量为 {fields['volume_window']} 日均量的 {ratio} 倍，{word}"


def _sector(fields: dict, context: dict) -> str:
    focus = context.get("sector_filter") or []
    industry = fields.get("industry")
    if industry in focus:
        return f"所属{industry}在当日关注板块内。"
    return ""


def _confidence(fields: dict) -> str:
    """Count what speaks for the pick: quiet volume, life above the line, a line truly reached."""
    facts = [
        _has(fields, "volume_ratio") and fields["volume_ratio"] < 1,
        _has(fields, "closes_above", "trend_bars")
        and fields["closes_above"] * 2 > fields["trend_bars"],
        _has(fields, "low_distance_pct") and fields["low_distance_pct"] <= 0,
    ]
    return ("low", "medium", "medium", "high")[sum(facts)]


def _price(value: float) -> str:
    cents = f"{value:.2f}"
    return cents if float(cents) == value else str(value)


def _has(fields: dict, *names: str) -> bool:
    return all(fields.get(name) is not None for name in names)
