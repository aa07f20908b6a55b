"""`MarketPanel`: the bars a strategy sees, in the three shapes strategies like.

A mapping of plain data frames for any engine written against a `data_map`; a long polars frame
and wide matrices for vectorised ones. Frames are built when asked for and are always copies: what
an engine does to one changes neither the panel nor what is executed.

**Adjustment.** Raw prices and the factor are kept apart, and views are computed:

* `none`: the raw price;
* `forward`: `raw x factor / factor at the anchor`, so that the price at the anchor is the raw one;
* `backward`: `raw x factor`.

The anchor of a forward view is a declared choice: the last bar at or before `anchor` (by default
the end of the window asked for). `upto` keeps it, so every prefix of a panel shows the same
numbers as the whole. That is also where a leak can hide: a forward level depends on dividends
paid later, up to the anchor. `upto(date, reanchor=True)` gives the levels as they stood on that
date; a rule that uses ratios only does not see the difference, a rule that compares levels does.
Volume is never adjusted: it is the number of shares that traded.
"""

from __future__ import annotations

import copy
import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd
import polars as pl

from kit import files
from kit.errors import DataError, UsageError
from kit.market.bars import BAR_COLUMNS, PRICE_COLUMNS, fingerprint_frame
from kit.market.columns import BarColumns, Codes, Floats

if TYPE_CHECKING:
    from kit.market.sources import BarSource, Security

__all__ = ["ADJUSTMENTS", "MarketPanel", "load_panel"]

ADJUSTMENTS: Final = ("none", "forward", "backward")
_FRAME = ("open", "high", "low", "close", "volume")
_LONG = ("symbol", "time", *_FRAME, "amount")
_WIDE = (*_FRAME, "amount", "adj_factor", "limit_up", "limit_down", "is_st", "suspended")


