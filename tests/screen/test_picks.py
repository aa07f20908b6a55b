"""What a rule returns is checked piece by piece."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Any, NamedTuple

import numpy as np
import pytest

from kit.errors import BundleError
from kit.screen import Candidate, check_picks, cut, run_rule

NAMES = {"600000.SH": "浦发银行", "000001.SZ": "平安银行"}
DAY = date(2024, 9, 19)


class Pick(NamedTuple):
    symbol: Any
    score: Any = 0.01
    fields: Any = {}  # noqa: RUF012 - never changed
    matched_rules: Any = ()


def rejected(pick: Any) -> tuple[str, str, str]:
    kept, wrong = check_picks([pick], NAMES)
    assert kept == []
    (one,) = wrong
    return one.symbol, one.field, one.reason


def test_a_good_pick_comes_through_with_its_name_and_plain_numbers() -> None:
    fields = {"close": np.float64(10.02), "days": np.int64(4), "note": "a\nb", "x": None, "y": True}
    kept, wrong = check_picks([Pick("600000.SH", np.float32(0.5), fields, ["r1"])], NAMES)
    assert wrong == []
    assert kept == [
        Candidate(
            symbol="600000.SH",
            name="浦发银行",
            score=0.5,
            fields={"close": 10.02, "days": 4, "note": "a b", "x": None, "y": True},
            matched_rules=("r1",),
        )
    ]
    assert [type(v) for v in kept[0].fields.values()] == [float, int, str, type(None), bool]


@pytest.mark.parametrize("score", [float("nan"), float("inf"), None, "0.1", True, 1j, [0.1]])
def test_a_score_must_be_a_finite_number(score: Any) -> None:
    assert rejected(Pick("600000.SH", score)) == ("600000.SH", "score", "评分不是有限数值")


@pytest.mark.parametrize(
    "value", [float("nan"), np.float64("inf"), [1], {"a": 1}, object(), np.array([1.0]), 10**30]
)
def test_a_field_that_is_no_figure_is_named(value: Any) -> None:
    assert rejected(Pick("600000.SH", 0.1, {"ma": value})) == (
        "600000.SH",
        "ma",
        "指标 ma 不是有限数值或文字",
    )


@pytest.mark.parametrize(
    ("pick", "field", "reason"),
    [
        (Pick("999999.SH"), "symbol", "不在参与筛选的标的中"),
        (Pick(None), "symbol", "没有代码"),
        (object(), "symbol", "没有代码"),
        ("600000.SH", "symbol", "没有代码"),
        (Pick("600000.SH", 0.1, [1, 2]), "fields", "指标不是键值表"),
        (Pick("600000.SH", 0.1, {str(i): 1 for i in range(61)}), "fields", "指标不是键值表"),
        (Pick("600000.SH", 0.1, {}, "rule"), "matched_rules", "命中规则不是名称列表"),
        (Pick("600000.SH", 0.1, {}, [1]), "matched_rules", "命中规则不是名称列表"),
    ],
)
def test_other_oddities(pick: Any, field: str, reason: str) -> None:
    assert rejected(pick)[1:] == (field, reason)


def test_the_second_of_two_equal_symbols_is_dropped_and_order_is_kept() -> None:
    picks = [Pick("000001.SZ", 0.3), Pick("600000.SH", 0.1), Pick("000001.SZ", 0.2)]
    kept, wrong = check_picks(picks, NAMES)
    assert [pick.symbol for pick in kept] == ["000001.SZ", "600000.SH"]
    assert [(one.symbol, one.reason) for one in wrong] == [("000001.SZ", "重复返回")]
    assert [pick.symbol for pick in cut(kept, 1)] == ["000001.SZ"]
    assert cut(kept, 9) == kept


def test_hostile_text_is_shortened_and_made_visible() -> None:
    pick = Pick("600000.SH", 0.1, {"note": "x" * 500 + "\x1b"}, ["r\n" * 100])
    (kept,), _ = check_picks([pick], NAMES)
    assert len(kept.fields["note"]) == 80
    assert "\n" not in kept.matched_rules[0]


class Engine:
    def __init__(self, answer: Callable[[], Any]) -> None:
        self.answer = answer
        self.seen: tuple[Any, ...] = ()

    def screen_today(self, *given: Any) -> Any:
        self.seen = given
        return self.answer()


def test_the_rule_is_called_with_what_the_contract_says() -> None:
    engine = Engine(list)
    data: dict[str, Any] = {}
    assert run_rule(engine, "screen_today", data, DAY, [], 7) == []
    # No sector in focus is no filter.
    assert engine.seen == (data, DAY, None, 7)
    run_rule(engine, "screen_today", data, DAY, ("银行",), 3)
    assert engine.seen == (data, DAY, ["银行"], 3)


def test_the_vectorised_form_is_preferred() -> None:
    class Fast(Engine):
        def screen_panel(self, *given: Any) -> Any:
            return [given[1]]

    assert run_rule(Fast(list), "screen_today", {}, DAY, None, 7) == [DAY]


def boom() -> Any:
    raise ZeroDivisionError("a\nb")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (boom, "screen_today raised ZeroDivisionError: a b"),
        (lambda: None, "screen_today returned NoneType, not a list"),
        (lambda: {"a": 1}, "screen_today returned dict, not a list"),
        (lambda: iter([]), "screen_today returned list_iterator, not a list"),
    ],
)
def test_a_rule_that_fails_is_told_in_one_line(answer: Any, message: str) -> None:
    with pytest.raises(BundleError) as caught:
        run_rule(Engine(answer), "screen_today", {}, DAY, None, 7)
    assert caught.value.code == "screen.failed"
    assert caught.value.message == message
