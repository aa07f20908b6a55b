"""The rule of ma250-pullback: by hand, in both forms, without looking ahead, through halts."""

from __future__ import annotations

import ast
import json
import statistics
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from kit.bundle.gate import violations
from kit.bundle.lint import lint
from kit.market import MarketPanel

Frames = dict[str, pd.DataFrame]


class Wide(dict[str, pd.DataFrame]):
    """A dictionary of frames that also answers as a panel does."""

    def wide(self, field: str) -> pd.DataFrame:
        return pd.DataFrame({symbol: frame[field] for symbol, frame in self.items()})


@pytest.fixture
def engine(module: Any) -> Any:
    return module.SignalEngine()


# By hand


def test_one_pick_recomputed_from_the_bars(engine: Any, frames: Frames) -> None:
    """长江证券 on 2020-02-27, with nothing but the closes, lows and volumes of its bars."""
    bars = frames["000783.SZ"].loc[:"2020-02-27"]
    closes, lows, volumes = (bars[name].tolist() for name in ("close", "low", "volume"))
    means = [
        statistics.fmean(closes[i - 249 : i + 1]) for i in range(len(closes) - 11, len(closes))
    ]
    assert means[-1] > means[0]  # rising over ten bars
    above = sum(c > m for c, m in zip(closes[-11:-1], means[:-1], strict=True))
    assert above == 4
    assert lows[-1] <= means[-1] * 1.015
    assert means[-1] <= closes[-1] <= means[-1] * 1.04
    ratio = volumes[-1] / statistics.fmean(volumes[-20:])
    assert ratio <= engine.params()["volume_ratio_max"]

    pick = engine.screen_today(frames, "2020-02-27")[0]
    assert pick.symbol == "000783.SZ"
    assert pick.score == pytest.approx(closes[-1] / means[-1] - 1, abs=5e-7)
    assert pick.fields == {
        "close": 6.98,
        "low": 6.92,
        "ma250": round(means[-1], 3),
        "distance_pct": round((closes[-1] / means[-1] - 1) * 100, 2),
        "low_distance_pct": round((lows[-1] / means[-1] - 1) * 100, 2),
        "ma250_trend_pct": round((means[-1] / means[0] - 1) * 100, 2),
        "trend_bars": 10,
        "closes_above": above,
        "volume_ratio": round(ratio, 2),
        "volume_window": 20,
        "industry": "证券",
    }
    assert pick.matched_rules == ["above_rising_ma250", "pullback_to_ma250", "quiet_volume"]


def test_nearest_to_the_line_comes_first(engine: Any, frames: Frames) -> None:
    picks = engine.screen_today(frames, "2020-02-27")
    assert [pick.symbol for pick in picks] == ["000783.SZ", "002572.SZ"]
    assert picks[0].score < picks[1].score
    assert engine.screen_today(frames, "2020-02-27", limit=1) == picks[:1]
    assert engine.screen_today(frames, "2020-02-27", limit=0) == []


def rising(bars: int = 300) -> pd.DataFrame:
    """Closes that rise by a hair a day: always a little above their mean, so always an entry."""
    close = 100 + 0.01 * np.arange(bars)
    return pd.DataFrame(
        {"open": close, "high": close, "low": close, "close": close, "volume": 1000.0},
        index=pd.bdate_range("2020-01-01", periods=bars),
    )


def set_price(frame: pd.DataFrame, first: int, last: int, price: float) -> pd.DataFrame:
    changed = frame.copy()
    changed.iloc[first:last, :4] = price
    return changed


def held(engine: Any, frame: pd.DataFrame) -> list[bool]:
    weights = engine.generate({"X": frame})["X"]
    assert set(np.unique(weights)) <= {0.0, 1 / 7}
    return [bool(weight) for weight in weights]


def test_nothing_happens_before_260_bars(engine: Any) -> None:
    on = held(engine, rising())
    assert on.index(True) == 259  # ten closes above, each against a mean of 250
    assert all(on[259:])


def test_one_close_below_the_stop_is_forgiven_two_are_not(engine: Any) -> None:
    # The mean near bar 280 is about 101.5, so 97 is more than 3 % below it.
    once = set_price(rising(), 280, 281, 97.0)
    assert all(held(engine, once)[259:])
    twice = set_price(rising(), 280, 282, 97.0)
    on = held(engine, twice)
    assert on[280]
    assert not on[281]


