"""The LLM steps of a screen."""

from __future__ import annotations

from typing import Any

from kit.degradation import Policy, ReportBuilder
from kit.llm import Mode, StepFailure, StepResult, StepSpec
from kit.screen import (
    Candidate,
    explanation_inputs,
    filter_check,
    filter_inputs,
    read_sectors,
    tell_failures,
    tell_offline,
)

SPEC = StepSpec(
    name="event_sector_filter",
    system="",
    input_schema={"type": "object", "properties": {"news_summary": {}, "known_sectors": {}}},
    output_schema={},
    model="deepseek/deepseek-v3.2",
    temperature=0.0,
    max_tokens=1,
    timeout_sec=1,
    quality="approximate",
)


def failed(kind: str, message: str = "m") -> StepResult:
    return StepResult(
        step="s",
        ok=False,
        value=None,
        failure=StepFailure(kind=kind, message=message),
        mode=Mode.LIVE,
        quality="model",
    )


GOOD = StepResult(step="s", ok=True, value={}, failure=None, mode=Mode.LIVE, quality="model")


def test_a_step_gets_what_its_schema_names_and_nothing_else() -> None:
    facts = {"news_summary": "", "known_sectors": ["银行"], "secret": 1}
    assert filter_inputs(SPEC, facts) == {"news_summary": "", "known_sectors": ["银行"]}


def test_sectors_are_read_against_the_universe() -> None:
    known = ["银行", "证券"]
    assert read_sectors({"focus_sectors": ["证券", "银行", "证券"]}, known) == (
        ["证券", "银行"],
        [],
    )
    # A name nobody has must not empty the universe.
    assert read_sectors({"focus_sectors": ["航天"]}, known) == (None, ["航天"])
    assert read_sectors({"focus_sectors": []}, known) == (None, [])
    assert read_sectors({"sector_filter": ["银行", 3]}, known) == (["银行"], [])
    assert read_sectors({"rationale": "x"}, known) == (None, [])
    hostile = {"focus_sectors": ["a\nb\x00" + "x" * 99]}
    assert read_sectors(hostile, known) == (None, ["a b" + "x" * 16 + "…"])


def test_sectors_out_of_no_news_are_off_schema() -> None:
    assert filter_check({"news_summary": ""}, {"focus_sectors": ["银行"]}) is not None
    assert filter_check({"news_summary": ""}, {"focus_sectors": []}) is None
    assert filter_check({"news_summary": "降准"}, {"focus_sectors": ["银行"]}) is None
    assert filter_check({}, {"focus_sectors": ["银行"]}) is None


def test_explanations_get_the_settled_inputs() -> None:
    pick = Candidate(symbol="A", name="甲", score=0.1, fields={"x": 1}, matched_rules=("r",))
    assert explanation_inputs(pick, "2024-09-19", ["银行"], {}) == {
        "pick": {
            "symbol": "A",
            "name": "甲",
            "score": 0.1,
            "fields": {"x": 1},
            "matched_rules": ["r"],
        },
        "context": {"today": "2024-09-19", "sector_filter": ["银行"], "news_window": {}},
    }


def told(results: list[StepResult], **manifest: Any) -> tuple[set[str], list[str]]:
    report = ReportBuilder(Policy.at_run_time(manifest))
    actions = tell_failures(report, "pick_explanation", results, 120)
    return actions, list(report.build().reasons)


STEPS = {"llm_steps": {"pick_explanation": {"fallback_template_path": "reason_template.md"}}}


def test_no_failure_says_nothing() -> None:
    assert told([GOOD, GOOD]) == (set(), [])
    assert told([]) == (set(), [])


def test_failures_of_one_step_are_one_entry_a_trigger() -> None:
    results = [failed("timeout"), GOOD, failed("timeout"), failed("off_schema")]
    actions, reasons = told(results, **STEPS)
    assert actions == {"fallback_to_template"}
    assert reasons == [
        ("入选说明失败 3/4 次（超时 2 次、回答不合格式 1 次）（策略未写此规则，按默认处理）")
    ]
    assert told([failed("truncated")])[1][0].startswith("入选说明失败 1/1 次（回答被截断）")


def test_limits_have_triggers_of_their_own() -> None:
    results = [
        failed("limit_exceeded", "production_max_llm_calls=20"),
        failed("runtime_exceeded"),
        failed("timeout"),
    ]
    actions, reasons = told(results)
    assert actions == {"stop_optional_steps", "skip_step"}
    assert reasons[:2] == [
        "入选说明触及调用上限（production_max_llm_calls=20），1/3 次未调用模型",
        "入选说明超出运行时限（120 秒），1/3 次未完成",
    ]
    assert len(reasons) == 3


def test_a_stand_in_is_told_with_its_quality() -> None:
    report = ReportBuilder(Policy())
    assert tell_offline(report, SPEC, "no_key") == "use_offline_equivalent"
    assert report.build().reasons == (
        ("板块过滤未调用模型（未配置密钥），改用离线规则（质量近似，一致率未测）"),
    )
