"""Offline equivalent of `pick_explanation`: say in one sentence what the rule measured.

Every number is one of the pick's fields; nothing is computed or judged.
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
    pick, fields = inputs["pick"], inputs["pick"]["fields"]
    told = [text for text in (_abroad(fields), _own(fields), _lag(fields)) if text]
    if not told:
        return {"reason_text": f"{pick['name']}符合规则，指标未随信号给出。", "confidence": "low"}
    text = "；".join(told) + "。" + _events(pick, inputs["context"])
    return {"reason_text": text, "confidence": _confidence(pick, inputs["context"])}


def _abroad(fields: dict) -> str:
    if not _has(fields, "basket_move_pct", "basket_up", "basket_names", "move_bars"):
        return ""
    return (
        f"美股科技篮子 {fields['move_bars']} 个时段平均上涨 {fields['basket_move_pct']}%，"
        f"{fields['basket_names']} 只中 {fields['basket_up']} 只上涨"
    )


def _own(fields: dict) -> str:
    if not _has(fields, "close", "own_move_pct", "move_bars"):
        return ""
    return f"收盘 {fields['close']} 元，{fields['move_bars']} 日涨 {fields['own_move_pct']}%"


def _lag(fields: dict) -> str:
    return f"落后篮子 {fields['lag_points']} 个百分点" if _has(fields, "lag_points") else ""


def _events(pick: dict, context: dict) -> str:
    focus = context.get("sector_filter") or []
    if pick["symbol"] in focus:
        return "公司近期事件提到科技。"
    if pick["fields"].get("industry") in focus:
        return f"所属{pick['fields']['industry']}在当日关注板块内。"
    return ""


def _confidence(pick: dict, context: dict) -> str:
    """Count what speaks for the pick: the whole basket up, a start made at home, an own event."""
    fields = pick["fields"]
    focus = context.get("sector_filter") or []
    facts = [
        _has(fields, "basket_up", "basket_names") and fields["basket_up"] == fields["basket_names"],
        _has(fields, "own_move_pct") and fields["own_move_pct"] > 0,
        pick["symbol"] in focus or fields.get("industry") in focus,
    ]
    return ("low", "medium", "medium", "high")[sum(facts)]


def _has(fields: dict, *names: str) -> bool:
    return all(fields.get(name) is not None for name in names)