class MarketPanel(Mapping[str, pd.DataFrame]):
    """Bars of several symbols of one market, read lazily and never changed.

    Made by `load_panel`; `upto` and `select` give views that share what has been read.

    Attributes:
        market: `cn`, `hk` or `us`.
        interval: `1d`, `1m`, ...
        adjustment: One of `ADJUSTMENTS`.
        source: Name of the source that served the bars.
        securities: What the source knows of the symbols, for rules that look at industries.
        context: Read-only series of other markets beside it, see `kit.market.context`; or None.
            As a mapping the panel holds their frames too; `symbols`, `dates` and the wide and long
            views are of the panel's own market alone.
    """

    def __init__(
        self,
        columns: BarColumns,
        *,
        market: str,
        adjustment: str,
        interval: str = "1d",
        source: str = "",
        securities: Iterable[Security] = (),
        anchor: date | None = None,
    ) -> None:
        self.market = market
        self.interval = interval
        self.adjustment = adjustment
        self.source = source
        self.securities = {security.symbol: security for security in securities}
        self.context: MarketPanel | None = None
        self._anchor = anchor
        self._columns = columns
        self._members: Codes = np.arange(len(columns.symbols))
        self._stop = len(columns.times)
        self._anchors: Floats | None = None
        self._built: list[int] = [0]
        self._place: dict[str, int] = {}
        self._settle()

    def _settle(self) -> None:
        """Work out what follows from the members and the end of the view."""
        names = self._columns.symbols
        self._place = {names[code]: int(code) for code in self._members}
        self._names = pd.Index(list(self._place))
        self._whole = np.array_equal(self._members, np.arange(len(names)))
        if self._whole:
            self._positions: Codes = np.arange(self._stop)
            return
        seen = np.zeros(self._stop, dtype=bool)
        for code in self._members:
            seen[self._columns.time_codes[self._rows_of(int(code))]] = True
        self._positions = np.flatnonzero(seen)

    def _rows_of(self, code: int) -> slice:
        """Return where one symbol's bars of this view stand in the columns."""
        end = self._columns.ends(np.asarray([code]), self._stop)[0]
        return slice(int(self._columns.starts[code]), int(end))

    # What it holds

    @property
    def symbols(self) -> tuple[str, ...]:
        """Symbols, in the order asked for."""
        return tuple(self._place)

    @property
    def dates(self) -> pd.DatetimeIndex:
        """Every bar time of any symbol, ascending."""
        return pd.DatetimeIndex(self._columns.times[self._positions])

    @property
    def last_date(self) -> date:
        """The session of the last bar."""
        return self._time_of(int(self._positions[-1])).date()

    def _time_of(self, position: int) -> datetime:
        stamp: datetime = self._columns.times[position].astype(datetime)
        return stamp

    @property
    def synthetic(self) -> bool:
        """Whether any of the bars was generated rather than observed."""
        return self._columns.synthetic() or (self.context is not None and self.context.synthetic)

    @property
    def adjust_kinds(self) -> dict[str, str]:
        """What each symbol's source prices already carry: `none`, `split` or `qfq`."""
        kinds = self._columns.adjust_kinds()
        return {symbol: kinds[symbol] for symbol in self._place}

    @property
    def frames_built(self) -> int:
        """How many frames have been built so far, by this panel and the views made from it."""
        return self._built[0]

    @property
    def fingerprint(self) -> str:
        """SHA-256 over the bars, the adjustment and the anchors: what the numbers depend on."""
        facts = {
            "market": self.market,
            "interval": self.interval,
            "adjustment": self.adjustment,
            "anchors": [float(value) for value in self._divisors()],
            "bars": fingerprint_frame(self.raw),
        }
        if self.context is not None:
            facts["context"] = self.context.fingerprint
        return files.sha256_bytes(files.canonical_json(facts))

    def notes(self) -> tuple[str, ...]:
        """Say in Chinese what these prices leave out, for cards and reports; often empty."""
        kinds = self.adjust_kinds
        factors = self._columns.column("adj_factor")
        starts = self._columns.starts
        bare = [
            s
            for s, code in self._place.items()
            if kinds[s] == "none" and bool((factors[starts[code] : starts[code + 1]] == 1).all())
        ]
        restated = [s for s in self._place if kinds[s] == "qfq"]
        said = ["合成数据"] if self.synthetic else []
        if bare:
            said.append(f"价格收益，未计分红：{'、'.join(bare)}")
        if restated:
            said.append(f"仅有前复权价，涨跌停规则关闭：{'、'.join(restated)}")
        if self.context is not None:
            said.append(f"参考序列只读、不交易，收盘后才可见：{'、'.join(self.context.symbols)}")
        return tuple(said)

    # Frames

    def __getitem__(self, symbol: str) -> pd.DataFrame:
        if self.context is not None and symbol not in self._place:
            return self.context[symbol]
        code = self._place[symbol]
        columns = self._columns
        columns.load((*_FRAME, *self._factor_columns()))
        rows = self._rows_of(code)
        values = np.empty((len(_FRAME), rows.stop - rows.start))
        for place, name in enumerate(_FRAME):
            values[place] = columns.column(name)[rows]
        if self._changes_prices():
            ratio = columns.column("adj_factor")[rows] / self._divisors_of(np.asarray([code]))
            values[: len(PRICE_COLUMNS)] *= ratio
        self._built[0] += 1
        index = pd.DatetimeIndex(columns.times[columns.time_codes[rows]])
        frame = pd.DataFrame(values.T, index=index, columns=list(_FRAME), copy=False)
        if symbol in self.securities:
            frame.attrs |= {
                "name": self.securities[symbol].name,
                "industry": self.securities[symbol].industry,
            }
        return frame

    def __iter__(self) -> Iterator[str]:
        yield from self._place
        yield from self.context or ()

    def __len__(self) -> int:
        return len(self._place) + len(self.context or ())

    def __contains__(self, symbol: object) -> bool:
        return symbol in self._place or symbol in (self.context or ())

    # Two panels are equal when they are one: comparing as mappings would build every frame.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        first, last = self._time_of(int(self._positions[0])), self._time_of(self._stop - 1)
        return (
            f"MarketPanel({self.market}, {len(self.symbols)} symbols, {len(self._positions)} bars, "
            f"{first:%Y-%m-%d}..{last:%Y-%m-%d}, {self.adjustment})"
        )

    # Wide

    def wide(self, field: str) -> pd.DataFrame:
        """Return one field as dates x symbols, float64, NaN where there is no bar; a copy.

        Args:
            field: open, high, low, close (adjusted), volume, amount, adj_factor, limit_up,
                limit_down, is_st or suspended (as stored; 1.0 and 0.0 for true and false).

        Raises:
            UsageError: `data.unknown_field`.
        """
        return self._wide_frame(field, adjusted=True)

    def wide_raw(self, field: str) -> pd.DataFrame:
        """Return one field as `wide` does, with prices as they traded."""
        return self._wide_frame(field, adjusted=False)

    def prefetch(self, fields: Iterable[str]) -> None:
        """Read several fields in one pass over the store; views of them then cost no reading.

        Raises:
            UsageError: `data.unknown_field`.
        """
        wanted = list(fields)
        for field in wanted:
            _known_field(field)
        self._columns.load((*wanted, *self._factor_columns()))

    def known(self, fields: Iterable[str]) -> frozenset[str]:
        """Return those of some optional fields that the source filled for at least one bar.

        Raises:
            UsageError: `data.unknown_field`.
        """
        wanted = list(fields)
        for field in wanted:
            _known_field(field)
        return self._columns.filled(wanted)

    def _wide_frame(self, field: str, *, adjusted: bool) -> pd.DataFrame:
        _known_field(field)
        factors = self._factor_columns() if adjusted and field in PRICE_COLUMNS else ()
        self._columns.load((field, *factors))
        matrix = self._part(field)
        if factors and self._changes_prices():
            matrix = matrix * (self._part("adj_factor") / self._divisors()[:, None])
        return pd.DataFrame(matrix.T, index=self.dates, columns=self._names.copy(), copy=True)

    def _part(self, field: str) -> Floats:
        matrix = self._columns.wide(field)
        if self._whole:
            return matrix[:, : self._stop]
        return matrix[np.ix_(self._members, self._positions)]

    # Long

    @property
    def raw(self) -> pl.DataFrame:
        """All bars as stored (`BAR_COLUMNS`), sorted by symbol and time; a copy."""
        frame = self._columns.raw()
        if not self._whole or self._stop != len(self._columns.times):
            rows = [self._rows_of(int(code)) for code in self._members]
            frame = frame[np.concatenate([np.arange(row.start, row.stop) for row in rows])]
        return frame.select(list(BAR_COLUMNS)).clone()

    @property
    def polars(self) -> pl.LazyFrame:
        """Bars as one long lazy frame over the store, prices adjusted.

        Columns: symbol, time, open, high, low, close, volume, amount. Nothing is read until it is
        collected, and only the columns that the query needs.
        """
        bars = self._columns.lazy()
        if not self._whole:
            bars = bars.filter(pl.col("symbol").is_in(list(self._place)))
        if self._stop != len(self._columns.times):
            bars = bars.filter(pl.col("time") <= self._time_of(self._stop - 1))
        if self._changes_prices():
            anchors = pl.LazyFrame({"symbol": list(self._place), "_anchor": self._divisors()})
            bars = bars.join(anchors, on="symbol", how="left", maintain_order="left")
            ratio = pl.col("adj_factor") / pl.col("_anchor")
            bars = bars.with_columns(pl.col(name) * ratio for name in PRICE_COLUMNS)
        return bars.select(_LONG)

    # Views

    def upto(self, day: date, *, reanchor: bool = False) -> MarketPanel:
        """Return what was known at the end of `day`: no later bar, no symbol without a bar.

        Args:
            day: Last session to keep.
            reanchor: Move the anchor of a forward view to `day` instead of keeping it.

        Raises:
            DataError: `data.no_bars` when nothing is left.
        """
        stop = min(self._stop, int(np.searchsorted(self._columns.times, _after(day))))
        kept = self._columns.ends(self._members, stop) > self._columns.starts[self._members]
        if not kept.any():
            raise DataError(
                "data.no_bars",
                f"no symbol of the panel has a bar up to {day}",
                remedy=f"the panel begins on {self._time_of(int(self._positions[0])):%Y-%m-%d}",
            )
        view = self._view(members=self._members[kept], stop=stop, anchor=day if reanchor else None)
        if self.context is not None:
            begun = bool((self.context.dates < pd.Timestamp(_after(day))).any())
            view.context = self.context.upto(day, reanchor=reanchor) if begun else None
        return view

    def beside(self, context: MarketPanel) -> MarketPanel:
        """Return a view with series of other markets beside it, dated to this one's sessions."""
        view = copy.copy(self)
        view.context = context
        return view

    def select(self, symbols: Iterable[str]) -> MarketPanel:
        """Return a view of some symbols, in that order.

        Raises:
            DataError: `data.unknown_symbol`.
        """
        wanted = list(dict.fromkeys(symbols))
        for symbol in wanted:
            if symbol not in self._place:
                near = difflib.get_close_matches(symbol, list(self._place), 1)
                raise DataError(
                    "data.unknown_symbol",
                    f"the panel has no {symbol!r}",
                    remedy=f"did you mean {near[0]}?" if near else "choose from panel.symbols",
                )
        if not wanted:
            raise DataError("data.no_bars", "no symbol is left", remedy="select at least one")
        return self._view(members=np.asarray([self._place[symbol] for symbol in wanted]))

    def _view(
        self, *, members: Codes, stop: int | None = None, anchor: date | None = None
    ) -> MarketPanel:
        view = copy.copy(self)
        view.__dict__ |= {
            "_members": members,
            "_stop": self._stop if stop is None else stop,
            "_anchor": self._anchor if anchor is None else anchor,
            # Kept as numbers, so that a view shows what the panel it came from shows.
            "_anchors": self._divisors_of(members) if anchor is None else None,
        }
        view._settle()  # noqa: SLF001 - a view of this very class
        return view

    # Adjustment

    def _factor_columns(self) -> tuple[str, ...]:
        return () if self.adjustment == "none" else ("adj_factor",)

    def _changes_prices(self) -> bool:
        """Whether adjusting is anything but multiplying by one."""
        return self.adjustment != "none" and not self._columns.plain()

    def _divisors(self) -> Floats:
        """Return what each member's factor is divided by; shape [members]."""
        if self._anchors is not None:
            return self._anchors
        if self.adjustment != "forward":
            self._anchors = np.ones(len(self._members))
            return self._anchors
        stop = len(self._columns.times)
        if self._anchor is not None:
            stop = int(np.searchsorted(self._columns.times, _after(self._anchor)))
        # A symbol that only begins after the anchor is anchored at its first bar.
        rows = np.maximum(
            self._columns.ends(self._members, stop) - 1, self._columns.starts[self._members]
        )
        self._anchors = self._columns.column("adj_factor")[rows]
        return self._anchors

    def _divisors_of(self, codes: Codes) -> Floats:
        spread = np.full(len(self._columns.symbols), np.nan)
        spread[self._members] = self._divisors()
        picked: Floats = spread[codes]
        return picked


