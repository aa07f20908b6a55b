"""Reading a manifest's degradation policy, strictly and at run time."""

from __future__ import annotations

from typing import Any

import pytest

from kit.degradation import ACTIONS, TRIGGERS, Policy, problems
from kit.degradation.wording import placeholders
from kit.errors import BundleError

# The example manifest of the design, as data.
RULES: list[dict[str, Any]] = [
    {
        "trigger": "llm_step_failed",
        "step": "event_sector_filter",
        "action": "skip_step",
        "report_text": "事件板块过滤步骤失败，本日选股未叠加事件驱动语义",
    },
    {
        "trigger": "llm_step_failed",
        "step": "pick_explanation",
        "action": "fallback_to_template",
        "report_text": "命中说明 LLM 失败，已用模板生成",
    },
    {
        "trigger": "required_field_missing",
        "field": "any",
        "action": "skip_affected_picks",
        "report_text": "{count} 只候选因关键字段缺失被剔除",
    },
    {
        "trigger": "required_mcp_unavailable",
        "mcp": "any",
        "action": "abort_with_report",
        "report_text": "{mcp_name} 不可用，本日无法产出选股；建议人工介入",
    },
    {
        "trigger": "picks_count_below_target",
        "action": "push_partial",
        "report_text": "本日仅命中 {actual} 只（目标 {target}）",
    },
    {
        "trigger": "data_freshness_violation",
        "max_lag_minutes": 60,
        "action": "push_with_warning",
        "report_text": "数据延迟 {lag_minutes} 分钟于 asof_time，可能影响命中精度",
    },
]


def manifest(rules: list[Any] | None = None) -> dict[str, Any]:
    return {
        "env_lock": {"required_mcps": [{"name": "trading-data-cn"}]},
        "llm_steps": {
            "event_sector_filter": {"prompt_path": "prompts/event_sector_filter.md"},
            "pick_explanation": {
                "prompt_path": "prompts/pick_explanation.md",
                "fallback_template_path": "reason_template.md",
            },
        },
        "degradation_policy": {"rules": RULES if rules is None else rules},
    }


def test_the_designs_own_example_has_no_problem() -> None:
    assert problems(manifest()) == []
    policy = Policy.from_manifest(manifest())
    assert len(policy.rules) == 6
    assert policy.rule("data_freshness_violation").params == {"max_lag_minutes": 60}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            {"trigger": "llm_step_fail", "action": "skip_step"},
            (
                "degradation_policy.rules[0].trigger: unknown trigger 'llm_step_fail'; "
                "did you mean 'llm_step_failed'?"
            ),
        ),
        (
            {"trigger": "picks_count_below_target", "action": "push_partially"},
            (
                "degradation_policy.rules[0].action: unknown action 'push_partially'; "
                "did you mean 'push_partial'?"
            ),
        ),
        (
            {"trigger": "bundle_tampered", "action": "push_with_warning"},
            (
                "degradation_policy.rules[0].action: push_with_warning cannot answer "
                "bundle_tampered; allowed: abort_with_report"
            ),
        ),
        (
            {
                "trigger": "picks_count_below_target",
                "action": "push_partial",
                "report_text": "仅 {actuel} 只",
            },
            (
                "degradation_policy.rules[0].report_text: picks_count_below_target offers no "
                "{actuel}; did you mean 'actual'?"
            ),
        ),
        (
            {
                "trigger": "picks_count_below_target",
                "action": "push_partial",
                "report_text": "{actual.__class__}",
            },
            (
                "degradation_policy.rules[0].report_text: {actual.__class__} must be a plain name "
                "such as {count}"
            ),
        ),
        (
            {"trigger": "llm_step_failed", "step": "pick_explain", "action": "skip_step"},
            (
                "degradation_policy.rules[0].step: llm_steps has no 'pick_explain'; "
                "did you mean 'pick_explanation'?"
            ),
        ),
        (
            {
                "trigger": "data_freshness_violation",
                "action": "push_with_warning",
                "max_lag_minute": 60,
            },
            (
                "degradation_policy.rules[0].max_lag_minute: a rule of data_freshness_violation "
                "has no such key; did you mean 'max_lag_minutes'?"
            ),
        ),
        (
            {
                "trigger": "data_freshness_violation",
                "action": "push_with_warning",
                "max_lag_minutes": True,
            },
            "degradation_policy.rules[0].max_lag_minutes: must be a whole number, 0 or more",
        ),
        ("nonsense", "degradation_policy.rules[0]: must be an object"),
    ],
)
def test_a_mistaken_rule_is_named_with_its_place(change: Any, expected: str) -> None:
    assert expected in problems(manifest([change, *RULES]))
    with pytest.raises(BundleError) as caught:
        Policy.from_manifest(manifest([change, *RULES]))
    assert expected in caught.value.details["problems"]


