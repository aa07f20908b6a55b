"""Trading rules by date: lots, price limits, fees, settlement.

Every number comes from `config/markets.json`, where it stands with its source and the date it took
effect; the code holds none. Before the first row of a table the answer is an error, not a guess.
Prices and limits are raw, in currency; arrays are [T, N], dates by symbols.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from kit.errors import ConfigError, DataError
from kit.market.calendars import Calendar, calendar
from kit.market.dated import DatedTable, Days, as_days
from kit.market.fees import FeeBook, Fees, FeeSchedule
from kit.market.markets import market_config
from kit.market.sources import Security, board_of
from kit.workspace import Workspace

__all__ = ["MarketRules"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
_BPS: Final = 10_000
_ANY: Final = "*"  # a board row that holds for every board without one of its own


class MarketRules:
    """The rules of one market. Load it with `MarketRules.load`.

    Attributes:
        market: Its key.
        currency: ISO code.
    """

    def __init__(
        self, market: str, currency: str, rules: Mapping[str, Any], book: Calendar
    ) -> None:
        self.market = market
        self.currency = currency
        self._book = book
        self._t_plus = DatedTable(rules["t_plus"], "the settlement rule")
        self._ticks = _grouped(rules["ticks"], ("kind",), "price step")
        self._lots = _grouped(rules["lots"], ("board",), "lot size")
        self._limits = _grouped(rules["price_limits"], ("board", "st"), "price limit")
        self._first = _grouped(rules["first_days"], ("board",), "first-days rule", "listed_from")
        self._fees = FeeBook(rules)

    @classmethod
    def load(cls, workspace: Workspace, market: str) -> MarketRules:
        """Load the rules of a market.

        Raises:
            UsageError: `market.unknown`.
            ConfigError: `rules.no_table` when the market has none on file.
        """
        entry = market_config(workspace, market)
        if "rules" not in entry:
            raise ConfigError(
                "rules.no_table",
                f"market {market!r} has no trading rules on file",
                where=f"config/markets.json: markets.{market}.rules",
                remedy="add the table with its sources, or run without market rules",
            )
        return cls(market, entry["currency"], entry["rules"], calendar(workspace, market))

    @property
    def t_plus(self) -> int:
        """Sessions a buyer must wait before selling, by the newest rule."""
        return int(self._t_plus.rows[-1]["value"])

    def tick(self, price: float, on: date, kind: str = "stock") -> float:
        """Return the price step at a raw price, in currency.

        Raises:
            DataError: `rules.before_table` or `rules.no_board` (no steps for that kind).
        """
        steps = self._table(self._ticks, (kind,)).at(on)["steps"]
        return float(next(step for bound, step in steps if bound is None or price <= bound))

    def lots(self, symbols: Sequence[Security | str], on: date) -> tuple[Ints, Ints]:
        """Return the smallest order to buy and the step above it, in shares; two arrays [N].

        Args:
            symbols: Securities, or codes whose board is told from the code.
            on: Trade date.

        Raises:
            DataError: `rules.before_table`, `rules.no_board`, or `rules.no_lot` where the board
                lot is each security's own and is not on file.
        """
        minimum, step = self.lots_by_date(symbols, [on])
        return minimum[0], step[0]

    def lots_by_date(
        self, symbols: Sequence[Security | str], dates: Sequence[date] | Days
    ) -> tuple[Ints, Ints]:
        """Return `lots` on each date, two arrays [T, N]; before a rule, its first row.

        Read-only, and without a cost in memory while no lot changes in the window.

        Raises:
            DataError: As `lots`; `rules.before_table` when no date is on file.
        """
        days = as_days(dates)
        # Filled symbol by symbol, so symbols are the rows while it lasts.
        minimum = np.empty((len(symbols), len(days)), dtype=np.int64)
        step = np.empty_like(minimum)
        for column, symbol in enumerate(symbols):
            table = self._table(self._lots, (_rule_board(symbol),))
            places = table.places(days)
            if places[-1] < 0:
                raise table.before(days[-1].astype(datetime))
            rows = [_lot(row, symbol) for row in table.rows]
            picked = np.asarray(rows, dtype=np.int64)[np.maximum(places, 0)]
            minimum[column], step[column] = picked.T
        return _thin(minimum.T), _thin(step.T)

    def limit_prices(
        self,
        prev_close: Floats,
        dates: Sequence[date] | npt.NDArray[np.datetime64],
        securities: Sequence[Security],
        *,
        is_st: npt.NDArray[np.bool_] | None = None,
        adjust_kinds: Mapping[str, str] | None = None,
        stored: tuple[Floats, Floats] | None = None,
    ) -> tuple[Floats, Floats]:
        """Return the lowest and the highest price each symbol may trade at on each date.

        `prev close x (1 -+ limit)`, rounded half up to the tick; at least one tick away from the
        previous close, and never below one tick.

        Args:
            prev_close: Raw close of the session before, [T, N]; NaN gives NaN.
            dates: The T sessions; anything numpy turns into days.
            securities: The N securities.
            is_st: Special treatment by date, [T, N]; default `Security.is_st` throughout.
            adjust_kinds: What each symbol's prices carry; limits of a `qfq` symbol are off, as
                its raw price is not known.
            stored: (down, up) as the source knows them, [T, N]; they win where they are not NaN.

        Returns:
            (down, up), each [T, N], NaN where no limit applies: indexes, restated series, and the
            first sessions after a listing.

        Raises:
            DataError: `rules.before_table` for a date with a price before the first row.
        """
        days = as_days(dates)
        # Worked out symbol by symbol, so symbols are the rows while it lasts.
        before = np.ascontiguousarray(prev_close.T)
        down = np.full(before.shape, np.nan)
        up = np.full(before.shape, np.nan)
        for column, security in enumerate(securities):
            restated = (adjust_kinds or {}).get(security.symbol) == "qfq"
            if security.kind == "index" or restated:
                continue
            flags = (
                np.full(len(days), security.is_st)
                if is_st is None
                else np.asarray(is_st[:, column], dtype=bool)
            )
            down_bps, up_bps = self._bps(security, days, flags, before[column])
            if np.isnan(down_bps).all() and np.isnan(up_bps).all():
                continue
            # A market with limits has one step for all prices.
            steps = self._table(self._ticks, (security.kind,)).rows[-1]["steps"]
            per_unit = round(1 / steps[0][1])
            down[column], up[column] = _limits(before[column], down_bps, up_bps, per_unit)
        down, up = down.T, up.T
        if stored is not None:
            down = np.where(np.isnan(stored[0]), down, stored[0])
            up = np.where(np.isnan(stored[1]), up, stored[1])
        return down, up

    def _bps(
        self,
        security: Security,
        days: Days,
        st: npt.NDArray[np.bool_],
        prev_close: Floats,
    ) -> tuple[Floats, Floats]:
        """Return one symbol's limits in basis points by date, NaN for none; two arrays [T]."""
        board = _rule_board(security)
        down, up = np.full(len(days), np.nan), np.full(len(days), np.nan)
        for flag in (False, True):
            mine = st == flag
            if not mine.any():
                continue
            table = self._table(self._limits, (board, flag))
            places = table.places(days)
            early = mine & (places < 0) & np.isfinite(prev_close)
            if early.any():
                raise table.before(days[int(np.argmax(early))].astype(datetime))
            places = np.maximum(places, 0)
            down[mine] = _column(table, "down_bps")[places][mine]
            up[mine] = _column(table, "up_bps")[places][mine]
        rule = self._first_days(security, board)
        if rule is not None:
            new = self._sessions_since(security, days) < rule["sessions"]
            down[new] = np.nan if rule["down_bps"] is None else rule["down_bps"]
            up[new] = np.nan if rule["up_bps"] is None else rule["up_bps"]
        return down, up

    def _first_days(self, security: Security, board: str) -> Mapping[str, Any] | None:
        table = self._first.get((board,))
        if table is None or security.listed_date is None or security.listed_date < table.starts[0]:
            return None
        return table.at(security.listed_date)

    def _sessions_since(self, security: Security, days: Days) -> Ints:
        """Return how many sessions after its listing each day is: 0 on the first.

        Days past the calendar's horizon are sessions because there are bars on them.
        """
        listed = np.datetime64(security.listed_date, "D")
        book = self._book.dates_array()
        axis = np.union1d(book, days)
        if not len(axis) or listed < axis[0]:
            return np.full(len(days), np.iinfo(np.int64).max)
        since = np.searchsorted(axis, days) - np.searchsorted(axis, listed)
        return np.where(since < 0, np.iinfo(np.int64).max, since).astype(np.int64)

    def fee_schedule(
        self, dates: Sequence[date] | Days, kinds: Sequence[str] = ("stock",)
    ) -> FeeSchedule:
        """Return every charge of the market on each date for each kind of security.

        Raises:
            DataError: `rules.before_table`.
        """
        return self._fees.schedule(as_days(dates), kinds)

    def fees(
        self,
        side: Literal["buy", "sell"],
        notional: float | Decimal,
        on: date,
        kind: str = "stock",
        *,
        shares: float | None = None,
    ) -> Fees:
        """Return the fees of one fill, every charge rounded by its own rule.

        Args:
            side: `buy` or `sell`.
            notional: Price times shares, in currency; zero costs nothing.
            on: Trade date.
            kind: `stock` or `fund`.
            shares: How many; needed where a charge is by the share.

        Raises:
            UsageError: `rules.bad_fill` for another side, a negative or endless notional, or
                shares that are needed and not given.
            DataError: `rules.before_table`.
        """
        return self._fees.fees(side, notional, on, kind, shares)

    def _table(
        self, tables: Mapping[tuple[Any, ...], DatedTable], key: tuple[Any, ...]
    ) -> DatedTable:
        # A market without special treatment has one row for every board, whatever the flag.
        found = tables.get(key) or tables.get((_ANY, *key[1:])) or tables.get((_ANY, False))
        if found is None:
            raise DataError(
                "rules.no_board",
                f"the rules of market {self.market!r} have no row for {key[0]!r}"
                + (" under special treatment" if key[1:] == (True,) else ""),
                where="config/markets.json",
                remedy="add the row with its source, or drop the symbol",
            )
        return found


