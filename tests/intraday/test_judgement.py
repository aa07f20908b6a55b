"""The judgement: the offline stand-in, and the checks on any judgement's text."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from kit.errors import ConfigError
from kit.intraday import (
    Gathered,
    Judgement,
    Portfolio,
    check_judgement,
    core_packet,
    judgement_step,
    offline_view,
    verdict_of,
)
from kit.intraday.checks import Finding
from kit.llm import Mode, run_step
from kit.market import QuoteBatch
from kit.workspace import Workspace

PRICES = {"600000.SH": (8.31, 8.35), "000151.SZ": (10.26, 9.75)}


@pytest.fixture
def packet(gather: Callable[..., Gathered], batch: Callable[..., QuoteBatch]) -> dict[str, Any]:
    return core_packet(gather(batch(PRICES)).context)


def judgement(*view: str, trigger: str = "下一触发：600000 跌破 8.05", **notes: str) -> Judgement:
    return Judgement(view=view, next_trigger=trigger, notes=notes, mode="live")


def rules(found: tuple[Finding, ...]) -> list[tuple[str, str]]:
    return [(finding.rule, finding.severity) for finding in found]


def test_the_offline_text_by_hand(packet: dict[str, Any]) -> None:
    # 600000: -0.5 % today, stop 8.05 is 8.05/8.31-1 = -3.1 % away; 000151: +5.2 %, past its line
    assert offline_view(packet) == {
        "view": "▎我的看法（离线整理：只列事实与未满足的条件，不作判断）\n"
        "持仓 2 只，行情已证实 2 只。\n"
        "今日最强 000151 +5.2%，最弱 600000 -0.5%。\n"
        "已到价：000151 减仓线 10.00。\n"
        "未触及：600000 止损线 8.05（距 -3.1%）。",
        "next_trigger": "下一触发：600000 跌破 8.05",
        "movers": [{"ticker": "000151", "note": "今日 +5.2%，原因未查"}],
    }


def test_the_offline_text_names_who_has_no_price(
    gather: Callable[..., Gathered], batch: Callable[..., QuoteBatch]
) -> None:
    context = gather(batch({}, missing={"600000.SH": "停牌", "000151.SZ": "停牌"})).context
    answer = offline_view(core_packet(context))
    assert "行情已证实 0 只；600000、000151 现价不明。" in answer["view"]
    assert answer["next_trigger"] == (
        "下一触发：行情未证实，价位线未核对：600000 止损线 8.05；000151 减仓线 10.00"
    )


def test_a_line_of_a_stale_quote_is_told_as_unchecked(
    gather: Callable[..., Gathered], batch: Callable[..., QuoteBatch]
) -> None:
    old = datetime(2024, 9, 17, 15, 0, tzinfo=ZoneInfo("Asia/Shanghai"))
    context = gather(batch(PRICES, stale={"000151.SZ": old})).context
    answer = offline_view(core_packet(context))
    assert answer["next_trigger"] == (
        "下一触发：600000 跌破 8.05；行情未证实，价位线未核对：000151 减仓线 10.00"
    )
    # The +5.2 % of 000151 belongs to the 17th, so 600000 stands alone.
    assert "今日 600000 -0.5%。" in answer["view"]
    assert "5.2%" not in answer["view"]


def test_no_line_and_no_line_left_are_told_apart(
    gather: Callable[..., Gathered], batch: Callable[..., QuoteBatch]
) -> None:
    row = {"symbol": "600000.SH", "shares": 100, "cost": 8.0}
    told = []
    for lines in ({}, {"stop_price": 8.5}):
        value = {"currency": "CNY", "indices": [], "holdings": [row | lines]}
        quotes = batch({"600000.SH": (8.31, 8.35)})
        context = gather(quotes, portfolio=Portfolio.from_dict("cn", value)).context
        told.append(offline_view(core_packet(context))["next_trigger"])
    assert told == ["下一触发：没有设价位线", "下一触发：价位线都已到价"]


def test_the_nearest_lines_come_first_and_the_others_are_counted(
    gather: Callable[..., Gathered], batch: Callable[..., QuoteBatch]
) -> None:
    # Every price is 100, so a line's distance in percent is its distance in yuan.
    lines = {"A": (95, 102), "B": (97.99, 102), "C": (98.01, 110)}
    holdings = [
        {"symbol": f"{name}.SH", "shares": 1, "cost": 1, "stop_price": stop, "trim_price": trim}
        for name, (stop, trim) in lines.items()
    ]
    portfolio = Portfolio.from_dict("cn", {"currency": "CNY", "indices": [], "holdings": holdings})
    quotes = batch({f"{name}.SH": (100.0, 100.0) for name in lines})
    packet = core_packet(gather(quotes, portfolio=portfolio).context)
    answer = offline_view(packet)
    assert answer["next_trigger"] == (
        "下一触发：C 跌破 98.01；A 升至 102.00；B 升至 102.00；B 跌破 97.99，另 2 条"
    )
    assert answer["view"].splitlines()[-1] == (
        "未触及：C 止损线 98.01（距 -2.0%）；A 减仓线 102.00（距 +2.0%）；"
        "B 减仓线 102.00（距 +2.0%）；B 止损线 97.99（距 -2.0%），另 2 条。"
    )
    answered = judgement(*answer["view"].splitlines(), trigger=answer["next_trigger"])
    assert check_judgement(answered, packet) == ()


def test_the_step_answers_offline_and_its_answer_passes_the_checks(
    workspace: Workspace, packet: dict[str, Any]
) -> None:
    step = judgement_step(workspace, workspace.config("intraday"))
    assert (step.quality, step.model) == ("partial", "deepseek/deepseek-v3.2")
    assert step.differences
    result = run_step(step, packet, mode=Mode.OFFLINE)
    answered = Judgement.from_result(result)
    assert answered is not None
    found = check_judgement(answered, packet)
    assert (found, verdict_of(found)) == ((), "pass")


@pytest.mark.parametrize("opening", ["▎我的看法", "  ▎我的看法", "**▎我的看法**", "## ▎我的看法"])
def test_the_marker_may_be_dressed_but_must_open(packet: dict[str, Any], opening: str) -> None:
    assert check_judgement(judgement(opening, "没有变化。"), packet) == ()


def test_a_marker_in_the_middle_of_a_sentence_is_none(packet: dict[str, Any]) -> None:
    found = check_judgement(judgement("如 ▎我的看法 所述，没有变化。"), packet)
    assert rules(found) == [("view_marker", "critical")]
    assert verdict_of(found) == "fail"


def test_a_marker_alone_is_no_view(packet: dict[str, Any]) -> None:
    assert rules(check_judgement(judgement("▎我的看法："), packet)) == [("empty_view", "critical")]
    assert check_judgement(judgement("▎我的看法：没有变化。"), packet) == ()


def test_a_missing_trigger_line_warns(packet: dict[str, Any]) -> None:
    found = check_judgement(judgement("▎我的看法", "没有变化。", trigger=""), packet)
    assert rules(found) == [("next_trigger", "escalating")]
    assert verdict_of(found) == "warn"


@pytest.mark.parametrize(
    "text",
    [
        "600000现价8.31元",  # Chinese characters right beside the number
        "000151涨5.2%，领先",
        "000151 回落到 10.3 附近",  # 10.26 rounded as printed
        "市值 40,320",  # 3000 x 8.31 + 1500 x 10.26
        "10:03 的读数",
        "浮动 -1.3%",
    ],
)
def test_numbers_of_the_packet_pass(packet: dict[str, Any], text: str) -> None:
    assert check_judgement(judgement("▎我的看法", text), packet) == ()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("目标9.99元", "9.99"),
        ("涨了6.1%", "6.1%"),
        ("8.31%", "8.31%"),  # a price is no percentage
        ("11:47 以后", "11:47"),
        ("见 09-17 的卡片", "09-17"),
    ],
)
def test_other_numbers_are_an_advisory_finding(
    packet: dict[str, Any], text: str, named: str
) -> None:
    found = check_judgement(judgement("▎我的看法", text), packet)
    assert rules(found) == [("numeric_claims", "advisory")]
    assert named in found[0].message
    assert verdict_of(found) == "pass"


def test_notes_are_part_of_the_text(packet: dict[str, Any]) -> None:
    found = check_judgement(judgement("▎我的看法", "见下。", **{"000151": "放量 77 倍"}), packet)
    assert rules(found) == [("numeric_claims", "advisory")]


def test_more_than_two_escalating_findings_fail() -> None:
    one = Finding(rule="next_trigger", severity="escalating", message="x")
    assert verdict_of([one]) == "warn"
    assert verdict_of([one, one]) == "warn"
    assert verdict_of([one, one, one]) == "fail"


def test_a_missing_prompt_is_named(workspace: Workspace) -> None:
    (workspace.prompts / "intraday.md").unlink()
    with pytest.raises(ConfigError) as caught:
        judgement_step(workspace, workspace.config("intraday"))
    assert (caught.value.code, caught.value.where) == ("slot.prompt", "prompts/intraday.md")
