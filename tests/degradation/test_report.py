"""The report: exact texts for each trigger and action, order, and the JSON form."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kit import schemas
from kit.degradation import ACTIONS, TRIGGERS, DegradationReport, Policy, ReportBuilder
from kit.errors import DataError

NO_LIST = "本次不产出候选；请勿沿用上一日名单，恢复后以重跑结果为准"
WIDER = "结果未经该步骤把关，可能比设计更宽；下单前请自行核对板块与消息面"
TEMPLATE = "命中说明为模板文字，只列指标、不含解读；请以指标数值为准"
OPTIONAL = "可选步骤未跑完，名单由规则直接给出；买入前请自行核对板块与事件面"
FEW = "命中少于目标，不要为凑数放宽条件；单只仓位不因此加大"

# trigger -> (details, reason, {action: impact}); written down by hand from the product page.
TABLE: dict[str, tuple[dict[str, Any], str, dict[str, str]]] = {
    "llm_step_failed": (
        {"step": "pick_explanation", "failed": 2, "total": 7, "kind": "超时"},
        "入选说明失败 2/7 次（超时）（策略未写此规则，按默认处理）",
        {"skip_step": WIDER, "fallback_to_template": TEMPLATE, "abort_with_report": NO_LIST},
    ),
    "llm_offline_equivalent": (
        {
            "step": "event_sector_filter",
            "quality": "approximate",
            "cause": "未配置密钥",
            "agreement": "未测",
        },
        ("板块过滤未调用模型（未配置密钥），改用离线规则（质量近似，一致率未测）"),
        {
            "use_offline_equivalent": "该步骤由确定性规则代替模型，可能漏掉消息面；"
            "结果只作初步参考",
            "skip_step": WIDER,
            "fallback_to_template": TEMPLATE,
            "abort_with_report": NO_LIST,
        },
    ),
    "budget_exceeded": (
        {"step": "pick_explanation", "limit": "20 美元"},
        "本月模型预算已用完（20 美元），入选说明未调用模型",
        {
            "fallback_to_template": TEMPLATE,
            "skip_step": WIDER,
            "stop_optional_steps": OPTIONAL,
            "abort_with_report": NO_LIST,
        },
    ),
    "limit_exceeded": (
        {
            "step": "pick_explanation",
            "limit": "production_max_llm_calls=20",
            "failed": 3,
            "total": 7,
        },
        "入选说明触及调用上限（production_max_llm_calls=20），3/7 次未调用模型",
        {
            "fallback_to_template": TEMPLATE,
            "skip_step": WIDER,
            "stop_optional_steps": OPTIONAL,
            "abort_with_report": NO_LIST,
        },
    ),
    "runtime_exceeded": (
        {"step": "pick_explanation", "limit": "120 秒", "failed": 1, "total": 7},
        "入选说明超出运行时限（120 秒），1/7 次未完成",
        {
            "fallback_to_template": TEMPLATE,
            "skip_step": WIDER,
            "stop_optional_steps": OPTIONAL,
            "abort_with_report": NO_LIST,
        },
    ),
    "required_field_missing": (
        {"count": 2, "symbols": ["600000.SH", "000001.SZ"], "field": "ma250"},
        "2 只候选因关键字段 ma250 缺失被剔除（600000.SH、000001.SZ）（策略未写此规则，按默认处理）",
        {
            "skip_affected_picks": "缺数据的标的未计入结果，不代表没有机会或风险；需要时请单独查看",
            "abort_with_report": NO_LIST,
        },
    ),
    "data_freshness_violation": (
        {
            "lag_minutes": 1440,
            "max_lag_minutes": 60,
            "data_time": "2024-09-18 15:00",
            "expected_time": "2024-09-19 15:00",
        },
        (
            "行情截至 2024-09-18 15:00，比应有时点 2024-09-19 15:00 晚 1440 分钟（上限 60 分钟）"
            "（策略未写此规则，按默认处理）"
        ),
        {
            "push_with_warning": "结果按较早的行情得出；下单前请先核对最新价格与条件",
            "abort_with_report": NO_LIST,
        },
    ),
    "data_unavailable": (
        {"error": "sample: no bars"},
        "行情不可用：sample: no bars",
        {"abort_with_report": NO_LIST},
    ),
    "news_not_fetched": (
        {"error": "没有配置新闻源"},
        "新闻未获取：没有配置新闻源",
        {
            "push_with_warning": "消息面没有参与筛选；请自行查看隔夜公告与新闻",
            "abort_with_report": NO_LIST,
        },
    ),
    "calendar_unknown": (
        {"date": date(2027, 1, 4), "known_until": "2026-12-31"},
        "日历未知：2027-01-04 超出已知交易日历（已知至 2026-12-31）",
        {
            "push_with_warning": "无法确认当日是否开市；请先核对交易所公告",
            "abort_with_report": NO_LIST,
        },
    ),
    "picks_count_below_target": (
        {"actual": 3, "target": 7},
        "本次命中 3 只，少于目标 7 只（策略未写此规则，按默认处理）",
        {"push_partial": FEW, "push_with_warning": FEW, "abort_with_report": NO_LIST},
    ),
    "env_lock_failed": (
        {"names": ["TUSHARE_TOKEN"], "remedy_hint": "请设置 TUSHARE_TOKEN"},
        "环境锁校验未通过（TUSHARE_TOKEN）：请设置 TUSHARE_TOKEN",
        {"abort_with_report": NO_LIST},
    ),
    "required_mcp_unavailable": (
        {"mcp_name": "trading-data-cn", "remedy_hint": "请安装 trading-data-cn >= 1.1"},
        "trading-data-cn 不可用：请安装 trading-data-cn >= 1.1（策略未写此规则，按默认处理）",
        {"abort_with_report": NO_LIST},
    ),
    "channel_forced": (
        {"mcp_name": "vibe-trading", "required": "internal-a-share", "actual": "community"},
        "vibe-trading 渠道应为 internal-a-share，实为 community，已由人工放行",
        {
            "push_with_warning": "数据服务与策略冻结时不是同一渠道，口径可能不同；下单前请另行核对",
            "abort_with_report": NO_LIST,
        },
    ),
    "bundle_tampered": (
        {"files": ["code/signal_engine.py"]},
        "策略包与校验和不符：code/signal_engine.py",
        {"abort_with_report": NO_LIST},
    ),
    "screen_failed": (
        {"error": "KeyError: 'close'"},
        "筛选代码出错：KeyError: 'close'",
        {"abort_with_report": NO_LIST},
    ),
    "notebook_failed": (
        {"cell": "5 行情", "error": "ValueError"},
        "运行在「5 行情」中断：ValueError",
        {"abort_with_report": NO_LIST},
    ),
    "kernel_died": (
        {"cell": "5 行情", "error": "超出 120 秒"},
        "运行进程在「5 行情」被终止：超出 120 秒",
        {"abort_with_report": NO_LIST},
    ),
}
LLM_TRIGGERS = {name for name, trigger in TRIGGERS.items() if "step" in trigger.placeholders}


def builder(*rules: dict[str, Any]) -> ReportBuilder:
    return ReportBuilder(
        Policy.from_manifest(
            {
                "llm_steps": {
                    "event_sector_filter": {},
                    "pick_explanation": {"fallback_template_path": "reason_template.md"},
                },
                "degradation_policy": {"rules": list(rules)},
            }
        )
    )


def test_the_table_covers_the_whole_vocabulary() -> None:
    assert set(TABLE) == set(TRIGGERS)
    assert all(set(row[2]) == set(TRIGGERS[name].allowed) for name, row in TABLE.items())
    assert {action for row in TABLE.values() for action in row[2]} == set(ACTIONS)


@pytest.mark.parametrize("name", TABLE)
def test_default_reason(name: str) -> None:
    details, reason, impacts = TABLE[name]
    report = builder()
    action = report.add(name, **details)
    (entry,) = report.build().entries
    assert (entry.reason, entry.impact) == (reason, impacts[action])
    assert entry.by_default


@pytest.mark.parametrize(
    ("name", "action"), [(name, action) for name, row in TABLE.items() for action in row[2]]
)
def test_each_action_of_each_trigger(name: str, action: str) -> None:
    details, reason, impacts = TABLE[name]
    report = builder({"trigger": name, "action": action})
    assert report.add(name, **details) == action
    (entry,) = report.build().entries
    assert entry.reason == reason.removesuffix("（策略未写此规则，按默认处理）")
    assert entry.impact == impacts[action]
    assert not entry.by_default
    assert report.aborted == (action == "abort_with_report")


def test_a_rules_own_text_is_used_and_filled() -> None:
    rule = {
        "trigger": "data_freshness_violation",
        "max_lag_minutes": 60,
        "action": "push_with_warning",
        "report_text": "数据延迟 {lag_minutes} 分钟于 asof_time，可能影响命中精度",
    }
    report = builder(rule)
    report.add("data_freshness_violation", lag_minutes=90)
    (entry,) = report.build().entries
    assert entry.reason == "数据延迟 90 分钟于 asof_time，可能影响命中精度"
    assert entry.details == {"max_lag_minutes": 60, "lag_minutes": 90}


def test_a_missing_detail_reads_unknown_and_never_fails() -> None:
    report = builder()
    report.add("picks_count_below_target", actual=3)
    assert report.build().reasons[0].startswith("本次命中 3 只，少于目标 未知 只")


def test_outside_text_in_a_detail_stays_text() -> None:
    report = builder()
    report.add("screen_failed", error="boom {actual}\n\x1b[31m\u202eevil\x00" + "x" * 500)
    (reason,) = report.build().reasons
    assert reason.startswith("筛选代码出错：boom {actual} [31mevilxxx")
    assert reason.endswith("…")
    assert "\n" not in reason
    assert len(reason) < 140


def test_many_symbols_are_counted_not_listed() -> None:
    report = builder()
    report.add("required_field_missing", count=7, field="score", symbols=list("ABCDEFG"))
    assert "（A、B、C、D、E 等 7 项）" in report.build().reasons[0]


def test_degradations_accumulate_in_the_order_of_the_flow() -> None:
    report = builder()
    report.add("llm_offline_equivalent", step="event_sector_filter", quality="approximate")
    report.add("picks_count_below_target", actual=3, target=7)
    report.add("llm_step_failed", step="pick_explanation", failed=1, total=3, kind="超时")
    report.add("limit_exceeded", step="pick_explanation", failed=2, total=3, limit="x")
    built = report.build()
    assert [entry.code for entry in built.entries] == ["D-012", "D-031", "D-011", "D-014"]
    assert built.degraded_steps == ("event_sector_filter", "rank", "pick_explanation")
    # The same advice is given once.
    assert built.impact.count(TEMPLATE) == 1
    assert len(built.reasons) == 4
    assert built.degraded
    assert not built.aborted


def test_nothing_added_is_not_degraded() -> None:
    built = builder().build()
    assert built.to_dict() == {
        "degraded": False,
        "degraded_steps": [],
        "reasons": [],
        "impact": [],
        "entries": [],
    }


def test_an_unknown_trigger_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(KeyError):
        builder().add("gremlins")


def test_json_form_keeps_everything_and_takes_numpy_and_dates() -> None:
    report = builder()
    report.add(
        "data_freshness_violation",
        lag_minutes=np.int64(90),
        data_time=date(2024, 9, 18),
        expected_time=Path("a/b"),
        max_lag_minutes=np.float64("nan"),
    )
    value = report.build().to_dict()
    assert schemas.validate("degradation", value) == []
    again = DegradationReport.from_dict(json.loads(json.dumps(value, allow_nan=False)))
    assert again == report.build()


def test_summary_lists_that_do_not_follow_from_the_entries_are_refused() -> None:
    report = builder()
    report.add("kernel_died", cell="x", error="y")
    value = report.build().to_dict() | {"degraded": False}
    with pytest.raises(DataError):
        DegradationReport.from_dict(value)


def test_the_schema_names_the_vocabulary() -> None:
    rows = schemas.load("degradation")["properties"]["entries"]["items"]["properties"]
    assert set(rows["trigger"]["enum"]) == set(TRIGGERS)
    assert set(rows["action"]["enum"]) == set(ACTIONS)
