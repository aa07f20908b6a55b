from __future__ import annotations

import itertools
import math
import statistics
from datetime import datetime

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kit.backtest.metrics import annual_turnover, bars_per_year, compute
from kit.errors import DataError, UsageError


def _days(count: int) -> pd.DatetimeIndex:
    return pd.bdate_range("2023-01-02", periods=count)


def _trades(*rows: tuple[float, float, float, str | None]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "symbol": "A",
                "entry_time": pd.Timestamp("2024-01-02"),
                "exit_time": pd.Timestamp(leave) if leave else pd.NaT,
                "size": 100.0,
                "pnl": pnl,
                "return": gained,
                "holding_days": held,
            }
            for pnl, gained, held, leave in rows
        ],
        columns=["symbol", "entry_time", "exit_time", "size", "pnl", "return", "holding_days"],
    )


# A second opinion in plain Python, from the formulas of the documentation.


def _slow(equity: list[float], when: list[datetime], m: float) -> dict[str, float | None]:
    r = [b / a - 1 for a, b in itertools.pairwise(equity)]
    mean = sum(r) / len(r)
    deviation = math.sqrt(sum((x - mean) ** 2 for x in r) / (len(r) - 1))
    downside = math.sqrt(sum(x * x for x in r if x < 0) / len(r))
    annual = (equity[-1] / equity[0]) ** (m / len(r)) - 1
    deepest, longest = 0.0, 0
    for start, peak in enumerate(equity):
        # Only a level that nothing before exceeds, and that is lost on the next bar, is a peak.
        if peak < max(equity[: start + 1]):
            continue
        for later in range(start + 1, len(equity)):
            fallen = equity[start + 1 : later + 1]
            deepest = min(deepest, min(fallen) / peak - 1)
            if fallen[0] < peak and all(x < peak for x in fallen[:-1]):
                longest = max(longest, (when[later] - when[start]).days)
    return {
        "total_return": equity[-1] / equity[0] - 1,
        "annual_return": annual,
        "volatility": deviation * math.sqrt(m),
        "sharpe": mean / deviation * math.sqrt(m),
        "sortino": mean / downside * math.sqrt(m) if downside else None,
        "max_drawdown": deepest,
        "drawdown_days": longest,
        "calmar": annual / -deepest if deepest else None,
    }


moves = st.lists(st.floats(-0.2, 0.25), min_size=3, max_size=60)


@settings(max_examples=60, deadline=None)
@given(moves)
def test_numbers_agree_with_a_slow_second_opinion(steps: list[float]) -> None:
    assume(statistics.stdev(steps) > 1e-6)
    equity = [1e6]
    for step in steps:
        equity.append(equity[-1] * (1 + step))
    index = _days(len(equity))
    found = compute(pd.Series(equity, index), trades=None, periods_per_year=244.0).to_dict()
    for name, value in _slow(equity, list(index.to_pydatetime()), 244.0).items():
        if name in ("sortino", "calmar") and found["max_drawdown"] > -1e-9:
            continue  # a fall smaller than rounding counts as none
        assert found[name] == pytest.approx(value, rel=1e-6, abs=1e-12), name


@settings(max_examples=30, deadline=None)
@given(moves, st.floats(1e-3, 1e6))
def test_the_size_of_the_account_changes_no_ratio(steps: list[float], scale: float) -> None:
    equity = pd.Series(np.cumprod([1.0, *(1 + x for x in steps)]), _days(len(steps) + 1))
    one = compute(equity, trades=None).to_dict()
    other = compute(equity * scale, trades=None).to_dict()
    for name, value in one.items():
        near = pytest.approx(value, rel=1e-6, abs=1e-9) if isinstance(value, float) else value
        if abs(one["volatility"] or 0) > 1e-9 and (one["max_drawdown"] or 0) < -1e-9:
            assert other[name] == near, name


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-1e9, 1e9), max_size=12))
def test_what_is_undefined_is_none_and_never_nan(values: list[float]) -> None:
    equity = pd.Series(values, _days(len(values)), dtype="float64")
    index = pd.Series(values, _days(len(values)), dtype="float64", name="指数")
    found = compute(
        equity, trades=_trades(), benchmark=index, exposure=index * 0, turnover=math.nan
    )
    for name, value in found.to_dict().items():
        assert not isinstance(value, float) or math.isfinite(value), name