def test_running_away_from_the_line_ends_the_trade(engine: Any) -> None:
    on = held(engine, set_price(rising(), 280, 281, 118.0))  # mean about 101.6, +15 % is 116.9
    assert on[279]
    assert not on[280]
    assert on[281]  # back at the line: a fresh pullback


def test_a_trade_without_confirmation_ends_after_forty_bars(engine: Any) -> None:
    # 108 is beyond the 4 % of an entry and short of the 15 % of an exit.
    on = held(engine, set_price(rising(340), 270, 340, 108.0))
    assert all(on[259 : 269 + 40])  # the last entry is at bar 269 and counts as the first bar
    assert not any(on[269 + 40 :])


@pytest.mark.parametrize(
    ("change", "passes"),
    [
        ({}, True),
        ({"low": 103.3}, False),  # the mean is about 101.4: 1.5 % above it is 102.97
        ({"close": 101.3}, False),  # below the line
        ({"close": 105.6}, False),  # more than 4 % above it
    ],
)
def test_each_condition_of_an_entry_counts(
    engine: Any, change: dict[str, float], passes: bool
) -> None:
    frame = rising(270)
    for name, value in change.items():
        frame.iloc[-1, frame.columns.get_loc(name)] = value
    assert bool(engine.screen_today({"X": frame}, frame.index[-1])) is passes


@pytest.mark.parametrize(("share", "passes"), [(0.99, True), (1.01, False)])
def test_volume_may_reach_its_limit_and_not_pass_it(
    engine: Any, share: float, passes: bool
) -> None:
    frame = rising(270)
    ratio = engine.params()["volume_ratio_max"] * share
    # ratio = 20 v / (19 x 1000 + v), solved for v
    frame.iloc[-1, 4] = 19_000 * ratio / (20 - ratio)
    assert bool(engine.screen_today({"X": frame}, frame.index[-1])) is passes


def test_the_volume_rule_can_be_switched_off(module: Any) -> None:
    frame = rising(270)
    frame.iloc[-1, 4] = 5000.0
    loose = module.SignalEngine({"volume_ratio_max": None})
    (pick,) = loose.screen_today({"X": frame}, frame.index[-1])
    assert pick.matched_rules == ["above_rising_ma250", "pullback_to_ma250"]


# Both forms


def test_both_forms_screen_alike_on_every_date(
    engine: Any, frames: Frames, panel: MarketPanel
) -> None:
    found = 0
    for day in panel.dates:
        plain = engine.screen_today(frames, day)
        assert engine.screen_panel(panel, day) == plain
        found += len(plain)
    assert found > 20


def test_both_forms_weigh_alike(engine: Any, frames: Frames, panel: MarketPanel) -> None:
    wide = engine.generate_panel(panel)
    plain = engine.generate(frames)
    for symbol, frame in frames.items():
        pd.testing.assert_series_equal(
            wide[symbol].loc[frame.index], plain[symbol], check_freq=False
        )
    before = wide["600000.SH"].loc[: frames["600000.SH"].index[0]].iloc[:-1]
    assert not before.any()


def test_an_entry_of_the_backtest_is_a_pick_of_the_screen(
    engine: Any, module: Any, frames: Frames
) -> None:
    """Where a position opens, the screen of that day names the stock."""
    for symbol, weights in engine.generate(frames).items():
        opened = weights.index[(weights > 0) & (weights.shift(1, fill_value=0.0) == 0)]
        for day in opened:
            assert symbol in [pick.symbol for pick in engine.screen_today(frames, day)]


@pytest.mark.parametrize("seed", range(3))
def test_both_forms_agree_through_random_halts(engine: Any, bare: Frames, seed: int) -> None:
    random = np.random.default_rng(seed)
    symbols = ["000783.SZ", "002572.SZ", "000338.SZ", "603220.SH"]
    halted = Wide()
    for symbol in symbols:
        frame = bare[symbol]
        kept = random.random(len(frame)) > 0.05
        halted[symbol] = frame[kept]
    wide = engine.generate_panel(halted)
    plain = engine.generate(halted)
    for symbol in symbols:
        assert (wide[symbol].loc[halted[symbol].index] == plain[symbol]).all()
        assert (
            wide[symbol]
            == wide[symbol].where(halted.wide("close")[symbol].notna()).ffill().fillna(0)
        ).all()
    for day in wide.index[250::4]:
        assert engine.screen_panel(halted, day) == engine.screen_today(halted, day)


