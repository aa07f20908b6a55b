"""One schema for every bar in the house, and the checks that no bar may fail.

A bar carries raw prices and, apart from them, the factor that adjusts them; nothing adjusted is
ever stored. Time is exchange-local and naive: a daily bar is stamped with its session at 00:00,
an intraday bar with its END. Volume is in shares, amount in the market's currency.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import polars as pl

from kit.errors import DataError

__all__ = [
    "ADJUST_KINDS",
    "BAR_COLUMNS",
    "NULLABLE_COLUMNS",
    "PRICE_COLUMNS",
    "SYNTHETIC",
    "BarProblem",
    "any_synthetic",
    "check_bars",
    "collect",
    "conform",
    "find_problems",
    "fingerprint_frame",
    "is_synthetic",
]

BAR_COLUMNS: Final[dict[str, Any]] = {
    "symbol": pl.String,
    "time": pl.Datetime("us"),
    "open": pl.Float64,
    "high": pl.Float64,
    "low": pl.Float64,
    "close": pl.Float64,
    "volume": pl.Float64,
    "amount": pl.Float64,
    "adj_factor": pl.Float64,
    "adjust": pl.String,
    "source": pl.String,
    "as_of": pl.Datetime("us"),
    "limit_up": pl.Float64,
    "limit_down": pl.Float64,
    "is_st": pl.Boolean,
    "suspended": pl.Boolean,
}
"""Column name to polars type, in storage order."""

NULLABLE_COLUMNS: Final = ("amount", "as_of", "limit_up", "limit_down", "is_st", "suspended")
"""Columns a source may leave empty when it does not know."""

PRICE_COLUMNS: Final[tuple[str, ...]] = ("open", "high", "low", "close")

ADJUST_KINDS: Final = ("none", "split", "qfq")
"""What a source's own prices already carry: nothing, splits only, or everything (前复权)."""

SYNTHETIC: Final = "synthetic"
"""What the `source` of a generated bar begins with."""

_NEVER: Final = pl.lit(value=False)
_ENDLESS: Final = float("inf")
_SAID = 20  # problems named in one error; the count of the rest is told


@dataclass(frozen=True, kw_only=True)
class BarProblem:
    """One thing wrong with the bars of a symbol.

    Attributes:
        symbol: Whose bar.
        time: When; for a whole series, its first bar.
        kind: `all_missing`, `missing`, `not_positive`, `ohlc`, `negative_volume`, `factor`,
            `duplicate`, `not_monotonic` or `mixed_adjust`.
        message: What is wrong, in a sentence with the numbers.
    """

    symbol: str
    time: datetime
    kind: str
    message: str

    def __str__(self) -> str:
        return f"{self.symbol} {_stamp(self.time)}: {self.message}"


def _stamp(time: datetime) -> str:
    """Write a daily stamp as a date and an intraday one with its minute."""
    return f"{time:%Y-%m-%d}" if (time.hour, time.minute) == (0, 0) else f"{time:%Y-%m-%d %H:%M}"


def collect(bars: pl.LazyFrame) -> pl.DataFrame:
    """Read a query over stored bars.

    Raises:
        DataError: `data.unreadable` when a file is gone, truncated or not Parquet.
    """
    try:
        return bars.collect()
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(
            "data.unreadable",
            f"stored bars cannot be read: {reason}",
            remedy="restore the file or import the bars again",
        ) from error


def is_synthetic() -> pl.Expr:
    """Return whether a bar was generated rather than observed, by its `source`."""
    return pl.col("source").str.starts_with(SYNTHETIC)


def any_synthetic(bars: pl.LazyFrame) -> bool:
    """Tell whether any of these bars was generated.

    Raises:
        DataError: `data.unreadable`.
    """
    return bool(collect(bars.select(is_synthetic().any())).item())


