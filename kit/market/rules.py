"""Trading rules by date: lots, price limits, fees, settlement.

Every number comes from `config/markets.json`, where it stands with its source and the date it took
effect; the code holds none. Before the first row of a table the answer is an error, not a guess.
Prices and limits are raw, in currency; arrays are [T, N], dates by symbols.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from kit.clock import parse_date
from kit.errors import ConfigError, DataError, UsageError
from kit.market.calendars import Calendar, calendar
from kit.market.markets import market_config
from kit.market.sources import Security, board_of
from kit.workspace import Workspace

__all__ = ["FeeRates", "Fees", "MarketRules"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
_CENT: Final = Decimal("0.01")
_NOISE: Final = Decimal("0.000001")  # below this a float notional is rounding, not money
_BPS: Final = 10_000


@dataclass(frozen=True, kw_only=True)
class FeeRates:
    """Rates of a kind of security on each date, as fractions of the notional.

    Attributes:
        commission: Both sides.
        commission_min: Least commission of one order, in currency.
        transfer: Both sides; shape [T].
        stamp_buy: Shape [T].
        stamp_sell: Shape [T].
    """

    commission: float
    commission_min: float
    transfer: Floats
    stamp_buy: Floats
    stamp_sell: Floats


@dataclass(frozen=True, kw_only=True)
class Fees:
    """Fees of one fill, each rounded half up to the cent, in currency.

    Attributes:
        commission: The broker's.
        transfer: The depository's.
        stamp: The state's.
    """

    commission: Decimal
    transfer: Decimal
    stamp: Decimal

    @property
    def total(self) -> Decimal:
        """All of them."""
        return self.commission + self.transfer + self.stamp


class _Table:
    """Rows that took effect one after the other."""

    def __init__(self, rows: Sequence[Mapping[str, Any]], what: str, start: str) -> None:
        ordered = sorted(rows, key=lambda row: str(row[start]))
        self.rows = tuple(ordered)
        self.starts = [parse_date(row[start]) for row in ordered]
        self.what = what

    def at(self, day: date) -> Mapping[str, Any]:
        place = bisect_right(self.starts, day) - 1
        if place < 0:
            raise self.before(day)
        return self.rows[place]

    def places(self, days: npt.NDArray[np.datetime64]) -> Ints:
        """Return the row in force on each day, -1 before the first."""
        starts = np.asarray(self.starts, dtype="datetime64[D]")
        return np.searchsorted(starts, days, side="right").astype(np.int64) - 1

    def before(self, day: date) -> DataError:
        return DataError(
            "rules.before_table",
            f"{self.what} is on file from {self.starts[0]}, not on {day}",
            where="config/markets.json",
            remedy="add the earlier row with its source, or begin later",
        )


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
        self._t_plus = _Table(rules["t_plus"], "the settlement rule", "effective_from")
        self._ticks = {row["kind"]: float(row["value"]) for row in rules["ticks"]}
        self._lots = _grouped(rules["lots"], ("board",), "lot size", "effective_from")
        self._limits = _grouped(
            rules["price_limits"], ("board", "st"), "price limit", "effective_from"
        )
        self._first = _grouped(rules["first_days"], ("board",), "first-days rule", "listed_from")
        self._commission = rules["commission"]
        self._transfer = _Table(rules["transfer"], "the transfer fee", "effective_from")
        self._stamp = _Table(rules["stamp"], "the stamp duty", "effective_from")

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

    def tick(self, kind: str = "stock") -> float:
        """Return the price step of a kind of security, in currency."""
        return self._ticks[kind]

    def lots(self, symbols: Sequence[Security | str], on: date) -> tuple[Ints, Ints]:
        """Return the smallest order to buy and the step above it, in shares; two arrays [N].

        Args:
            symbols: Securities, or codes whose board is told from the code.
            on: Trade date.

        Raises:
            DataError: `rules.before_table` or `rules.no_board`.
        """
        rows = [self._board_table(self._lots, (_rule_board(s),)).at(on) for s in symbols]
        minimum = np.asarray([row["minimum"] for row in rows], dtype=np.int64)
        return minimum, np.asarray([row["step"] for row in rows], dtype=np.int64)

    def limit_prices(
        self,
        prev_close: Floats,
        dates: Sequence[date] | npt.NDArray[np.datetime64],
        securities: Sequence[Security],
        *,
        is_st: npt.NDArray[np.bool_] | None = None,
        adjust_kinds: Mapping[str, str] | None = None,
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

        Returns:
            (down, up), each [T, N], NaN where no limit applies: indexes, restated series, and the
            first sessions after a listing.

        Raises:
            DataError: `rules.before_table` for a date with a price before the first row.
        """
        days = np.asarray(dates).astype("datetime64[D]")
        down = np.full(prev_close.shape, np.nan)
        up = np.full(prev_close.shape, np.nan)
        for column, security in enumerate(securities):
            restated = (adjust_kinds or {}).get(security.symbol) == "qfq"
            if security.kind == "index" or restated:
                continue
            flags = (
                np.full(len(days), security.is_st)
                if is_st is None
                else np.asarray(is_st[:, column], dtype=bool)
            )
            down_bps, up_bps = self._bps(security, days, flags, prev_close[:, column])
            per_unit = round(1 / self._ticks[security.kind])
            down[:, column], up[:, column] = _limits(
                prev_close[:, column], down_bps, up_bps, per_unit
            )
        return down, up

    def _bps(
        self,
        security: Security,
        days: npt.NDArray[np.datetime64],
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
            table = self._board_table(self._limits, (board, flag))
            places = table.places(days)
            early = mine & (places < 0) & np.isfinite(prev_close)
            if early.any():
                raise table.before(days[int(np.argmax(early))].astype(datetime))
            places = np.maximum(places, 0)
            down[mine] = np.asarray([row["down_bps"] for row in table.rows])[places][mine]
            up[mine] = np.asarray([row["up_bps"] for row in table.rows])[places][mine]
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

    def _sessions_since(self, security: Security, days: npt.NDArray[np.datetime64]) -> Ints:
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

    def fee_rates(
        self, dates: Sequence[date] | npt.NDArray[np.datetime64], kind: str = "stock"
    ) -> FeeRates:
        """Return the rates of a kind of security on each date.

        Raises:
            DataError: `rules.before_table`.
        """
        days = np.asarray(dates).astype("datetime64[D]")

        def rates(table: _Table, key: str) -> Floats:
            places = table.places(days)
            if (places < 0).any():
                raise table.before(days[int(np.argmax(places < 0))].astype(datetime))
            values = [row[key] if kind in row["kinds"] else 0.0 for row in table.rows]
            picked: Floats = np.asarray(values, dtype=np.float64)[places]
            return picked

        return FeeRates(
            commission=float(self._commission["rate"]),
            commission_min=float(self._commission["minimum"]),
            transfer=rates(self._transfer, "rate"),
            stamp_buy=rates(self._stamp, "buy"),
            stamp_sell=rates(self._stamp, "sell"),
        )

    def fees(
        self,
        side: Literal["buy", "sell"],
        notional: float | Decimal,
        on: date,
        kind: str = "stock",
    ) -> Fees:
        """Return the fees of one fill, each rounded half up to the cent.

        Args:
            side: `buy` or `sell`.
            notional: Price times shares, in currency; zero costs nothing.
            on: Trade date.
            kind: `stock` or `fund`.

        Raises:
            UsageError: `rules.bad_fill` for another side or a negative or endless notional.
            DataError: `rules.before_table`.
        """
        money = Decimal(str(notional))
        if side not in ("buy", "sell") or not money.is_finite() or money < 0:
            raise UsageError(
                "rules.bad_fill",
                f"a fill of {notional} on side {side!r} has no fees",
                remedy="the side is buy or sell, the notional a finite number of at least 0",
            )
        money = money.quantize(_NOISE, ROUND_HALF_UP)
        if not money:
            return Fees(commission=Decimal("0.00"), transfer=Decimal("0.00"), stamp=Decimal("0.00"))
        transfer, stamp = self._transfer.at(on), self._stamp.at(on)
        least = Decimal(str(self._commission["minimum"]))
        return Fees(
            commission=_cents(max(money * Decimal(str(self._commission["rate"])), least)),
            transfer=_charge(money, transfer, "rate", kind),
            stamp=_charge(money, stamp, side, kind),
        )

    def _board_table(
        self, tables: Mapping[tuple[Any, ...], _Table], key: tuple[Any, ...]
    ) -> _Table:
        if key not in tables:
            raise DataError(
                "rules.no_board",
                f"the rules of market {self.market!r} have no row for board {key[0]!r}"
                + (" under special treatment" if key[1:] == (True,) else ""),
                where="config/markets.json",
                remedy="add the row with its source, or drop the symbol",
            )
        return tables[key]


def _grouped(
    rows: Sequence[Mapping[str, Any]], keys: tuple[str, ...], what: str, start: str
) -> dict[tuple[Any, ...], _Table]:
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    return {key: _Table(group, f"the {what} of {key[0]}", start) for key, group in groups.items()}


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


def _cents(money: Decimal) -> Decimal:
    return money.quantize(_CENT, ROUND_HALF_UP)


def _charge(money: Decimal, row: Mapping[str, Any], key: str, kind: str) -> Decimal:
    return _cents(money * Decimal(str(row[key]))) if kind in row["kinds"] else Decimal("0.00")
