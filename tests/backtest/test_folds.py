"""Parts of time: what is trained on never touches what is tested, margins included."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from kit.backtest.folds import by_fold, chosen, purged, walk_forward
from kit.errors import UsageError


def test_walk_forward_trains_on_the_past_less_the_margin() -> None:
    splits = [(list(train), list(test)) for train, test in walk_forward(10, folds=5, purge=1)]
    assert splits == [
        ([0], [2, 3]),
        ([0, 1, 2], [4, 5]),
        ([0, 1, 2, 3, 4], [6, 7]),
        ([0, 1, 2, 3, 4, 5, 6], [8, 9]),
    ]


def test_purged_folds_keep_a_margin_on_both_sides() -> None:
    splits = [(list(train), list(test)) for train, test in purged(9, folds=3, purge=1)]
    assert splits == [
        ([4, 5, 6, 7, 8], [0, 1, 2]),
        ([0, 1, 7, 8], [3, 4, 5]),
        ([0, 1, 2, 3, 4], [6, 7, 8]),
    ]


def test_too_few_bars_are_refused() -> None:
    for folds in (1, 5):
        with pytest.raises(UsageError) as caught:
            purged(9, folds=folds)
        assert caught.value.code == "backtest.bad_folds"


def test_folds_of_an_account_by_hand() -> None:
    equity = pd.Series([100.0, 110.0, 99.0, 99.0, 108.9], pd.bdate_range("2024-03-04", periods=5))
    rows = by_fold(equity, 250.0, folds=2)
    assert [(row["start"], row["end"]) for row in rows] == [
        ("2024-03-05", "2024-03-06"),
        ("2024-03-07", "2024-03-08"),
    ]
    assert [row["total_return"] for row in rows] == pytest.approx([-0.01, 0.1])
    assert [row["max_drawdown"] for row in rows] == pytest.approx([-0.1, 0.0])
    # Returns of +10 % and -10 %, then of 0 and +10 %: mean over sample deviation, by root 250.
    assert rows[0]["sharpe"] == pytest.approx(0.0, abs=1e-9)
    assert rows[1]["sharpe"] == pytest.approx(0.05 / (0.1 / np.sqrt(2)) * np.sqrt(250))
    whole = (1 + rows[0]["total_return"]) * (1 + rows[1]["total_return"])
    assert whole == pytest.approx(108.9 / 100)
    assert by_fold(equity[:3], 250.0) == []


def test_the_pick_is_scored_where_it_was_not_picked() -> None:
    # "early" gains in the first half only, "late" in the second only, each with some noise.
    noise = np.tile([0.001, -0.001], 20)
    early = np.where(np.arange(40) < 20, 0.01, -0.01) + noise
    late = -early + 2 * noise
    found = chosen({"early": early, "late": late}, walk_forward(40, folds=2), None)
    assert found["picks"] == ["early"]
    found = chosen({"early": early, "late": late}, walk_forward(40, folds=2), 250.0)
    # Picked on its good half, scored on its bad one.
    assert found["in_sample"] > 0 > found["out_of_sample"]
    assert found["out_of_sample"] == pytest.approx(
        early[20:].mean() / early[20:].std(ddof=1) * np.sqrt(250)
    )
    idle = chosen({"idle": np.zeros(40)}, walk_forward(40, folds=2), 250.0)
    assert idle == {"picks": [None], "in_sample": None, "out_of_sample": None}
