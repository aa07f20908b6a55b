"""What a signal engine may answer, and what it is told when it may not."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import date
from typing import Any

import numpy as np
import pandas as pd
import pytest

from kit.backtest.weights import target_weights
from kit.errors import BundleError
from kit.market import MarketPanel, load_panel, open_source
from kit.workspace import Workspace

SYMBOLS = ("600000.SH", "000001.SZ")


@pytest.fixture
def panel(workspace: Workspace) -> MarketPanel:
    source = open_source(workspace, "sample")
    return load_panel(source, SYMBOLS, date(2024, 1, 2), date(2024, 3, 29), market="cn")


class Engine:
    """Answers `generate` with whatever a function makes of the frames."""

    def __init__(self, answer: Callable[[dict[str, pd.DataFrame]], Any]) -> None:
        self._answer = answer

    def generate(self, data_map: dict[str, pd.DataFrame]) -> Any:
        return self._answer(data_map)


class PanelEngine(Engine):
    """The same for `generate_panel`; its `generate` must not be asked."""

    def __init__(self, answer: Callable[[Any], Any]) -> None:
        super().__init__(lambda _: pytest.fail("generate was asked"))
        self._panel_answer = answer

    def generate_panel(self, panel: Any) -> Any:
        return self._panel_answer(panel)


def each(make: Callable[[pd.DataFrame], Any]) -> Engine:
    """Return an engine that treats every frame alike."""
    return Engine(lambda frames: {symbol: make(frame) for symbol, frame in frames.items()})


def changed(index: int, value: Any) -> Engine:
    """Return an engine of half weights, one of them replaced."""

    def make(frame: pd.DataFrame) -> pd.Series:
        series = pd.Series(0.5, index=frame.index)
        series.iloc[index] = value
        return series

    return each(make)


def test_weights_lie_on_the_calendar(panel: MarketPanel) -> None:
    found = target_weights(each(lambda f: pd.Series(0.25, index=f.index)), panel)
    assert found.form == "generate"
    assert found.values.shape == (len(panel.dates), 2)
    assert (found.values == 0.25).all()
    assert found.silent == ()


def test_bool_and_integer_weights_are_numbers(panel: MarketPanel) -> None:
    found = target_weights(each(lambda f: f["close"] > f["open"]), panel)
    expected = (panel.wide("close") > panel.wide("open")).to_numpy().astype(float)
    assert (found.values == expected).all()


def test_the_panel_form_is_preferred_and_may_be_passed_over(panel: MarketPanel) -> None:
    half = PanelEngine(lambda p: p.wide("close") * 0.0 + 0.5)
    assert target_weights(half, panel).form == "generate_panel"
    both = each(lambda f: pd.Series(0.1, index=f.index))
    both.generate_panel = half.generate_panel  # type: ignore[attr-defined]
    assert (target_weights(both, panel, form="generate").values == 0.1).all()


def test_panel_columns_may_come_in_any_order(panel: MarketPanel) -> None:
    def answer(p: MarketPanel) -> pd.DataFrame:
        frame = p.wide("close") * 0.0
        frame["000001.SZ"] = 0.3
        return frame[["000001.SZ", "600000.SH"]]

    found = target_weights(PanelEngine(answer), panel)
    assert found.values[0].tolist() == [0.0, 0.3]


def test_a_silent_symbol_has_weight_zero_and_is_named(panel: MarketPanel) -> None:
    engine = Engine(lambda f: {SYMBOLS[0]: pd.Series(1.0, index=f[SYMBOLS[0]].index)})
    found = target_weights(engine, panel)
    assert found.silent == (SYMBOLS[1],)
    assert found.values[:, 1].tolist() == [0.0] * len(panel.dates)


def test_weights_before_the_warm_up_are_zero_and_may_be_nan(panel: MarketPanel) -> None:
    engine = each(lambda f: f["close"].rolling(5).mean() * 0 + 1)
    found = target_weights(engine, panel, warmup_bars=5)
    # Bars 1 to 4 have too little history; the fifth decides.
    assert found.values[:, 0].tolist() == [0.0] * 4 + [1.0] * (len(panel.dates) - 4)
    with pytest.raises(BundleError, match=r"600000.SH on 2024-01-02 is NaN; 8 value"):
        target_weights(engine, panel)


def test_a_symbol_without_a_bar_keeps_its_last_weight(workspace: Workspace) -> None:
    # 603220.SH was listed on 2018-11-13: it has no bar, and so no weight, before that day.
    source = open_source(workspace, "sample")
    late = load_panel(
        source, ("601318.SH", "603220.SH"), date(2018, 10, 8), date(2019, 1, 31), market="cn"
    )
    found = target_weights(each(lambda f: pd.Series(0.5, index=f.index)), late)
    bars = late.wide_raw("close")["603220.SH"].notna().to_numpy()
    assert found.values[:, 1].tolist() == np.where(np.maximum.accumulate(bars), 0.5, 0).tolist()
    assert 0 < bars.sum() < len(bars)


def test_mutating_a_frame_changes_nothing_that_is_executed(panel: MarketPanel) -> None:
    before = panel.wide_raw("open").to_numpy().copy()

    def vandal(frames: dict[str, pd.DataFrame]) -> dict[str, pd.Series]:
        for frame in frames.values():
            frame["open"] /= 2
            frame.loc[:, "close"] = 0.0
        return {symbol: pd.Series(1.0, index=frame.index) for symbol, frame in frames.items()}

    target_weights(Engine(vandal), panel)
    assert (panel.wide_raw("open").to_numpy() == before).all()
    assert (panel[SYMBOLS[0]]["close"] > 0).all()


@pytest.mark.parametrize(
    ("engine", "message", "remedy"),
    [
        (Engine(lambda _: [1.0]), "generate returned list, not a dict", "return {symbol"),
        (
            Engine(lambda f: {"600001.SH": pd.Series(1.0, index=f[SYMBOLS[0]].index)}),
            "'600001.SH', which is not in the data",
            "600000.SH",
        ),
        (each(lambda f: f["close"].to_numpy() * 0), "are ndarray, not a pandas Series", "wrap"),
        (each(lambda f: pd.Series("buy", index=f.index)), "are not numbers", "float or bool"),
        (changed(3, np.nan), "600000.SH on 2024-01-05 is NaN; 2 value", "fillna"),
        (changed(3, np.inf), "600000.SH on 2024-01-05 is infinite", "divisor"),
        (changed(3, 1.5), r"600000.SH on 2024-01-05 is outside \[-1, 1\] \(1.5\)", "clip"),
        (changed(3, -2), r"on 2024-01-05 is outside \[-1, 1\] \(-2\)", "clip"),
        (
            each(lambda f: pd.Series(1.0, index=f.index[1:])),
            "600000.SH has no weight on 2024-01-02, where it has a bar",
            "reindex",
        ),
        (
            each(lambda f: pd.Series(1.0, index=f.index + pd.Timedelta(days=400))),
            "600000.SH has a weight on 2025-02-05, where it has no bar",
            "reindex",
        ),
        (
            each(lambda f: pd.Series(1.0, index=f.index.append(f.index[:1]))),
            "600000.SH has two weights on 2024-01-02",
            "reindex",
        ),
        (each(lambda f: pd.Series(1.0, index=f.index[::-1])), "not in date order", "sort"),
        (PanelEngine(lambda _: {}), "generate_panel returned dict, not a DataFrame", "wide"),
        (
            PanelEngine(lambda p: p.wide("close").rename(columns={SYMBOLS[0]: "x"}) * 0),
            "'x', which is not in the panel",
            "symbols of the panel",
        ),
        (PanelEngine(lambda p: p.wide("close").iloc[1:] * 0), "no weight on 2024-01-02", "reindex"),
        (
            PanelEngine(lambda p: (p.wide("close") * 0)[[SYMBOLS[0], SYMBOLS[0]]]),
            "600000.SH twice",
            "once",
        ),
    ],
)
def test_a_bad_answer_is_named_with_its_mend(
    panel: MarketPanel, engine: Engine, message: str, remedy: str
) -> None:
    with pytest.raises(BundleError, match=message) as caught:
        target_weights(engine, panel)
    assert caught.value.code == "backtest.bad_weights"
    assert remedy in caught.value.remedy


def test_an_error_in_the_engine_names_its_line(panel: MarketPanel) -> None:
    def broken(_: Any) -> Any:
        return 1 / 0

    with pytest.raises(BundleError, match="ZeroDivisionError: division by zero") as caught:
        target_weights(Engine(broken), panel)
    assert caught.value.code == "backtest.engine_failed"
    assert caught.value.where.startswith("test_weights.py:")


def test_an_engine_that_ends_the_process_is_an_error_too(panel: MarketPanel) -> None:
    def leaving(_: Any) -> Any:
        raise SystemExit(0)

    with pytest.raises(BundleError, match="SystemExit: 0") as caught:
        target_weights(Engine(leaving), panel)
    assert caught.value.code == "backtest.engine_failed"


def test_what_an_engine_prints_is_kept_out_of_the_results(panel: MarketPanel, capsys: Any) -> None:
    def talking(frame: pd.DataFrame) -> pd.Series:
        sys.stdout.write("hello ")
        return pd.Series(0.5, index=frame.index)

    target_weights(each(talking), panel)
    told = capsys.readouterr()
    assert (told.out, told.err.split()) == ("", ["hello", "hello"])
