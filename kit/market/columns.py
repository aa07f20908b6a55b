"""Bars of many symbols as plain columns, read from Parquet only when somebody asks.

A panel of 5,400 symbols x 260 bars is 1.4 million rows: reading a column takes hundredths of a
second, pivoting it in polars 25 s. So rows are put once into one order (symbol by symbol, each in
time order), each row gets its two codes, and a wide view is a scatter of a column by those codes.
Every array handed out is read-only; what a caller mutates is always its own copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from kit.errors import DataError
from kit.market.bars import BAR_COLUMNS, PRICE_COLUMNS, any_synthetic, check_bars, collect

__all__ = ["BarColumns"]

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]
_DAY = 86_400_000_000  # microseconds


class BarColumns:
    """Sorted columns of the bars of some symbols.

    Args:
        bars: Bars with the columns of `BAR_COLUMNS`, already filtered.
        symbols: The order of symbols wanted; those without a bar end in `missing`.

    Attributes:
        symbols: Symbols that have bars, in the order asked; N of them.
        missing: Symbols that have none.
        times: All distinct bar times, ascending, `datetime64[us]` of shape [T].
        starts: Row where each symbol begins, plus the row count; shape [N + 1].
        time_codes: For each row, its position in `times`; shape [R].

    Raises:
        DataError: `data.bad_bars` when a symbol has two bars at one time.
    """

    def __init__(self, bars: pl.LazyFrame, symbols: Sequence[str]) -> None:
        self._bars = bars
        self._columns: dict[str, Floats] = {}
        self._wide: dict[str, Floats] = {}
        self._raw: pl.DataFrame | None = None
        self._kinds: dict[str, str] | None = None
        self._plain: bool | None = None
        self._synthetic: bool | None = None
        keys = collect(bars.select("symbol", "time"))
        self._rows = len(keys)
        codes, self.symbols = _symbol_codes(keys.get_column("symbol"), symbols)
        present = set(self.symbols)
        self.missing = tuple(symbol for symbol in symbols if symbol not in present)
        self.times, times = _time_codes(keys.get_column("time"), len(self.symbols))
        self._keys: Codes = codes * len(self.times) + times
        self._order: Codes | None = None
        if np.diff(self._keys).min(initial=1) <= 0:
            self._order = np.argsort(self._keys, kind="stable")
            self._keys, times = self._keys[self._order], times[self._order]
            if bool((np.diff(self._keys) == 0).any()):
                check_bars(keys.sort("symbol", "time"))
        self.time_codes = times
        edges = np.arange(len(self.symbols) + 1) * len(self.times)
        self.starts: Codes = np.searchsorted(self._keys, edges)

    def ends(self, members: Codes, stop: int) -> Codes:
        """Return, for each member, the row after its last bar before time code `stop`."""
        ends = np.searchsorted(self._keys, members * len(self.times) + stop)
        return np.asarray(ends, dtype=np.int64)

    def load(self, names: Iterable[str]) -> None:
        """Read several columns in one pass; those already read are left alone.

        Raises:
            DataError: `data.bad_bars` when a price or a factor is missing or not positive, or
                high and low do not enclose the prices read so far.
        """
        wanted = [name for name in names if name not in self._columns]
        if not wanted:
            return
        frame = collect(self._bars.select(wanted))
        if len(frame) != self._rows:
            raise DataError(
                "data.changed",
                "the bars changed on disk while they were being read",
                remedy="run the command again when the sync has finished",
            )
        for name in wanted:
            values = frame.get_column(name).cast(pl.Float64).fill_null(float("nan")).to_numpy()
            values = values[self._order] if self._order is not None else values
            self._columns[name] = _frozen(values)
        self._verify(wanted)

    def column(self, name: str) -> Floats:
        """Return one numeric column, read-only, shape [R], nulls as NaN."""
        self.load([name])
        return self._columns[name]

    def wide(self, name: str) -> Floats:
        """Return one column by symbol and time, read-only, shape [N, T], NaN where no bar is."""
        if name not in self._wide:
            column = self.column(name)
            shape = (len(self.symbols), len(self.times))
            if len(column) == shape[0] * shape[1]:
                wide = column.reshape(shape)
            else:
                wide = np.full(shape, np.nan)
                wide.reshape(-1)[self._keys] = column
            self._wide[name] = _frozen(wide)
        return self._wide[name]

    def filled(self, names: Iterable[str]) -> frozenset[str]:
        """Return the columns that have a value in at least one row."""
        found = collect(self._bars.select(pl.col(name).is_not_null().any() for name in names))
        return frozenset(name for name in found.columns if found.get_column(name)[0])

    def synthetic(self) -> bool:
        """Tell whether any bar was generated rather than observed."""
        if self._synthetic is None:
            self._synthetic = any_synthetic(self._bars)
        return self._synthetic

    def plain(self) -> bool:
        """Tell whether every factor is 1, so that adjusting changes nothing."""
        if self._plain is None:
            self._plain = bool((self.column("adj_factor") == 1).all())
        return self._plain

    def raw(self) -> pl.DataFrame:
        """Return all bars as stored, sorted by symbol (in the order asked) and time."""
        if self._raw is None:
            frame = collect(self._bars)
            self._raw = frame if self._order is None else frame[self._order]
        return self._raw

    def lazy(self) -> pl.LazyFrame:
        """Return the bars as stored, not yet read."""
        return self._bars

    def adjust_kinds(self) -> dict[str, str]:
        """Return what each symbol's prices already carry, by symbol in order.

        Raises:
            DataError: `data.bad_bars` when one symbol mixes two kinds.
        """
        if self._kinds is None:
            kinds = collect(
                self._bars.group_by("symbol").agg(
                    pl.col("adjust").first(), pl.col("adjust").n_unique().alias("n")
                )
            )
            if (kinds.get_column("n") > 1).any():
                check_bars(self._bars.select("symbol", "time", "adjust"))
            found = dict(zip(kinds["symbol"].to_list(), kinds["adjust"].to_list(), strict=True))
            self._kinds = {symbol: str(found[symbol]) for symbol in self.symbols}
        return self._kinds

    def _verify(self, wanted: list[str]) -> None:
        """Check what was just read on the arrays; only a failure pays for a full account."""
        have = [name for name in PRICE_COLUMNS if name in self._columns]
        good = True
        for name in {*PRICE_COLUMNS, "adj_factor", "volume"} & set(wanted):
            # A NaN is the least and the greatest of its column, and compares false.
            least, most = self._columns[name].min(initial=1.0), self._columns[name].max(initial=1.0)
            good &= bool((least >= 0 if name == "volume" else least > 0) and most < np.inf)
        if good and any(name in PRICE_COLUMNS for name in wanted):
            for name in have:
                if "high" in have:
                    good = good and bool((self._columns["high"] >= self._columns[name]).all())
                if "low" in have:
                    good = good and bool((self._columns["low"] <= self._columns[name]).all())
        if good:
            return
        for name in wanted:
            del self._columns[name]
        known = [name for name in BAR_COLUMNS if name in {*have, *wanted}]
        # This raises: it applies the same tests, and can name the bar.
        check_bars(self._bars.select("symbol", "time", *known).sort("symbol", "time"))


def _frozen(values: Floats) -> Floats:
    values = np.ascontiguousarray(values)
    values.flags.writeable = False
    return values


def _symbol_codes(column: pl.Series, symbols: Sequence[str]) -> tuple[Codes, tuple[str, ...]]:
    """Code each row by its symbol's place in `symbols`, leaving out symbols without rows.

    Bars come in long runs of one symbol, so only the runs are looked up.
    """
    runs = column.rle().struct.unnest()
    values, lengths = runs.get_column("value").to_list(), runs.get_column("len").to_numpy()
    present = set(values)
    kept = tuple(symbol for symbol in dict.fromkeys(symbols) if symbol in present)
    place = {symbol: code for code, symbol in enumerate(kept)}
    codes = np.fromiter((place[value] for value in values), dtype=np.int64, count=len(values))
    return np.repeat(codes, lengths), kept


def _time_codes(column: pl.Series, symbols: int) -> tuple[npt.NDArray[np.datetime64], Codes]:
    """Return the distinct times, ascending, and each row's place among them."""
    stamps = column.cast(pl.Datetime("us")).to_physical().to_numpy()
    bars = len(stamps) // max(symbols, 1)
    if bars and bars * symbols == len(stamps):
        block = stamps.reshape(symbols, bars)
        if bool((block == block[0]).all()) and bool((np.diff(block[0]) > 0).all()):
            # Every symbol has the same bars, in order: the common case needs no search.
            return block[0].astype("datetime64[us]"), np.tile(np.arange(bars), symbols)
    days = column.cast(pl.Date).to_physical().cast(pl.Int64).to_numpy()
    if len(days) and bool((days * _DAY == stamps).all()):
        # Daily bars: a table over the days between first and last beats sorting the rows.
        first = int(days.min())
        seen = np.zeros(int(days.max()) - first + 1, dtype=bool)
        seen[days - first] = True
        table = np.cumsum(seen) - 1
        times = (np.flatnonzero(seen) + first) * _DAY
        codes = table[days - first]
    else:
        times, codes = np.unique(stamps, return_inverse=True)
    return times.astype("datetime64[us]"), np.asarray(codes, dtype=np.int64)
