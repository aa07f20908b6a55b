"""Every trigger with every action it may have: the exact words, the card's block, the JSON entry.

The sentences are written out here once more, by hand: a change of one is a change of what people
read, and has to be meant.
"""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from kit import schemas
from kit.degradation import ABORT, TRIGGERS, Policy, ReportBuilder
from kit.screen import EMPTY_UNIVERSE, CardFacts, ScreenResult, screen_card, worded

DAY = date(2024, 9, 19)
NONE = "本次不产出候选；请勿沿用上一日名单，恢复后以重跑结果为准"
UNGUARDED = "结果未经该步骤把关，可能比设计更宽；下单前请自行核对板块与消息面"
TEMPLATE = "命中说明为模板文字，只列指标、不含解读；请以指标数值为准"
NO_OPTION = "可选步骤未跑完，名单由规则直接给出；买入前请自行核对板块与事件面"
STOOD_IN = "该步骤由确定性规则代替模型，可能漏掉消息面；结果只作初步参考"
FEW = "命中少于目标，不要为凑数放宽条件；单只仓位不因此加大"

# trigger -> code, facts, the sentence that is said, and action -> what the reader should do.
TABLE: dict[str, tuple[str, dict[str, Any], str, dict[str, str]]] = {
    "llm_step_failed": (
        "D-011",
        {"step": "pick_explanation", "failed": 2, "total": 7, "kind": ["超时"]},
        "入选说明失败 2/7 次（超时）",
        {"skip_step": UNGUARDED, "fallback_to_template": TEMPLATE, ABORT: NONE},
    ),
    "llm_offline_equivalent": (
        "D-012",
        {
            "step": "event_sector_filter",
            "quality": "approximate",
            "cause": "未配置密钥",
            "agreement": "未测",
        },
        "板块过滤未调用模型（未配置密钥），改用离线规则（质量近似，一致率未测）",
        {
            "use_offline_equivalent": STOOD_IN,
            "skip_step": UNGUARDED,
            "fallback_to_template": TEMPLATE,
            ABORT: NONE,
        },
    ),
    "budget_exceeded": (
        "D-013",
        {"step": "pick_explanation", "limit": "20 美元"},
        "本月模型预算已用完（20 美元），入选说明未调用模型",
        {
            "fallback_to_template": TEMPLATE,
            "skip_step": UNGUARDED,
            "stop_optional_steps": NO_OPTION,
            ABORT: NONE,
        },
    ),
    "limit_exceeded": (
        "D-014",
        {"step": "pick_explanation", "limit": "10 次", "failed": 3, "total": 7},
        "入选说明触及调用上限（10 次），3/7 次未调用模型",
        {
            "fallback_to_template": TEMPLATE,
            "skip_step": UNGUARDED,
            "stop_optional_steps": NO_OPTION,
            ABORT: NONE,
        },
    ),
    "runtime_exceeded": (
        "D-015",
        {"step": "event_sector_filter", "limit": "120 秒", "failed": 1, "total": 1},
        "板块过滤超出运行时限（120 秒），1/1 次未完成",
        {
            "fallback_to_template": TEMPLATE,
            "skip_step": UNGUARDED,
            "stop_optional_steps": NO_OPTION,
            ABORT: NONE,
        },
    ),
    "required_field_missing": (
        "D-021",
        {"count": 2, "symbols": ["600000.SH", "000001.SZ"], "field": "volume"},
        "2 只候选因关键字段 volume 缺失被剔除（600000.SH、000001.SZ）",
        {
            "skip_affected_picks": "缺数据的标的未计入结果，不代表没有机会或风险；需要时请单独查看",
            ABORT: NONE,
        },
    ),
    "data_freshness_violation": (
        "D-022",
        {
            "lag_minutes": 1440,
            "max_lag_minutes": 60,
            "data_time": "2024-09-18 15:00",
            "expected_time": "2024-09-19 15:00",
        },
        "行情截至 2024-09-18 15:00，比应有时点 2024-09-19 15:00 晚 1440 分钟（上限 60 分钟）",
        {
            "push_with_warning": "结果按较早的行情得出；下单前请先核对最新价格与条件",
            ABORT: NONE,
        },
    ),
    "data_unavailable": (
        "D-023",
        {"error": "这段日期没有行情"},
        "行情不可用：这段日期没有行情",
        {ABORT: NONE},
    ),
    "news_not_fetched": (
        "D-024",
        {"error": "没有配置新闻源"},
        "新闻未获取：没有配置新闻源",
        {"push_with_warning": "消息面没有参与筛选；请自行查看隔夜公告与新闻", ABORT: NONE},
    ),
    "calendar_unknown": (
        "D-025",
        {"date": DAY, "known_until": date(2024, 9, 18)},
        "日历未知：2024-09-19 超出已知交易日历（已知至 2024-09-18）",
        {"push_with_warning": "无法确认当日是否开市；请先核对交易所公告", ABORT: NONE},
    ),
    "picks_count_below_target": (
        "D-031",
        {"actual": 2, "target": 7},
        "本次命中 2 只，少于目标 7 只",
        {"push_partial": FEW, "push_with_warning": FEW, ABORT: NONE},
    ),
    "env_lock_failed": (
        "D-041",
        {"names": ["TUSHARE_TOKEN"], "remedy_hint": "请设置环境变量 TUSHARE_TOKEN"},
        "环境锁校验未通过（TUSHARE_TOKEN）：请设置环境变量 TUSHARE_TOKEN",
        {ABORT: NONE},
    ),
    "required_mcp_unavailable": (
        "D-042",
        {"mcp_name": "trading-data-cn", "remedy_hint": "请安装"},
        "trading-data-cn 不可用：请安装",
        {ABORT: NONE},
    ),
    "channel_forced": (
        "D-043",
        {"mcp_name": "trading-data-cn", "required": "internal", "actual": "community"},
        "trading-data-cn 渠道应为 internal，实为 community，已由人工放行",
        {
            "push_with_warning": "数据服务与策略冻结时不是同一渠道，口径可能不同；下单前请另行核对",
            ABORT: NONE,
        },
    ),
    "bundle_tampered": (
        "D-051",
        {"files": ["code/signal_engine.py"]},
        "策略包与校验和不符：code/signal_engine.py",
        {ABORT: NONE},
    ),
    "screen_failed": ("D-052", {"error": "KeyError"}, "筛选代码出错：KeyError", {ABORT: NONE}),
    "notebook_failed": (
        "D-053",
        {"cell": "筛选", "error": "流程出错"},
        "运行在「筛选」中断：流程出错",
        {ABORT: NONE},
    ),
    "kernel_died": (
        "D-054",
        {"cell": "筛选", "error": "运行进程退出"},
        "运行进程在「筛选」被终止：运行进程退出",
        {ABORT: NONE},
    ),
}
CASES = [(trigger, action) for trigger, row in TABLE.items() for action in row[3]]
# What lint demands a rule for: without one the card says that the default was taken.
OWED = {
    "llm_step_failed",
    "required_field_missing",
    "data_freshness_violation",
    "picks_count_below_target",
    "required_mcp_unavailable",
}
BY_DEFAULT = "（策略未写此规则，按默认处理）"
RULES_PARAMS = {"data_freshness_violation": {"max_lag_minutes": 60}}


