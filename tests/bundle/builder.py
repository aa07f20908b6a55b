"""A small, complete strategy bundle: the draft that tests of every floor can start from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kit.bundle.freeze import CheckResult, FreezeChecks
from kit.bundle.model import Bundle
from kit.workspace import Workspace

SKILL = """\
---
name: {id}
description: Buys the pullback to a moving average; a bundle made for tests.
category: strategy
version: 0.1.0
---
# 小战法

## Purpose
Picks stocks whose close stands a little above their moving average.

## When to Use
On a trading day, after the session's bars are complete.

## How to Invoke
### Daily flow
1. **Data**: fetch the bars of the universe with `trading-data-cn.get_bars`.
2. **News**: collect the news of the window, the `news_summary` of the filter.
3. **Sector filter**: run `prompts/event_sector_filter.md` on the news.
4. **Screen**: call `code/signal_engine.py::SignalEngine.screen_today` with the sectors.
5. **Rank and cut**: sort by `score` ascending and keep the first `limit`.
6. **Explain**: run `prompts/pick_explanation.md` for each pick.
7. **Report**: write `picks.json` with its degradation report.

### Backtest flow
Call `SignalEngine.generate` on the bars, or run `kit backtest {id}`.

## Inputs / Outputs
Bars of the universe go in; a list of `Pick` comes out, at most `limit` of them.

## Dependencies
See `manifest.json`: the lock names one server, and no key of a model provider.

## Provenance
`conversations/` tells how it came to be, `backtests/` what it did, `CHANGELOG.md` what changed.
"""

ENGINE = '''\
"""Pullback to a moving average."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import pandas as pd

ABOVE = 0.03


class Pick(NamedTuple):
    """One candidate."""

    symbol: str
    score: float
    fields: dict
    matched_rules: list


def gap_to_average(frame: pd.DataFrame, window: int) -> pd.Series:
    average = frame["close"].rolling(window).mean()
    return (frame["close"] - average) / average


class SignalEngine:
    """Holds a stock while it stands within ABOVE over its average."""

    def params(self) -> dict:
        path = Path(__file__).resolve().parents[1] / "config.json"
        return json.loads(path.read_text(encoding="utf-8"))["_kit"]["params"]

    def generate(self, data_map):
        window = self.params()["ma_window"]
        signals = {}
        for symbol, frame in data_map.items():
            gap = gap_to_average(frame, window)
            signals[symbol] = ((gap >= 0) & (gap <= ABOVE)).astype(float)
        return signals

    def screen_today(self, data_map, today, sector_filter=None, limit=7):
        window = self.params()["ma_window"]
        picks = []
        for symbol in sorted(data_map):
            frame = data_map[symbol].loc[: pd.Timestamp(today)]
            if len(frame) < window or frame.index[-1] != pd.Timestamp(today):
                continue
            gap = float(gap_to_average(frame, window).iloc[-1])
            if 0 <= gap <= ABOVE:
                close = float(frame["close"].iloc[-1])
                picks.append(Pick(symbol, gap, {"close": close, "gap": gap}, ["near_average"]))
        picks.sort(key=lambda pick: (pick.score, pick.symbol))
        return picks[:limit]
'''

FILTER = """\
---
prompt_id: event_sector_filter
input_schema:
  news_summary: string
  reference_markets: [string]
output_schema:
  focus_sectors: [string]
  rationale: string
model_default: deepseek/deepseek-v3.2
---
# Sector filter

## Task
Name the sectors that the news of the window favours.

## Input Format
A JSON object with the summary of the news and the markets to look at.

## Output Format (strict JSON)
```json
{"focus_sectors": ["航天"], "rationale": "one sentence"}
```

## Offline Quantization Equivalent
quality: approximate
callable: `code/helpers/offline_sectors.py::sectors_in_news`

Differences from the model:
- It counts words, and sees no meaning.
"""

EXPLANATION = """\
---
prompt_id: pick_explanation
invocation_mode: per_pick_concurrent
input_schema:
  pick:
    symbol: string
    name: string
    score: number
    fields: object
    matched_rules: [string]
  context:
    today: date
    sector_filter: [string]
    news_window: object
output_schema:
  reason_text: string
  confidence: enum[high, medium, low]
model_default: deepseek/deepseek-v3.2
fallback_template: ../reason_template.md
---
# Explanation

## Task
Explain in one sentence why the stock was picked, with the given numbers only.

## Input Format
One pick and the context that all picks share.

## Output Format
A JSON object with the text and the confidence.

## Offline Quantization Equivalent
quality: exact
callable: `code/helpers/offline_reason.py::reason`

The text is put together from the fields, as the model is told to do.
"""

HELPERS = {
    "offline_sectors.py": '''\
"""Stand-in for the sector filter."""

SECTORS = ("航天", "银行", "半导体")


def sectors_in_news(inputs):
    found = [sector for sector in SECTORS if sector in inputs["news_summary"]]
    return {"focus_sectors": found, "rationale": f"{len(found)} sector(s) named"}
''',
    "offline_reason.py": '''\
"""Stand-in for the explanation."""


def reason(inputs):
    pick = inputs["pick"]
    return {"reason_text": f"{pick['name']} {pick['score']:.4f}", "confidence": "medium"}
