"""Charges of Hong Kong and America worked out by hand, and the table against the decimals."""

from __future__ import annotations

import math
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from kit.errors import DataError, UsageError
from kit.market import FeeSchedule, MarketRules, Security
from kit.workspace import Workspace


@pytest.fixture
def hk(workspace: Workspace) -> MarketRules:
    return MarketRules.load(workspace, "hk")


@pytest.fixture
def us(workspace: Workspace) -> MarketRules:
    return MarketRules.load(workspace, "us")


@pytest.mark.parametrize(
    ("notional", "on", "commission", "transfer", "stamp"),
    [
        # 85,200: commission 0.03 % = 25.56; duty 0.1 % = 85.2, up to a dollar; levies 0.0027 % =
        # 2.3004 and 0.00015 % = 0.1278; trading fee 0.00565 % = 4.8138; settlement 0.002 % = 1.704,
        # at least 2: 2.30 + 0.13 + 4.81 + 2.00.
        (85200.0, "2024-09-19", "25.56", "9.24", "86.00"),
        # Duty 0.13 % = 110.76 from 2021-08-01 to 2023-11-16.
        (85200.0, "2021-07-30", "25.56", "9.06", "86.00"),
        # Before 2023 the trading fee is 0.005 % = 4.26 and the tariff 0.50; before 2022 no AFRC
        # levy: 2.30 + 4.26 + 0.50 + 2.00.
        (85200.0, "2021-08-02", "25.56", "9.06", "111.00"),
        (85200.0, "2022-01-03", "25.56", "9.19", "111.00"),
        (85200.0, "2023-01-03", "25.56", "9.24", "111.00"),
        (85200.0, "2023-11-16", "25.56", "9.24", "111.00"),
        (85200.0, "2023-11-17", "25.56", "9.24", "86.00"),
        # Settlement 0.0042 % = 3.5784 without a floor: 2.30 + 0.13 + 4.81 + 3.58.
        (85200.0, "2025-06-27", "25.56", "9.24", "86.00"),
        (85200.0, "2025-06-30", "25.56", "10.82", "86.00"),
        # 10,000,000: settlement 200 is capped at 100: 270 + 15 + 565 + 100.
        (1e7, "2024-09-19", "3000.00", "950.00", "10000.00"),
        # 2,000: commission 0.6 is below 3; duty exactly 2; 0.054, 0.003, 0.113, 2.
        (2000.0, "2024-09-19", "3.00", "2.16", "2.00"),
    ],
)
@pytest.mark.parametrize("side", ["buy", "sell"])
def test_hong_kong_charges_both_sides_alike(
    hk: MarketRules,
    side: Any,
    notional: float,
    on: str,
    commission: str,
    transfer: str,
    stamp: str,
) -> None:
    fees = hk.fees(side, notional, date.fromisoformat(on))
    assert [fees.commission, fees.transfer, fees.stamp] == [
        Decimal(commission),
        Decimal(transfer),
        Decimal(stamp),
    ]


def test_hong_kong_funds_pay_no_duty(hk: MarketRules) -> None:
    fees = hk.fees("buy", 85200.0, date(2024, 9, 19), "fund")
    assert (fees.stamp, fees.transfer) == (Decimal("0.00"), Decimal("9.24"))


@pytest.mark.parametrize(
    ("shares", "notional", "on", "transfer", "stamp"),
    [
        # SEC: 15,000 x 8 / 1e6 = 0.12. TAF: 100 x 0.000145 = 0.0145, up to a cent.
        (100, 15000.0, "2023-09-21", "0.02", "0.12"),
        (100, 15000.0, "2021-06-01", "0.02", "0.08"),  # 0.0765; 0.0119
        (100, 15000.0, "2022-05-13", "0.02", "0.08"),
        (100, 15000.0, "2022-05-14", "0.02", "0.35"),  # 22.9: 0.3435
        (100, 15000.0, "2024-05-22", "0.02", "0.42"),  # 27.8: 0.417
        (100, 15000.0, "2025-05-14", "0.02", "0.00"),
        # 100,000 shares: 11.9, 13, 14.5 and 16.6 are above the most of their year.
        (100_000, 1000.0, "2021-12-31", "5.95", "0.01"),
        (100_000, 1000.0, "2022-01-03", "6.49", "0.01"),
        (100_000, 1000.0, "2023-01-03", "7.27", "0.03"),
        (100_000, 1000.0, "2024-01-02", "8.30", "0.01"),
    ],
)
def test_america_charges_sales(
    us: MarketRules, shares: int, notional: float, on: str, transfer: str, stamp: str
) -> None:
    day = date.fromisoformat(on)
    fees = us.fees("sell", notional, day, shares=shares)
    assert (fees.transfer, fees.stamp) == (Decimal(transfer), Decimal(stamp))
    assert fees.commission == 0
    assert us.fees("buy", notional, day, shares=shares).total == 0


@pytest.mark.parametrize("shares", [None, -1.0, math.nan])
def test_a_charge_by_the_share_needs_the_shares(us: MarketRules, shares: float | None) -> None:
    with pytest.raises(UsageError) as caught:
        us.fees("sell", 1000.0, date(2023, 1, 3), shares=shares)
    assert caught.value.code == "rules.bad_fill"


