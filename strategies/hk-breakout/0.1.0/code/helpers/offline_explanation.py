"""Offline equivalent of `pick_explanation`: say in one sentence what the rule measured.

Every number is one of the pick's fields; nothing is computed or judged.
"""

from __future__ import annotations


def explain(inputs: dict) -> dict:
    """Return the reason text of one pick, and a confidence counted from two facts.

    Args:
        inputs: `pick` {symbol, name, score, fields, matched_rules} and `context`
            {today, sector_filter, news_window}.

    Returns:
        `reason_text` (Chinese, one sentence) and `confidence`.
    """
    pick, fields = inputs["pick"], inputs["pick"]["fields"]
    told = [text for text in (_breakout(fields), _volume(fields)) if text]
    if not told:
        return {"reason_text": f"{pick['name']}符合规则，指标未随信号给出。", "confidence": "low"}
    return {"reason_text": "；".join(told) + "。", "confidence": _confidence(fields)}


def _breakout(fields: dict) -> str:
    if not _has(fields, "close", "channel_high", "breakout_pct", "channel_bars"):
        return ""
    return (
        f"收盘 {fields['close']} 港元，高出此前 {fields['channel_bars']} 日最高 "
        f"{fields['channel_high']} 港元 {fields['breakout_pct']}%"
    )


def _volume(fields: dict) -> str:
    if not _has(fields, "volume_ratio", "volume_window"):
        return ""
    return f"成交量为此前 {fields['volume_window']} 日均量的 {fields['volume_ratio']} 倍"


def _confidence(fields: dict) -> str:
    """Count what speaks for the pick: twice the usual volume, a close not far above the channel."""
    facts = [
        _has(fields, "volume_ratio") and fields["volume_ratio"] >= 2,
        _has(fields, "breakout_pct") and fields["breakout_pct"] <= 1,
    ]
    return ("low", "medium", "high")[sum(facts)]


def _has(fields: dict, *names: str) -> bool:
    return all(fields.get(name) is not None for name in names)
