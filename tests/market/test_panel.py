from __future__ import annotations

from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from kit.errors import DataError, UsageError
from kit.market import load_panel
from kit.market.panel import MarketPanel
from kit.market.sources import ParquetSource, SampleSource

D = [f"2024-01-0{day}" for day in range(2, 7)]
START, END = date(2024, 1, 1), date(2024, 12, 31)


@pytest.fixture
def source(make_bars: Any, make_source: Any) -> Any:
    """A pays 10 % and B splits two for one on the third day; C begins late and is a day short."""
    return make_source(
        make_bars("A", D, [100.0, 100.0, 90.0, 90.0, 99.0], factor=[0.9, 0.9, 1.0, 1.0, 1.0]),
        make_bars("B", D, [40.0, 40.0, 20.0, 20.0, 22.0], factor=[0.5, 0.5, 1.0, 1.0, 1.0]),
        make_bars("C", D[2:4], [7.0, 8.0], adjust="qfq"),
    )


def _panel(source: Any, **options: Any) -> MarketPanel:
    symbols = options.pop("symbols", ["A", "B", "C"])
    return load_panel(source, symbols, START, END, market="cn", **options)


def test_it_is_a_mapping_of_plain_frames(source: Any) -> None:
    panel = _panel(source)
    assert (panel.symbols, len(panel), list(panel)) == (("A", "B", "C"), 3, ["A", "B", "C"])
    assert "A" in panel
    assert "Z" not in panel
    assert panel.get("Z") is None
    with pytest.raises(KeyError):
        panel["Z"]
    frame = panel["C"]
    assert list(frame.columns) == ["open", "high", "low", "close", "volume"]
    assert set(frame.dtypes.map(str)) == {"float64"}
    assert isinstance(frame.index, pd.DatetimeIndex)
    assert [str(day.date()) for day in frame.index] == D[2:4]
    assert panel.last_date == date(2024, 1, 6)
    assert [str(day.date()) for day in panel.dates] == D


def test_forward_prices_equal_raw_ones_at_the_anchor(source: Any) -> None:
    close = _panel(source).wide("close")
    # A: 100 x 0.9 = 90 before the dividend, so the ex-date shows no loss; B: 40 / 2 = 20.
    assert close["A"].tolist() == [90.0, 90.0, 90.0, 90.0, 99.0]
    assert close["B"].tolist() == [20.0, 20.0, 20.0, 20.0, 22.0]
    assert _panel(source)["A"]["high"].tolist() == pytest.approx([90.9, 90.9, 91.0, 91.0, 100.0])


def test_none_and_backward_and_a_chosen_anchor(source: Any) -> None:
    raw = _panel(source, adjustment="none")
    assert raw.wide("close")["B"].tolist() == [40.0, 40.0, 20.0, 20.0, 22.0]
    backward = _panel(source, adjustment="backward")
    assert backward["B"]["close"].tolist() == [20.0, 20.0, 20.0, 20.0, 22.0]
    early = _panel(source, anchor=date(2024, 1, 3))
    # Anchored before the split: the old prices stand and the new ones are doubled.
    assert early.wide("close")["B"].tolist() == [40.0, 40.0, 40.0, 40.0, 44.0]
    assert early["B"]["close"].tolist() == [40.0, 40.0, 40.0, 40.0, 44.0]
    # C has no bar by then and is anchored at its first one.
    assert early["C"]["close"].tolist() == [7.0, 8.0]


def test_raw_prices_and_volume_are_never_adjusted(source: Any) -> None:
    panel = _panel(source)
    assert panel.wide_raw("close")["A"].tolist() == [100.0, 100.0, 90.0, 90.0, 99.0]
    assert panel.wide("volume")["B"].tolist() == [1000.0, 1001.0, 1002.0, 1003.0, 1004.0]
    assert panel.raw["close"].to_list() == source.frame["close"].to_list()
    assert panel.raw.columns == source.frame.columns


@pytest.mark.parametrize("adjustment", ["none", "forward", "backward"])
def test_the_three_shapes_agree(source: Any, adjustment: str) -> None:
    panel = _panel(source, adjustment=adjustment)
    long = panel.polars.collect()
    for field in ("open", "high", "low", "close", "volume"):
        wide = panel.wide(field)
        assert wide.shape == (5, 3)
        assert set(wide.dtypes.map(str)) == {"float64"}
        for symbol in panel:
            frame = panel[symbol]
            pd.testing.assert_series_equal(
                wide[symbol].dropna(), frame[field], check_names=False, check_freq=False
            )
            mine = long.filter(pl.col("symbol") == symbol)
            assert mine[field].to_list() == pytest.approx(frame[field].tolist(), rel=1e-15)
    assert panel.wide("close")["C"].isna().tolist() == [True, True, False, False, True]


