"""What is new against the last delivered slot, and what is folded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import date, timedelta

from kit.intraday import Delivered, Gathered, Slot
from kit.market import QuoteBatch

QUIET = {"600000.SH": (8.31, 8.35), "000151.SZ": (9.9, 9.9)}
TRIM = {"600000.SH": (8.31, 8.35), "000151.SZ": (10.05, 10.09)}
Gather = Callable[..., Gathered]
AsDelivered = Callable[[Gathered], Delivered]


def lines(gathered: Gathered, kind: str) -> tuple[str, ...]:
    return next((block.lines for block in gathered.blocks if block.kind == kind), ())


def later(slot: Slot, hhmm: str) -> Slot:
    return replace(slot, id=f"2024-09-18T{hhmm}:00+08:00")


def test_the_first_slot_is_the_baseline(gather: Gather, batch: Callable[..., QuoteBatch]) -> None:
    quiet, loud = gather(batch(QUIET)), gather(batch(TRIM))
    assert lines(quiet, "change") == ("变化：今日首个送达时点，以此为基线",)
    assert lines(loud, "change") == ("变化：今日首个送达时点，以此为基线（新触发：000151）",)
    assert quiet.context["semantic_unchanged"] is False


def test_a_price_that_wobbles_is_no_change(
    gather: Gather, batch: Callable[..., QuoteBatch], as_delivered: AsDelivered, slot: Slot
) -> None:
    before = as_delivered(gather(batch(QUIET)))
    moved = batch({"600000.SH": (8.33, 8.35), "000151.SZ": (9.8, 9.9)})
    now = gather(moved, before, slot=later(slot, "10:30"))
    assert now.context["semantic_unchanged"] is True
    assert lines(now, "change") == (
        "变化：无（与上次送达 10:00 相比，触发档位与行情状态都没有变）",
    )
    assert now.context["last_delivered"] == {"slot": before.slot, "context_id": before.context_id}


def test_a_signal_is_told_once_and_then_folded(
    gather: Gather, batch: Callable[..., QuoteBatch], as_delivered: AsDelivered, slot: Slot
) -> None:
    first = gather(batch(QUIET))
    second = gather(batch(TRIM), as_delivered(first), slot=later(slot, "10:30"))
    assert lines(second, "change") == ("变化：信号/触发档位（新触发：000151）",)
    assert lines(second, "marks") == ("↑ 新异动/触发 000151",)
    assert lines(second, "signals")[:2] == ("⚠️ 信号", "TRIM 000151 现价 10.05 ≥ 减仓线 10.00")
    third = gather(batch(TRIM), as_delivered(second), slot=later(slot, "11:00"))
    assert lines(third, "marks") == ()
    assert lines(third, "signals") == ("今日已报、仍在：TRIM 000151",)
    # The analyzer's own text keeps the line and its reason: folding is the card's business.
    assert "TRIM 000151 现价 10.05 ≥ 减仓线 10.00" in third.context["analyzer_block"]
    assert "· 成本 9.12，现价 10.05，浮动 +10.2%" in third.context["analyzer_block"]


def test_what_came_back_within_the_session_is_not_new_again(
    gather: Gather, batch: Callable[..., QuoteBatch], as_delivered: AsDelivered, slot: Slot
) -> None:
    first = gather(batch(TRIM))
    gone = gather(batch(QUIET), as_delivered(first), slot=later(slot, "10:30"))
    assert lines(gone, "change") == ("变化：信号/触发档位（000151 已回到减仓线 10.00 以下）",)
    back = gather(batch(TRIM), as_delivered(gone), slot=later(slot, "11:00"))
    assert back.context["semantic_delta"]["new_breaches"] == []
    assert lines(back, "signals") == ("今日已报、仍在：TRIM 000151",)


def test_what_was_released_is_said_in_its_own_words(
    gather: Gather, batch: Callable[..., QuoteBatch], as_delivered: AsDelivered, slot: Slot
) -> None:
    # 8.05 meets the stop of 8.05; 9.70/9.40-1 = +3.2 % is a move, 9.60/9.40-1 = +2.1 % is none.
    first = gather(batch({"600000.SH": (8.05, 8.25), "000151.SZ": (9.7, 9.4)}))
    quotes = batch({"600000.SH": (8.1, 8.25), "000151.SZ": (9.6, 9.4)})
    after = gather(quotes, as_delivered(first), slot=later(slot, "10:30"))
    assert lines(after, "change") == (
        "变化：信号/触发档位（000151 今日涨跌现为 +2.1%；600000 已回到止损线 8.05 以上）",
    )


def test_a_quote_that_went_stale_releases_nothing(
    gather: Gather, batch: Callable[..., QuoteBatch], as_delivered: AsDelivered, slot: Slot
) -> None:
    first = gather(batch(TRIM))
    quotes = batch(TRIM, stale={"000151.SZ": slot.now})
    after = gather(quotes, as_delivered(first), slot=later(slot, "11:00"))
    assert lines(after, "change") == (
        "变化：信号/触发档位、行情状态（000151 行情未证实，减仓线未核对）",
    )


def test_a_move_that_grows_into_the_next_bucket_is_new(
    gather: Gather, batch: Callable[..., QuoteBatch], as_delivered: AsDelivered, slot: Slot
) -> None:
    first = gather(batch({"600000.SH": (8.65, 8.35)}))  # +3.6 %
    second = gather(
        batch({"600000.SH": (8.80, 8.35)}), as_delivered(first), slot=later(slot, "10:30")
    )  # +5.4 %
    assert [b["level"] for b in second.context["semantic_delta"]["new_breaches"]] == ["high"]
    assert [b["level"] for b in second.context["semantic_delta"]["gone_breaches"]] == ["medium"]
    assert [b["level"] for b in second.context["semantic_state"]["breaches_seen"]] == [
        "high",
        "medium",
    ]


def test_a_quote_going_missing_is_a_change_of_its_own(
    gather: Gather, batch: Callable[..., QuoteBatch], as_delivered: AsDelivered, slot: Slot
) -> None:
    first = gather(batch(QUIET))
    second = gather(
        batch({"600000.SH": (8.31, 8.35)}, missing={"000151.SZ": "停牌"}),
        as_delivered(first),
        slot=later(slot, "10:30"),
    )
    assert second.context["semantic_delta"]["components"] == ["quote_health"]
    assert lines(second, "change") == ("变化：行情状态",)


def test_another_day_starts_anew(
    gather: Gather, batch: Callable[..., QuoteBatch], as_delivered: AsDelivered, slot: Slot
) -> None:
    before = as_delivered(gather(batch(TRIM)))
    tomorrow = replace(
        slot,
        id="2024-09-19T10:00:00+08:00",
        trade_date=date(2024, 9, 19),
        now=slot.now + timedelta(days=1),
    )
    after = gather(batch(TRIM), before, slot=tomorrow)
    assert after.delta.first
    assert lines(after, "signals")[0] == "⚠️ 信号"


def test_a_new_breach_on_an_unverified_row_is_not_pointed_at(
    gather: Gather, batch: Callable[..., QuoteBatch], slot: Slot
) -> None:
    old = slot.now - timedelta(minutes=30)
    gathered = gather(batch(TRIM, stale={"000151.SZ": old}))
    assert lines(gathered, "marks") == ()
    assert gathered.context["card_marks"] == {"new": [], "stale": ["000151"]}
