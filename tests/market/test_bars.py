from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from kit.errors import DataError
from kit.market.bars import BAR_COLUMNS, check_bars, conform, find_problems, fingerprint_frame

DAYS = ["2024-01-02", "2024-01-03", "2024-01-04"]
NAN = float("nan")
INF = float("inf")


def _refusal(frame: pl.DataFrame) -> DataError:
    with pytest.raises(DataError) as caught:
        check_bars(frame)
    return caught.value


def test_good_bars_pass(make_bars: Any) -> None:
    frame = make_bars("600000.SH", DAYS, [10.0, 11.0, 12.0])
    check_bars(frame)
    assert find_problems(frame) == []


def test_an_empty_frame_is_refused(make_bars: Any) -> None:
    assert _refusal(make_bars("A", DAYS, [10.0, 11.0, 12.0]).clear()).code == "data.no_bars"


@pytest.mark.parametrize(
    ("columns", "kind", "stamp"),
    [
        ({"close": [10.0, NAN, 12.0]}, "missing", "2024-01-03"),
        ({"close": [10.0, None, 12.0]}, "missing", "2024-01-03"),
        ({"low": [9.0, 10.0, -1.0]}, "not_positive", "2024-01-04"),
        ({"open": [10.0, 0.0, 12.0], "low": [9.0, 0.0, 11.0]}, "not_positive", "2024-01-03"),
        ({"high": [11.0, 10.5, 13.0]}, "ohlc", "2024-01-03"),  # below the close of 11
        ({"low": [9.0, 10.0, 12.5]}, "ohlc", "2024-01-04"),  # above the close of 12
        ({"volume": [1.0, -1.0, 1.0]}, "negative_volume", "2024-01-03"),
        ({"volume": [1.0, None, 1.0]}, "negative_volume", "2024-01-03"),
        ({"volume": [1.0, 1.0, INF]}, "negative_volume", "2024-01-04"),
        ({"close": [10.0, INF, 12.0], "high": [11.0, INF, 13.0]}, "not_positive", "2024-01-03"),
        ({"adj_factor": [1.0, 1.0, 0.0]}, "factor", "2024-01-04"),
        ({"adj_factor": [1.0, NAN, 1.0]}, "factor", "2024-01-03"),
        ({"adj_factor": [1.0, INF, 1.0]}, "factor", "2024-01-03"),
    ],
)
def test_a_bad_bar_is_named_by_symbol_and_date(
    make_bars: Any, columns: dict[str, Any], kind: str, stamp: str
) -> None:
    good = make_bars("000001.SZ", DAYS, [5.0, 5.0, 5.0])
    bad = make_bars("600000.SH", DAYS, [10.0, 11.0, 12.0], **columns)
    problems = find_problems(pl.concat([good, bad]))
    assert [(p.symbol, p.kind, f"{p.time:%Y-%m-%d}") for p in problems] == [
        ("600000.SH", kind, stamp)
    ]
    error = _refusal(pl.concat([good, bad]))
    assert error.code == "data.bad_bars"
    assert error.message.startswith(f"600000.SH {stamp}: ")


def test_a_series_without_any_price_is_named_once(make_bars: Any) -> None:
    empty = make_bars("B", DAYS, [1.0, 1.0, 1.0], close=[NAN, NAN, NAN])
    frame = pl.concat([make_bars("A", DAYS, [9.0, 9.0, 9.0]), empty])
    (problem,) = find_problems(frame)
    assert (problem.symbol, problem.kind) == ("B", "all_missing")
    assert "2024-01-02 to 2024-01-04" in problem.message


def test_duplicate_dates_are_named(make_bars: Any) -> None:
    frame = make_bars("A", ["2024-01-02", "2024-01-03", "2024-01-03"], [9.0, 9.0, 9.0])
    assert str(find_problems(frame)[0]) == "A 2024-01-03: there are two bars at this time"