def test_frames_are_built_only_when_asked_for(source: Any) -> None:
    panel = _panel(source)
    panel.wide("close")
    panel.polars.collect()
    assert panel.raw.height == 12
    assert panel.frames_built == 0
    panel["B"]
    panel["B"]
    assert panel.frames_built == 2
    panel.upto(date(2024, 1, 4))["A"]
    assert panel.frames_built == 3


def test_only_the_columns_asked_for_are_read(source: Any) -> None:
    panel = _panel(source, adjustment="none")
    assert panel._columns._columns == {}
    panel.wide("close")
    assert set(panel._columns._columns) == {"close"}
    panel.prefetch(("low", "volume"))
    assert set(panel._columns._columns) == {"close", "low", "volume"}
    assert source.reads == 1


def test_what_a_caller_does_to_a_frame_changes_nothing(source: Any) -> None:
    panel = _panel(source)
    before = panel.fingerprint
    frame = panel["A"]
    frame["open"] /= 2
    frame.iloc[:, :] = -1.0
    frame.index = frame.index + pd.Timedelta(days=1)
    frame["new"] = 1
    wide = panel.wide("close")
    wide.iloc[:, :] = 0.0
    wide.columns = ["x", "y", "z"]
    raw = panel.raw
    raw[0, "close"] = -5.0
    numbers = panel["A"].to_numpy(copy=True)
    numbers[:] = 3
    assert panel["A"]["open"].tolist() == [90.0, 90.0, 90.0, 90.0, 99.0]
    assert [str(day.date()) for day in panel["A"].index] == D
    assert panel.wide("close")["A"].tolist() == [90.0, 90.0, 90.0, 90.0, 99.0]
    assert panel.raw["close"][0] == 100.0
    assert panel.fingerprint == before


def test_a_prefix_shows_what_the_whole_shows(source: Any) -> None:
    panel = _panel(source)
    whole = panel.wide("close")
    for day in range(2, 7):
        part = panel.upto(date(2024, 1, day)).wide("close")
        assert part.index[-1] == pd.Timestamp(2024, 1, day)
        pd.testing.assert_frame_equal(
            part, whole.loc[: part.index[-1], part.columns], check_freq=False
        )
        for symbol in part.columns:
            pd.testing.assert_series_equal(
                part[symbol].dropna(),
                panel.upto(date(2024, 1, day))[symbol]["close"],
                check_names=False,
                check_freq=False,
            )


def test_a_prefix_can_be_anchored_anew(source: Any) -> None:
    known = _panel(source).upto(date(2024, 1, 3), reanchor=True)
    # On 3 January nobody knew of the dividend and the split.
    assert known.wide("close")["A"].tolist() == [100.0, 100.0]
    assert known["B"]["close"].tolist() == [40.0, 40.0]
    assert known.polars.collect()["close"].to_list() == [100.0, 100.0, 40.0, 40.0]
    same = load_panel(source, ["A", "B"], START, date(2024, 1, 3), market="cn")
    assert known.fingerprint == same.fingerprint


def test_a_prefix_lacks_symbols_that_did_not_trade_yet(source: Any) -> None:
    panel = _panel(source)
    early = panel.upto(date(2024, 1, 3))
    assert early.symbols == ("A", "B")
    assert early.raw.height == 4
    assert early.last_date == date(2024, 1, 3)
    assert panel.symbols == ("A", "B", "C")
    with pytest.raises(DataError) as caught:
        panel.upto(date(2023, 12, 31))
    assert caught.value.code == "data.no_bars"


