"""How far two answers agree; every expected figure is worked out by hand."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from kit.llm.agreement import Agreement, compare, jaccard, mean_interval, overlap
from kit.llm.models import knowledge_label

SCHEMA = {
    "type": "object",
    "properties": {
        "sectors": {"type": "array", "items": {"type": "string"}},
        "order": {"type": "array", "items": {"type": "string"}, "x-ranking": True},
        "confidence": {"enum": ["high", "low"]},
        "halt": {"type": "boolean"},
        "inner": {"properties": {"level": {"type": "integer"}}},
        "why": {"type": "string"},
        "score": {"type": "number"},
        "rows": {"type": "array", "items": {"properties": {"a": {"type": "string"}}}},
    },
}


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ([], [], 1.0),
        (["a"], [], 0.0),
        (["a", "b"], ["b", "a", "a"], 1.0),
        (["a", "b"], ["b", "c"], 1 / 3),
        ([1, "1"], [1], 0.5),
    ],
)
def test_jaccard(left: list[Any], right: list[Any], expected: float) -> None:
    assert jaccard(left, right) == pytest.approx(expected)
    assert jaccard(right, left) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ([], [], 1.0),
        (["a", "b", "c"], ["a", "b", "c"], 1.0),
        (["a"], ["b"], 0.0),
        # Depths 1, 2, 3: 0/1, 2/2, 3/3.
        (["a", "b", "c"], ["b", "a", "c"], 2 / 3),
        # Depths 1, 2: 1/1, 1/2.
        (["a", "b"], ["a"], 0.75),
    ],
)
def test_overlap(left: list[str], right: list[str], expected: float) -> None:
    assert overlap(left, right) == pytest.approx(expected)


def test_only_what_can_be_compared_is() -> None:
    left = {
        "sectors": ["银行", "军工"],
        "order": ["a", "b"],
        "confidence": "high",
        "halt": True,
        "inner": {"level": 2},
        "why": "x",
        "score": 1.5,
        "rows": [],
    }
    right = {**left, "sectors": ["银行"], "order": ["b", "a"], "confidence": "low", "why": "y"}
    del right["inner"]
    assert compare(SCHEMA, left, right) == {
        "sectors": {"measure": "jaccard", "score": 0.5},
        "order": {"measure": "overlap", "score": 0.5},
        "confidence": {"measure": "equality", "score": 0.0},
        "halt": {"measure": "equality", "score": 1.0},
        "inner.level": {"measure": "equality", "score": 0.0},
    }
    assert compare(SCHEMA, {"why": "x"}, {"why": "x"}) == {}


def test_the_interval_is_wilsons() -> None:
    # Wilson's own formula with z = 1.96 for 8 of 10, as textbooks print it: 0.490 to 0.943.
    mean, low, high = mean_interval([1.0] * 8 + [0.0] * 2)
    assert (mean, round(low, 3), round(high, 3)) == (0.8, 0.490, 0.943)
    # All of 20: the lower end is 20 / (20 + 3.8415).
    mean, low, high = mean_interval([1.0] * 20)
    assert (mean, high) == (1.0, 1.0)
    assert low == pytest.approx(20 / 23.8415, abs=1e-5)
    assert mean_interval([]) == (0.0, 0.0, 1.0)
    # Scores of the same mean that vary less get no wider an interval.
    assert mean_interval([0.5] * 30) == mean_interval([0.0, 1.0] * 15)


def test_fewer_than_twenty_measure_nothing() -> None:
    few = Agreement(step="s", count=19, days=3, mean=0.9, low=0.7, high=1.0, fields={})
    assert not few.measured
    assert few.to_dict()["mean"] is None
    assert few.to_dict()["low"] is None
    enough = Agreement(**{**vars(few), "count": 20})
    assert enough.measured
    assert enough.to_dict()["mean"] == 0.9


@pytest.mark.parametrize(
    ("model", "first", "label"),
    [
        ("a/b", date(2024, 6, 1), "in-knowledge"),
        ("a/b", date(2024, 6, 2), "after-cutoff"),
        ("a/c", date(2030, 1, 1), "unknown-cutoff"),
    ],
)
def test_a_window_that_a_model_may_remember_is_labelled(
    model: str, first: date, label: str
) -> None:
    assert knowledge_label(model, first, {"cutoffs": {"a/b": "2024-06-01"}}) == label
