"""What a source stored about a day wins over the dated tables."""

from __future__ import annotations

from datetime import date
from typing import Any

import numpy as np
import pytest

from kit.market import MarketRules, Security, day_rules, load_panel
from kit.workspace import Workspace

DAYS = ["2024-09-16", "2024-09-17", "2024-09-18", "2024-09-19"]


def _panel(source: Any, symbols: list[str], market: str = "cn") -> Any:
    return load_panel(source, symbols, date(2024, 9, 16), date(2024, 9, 19), market=market)


def test_stored_limits_and_flags_win_where_they_are_known(
    workspace: Workspace, make_bars: Any, make_source: Any
) -> None:
    bars = make_bars(
        "600000.SH",
        DAYS,
        [10.0, 10.0, 10.0, 10.0],
        limit_up=[None, 10.77, None, None],
        limit_down=[None, 9.33, None, None],
        is_st=[None, None, True, None],
        suspended=[None, None, None, True],
    )
    securities = (Security(symbol="600000.SH", name="x"),)
    panel = _panel(make_source(bars, securities=securities), ["600000.SH"])
    found = day_rules(MarketRules.load(workspace, "cn"), panel, securities)
    # No close before the first bar; then the stored one; then 5 % under special treatment.
    np.testing.assert_array_equal(found.limit_up[:, 0], [np.nan, 10.77, 10.5, 11.0])
    np.testing.assert_array_equal(found.limit_down[:, 0], [np.nan, 9.33, 9.5, 9.0])
    assert found.suspended[:, 0].tolist() == [False, False, False, True]
    assert found.lot[:, 0].tolist() == [100] * 4


def test_an_ex_date_and_a_halt_move_the_base_of_the_limit(
    workspace: Workspace, make_bars: Any, make_source: Any
) -> None:
    halted = make_bars("A", [DAYS[0], DAYS[3]], [20.0, 10.0], factor=[1.0, 2.0])
    other = make_bars("B", DAYS, [10.0] * 4)
    securities = (Security(symbol="A", name="a"), Security(symbol="B", name="b"))
    panel = _panel(make_source(halted, other, securities=securities), ["A", "B"])
    found = day_rules(MarketRules.load(workspace, "cn"), panel, securities)
    # A one for one split while halted: 20 becomes 10, and 10 % of that is the limit.
    assert found.limit_up[3].tolist() == [11.0, 11.0]
    assert np.isnan(found.limit_up[1, 0])


def test_other_markets_have_their_own_lots_and_charges(
    workspace: Workspace, make_bars: Any, make_source: Any
) -> None:
    securities = (Security(symbol="A.HK", name="a", market="hk", currency="HKD", lot=500),)
    source = make_source(make_bars("A.HK", DAYS, [10.0] * 4), securities=securities)
    found = day_rules(MarketRules.load(workspace, "hk"), _panel(source, ["A.HK"], "hk"), securities)
    assert found.lot.tolist() == [[500]] * 4
    assert np.isnan(found.limit_up).all()
    assert found.t_plus == 0
    stamp = found.fees.names.index("stamp")
    assert found.fees.buy[0, stamp].tolist() == pytest.approx([0.001] * 4)
