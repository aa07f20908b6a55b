"""The card: its order, its banners, its bytes, and the one of a dead notebook."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from kit import schemas
from kit.card import render_card
from kit.intraday import (
    BLOCK_ORDER,
    Gathered,
    Judgement,
    Product,
    Slot,
    failed_card,
    slot_card,
    wording,
)
from kit.intraday.book import TABLE_HEADER
from kit.intraday.checks import Finding
from kit.market import QuoteBatch

TRIM = {"600000.SH": (8.31, 8.35), "000151.SZ": (10.05, 10.09)}
RUN = {"run_id": "2024-09-18/slot-cn-1000/1", "card_id": "abcd1234", "mode": "offline"}
JUDGEMENT = Judgement(
    view=("▎我的看法（离线整理）", "没有变化。"),
    next_trigger="下一触发：600000 跌破 8.05",
    notes={"000151": "原因未查"},
    mode="offline",
)


@pytest.fixture
def context(gather: Callable[..., Gathered], batch: Callable[..., QuoteBatch]) -> Any:
    return gather(batch(TRIM)).context


def kinds(card: Any) -> list[str]:
    return [block.kind for block in card.blocks]


def test_the_whole_card_by_hand(context: Any) -> None:
    card = slot_card(context, Product(**RUN, verdict="pass", judgement=JUDGEMENT))
    assert render_card(card, "plain") == (
        "A股盘中 10:03 HKT\n"
        "\n"
        "变化：今日首个送达时点，以此为基线（新触发：000151）\n"
        "\n"
        "📊 市值 40,005 CNY｜浮盈 +1,065（+2.7%）｜今日 -180（-0.4%）\n"
        "\n"
        "| 代码 | 股 | 成本 | 现价 | 今日 | 浮% | 浮$ |\n"
        "| 600000 | 3000 | 8.42 | 8.31 | -0.5% | -1.3% | -330 |\n"
        "| 000151 | 1500 | 9.12 | 10.05 | -0.4% | +10.2% | +1,395 |\n"
        "\n"
        "↑ 新异动/触发 000151\n"
        "\n"
        "⚠️ 信号\n"
        "TRIM 000151 现价 10.05 ≥ 减仓线 10.00\n"
        "· 成本 9.12，现价 10.05，浮动 +10.2%\n"
        "\n"
        "下一触发：600000 跌破 8.05\n"
        "\n"
        "▎我的看法（离线整理）\n"
        "没有变化。\n"
        "· 000151：原因未查\n"
        "\n"
        "运行 2024-09-18/slot-cn-1000/1｜数据截至 09-18 10:03｜离线｜行情源 test · 卡片 abcd1234"
    )
    assert schemas.validate("card", card.to_dict()) == []


def test_blocks_keep_the_contracted_order_and_absent_ones_are_absent(context: Any) -> None:
    card = slot_card(context, Product(**RUN, verdict="pass", judgement=JUDGEMENT))
    assert kinds(card) == [kind for kind in BLOCK_ORDER if kind in kinds(card)]
    assert {"banner", "p0", "health", "candidates", "add_side", "advice"}.isdisjoint(kinds(card))


def test_the_table_has_the_same_bytes_in_every_channel(context: Any) -> None:
    card = slot_card(context, Product(**RUN, verdict="pass", judgement=JUDGEMENT))
    table = "\n".join(
        row["lines"] and "\n".join(row["lines"])
        for row in context["card_blocks"]
        if row["kind"] == "table"
    )
    wecom = render_card(card, "wecom")
    assert table in render_card(card, "plain")
    assert table in render_card(card, "telegram")
    assert "| **000151** | **1500** |" in wecom
    assert "| 600000 | 3000 |" in wecom
    assert wecom.replace("**", "") == render_card(card, "telegram")


def test_a_failed_check_sends_the_data_and_no_view(context: Any) -> None:
    finding = Finding(rule="view_marker", severity="critical", message="缺少 ▎我的看法 段首")
    card = slot_card(
        context, Product(**RUN, verdict="fail", judgement=JUDGEMENT, findings=[finding])
    )
    assert card.blocks[0].lines == (
        "🔴 校验未通过（1 项），仅发布数据块：",
        "· 缺少 ▎我的看法 段首",
    )
    assert card.block("table") is not None
    assert card.block("view") is None
    assert card.block("next_trigger") is None


def test_a_warning_goes_out_with_its_banner(context: Any) -> None:
    finding = Finding(rule="next_trigger", severity="escalating", message="缺少 下一触发：一行")
    card = slot_card(
        context, Product(**RUN, verdict="warn", judgement=JUDGEMENT, findings=[finding])
    )
    assert card.blocks[0].lines == ("🟠 校验警告（1）：缺少 下一触发：一行",)
    assert card.block("view") is not None


def test_an_advisory_finding_stands_at_the_foot(context: Any) -> None:
    finding = Finding(
        rule="numeric_claims", severity="advisory", message="数字在数据里找不到：9.99"
    )
    card = slot_card(
        context, Product(**RUN, verdict="pass", judgement=JUDGEMENT, findings=[finding])
    )
    assert kinds(card)[-2:] == ["advice", "provenance"]
    assert card.blocks[-2].lines == ("ℹ️ 校验提示：数字在数据里找不到：9.99",)


def test_a_model_that_did_not_answer_leaves_the_data_block(context: Any) -> None:
    card = slot_card(
        context, Product(**{**RUN, "mode": "live"}, verdict="fail", failure="模型超时")
    )
    assert card.blocks[0].lines == ("🔴 本时点没有判断（模型超时），仅发布数据块",)
    assert card.meta["product"] == "fail"


def health(gathered: Gathered) -> tuple[str, ...]:
    return next((block.lines for block in gathered.blocks if block.kind == "health"), ())


def test_a_stale_quote_says_since_when(
    gather: Callable[..., Gathered], batch: Callable[..., QuoteBatch], slot: Slot
) -> None:
    old = slot.now - timedelta(minutes=32)
    gathered = gather(batch(TRIM, stale={"000151.SZ": old}))
    assert health(gathered) == (
        "⛔ 数据降级：000151 行情未证实（沿用上一笔，自 09-18 09:31 起）",
        (
            "⛔ 数据降级：行情未证实，价位线未核对："
            "000151 减仓线 10.00（上一笔 10.05 已到价，未发信号）"
        ),
    )
    assert gathered.context["quote_coverage"] == {
        "refreshed": 1,
        "active": 2,
        "unrefreshed": ["000151"],
        "missing": {},
    }


def test_old_data_says_its_year_and_its_age(
    gather: Callable[..., Gathered], batch: Callable[..., QuoteBatch], slot: Slot
) -> None:
    now = datetime(2026, 12, 1, 10, 3, tzinfo=slot.now.tzinfo)
    later = replace(slot, id="2026-12-01T10:00:00+08:00", trade_date=now.date(), now=now)
    gathered = gather(batch(TRIM, stale=dict.fromkeys(TRIM, slot.now)), slot=later)
    # 2024-09-18 to 2026-09-18 are 730 days, and 12 + 31 + 30 + 1 more to 1 December.
    assert health(gathered)[0] == (
        "⛔ 数据降级：600000、000151 行情未证实（沿用上一笔，自 2024-09-18 10:03 起，已 804 天）"
    )
    foot = slot_card(gathered.context, Product(**RUN, verdict="pass")).blocks[-1].lines[0]
    assert "｜数据截至 2024-09-18 10:03（804 天前）｜" in foot


@pytest.mark.parametrize(
    ("now", "date", "age"),
    [
        ("2024-09-25T10:03:00+08:00", "09-18 15:00", ""),  # a week, not more
        ("2024-09-26T10:03:00+08:00", "09-18 15:00", "8 天"),
        ("2025-01-02T10:03:00+08:00", "2024-09-18 15:00", "106 天"),  # 12 + 31 + 30 + 31 + 2
    ],
)
def test_the_year_and_the_age_where_they_matter(now: str, date: str, age: str) -> None:
    at = datetime.fromisoformat("2024-09-18T15:00:00+08:00")
    moment = datetime.fromisoformat(now)
    assert (wording.dated(at, moment), wording.aged(at, moment)) == (date, age)


@pytest.mark.parametrize(
    ("at", "now", "close", "text"),
    [
        ("2024-09-18T15:00+08:00", "2024-09-19T10:03+08:00", True, "09-18 收盘（15:00）"),
        ("2024-09-18T09:31+08:00", "2024-09-18T10:03+08:00", False, "09-18 09:31"),
        # New York's close of the 18th is the 19th for an owner in Hong Kong.
        ("2024-09-18T16:00-04:00", "2024-09-19T10:03-04:00", True, "09-18 收盘（09-19 04:00）"),
        (
            "2024-09-18T15:00+08:00",
            "2026-12-01T10:03+08:00",
            True,
            "2024-09-18 收盘（15:00），已 804 天",
        ),
    ],
)
def test_where_quotes_stopped_by_hand(at: str, now: str, close: bool, text: str) -> None:
    moments = [datetime.fromisoformat(moment) for moment in (at, now)]
    zone = ZoneInfo("Asia/Hong_Kong")
    assert wording.stopped_at(*moments, zone=zone, close=close) == text


def test_missing_quotes_are_named_with_their_reason(
    gather: Callable[..., Gathered], batch: Callable[..., QuoteBatch]
) -> None:
    reasons = {"600000.SH": "行情源超时", "000151.SZ": "行情源超时"}
    gathered = gather(batch({}, missing=reasons))
    assert health(gathered) == (
        "⛔ 数据降级：600000、000151 没有行情（行情源超时），未计入市值",
        "⛔ 数据降级：行情未证实，价位线未核对：600000 止损线 8.05；000151 减仓线 10.00",
    )


def test_every_fault_has_its_own_line(
    gather: Callable[..., Gathered], batch: Callable[..., QuoteBatch], slot: Slot
) -> None:
    gathered = gather(
        batch(TRIM),
        slot=replace(slot, calendar_known=False),
        errors=("上次送达记录读不到，变化按首个时点列出",),
        synthetic=True,
    )
    assert health(gathered) == (
        "⛔ 数据降级：上次送达记录读不到，变化按首个时点列出",
        "⛔ 数据降级：日历未知，不能确认今天是否开市",
        "⛔ 数据降级：合成数据，不是真实行情",
    )
    assert gathered.context["title"] == "A股盘中 10:03 HKT（合成数据）"


def test_the_stop_sign_is_data_health_only(context: Any) -> None:
    card = slot_card(context, Product(**RUN, verdict="pass", judgement=JUDGEMENT))
    assert "⛔" not in render_card(card, "plain")
    assert card.block("signals").lines[0].startswith("⚠️")  # type: ignore[union-attr]


def test_a_slot_that_left_nothing_still_has_a_loud_card(slot: Slot) -> None:
    card = failed_card(
        slot,
        market_name="A股",
        owner_timezone="Asia/Hong_Kong",
        run_id="2024-09-18/slot-cn-1000/1",
        card_id="abcd1234",
        reason="运行进程退出",
    )
    text = render_card(card, "plain")
    assert text.startswith(
        "A股盘中 10:03 HKT\n\n⛔ 数据降级：本时点没有取到任何数据（运行进程退出）"
    )
    assert TABLE_HEADER not in text
    assert card.meta["product"] == "fail"
    assert schemas.validate("card", card.to_dict()) == []
