"""The rule of hk-breakout, recomputed with plain Python; its synthetic bars are said to be such."""

from __future__ import annotations

import ast
import json
import statistics
from datetime import date
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from kit.bundle import Bundle
from kit.bundle.code import load_module
from kit.bundle.gate import violations
from kit.bundle.lint import lint
from kit.llm import Mode, run_step
from kit.market import MarketPanel, SampleSource, load_panel

ROOT = Path(__file__).resolve().parents[2] / "strategies" / "hk-breakout" / "0.1.0"
SYMBOLS = ["SYN1.HK", "SYN2.HK", "SYN3.HK", "SYN4.HK"]
Frames = dict[str, pd.DataFrame]


@pytest.fixture(scope="module")
def panel() -> MarketPanel:
    return load_panel(SampleSource(), SYMBOLS, date(2021, 9, 20), date(2024, 9, 19), market="hk")


@pytest.fixture(scope="module")
def frames(panel: MarketPanel) -> Frames:
    return {symbol: panel[symbol] for symbol in panel}


@pytest.fixture
def engine() -> Any:
    return load_module(ROOT, "code/signal_engine.py").SignalEngine()


def by_hand(frame: pd.DataFrame) -> tuple[list[bool], list[bool]]:
    """Return where a close breaks the channel above, and where one breaks the shorter one below."""
    high, low, close, volume = (frame[n].tolist() for n in ("high", "low", "close", "volume"))
    enter, leave = [], []
    for t in range(len(frame)):
        top = max(high[t - 20 : t]) if t >= 20 else None
        usual = statistics.fmean(volume[t - 20 : t]) if t >= 20 else None
        enter.append(
            top is not None
            and usual is not None
            and top < close[t] <= top * 1.04
            and volume[t] >= 1.2 * usual
        )
        leave.append(t >= 10 and close[t] < min(low[t - 10 : t]))
    return enter, leave


def test_every_weight_of_the_sample_recomputed(engine: Any, frames: Frames) -> None:
    weights = engine.generate(frames)
    fired = 0
    for symbol, frame in frames.items():
        enter, leave = by_hand(frame)
        entered, left, wanted = -999, -999, []
        for t in range(len(frame)):
            entered = t if enter[t] else entered
            left = t if leave[t] else left
            wanted.append(0.25 if entered > left and t - entered < 40 else 0.0)
        assert list(weights[symbol]) == wanted
        fired += sum(enter)
    assert fired > 50


def test_every_screen_of_half_a_year_recomputed(engine: Any, frames: Frames) -> None:
    entries = {symbol: by_hand(frame)[0] for symbol, frame in frames.items()}
    found = 0
    for day in frames["SYN1.HK"].index[-120:]:
        wanted = []
        for symbol, frame in frames.items():
            t = frame.index.get_loc(day)
            if entries[symbol][t]:
                top = frame["high"].iloc[t - 20 : t].max()
                wanted.append((frame["close"].iloc[t] / top - 1, symbol))
        picks = engine.screen_today(frames, day)
        assert [pick.symbol for pick in picks] == [symbol for _, symbol in sorted(wanted)][:3]
        assert [pick.score for pick in picks] == pytest.approx(
            [score for score, _ in sorted(wanted)][:3], abs=5e-7
        )
        found += len(picks)
    assert found > 5


def test_a_halt_is_no_bar(engine: Any, frames: Frames) -> None:
    frame = frames["SYN1.HK"]
    halted = frame.copy()
    halted.iloc[300, halted.columns.get_loc("volume")] = 0.0
    without = frame.drop(frame.index[300])
    weights = engine.generate({"A": halted, "B": without})
    assert list(weights["A"].drop(frame.index[300])) == list(weights["B"])
    assert weights["A"].iloc[300] == weights["A"].iloc[299]
    assert engine.screen_today({"A": halted}, frame.index[300]) == []


def test_the_explanation_offline() -> None:
    step = Bundle.open(ROOT).step("pick_explanation")
    fields = {
        "close": 23.4,
        "channel_high": 23.2,
        "breakout_pct": 0.86,
        "channel_bars": 20,
        "volume_ratio": 1.52,
        "volume_window": 20,
    }
    pick = {"symbol": "SYN1.HK", "name": "合成甲", "score": 0.0086, "fields": fields}
    context = {"today": "2024-09-05", "sector_filter": [], "news_window": {}}
    inputs = {"pick": {**pick, "matched_rules": ["channel_breakout"]}, "context": context}
    assert run_step(step, inputs, mode=Mode.OFFLINE).value == {
        "reason_text": "收盘 23.4 港元，高出此前 20 日最高 23.2 港元 0.86%；"
        "成交量为此前 20 日均量的 1.52 倍。",
        "confidence": "medium",
    }


def test_it_is_fit_for_the_gate_and_lints_clean() -> None:
    source = (ROOT / "code" / "signal_engine.py").read_text("utf-8")
    assert violations(ast.parse(source)) == []
    assert [finding for finding in lint(ROOT, draft=False) if finding.severity == "error"] == []


def test_synthetic_bars_are_never_passed_off_as_evidence() -> None:
    skill = " ".join((ROOT / "SKILL.md").read_text("utf-8").split())
    registry = " ".join((ROOT.parent / "REGISTRY.md").read_text("utf-8").split())
    for text in (skill, registry):
        assert "synthetic" in text
        assert "no evidence" in text
    folders = sorted(ROOT.glob("backtests/*"))
    assert len(folders) >= 2
    for folder in folders:
        engine = json.loads((folder / "engine.json").read_text("utf-8"))
        assert engine["data"]["synthetic"] is True
        assert "合成数据" in engine["notes"]
        assert "合成数据" in (folder / "report.html").read_text("utf-8")