def test_a_selection_keeps_order_and_its_own_dates(source: Any) -> None:
    panel = _panel(source)
    some = panel.select(["C", "A"])
    assert some.symbols == ("C", "A")
    assert some.wide("close")["A"].tolist() == [90.0, 90.0, 90.0, 90.0, 99.0]
    assert list(some.raw["symbol"].unique(maintain_order=True)) == ["C", "A"]
    alone = panel.select(["C"])
    assert [str(day.date()) for day in alone.dates] == D[2:4]
    assert alone.last_date == date(2024, 1, 5)
    assert alone.wide("close")["C"].tolist() == [7.0, 8.0]
    turned = panel.select(["C", "B", "A"])
    assert turned.wide("close").columns.tolist() == ["C", "B", "A"]
    assert turned.wide("close")["B"].tolist() == [20.0, 20.0, 20.0, 20.0, 22.0]
    assert turned.upto(date(2024, 1, 3)).symbols == ("B", "A")
    with pytest.raises(DataError, match="'AA'") as caught:
        panel.select(["AA"])
    assert "did you mean A?" in caught.value.remedy
    with pytest.raises(DataError):
        panel.select([])


def test_the_fingerprint_names_everything_the_numbers_depend_on(source: Any) -> None:
    panels = [
        _panel(source),
        _panel(source, adjustment="none"),
        _panel(source, adjustment="backward"),
        _panel(source, anchor=date(2024, 1, 3)),
        _panel(source, symbols=["A", "B"]),
        _panel(source).upto(date(2024, 1, 5)),
    ]
    assert len({panel.fingerprint for panel in panels}) == len(panels)
    assert panels[0].fingerprint == _panel(source).fingerprint
    assert panels[0].select(["A", "B"]).fingerprint == panels[4].fingerprint


def test_it_says_what_its_prices_leave_out(source: Any, make_bars: Any, make_source: Any) -> None:
    panel = _panel(source)
    assert panel.adjust_kinds == {"A": "none", "B": "none", "C": "qfq"}
    # A and B carry factors, so their returns are whole.
    assert panel.notes() == ("仅有前复权价，涨跌停规则关闭：C",)
    bare = make_source(make_bars("A", D, [9.0] * 5, source=["synthetic walk"] * 5))
    assert _panel(bare, symbols=["A"]).notes() == ("合成数据", "价格收益，未计分红：A")


def test_a_universe_never_shrinks_silently(source: Any) -> None:
    with pytest.raises(DataError) as caught:
        load_panel(source, ["A", "C", "X"], START, date(2024, 1, 3), market="cn")
    assert caught.value.code == "data.missing_symbols"
    assert caught.value.details == {"missing": ["C", "X"]}
    with pytest.raises(DataError) as caught:
        load_panel(source, ["X"], START, END, market="cn")
    assert caught.value.code == "data.no_bars"
    assert "from 2024-01-02 to 2024-01-06" in caught.value.remedy
    with pytest.raises(DataError):
        load_panel(source, [], START, END, market="cn")


def test_unknown_words_are_refused_with_a_hint(source: Any) -> None:
    with pytest.raises(UsageError) as caught:
        _panel(source, adjustment="forwards")
    assert "did you mean forward?" in caught.value.remedy
    for call in (_panel(source).wide, _panel(source).wide_raw):
        with pytest.raises(UsageError) as caught:
            call("closes")
        assert "did you mean close?" in caught.value.remedy


@pytest.mark.parametrize(
    ("columns", "word"),
    [
        ({"close": [9.0, float("nan"), 9.0, 9.0, 9.0]}, "A 2024-01-03: a price is missing"),
        ({"low": [8.0, 8.0, -1.0, 8.0, 8.0]}, "A 2024-01-04: a price is not positive"),
        ({"high": [10.0, 10.0, 10.0, 10.0, 8.5]}, "A 2024-01-06: high and low"),
        ({"adj_factor": [1.0, 1.0, 1.0, None, 1.0]}, "A 2024-01-05: the adjustment factor"),
        ({"volume": [1.0, 1.0, 1.0, 1.0, -1.0]}, "A 2024-01-06: the volume is"),
    ],
)
def test_no_bad_bar_reaches_a_strategy(
    make_bars: Any, make_source: Any, columns: dict[str, Any], word: str
) -> None:
    bad = make_source(make_bars("A", D, [9.0] * 5, **columns))
    with pytest.raises(DataError, match=word):
        _panel(bad, symbols=["A"])["A"]


def test_two_bars_at_one_time_are_refused_at_once(make_bars: Any, make_source: Any) -> None:
    bars = make_bars("A", D, [9.0] * 5)
    with pytest.raises(DataError, match="A 2024-01-02: there are two bars"):
        _panel(make_source(bars, make_bars("B", D, [5.0] * 5), bars), symbols=["A", "B"])


