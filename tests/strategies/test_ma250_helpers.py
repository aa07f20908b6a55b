"""The offline equivalents of the two steps."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kit.bundle.model import Bundle
from kit.llm import Mode, StepResult, run_step

FIELDS = {
    "close": 6.98,
    "low": 6.92,
    "ma250": 6.967,
    "distance_pct": 0.18,
    "low_distance_pct": -0.68,
    "ma250_trend_pct": 0.78,
    "trend_bars": 10,
    "closes_above": 4,
    "volume_ratio": 1.04,
    "volume_window": 20,
    "industry": "证券",
}


@pytest.fixture(scope="module")
def bundle(bundle_root: Path) -> Bundle:
    return Bundle.open(bundle_root)


def sectors(bundle: Bundle, *lines: str, **changes: Any) -> dict[str, Any]:
    inputs = {"news_summary": "\n".join(lines), "reference_markets": ["US"], **changes}
    result = run_step(bundle.step("event_sector_filter"), inputs, mode=Mode.OFFLINE)
    assert result.value is not None, result.failure
    return result.value


def explain(bundle: Bundle, fields: dict[str, Any], focus: list[str] | None = None) -> StepResult:
    inputs = {
        "pick": {
            "symbol": "000783.SZ",
            "name": "长江证券",
            "score": 0.0018,
            "fields": fields,
            "matched_rules": ["pullback_to_ma250"],
        },
        "context": {"today": "2020-02-27", "sector_filter": focus or [], "news_window": {}},
    }
    return run_step(bundle.step("pick_explanation"), inputs, mode=Mode.OFFLINE)


def test_two_lines_put_a_sector_in_focus(bundle: Bundle) -> None:
    answer = sectors(bundle, "央行宣布降准", "多家银行下调存款利率", "铁矿石价格上涨")
    assert answer == {"focus_sectors": ["银行"], "rationale": "共 3 条，提及较多：银行 2 条"}


def test_a_line_counts_once_however_often_it_says_it(bundle: Bundle) -> None:
    assert sectors(bundle, "银行、银行、银行的贷款与存款")["focus_sectors"] == []


def test_without_news_nothing_is_filtered(bundle: Bundle) -> None:
    assert sectors(bundle) == {"focus_sectors": [], "rationale": "没有新闻输入，不做板块过滤"}
    assert sectors(bundle, "  ", "")["focus_sectors"] == []


def test_the_strongest_come_first_and_at_most_three(bundle: Bundle) -> None:
    answer = sectors(
        bundle,
        "银行 保险",
        "银行 保险 钢铁",
        "银行 汽车 钢铁",
        "汽车",
    )
    assert answer["focus_sectors"] == ["银行", "保险", "汽车零部件"]


def test_only_sectors_of_the_universe_are_named(bundle: Bundle) -> None:
    answer = sectors(bundle, "银行降准", "银行贷款", known_sectors=["证券", "钢铁"])
    assert answer["focus_sectors"] == []


def test_every_number_of_the_reason_is_a_field(bundle: Bundle) -> None:
    result = explain(bundle, FIELDS, ["证券"])
    assert result.value is not None, result.failure
    assert result.value["reason_text"] == (
        "收盘 6.98 元，高出年线 6.967 元 0.18%；盘中最低 6.92 元，跌破年线后收回；"
        "年线 10 日上移 0.78%，此前 10 日有 4 日收在线上；"
        "成交量为 20 日均量的 1.04 倍，未明显放量。所属证券在当日关注板块内。"
    )
    known = {value for value in FIELDS.values() if isinstance(value, int | float)}
    told = re.findall(r"\d+(?:\.\d+)?", result.value["reason_text"])
    assert {float(number) for number in told} <= known


def test_prices_are_written_as_traders_write_them(bundle: Bundle) -> None:
    result = explain(bundle, {**FIELDS, "close": 19.5, "low": 19.0})
    assert result.value is not None
    assert "收盘 19.50 元，高出年线 6.967 元" in result.value["reason_text"]
    assert "盘中最低 19.00 元" in result.value["reason_text"]


@pytest.mark.parametrize(
    ("changes", "confidence"),
    [
        ({}, "medium"),  # the low reached the line
        ({"volume_ratio": 0.8, "closes_above": 8}, "high"),
        ({"low_distance_pct": 0.5}, "low"),
        ({"low_distance_pct": 0.5, "volume_ratio": 0.8}, "medium"),
    ],
)
def test_confidence_counts_three_facts(
    bundle: Bundle, changes: dict[str, float], confidence: str
) -> None:
    result = explain(bundle, {**FIELDS, **changes})
    assert result.value is not None
    assert result.value["confidence"] == confidence


def test_a_field_that_is_missing_is_not_told(bundle: Bundle) -> None:
    result = explain(bundle, {**FIELDS, "volume_ratio": None})
    assert result.value is not None
    assert "成交量" not in result.value["reason_text"]
    bare = explain(bundle, {})
    assert bare.value == {
        "reason_text": "长江证券符合规则，指标未随信号给出。",
        "confidence": "low",
    }


def test_every_sector_of_the_table_exists_in_the_sample(bundle_root: Path) -> None:
    from kit.bundle.code import load_module
    from kit.market import SampleSource

    words = load_module(bundle_root, "code/helpers/offline_news_proxy.py").SECTOR_WORDS
    assert set(words) == {s.industry for s in SampleSource().securities("cn") if s.kind == "stock"}


def test_the_template_reads_from_the_same_fields(bundle: Bundle) -> None:
    from kit.screen.picks import Candidate
    from kit.screen.reasons import check_reason, render_template

    pick = Candidate(
        symbol="000783.SZ", name="长江证券", score=0.0018, fields=FIELDS, matched_rules=("a",)
    )
    text = render_template(bundle.reason_template, pick, 6.98, "2020-02-27")
    assert text == (
        "长江证券收盘 6.98 元，年线 6.967 元，距年线 0.18%；盘中最低 6.92 元；"
        "成交量为 20 日均量的 1.04 倍。"
    )
    assert check_reason(text, pick, [], "2020-02-27") is None
    answer = explain(bundle, FIELDS, ["证券"]).value
    assert answer is not None
    assert check_reason(answer["reason_text"], pick, [], "2020-02-27") is None
