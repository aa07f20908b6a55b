"""How a grid is written, and what came of its cells."""

from __future__ import annotations

import numpy as np
import pytest

from kit.backtest.sweep import Cell, combinations, heat, out_of_sample, parse_grid
from kit.errors import UsageError

PARAMS = {"near_pct": 4.0, "window": 250, "mode": "fast", "deep": True, "cap": None}


def test_values_take_the_kind_the_bundle_has() -> None:
    grid = parse_grid(
        [
            "near_pct=2,3.5",
            "window=200:260:20",
            "mode=fast,slow",
            "deep=true,false",
            "cap=null,1.1",
        ],
        PARAMS,
    )
    assert grid == {
        "near_pct": (2.0, 3.5),
        "window": (200, 220, 240, 260),
        "mode": ("fast", "slow"),
        "deep": (True, False),
        "cap": (None, 1.1),
    }
    assert [type(value) for value in grid["near_pct"]] == [float, float]
    assert [type(value) for value in grid["window"]] == [int] * 4
    # Counted in decimals: no 0.30000000000000004, and the end is in.
    assert parse_grid(["near_pct=0.1:0.3:0.1"], PARAMS) == {"near_pct": (0.1, 0.2, 0.3)}
    assert parse_grid(["window=260:200:-30"], PARAMS) == {"window": (260, 230, 200)}


@pytest.mark.parametrize(
    ("options", "code", "word"),
    [
        ([], "sweep.bad_param", "no parameter"),
        (["near_pct"], "sweep.bad_param", "near_pct"),
        (["near_pct="], "sweep.bad_param", "near_pct"),
        (["near_pct=2", "near_pct=3"], "sweep.bad_param", "once"),
        (["near_pct=a"], "sweep.bad_param", "'a'"),
        (["window=200.5"], "sweep.bad_param", "200.5"),
        (["window=1:2"], "sweep.bad_param", "first:last:step"),
        (["window=1:9:0"], "sweep.bad_param", "first:last:step"),
        (["window=9:1:1"], "sweep.bad_param", "nowhere"),
        (["deep=1"], "sweep.bad_param", "True"),
        (["cap=[1]"], "sweep.bad_param", "[1]"),
        (["near_pkt=2"], "sweep.unknown_param", "did you mean 'near_pct'?"),
        (["window=1:200:1", "near_pct=1:100:1"], "sweep.too_large", "20,000"),
    ],
)
def test_what_cannot_be_swept_is_refused(options: list[str], code: str, word: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_grid(options, PARAMS)
    assert caught.value.code == code
    assert word in caught.value.message
    assert caught.value.remedy


NONE = np.zeros(0)


def cell(sharpe: float | None, returns: np.ndarray = NONE, **params: object) -> Cell:
    return Cell(params=params, metrics={"sharpe": sharpe}, returns=returns, longest=1)


def test_the_map_shows_the_median_over_what_it_has_no_axis_for() -> None:
    grid = {"a": (2, 1), "b": (10, 20), "c": (0, 1, 2)}
    cells = [cell(p["a"] * p["b"] + [0, 1, 7][p["c"]], **p) for p in combinations(grid)]
    wide = heat(cells, grid)
    assert wide.index.tolist() == [2, 1]  # in the order given
    assert wide.loc[1].to_dict() == {10: 11.0, 20: 21.0}
    assert (wide.index.name, wide.columns.name) == ("a", "b")
    single = heat([cell(0.5, a=1), cell(None, a=2)], {"a": (1, 2)})
    assert single["sharpe"].tolist()[0] == 0.5
    assert np.isnan(single["sharpe"].tolist()[1])


def test_too_little_to_pick_from_is_not_scored() -> None:
    moving = np.tile([0.01, -0.005], 30)
    two = [cell(1.0, moving, a=1), cell(0.5, -moving, a=2)]
    scored = out_of_sample(two, 250.0)
    assert scored["purge"] == 1
    assert scored["purged"]["picks"] == ["a=1"] * 5
    assert scored["walk_forward"]["picks"] == ["a=1"] * 4
    assert out_of_sample(two[:1], 250.0) == {}
    assert out_of_sample([cell(1.0, moving[:8], a=1), cell(0.5, moving[:8], a=2)], 250.0) == {}
