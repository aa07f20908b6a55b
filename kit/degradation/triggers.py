"""The vocabulary of degradation: every trigger, its code, its actions and its Chinese words.

A trigger names something that did not run as designed. Its action says what is done about it, its
reason says what happened, and its impact says what the reader should now do differently. All
Chinese text of this package stands here, so that it can be read as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

__all__ = [
    "ABORT",
    "ACTIONS",
    "TRIGGERS",
    "Trigger",
    "failure_label",
]

SKIP_STEP = "skip_step"
FALLBACK = "fallback_to_template"
SKIP_PICKS = "skip_affected_picks"
ABORT = "abort_with_report"
PARTIAL = "push_partial"
WARN = "push_with_warning"
STOP_OPTIONAL = "stop_optional_steps"
OFFLINE = "use_offline_equivalent"

ACTIONS: Mapping[str, str] = MappingProxyType(
    {
        SKIP_STEP: "leave the step out and go on with what it would have narrowed",
        FALLBACK: "use the bundle's reason template instead of the model's text",
        SKIP_PICKS: "drop the picks concerned and keep the others",
        ABORT: "publish no pick, and deliver the empty card that says why",
        PARTIAL: "publish the picks there are",
        WARN: "publish, with the warning on the card",
        STOP_OPTIONAL: "leave out the steps that can be left out, and publish",
        OFFLINE: "let the step's deterministic stand-in answer",
    }
)

_NO_LIST = "本次不产出候选；请勿沿用上一日名单，恢复后以重跑结果为准"


@dataclass(frozen=True, kw_only=True)
class Trigger:
    """One kind of degradation.

    Attributes:
        name: The word a manifest rule uses.
        code: Stable short code shown on the card, `D-0NN`; the tens digit groups by stage.
        stage: English name of the stage, put into `degraded_steps` when no LLM step is named.
        default: Action taken when the manifest has no rule.
        default_with_template: Action taken instead when the step has a fallback template.
        impacts: Allowed action -> what the reader should do differently (zh-CN).
        reason: What happened (zh-CN), with `{placeholders}`.
        placeholders: Every name a report text of this trigger may use.
        selectors: Keys of a rule that narrow it (`step`, `field`, `mcp`).
        params: Numeric keys a rule may carry.
        owed: Whether lint asks each manifest for a rule.
    """

    name: str
    code: str
    stage: str
    default: str
    impacts: Mapping[str, str]
    reason: str
    placeholders: frozenset[str]
    default_with_template: str | None = None
    selectors: frozenset[str] = field(default_factory=frozenset)
    params: frozenset[str] = field(default_factory=frozenset)
    owed: bool = False

    @property
    def allowed(self) -> tuple[str, ...]:
        """Actions a rule of this trigger may name, in a fixed order."""
        return tuple(action for action in ACTIONS if action in self.impacts)


_STEP_IMPACTS = {
    SKIP_STEP: "结果未经该步骤把关，可能比设计更宽；下单前请自行核对板块与消息面",
    FALLBACK: "命中说明为模板文字，只列指标、不含解读；请以指标数值为准",
    ABORT: _NO_LIST,
}
_LIMIT_IMPACTS = {
    FALLBACK: _STEP_IMPACTS[FALLBACK],
    SKIP_STEP: _STEP_IMPACTS[SKIP_STEP],
    STOP_OPTIONAL: "可选步骤未跑完，名单由规则直接给出；买入前请自行核对板块与事件面",
    ABORT: _NO_LIST,
}

_ALL = (
    Trigger(
        name="llm_step_failed",
        code="D-011",
        stage="llm",
        default=SKIP_STEP,
        default_with_template=FALLBACK,
        impacts=_STEP_IMPACTS,
        reason="{step}失败 {failed}/{total} 次（{kind}）",
        placeholders=frozenset({"step", "failed", "total", "kind"}),
        selectors=frozenset({"step"}),
        owed=True,
    ),
    Trigger(
        name="llm_offline_equivalent",
        code="D-012",
        stage="llm",
        default=OFFLINE,
        impacts={
            OFFLINE: "该步骤由确定性规则代替模型，可能漏掉消息面；结果只作初步参考",
            SKIP_STEP: _STEP_IMPACTS[SKIP_STEP],
            FALLBACK: _STEP_IMPACTS[FALLBACK],
            ABORT: _NO_LIST,
        },
        reason="{step}未调用模型（{cause}），改用离线规则（质量{quality}，一致率{agreement}）",
        placeholders=frozenset({"step", "quality", "cause", "agreement"}),
        selectors=frozenset({"step"}),
    ),
    Trigger(
        name="budget_exceeded",
        code="D-013",
        stage="llm",
        default=STOP_OPTIONAL,
        default_with_template=FALLBACK,
        impacts=_LIMIT_IMPACTS,
        reason="本月模型预算已用完（{limit}），{step}未调用模型",
        placeholders=frozenset({"step", "limit"}),
        selectors=frozenset({"step"}),
    ),
    Trigger(
        name="limit_exceeded",
        code="D-014",
        stage="llm",
        default=STOP_OPTIONAL,
        default_with_template=FALLBACK,
        impacts=_LIMIT_IMPACTS,
        reason="{step}触及调用上限（{limit}），{failed}/{total} 次未调用模型",
        placeholders=frozenset({"step", "limit", "failed", "total"}),
        selectors=frozenset({"step"}),
    ),
    Trigger(
        name="runtime_exceeded",
        code="D-015",
        stage="llm",
        default=STOP_OPTIONAL,
        default_with_template=FALLBACK,
        impacts=_LIMIT_IMPACTS,
        reason="{step}超出运行时限（{limit}），{failed}/{total} 次未完成",
        placeholders=frozenset({"step", "limit", "failed", "total"}),
        selectors=frozenset({"step"}),
    ),
    Trigger(
        name="required_field_missing",
        code="D-021",
        stage="screen",
        default=SKIP_PICKS,
        impacts={
            SKIP_PICKS: "缺数据的标的未计入结果，不代表没有机会或风险；需要时请单独查看",
            ABORT: _NO_LIST,
        },
        reason="{count} 只候选因关键字段 {field} 缺失被剔除（{symbols}）",
        placeholders=frozenset({"count", "symbols", "field"}),
        selectors=frozenset({"field"}),
        owed=True,
    ),
    Trigger(
        name="data_freshness_violation",
        code="D-022",
        stage="data",
        default=WARN,
        impacts={
            WARN: "结果按较早的行情得出；下单前请先核对最新价格与条件",
            ABORT: _NO_LIST,
        },
        reason="行情截至 {data_time}，比应有时点 {expected_time} 晚 {lag_minutes} 分钟"
        "（上限 {max_lag_minutes} 分钟）",
        placeholders=frozenset({"lag_minutes", "max_lag_minutes", "data_time", "expected_time"}),
        params=frozenset({"max_lag_minutes"}),
        owed=True,
    ),
    Trigger(
        name="data_unavailable",
        code="D-023",
        stage="data",
        default=ABORT,
        impacts={ABORT: _NO_LIST},
        reason="行情不可用：{error}",
        placeholders=frozenset({"error"}),
    ),
    Trigger(
        name="news_not_fetched",
        code="D-024",
        stage="news",
        default=WARN,
        impacts={
            WARN: "消息面没有参与筛选；请自行查看隔夜公告与新闻",
            ABORT: _NO_LIST,
        },
        reason="新闻未获取：{error}",
        placeholders=frozenset({"error"}),
    ),
    Trigger(
        name="calendar_unknown",
        code="D-025",
        stage="data",
        default=WARN,
        impacts={
            WARN: "无法确认当日是否开市；请先核对交易所公告",
            ABORT: _NO_LIST,
        },
        reason="日历未知：{date} 超出已知交易日历（已知至 {known_until}）",
        placeholders=frozenset({"date", "known_until"}),
    ),
    Trigger(
        name="picks_count_below_target",
        code="D-031",
        stage="rank",
        default=PARTIAL,
        impacts={
            PARTIAL: "命中少于目标，不要为凑数放宽条件；单只仓位不因此加大",
            WARN: "命中少于目标，不要为凑数放宽条件；单只仓位不因此加大",
            ABORT: _NO_LIST,
        },
        reason="本次命中 {actual} 只，少于目标 {target} 只",
        placeholders=frozenset({"actual", "target"}),
        owed=True,
    ),
    Trigger(
        name="env_lock_failed",
        code="D-041",
        stage="env_lock",
        default=ABORT,
        impacts={ABORT: _NO_LIST},
        reason="环境锁校验未通过（{names}）：{remedy_hint}",
        placeholders=frozenset({"names", "remedy_hint"}),
    ),
    Trigger(
        name="required_mcp_unavailable",
        code="D-042",
        stage="env_lock",
        default=ABORT,
        impacts={ABORT: _NO_LIST},
        reason="{mcp_name} 不可用：{remedy_hint}",
        placeholders=frozenset({"mcp_name", "remedy_hint"}),
        selectors=frozenset({"mcp"}),
        owed=True,
    ),
    Trigger(
        name="channel_forced",
        code="D-043",
        stage="env_lock",
        default=WARN,
        impacts={
            WARN: "数据服务与策略冻结时不是同一渠道，口径可能不同；下单前请另行核对",
            ABORT: _NO_LIST,
        },
        reason="{mcp_name} 渠道应为 {required}，实为 {actual}，已由人工放行",
        placeholders=frozenset({"mcp_name", "required", "actual"}),
        selectors=frozenset({"mcp"}),
    ),
    Trigger(
        name="bundle_tampered",
        code="D-051",
        stage="bundle",
        default=ABORT,
        impacts={ABORT: _NO_LIST},
        reason="策略包与校验和不符：{files}",
        placeholders=frozenset({"files"}),
    ),
    Trigger(
        name="screen_failed",
        code="D-052",
        stage="screen",
        default=ABORT,
        impacts={ABORT: _NO_LIST},
        reason="筛选代码出错：{error}",
        placeholders=frozenset({"error"}),
    ),
    Trigger(
        name="notebook_failed",
        code="D-053",
        stage="run",
        default=ABORT,
        impacts={ABORT: _NO_LIST},
        reason="运行在「{cell}」中断：{error}",
        placeholders=frozenset({"cell", "error"}),
    ),
    Trigger(
        name="kernel_died",
        code="D-054",
        stage="run",
        default=ABORT,
        impacts={ABORT: _NO_LIST},
        reason="运行进程在「{cell}」被终止：{error}",
        placeholders=frozenset({"cell", "error"}),
    ),
)

TRIGGERS: Mapping[str, Trigger] = MappingProxyType({trigger.name: trigger for trigger in _ALL})

_FAILURES = {
    "budget_exceeded": "模型预算已用完",
    "connection": "连接失败",
    "http_error": "服务端报错",
    "limit_exceeded": "触及调用上限",
    "no_key": "未配置密钥",
    "off_schema": "回答不合格式",
    "offline_failed": "离线等价出错",
    "rate_limited": "被限流",
    "refused": "服务端拒绝",
    "runtime_exceeded": "超出运行时限",
    "timeout": "超时",
    "truncated": "回答被截断",
}


def failure_label(kind: str) -> str:
    """Return the Chinese label of a step failure's kind; an unknown kind is shown as it is."""
    return _FAILURES.get(kind, kind)