def conform(bars: pl.LazyFrame, *, where: str = "") -> pl.LazyFrame:
    """Bring a frame to `BAR_COLUMNS`: unknown columns go, nullable ones that are absent come empty.

    Raises:
        DataError: `data.bad_columns` when a required column is absent or of another type.
    """
    schema = collect(bars.limit(0)).schema
    absent = [name for name in BAR_COLUMNS if name not in schema and name not in NULLABLE_COLUMNS]
    if absent:
        raise DataError(
            "data.bad_columns",
            f"the bars lack {', '.join(absent)}",
            where=where,
            remedy=f"bars need the columns {', '.join(BAR_COLUMNS)}",
        )
    for name, dtype in BAR_COLUMNS.items():
        if name in schema and not _convertible(schema[name], dtype):
            raise DataError(
                "data.bad_columns",
                f"column {name} has type {schema[name]}, not {dtype}",
                where=where,
                remedy="write the column with that type",
            )
    return bars.select(
        pl.col(name).cast(dtype)
        if name in schema and schema[name] != dtype
        else (pl.col(name) if name in schema else pl.lit(None, dtype=dtype).alias(name))
        for name, dtype in BAR_COLUMNS.items()
    )


def _convertible(given: pl.DataType, wanted: Any) -> bool:
    """Tell whether a column may become another type without its meaning being guessed."""
    if given == pl.Null or given == wanted:
        return True
    if wanted == pl.Float64:
        return given.is_numeric()
    if isinstance(wanted, pl.Datetime):
        return given == pl.Date or (isinstance(given, pl.Datetime) and given.time_zone is None)
    return wanted == pl.String and isinstance(given, pl.Categorical | pl.Enum)


def find_problems(bars: pl.LazyFrame | pl.DataFrame) -> list[BarProblem]:
    """Look for everything that makes bars unusable; checks only the columns that are there.

    Looked for: missing, non-positive and infinite prices, a high below or a low above another price
    of its bar, negative and infinite volume, a factor that is not positive, two bars at one time,
    time running backwards, and a symbol whose bars come adjusted in two different ways.

    Returns:
        Problems in row order, whole-series ones first.
    """
    frame = bars.lazy().with_row_index("_row").collect()
    if frame.is_empty():
        return []
    present = [name for name in PRICE_COLUMNS if name in frame.columns]
    missing = pl.any_horizontal([_unknown(name) for name in present] or [_NEVER])
    series = _series_problems(frame, missing)
    named = {problem.symbol for problem in series if problem.kind == "all_missing"}
    step = pl.col("time").diff().over("symbol")
    # A row is reported under the first flag it raises: a missing price also breaks its OHLC.
    flags: dict[str, pl.Expr] = {
        "missing": missing,
        "not_positive": pl.any_horizontal(
            [~pl.col(name).is_between(0, _ENDLESS, closed="none") for name in present] or [_NEVER]
        ),
        "ohlc": _inconsistent(present),
        "duplicate": pl.struct("symbol", "time").is_duplicated() & (step == pl.duration()),
        "not_monotonic": step < pl.duration(),
    }
    if "volume" in frame.columns:
        flags["negative_volume"] = ~pl.col("volume").is_between(
            0, _ENDLESS, closed="left"
        ) | _unknown("volume")
    if "adj_factor" in frame.columns:
        sound = pl.col("adj_factor").is_between(0, _ENDLESS, closed="none")
        flags["factor"] = ~sound | _unknown("adj_factor")
    marked = frame.with_columns(expr.fill_null(value=False).alias(k) for k, expr in flags.items())
    kind = pl.coalesce([pl.when(pl.col(k)).then(pl.lit(k)) for k in flags])
    wrong = marked.with_columns(kind.alias("_kind")).filter(
        pl.col("_kind").is_not_null() & ~pl.col("symbol").is_in(list(named))
    )
    rows = [
        BarProblem(
            symbol=row["symbol"], time=row["time"], kind=row["_kind"], message=_sentence(row)
        )
        for row in wrong.sort("_row").iter_rows(named=True)
    ]
    return [*series, *rows]