def test_every_mistake_comes_back_at_once() -> None:
    wrong = [{"trigger": "x", "action": "y"}, {"trigger": "kernel_died", "action": "z"}]
    with pytest.raises(BundleError) as caught:
        Policy.from_manifest(manifest(wrong))
    assert len(caught.value.details["problems"]) == 2


def test_saying_the_same_twice_is_a_mistake() -> None:
    found = problems(manifest([*RULES, RULES[4]]))
    assert found == ["degradation_policy.rules[6]: says again what rules[4] says"]


def test_missing_rules_are_lints_business_and_do_not_stop_a_run() -> None:
    found = problems(manifest([]))
    assert found == [
        "degradation_policy.rules: no rule for llm_step_failed of step 'event_sector_filter'",
        "degradation_policy.rules: no rule for llm_step_failed of step 'pick_explanation'",
        "degradation_policy.rules: no rule for required_field_missing",
        "degradation_policy.rules: no rule for data_freshness_violation",
        "degradation_policy.rules: no rule for picks_count_below_target",
        "degradation_policy.rules: no rule for required_mcp_unavailable",
    ]
    policy = Policy.from_manifest(manifest([]))
    assert policy.rule("llm_step_failed", "event_sector_filter").action == "skip_step"
    assert policy.rule("llm_step_failed", "pick_explanation").action == "fallback_to_template"
    assert policy.rule("llm_step_failed", "pick_explanation").by_default


def test_a_rule_for_any_step_serves_every_step() -> None:
    rule = {"trigger": "llm_step_failed", "step": "any", "action": "abort_with_report"}
    policy = Policy.from_manifest(manifest([rule, RULES[1]]))
    assert policy.rule("llm_step_failed", "event_sector_filter").action == "abort_with_report"
    # The more specific rule wins, wherever it stands.
    assert policy.rule("llm_step_failed", "pick_explanation").action == "fallback_to_template"


def test_at_run_time_a_mistaken_rule_gives_way_to_the_default() -> None:
    wrong = {"trigger": "picks_count_below_target", "action": "push_harder"}
    policy = Policy.at_run_time(manifest([wrong]))
    rule = policy.rule("picks_count_below_target")
    assert (rule.action, rule.by_default) == ("push_partial", True)
    assert len(policy.ignored) == 1


@pytest.mark.parametrize("value", [{}, {"degradation_policy": 3}, {"degradation_policy": {}}])
def test_a_manifest_without_a_policy_still_runs(value: dict[str, Any]) -> None:
    assert Policy.at_run_time(value).rule("kernel_died").action == "abort_with_report"


def test_the_vocabulary_is_sound() -> None:
    codes = [trigger.code for trigger in TRIGGERS.values()]
    assert len(set(codes)) == len(codes)
    for trigger in TRIGGERS.values():
        assert trigger.default in trigger.allowed
        assert trigger.default_with_template in {None, *trigger.allowed}
        assert set(trigger.impacts) <= set(ACTIONS)
        assert placeholders(trigger.reason) <= trigger.placeholders
        assert all(trigger.impacts.values())
