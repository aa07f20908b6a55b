"""The screen card: golden text, abort, and what a hostile name can do to it."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from kit import schemas
from kit.card import Card, render_card
from kit.degradation import Policy, ReportBuilder
from kit.errors import BundleError, DataError, KitError
from kit.llm import Mode
from kit.market import Dropped
from kit.screen import (
    Candidate,
    CardFacts,
    Explained,
    Rejected,
    ScreenResult,
    ScreenUniverse,
    StepNote,
    mode_of,
    problem_text,
    screen_card,
    screen_title,
    tell_rejected,
    tell_shortfall,
    worded,
)

DAY = date(2024, 9, 19)
SHANGHAI = ZoneInfo("Asia/Shanghai")


def step(name: str, mode: Mode | None = Mode.OFFLINE, **changes: Any) -> StepNote:
    values: dict[str, Any] = {
        "step": name,
        "mode": mode,
        "quality": "approximate",
        "model": "deepseek/deepseek-v3.2",
        "ok": 1,
        "total": 1,
    }
    return StepNote(**{**values, **changes})


def pick(symbol: str = "600000.SH", name: str = "浦发银行", **changes: Any) -> Explained:
    candidate = Candidate(
        symbol=symbol,
        name=name,
        score=0.012345,
        fields={"close": 10.02, "ma250": 9.9, "distance_pct": 1.21, "gap_pct": -0.5, "kind": "x"},
        matched_rules=("near",),
    )
    values: dict[str, Any] = {
        "pick": candidate,
        "reason_text": "收盘略高于年线。",
        "confidence": "medium",
        "reason_mode": "offline",
    }
    return Explained(**{**values, **changes})


UNIVERSE = ScreenUniverse(
    asked=10,
    got=3,
    screened=2,
    dropped=(
        *(Dropped(symbol=f"60100{i}.SH", name="", reason="没有行情") for i in range(7)),
        Dropped(symbol="000151.SZ", name="中成股份", reason="历史不足"),
    ),
)


def result(report: ReportBuilder | None = None, **changes: Any) -> ScreenResult:
    values: dict[str, Any] = {
        "skill_id": "ma250-pullback@0.3.1",
        "date": DAY,
        "asof": datetime(2024, 9, 19, 15, 0, tzinfo=SHANGHAI),
        "picks": (pick(), pick("000001.SZ", "平安银行", reason_mode="template", confidence=None)),
        "universe": UNIVERSE,
        "report": (report or ReportBuilder(Policy())).build(),
        "provenance": provenance(),
    }
    return ScreenResult(**{**values, **changes})


def provenance() -> dict[str, Any]:
    return {
        "run_id": "2024-09-19/screen-ma250-pullback@0.3.1/1",
        "kit_version": "0.1.0",
        "run_at": "2024-09-19T08:40:00+00:00",
        "bundle": None,
        "data": None,
        "next_session": "2024-09-20",
        "mode": "offline",
        "steps": [step("event_sector_filter").to_dict()],
        "sector_filter": None,
        "news": {"status": "not_fetched", "count": 0},
        "env_lock": {"status": "not_checked", "stages_failed": [], "servers": {}},
    }


FACTS = CardFacts(
    card_id="a1b2c3d4",
    run_id="2024-09-19/screen-ma250-pullback@0.3.1/1",
    ref="ma250-pullback@0.3.1",
    day=DAY,
    next_session=date(2024, 9, 20),
    source="sample",
    prices={"600000.SH": 10.02, "000001.SZ": 9.8},
    restated=frozenset({"000001.SZ"}),
    steps=(step("event_sector_filter"), step("pick_explanation", ok=1, total=2)),
    today=DAY,
)

GOLDEN = """\
ma250-pullback@0.3.1 9月19日(周四)

2 只候选

⛔ 降级 1 项
D-031 本次命中 2 只，少于目标 7 只（策略未写此规则，按默认处理）
　↳ 命中少于目标，不要为凑数放宽条件；单只仓位不因此加大

1. 600000 浦发银行 10.02 元 评分 0.0123
　年线 9.9 · 距年线 1.21% · gap -0.5%
　说明（离线规则·置信度中）：收盘略高于年线。

