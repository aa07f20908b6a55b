"""Limits and fees worked out by hand from the published rules."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pytest

from kit import files
from kit.errors import ConfigError, DataError, UsageError
from kit.market import MarketRules, Security
from kit.market.sources import SampleSource
from kit.workspace import Workspace

NAN = float("nan")


@pytest.fixture
def rules(workspace: Workspace) -> MarketRules:
    return MarketRules.load(workspace, "cn")


def _stock(board: str = "main", **facts: Any) -> Security:
    return Security(symbol=facts.pop("symbol", "X"), name="x", board=board, **facts)


def _limits(
    rules: MarketRules, security: Security, prev: float, on: str, **options: Any
) -> tuple[float, float]:
    down, up = rules.limit_prices(
        np.array([[prev]]), [date.fromisoformat(on)], [security], **options
    )
    return float(down[0, 0]), float(up[0, 0])


@pytest.mark.parametrize(
    ("prev", "down", "up"),
    [
        (10.00, 9.00, 11.00),
        (8.47, 7.62, 9.32),  # 7.623, 9.317
        (10.05, 9.05, 11.06),  # 9.045 and 11.055 both round up
        (4.35, 3.92, 4.79),  # 3.915 and 4.785; as a float 4.35 x 1.1 is below 4.785
        (3.05, 2.75, 3.36),  # 2.745, 3.355
        (1745.55, 1571.00, 1920.11),  # 1570.995, 1920.105
        (0.04, 0.03, 0.05),  # 0.036 and 0.044 round onto 0.04: one tick away instead
        (0.01, 0.01, 0.02),  # never below one tick
    ],
)
def test_main_board_limits_round_half_up_to_the_cent(
    rules: MarketRules, prev: float, down: float, up: float
) -> None:
    assert _limits(rules, _stock(), prev, "2024-09-19") == (down, up)


@pytest.mark.parametrize(
    ("security", "on", "down", "up"),
    [
        (_stock("star"), "2024-09-19", 8.02, 12.04),  # 10.03 x 0.8 = 8.024, x 1.2 = 12.036
        (_stock("chinext"), "2020-08-21", 9.03, 11.03),  # 9.027, 11.033
        (_stock("chinext"), "2020-08-23", 9.03, 11.03),
        (_stock("chinext"), "2020-08-24", 8.02, 12.04),
        (_stock("bse"), "2024-09-19", 7.02, 13.04),  # 7.021, 13.039
        (_stock(is_st=True), "2024-09-19", 9.53, 10.53),  # 9.5285, 10.5315
        (_stock(is_st=True), "2026-07-05", 9.53, 10.53),
        (_stock(is_st=True), "2026-07-06", 9.03, 11.03),
        (_stock("star", is_st=True), "2024-09-19", 8.02, 12.04),
        (_stock("chinext", is_st=True), "2024-09-19", 8.02, 12.04),
        (_stock("bse", is_st=True), "2024-09-19", 7.02, 13.04),
    ],
)
def test_limits_by_board_and_date(
    rules: MarketRules, security: Security, on: str, down: float, up: float
) -> None:
    assert _limits(rules, security, 10.03, on) == (down, up)


def test_a_fund_moves_in_tenths_of_a_cent(rules: MarketRules) -> None:
    fund = _stock(kind="fund")
    assert _limits(rules, fund, 1.235, "2024-09-19") == (1.112, 1.359)  # 1.1115, 1.3585
    assert rules.tick(1.235, date(2024, 9, 19), "fund") == 0.001
    assert rules.tick(1.23, date(2024, 9, 19)) == 0.01


def test_no_limit_for_an_index_an_unknown_close_or_a_restated_series(rules: MarketRules) -> None:
    index = _stock("index", kind="index")
    for security, prev, kinds in (
        (index, 3000.0, None),
        (_stock(), NAN, None),
        (_stock(symbol="Q"), 10.0, {"Q": "qfq"}),
    ):
        down, up = _limits(rules, security, prev, "2024-09-19", adjust_kinds=kinds)
        assert np.isnan([down, up]).all()
    assert _limits(rules, _stock(symbol="Q"), 10.0, "2024-09-19", adjust_kinds={"Q": "none"}) == (
        9.0,
        11.0,
    )


def _by_day(rules: MarketRules, security: Security, days: list[str], prev: float) -> list[Any]:
    dates = [date.fromisoformat(day) for day in days]
    down, up = rules.limit_prices(np.full((len(days), 1), prev), dates, [security])
    pairs = zip(down[:, 0].tolist(), up[:, 0].tolist(), strict=True)
    return [None if np.isnan(low) else (low, high) for low, high in pairs]


@pytest.mark.parametrize(
    ("board", "days", "free"),
    [
        # Registration: five sessions free, on STAR since its first day,
        ("star", ["2019-07-22", "2019-07-23", "2019-07-24", "2019-07-25", "2019-07-26"], 5),
        # on ChiNext since 2020-08-24, on the main boards since 2023-04-10; a weekend in between.
        ("chinext", ["2020-08-24", "2020-08-25", "2020-08-26", "2020-08-27", "2020-08-28"], 5),
        ("main", ["2023-04-10", "2023-04-11", "2023-04-12", "2023-04-13", "2023-04-14"], 5),
        ("main", ["2023-09-27", "2023-09-28", "2023-10-09", "2023-10-10", "2023-10-11"], 5),
        ("bse", ["2021-11-15"], 1),
        ("main", ["2012-03-05"], 1),
        ("chinext", ["2009-10-30"], 1),
    ],
)
def test_the_first_sessions_after_a_listing_have_no_limit(
    rules: MarketRules, board: str, days: list[str], free: int
) -> None:
    security = _stock(board, listed_date=date.fromisoformat(days[0]))
    after = {
        "2019-07-26": "2019-07-29",
        "2020-08-28": "2020-08-31",
        "2023-04-14": "2023-04-17",
        "2023-10-11": "2023-10-12",
        "2021-11-15": "2021-11-16",
        "2012-03-05": "2012-03-06",
        "2009-10-30": "2009-11-02",
    }[days[-1]]
    found = _by_day(rules, security, [*days, after], 20.0)
    assert found[:free] == [None] * free
    assert found[free] is not None
    # The count does not need the earlier days to be in the window.
    assert _by_day(rules, security, days[-1:], 20.0) == [None]
    assert _by_day(rules, security, [after], 20.0) == [found[free]]


def test_the_first_day_between_2014_and_registration(rules: MarketRules) -> None:
    # 603220 was issued at 7.85: 7.85 x 1.44 = 11.304, x 0.64 = 5.024; it did close at 11.30.
    security = _stock(listed_date=date(2018, 11, 15))
    assert _by_day(rules, security, ["2018-11-15"], 7.85) == [(5.02, 11.30)]
    assert _by_day(rules, security, ["2018-11-16"], 11.30) == [(10.17, 12.43)]
    young = _stock("chinext", listed_date=date(2020, 8, 21))
    assert _by_day(rules, young, ["2020-08-21", "2020-08-24"], 10.0) == [
        (6.4, 14.4),
        (8.0, 12.0),
    ]


def test_listings_beyond_the_calendar_count_the_days_given(rules: MarketRules) -> None:
    days = [f"2027-03-{day:02d}" for day in (1, 2, 3, 4, 5, 8)]
    found = _by_day(rules, _stock(listed_date=date(2027, 3, 1)), days, 10.0)
    assert found == [None] * 5 + [(9.0, 11.0)]


def test_special_treatment_may_change_from_day_to_day(rules: MarketRules) -> None:
    days = [date(2024, 9, 18), date(2024, 9, 19)]
    flags = np.array([[False, True], [True, False]])
    down, up = rules.limit_prices(np.full((2, 2), 10.0), days, [_stock(), _stock()], is_st=flags)
    assert up.tolist() == [[11.0, 10.5], [10.5, 11.0]]
    assert down.tolist() == [[9.0, 9.5], [9.5, 9.0]]


def test_arrays_of_numpy_days_and_several_symbols(rules: MarketRules) -> None:
    days = np.array(["2020-08-21", "2020-08-24"], dtype="datetime64[ns]")
    prev = np.array([[10.0, 10.0, NAN], [10.0, 10.0, 10.0]])
    down, up = rules.limit_prices(prev, days, [_stock(), _stock("chinext"), _stock()])
    np.testing.assert_array_equal(up, [[11.0, 11.0, NAN], [11.0, 12.0, 11.0]])
    np.testing.assert_array_equal(down, [[9.0, 9.0, NAN], [9.0, 8.0, 9.0]])


def test_before_its_table_a_rule_is_an_error_not_a_guess(rules: MarketRules) -> None:
    star = _stock("star")
    with pytest.raises(DataError) as caught:
        _limits(rules, star, 10.0, "2019-07-19")
    assert caught.value.code == "rules.before_table"
    assert "2019-07-22" in caught.value.message
    assert np.isnan(_limits(rules, star, NAN, "2019-07-19")).all()  # no price, nothing to decide
    for call in (
        lambda: rules.lots([star], date(2019, 7, 19)),
        lambda: rules.fees("sell", 1000.0, date(2008, 9, 18)),
        lambda: rules.fee_schedule([date(2008, 9, 18), date(2024, 1, 2)]),
    ):
        with pytest.raises(DataError) as caught:
            call()
        assert caught.value.code == "rules.before_table"
    with pytest.raises(DataError) as caught:
        _limits(rules, _stock("nasdaq"), 10.0, "2024-09-19")
    assert caught.value.code == "rules.no_board"


def test_real_bars_never_leave_their_limits(rules: MarketRules) -> None:
    symbols = ["600000.SH", "000001.SZ", "000151.SZ"]
    known = {s.symbol: s for s in SampleSource().securities("cn")}
    touched = 0
    for symbol in symbols:
        bars = SampleSource().bars([symbol], date(2021, 6, 1), date(2024, 9, 19)).collect()
        prev = np.concatenate([[NAN], bars["close"].to_numpy()[:-1]])[:, None]
        _, up = rules.limit_prices(prev, bars["time"].dt.date().to_list(), [known[symbol]])
        high, close = bars["high"].to_numpy()[1:], bars["close"].to_numpy()[1:]
        assert (high <= up[1:, 0]).all()
        touched += int((close == up[1:, 0]).sum())
        days = bars["time"].dt.strftime("%Y-%m-%d").to_list()
        if symbol == "000151.SZ":
            # Days it opened, traded and closed at one price, 10 % above the close before.
            for day in ("2022-05-19", "2022-05-30", "2022-05-31", "2024-06-04"):
                row = days.index(day)
                assert bars["low"][row] == bars["high"][row] == up[row, 0]
    assert touched > 20


def test_lots_by_board(rules: MarketRules) -> None:
    on = date(2024, 9, 19)
    minimum, step = rules.lots(
        [_stock(), _stock("star"), _stock("chinext"), _stock("bse"), _stock(kind="fund")], on
    )
    assert minimum.tolist() == [100, 200, 100, 100, 100]
    assert step.tolist() == [100, 1, 100, 1, 100]
    minimum, step = rules.lots(["688981.SH", "600000.SH", "830799.BJ"], on)
    assert (minimum.tolist(), step.tolist()) == ([200, 100, 100], [1, 100, 1])
    assert rules.t_plus == 1
    assert rules.currency == "CNY"


@pytest.mark.parametrize(
    ("side", "notional", "on", "commission", "transfer", "stamp"),
    [
        # 100 shares at 8.47: 0.21 of commission is below the least of 5; 0.00847 rounds to a cent.
        ("buy", 847.0, "2024-09-19", "5.00", "0.01", "0.00"),
        # 85,200: x 0.025 % = 21.30, x 0.001 % = 0.852, x 0.05 % = 42.60.
        ("sell", 85200.0, "2024-09-19", "21.30", "0.85", "42.60"),
        ("buy", 85200.0, "2024-09-19", "21.30", "0.85", "0.00"),
        # The stamp duty halved on 2023-08-28.
        ("sell", 85200.0, "2023-08-27", "21.30", "0.85", "85.20"),
        ("sell", 85200.0, "2023-08-28", "21.30", "0.85", "42.60"),
        # The transfer fee halved on 2022-04-29: x 0.002 % = 1.704.
        ("sell", 85200.0, "2022-04-28", "21.30", "1.70", "85.20"),
        ("sell", 85200.0, "2022-04-29", "21.30", "0.85", "85.20"),
        # Before 2015-08-01 Shenzhen charged 0.00255 %: 2.1726.
        ("buy", 85200.0, "2015-07-31", "21.30", "2.17", "0.00"),
        ("buy", 85200.0, "2015-08-01", "21.30", "1.70", "0.00"),
        # Half a cent goes up: 24,500 x 0.001 % = 0.245; 20,020 x 0.025 % = 5.005.
        ("buy", 24500.0, "2024-09-19", "6.13", "0.25", "0.00"),  # 6.125 too
        ("buy", 20020.0, "2024-09-19", "5.01", "0.20", "0.00"),
        ("sell", 0.0, "2024-09-19", "0.00", "0.00", "0.00"),
    ],
)
def test_fees_by_hand(
    rules: MarketRules,
    side: Any,
    notional: float,
    on: str,
    commission: str,
    transfer: str,
    stamp: str,
) -> None:
    fees = rules.fees(side, notional, date.fromisoformat(on))
    assert [fees.commission, fees.transfer, fees.stamp] == [
        Decimal(commission),
        Decimal(transfer),
        Decimal(stamp),
    ]
    assert fees.total == Decimal(commission) + Decimal(transfer) + Decimal(stamp)


def test_a_float_notional_does_not_tip_a_cent(rules: MarketRules) -> None:
    # 245 x 100.0 summed up in floats is 24499.999999999996 or 24500.000000000004 at worst.
    for noisy in (24499.999999999996, 24500.000000000004):
        assert rules.fees("buy", noisy, date(2024, 9, 19)).transfer == Decimal("0.25")
    assert rules.fees("buy", Decimal("24500"), date(2024, 9, 19)).transfer == Decimal("0.25")


def test_funds_pay_no_stamp_duty(rules: MarketRules) -> None:
    fees = rules.fees("sell", 85200.0, date(2024, 9, 19), kind="fund")
    assert (fees.commission, fees.transfer, fees.stamp) == (
        Decimal("21.30"),
        Decimal("0.00"),
        Decimal("0.00"),
    )
    table = rules.fee_schedule([date(2024, 9, 19)], ["fund"])
    assert table.names == ("commission", "transfer", "stamp")
    assert table.sell[0, :, 0].tolist() == [0.00025, 0.0, 0.0]


def test_rates_by_date(rules: MarketRules) -> None:
    days = [date(2015, 7, 31), date(2022, 4, 28), date(2022, 4, 29), date(2023, 8, 28)]
    table = rules.fee_schedule(days)
    assert table.buy[0, 0].tolist() == [0.00025] * 4
    assert table.least[:, 0].tolist() == [5.0, 0.0, 0.0]
    assert table.buy[0, 1].tolist() == [0.0000255, 0.00002, 0.00001, 0.00001]
    assert table.sell[0, 2].tolist() == [0.001, 0.001, 0.001, 0.0005]
    assert table.buy[0, 2].tolist() == [0.0] * 4


@pytest.mark.parametrize(
    ("side", "notional"), [("short", 1.0), ("buy", -1.0), ("buy", NAN), ("sell", float("inf"))]
)
def test_what_is_not_a_fill_has_no_fees(rules: MarketRules, side: Any, notional: float) -> None:
    with pytest.raises(UsageError) as caught:
        rules.fees(side, notional, date(2024, 9, 19))
    assert caught.value.code == "rules.bad_fill"


def test_a_market_without_a_table_says_so(workspace: Workspace) -> None:
    path = workspace.config_dir / "markets.json"
    book = files.read_json(path)
    del book["markets"]["us"]["rules"]
    files.write_json(path, book)
    with pytest.raises(ConfigError) as caught:
        MarketRules.load(workspace, "us")
    assert caught.value.code == "rules.no_table"
    with pytest.raises(UsageError):
        MarketRules.load(workspace, "jp")


def _sourced(value: Any) -> list[Any]:
    """Every object that holds a number somewhere below the rules of a market."""
    if isinstance(value, list):
        return [found for part in value for found in _sourced(part)]
    if not isinstance(value, dict):
        return []
    below = [found for part in value.values() for found in _sourced(part)]
    return below or [value]


@pytest.mark.parametrize(("market", "rows"), [("cn", 30), ("hk", 15), ("us", 15)])
def test_every_number_has_a_source(workspace: Workspace, market: str, rows: int) -> None:
    found = _sourced(workspace.config("markets")["markets"][market]["rules"])
    assert len(found) > rows
    assert all(len(row["source"]) > 10 for row in found)


def test_a_number_out_of_its_range_is_refused(workspace: Workspace) -> None:
    path = workspace.config_dir / "markets.json"
    book = files.read_json(path)
    book["markets"]["cn"]["rules"]["charges"][1]["rows"][0]["sell"] = 1.0
    book["markets"]["cn"]["quote_stale_minuts"] = 3
    files.write_json(path, book)
    with pytest.raises(ConfigError) as caught:
        MarketRules.load(workspace, "cn")
    assert "markets.cn.rules.charges[1].rows[0].sell" in str(caught.value)
    assert "quote_stale_minutes" in str(caught.value)


def test_qfq_names_of_the_sample_have_no_limits(rules: MarketRules) -> None:
    bars = SampleSource().bars(["300027.SZ"], date(2020, 6, 1), date(2020, 6, 16))
    close = bars.select(pl.col("close")).collect().to_numpy()
    days = bars.select(pl.col("time").dt.date()).collect().to_series().to_list()
    known = {s.symbol: s for s in SampleSource().securities("cn")}
    down, up = rules.limit_prices(
        close, days, [known["300027.SZ"]], adjust_kinds={"300027.SZ": "qfq"}
    )
    assert np.isnan(down).all()
    assert np.isnan(up).all()
