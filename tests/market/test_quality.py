"""Each planted fault is found under its own name, and sound bars have none."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Any

import polars as pl
import pytest

from kit.market import calendar, sample
from kit.market.quality import Finding, inspect_bars
from kit.workspace import Workspace

FIRST, LAST = date(2024, 1, 2), date(2024, 6, 28)


@pytest.fixture
def sound(workspace: Workspace, make_bars: Any) -> pl.DataFrame:
    """One name on every session of half a year, around 10, with turnover."""
    days = calendar(workspace, "cn").sessions(FIRST, LAST)
    close = [10 + 0.01 * (place % 9) for place in range(len(days))]
    volume = [1e6 + 1000 * (place % 11) for place in range(len(days))]
    return make_bars(
        "600000.SH",
        [day.isoformat() for day in days],
        close,
        volume=volume,
        amount=[c * v for c, v in zip(close, volume, strict=True)],
    )


def _find(workspace: Workspace, bars: pl.DataFrame, expected: date = LAST) -> list[Finding]:
    book = calendar(workspace, "cn")
    return list(inspect_bars(bars, book, expected=expected, stale_sessions=3))


def _on(day: str) -> pl.Expr:
    return pl.col("time") == datetime.fromisoformat(day)


def _set(name: str, day: str, value: Any) -> pl.Expr:
    return pl.when(_on(day)).then(value).otherwise(pl.col(name)).alias(name)


def test_sound_bars_have_no_findings(workspace: Workspace, sound: pl.DataFrame) -> None:
    assert _find(workspace, sound) == []


@pytest.mark.parametrize(
    ("kind", "severity", "first", "last"),
    [
        ("gap", "warning", date(2024, 3, 4), date(2024, 3, 6)),
        ("off_calendar", "warning", date(2024, 2, 12), date(2024, 2, 12)),
        ("duplicate", "error", date(2024, 3, 4), date(2024, 3, 4)),
        ("not_monotonic", "error", FIRST, FIRST),
        ("ohlc", "error", date(2024, 3, 4), date(2024, 3, 4)),
        ("not_positive", "error", date(2024, 3, 4), date(2024, 3, 4)),
        ("missing", "error", date(2024, 3, 4), date(2024, 3, 4)),
        ("unit", "error", FIRST, LAST),
        ("unit_jump", "error", date(2024, 3, 4), LAST),
        ("split_gap", "error", date(2024, 3, 4), date(2024, 3, 4)),
        ("stale_tail", "warning", date(2024, 6, 20), LAST),
    ],
)
def test_each_fault_is_named(
    workspace: Workspace,
    sound: pl.DataFrame,
    kind: str,
    severity: str,
    first: date,
    last: date,
) -> None:
    day, holiday = "2024-03-04", datetime(2024, 2, 12)  # the second is in the Spring Festival
    since = pl.col("time") >= datetime.fromisoformat(day)
    changes = {
        "gap": lambda b: b.filter(
            ~pl.col("time").is_between(datetime(2024, 3, 4), datetime(2024, 3, 6))
        ),
        "off_calendar": lambda b: pl.concat(
            [b, b[5:6].with_columns(pl.lit(holiday).cast(pl.Datetime("us")).alias("time"))]
        ).sort("time"),
        "duplicate": lambda b: pl.concat([b, b.filter(_on(day))]).sort("time"),
        "not_monotonic": lambda b: pl.concat([b[1:], b[:1]]),
        "ohlc": lambda b: b.with_columns(_set("high", day, 5.0)),
        "not_positive": lambda b: b.with_columns(_set("low", day, -1.0)),
        "missing": lambda b: b.with_columns(_set("close", day, None)),
        "unit": lambda b: b.with_columns(pl.col("volume") / 100),
        "unit_jump": lambda b: b.with_columns(
            pl.lit(None, dtype=pl.Float64).alias("amount"),
            pl.when(since).then(pl.col("volume") / 100).otherwise(pl.col("volume")),
        ),
        "split_gap": lambda b: b.with_columns(
            *(
                pl.when(since).then(pl.col(n) / 2).otherwise(pl.col(n)).alias(n)
                for n in ("open", "high", "low", "close", "amount")
            )
        ),
        "stale_tail": lambda b: b.filter(pl.col("time") <= datetime(2024, 6, 20)),
    }
    found = _find(workspace, changes[kind](sound))
    assert [(f.kind, f.severity, f.first, f.last) for f in found] == [(kind, severity, first, last)]
    assert found[0].symbol == "600000.SH"
    assert found[0].to_dict()["first"] == first.isoformat()


def test_a_split_that_the_factor_follows_is_fine(workspace: Workspace, sound: pl.DataFrame) -> None:
    since = pl.col("time") >= datetime(2024, 3, 4)
    halved = sound.with_columns(
        *(
            pl.when(since).then(pl.col(n) / 2).otherwise(pl.col(n)).alias(n)
            for n in ("open", "high", "low", "close", "amount")
        ),
        pl.when(since).then(2.0).otherwise(1.0).alias("adj_factor"),
    )
    assert _find(workspace, halved) == []


def test_a_few_sessions_behind_is_no_stale_tail(workspace: Workspace, sound: pl.DataFrame) -> None:
    assert _find(workspace, sound.filter(pl.col("time") <= datetime(2024, 6, 25))) == []


def test_the_embedded_sample_has_no_errors(workspace: Workspace) -> None:
    for market, names in (("cn", ["600000.SH", "000001.SZ", "601318.SH"]), ("hk", ["SYN2.HK"])):
        bars = sample.bars("1d").filter(pl.col("symbol").is_in(names)).collect()
        book = calendar(workspace, market)
        found = inspect_bars(bars, book, expected=None, stale_sessions=3)
        assert [finding for finding in found if finding.severity == "error"] == []


def test_days_beyond_the_calendar_are_not_judged(workspace: Workspace, make_bars: Any) -> None:
    start = date(2031, 1, 6)
    days = [(start + timedelta(days=n)).isoformat() for n in (0, 1, 2, 14)]
    bars = make_bars("A", days, [10.0] * 4)
    assert _find(workspace, bars) == []
