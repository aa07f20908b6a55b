from __future__ import annotations

import sys

import pandas as pd
import pytest

from kit.errors import KitError
from kit.render import bars_figure, drawdown_figure, equity_figure, trades_figure

DAYS = pd.bdate_range("2024-01-01", periods=4)
EQUITY = pd.Series([100.0, 110.0, 99.0, 121.0], DAYS, name="策略甲")


def test_equity_starts_at_one_beside_its_benchmark() -> None:
    early = pd.bdate_range("2023-12-28", periods=6)
    index = pd.Series([1.0, 2.0, 3000.0, 3300.0, 3000.0, 3600.0], early, name="沪深300")
    figure = equity_figure(EQUITY, index)
    assert [trace.name for trace in figure.data] == ["策略甲", "沪深300"]
    assert list(figure.data[0].y) == pytest.approx([1, 1.1, 0.99, 1.21])
    assert list(figure.data[1].y) == pytest.approx([1, 1.1, 1, 1.2])
    assert figure.layout.paper_bgcolor == "rgba(0,0,0,0)"


def test_drawdown_counts_from_the_last_peak() -> None:
    assert list(drawdown_figure(EQUITY).data[0].y) == pytest.approx([0, 0, -0.1, 0])


def test_trades_stand_at_their_price_or_on_the_line() -> None:
    trades = pd.DataFrame({"entry_time": [DAYS[0], DAYS[2]], "exit_time": [DAYS[1], pd.NaT]})
    figure = trades_figure(EQUITY, trades)
    assert list(figure.data[1].y) == [100, 99]
    assert list(figure.data[2].y) == [110]
    priced = trades.assign(entry_price=[1.0, 2.0], exit_price=[3.0, None])
    assert list(trades_figure(EQUITY, priced).data[1].y) == [1, 2]
    assert len(trades_figure(EQUITY, trades.iloc[:0]).data[1].x) == 0


def test_bars_carry_their_sign() -> None:
    figure = bars_figure(pd.Series([0.1, -0.2], [2023, 2024]))
    assert list(figure.data[0].text) == ["+10.0%", "-20.0%"]


def test_without_plotly_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)
    with pytest.raises(KitError) as caught:
        equity_figure(EQUITY)
    assert caught.value.code == "render.needs_lab"
    assert "kit[lab]" in caught.value.remedy