def _grouped(
    rows: Sequence[Mapping[str, Any]],
    keys: tuple[str, ...],
    what: str,
    start: str = "effective_from",
) -> dict[tuple[Any, ...], DatedTable]:
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    return {
        key: DatedTable(group, f"the {what} of {key[0]}", start) for key, group in groups.items()
    }


def _column(table: DatedTable, key: str) -> Floats:
    return np.asarray([np.nan if row[key] is None else row[key] for row in table.rows], float)


def _lot(row: Mapping[str, Any], symbol: Security | str) -> tuple[int, int]:
    if row["minimum"] is not None:
        return row["minimum"], row["step"]
    lot = None if isinstance(symbol, str) else symbol.lot
    if lot is None:
        name = symbol if isinstance(symbol, str) else symbol.symbol
        raise DataError(
            "rules.no_lot",
            f"the board lot of {name} is not on file",
            where="securities.json",
            remedy='write it beside the bars: {"symbol": ..., "lot": ...}',
        )
    return lot, lot


def _thin(values: Ints) -> Ints:
    """Return rows that are all equal as one row, repeated without being copied; read-only."""
    same = len(values) > 0 and bool((values == values[0]).all())
    thin = np.broadcast_to(values[0], values.shape) if same else values
    thin.flags.writeable = False
    return thin


def _rule_board(security: Security | str) -> str:
    if isinstance(security, str):
        return board_of(security)
    return "fund" if security.kind == "fund" else security.board


def _limits(
    prev_close: Floats, down_bps: Floats, up_bps: Floats, per_unit: int
) -> tuple[Floats, Floats]:
    """Compute limits in whole ticks, so that rounding half up is exact; arrays [T]."""
    real = np.isfinite(prev_close)
    ticks = np.rint(np.where(real, prev_close, 0) * per_unit).astype(np.int64)

    def bound(bps: Floats, sign: int) -> Floats:
        has = real & np.isfinite(bps)
        scaled = ticks * (_BPS + sign * np.where(has, bps, 0).astype(np.int64))
        rounded = (scaled + _BPS // 2) // _BPS
        clear = np.maximum(rounded, ticks + 1) if sign > 0 else np.minimum(rounded, ticks - 1)
        return np.where(has, np.maximum(clear, 1) / per_unit, np.nan)

    return bound(down_bps, -1), bound(up_bps, 1)