def _series_problems(frame: pl.DataFrame, missing: pl.Expr) -> list[BarProblem]:
    aggregates = [
        missing.all().alias("empty"),
        pl.col("time").min().alias("first"),
        pl.col("time").max().alias("last"),
    ]
    if "adjust" in frame.columns:
        aggregates.append(pl.col("adjust").unique().sort().alias("kinds"))
    found = []
    for row in frame.group_by("symbol", maintain_order=True).agg(aggregates).iter_rows(named=True):
        if row["empty"]:
            span = f"{_stamp(row['first'])} to {_stamp(row['last'])}"
            found.append(
                BarProblem(
                    symbol=row["symbol"],
                    time=row["first"],
                    kind="all_missing",
                    message=f"every bar from {span} lacks a price",
                )
            )
        kinds = row.get("kinds", [])
        if len(kinds) > 1:
            found.append(
                BarProblem(
                    symbol=row["symbol"],
                    time=row["first"],
                    kind="mixed_adjust",
                    message=f"its bars are adjusted in different ways: {', '.join(kinds)}",
                )
            )
    return found


def _unknown(name: str) -> pl.Expr:
    return pl.col(name).is_null() | pl.col(name).is_nan()


def _inconsistent(present: list[str]) -> pl.Expr:
    rest = [name for name in present if name not in ("high", "low")]
    checks = []
    if "high" in present:
        checks += [pl.col("high") < pl.col(name) for name in (*rest, "low") if name in present]
    if "low" in present:
        checks += [pl.col("low") > pl.col(name) for name in rest]
    return pl.any_horizontal(checks) if checks else _NEVER


def _sentence(row: dict[str, Any]) -> str:
    prices = ", ".join(f"{name} {row[name]}" for name in PRICE_COLUMNS if name in row)
    return {
        "missing": f"a price is missing ({prices})",
        "not_positive": f"a price is not positive and finite ({prices})",
        "ohlc": f"high and low do not enclose the other prices ({prices})",
        "duplicate": "there are two bars at this time",
        "not_monotonic": "this bar is older than the one before it",
        "negative_volume": f"the volume is {row.get('volume')}",
        "factor": f"the adjustment factor is {row.get('adj_factor')}",
    }[row["_kind"]]


def check_bars(bars: pl.LazyFrame | pl.DataFrame, *, where: str = "") -> None:
    """Refuse bars that have any problem, naming the first by symbol and date.

    Raises:
        DataError: `data.no_bars` for an empty frame; `data.bad_bars` otherwise, with up to 20
            problems under `details["problems"]` and their number under `details["count"]`.
    """
    if bars.lazy().select(pl.len()).collect().item() == 0:
        raise DataError(
            "data.no_bars",
            "there are no bars",
            where=where,
            remedy="check the symbols and the dates against what the source covers",
        )
    problems = find_problems(bars)
    if not problems:
        return
    rest = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    raise DataError(
        "data.bad_bars",
        f"{problems[0]}{rest}",
        where=where,
        remedy="mend the series at the source or drop the symbol; nothing is repaired silently",
        details={"count": len(problems), "problems": [str(p) for p in problems[:_SAID]]},
    )


def fingerprint_frame(frame: pl.DataFrame) -> str:
    """Digest the content of bars: equal rows give equal digests on every machine.

    Taken over column names, types and values in row order. `source` and `as_of` are left out: the
    same bars fetched again are the same bars.

    Returns:
        SHA-256 in hex.
    """
    digest = hashlib.sha256()
    for name in frame.columns:
        if name in {"source", "as_of"}:
            continue
        column = frame.get_column(name)
        nulls = column.null_count()
        digest.update(f"{name}:{column.dtype}:{len(column)}:{nulls}\n".encode())
        if nulls == len(column):
            continue
        if nulls:
            digest.update(column.is_null().to_numpy().tobytes())
        if column.dtype == pl.String:
            # By runs: a million rows name a few thousand symbols.
            runs = column.fill_null("").rle().struct.unnest()
            digest.update("\x00".join(runs.get_column("value").to_list()).encode())
            digest.update(runs.get_column("len").cast(pl.Int64).to_numpy().tobytes())
        elif column.dtype == pl.Boolean:
            digest.update(column.fill_null(value=False).to_numpy().tobytes())
        else:
            digest.update(column.to_physical().fill_null(0).to_numpy().tobytes())
    return digest.hexdigest()