def test_rows_may_come_in_any_order(make_bars: Any, make_source: Any, source: Any) -> None:
    shuffled = make_source(source.frame.sample(fraction=1.0, shuffle=True, seed=3))
    one, other = _panel(source), _panel(shuffled)
    pd.testing.assert_frame_equal(one.wide("close"), other.wide("close"))
    pd.testing.assert_frame_equal(one["B"], other["B"])
    assert one.fingerprint == other.fingerprint
    by_time = make_source(source.frame.sort("time", "symbol"))
    assert _panel(by_time).fingerprint == one.fingerprint


def test_intraday_bars_keep_their_minutes() -> None:
    panel = load_panel(
        SampleSource(),
        ["600000.SH", "000001.SZ"],
        date(2024, 9, 18),
        date(2024, 9, 18),
        market="cn",
        adjustment="none",
        interval="1m",
    )
    assert panel.wide("close").shape == (240, 2)
    frame = panel["600000.SH"]
    assert frame.index[0] == pd.Timestamp(2024, 9, 18, 9, 31)
    assert frame.index[-1] == pd.Timestamp(2024, 9, 18, 15, 0)
    assert frame["close"].iloc[-1] == 8.32


def test_bars_that_change_while_being_read_are_noticed(tmp_path: Path, make_bars: Any) -> None:
    folder = tmp_path / "cn" / "1d"
    folder.mkdir(parents=True)
    make_bars("A", D, [9.0] * 5).write_parquet(folder / "a.parquet")
    panel = load_panel(ParquetSource(tmp_path), ["A"], START, END, market="cn")
    make_bars("A", D[:3], [9.0] * 3).write_parquet(folder / "a.parquet")
    with pytest.raises(DataError) as caught:
        panel.wide("close")
    assert caught.value.code in {"data.changed", "data.unreadable"}


def test_a_dividend_of_a_real_stock() -> None:
    panel = load_panel(SampleSource(), ["AAPL"], date(2021, 6, 1), date(2023, 9, 21), market="us")
    raw, adjusted = panel.wide_raw("close")["AAPL"], panel.wide("close")["AAPL"]
    before, ex = "2021-08-05", "2021-08-06"
    assert (raw[before], raw[ex]) == (147.06, 146.14)
    # 0.22 dollars a share went ex on 6 August 2021, so the holder's day was not -0.63 %:
    # adjusted return = 146.14 / (147.06 - 0.22) - 1 = -0.477 %.
    assert adjusted[ex] / adjusted[before] - 1 == pytest.approx(146.14 / 146.84 - 1, abs=2e-5)
    assert adjusted.iloc[-1] == raw.iloc[-1] == 173.93


def test_a_market_wide_panel_is_pivoted_right(tmp_path: Path) -> None:
    symbols, bars, rng = 5400, 260, np.random.default_rng(7)
    start = datetime(2023, 1, 2)
    codes = [f"{number:06d}.SZ" for number in range(symbols)]
    close = 10 + rng.random((symbols, bars)).round(2)
    frame = pl.DataFrame(
        {
            "symbol": np.repeat(codes, bars),
            "time": pl.datetime_range(
                start, start + pd.Timedelta(days=bars - 1), "1d", eager=True
            ).to_list()
            * symbols,
            "close": close.ravel(),
        }
    ).with_columns(
        open=pl.col("close"),
        high=pl.col("close") + 0.01,
        low=pl.col("close") - 0.01,
        volume=pl.lit(1e6),
        adj_factor=pl.lit(1.0),
        adjust=pl.lit("none"),
        source=pl.lit("synthetic"),
    )
    # One row in twenty is absent, as in a market with halts and listings.
    kept = rng.random(len(frame)) > 0.05
    folder = tmp_path / "cn" / "1d"
    folder.mkdir(parents=True)
    frame.filter(kept).write_parquet(folder / "all.parquet")
    source = ParquetSource(tmp_path)
    panel = load_panel(source, codes, date(2023, 1, 1), date(2024, 1, 1), market="cn")
    assert panel.synthetic
    wide = panel.wide("close")
    expected = np.where(kept.reshape(symbols, bars), close, np.nan).T
    np.testing.assert_array_equal(wide.to_numpy(), expected)
    assert panel.frames_built == 0
    assert len(panel[codes[17]]) == int(kept.reshape(symbols, bars)[17].sum())
