"""The embedded sample: real bars and company events, small enough to travel with the package.

`build.py` made the files beside this module; `provenance.json` says where each series came from,
under which licence, and what it lacks. `NOTICE` carries the licence notices.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import polars as pl

from kit import files
from kit.errors import DataError
from kit.market.bars import BAR_COLUMNS

__all__ = [
    "FOLDER",
    "INTERVALS",
    "bars",
    "dividend_events",
    "investor_qa",
    "manager_trades",
    "provenance",
    "securities",
]

FOLDER: Final = Path(__file__).parent

INTERVALS: Final = ("1d", "1m", "5m")
"""Bar spacings the sample holds."""


def bars(interval: str = "1d") -> pl.LazyFrame:
    """Return all bars of one interval in `BAR_COLUMNS`, not yet read.

    Raises:
        DataError: `data.unknown_interval`.
    """
    if interval == "1d":
        return pl.scan_parquet(FOLDER / "daily.parquet").select(list(BAR_COLUMNS))
    if interval in INTERVALS:
        minutes = pl.scan_parquet(FOLDER / "minute.parquet")
        return minutes.filter(pl.col("interval") == interval).select(list(BAR_COLUMNS))
    raise DataError(
        "data.unknown_interval",
        f"the sample has no {interval!r} bars",
        remedy=f"intervals: {', '.join(INTERVALS)}",
    )


def securities() -> list[dict[str, Any]]:
    """Return the securities of the sample as JSON rows."""
    rows: list[dict[str, Any]] = files.read_json(FOLDER / "securities.json")["securities"]
    return rows


def provenance() -> dict[str, Any]:
    """Return the record of where every series came from."""
    record: dict[str, Any] = files.read_json(FOLDER / "provenance.json")
    return record


def dividend_events() -> pl.LazyFrame:
    """Return dated dividend decisions: symbol, announce, record and ex dates (nullable), plan."""
    return pl.scan_parquet(FOLDER / "dividend_events.parquet")


def manager_trades() -> pl.LazyFrame:
    """Return dated trades of managers in their own company's shares, names removed."""
    return pl.scan_parquet(FOLDER / "manager_trades.parquet")


def investor_qa() -> pl.LazyFrame:
    """Return dated investor questions and the company's answers (600000.SH), names removed."""
    return pl.scan_parquet(FOLDER / "investor_qa.parquet")