# No looking ahead, and no more history than said


@pytest.mark.parametrize(
    "day", ["2019-08-15", "2020-02-27", "2020-05-20", "2022-11-01", "2024-04-12"]
)
def test_a_later_bar_changes_nothing_earlier(engine: Any, panel: MarketPanel, day: str) -> None:
    cut = panel.upto(pd.Timestamp(day).date())
    whole = engine.generate_panel(panel).loc[:day, list(cut.symbols)]
    pd.testing.assert_frame_equal(engine.generate_panel(cut), whole, check_freq=False)
    assert engine.screen_panel(cut, day) == engine.screen_panel(panel, day)
    frames = {symbol: cut[symbol] for symbol in cut}
    assert engine.screen_today(frames, day) == engine.screen_panel(panel, day)


def test_every_prefix_of_one_stock_agrees(engine: Any, frames: Frames) -> None:
    frame = frames["002572.SZ"]
    whole = engine.generate({"X": frame})["X"]
    for rows in range(1, len(frame) + 1, 7):
        assert (engine.generate({"X": frame.iloc[:rows]})["X"] == whole.iloc[:rows]).all()


def test_a_screen_needs_260_bars_and_not_one_more(engine: Any, bare: Frames) -> None:
    whole = engine.screen_today(bare, "2020-02-27")
    recent = {s: f.loc[:"2020-02-27"].iloc[-260:] for s, f in bare.items()}
    assert engine.screen_today(recent, "2020-02-27") == whole
    assert engine.screen_panel(Wide(recent), "2020-02-27") == whole
    short = {symbol: frame.iloc[-259:] for symbol, frame in recent.items()}
    assert engine.screen_today(short, "2020-02-27") == []
    assert engine.screen_panel(Wide(short), "2020-02-27") == []


def test_a_weight_rests_on_299_bars_and_not_one_more(
    engine: Any, frames: Frames, bundle_root: Path
) -> None:
    """An entry 39 bars ago still holds, and it needed 260 bars of its own."""
    manifest = json.loads((bundle_root / "manifest.json").read_text(encoding="utf-8"))
    declared = manifest["data_contract"]["warmup_bars"]
    frame = set_price(rising(340), 270, 340, 108.0).iloc[:309]  # the last entry is at bar 269
    assert declared == 299
    assert held(engine, frame.iloc[-declared:])[-1] is held(engine, frame)[-1] is True
    assert held(engine, frame.iloc[-declared + 1 :])[-1] is False
    for bars in frames.values():
        whole = engine.generate({"X": bars})["X"]
        for rows in range(declared, len(bars), 23):
            recent = engine.generate({"X": bars.iloc[rows - declared : rows]})["X"]
            assert recent.iloc[-1] == whole.iloc[rows - 1]


def test_bars_after_today_are_not_looked_at(engine: Any, frames: Frames) -> None:
    wild = {s: f.copy() for s, f in frames.items()}
    for frame in wild.values():
        frame.loc["2020-02-28":] = 1e6
    assert engine.screen_today(wild, "2020-02-27") == engine.screen_today(frames, "2020-02-27")


# Halts and holes


def test_a_halt_is_no_bar_however_it_is_written(engine: Any) -> None:
    plain = rising(300)
    on = held(engine, plain)
    for row in ({"close": np.nan, "low": np.nan, "volume": np.nan}, {"volume": 0.0}):
        frame = plain.copy()
        gap = pd.DataFrame(
            plain.iloc[[270]].to_numpy(),
            columns=plain.columns,
            index=[plain.index[270] + pd.Timedelta(hours=1)],
        )
        for name, value in row.items():
            gap[name] = value
        frame = pd.concat([frame, gap]).sort_index()
        weights = held(engine, frame)
        assert weights[271] == on[270]  # the halted row keeps the weight of the bar before it
        assert weights[:271] + weights[272:] == on