2. 000001 平安银行 9.80 元（前复权价） 评分 0.0123
　收盘 10.02 · 年线 9.9 · 距年线 1.21% · gap -0.5%
　说明（模板）：收盘略高于年线。

股票池：要求 10 只，取到 3 只，参与筛选 2 只，剔除 8 只
　剔除 7 只（601000、601001、601002、601003、601004、601005、601006）：没有行情
　剔除 1 只（000151）：历史不足

板块过滤：离线规则（近似）
入选说明：离线规则（近似），成功 1/2

数据时点 2024-09-19 15:00 收盘 · 供 9月20日(周五) 开盘参考（北京时间）
研究输出，不是下单指令

运行 2024-09-19/screen-ma250-pullback@0.3.1/1 · 数据 sample · 模式 离线 · 卡片 a1b2c3d4"""


def test_golden() -> None:
    report = ReportBuilder(Policy())
    report.add("picks_count_below_target", actual=2, target=7)
    card = screen_card(result(report), FACTS)
    assert render_card(card, "plain") == GOLDEN
    assert render_card(card, "wecom").replace("**", "") == GOLDEN
    assert schemas.validate("card", card.to_dict()) == []
    assert card.meta["picks"] == ["600000.SH", "000001.SZ"]
    assert card.meta["degradation_codes"] == ["D-031"]


def test_an_abort_is_loud_and_says_what_to_do() -> None:
    report = ReportBuilder(Policy())
    report.add("bundle_tampered", files=["code/signal_engine.py"])
    card = screen_card(
        result(report, picks=(), asof=None, universe=replace(UNIVERSE, asked=0)),
        replace(FACTS, steps=(), source="", next_session=None),
    )
    text = render_card(card, "plain")
    assert "🔴 今日无可推送候选" in text
    assert "请勿理解为「没有机会」" in text
    assert "D-051 策略包与校验和不符：code/signal_engine.py" in text
    assert "请勿沿用上一日名单" in text
    assert "股票池" not in text
    assert "数据 未读取" in text
    # Nothing was read, not even the calendar: nothing is said about what it knows.
    assert "\n数据时点 无（北京时间）\n" in text
    assert "日历未知" not in text
    assert "开盘参考" not in text
    conclusion, degradation = card.block("conclusion"), card.block("degradation")
    assert conclusion is not None
    assert degradation is not None
    assert (conclusion.emphasis, degradation.emphasis) == ("high", "high")
    assert "**🔴 今日无可推送候选**" in render_card(card, "wecom")
    assert card.mode == "none"
    assert card.meta["aborted"] is True


def test_finding_nothing_is_not_a_failure() -> None:
    text = render_card(screen_card(result(picks=()), FACTS), "plain")
    assert "\n今日无可推送候选\n规则正常跑完，没有标的命中；这不是故障\n" in text
    assert "🔴" not in text
    assert "⛔" not in text


def test_a_rule_whose_picks_are_all_unusable_did_not_find_nothing() -> None:
    report = ReportBuilder(Policy())
    nan = "评分不是有限数值"
    tell_rejected(
        report, [Rejected(symbol=f"60000{i}.SH", field="score", reason=nan) for i in range(3)]
    )
    tell_shortfall(report, 0, 7, 3)
    broken = result(picks=(), rejected=3, report=ReportBuilder(Policy()))
    broken = replace(broken, report=worded(report.build()))
    card = screen_card(broken, FACTS)
    text = render_card(card, "plain")
    assert "\n🔴 今日无可推送候选\n规则返回 3 条结果，没有一条可用，原因见下方降级报告；" in text
    assert "这不是故障" not in text
    assert "规则的结果都不可用" in text
    assert "符合条件" not in text
    conclusion = card.block("conclusion")
    assert conclusion is not None
    assert conclusion.emphasis == "high"


def test_a_symbol_is_told_once_and_by_its_own_reason() -> None:
    report = ReportBuilder(Policy())
    other = {"field": "symbol", "reason": "不在参与筛选的标的中"}
    twice = {"field": "symbol", "reason": "重复返回", "repeated": True}
    tell_rejected(
        report,
        [
            *[Rejected(symbol="000783.SZ", **twice)] * 99,
            *[Rejected(symbol="999999.SZ", **other)] * 5,
            Rejected(symbol="ghost", **other),
            Rejected(symbol="600000.SH", field="score", reason="评分不是有限数值"),
        ],
    )
    entries = worded(report.build()).entries
    default = "（策略未写此规则，按默认处理）"
    assert [entry.reason for entry in entries] == [
        f"规则返回的 2 只不在参与筛选的标的中，不采用（999999.SZ、ghost）{default}",
        f"规则返回的 1 只评分不是有限数值，不采用（600000.SH）{default}",
    ]
    assert [entry.details["count"] for entry in entries] == [2, 1]
    assert [entry.trigger for entry in entries] == ["required_field_missing"] * 2


def test_a_repeated_pick_is_a_line_beside_the_universe_not_a_missing_field() -> None:
    text = render_card(screen_card(result(repeated=("600000.SH",)), FACTS), "plain")
    assert "\n　规则重复返回 1 只（600000），每只只计一次\n" in text
    assert "⛔" not in text


def test_the_strategys_words_for_missing_data_stay() -> None:
    report = ReportBuilder(Policy())
    report.add("required_field_missing", count=1, symbols=["600000.SH"], field="close")
    assert worded(report.build()) == report.build()


@pytest.mark.parametrize(
    ("actual", "unusable", "advice"),
    [
        (0, 0, "今天没有符合条件的股票，不操作"),
        (0, 3, "规则的结果都不可用，今天有没有机会无从判断；不操作，先请策略作者修正"),
        (2, 0, "命中少于目标，不要为凑数放宽条件；单只仓位不因此加大"),
    ],
)
def test_advice_on_a_short_list_fits_an_empty_one(actual: int, unusable: int, advice: str) -> None:
    report = ReportBuilder(Policy())
    tell_shortfall(report, actual, 7, unusable)
    (entry,) = worded(report.build()).entries
    assert entry.impact == advice
    assert (entry.code, entry.action) == ("D-031", "push_partial")
    assert (entry.details["actual"], entry.details["target"]) == (actual, 7)


def test_synthetic_data_and_unchecked_locks_are_marked() -> None:
    facts = replace(FACTS, synthetic=True, lock_note="环境锁已核对")
    text = render_card(screen_card(result(), facts), "plain")
    assert text.endswith("模式 离线 · 环境锁已核对 · 卡片 a1b2c3d4")
    # Before the first pick: nobody may take an invented price for a real one.
    assert text.index("⚠️ 合成数据，不是真实行情") < text.index("1. ")
    assert "合成数据" not in render_card(screen_card(result(), FACTS), "plain")


def test_drafts_and_other_years_show_in_the_title() -> None:
    assert screen_title("x@draft", DAY, DAY) == "【草稿】x@draft 9月19日(周四)"
    assert screen_title("x@1.0.0", DAY, date(2026, 1, 2)) == "x@1.0.0 2024年9月19日(周四)"


@pytest.mark.parametrize(
    ("modes", "expected"),
    [
        ((), "none"),
        ((None,), "none"),
        ((Mode.LIVE, None), "live"),
        ((Mode.OFFLINE, Mode.OFFLINE), "offline"),
        ((Mode.LIVE, Mode.OFFLINE), "mixed"),
    ],
)
def test_mode(modes: tuple[Mode | None, ...], expected: str) -> None:
    assert mode_of([step("s", mode) for mode in modes]) == expected


def test_step_lines() -> None:
    facts = replace(
        FACTS,
        steps=(
            step("a", Mode.LIVE, quality="model", ok=3, total=3),
            step("b", None, note="可选步骤已停止", ok=0, total=2),
            step("c", None),
        ),
    )
    block = screen_card(result(), facts).block("steps")
    assert block is not None
    assert block.lines == (
        "a：模型 deepseek/deepseek-v3.2，成功 3/3",
        "b：未运行（可选步骤已停止）",
        "c：未运行",
    )


def test_no_word_for_no_number_reaches_a_card() -> None:
    hostile = pick(reason_text="nan 与 inf、NaN", name="𠮷野家🚀\u202e*ST<@all>")
    card = screen_card(result(picks=(hostile,)), FACTS)
    lines = [line for block in card.blocks for line in block.lines]
    assert not any("nan" in line.lower() or "inf" in line for line in lines)
    text = render_card(card, "wecom")
    assert "𠮷野家🚀＊ST＜@all>" in text
    assert "\u202e" not in text


def test_a_missing_price_is_said() -> None:
    text = render_card(screen_card(result(), replace(FACTS, prices={})), "plain")
    assert "浦发银行 价格未知 评分" in text


@pytest.mark.parametrize(
    ("score", "fields", "shown"),
    [
        (0.0362, {"distance_pct": 3.62}, False),  # the same as a percentage
        (-0.0362, {"distance_pct": 3.62}, False),
        (3.62, {"distance_pct": 3.62}, False),
        (0.0123, {"distance_pct": 1.21}, True),
        (0.0, {"distance_pct": 0.0}, True),
        (1.0, {"is_new": True}, True),
        (0.5, {"industry": "银行"}, True),
    ],
)
def test_a_score_that_stands_among_the_figures_is_not_said_twice(
    score: float, fields: dict[str, Any], shown: bool
) -> None:
    made = pick(
        pick=Candidate(
            symbol="600000.SH", name="浦发银行", score=score, fields=fields, matched_rules=()
        )
    )
    text = render_card(screen_card(result(picks=(made,)), FACTS), "plain")
    assert ("评分" in text) is shown


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (DataError("data.no_bars", "there are no bars", where="cn"), "cn：这段日期没有行情"),
        (DataError("data.new_kind", "something new"), "未能完成（data.new_kind）"),
        (
            BundleError("screen.failed", "m", where="code/x.py", details={"returned": "int"}),
            "code/x.py：筛选规则出错（返回 int，应为列表）",
        ),
    ],
)
def test_an_error_is_chinese_on_a_card(error: KitError, said: str) -> None:
    assert problem_text(error) == said


def test_what_a_bundles_code_raised_is_quoted_in_short() -> None:
    error = BundleError("bundle.import_failed", "m", where="code/x.py:3")
    error.__cause__ = ModuleNotFoundError("No module named\n'x'" + "y" * 500)
    text = problem_text(error)
    assert text.startswith("code/x.py:3：载入失败（ModuleNotFoundError: No module named 'x'yy")
    assert len(text) < 160
    assert "\n" not in text


def test_other_currencies_and_thousandths() -> None:
    facts = replace(FACTS, currency="USD", prices={"600000.SH": 1.005, "000001.SZ": 1234.5})
    text = render_card(screen_card(result(), facts), "plain")
    assert "1.005 美元" in text
    assert "1234.50 美元" in text


def test_two_hundred_picks_stay_within_wecoms_limit() -> None:
    many = tuple(pick(reason_text="理由" * 60) for _ in range(200))
    card = screen_card(result(picks=many), FACTS)
    text = render_card(card, "wecom")
    assert len(text.encode()) <= 4096
    assert "…其余 " in text
    # What tells how far to trust the list outlives the list.
    assert "股票池：要求 10 只" in text
    assert "入选说明：" in text
    assert text.endswith("卡片 a1b2c3d4")


def test_the_result_is_checked_before_it_is_written() -> None:
    value = result().to_dict()
    assert list(value) == [
        "skill_id",
        "date",
        "asof",
        "picks",
        "universe",
        "degradation_report",
        "provenance",
    ]
    assert list(value["picks"][0]) == [
        "symbol",
        "name",
        "score",
        "fields",
        "matched_rules",
        "reason_text",
        "confidence",
        "reason_mode",
    ]
    assert value["asof"] == "2024-09-19T15:00:00+08:00"
    for wrong in (
        {"skill_id": "no version"},
        {"picks": (pick(reason_text=" "),)},
        {"picks": (pick(confidence="sure"),)},
        {"provenance": {}},
    ):
        with pytest.raises(DataError):
            result(**wrong).to_dict()


def test_a_card_survives_its_json_form() -> None:
    card = screen_card(result(), FACTS)
    assert Card.from_dict(card.to_dict()) == card
