"""The result of a backtest: orders, trades, curve, metrics, and a vectorbt portfolio on demand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

import numpy as np
import pandas as pd

from kit.backtest.kernel import CAUSES, REASONS, Fills
from kit.backtest.metrics import Metrics, annual_turnover, bars_per_year, compute
from kit.backtest.setup import Setup
from kit.backtest.wording import headline, metric_rows
from kit.errors import KitError, UsageError
from kit.market import Dropped

__all__ = ["BacktestResult"]

_BUY: Final = 0
_DUST: Final = 1e-12
_VECTORBT_FIELDS: Final = ("id", "col", "idx", "size", "price", "fees", "side")


@dataclass(frozen=True, kw_only=True, eq=False)
class BacktestResult:
    """What came out of a backtest.

    Attributes:
        setup: What it was simulated with.
        fills: What the kernel returned.
        weights: Target weights, dates x symbols.
        prices: Adjusted close, dates x symbols.
        notes: What to know before believing it, Chinese.
        dropped: Symbols left out, with reasons.
        benchmark: Levels of a named index, or None.
    """

    setup: Setup
    fills: Fills
    weights: pd.DataFrame
    prices: pd.DataFrame
    notes: tuple[str, ...]
    dropped: tuple[Dropped, ...]
    benchmark: pd.Series | None

    @property
    def dates(self) -> pd.DatetimeIndex:
        """Every bar of the panel, the warm-up included."""
        return pd.DatetimeIndex(self.prices.index)

    @property
    def initial_cash(self) -> float:
        """Money at the start."""
        return self.setup.initial_cash

    @property
    def start(self) -> date:
        """First graded session."""
        return self._day(self.setup.first)

    @property
    def end(self) -> date:
        """Last session."""
        return self._day(-1)

    def _day(self, position: int) -> date:
        day: date = self.dates[position].date()
        return day

    @property
    def benchmark_name(self) -> str | None:
        """Symbol of the index compared with."""
        return None if self.benchmark is None else str(self.benchmark.name)

    @cached_property
    def equity(self) -> pd.Series:
        """Worth of the account after each graded bar; the first value is the initial cash."""
        begin = max(self.setup.first - 1, 0)
        return pd.Series(self.fills.equity[begin:], index=self.dates[begin:], name="equity")

    @cached_property
    def orders(self) -> pd.DataFrame:
        """Every fill in time order: what the exchange saw, and what it cost.

        Columns: `symbol`, `time`, `side` (`buy`, `sell`), `size` in shares, `price` raw with
        slippage, `notional`, `commission`, `transfer`, `stamp`, `fees`, `decided` (bar whose weight
        asked for it), `reason`.
        """
        records = self.fills.orders
        frame = pd.DataFrame(
            {
                "symbol": self.prices.columns.to_numpy()[records["col"]],
                "time": self.dates[records["idx"]],
                "side": np.where(records["side"] == _BUY, "buy", "sell"),
                "size": records["raw_size"],
                "price": records["raw_price"],
                "notional": records["raw_size"] * records["raw_price"],
                "commission": records["commission"],
                "transfer": records["transfer"],
                "stamp": records["stamp"],
                "fees": records["fees"],
                "decided": self.dates[records["decided"]],
                "reason": np.array(REASONS)[records["reason"]],
            }
        )
        return frame.sort_values(["time", "symbol"], kind="stable", ignore_index=True)

    @cached_property
    def trades(self) -> pd.DataFrame:
        """Round trips, in order of entry; a part sold off is its own row.

        Columns: `symbol`, `entry_time`, `exit_time` (NaT while open), `size` in shares at the exit,
        `entry_price` and `exit_price` (average raw prices), `pnl` in money after the fees of both
        sides, `return` (pnl over money put in), `holding_days`.
        """
        columns = (
            "symbol",
            "entry_time",
            "exit_time",
            "size",
            "entry_price",
            "exit_price",
            "pnl",
            "return",
            "holding_days",
        )
        rows = pd.DataFrame(list(self._round_trips()), columns=list(columns))
        # Places until here: looking names and times up one by one costs more than all the rest.
        entered, left = (rows[name].to_numpy(dtype=np.int64) for name in columns[1:3])
        until = self.dates[np.where(left < 0, len(self.dates) - 1, left)]
        rows["symbol"] = self.prices.columns.to_numpy()[rows["symbol"].to_numpy(dtype=np.int64)]
        rows["entry_time"] = self.dates[entered]
        rows["exit_time"] = until.where(left >= 0)
        rows["holding_days"] = (until - self.dates[entered]).days
        return rows.sort_values(["entry_time", "symbol"], kind="stable", ignore_index=True)

    def _round_trips(self) -> Iterator[tuple[Any, ...]]:
        # As plain numbers: reading a field of a structured array costs a microsecond each.
        names = ("col", "idx", "size", "fees", "side", "raw_size", "raw_price")
        records = zip(*(self.fills.orders[name].tolist() for name in names), strict=True)
        for column, mine in groupby(records, key=itemgetter(0)):
            yield from self._round_trips_of(column, mine)

    def _round_trips_of(
        self, column: int, records: Iterable[tuple[Any, ...]]
    ) -> Iterator[tuple[Any, ...]]:
        """Yield one symbol's trades; what is held at the end is valued at its last close."""
        entered = 0
        units = put_in = shares = paid = 0.0
        for _, bar, size, fees, side, raw_size, raw_price in records:
            notional = raw_size * raw_price
            if side == _BUY:
                if units == 0.0:
                    entered = bar
                units += size
                put_in += notional + fees
                shares += raw_size
                paid += notional
                continue
            part = min(size / units, 1.0)
            money = (put_in * part, notional - fees)
            yield _trade(column, entered, bar, raw_size, paid / shares, raw_price, *money)
            left = 1.0 - part if part < 1.0 - _DUST else 0.0
            units, put_in, shares, paid = units * left, put_in * left, shares * left, paid * left
        if units > 0.0:
            _, mark, adjust = self.setup.arrays
            last = int(np.flatnonzero(~np.isnan(mark[:, column]))[-1])
            price = float(mark[last, column])
            held = units * float(adjust[last, column])
            money = (put_in, held * price)
            yield _trade(column, entered, -1, held, paid / shares, price, *money)

    @cached_property
    def unfilled(self) -> pd.DataFrame:
        """Bars on which an intent was not filled, symbols x causes."""
        return pd.DataFrame(
            self.fills.unfilled, index=self.prices.columns, columns=list(CAUSES), dtype="int64"
        )

    @cached_property
    def costs(self) -> dict[str, float]:
        """Money paid: `commission`, `transfer`, `stamp`, and lost to `slippage`."""
        records = self.fills.orders
        fill, mark, _ = self.setup.arrays
        at_end = records["reason"] == REASONS.index("end_of_backtest")
        where = (records["idx"], records["col"])
        quoted = np.where(at_end, mark[where], fill[where])
        lost = np.abs(records["raw_price"] - quoted) * records["raw_size"]
        named = {name: float(records[name].sum()) for name in ("commission", "transfer", "stamp")}
        return {**named, "slippage": float(lost.sum())}

    @cached_property
    def metrics(self) -> Metrics:
        """Metrics of the graded bars; see `kit.backtest.metrics`."""
        traded = float((self.fills.orders["raw_size"] * self.fills.orders["raw_price"]).sum())
        periods = bars_per_year(pd.DatetimeIndex(self.equity.index))
        first = self.setup.first
        return compute(
            self.equity,
            trades=self.trades,
            benchmark=self.benchmark,
            exposure=pd.Series(self.fills.exposure[first:], index=self.dates[first:]),
            turnover=annual_turnover(traded, self.equity, periods),
        )

    def again(self, setup: Setup) -> BacktestResult:
        """Simulate the same weights under another setup."""
        return BacktestResult(
            setup=setup,
            fills=setup.simulate(self.weights),
            weights=self.weights,
            prices=self.prices,
            notes=self.notes,
            dropped=self.dropped,
            benchmark=self.benchmark,
        )

    @cached_property
    def portfolio(self) -> Any:
        """The same orders as one cash-shared `vectorbt.Portfolio`, for plots and statistics.

        Only symbols that were ever traded are in it. It cannot be sliced (vectorbt does not slice
        a group that shares cash): use `symbol` and `between`.

        Raises:
            KitError: `backtest.needs_lab` where vectorbt is not installed.
        """
        traded = np.unique(self.fills.orders["col"])
        columns = traded if len(traded) else np.array([0])
        return self._build(columns, slice(None), self.initial_cash, self.fills.orders, grouped=True)

    def symbol(self, symbol: str) -> Any:
        """Return a `vectorbt.Portfolio` of one symbol's orders, alone on the initial cash.

        Raises:
            UsageError: `backtest.unknown_symbol`.
            KitError: `backtest.needs_lab`.
        """
        if symbol not in self.prices.columns:
            raise UsageError(
                "backtest.unknown_symbol",
                f"{symbol} is not in this backtest",
                remedy=f"one of: {', '.join(map(str, self.prices.columns))}",
            )
        column = list(self.prices.columns).index(symbol)
        mine = self.fills.orders[self.fills.orders["col"] == column]
        return self._build(np.array([column]), slice(None), self.initial_cash, mine, grouped=False)

    def between(self, first: date, last: date) -> Any:
        """Return a `vectorbt.Portfolio` of the orders of a stretch of time, both days included.

        What was held before appears as a purchase without cost at the close before the stretch,
        so that its curve goes on from the account's own.

        Raises:
            UsageError: `backtest.bad_range` when no bar lies between.
            KitError: `backtest.needs_lab`.
        """
        begin = int(self.dates.searchsorted(pd.Timestamp(first)))
        stop = int(self.dates.searchsorted(pd.Timestamp(last), side="right"))
        if begin >= stop:
            raise UsageError(
                "backtest.bad_range",
                f"no bar lies between {first} and {last}",
                remedy=f"the backtest runs from {self.start} to {self.end}",
            )
        records = self.fills.orders
        before, within = (
            records[records["idx"] < begin],
            records[(records["idx"] >= begin) & (records["idx"] < stop)],
        )
        base = max(begin - 1, 0)
        opening = self._opening(before, base)
        moved = np.concatenate([opening, within])
        moved["idx"] -= base
        worth = float(self.fills.equity[base]) if begin else self.initial_cash
        columns = np.unique(moved["col"]) if len(moved) else np.array([0])
        return self._build(columns, slice(base, stop), worth, moved, grouped=True)

    def _opening(self, before: Any, bar: int) -> Any:
        """Return one costless purchase a symbol held at the close of `bar`."""
        signed = np.where(before["side"] == _BUY, before["size"], -before["size"])
        held = np.bincount(before["col"], weights=signed, minlength=len(self.prices.columns))
        columns = np.flatnonzero(held > 1e-9)
        close = self.prices.ffill().to_numpy()
        opening = np.zeros(len(columns), dtype=before.dtype)
        opening["col"], opening["idx"], opening["size"] = columns, bar, held[columns]
        opening["price"] = close[bar, columns]
        return opening

    def _build(self, columns: Any, rows: slice, cash: float, records: Any, *, grouped: bool) -> Any:
        try:
            import vectorbt as vbt
            from vectorbt.portfolio.enums import log_dt, order_dt
        except ImportError as error:
            raise KitError(
                "backtest.needs_lab",
                "vectorbt is not installed",
                remedy="install the research extra: pip install 'kit[lab]'",
            ) from error
        # Filled before it is cut: a stretch that begins in a halt begins at the last close.
        close = self.prices.ffill().iloc[rows, columns].bfill()
        orders = np.zeros(len(records), dtype=order_dt)
        for name in _VECTORBT_FIELDS:
            orders[name] = records[name]
        orders["col"] = np.searchsorted(columns, records["col"])
        # A stable sort: what was bought and left on one bar stays in that order.
        orders = orders[np.lexsort((orders["idx"], orders["col"]))]
        orders["id"] = np.arange(len(orders))
        group = np.zeros(len(columns), dtype=int) if grouped else None
        close = close if grouped else close.iloc[:, 0]
        wrapper = vbt.ArrayWrapper.from_obj(close, freq="1D", group_by=group)
        return vbt.Portfolio(
            wrapper,
            close,
            orders,
            np.zeros(0, dtype=log_dt),
            np.array([cash]),
            grouped,
            call_seq=None,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the shape `kit backtest --json` prints; finite numbers only."""
        return {
            "start": str(self.start),
            "end": str(self.end),
            "initial_cash": self.initial_cash,
            "final_value": round(float(self.equity.iloc[-1]), 2),
            "metrics": self.metrics.to_dict(),
            "costs": {name: round(value, 2) for name, value in self.costs.items()},
            "orders": len(self.fills.orders),
            "symbols": [str(symbol) for symbol in self.prices.columns],
            "dropped": [{"symbol": one.symbol, "reason": one.reason} for one in self.dropped],
            "notes": list(self.notes),
        }

    @property
    def headline(self) -> str:
        """The result in one Chinese sentence."""
        return headline(self.metrics.to_dict(), self.start, self.end, len(self.trades))

    def summary(self) -> str:
        """Return the result as a few lines for a terminal."""
        lines = [self.headline]
        lines += [f"  {label} {text}" for label, text in metric_rows(self.metrics.to_dict())]
        lines += [f"  注：{note}" for note in self.notes]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return self.summary()

    def _repr_html_(self) -> str:
        from html import escape

        from kit.render import html_table, line_chart

        notes = "".join(f"<li>{escape(note)}</li>" for note in self.notes)
        return (
            f"<p><b>{escape(self.headline)}</b></p>"
            f"{line_chart(self.equity / self.initial_cash, title='净值')}"
            f"{html_table(metric_rows(self.metrics.to_dict()), ('指标', '数值'), 'lr')}"
            f"<ul>{notes}</ul>"
        )


def _trade(
    column: int,
    entered: int,
    left: int,
    size: float,
    entry_price: float,
    exit_price: float,
    put_in: float,
    taken_out: float,
) -> tuple[Any, ...]:
    """Return one row of `trades`, with places for names and times; -1 for one still open."""
    gained = taken_out - put_in
    return column, entered, left, size, entry_price, exit_price, gained, gained / put_in, 0