''',
}

TEMPLATE = "{{ pick.name }} 贴近均线，偏离 {{ pick.score }}。\n"


def manifest(id_: str) -> dict[str, Any]:
    """The manifest of the small bundle."""
    return {
        "schema_version": "1.0",
        "strategy_id": id_,
        "version": "0.1.0",
        "provenance": {"created_by": "tester"},
        "skill": {"skill_md_path": "SKILL.md", "agent_compatibility": ["claude-code"]},
        "execution": {
            "entry_module": "code/signal_engine.py",
            "entry_class": "SignalEngine",
            "entry_method": "generate",
            "screen_method": "screen_today",
            "fill": "next_open",
            "same_bar_waiver": None,
        },
        "env_lock": {
            "required_mcps": [
                {
                    "name": "trading-data-cn",
                    "min_version": "1.0",
                    "source": "pip:trading-data-cn==1.0.3",
                    "tools_used": [
                        {
                            "tool_name": "get_bars",
                            "required_input_fields": ["codes", "start_date", "end_date"],
                            "required_output_fields": ["symbol", "date", "close_adj"],
                        }
                    ],
                }
            ],
            "required_env": [],
            "required_db": [],
        },
        "llm_steps": {
            "event_sector_filter": {
                "prompt_path": "prompts/event_sector_filter.md",
                "model": "deepseek/deepseek-v3.2",
                "temperature": 0.0,
                "max_tokens": 512,
                "called_by": "skill_md",
                "timeout_sec": 20,
            },
            "pick_explanation": {
                "prompt_path": "prompts/pick_explanation.md",
                "model": "deepseek/deepseek-v3.2",
                "temperature": 0.3,
                "max_tokens": 256,
                "called_by": "skill_md",
                "invocation_mode": "per_pick_concurrent",
                "concurrency_limit": 7,
                "timeout_sec": 20,
                "fallback_template_path": "reason_template.md",
            },
        },
        "data_contract": {
            "frequency": "daily",
            "fields": ["close_adj", "low_adj", "volume"],
            "history_days": 30,
            "adjustment": "forward",
            "asof_time": "T 16:30 Asia/Shanghai",
            "universe": {"market": "cn", "kind": "sample"},
        },
        "limits": {
            "production_runtime_sec": 120,
            "production_max_llm_calls": 20,
            "per_step_max_llm_calls": {"event_sector_filter": 1, "pick_explanation": 10},
        },
        "degradation_policy": {
            "rules": [
                {
                    "trigger": "llm_step_failed",
                    "step": "event_sector_filter",
                    "action": "skip_step",
                    "report_text": "板块过滤失败，本次未叠加事件面",
                },
                {
                    "trigger": "llm_step_failed",
                    "step": "pick_explanation",
                    "action": "fallback_to_template",
                    "report_text": "说明改用模板",
                },
                {
                    "trigger": "required_field_missing",
                    "field": "any",
                    "action": "skip_affected_picks",
                    "report_text": "{count} 只候选缺字段被剔除",
                },
                {
                    "trigger": "required_mcp_unavailable",
                    "mcp": "any",
                    "action": "abort_with_report",
                    "report_text": "{mcp_name} 不可用",
                },
                {
                    "trigger": "picks_count_below_target",
                    "action": "push_partial",
                    "report_text": "仅命中 {actual} 只（目标 {target}）",
                },
                {
                    "trigger": "data_freshness_violation",
                    "max_lag_minutes": 60,
                    "action": "push_with_warning",
                    "report_text": "数据延迟 {lag_minutes} 分钟",
                },
            ],
            "report_format": {
                "must_include": ["degraded", "degraded_steps", "reasons", "impact"],
                "delivery": "embedded_in_picks_response",
                "field_naming": "english",
                "value_locale": "zh-CN",
            },
            "abort_with_report_behavior": {"still_push_empty_picks": True, "ui_emphasis": "high"},
        },
        "checksums_path": "checksums.txt",
    }


def config() -> dict[str, Any]:
    """The backtest configuration of the small bundle."""
    return {
        "codes": ["600000.SH", "000001.SZ"],
        "start_date": "2023-01-03",
        "end_date": "2023-12-29",
        "source": "local",
        "interval": "1D",
        "engine": "daily",
        "position_adjustment": "hold",
        "initial_cash": 1_000_000,
        "_kit": {"params": {"ma_window": 20}, "limit": 7, "slippage": 0.0, "benchmark": None},
    }


def make_draft(
    workspace: Workspace, id_: str = "tiny-pullback", *, conversation: bool = True
) -> Path:
    """Write the small bundle to `strategies/<id>/draft/` and return that folder."""
    draft = workspace.strategies / id_ / "draft"
    texts = {
        "SKILL.md": SKILL.replace("{id}", id_),
        "manifest.json": json.dumps(manifest(id_), ensure_ascii=False, indent=2) + "\n",
        "config.json": json.dumps(config(), indent=2) + "\n",
        "code/signal_engine.py": ENGINE,
        "prompts/event_sector_filter.md": FILTER,
        "prompts/pick_explanation.md": EXPLANATION,
        "reason_template.md": TEMPLATE,
        "references/glossary.md": "# Glossary\n\nMA: moving average.\n",
        **{f"code/helpers/{name}": text for name, text in HELPERS.items()},
    }
    if conversation:
        event = {
            "ts": "2024-09-18T09:00:00+08:00",
            "role": "user",
            "kind": "message",
            "content": "买回踩均线的股票",
        }
        line = json.dumps(event, ensure_ascii=False) + "\n"
        texts["conversations/2024-09-18-first-idea.jsonl"] = line
    for name, text in texts.items():
        path = draft / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
    return draft


def passing(name: str) -> Any:
    """A check that passes."""

    def check(_bundle: Bundle) -> CheckResult:
        return CheckResult(name=name, ok=True, detail="passed")

    return check


def passing_checks(**changed: Any) -> FreezeChecks:
    """Checks that pass, except those given."""
    names = ("evidence", "lookahead", "warmup", "lock", "notebook")
    return FreezeChecks(**{**{name: passing(name) for name in names}, **changed})