def _slow_trades(rows: list[tuple[float, bool]]) -> dict[str, float | int | None]:
    """The formulas on the trade table, one trade at a time."""
    profits = [profit for profit, closed in rows if closed]
    won = [profit for profit in profits if profit > 0]
    lost = [-profit for profit in profits if profit < 0]
    return {
        "trades": len(profits),
        "open_trades": len(rows) - len(profits),
        "win_rate": len(won) / len(profits) if profits else None,
        "profit_factor": math.fsum(won) / math.fsum(lost) if lost else None,
        "average_win": math.fsum(won) / len(won) if won else None,
        "average_loss": -math.fsum(lost) / len(lost) if lost else None,
    }


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(-(10**6), 10**6).map(lambda n: n / 100), st.booleans())))
def test_trades_agree_with_a_slow_second_opinion(rows: list[tuple[float, bool]]) -> None:
    table = _trades(*((pnl, 0.0, 1, "2024-02-01" if closed else None) for pnl, closed in rows))
    found = compute(pd.Series([1.0, 1.0], _days(2)), trades=table).to_dict()
    for name, value in _slow_trades(rows).items():
        assert found[name] == (value if value is None else pytest.approx(value, rel=1e-9)), name


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.floats(-0.2, 0.25), st.floats(-0.2, 0.25)), min_size=3, max_size=60))
def test_against_an_index_agrees_with_a_slow_second_opinion(
    steps: list[tuple[float, float]],
) -> None:
    mine, theirs = zip(*steps, strict=True)
    active = [r - b for r, b in steps]
    assume(statistics.stdev(active) > 1e-6)
    assume(statistics.stdev(theirs) > 1e-6)
    days = _days(len(steps) + 1)
    equity = pd.Series(np.cumprod([1e6, *(1 + r for r in mine)]), days)
    index = pd.Series(np.cumprod([3e3, *(1 + b for b in theirs)]), days, name="沪深300")
    found = compute(equity, trades=None, benchmark=index, periods_per_year=244.0)
    centre = statistics.fmean(theirs)
    middle = statistics.fmean(mine)
    together = math.fsum((r - middle) * (b - centre) for r, b in steps)
    spread = math.fsum((b - centre) ** 2 for b in theirs)
    error = statistics.stdev(active) * math.sqrt(244)
    assert found.beta == pytest.approx(together / spread, rel=1e-6, abs=1e-9)
    assert found.tracking_error == pytest.approx(error, rel=1e-6)
    assert found.information_ratio == pytest.approx(
        statistics.fmean(active) * 244 / error, rel=1e-6, abs=1e-6
    )
    grown = math.prod(1 + b for b in theirs) - 1
    assert found.benchmark_return == pytest.approx(grown, rel=1e-9, abs=1e-12)


def test_an_account_that_doubles_and_doubles_has_a_growth_rate_beyond_100_percent() -> None:
    # Twice as much every day, four days, on 252 a year: 2 ** 252 - 1.
    found = compute(pd.Series([1.0, 2.0, 4.0, 8.0, 16.0], _days(5)), trades=None)
    assert found.annual_return == pytest.approx(2.0**252 - 1)
    assert found.max_drawdown == 0


def test_a_year_of_one_percent_a_month_has_closed_forms() -> None:
    equity = pd.Series(
        100 * 1.01 ** np.arange(13), pd.date_range("2023-01-31", periods=13, freq="ME")
    )
    found = compute(equity, trades=None)
    assert found.periods_per_year == 12
    assert found.total_return == pytest.approx(1.01**12 - 1)
    assert found.annual_return == pytest.approx(1.01**12 - 1)
    assert found.volatility == pytest.approx(0, abs=1e-12)
    # A line without a wobble has no Sharpe ratio, and one without a fall no Calmar ratio.
    assert (found.sharpe, found.sortino, found.calmar) == (None, None, None)
    assert (found.max_drawdown, found.drawdown_days) == (0.0, 0)


