"""From a store with every kind of bad series to a panel: said, named, and the rest goes on."""

from __future__ import annotations

from datetime import date
from typing import Any

import numpy as np
import polars as pl
import pytest

from kit.errors import DataError
from kit.market import calendar, load_panel, open_source, resolve_universe
from kit.market.store import BarStore
from kit.workspace import Workspace

FIRST, LAST = date(2024, 1, 2), date(2024, 6, 28)
SOUND, HALTED, QUIET, GONE = "600000.SH", "600001.SH", "600002.SH", "600003.SH"


@pytest.fixture
def days(workspace: Workspace) -> list[str]:
    return [day.isoformat() for day in calendar(workspace, "cn").sessions(FIRST, LAST)]


@pytest.fixture
def store(workspace: Workspace, make_bars: Any, days: list[str]) -> BarStore:
    """One sound name, one halted for two months, one without trades for a week, one that ended."""
    rest = [day for day in days if not "2024-03" <= day[:7] <= "2024-04"]
    volume = [0.0 if 40 <= place < 45 else 1000.0 for place in range(len(days))]
    store = BarStore(workspace.market_dir)
    frames = [
        make_bars(SOUND, days, [10.0] * len(days)),
        make_bars(HALTED, rest, [10.0] * len(rest)),
        make_bars(QUIET, days, [10.0] * len(days), volume=volume),
        make_bars(GONE, days[:20], [10.0] * 20),
    ]
    store.write("cn", "1d", pl.concat(frames))
    return store


def test_a_universe_says_whom_it_dropped_and_the_rest_goes_on(
    workspace: Workspace, store: BarStore
) -> None:
    source = open_source(workspace, "parquet")
    selector = {"symbols": [SOUND, GONE, "600009.SH"]}
    universe = resolve_universe(source, "cn", selector, LAST)
    assert universe.symbols == (SOUND,)
    assert {d.symbol: d.reason for d in universe.dropped} == {
        GONE: f"{LAST} 没有行情（最后一根 2024-01-29）",
        "600009.SH": "数据源没有该代码，是否为 600003.SH",
    }
    # A list of today looked back over is survivorship, and that is said.
    assert "幸存者偏差" in universe.note
    panel = load_panel(source, universe.symbols, FIRST, LAST, market="cn")
    assert panel.symbols == (SOUND,)


def test_halted_months_are_gaps_and_not_filled(
    workspace: Workspace, store: BarStore, days: list[str]
) -> None:
    source = open_source(workspace, "parquet")
    panel = load_panel(source, [SOUND, HALTED], FIRST, LAST, market="cn")
    wide = panel.wide("close")
    march = (wide.index >= "2024-03-01") & (wide.index < "2024-05-01")
    assert wide.loc[march, HALTED].isna().all()
    assert wide.loc[~march, HALTED].notna().all()
    assert wide[SOUND].notna().all()
    assert len(panel[HALTED]) == int((~march).sum())


def test_days_without_a_trade_stay_with_their_zero(workspace: Workspace, store: BarStore) -> None:
    source = open_source(workspace, "parquet")
    panel = load_panel(source, [QUIET], FIRST, LAST, market="cn")
    assert panel.symbols == (QUIET,)  # a universe of one
    assert (panel[QUIET]["volume"] == 0).sum() == 5
    assert np.isfinite(panel.wide("close").to_numpy()).all()


def test_a_range_without_bars_names_what_there_is(workspace: Workspace, store: BarStore) -> None:
    source = open_source(workspace, "parquet")
    with pytest.raises(DataError) as caught:
        load_panel(source, [SOUND], date(2020, 1, 1), date(2020, 12, 31), market="cn")
    assert caught.value.code == "data.no_bars"
    assert "from 2024-01-02 to 2024-06-28" in caught.value.remedy
    with pytest.raises(DataError) as caught:
        resolve_universe(source, "cn", {"kind": "all"}, date(2020, 1, 1))
    assert "2024-01-02" in caught.value.remedy


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda b: b.with_columns(pl.lit(-1.0).alias("low")), "not positive"),
        (lambda b: b.with_columns(pl.lit(0.0).alias("open")), "high and low|not positive"),
        (lambda b: pl.concat([b, b[3:4]]), "two bars at this time"),
        (lambda b: b.with_columns(pl.lit(-5.0).alias("volume")), "volume is -5"),
        (lambda b: b.with_columns(pl.lit(None, dtype=pl.Float64).alias("close")), "lacks a price"),
    ],
)
def test_a_bad_series_in_a_file_is_refused_by_name(
    workspace: Workspace, store: BarStore, change: Any, said: str
) -> None:
    bars = store.read("cn", "1d", SOUND)
    store.write("cn", "1d", change(bars))
    source = open_source(workspace, "parquet")
    with pytest.raises(DataError, match=said) as caught:
        load_panel(source, [SOUND, QUIET], FIRST, LAST, market="cn").wide("close")
        panel = load_panel(source, [SOUND, QUIET], FIRST, LAST, market="cn")
        panel[SOUND]
    assert caught.value.code == "data.bad_bars"
    assert SOUND in caught.value.message
    # The sound neighbour is served as before.
    assert len(load_panel(source, [QUIET], FIRST, LAST, market="cn")[QUIET]) > 100


def test_rows_in_any_order_are_put_in_order(workspace: Workspace, store: BarStore) -> None:
    bars = store.read("cn", "1d", SOUND)
    folder = store.folder("cn", "1d")
    bars.with_columns(pl.lit("600008.SH").alias("symbol")).reverse().write_parquet(
        folder / "backwards.parquet"
    )
    panel = load_panel(open_source(workspace, "parquet"), ["600008.SH"], FIRST, LAST, market="cn")
    assert panel.dates.is_monotonic_increasing
    assert len(panel["600008.SH"]) == len(bars)