def test_a_stock_that_did_not_trade_today_is_not_screened(engine: Any, bare: Frames) -> None:
    halted = {**bare, "000783.SZ": bare["000783.SZ"].drop(pd.Timestamp("2020-02-27"))}
    assert [p.symbol for p in engine.screen_today(halted, "2020-02-27")] == ["002572.SZ"]
    assert [p.symbol for p in engine.screen_panel(Wide(halted), "2020-02-27")] == ["002572.SZ"]
    flat = {**bare, "000783.SZ": bare["000783.SZ"].copy()}
    flat["000783.SZ"].loc["2020-02-27", "volume"] = 0.0
    assert [p.symbol for p in engine.screen_today(flat, "2020-02-27")] == ["002572.SZ"]
    assert [p.symbol for p in engine.screen_panel(Wide(flat), "2020-02-27")] == ["002572.SZ"]


def test_a_day_without_a_session_and_empty_data_give_nothing(engine: Any, bare: Frames) -> None:
    assert engine.screen_today(bare, "2020-03-01") == []
    assert engine.screen_panel(Wide(bare), "2020-03-01") == []
    assert engine.screen_today({}, "2020-02-27") == []
    assert engine.generate({}) == {}
    empty = rising(0)
    assert engine.generate({"X": empty})["X"].empty
    assert engine.screen_today({"X": empty}, "2020-02-27") == []


def test_a_missing_volume_column_makes_no_pick_and_no_error(engine: Any) -> None:
    frame = rising(270).drop(columns="volume")
    assert engine.screen_today({"X": frame}, frame.index[-1]) == []
    assert not engine.generate({"X": frame})["X"].any()


def test_the_frames_are_left_as_they_were(engine: Any, frames: Frames, panel: MarketPanel) -> None:
    before = {symbol: frame.copy() for symbol, frame in frames.items()}
    engine.generate(frames)
    engine.screen_today(frames, "2020-02-27", ["证券"])
    engine.generate_panel(panel)
    for symbol, frame in frames.items():
        pd.testing.assert_frame_equal(frame, before[symbol])


# Sectors


def without_industries(panel: MarketPanel) -> Any:
    return SimpleNamespace(wide=panel.wide)


def test_a_filter_keeps_the_named_industries(
    engine: Any, frames: Frames, panel: MarketPanel
) -> None:
    (pick,) = engine.screen_today(frames, "2020-02-27", ["证券", "银行"])
    assert (pick.symbol, pick.fields["industry"]) == ("000783.SZ", "证券")
    assert pick.matched_rules[-1] == "sector_focus"
    assert engine.screen_panel(panel, "2020-02-27", ["证券", "银行"]) == [pick]
    assert engine.screen_today(frames, "2020-02-27", ["银行"]) == []
    assert engine.screen_panel(panel, "2020-02-27", ["银行"]) == []
    assert len(engine.screen_today(frames, "2020-02-27", [])) == 2


def test_an_unknown_industry_is_kept_and_said(
    engine: Any, bare: Frames, panel: MarketPanel
) -> None:
    picks = engine.screen_today(bare, "2020-02-27", ["证券"])
    assert len(picks) == 2
    for pick in picks:
        assert pick.fields["industry"] == "未知"
        assert pick.fields["sector_note"] == "行业未知，未按板块过滤"
        assert "sector_focus" not in pick.matched_rules
    assert engine.screen_panel(without_industries(panel), "2020-02-27", ["证券"]) == picks


# The bundle


def test_the_peers_gate_lets_it_through(bundle_root: Path) -> None:
    source = (bundle_root / "code" / "signal_engine.py").read_text(encoding="utf-8")
    assert violations(ast.parse(source)) == []


def test_it_lints_clean(bundle_root: Path) -> None:
    assert [str(finding) for finding in lint(bundle_root, draft=False)] == []


def test_0_3_2_is_the_same_rule_with_the_schemas_of_its_tools(bundle_root: Path) -> None:
    later = bundle_root.parent / "0.3.2"
    for part in ("code", "prompts", "config.json"):
        files = [bundle_root / part, *sorted((bundle_root / part).rglob("*"))]
        for path in filter(Path.is_file, files):
            assert (later / path.relative_to(bundle_root)).read_bytes() == path.read_bytes()
    old, new = (json.loads((root / "manifest.json").read_text()) for root in (bundle_root, later))
    assert {**new, "version": "", "provenance": ""} == {**old, "version": "", "provenance": ""}
    stored = later / "schemas" / "trading-data-cn"
    assert sorted(path.name for path in stored.iterdir()) == [
        "get_bars.json",
        "get_security_meta.json",
    ]