def test_time_running_backwards_is_named(make_bars: Any) -> None:
    frame = make_bars("A", ["2024-01-03", "2024-01-02", "2024-01-04"], [9.0, 9.0, 9.0])
    (problem,) = find_problems(frame)
    assert (problem.kind, f"{problem.time:%Y-%m-%d}") == ("not_monotonic", "2024-01-02")


def test_intraday_problems_carry_the_minute(make_bars: Any) -> None:
    frame = make_bars("A", ["2024-01-02T09:31:00"] * 2, [9.0, 9.0])
    assert "A 2024-01-02 09:31: there are two bars" in _refusal(frame).message


def test_one_symbol_adjusted_in_two_ways_is_refused(make_bars: Any) -> None:
    frame = make_bars("A", DAYS, [9.0, 9.0, 9.0]).with_columns(
        adjust=pl.Series(["none", "qfq", "qfq"])
    )
    (problem,) = find_problems(frame)
    assert problem.kind == "mixed_adjust"
    assert "none, qfq" in problem.message


def test_many_problems_come_back_at_once(make_bars: Any) -> None:
    error = _refusal(make_bars("A", DAYS, [-5.0, 9.0, -7.0]))
    assert error.details["count"] == 2
    assert [text[:12] for text in error.details["problems"]] == ["A 2024-01-02", "A 2024-01-04"]
    assert error.message.endswith("(and 1 more)")


def test_only_columns_that_are_there_are_checked(make_bars: Any) -> None:
    frame = make_bars("A", DAYS, [9.0, 9.0, 9.0], open=[NAN, NAN, NAN])
    assert find_problems(frame.select("symbol", "time", "close", "low")) == []
    crossed = make_bars("A", DAYS, [9.0, 9.0, 9.0], low=[8.0, 9.5, 8.0])
    (problem,) = find_problems(crossed.select("symbol", "time", "close", "low"))
    assert problem.kind == "ohlc"


def test_conform_fills_what_a_source_may_not_know(make_bars: Any) -> None:
    frame = make_bars("A", DAYS, [9.0, 9.0, 9.0])
    short = frame.drop("amount", "is_st", "as_of").with_columns(
        pl.col("volume").cast(pl.Int64), extra=pl.lit(1)
    )
    out = conform(short.lazy()).collect()
    assert dict(out.schema) == BAR_COLUMNS
    assert out.drop("amount").equals(frame.drop("amount"))


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda f: f.drop("volume"), "lack volume"),
        (lambda f: f.with_columns(close=pl.lit("9.0")), "column close has type String"),
        (
            lambda f: f.with_columns(pl.col("time").dt.replace_time_zone("UTC")),
            "column time has type",
        ),
    ],
)
def test_conform_refuses_what_it_would_have_to_guess(
    make_bars: Any, change: Any, word: str
) -> None:
    frame = change(make_bars("A", DAYS, [9.0, 9.0, 9.0]))
    with pytest.raises(DataError, match=word) as caught:
        conform(frame.lazy(), where="x.parquet")
    assert (caught.value.code, caught.value.where) == ("data.bad_columns", "x.parquet")


def test_the_fingerprint_follows_content_only(make_bars: Any) -> None:
    frame = make_bars("A", DAYS, [9.0, 9.0, 9.0])
    same = frame.with_columns(source=pl.lit("elsewhere"))
    assert fingerprint_frame(frame) == fingerprint_frame(same)
    others = [
        make_bars("A", DAYS, [9.0, 9.0, 9.1]),
        make_bars("B", DAYS, [9.0, 9.0, 9.0]),
        make_bars("A", [*DAYS[:2], "2024-01-05"], [9.0, 9.0, 9.0]),
        make_bars("A", DAYS, [9.0, 9.0, 9.0], amount=[None, 1.0, None]),
        make_bars("A", DAYS, [9.0, 9.0, 9.0], amount=[None, None, 1.0]),
        make_bars("A", DAYS, [9.0, 9.0, 9.0], is_st=[True, None, None]),
        make_bars("A", DAYS, [9.0, 9.0, 9.0], is_st=[False, None, None]),
    ]
    digests = {fingerprint_frame(other) for other in [frame, *others]}
    assert len(digests) == 1 + len(others)