def policy(*actions: tuple[str, str]) -> Policy:
    rules = [
        {"trigger": trigger, "action": action, **RULES_PARAMS.get(trigger, {})}
        for trigger, action in actions
    ]
    steps = {key: {"prompt_path": "p"} for key in ("pick_explanation", "event_sector_filter")}
    manifest = {"degradation_policy": {"rules": rules}, "llm_steps": steps}
    return Policy.from_manifest(manifest)


def told(report: ReportBuilder) -> tuple[list[str], dict[str, Any]]:
    """The lines of the card's degradation block, and the report as it stands in picks.json."""
    built = worded(report.build())
    result = ScreenResult(
        skill_id="tiny@1.0.0",
        date=DAY,
        asof=None,
        picks=(),
        universe=EMPTY_UNIVERSE,
        report=built,
        provenance={},
    )
    facts = CardFacts(card_id="a1b2c3d4", run_id="r", ref="tiny@1.0.0", day=DAY)
    card = screen_card(result, facts)
    block = card.block("degradation")
    assert block is not None
    assert block.keep
    assert (block.emphasis == "high") is built.aborted
    value = built.to_dict()
    assert schemas.validate("degradation", value) == []
    assert card.meta["degradation_codes"] == [entry["code"] for entry in value["entries"]]
    return list(block.lines), value


def test_the_table_names_every_trigger_and_every_action() -> None:
    assert set(TABLE) == set(TRIGGERS)
    for trigger, (code, _, _, impacts) in TABLE.items():
        assert TRIGGERS[trigger].code == code
        assert set(impacts) == set(TRIGGERS[trigger].allowed), trigger


@pytest.mark.parametrize(("trigger", "action"), CASES)
def test_each_action_of_each_trigger(trigger: str, action: str) -> None:
    code, facts, reason, impacts = TABLE[trigger]
    report = ReportBuilder(policy((trigger, action)))
    assert report.add(trigger, **facts) == action
    lines, value = told(report)
    assert lines == ["⛔ 降级 1 项", f"{code} {reason}", f"　↳ {impacts[action]}"]
    (entry,) = value["entries"]
    assert (entry["code"], entry["trigger"], entry["action"]) == (code, trigger, action)
    assert (entry["reason"], entry["impact"], entry["by_default"]) == (
        reason,
        impacts[action],
        False,
    )
    assert entry["step"] == facts.get("step")
    assert set(facts) <= set(entry["details"])
    assert (value["degraded"], value["reasons"], value["impact"]) == (
        True,
        [reason],
        [impacts[action]],
    )
    assert report.aborted is (action == ABORT)


@pytest.mark.parametrize("trigger", TABLE)
def test_without_a_rule_the_default_is_taken_and_said_where_one_is_owed(trigger: str) -> None:
    code, facts, reason, impacts = TABLE[trigger]
    report = ReportBuilder(Policy())
    action = report.add(trigger, **facts)
    lines, value = told(report)
    tail = BY_DEFAULT if trigger in OWED else ""
    assert lines[1:] == [f"{code} {reason}{tail}", f"　↳ {impacts[action]}"]
    assert value["entries"][0]["by_default"] is True


def test_several_accumulate_in_the_order_in_which_they_happened() -> None:
    """Not by code, and the same advice once."""
    order = ["data_freshness_violation", "limit_exceeded", "llm_step_failed", "news_not_fetched"]
    order += ["picks_count_below_target"]
    steps = Policy(templated=frozenset({"pick_explanation"}))
    report = ReportBuilder(steps)
    for trigger in order:
        report.add(trigger, **TABLE[trigger][1])
    lines, value = told(report)
    assert lines[0] == "⛔ 降级 5 项"
    assert [line[:5] for line in lines[1:] if line.startswith("D-")] == [
        TABLE[trigger][0] for trigger in order
    ]
    assert [entry["trigger"] for entry in value["entries"]] == order
    assert lines.count(f"　↳ {TEMPLATE}") == 1
    assert value["degraded_steps"] == ["data", "pick_explanation", "news", "rank"]