def _pay(table: FeeSchedule, kind: int, bar: int, side: str, money: float, shares: int) -> float:
    """What `FeeSchedule` says a simulation must compute, in floats, one charge at a time."""
    total = 0.0
    for c in range(len(table.names)):
        rate = (table.buy if side == "buy" else table.sell)[kind, c, bar]
        if rate == 0:
            continue
        amount = rate * (money, shares, 1)[table.per[c]]
        amount = min(max(amount, table.least[c, bar]), table.most[c, bar])
        total += (
            math.floor(amount * 100 + 0.5 + 1e-7) / 100,
            math.ceil(amount * 100 - 1e-7) / 100,
            math.ceil(amount - 1e-9),
        )[table.rounding[c]]
    return total


@pytest.mark.parametrize("market", ["cn", "hk", "us"])
def test_the_table_says_what_the_decimals_say(workspace: Workspace, market: str) -> None:
    rules = MarketRules.load(workspace, market)
    days = [date(2021, 7, 30), date(2022, 6, 1), date(2023, 11, 16), date(2025, 7, 2)]
    table = rules.fee_schedule(days, ["stock", "fund"])
    assert table.names[0] == "commission"
    checked = 0
    for bar, day in enumerate(days):
        for k, kind in enumerate(("stock", "fund")):
            for side in ("buy", "sell"):
                for price, shares in ((3.07, 100), (55.5, 1200), (412.0, 90_000)):
                    money = price * shares
                    exact = rules.fees(side, money, day, kind, shares=shares)  # type: ignore[arg-type]
                    paid = _pay(table, k, bar, side, money, shares)
                    assert paid == pytest.approx(float(exact.total), abs=1e-6)
                    checked += 1
    assert checked == 48


def test_a_charge_before_its_table_is_an_error(hk: MarketRules, us: MarketRules) -> None:
    for rules, day in ((hk, date(2010, 9, 30)), (us, date(2019, 4, 15))):
        with pytest.raises(DataError) as caught:
            rules.fee_schedule([day])
        assert caught.value.code == "rules.before_table"


@pytest.mark.parametrize(
    ("price", "on", "step"),
    [
        (0.25, "2024-09-19", 0.001),
        (0.255, "2024-09-19", 0.005),
        (9.99, "2024-09-19", 0.01),
        (10.0, "2024-09-19", 0.01),
        (10.02, "2024-09-19", 0.02),
        (20.05, "2024-09-19", 0.05),
        (100.0, "2024-09-19", 0.05),
        (100.1, "2024-09-19", 0.1),
        (350.0, "2024-09-19", 0.2),
        (9000.0, "2024-09-19", 5.0),
        # Since 2025-08-04: 10 to 20 by 0.01, 20 to 50 by 0.02.
        (15.0, "2025-08-01", 0.02),
        (15.0, "2025-08-04", 0.01),
        (20.02, "2025-08-04", 0.02),
        (50.05, "2025-08-04", 0.05),
    ],
)
def test_price_steps_of_hong_kong(hk: MarketRules, price: float, on: str, step: float) -> None:
    assert hk.tick(price, date.fromisoformat(on)) == step


def test_price_steps_of_america_and_of_other_kinds(us: MarketRules, hk: MarketRules) -> None:
    assert us.tick(0.5, date(2023, 1, 3)) == 0.0001
    assert us.tick(1.0, date(2023, 1, 3)) == 0.01
    with pytest.raises(DataError) as caught:
        hk.tick(15.0, date(2024, 9, 19), "fund")  # the table of exchange-traded products is another
    assert caught.value.code == "rules.no_board"


def _hk(symbol: str, lot: int | None) -> Security:
    return Security(symbol=symbol, name=symbol, market="hk", currency="HKD", lot=lot)


def test_board_lots_are_each_securitys_own(hk: MarketRules, us: MarketRules) -> None:
    on = date(2024, 9, 19)
    minimum, step = hk.lots([_hk("A.HK", 500), _hk("B.HK", 2000)], on)
    assert (minimum.tolist(), step.tolist()) == ([500, 2000], [500, 2000])
    for unknown in (_hk("C.HK", None), "0700.HK"):
        with pytest.raises(DataError) as caught:
            hk.lots([unknown], on)
        assert caught.value.code == "rules.no_lot"
    american = Security(symbol="AAPL", name="a", board="nasdaq", market="us", currency="USD")
    minimum, step = us.lots([american], on)
    assert (minimum.tolist(), step.tolist()) == ([1], [1])
    assert (hk.t_plus, us.t_plus) == (0, 0)


def test_lots_by_date_cost_no_memory_while_nothing_changes(hk: MarketRules) -> None:
    days = [date(2024, 9, 18), date(2024, 9, 19)]
    minimum, _ = hk.lots_by_date([_hk("A.HK", 500)], days)
    assert minimum.tolist() == [[500], [500]]
    assert minimum.strides[0] == 0
    assert not minimum.flags.writeable


def test_neither_has_a_price_limit(hk: MarketRules, us: MarketRules) -> None:
    american = Security(
        symbol="X", name="x", board="nasdaq", market="us", listed_date=date(2024, 1, 2)
    )
    for rules, security in ((hk, _hk("A.HK", 500)), (us, american)):
        down, up = rules.limit_prices(np.array([[10.0]]), [date(2024, 1, 3)], [security])
        assert np.isnan([down, up]).all()
