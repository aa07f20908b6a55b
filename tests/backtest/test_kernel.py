"""The kernel against hand calculations and against the slow simulator."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kit.backtest.kernel import CAUSES, REASONS, Costs, Fills, Market, simulate
from kit.market import FeeSchedule

NONE = np.empty((0, 0))


def charges(bars: int, *rows: tuple[Any, Any, float], kinds: int = 1, **more: Any) -> FeeSchedule:
    """Return charges of the notional, rounded to cents; a row is (buy, sell, least)."""
    count = len(rows)
    shape = (kinds, count, bars)
    values: dict[str, Any] = {
        "names": tuple(map(str, range(count))),
        "part": np.arange(count) % 3,
        "per": np.zeros(count, dtype=np.int64),
        "rounding": np.zeros(count, dtype=np.int64),
        "buy": np.broadcast_to(np.array([np.zeros(bars) + row[0] for row in rows]), shape).copy(),
        "sell": np.broadcast_to(np.array([np.zeros(bars) + row[1] for row in rows]), shape).copy(),
        "least": np.array([np.full(bars, row[2]) for row in rows]),
        "most": np.full(shape[1:], np.inf),
    }
    return FeeSchedule(**(values | more))


def case(
    prices: Any,
    weights: Any,
    *,
    marks: Any = None,
    cash: float = 100_000.0,
    least: int = 100,
    step: int = 100,
    t_plus: int = 1,
    commission: float = 0.0,
    minimum: float = 0.0,
    slippage: float = 0.0,
    **more: Any,
) -> dict[str, Any]:
    """Return arguments for `simulate`: prices and weights as lists of columns."""
    fill = np.array(prices, dtype=float).T.copy()
    bars, symbols = fill.shape
    market = Market(
        up=NONE,
        down=NONE,
        min_lot=np.full(symbols, least),
        step=np.full(symbols, step),
        session=np.arange(bars),
        t_plus=t_plus,
        allow_short=False,
    )
    costs = Costs(
        fees=charges(bars, (commission, commission, minimum)),
        kind=np.zeros(symbols, dtype=np.int64),
        slippage=slippage,
    )
    base = {
        "fill": fill,
        "mark": fill.copy() if marks is None else np.array(marks, dtype=float).T.copy(),
        "adjust": np.ones((bars, symbols)),
        "weights": np.array(weights, dtype=float).T.copy(),
        "market": market,
        "costs": costs,
        "initial_cash": cash,
    }
    return base | more


def unfilled(fills: Fills, symbol: int = 0) -> dict[str, int]:
    """Return the counted causes of one symbol that are not zero."""
    row = dict(zip(CAUSES, fills.unfilled[symbol].tolist(), strict=True))
    return {cause: count for cause, count in row.items() if count}


def orders(fills: Fills) -> list[tuple[int, int, int, float, float]]:
    """Return (symbol, bar, +1 or -1, raw shares, raw price) of each order."""
    return [
        (int(o["col"]), int(o["idx"]), 1 - 2 * int(o["side"]), float(o["raw_size"]),
         float(o["raw_price"]))
        for o in fills.orders
    ]  # fmt: skip


def test_a_decision_fills_at_the_next_bar() -> None:
    fills = simulate(
        **case([[10, 10, 11, 12, 12]], [[0, 1, 1, 0, 0]], marks=[[10, 10, 11, 12, 13]])
    )
    # Decided on bar 1, bought on bar 2 at 11: floor(100000 / 11 / 100) lots = 9000 shares for
    # 99,000. Decided on bar 3, sold on bar 4 at 12.
    assert orders(fills) == [(0, 2, 1, 9000, 11), (0, 4, -1, 9000, 12)]
    assert fills.cash.tolist() == [100_000, 100_000, 1_000, 1_000, 109_000]
    assert fills.equity.tolist() == [100_000, 100_000, 100_000, 109_000, 109_000]
    assert fills.orders["decided"].tolist() == [1, 3]


def test_lag_moves_the_fill() -> None:
    prices, weights = [[10, 11, 12, 13, 14]], [[1, 1, 1, 1, 1]]
    for lag, price in ((0, 11), (1, 11), (2, 12)):  # bar 0 never trades
        fills = simulate(**case(prices, weights, lag=lag))
        assert orders(fills)[0][4] == price


def test_bars_before_first_neither_trade_nor_move() -> None:
    fills = simulate(**case([[10, 11, 12, 13, 14]], [[1, 1, 1, 1, 1]], first=3))
    assert orders(fills)[0][:2] == (0, 3)
    assert fills.equity[:3].tolist() == [100_000] * 3


def test_fees_are_paid_from_the_same_cash() -> None:
    fills = simulate(
        **case([[10, 10, 10]], [[1, 1, 1]], cash=1_000_000.0, commission=0.00025, minimum=5.0,
               slippage=0.001, liquidate=False)
    )  # fmt: skip
    # 1,000,000 / 10.01 is 99,900 in whole lots: 999,999.00 plus 250 commission is too much.
    # 99,800 x 10.01 = 998,998.00 plus 249.75.
    assert orders(fills) == [(0, 1, 1, 99_800, pytest.approx(10.01))]
    assert fills.cash[-1] == pytest.approx(1_000_000 - 998_998 - 249.75, abs=1e-9)
    assert unfilled(fills) == {}


def test_minimum_commission_and_the_cent() -> None:
    fills = simulate(
        **case([[7.77, 7.77, 7.77]], [[0.013, 0.013, 0.013]], commission=0.00025, minimum=5.0)
    )
    # 100 shares for 777.00: 0.025 % is 0.19425, so the minimum of 5.00 is charged on each side.
    assert fills.orders["commission"].tolist() == [5.0, 5.0]
    assert fills.equity[-1] == pytest.approx(100_000 - 10.0, abs=1e-9)


@pytest.mark.parametrize(
    ("prices", "weights", "cause", "bars"),
    [
        ([1700.0] * 6, [1] * 6, {"lot_too_small": 5}, 0),
        ([10.0] * 6, [-1] * 6, {"short_not_allowed": 5}, 0),
        ([10.0, np.nan, np.nan, 10.0, 10.0, 10.0], [1] * 6, {"halt": 2}, 2),
    ],
)
def test_intent_that_cannot_fill_is_counted_each_bar(
    prices: list[float], weights: list[float], cause: dict[str, int], bars: int
) -> None:
    fills = simulate(**case([prices], [weights]))
    assert unfilled(fills) == cause
    assert len(fills.orders) == bars


def with_limits(arguments: dict[str, Any], down: Any, up: Any) -> dict[str, Any]:
    """Add price limits (lists of columns) to a case."""
    market = replace(
        arguments["market"],
        down=np.array(down, dtype=float).T.copy(),
        up=np.array(up, dtype=float).T.copy(),
    )
    return arguments | {"market": market}


def test_a_limit_up_open_is_not_bought_and_retried() -> None:
    arguments = with_limits(
        case([[10, 11, 11.5, 11.5]], [[1, 1, 1, 1]]),
        [[np.nan, 9, 9.9, 10.35]],
        [[np.nan, 11, 12.1, 12.65]],
    )
    fills = simulate(**arguments)
    assert unfilled(fills) == {"limit_up": 1}
    assert orders(fills)[0] == (0, 2, 1, 8600, 11.5)


def test_a_limit_down_open_is_not_sold_even_at_the_end() -> None:
    arguments = with_limits(
        case([[10, 10, 9, 8.1]], [[1, 0, 0, 0]]),
        [[np.nan, 9, 9, 8.1]],
        [[np.nan, 11, 11, 9.9]],
    )
    fills = simulate(**arguments)
    # Bought on bar 1; on bars 2 and 3 nobody buys; the last close cannot be sold either.
    assert unfilled(fills) == {"limit_down": 3}
    assert fills.position.tolist() == [10_000]
    assert fills.equity[-1] == 81_000


@pytest.mark.parametrize(
    ("slippage", "filled"),
    [
        (0.0, [10.99, 9.01]),
        (0.0009, [10.99 * 1.0009, 9.01 * 0.9991]),  # 10.9999 and 9.0019: inside the limits
        (0.01, []),  # 11.0999 would be paid: past the limit of 11
    ],
)
def test_an_order_whose_price_with_slippage_reaches_the_limit_waits(
    slippage: float, filled: list[float]
) -> None:
    arguments = with_limits(
        case([[10, 10.99, 9.01]], [[1, 0, 0]], slippage=slippage),
        [[np.nan, 9, 9]],
        [[np.nan, 11, 11]],
    )
    fills = simulate(**arguments)
    assert [order[4] for order in orders(fills)] == pytest.approx(filled)
    assert unfilled(fills) == ({} if filled else {"limit_up": 1})


@pytest.mark.parametrize(
    ("charge", "bought", "sold"),
    [
        # 1,000 shares at 7.77 are 7,770.00.
        ({"buy": 0.00025, "sell": 0.00025}, 1.94, 1.94),  # 1.9425
        ({"buy": 0.00025, "sell": 0.0, "rounding": 1}, 1.95, 0.0),  # up to the cent
        ({"buy": 0.0, "sell": 0.00025, "rounding": 2}, 0.0, 2.0),  # up to the dollar
        ({"buy": 0.001, "sell": 0.001, "rounding": 2}, 8.0, 8.0),  # 7.77
        ({"buy": 0.00025, "sell": 0.00025, "rounding": -1}, 1.9425, 1.9425),
        ({"buy": 0.0, "sell": 0.000195, "per": 1, "rounding": 1}, 0.0, 0.20),  # a share
        ({"buy": 0.0195, "sell": 0.0195, "per": 1, "most": 9.79}, 9.79, 9.79),  # 19.50 capped
        ({"buy": 0.5, "sell": 0.0, "per": 2}, 0.5, 0.0),  # an order
        ({"buy": 0.00002, "sell": 0.00002, "least": 2.0}, 2.0, 2.0),  # 0.1554
        ({"buy": 0.0, "sell": 0.00002, "least": 2.0}, 0.0, 2.0),  # who pays no rate pays no least
    ],
)
def test_each_sort_of_charge_by_hand(charge: dict[str, float], bought: float, sold: float) -> None:
    arguments = case([[7.77] * 4], [[0.08, 0, 0, 0]], least=1000, step=1000)
    fees = charges(
        4,
        (charge["buy"], charge["sell"], charge.get("least", 0.0)),
        per=np.array([charge.get("per", 0)]),
        rounding=np.array([charge.get("rounding", 0)]),
        most=np.full((1, 4), charge.get("most", np.inf)),
    )
    fills = simulate(**(arguments | {"costs": replace(arguments["costs"], fees=fees)}))
    assert fills.orders["fees"].tolist() == pytest.approx([bought, sold], abs=1e-12)
    assert fills.cash[-1] == pytest.approx(100_000 - bought - sold, abs=1e-9)


def test_lots_may_change_from_one_bar_to_the_next() -> None:
    arguments = case([[33.0] * 5], [[0.1, 0.1, 0.1, 0.1, 0.1]], hold=False, liquidate=False)
    least = np.array([[1000], [1000], [200], [200], [200]])
    market = replace(arguments["market"], min_lot=least, step=np.array([[100]] * 4 + [[1]]))
    fills = simulate(**(arguments | {"market": market}))
    # 10,000 / 33 is 303.03: too little for a lot of 1,000, then 200 + 100, then nothing is missing
    # by as much as a lot.
    assert orders(fills) == [(0, 2, 1, 300, 33.0)]
    assert unfilled(fills) == {"lot_too_small": 1}


def test_shares_bought_today_are_not_sold_today() -> None:
    arguments = case([[10, 10, 10, 10]], [[1, 0, 0, 0]])
    arguments["market"] = replace(arguments["market"], session=np.array([0, 0, 0, 1]))
    fills = simulate(**arguments)
    assert unfilled(fills) == {"t_plus_1": 1}
    assert [order[1] for order in orders(fills)] == [1, 3]


def test_a_last_bar_purchase_stays_open_under_t_plus_1() -> None:
    fills = simulate(**case([[10, 10]], [[1, 1]]))
    assert unfilled(fills) == {"t_plus_1": 1}
    assert fills.position.tolist() == [10_000]


def test_a_halted_last_bar_is_not_liquidated() -> None:
    fills = simulate(**case([[10, 10, np.nan]], [[1, 1, 1]], marks=[[10, 10, 10]]))
    assert unfilled(fills) == {"halt": 1}
    assert fills.position.tolist() == [10_000]


def test_sells_come_before_buys_on_a_bar() -> None:
    fills = simulate(**case([[10] * 4, [20] * 4], [[0, 0, 1, 1], [1, 1, 0, 0]]))
    # Symbol 1 is held with all the cash; on bar 3 it is sold first, so symbol 0 can be bought.
    assert orders(fills)[0] == (0, 3, 1, 10_000, 10)
    assert unfilled(fills, 0) == {"t_plus_1": 1}  # the purchase of the last bar


def test_weights_above_one_are_scaled_down() -> None:
    fills = simulate(**case([[10] * 3, [10] * 3], [[1, 1, 1], [1, 1, 1]], liquidate=False))
    assert [order[3] for order in orders(fills)] == [5_000, 5_000]


def test_hold_ignores_a_new_size_and_rebalance_follows_it() -> None:
    prices, weights = [[10] * 6], [[0.2, 0.2, 0.5, 0.5, 0.1, 0.1]]
    held = simulate(**case(prices, weights, liquidate=False))
    assert [order[2:4] for order in orders(held)] == [(1, 2_000)]
    moved = simulate(**case(prices, weights, liquidate=False, hold=False))
    assert [order[2:4] for order in orders(moved)] == [(1, 2_000), (1, 3_000), (-1, 4_000)]
    assert [REASONS[n] for n in moved.orders["reason"]] == ["signal"] + ["target_rebalance"] * 2


def test_rebalance_mask_and_tolerance() -> None:
    prices, weights = [[10] * 6], [[0.2, 0.2, 0.25, 0.25, 0.5, 0.5]]
    mask = np.array([True, False, True, False, True, True])
    fills = simulate(**case(prices, weights, hold=False, mask=mask, liquidate=False))
    assert [order[1:4] for order in orders(fills)] == [(2, 1, 2_000), (4, 1, 500), (5, 1, 2_500)]
    calm = simulate(**case(prices, weights, hold=False, tolerance=0.06, liquidate=False))
    assert [order[1:4] for order in orders(calm)] == [(1, 1, 2_000), (5, 1, 3_000)]


def test_a_split_and_a_dividend_need_no_booking() -> None:
    # Bar 2: ten for ten (the price halves, the factor doubles). Bar 3: a dividend of 5 %.
    raw = [[10.0, 10.0, 5.0, 4.75, 4.75]]
    arguments = case(raw, [[1, 1, 1, 1, 1]])
    arguments["adjust"] = np.array([[0.475, 0.475, 0.95, 1.0, 1.0]]).T.copy()
    fills = simulate(**arguments)
    assert fills.equity.tolist() == pytest.approx([100_000] * 5, abs=1e-6)
    # 10,000 shares become 20,000, then 20,000 / 0.95 with the dividend reinvested.
    assert orders(fills)[-1][3] == pytest.approx(20_000 / 0.95)
    assert fills.orders["size"].tolist() == pytest.approx([10_000 / 0.475] * 2)
    assert fills.orders["price"].tolist() == pytest.approx([4.75] * 2)


def test_a_basket_that_does_not_fit_shrinks_together() -> None:
    # The old position cannot be sold (no bar), so 40,000 is left for targets of 2 x 50,000.
    prices = [[10, 10, np.nan, np.nan], [10] * 4, [10] * 4]
    weights = [[0.6, 0, 0, 0], [0, 0.5, 0.5, 0.5], [0, 0.5, 0.5, 0.5]]
    fills = simulate(**case(prices, weights, liquidate=False))
    assert [order[3] for order in orders(fills)] == [6_000, 2_000, 2_000]
    assert unfilled(fills, 1) == unfilled(fills, 2) == {"no_cash": 1}


def test_shorts_where_they_are_allowed() -> None:
    arguments = case([[10, 10, 8, 8]], [[-1, -1, 0, 0]], t_plus=0, least=1, step=1)
    arguments["market"] = replace(arguments["market"], allow_short=True)
    fills = simulate(**arguments)
    assert [order[1:4] for order in orders(fills)] == [(1, -1, 10_000), (3, 1, 10_000)]
    assert fills.equity.tolist() == [100_000, 100_000, 120_000, 120_000]


def test_star_lots_grow_share_by_share() -> None:
    fills = simulate(**case([[33, 33, 33]], [[0.1, 0.1, 0.1]], least=200, step=1, liquidate=False))
    assert orders(fills)[0][3] == 303  # floor(10,000 / 33)
    small = simulate(**case([[51, 51, 51]], [[0.1, 0.1, 0.1]], least=200, step=1))
    assert unfilled(small) == {"lot_too_small": 2}


def random_fees(rng: Any, bars: int) -> FeeSchedule:
    """A mainland schedule, a Hong Kong one or an American one; the second kind pays less."""
    halved = np.where(np.arange(bars) < bars // 2, 0.001, 0.0005)
    broker = (0.00025, 0.00025, 5.0)
    if (market := rng.integers(0, 3)) == 0:
        fees = charges(bars, broker, (2e-5, 2e-5, 0.0), (0.0, halved, 0.0), kinds=2)
    elif market == 1:
        fees = charges(
            bars, broker, (2e-5, 2e-5, 2.0), (halved, halved, 0.0), (0.5, 0.5, 0.0), kinds=2
        )
        fees.most[1] = 6.0
        fees.per[3] = 2
        fees.rounding[2] = 2
    else:
        fees = charges(bars, (0.0, 0.0, 0.0), (0.0, 0.000195, 0.0), (0.0, 2e-5, 0.0), kinds=2)
        fees.per[1] = 1
        fees.most[1] = 0.4
        fees.rounding[1:] = 1
    fees.buy[1, -1], fees.sell[1, -1] = 0.0, 0.0
    return fees


def random_case(seed: int, options: dict[str, Any]) -> dict[str, Any]:
    """Return a case with halts, limits, factor changes and two kinds of security."""
    rng = np.random.default_rng(seed)
    bars, symbols = options["shape"]
    steps = rng.choice([0.9, 0.95, 0.99, 1.0, 1.01, 1.05, 1.1], size=(bars, symbols))
    closes = np.round(rng.uniform(3, 40, symbols) * np.cumprod(steps, axis=0), 2) + 0.01
    opens = np.round(closes * rng.choice([0.98, 1.0, 1.03], size=closes.shape), 2)
    previous = np.vstack([np.full((1, symbols), np.nan), closes[:-1]])
    up = np.round(previous * 1.1, 2)
    down = np.round(previous * 0.9, 2)
    opens = np.where(rng.random(closes.shape) < 0.15, up, opens)
    opens = np.where(rng.random(closes.shape) < 0.15, down, opens)
    opens = np.where(np.isnan(opens), closes, opens)
    halted = rng.random(closes.shape) < options["halts"]
    opens[halted] = np.nan
    closes[halted & (rng.random(closes.shape) < 0.7)] = np.nan
    weights = rng.choice([0.0, 0.0, 0.1, 0.3, 0.5, 1.0, -0.4], size=(bars, symbols))
    weights = np.repeat(weights[::2], 2, axis=0)[:bars]
    adjust = np.cumprod(rng.choice([1.0] * 9 + [1.25], size=(bars, symbols)), axis=0)
    adjust[np.isnan(opens) & np.isnan(closes)] = np.nan
    limited = options["limited"]
    star = rng.random(symbols) < 0.3
    later = rng.integers(1, 3)
    return {
        "fill": opens,
        "mark": closes,
        "adjust": adjust,
        "weights": weights,
        "market": Market(
            up=up if limited else NONE,
            down=down if limited else NONE,
            min_lot=np.where(star, 200, 100) * np.where(np.arange(bars) < 9, 1, later)[:, None],
            step=np.where(star, 1, 100),
            session=np.arange(bars) // options["bars_a_session"],
            t_plus=options["t_plus"],
            allow_short=options["short"],
        ),
        "costs": Costs(
            fees=random_fees(rng, bars),
            kind=rng.integers(0, 2, symbols),
            slippage=options["slippage"],
        ),
        "initial_cash": options["cash"],
        "first": options["first"],
        "lag": options["lag"],
        "hold": options["hold"],
        "mask": None if options["hold"] else rng.random(bars) < 0.6,
        "tolerance": options["tolerance"],
        "liquidate": options["liquidate"],
    }  # fmt: skip


OPTIONS = st.fixed_dictionaries(
    {
        "shape": st.tuples(st.integers(2, 24), st.integers(1, 4)),
        "halts": st.sampled_from([0.0, 0.15]),
        "limited": st.booleans(),
        "bars_a_session": st.sampled_from([1, 1, 3]),
        "t_plus": st.sampled_from([0, 1]),
        "short": st.booleans(),
        "slippage": st.sampled_from([0.0, 0.001]),
        "cash": st.sampled_from([4_000.0, 60_000.0, 1_000_000.0]),
        "first": st.sampled_from([0, 3]),
        "lag": st.sampled_from([0, 1, 2]),
        "hold": st.booleans(),
        "tolerance": st.sampled_from([0.0, 0.05]),
        "liquidate": st.booleans(),
    }
)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(seed=st.integers(0, 2**32 - 1), options=OPTIONS)
def test_agrees_with_the_slow_simulator(
    slow: ModuleType, seed: int, options: dict[str, Any]
) -> None:
    arguments = random_case(seed, options)
    expected = slow.simulate(arguments)
    got = simulate(**arguments)
    wanted = sorted(expected.trades, key=lambda trade: trade.symbol)  # stable: time order inside
    assert [(o["col"], o["idx"], o["side"], REASONS[o["reason"]]) for o in got.orders] == [
        (t.symbol, t.bar, int(t.side == "sell"), t.reason) for t in wanted
    ]
    assert got.orders["raw_size"].tolist() == pytest.approx([t.shares for t in wanted], rel=1e-9)
    assert got.orders["raw_price"].tolist() == pytest.approx([t.price for t in wanted], rel=1e-12)
    assert got.orders["fees"].tolist() == pytest.approx([t.fees for t in wanted], abs=1e-9)
    assert got.cash.tolist() == pytest.approx(expected.cash_path, rel=1e-9, abs=1e-6)
    assert got.equity.tolist() == pytest.approx(expected.equity, rel=1e-9, abs=1e-6)
    counted = {
        (i, cause): int(got.unfilled[i, k])
        for i in range(options["shape"][1])
        for k, cause in enumerate(CAUSES)
        if got.unfilled[i, k]
    }
    assert counted == {key: count for key, count in expected.unfilled.items() if count}
    if not options["short"]:
        assert (got.position >= 0).all()
    assert (got.cash >= -1e-6).all()
