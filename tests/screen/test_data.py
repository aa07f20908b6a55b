"""The data stage: who is asked, got, screened and dropped, and how old the newest bar is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, time
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import polars as pl
import pytest

from kit.errors import DataError
from kit.market import BAR_COLUMNS, ParquetSource, calendar, open_source
from kit.screen import load_data, window_start
from kit.workspace import Workspace

SHANGHAI = ZoneInfo("Asia/Shanghai")


@dataclass(frozen=True)
class Needs:
    """A data contract of a bundle."""

    frequency: str = "daily"
    fields: tuple[str, ...] = ("close_adj", "volume")
    history_days: int = 5
    warmup_bars: int | None = None
    adjustment: str = "forward"
    market: str = "cn"
    selector: Mapping[str, Any] = field(default_factory=lambda: {"kind": "all"})
    asof: tuple[time, ZoneInfo] = (time(16, 30), SHANGHAI)


SESSIONS = [date(2024, 9, d) for d in (9, 10, 11, 12, 13, 18, 19)]


def bars(symbol: str, days: list[date], **changes: Any) -> list[dict[str, Any]]:
    row = {
        "symbol": symbol,
        "open": 10.0,
        "high": 10.5,
        "low": 9.5,
        "close": 10.0,
        "volume": 1000.0,
        "amount": 10_000.0,
        "adj_factor": 1.0,
        "adjust": "none",
        "source": "test",
        "as_of": None,
        "limit_up": None,
        "limit_down": None,
        "is_st": None,
        "suspended": None,
        **changes,
    }
    return [{**row, "time": datetime.combine(day, time())} for day in days]


def store(workspace: Workspace, rows: list[dict[str, Any]]) -> ParquetSource:
    folder: Path = workspace.market_dir / "cn" / "1d"
    folder.mkdir(parents=True)
    pl.DataFrame(rows, schema=BAR_COLUMNS).write_parquet(folder / "bars.parquet")
    return ParquetSource(workspace.market_dir)


def test_every_symbol_is_screened_or_dropped_with_its_reason(workspace: Workspace) -> None:
    broken, lacking = bars("600003.SH", SESSIONS), bars("600005.SH", SESSIONS)
    broken[2]["volume"] = None
    lacking[-1]["amount"] = None
    source = store(
        workspace,
        [
            *bars("600001.SH", SESSIONS),
            *bars("600002.SH", SESSIONS[-3:]),  # too short
            *broken,  # one bar is unusable
            *lacking,  # today's amount is missing
            *bars("600004.SH", SESSIONS[:-1]),  # no bar today
        ],
    )
    day = date(2024, 9, 19)
    needs = Needs(fields=("close_adj", "volume", "amount"))
    data = load_data(source, needs, day, calendar(workspace, "cn"))
    universe = data.universe
    assert (universe.asked, universe.got, universe.screened) == (5, 4, 1)
    assert data.panel is not None
    assert data.panel.symbols == ("600001.SH",) == tuple(data.securities)
    assert {drop.symbol: drop.reason for drop in universe.dropped} == {
        "600004.SH": "2024-09-19 没有行情（最后一根 2024-09-18）",
        "600002.SH": "历史不足 5 根日线（只有 3 根）",
        "600003.SH": "行情有误：2024-09-11 成交量缺失或为负",
        "600005.SH": "当日缺少字段 amount",
    }
    assert data.missing == {"有效行情": ("600003.SH",), "amount": ("600005.SH",)}
    assert data.prices == {"600001.SH": 10.0}
    assert universe.to_dict()["dropped"][0].keys() == {"symbol", "reason"}
    assert (data.lag_minutes, data.data_date) == (0, day)
    assert data.data_time == datetime(2024, 9, 19, 15, 0, tzinfo=SHANGHAI)


def test_the_lag_is_counted_from_close_to_close(workspace: Workspace) -> None:
    source = store(workspace, bars("600001.SH", SESSIONS[:-1]))
    data = load_data(source, Needs(), date(2024, 9, 19), calendar(workspace, "cn"))
    # The newest bar is of the 18th, one day of 24 hours before the close of the 19th.
    assert data.lag_minutes == 24 * 60
    assert data.expected_time == datetime(2024, 9, 19, 15, 0, tzinfo=SHANGHAI)
    assert data.data_time == datetime(2024, 9, 18, 15, 0, tzinfo=SHANGHAI)
    assert data.data_date == date(2024, 9, 18)
    # Over the Mid-Autumn holiday: from the 13th to the 18th.
    data = load_data(source, Needs(), date(2024, 9, 18), calendar(workspace, "cn"))
    assert data.lag_minutes == 0


def test_bars_after_the_date_are_never_seen(workspace: Workspace) -> None:
    source = store(workspace, bars("600001.SH", SESSIONS))
    data = load_data(source, Needs(), date(2024, 9, 13), calendar(workspace, "cn"))
    assert data.panel is not None
    assert data.panel.last_date == date(2024, 9, 13)
    assert data.universe.screened == 1


def test_the_price_shown_is_the_one_that_traded(workspace: Workspace) -> None:
    # A split two for one on the last day: the factor doubles, the raw price halves.
    early, late = SESSIONS[:-1], SESSIONS[-1:]
    source = store(
        workspace,
        [
            *bars("600001.SH", early, adj_factor=1.0),
            *bars("600001.SH", late, adj_factor=2.0, open=5.0, high=5.2, low=4.8, close=5.0),
            *bars("600002.SH", SESSIONS, adjust="qfq"),
        ],
    )
    data = load_data(source, Needs(), date(2024, 9, 19), calendar(workspace, "cn"))
    assert data.panel is not None
    assert data.prices == {"600001.SH": 5.0, "600002.SH": 10.0}
    # What the rule sees is adjusted to the last day: no gap.
    assert data.panel["600001.SH"]["close"].tolist() == [5.0] * 7
    assert data.restated == {"600002.SH"}


def test_nobody_left_is_no_panel(workspace: Workspace) -> None:
    source = store(workspace, bars("600001.SH", SESSIONS[-2:]))
    data = load_data(source, Needs(), date(2024, 9, 19), calendar(workspace, "cn"))
    assert data.panel is None
    assert (data.universe.got, data.universe.screened, data.prices) == (1, 0, {})


def test_warm_up_counts_before_history(workspace: Workspace) -> None:
    source = store(workspace, bars("600001.SH", SESSIONS))
    day, days = date(2024, 9, 19), calendar(workspace, "cn")
    assert load_data(source, Needs(warmup_bars=7), day, days).universe.screened == 1
    assert load_data(source, Needs(warmup_bars=8), day, days).universe.screened == 0


def test_only_daily_bars_are_screened(workspace: Workspace) -> None:
    with pytest.raises(DataError) as caught:
        load_data(
            open_source(workspace),
            Needs(frequency="5m"),
            date(2024, 9, 19),
            calendar(workspace, "cn"),
        )
    assert caught.value.code == "screen.frequency"


def test_nothing_at_all_is_an_error_that_says_so(workspace: Workspace) -> None:
    with pytest.raises(DataError) as caught:
        load_data(open_source(workspace), Needs(), date(2017, 1, 3), calendar(workspace, "cn"))
    assert caught.value.code == "data.no_bars"


def test_the_window_leaves_room_for_halts() -> None:
    # 260 bars are about 390 days of calendar; a quarter more is read.
    assert (
        date(2024, 9, 19) - window_start(Needs(history_days=260), date(2024, 9, 19))
    ).days == 494


def test_the_sample_serves_three_names_on_its_last_day(workspace: Workspace) -> None:
    needs = Needs(history_days=260, selector={"kind": "sample"})
    day = date(2024, 9, 19)
    data = load_data(open_source(workspace), needs, day, calendar(workspace, "cn"))
    # The sample's notes: three names run to 2024-09-19, seven end on 2020-06-16; the index is none.
    assert (data.universe.asked, data.universe.got, data.universe.screened) == (10, 3, 3)
    assert sorted(data.securities) == ["000001.SZ", "000151.SZ", "600000.SH"]
