"""From a source's own columns and units to `BAR_COLUMNS`, or a named refusal.

Nothing is guessed: a column that is not there, a volume whose unit nobody declared, an adjusted
price that does not follow from the raw one by a ratio, are errors. What was declared is checked
against the data where the data can tell: turnover over volume times price must be about one.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from kit.errors import DataError, UsageError
from kit.market.adjusted import ratio_problem
from kit.market.bars import BAR_COLUMNS, PRICE_COLUMNS, check_bars
from kit.market.symbols import normal_symbol

__all__ = [
    "AMOUNT_UNITS",
    "VOLUME_UNITS",
    "ColumnMap",
    "Raw",
    "declared_unit",
    "find_columns",
    "read_table",
    "to_bars",
    "unit_problem",
]

VOLUME_UNITS: Final[dict[str, float]] = {"shares": 1.0, "lots": 100.0}
"""What a volume may be counted in, and the shares in one of it."""

AMOUNT_UNITS: Final[dict[str, float]] = {"currency": 1.0, "thousand": 1_000.0}
"""What a turnover may be counted in."""

_ALIASES: Final[dict[str, tuple[str, ...]]] = {
    "symbol": ("symbol", "code", "ts_code", "ticker", "股票代码", "代码", "证券代码"),
    "time": ("time", "date", "datetime", "trade_date", "timestamp", "日期", "时间", "交易日期"),
    "open": ("open", "开盘", "开盘价"),
    "high": ("high", "最高", "最高价"),
    "low": ("low", "最低", "最低价"),
    "close": ("close", "收盘", "收盘价"),
    "volume": ("volume", "vol", "成交量"),
    "amount": ("amount", "成交额", "成交金额"),
    "adj_close": ("adj close", "adj_close", "后收盘"),
    "adj_factor": ("adj_factor", "复权因子"),
    "limit_up": ("limit_up", "up_limit", "涨停价"),
    "limit_down": ("limit_down", "down_limit", "跌停价"),
    "is_st": ("is_st", "isst"),
    "tradestatus": ("tradestatus",),
    "suspended": ("suspended",),
}
_NEEDED: Final = ("time", *PRICE_COLUMNS, "volume")
_CAST: Final = (
    *PRICE_COLUMNS,
    "volume",
    "amount",
    "adj_close",
    "adj_factor",
    "limit_up",
    "limit_down",
)
_TIMES: Final = ("%Y-%m-%d", "%Y%m%d", "%Y/%m/%d", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M")
_SHOWN: Final = 300  # characters of a file's own words in a message
_SOUND_RATIO: Final = (0.5, 2.0)


@dataclass(frozen=True, kw_only=True)
class ColumnMap:
    """How one source names and measures things.

    Attributes:
        columns: Its name of each of our columns; also `adj_close` and `tradestatus` (1 trading).
        volume_unit: `shares` or `lots`.
        amount_unit: `currency` or `thousand`.
        adjust: What its prices carry; see `ADJUST_KINDS`.
    """

    columns: Mapping[str, str]
    volume_unit: str
    amount_unit: str = "currency"
    adjust: str = "none"


@dataclass(frozen=True, kw_only=True)
class Raw:
    """What a source answered about one symbol.

    Attributes:
        rows: Its table, its names, its units.
        mapping: What they mean.
        factors: `time` and `adj_factor` by ex-date, None where prices need none.
        source: What the bars' `source` is to say.
    """

    rows: pl.DataFrame
    mapping: ColumnMap
    factors: pl.DataFrame | None = None
    source: str


def read_table(path: Path) -> pl.DataFrame:
    """Read a CSV file as text columns, or a Parquet file as it is.

    Raises:
        DataError: `data.unreadable`.
    """
    try:
        if path.name.endswith(".parquet"):
            return pl.read_parquet(path)
        # As text: a code such as 000001 is no number.
        rows = pl.read_csv(path, infer_schema=False)
        if any("\ufffd" in name for name in rows.columns):
            raise pl.exceptions.ComputeError("the header is not UTF-8")
        return rows
    except (pl.exceptions.PolarsError, OSError, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(
            "data.unreadable",
            f"the file cannot be read: {reason}",
            where=str(path),
            remedy="save it as CSV in UTF-8 with one header line, or as Parquet",
        ) from error


def _short(text: object) -> str:
    """Return what a file said, at most a line of it: a message is no place for ten megabytes."""
    said = str(text)
    return said if len(said) <= _SHOWN else f"{said[:_SHOWN]}..."


def find_columns(names: list[str], *, where: str = "") -> dict[str, str]:
    """Find our columns among the names of a file, English or Chinese.

    Raises:
        DataError: `data.bad_columns` when one is missing, or two could be the same.
    """
    found: dict[str, str] = {}
    for ours, aliases in _ALIASES.items():
        fits = [name for name in names if name.strip().lower() in aliases]
        if len(fits) > 1:
            raise DataError(
                "data.bad_columns",
                f"columns {' and '.join(fits)} could both be {ours}",
                where=where,
                remedy="leave one of them out",
            )
        if fits:
            found[ours] = fits[0]
    _require(found, names, where)
    return found


def _require(columns: Mapping[str, str], names: list[str], where: str) -> None:
    for ours in _NEEDED:
        if columns.get(ours) in names:
            continue
        wanted = columns.get(ours, ours)
        free = [name for name in names if name not in columns.values()]
        near = difflib.get_close_matches(wanted, free, 1, 0.4)
        raise DataError(
            "data.bad_columns",
            f"there is no column {wanted!r} for {ours}; the columns are {_short(', '.join(names))}",
            where=where,
            remedy=(f"was it renamed to {near[0]!r}? " if near else "")
            + f"names understood for {ours}: {', '.join(_ALIASES[ours])}",
        )


def to_bars(
    frame: pl.DataFrame,
    mapping: ColumnMap,
    *,
    market: str,
    source: str,
    as_of: datetime | None,
    symbol: str | None = None,
    where: str = "",
) -> pl.DataFrame:
    """Bring raw rows to `BAR_COLUMNS`, sorted by symbol and time, checked.

    Args:
        frame: Rows as the source gave them; text columns are read as numbers and dates.
        mapping: Its names and units.
        market: `cn`, `hk` or `us`.
        source: What the bars' `source` says.
        as_of: When they were fetched, naive UTC.
        symbol: Whose rows these are, where the rows do not say.
        where: File or source, for messages.

    Raises:
        DataError: `data.no_bars`, `data.bad_columns`, `data.bad_symbol`, `data.all_missing`,
            `data.unit_mismatch`, `data.subtracted` or `data.bad_bars`.
    """
    if frame.is_empty():
        raise DataError(
            "data.no_bars",
            "the answer is empty" if symbol is None else f"the answer for {symbol} is empty",
            where=where,
            remedy="an empty table is a failure of the source: check the symbol and the dates",
        )
    _require(mapping.columns, frame.columns, where)
    names = {ours: theirs for ours, theirs in mapping.columns.items() if theirs in frame.columns}
    picked = frame.select(pl.col(theirs).alias(ours) for ours, theirs in names.items())
    try:
        rows = picked.with_columns(
            _time(picked.schema["time"]),
            *(_number(picked.schema[name], name) for name in _CAST if name in names),
            *(_flag(name) for name in ("is_st", "suspended") if name in names),
        )
    except pl.exceptions.PolarsError as error:
        raise DataError(
            "data.bad_columns",
            f"a value cannot be read: {_short(str(error).splitlines()[0])}",
            where=where,
            remedy="numbers as 12.34 without separators, dates as 2024-09-19 or 20240919",
        ) from error
    unread = picked["time"].filter(rows["time"].is_null())
    if len(unread):
        raise DataError(
            "data.bad_columns",
            f"{_short(unread[0])!r} is no date ({len(unread)} rows)",
            where=where,
            remedy="write dates as 2024-09-19 or 20240919",
        )
    # A day ahead of Greenwich it may be, nowhere more.
    ahead = None if as_of is None else rows["time"].filter(rows["time"] > as_of + timedelta(days=1))
    if ahead is not None and len(ahead):
        raise DataError(
            "data.bad_bars",
            f"a bar is dated {ahead.sort()[-1]:%Y-%m-%d}, still to come ({len(ahead)} rows)",
            where=where,
            remedy="mend the date: nothing can have traded on it",
        )
    rows = rows.with_columns(_symbol(picked, symbol, market, where))
    if "tradestatus" in names:
        halted = pl.col("tradestatus").cast(pl.String).str.strip_chars() == "0"
        rows = rows.with_columns(
            halted.alias("suspended"),
            pl.when(halted).then(pl.col("volume").fill_null(0)).otherwise(pl.col("volume")),
        )
    missing = pl.any_horizontal(pl.col(n).is_null() | pl.col(n).is_nan() for n in PRICE_COLUMNS)
    if rows.select(missing.all()).item():
        raise DataError(
            "data.all_missing",
            f"no row has all four prices ({len(rows)} rows)",
            where=where,
            remedy="the source answers with empty rows: try later or another source",
        )
    if "adj_close" in names:
        rows = rows.with_columns(_factor(rows, where))
    elif "adj_factor" not in names:
        rows = rows.with_columns(pl.lit(1.0).alias("adj_factor"))
    rows = rows.with_columns(
        pl.col("volume") * VOLUME_UNITS[mapping.volume_unit],
        *([pl.col("amount") * AMOUNT_UNITS[mapping.amount_unit]] if "amount" in names else []),
        pl.lit(mapping.adjust).alias("adjust"),
        pl.lit(source).alias("source"),
        pl.lit(as_of, dtype=BAR_COLUMNS["as_of"]).alias("as_of"),
    )
    bars = rows.select(
        (pl.col(name) if name in rows.columns else pl.lit(None).alias(name)).cast(dtype)
        for name, dtype in BAR_COLUMNS.items()
    ).sort("symbol", "time", maintain_order=True)
    problem = "" if mapping.adjust == "qfq" else unit_problem(bars)
    if problem:
        raise DataError(
            "data.unit_mismatch",
            problem,
            where=where,
            remedy="declare the unit the source really uses; nothing was stored",
        )
    check_bars(bars, where=where)
    return bars


def unit_problem(bars: pl.DataFrame) -> str:
    """Say what is wrong with the unit of volume or turnover; empty when nothing is, or unknown.

    A day's turnover is its volume times a price within the day, so their quotient is about one.
    """
    known = bars.filter(pl.col("amount") > 0, pl.col("volume") > 0)
    if known.is_empty():
        return ""
    ratio = float(
        known.select((pl.col("amount") / pl.col("volume") / pl.col("close")).median()).item()
    )
    if _SOUND_RATIO[0] <= ratio <= _SOUND_RATIO[1]:
        return ""
    said = f"turnover / (volume x close) is about {ratio:.4g}, not 1"
    if 50 <= ratio <= 200:
        return f"{said}: the volume looks like lots of 100"
    if 0.005 <= ratio <= 0.02:
        return f"{said}: the volume looks like shares that were multiplied by 100"
    if 0.0005 <= ratio <= 0.002:
        return f"{said}: the turnover looks like thousands"
    return f"{said}: volume or turnover is in another unit"


def _factor(rows: pl.DataFrame, where: str) -> pl.Expr:
    """Return adjusted over raw close, after making sure that it is a ratio that was applied."""
    for (symbol,), part in rows.sort("time").group_by("symbol", maintain_order=True):
        raw, adjusted = part["close"].to_numpy(), part["adj_close"].to_numpy()
        problem = ratio_problem(np.asarray(raw, float), np.asarray(adjusted, float))
        if problem:
            raise DataError(
                "data.subtracted",
                f"{symbol}: {problem}",
                where=where,
                remedy="returns of such prices are wrong: import raw prices with a factor, or a "
                "series adjusted by ratio",
            )
    return (pl.col("adj_close") / pl.col("close")).alias("adj_factor")


def _symbol(picked: pl.DataFrame, symbol: str | None, market: str, where: str) -> pl.Expr:
    if "symbol" not in picked.columns:
        if symbol is None:
            raise DataError(
                "data.bad_columns",
                "the rows do not say whose they are",
                where=where,
                remedy="add a column symbol, or name the file after it: 600000.SH.csv",
            )
        return pl.lit(normal_symbol(symbol, market)).alias("symbol")
    names = picked["symbol"].cast(pl.String)
    known = {text: normal_symbol(text, market) for text in names.unique() if text is not None}
    if names.null_count():
        raise DataError("data.bad_symbol", "a row has no symbol", where=where)
    return pl.col("symbol").cast(pl.String).replace_strict(known).alias("symbol")


def _time(dtype: pl.DataType) -> pl.Expr:
    """Read times as exchange-local and naive; a zone is taken off, not converted."""
    column = pl.col("time")
    if isinstance(dtype, pl.Datetime):
        return column.dt.replace_time_zone(None).cast(pl.Datetime("us"))
    if dtype.is_integer():
        column = column.cast(pl.String)
    elif dtype != pl.String:
        return column.cast(pl.Datetime("us"))
    text = column.str.strip_chars()
    read = [text.str.to_datetime(form, time_unit="us", strict=False) for form in _TIMES]
    return pl.coalesce(*read).alias("time")


def _number(dtype: pl.DataType, name: str) -> pl.Expr:
    column = pl.col(name)
    if dtype == pl.String:
        text = column.str.strip_chars()
        column = pl.when(text == "").then(None).otherwise(text)
    return column.cast(pl.Float64).alias(name)


def _flag(name: str) -> pl.Expr:
    text = pl.col(name).cast(pl.String).str.strip_chars().str.to_lowercase()
    return (
        pl.when(text.is_in(["1", "true"]))
        .then(pl.lit(value=True))
        .when(text.is_in(["0", "false"]))
        .then(pl.lit(value=False))
        .alias(name)
    )


def declared_unit(unit: str | None, *, where: str) -> str:
    """Return the declared unit of volume.

    Raises:
        UsageError: `data.unit_undeclared`.
    """
    if unit is None:
        raise UsageError(
            "data.unit_undeclared",
            "nobody said whether the volume is in shares or in lots, and it is not guessed",
            where=where,
            remedy="add --volume-unit shares or --volume-unit lots",
        )
    return unit