def test_two_alternating_returns_have_closed_forms() -> None:
    # +10 % and -10 % in turn, 4 bars: mean 0, sample deviation 0.1 sqrt(4/3).
    equity = pd.Series([100, 110, 99, 108.9, 98.01], _days(5))
    found = compute(equity, trades=None, periods_per_year=100)
    assert found.volatility == pytest.approx(0.1 * math.sqrt(4 / 3) * 10)
    assert found.sharpe == pytest.approx(0, abs=1e-12)
    assert found.max_drawdown == pytest.approx(98.01 / 110 - 1)
    assert found.annual_return == pytest.approx(0.9801**25 - 1)
    assert found.calmar == pytest.approx((0.9801**25 - 1) / (1 - 98.01 / 110))


def test_the_initial_cash_is_the_first_peak() -> None:
    found = compute(pd.Series([100.0, 80.0, 90.0], _days(3)), trades=None)
    assert found.max_drawdown == pytest.approx(-0.2)
    # From Monday to the end on Wednesday; the initial cash may also share the first bar's time.
    assert found.drawdown_days == 2
    shared = pd.Series([100.0, 80.0, 90.0], _days(2)[[0, 0, 1]])
    assert compute(shared, trades=None).max_drawdown == pytest.approx(-0.2)


def test_time_below_a_peak_ends_when_it_is_reached_again() -> None:
    # Peak on day 1, reached again on day 4; then a shorter fall.
    equity = pd.Series(
        [100, 120, 110, 115, 120, 119, 121.0], pd.date_range("2024-01-01", periods=7)
    )
    assert compute(equity, trades=None).drawdown_days == 3


def test_constant_one_row_empty_and_ruined_accounts() -> None:
    flat = compute(pd.Series(1e6, _days(300)), trades=None)
    assert (flat.total_return, flat.annual_return, flat.volatility, flat.max_drawdown) == (
        0,
        0,
        0,
        0,
    )
    assert (flat.sharpe, flat.sortino, flat.calmar) == (None, None, None)
    one = compute(pd.Series([1e6], _days(1)), trades=None)
    assert (one.bars, one.total_return, one.max_drawdown, one.sharpe) == (0, None, 0.0, None)
    none = compute(pd.Series(dtype="float64"), trades=None)
    assert (none.bars, none.total_return, none.max_drawdown) == (0, None, None)
    ruined = compute(pd.Series([100.0, 50.0, 0.0], _days(3)), trades=None)
    assert (ruined.total_return, ruined.annual_return, ruined.max_drawdown) == (-1, -1, -1)
    owing = compute(pd.Series([100.0, -50.0, 20.0], _days(3)), trades=None)
    assert owing.total_return == pytest.approx(-0.8)
    assert (owing.sharpe, owing.volatility) == (None, None)
    assert compute(pd.Series([100.0, -50.0], _days(2)), trades=None).annual_return is None


def test_an_index_is_compared_on_the_bars_both_have() -> None:
    rng = np.random.default_rng(5)
    b = rng.normal(0, 0.01, 50)
    noise = rng.normal(0, 0.002, 50)
    equity = pd.Series(np.cumprod([1.0, *(1 + 1.5 * b + noise)]), _days(51))
    index = pd.Series(3000 * np.cumprod([1.0, *(1 + b)]), _days(51), name="沪深300")
    found = compute(equity, trades=None, benchmark=index, periods_per_year=244)
    r = [y / x - 1 for x, y in itertools.pairwise(equity)]
    active = [x - y for x, y in zip(r, b, strict=True)]
    assert found.benchmark == "沪深300"
    assert found.benchmark_return == pytest.approx(math.prod(1 + x for x in b) - 1)
    assert found.beta == pytest.approx(
        statistics.covariance(r, list(b)) / statistics.variance(list(b))
    )
    assert found.tracking_error == pytest.approx(statistics.stdev(active) * math.sqrt(244))
    assert found.information_ratio == pytest.approx(
        statistics.mean(active) / statistics.stdev(active) * math.sqrt(244)
    )
    # A longer index, with a hole the equity does not have, changes nothing but the bar it lacks.
    longer = pd.concat([index, pd.Series([9.0], [pd.Timestamp("2030-01-01")])]).rename("沪深300")
    assert compute(equity, trades=None, benchmark=longer, periods_per_year=244) == found


def test_an_account_that_is_the_index_has_beta_one_and_no_ratio() -> None:
    levels = pd.Series([100, 103, 101, 104.0], _days(4), name="沪深300")
    found = compute(levels * 7, trades=None, benchmark=levels)
    assert found.beta == pytest.approx(1)
    assert found.tracking_error == pytest.approx(0, abs=1e-12)
    assert found.information_ratio is None
    still = pd.Series(5.0, _days(4), name="现金")
    assert compute(levels, trades=None, benchmark=still).beta is None