def _known_field(field: str) -> None:
    if field not in _WIDE:
        near = difflib.get_close_matches(field, _WIDE, 1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise UsageError(
            "data.unknown_field",
            f"bars have no field {field!r}",
            remedy=f"{hint}fields: {', '.join(_WIDE)}",
        )


def _after(day: date) -> np.datetime64:
    """Return the first instant after a day."""
    return np.datetime64(datetime.combine(day + timedelta(days=1), time()), "us")


def load_panel(
    source: BarSource,
    symbols: Sequence[str],
    start: date,
    end: date,
    *,
    market: str,
    adjustment: str = "forward",
    interval: str = "1d",
    anchor: date | None = None,
) -> MarketPanel:
    """Open the bars of `symbols` from `start` to `end`, both included.

    Only the keys are read now; prices are read, and checked, when a view needs them.

    Args:
        source: Where bars come from.
        symbols: Wanted symbols; each must have a bar in the window.
        start: First session.
        end: Last session.
        market: Market of the symbols.
        adjustment: `none`, `forward` or `backward`.
        interval: Bar spacing the source knows.
        anchor: Date at which forward-adjusted prices equal raw ones; default `end`.

    Raises:
        UsageError: `data.unknown_adjustment`.
        DataError: `data.no_bars` when the window is empty, `data.missing_symbols` when only some
            symbols have bars: a universe never shrinks silently.
    """
    if adjustment not in ADJUSTMENTS:
        near = difflib.get_close_matches(adjustment, ADJUSTMENTS, 1)
        raise UsageError(
            "data.unknown_adjustment",
            f"there is no adjustment {adjustment!r}",
            remedy=(f"did you mean {near[0]}? " if near else "")
            + f"adjustments: {', '.join(ADJUSTMENTS)}",
        )
    wanted = list(dict.fromkeys(symbols))
    columns = BarColumns(source.bars(wanted, start, end, interval), wanted)
    if not columns.symbols:
        raise DataError(
            "data.no_bars",
            f"source {source.name} has no {interval} bar of "
            f"{', '.join(wanted[:5]) or 'any symbol'} from {start} to {end}",
            remedy=_covered(source, market, interval),
        )
    if columns.missing:
        raise DataError(
            "data.missing_symbols",
            f"{len(columns.missing)} of {len(wanted)} symbols have no {interval} bar from {start} "
            f"to {end}: {', '.join(columns.missing[:10])}",
            remedy="resolve the universe for that window first; it says who was dropped and why",
            details={"missing": list(columns.missing)},
        )
    return MarketPanel(
        columns,
        market=market,
        adjustment=adjustment,
        interval=interval,
        source=source.name,
        securities=source.securities(market),
        anchor=anchor,
    )


def _covered(source: BarSource, market: str, interval: str) -> str:
    try:
        coverage = source.coverage(market, interval)
    except DataError:
        return "check the symbols, the dates and the source"
    return (
        f"the source covers {len(coverage.symbols)} {market} symbols "
        f"from {coverage.first} to {coverage.last}"
    )
