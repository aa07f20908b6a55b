"""The bars store: Parquet under `runs/market/<market>/<interval>/`, written so that it cannot tear.

A symbol's bars stand in one of sixteen part files, chosen by its name. A write replaces whole
series inside their parts, each under a lock and in one rename: a crash leaves the old part or the
new one, and two commands at once lose nothing. Files that people put there themselves are read and
never touched; a symbol found in one of them is not written a second time.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

import polars as pl

from kit import files
from kit.errors import DataError
from kit.market.bars import BAR_COLUMNS, collect, conform

__all__ = ["BarStore", "Series"]

_PART: Final = "part-"
_WAIT: Final = 60.0  # seconds for a lock: another command writes for a few at most


@dataclass(frozen=True, kw_only=True)
class Series:
    """What the store holds of one symbol.

    Attributes:
        symbol: Its code.
        rows: Bars.
        first: Oldest bar.
        last: Newest bar.
        source: Who said so, by the newest bar.
        as_of: When it was fetched or imported, naive UTC; None when unknown.
    """

    symbol: str
    rows: int
    first: datetime
    last: datetime
    source: str
    as_of: datetime | None


class BarStore:
    """The store of a workspace.

    Args:
        root: The workspace's market folder.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def folder(self, market: str, interval: str) -> Path:
        """Return where the bars of a market and an interval stand."""
        return self.root / market / interval

    def shelves(self) -> tuple[tuple[str, str], ...]:
        """Return every (market, interval) that holds a file."""
        found = {path.parent for path in self.root.glob("*/*/*.parquet")}
        return tuple(sorted((folder.parent.name, folder.name) for folder in found))

    def scan(self, market: str, interval: str) -> pl.LazyFrame | None:
        """Return all bars of a market at an interval, None when there is no file."""
        paths = sorted(self.folder(market, interval).glob("*.parquet"))
        return conform(pl.scan_parquet(paths), where=f"{market}/{interval}") if paths else None

    def series(self, market: str, interval: str) -> dict[str, Series]:
        """Return what is held of each symbol, by symbol."""
        bars = self.scan(market, interval)
        if bars is None:
            return {}
        by_time = pl.col("source").sort_by("time").last()
        rows = collect(
            bars.group_by("symbol").agg(
                pl.len().alias("rows"),
                pl.col("time").min().alias("first"),
                pl.col("time").max().alias("last"),
                by_time,
                pl.col("as_of").max(),
            )
        )
        return {row["symbol"]: Series(**row) for row in rows.sort("symbol").iter_rows(named=True)}

    def read(self, market: str, interval: str, symbol: str) -> pl.DataFrame:
        """Return one symbol's bars in time order, possibly none."""
        bars = self.scan(market, interval)
        if bars is None:
            return pl.DataFrame(schema=BAR_COLUMNS)
        return collect(bars.filter(pl.col("symbol") == symbol)).sort("time")

    def write(self, market: str, interval: str, bars: pl.DataFrame) -> None:
        """Replace the series of every symbol in `bars`; other symbols stay as they are.

        Raises:
            DataError: `data.foreign_file` when a symbol stands in a file the store did not make.
            StorageError: The disk refused, or another command held the lock for a minute.
        """
        folder = self.folder(market, interval)
        files.make_dir(folder)
        self._refuse_foreign(folder, bars.get_column("symbol").unique().to_list())
        part = bars.get_column("symbol").map_elements(_part, return_dtype=pl.String)
        for (name,), mine in bars.with_columns(part.alias("_part")).group_by("_part"):
            path = folder / f"{name}.parquet"
            with files.lock(folder / f".{name}.lock", timeout=_WAIT):
                rows = mine.select(list(BAR_COLUMNS))
                if path.is_file():
                    symbols = rows.get_column("symbol").unique().to_list()
                    old = collect(conform(pl.scan_parquet(path), where=str(path)))
                    rows = pl.concat([old.filter(~pl.col("symbol").is_in(symbols)), rows])
                _replace(path, rows.sort("symbol", "time"))

    def _refuse_foreign(self, folder: Path, symbols: Iterable[str]) -> None:
        for path in sorted(folder.glob("*.parquet")):
            if path.name.startswith(_PART):
                continue
            held = collect(pl.scan_parquet(path).select(pl.col("symbol").unique()))
            shared = sorted(set(symbols) & set(held.get_column("symbol").to_list()))
            if shared:
                raise DataError(
                    "data.foreign_file",
                    f"{', '.join(shared[:5])} already stand in a file that this command did not "
                    "make",
                    where=str(path),
                    remedy="move that file out of the store (import it, if it should stay)",
                )


def _part(symbol: str) -> str:
    return _PART + hashlib.sha256(symbol.encode()).hexdigest()[0]


def _replace(path: Path, rows: pl.DataFrame) -> None:
    buffer = io.BytesIO()
    rows.write_parquet(buffer, compression="zstd", statistics=True)
    files.write_bytes(path, buffer.getvalue())