def test_a_benchmark_needs_a_name() -> None:
    levels = pd.Series([1.0, 2.0], _days(2))
    with pytest.raises(UsageError) as caught:
        compute(levels, trades=None, benchmark=levels)
    assert caught.value.code == "metrics.unnamed_benchmark"


def test_trades_count_after_fees_and_only_when_closed() -> None:
    table = _trades(
        (300.0, 0.03, 10, "2024-02-01"),
        (100.0, 0.01, 20, "2024-02-01"),
        (-100.0, -0.02, 3, "2024-02-01"),
        (0.0, 0.0, 7, "2024-02-01"),
        (9999.0, 9.9, 99, None),
    )
    found = compute(pd.Series([1.0, 2.0], _days(2)), trades=table)
    assert (found.trades, found.open_trades) == (4, 1)
    assert found.win_rate == 0.5
    assert found.profit_factor == 4
    assert (found.average_win, found.average_loss) == (200, -100)
    assert found.average_trade_return == pytest.approx(0.005)
    assert found.average_holding_days == 10


def test_trades_without_a_loss_or_without_any() -> None:
    found = compute(pd.Series([1.0, 2.0], _days(2)), trades=_trades((5.0, 0.1, 1, "2024-02-01")))
    assert (found.win_rate, found.profit_factor, found.average_loss) == (1, None, None)
    empty = compute(pd.Series([1.0, 2.0], _days(2)), trades=_trades())
    assert (empty.trades, empty.win_rate, empty.average_win) == (0, None, None)
    unknown = compute(pd.Series([1.0, 2.0], _days(2)), trades=None)
    assert (unknown.trades, unknown.win_rate) == (None, None)


def test_exposure_counts_shorts_and_gaps() -> None:
    held = pd.Series([0.0, 0.5, -0.5, math.nan], _days(4))
    found = compute(pd.Series(1.0, _days(4)), trades=None, exposure=held, turnover=3.0)
    assert (found.exposure, found.time_in_market, found.turnover) == (0.25, 0.5, 3.0)


def test_turnover_is_one_way_and_yearly() -> None:
    # 200 bought and 200 sold on an account of 100, in half a year: twice, so four times a year.
    equity = pd.Series(100.0, _days(127))
    assert annual_turnover(400.0, equity, 252.0) == pytest.approx(4)
    assert annual_turnover(400.0, equity[:1], 252.0) is None


@pytest.mark.parametrize(
    ("index", "bars"),
    [
        (pd.bdate_range("2023-01-02", periods=20), 252),
        (pd.date_range("2023-01-02", periods=20), 365),
        (pd.bdate_range("2020-01-01", "2023-12-31"), 261),
        (pd.date_range("2020-01-03", periods=100, freq="7D"), 52),
        (pd.date_range("2020-01-31", periods=30, freq="ME"), 12),
        (pd.date_range("2020-03-31", periods=9, freq="QE"), 4),
        (pd.date_range("2015-12-31", periods=9, freq="YE"), 1),
        (pd.DatetimeIndex([d + pd.Timedelta(hours=h) for d in _days(5) for h in (11, 15)]), 504),
        (pd.DatetimeIndex(["2024-01-02", "2024-01-02", "2024-01-03", "2024-01-04"]), 252),
        (pd.DatetimeIndex(["2024-01-02"]), None),
        (pd.DatetimeIndex([]), None),
    ],
)  # fmt: skip
def test_bars_of_a_year_follow_from_their_spacing(index: pd.DatetimeIndex, bars: float) -> None:
    assert bars_per_year(index) == bars


def test_bad_input_is_refused() -> None:
    for equity in (
        pd.Series([1.0, math.nan], _days(2)),
        pd.Series([1.0, math.inf], _days(2)),
        pd.Series([1.0, 2.0]),
        pd.Series([1.0, 2.0], _days(2)[::-1]),
    ):
        with pytest.raises(DataError) as caught:
            compute(equity, trades=None)
        assert caught.value.code == "metrics.bad_equity"
    with pytest.raises(DataError, match="holding_days"):
        compute(pd.Series([1.0], _days(1)), trades=_trades().drop(columns="holding_days"))
