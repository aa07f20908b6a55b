"""Bars as the tool gives them: read, checked, adjusted; many of them into a Parquet file.

The file stands under `runs/mcp/<digest>/bars.parquet`, named by its content; the newest few are
kept. It is written whole and renamed into place, so a killed server leaves no half of one.
"""

from __future__ import annotations

import contextlib
import io
import threading
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from kit import files
from kit.errors import StorageError
from kit.market import BarSource
from kit.market.columns import BarColumns
from kit.serve.trading_data_cn.shapes import Bar, BulkFile, Column
from kit.workspace import Workspace

__all__ = ["KEPT", "Found", "publish", "read_bars"]

KEPT: Final = 20
"""Files of large answers that are kept; older ones go when a new one is written."""

_PRICES: Final = ("open", "high", "low", "close")
_PUBLISHING = threading.Lock()


class Found:
    """Bars of some symbols, adjusted.

    Args:
        columns: The bars.
        adjust: `none`, `forward` or `backward`.
        daily: Whether a bar's time is a session.

    Attributes:
        frame: Columns of `Bar`, by symbol in the order asked, then by date.
        symbols: Symbols that have bars.
        restated: Symbols whose source prices are adjusted already.
        synthetic: Whether any bar is generated.
    """

    def __init__(self, columns: BarColumns, *, adjust: str, daily: bool) -> None:
        columns.load((*_PRICES, "volume", "adj_factor"))
        self.symbols = columns.symbols
        self.synthetic = columns.synthetic()
        kinds = columns.adjust_kinds()
        self.restated = [symbol for symbol, kind in kinds.items() if kind != "none"]
        lengths = np.diff(columns.starts)
        factor = columns.column("adj_factor")
        if adjust == "none":
            ratio = np.ones(len(factor))
        elif adjust == "backward":
            ratio = factor
        else:
            # As `MarketPanel` does by default: the last bar of the window is what it was.
            ratio = factor / np.repeat(factor[columns.starts[1:] - 1], lengths)
        codes = np.repeat(np.arange(len(lengths)), lengths)
        times = pl.Series(columns.times[columns.time_codes])
        self.frame = pl.DataFrame(
            {
                "symbol": pl.Series(self.symbols, dtype=pl.String).gather(codes),
                "date": times.cast(pl.Date) if daily else times,
                **{name: columns.column(name) for name in _PRICES},
                "close_adj": columns.column("close") * ratio,
                "low_adj": columns.column("low") * ratio,
                "volume": columns.column("volume"),
            }
        ).with_columns(pl.lit("shares").alias("volume_unit"))

    def rows(self) -> list[Bar]:
        """Return the bars as records."""
        texts = self.frame.with_columns(
            pl.col("date").map_elements(lambda when: str(when.isoformat()), return_dtype=pl.String)
        )
        return [Bar.model_construct(**row) for row in texts.iter_rows(named=True)]


def read_bars(
    source: BarSource, symbols: Sequence[str], first: date, last: date, interval: str, adjust: str
) -> Found:
    """Read and check bars; symbols without any are simply not among `Found.symbols`.

    Raises:
        DataError: `data.bad_bars` naming symbol and date; what the source raises.
    """
    columns = BarColumns(source.bars(symbols, first, last, interval), symbols)
    return Found(columns, adjust=adjust, daily=interval == "1d")


def publish(workspace: Workspace, frame: pl.DataFrame) -> BulkFile:
    """Write a frame as Parquet and say where it is.

    Raises:
        StorageError: The disk refused; nothing is left behind.
    """
    buffer = io.BytesIO()
    # lz4: a client waits for this; zstd takes half the space and half as long again.
    frame.write_parquet(buffer, compression="lz4", statistics=False)
    data = buffer.getvalue()
    digest = files.sha256_bytes(data)
    path = workspace.runs / "mcp" / digest / "bars.parquet"
    # A temporary file is named by its process: two threads would share one.
    with _PUBLISHING:
        files.make_dir(path.parent)
        files.write_bytes(path, data)
        _forget(path.parent.parent)
    return BulkFile(
        uri=path.as_uri(),
        path=str(path),
        sha256=digest,
        bytes=len(data),
        columns=[
            Column(
                name=name,
                type=str(field),
                about=Bar.model_fields[name].description or "symbol",
            )
            for name, field in _arrow_types(frame).items()
        ],
    )


def _arrow_types(frame: pl.DataFrame) -> dict[str, str]:
    return {field.name: str(field.type) for field in frame.limit(0).to_arrow().schema}


def _forget(folder: Path) -> None:
    """Remove all but the newest answers, with what killed writers left in them."""
    newest = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns, reverse=True)
    for old in newest[KEPT:]:
        with contextlib.suppress(StorageError):  # another server may be at it too
            files.remove_tree(old)
