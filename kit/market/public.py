"""One small adapter for each public service: how its library is called, what its columns mean.

The library is imported when it is first needed and can be handed in. Prices are asked for raw and
factors apart: adjusted prices of these services are not all adjusted by ratio.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable, Mapping
from datetime import date, timedelta
from typing import Any, Final

import polars as pl

from kit.errors import ConfigError, DataError
from kit.market.intake import ColumnMap, Raw
from kit.workspace import environ

__all__ = ["AkshareAdapter", "BaostockAdapter", "TushareAdapter", "YfinanceAdapter"]

_ENGLISH: Final = {name: name for name in ("open", "high", "low", "close", "volume", "amount")}
_CHINESE: Final = {
    "time": "日期",
    "open": "开盘",
    "high": "最高",
    "low": "最低",
    "close": "收盘",
    "volume": "成交量",
    "amount": "成交额",
}


class YfinanceAdapter:
    """Yahoo Finance: prices carry splits, `Adj Close` carries dividends as well."""

    name = "yfinance"
    markets = ("us", "hk", "cn")

    def __init__(self, library: Any = None) -> None:
        self._library = library or _import("yfinance")
        # Left alone it logs an error and answers with an empty table.
        debug = getattr(getattr(self._library, "config", None), "debug", None)
        self._loud = {"raise_errors": True} if debug is None else {}
        if debug is not None:
            debug.hide_exceptions = False

    def fetch(self, symbol: str, start: date, end: date) -> Raw:
        """Ask `Ticker.history` for unadjusted prices with the adjusted close beside them."""
        code = symbol.removesuffix(".SH") + ".SS" if symbol.endswith(".SH") else symbol
        frame = self._library.Ticker(code).history(
            start=start.isoformat(),
            end=(end + timedelta(days=1)).isoformat(),
            interval="1d",
            auto_adjust=False,
            actions=True,
            **self._loud,
        )
        columns = {
            "time": "Date",
            **{name: name.capitalize() for name in _ENGLISH if name != "amount"},
            "adj_close": "Adj Close",
        }
        mapping = ColumnMap(columns=columns, volume_unit="shares", adjust="split")
        return Raw(rows=_polars(frame), mapping=mapping, source=self.name)


class AkshareAdapter:
    """Raw prices of Eastmoney, factors of Sina.

    Eastmoney's own forward-adjusted prices subtract dividends: they are never asked for.
    """

    name = "akshare"
    markets = ("cn",)

    def __init__(self, library: Any = None) -> None:
        self._library = library or _import("akshare")

    def fetch(self, symbol: str, start: date, end: date) -> Raw:
        """Ask `stock_zh_a_hist`, whose volume is in lots, and the factors of `stock_zh_a_daily`."""
        code, _, exchange = symbol.partition(".")
        frame = self._library.stock_zh_a_hist(
            symbol=code,
            period="daily",
            start_date=f"{start:%Y%m%d}",
            end_date=f"{end:%Y%m%d}",
            adjust="",
        )
        factors = _polars(
            self._library.stock_zh_a_daily(symbol=exchange.lower() + code, adjust="hfq-factor")
        )
        return Raw(
            rows=_polars(frame),
            mapping=ColumnMap(columns=_CHINESE, volume_unit="lots"),
            factors=_dated(factors, "date", "hfq_factor"),
            source=self.name,
        )


class BaostockAdapter:
    """Baostock: everything is text; volume in shares, halted days with `tradestatus` 0."""

    name = "baostock"
    markets = ("cn",)

    def __init__(self, library: Any = None) -> None:
        self._library = library or _import("baostock")
        self._answered(self._library.login)

    def fetch(self, symbol: str, start: date, end: date) -> Raw:
        """Ask `query_history_k_data_plus` for raw bars and `query_adjust_factor` for factors."""
        number, _, exchange = symbol.partition(".")
        code = f"{exchange.lower()}.{number}"
        fields = (*_ENGLISH, "tradestatus", "isST")
        rows = self._answered(
            lambda: self._library.query_history_k_data_plus(
                code,
                ",".join(("date", "code", *fields)),
                start_date=start.isoformat(),
                end_date=end.isoformat(),
                frequency="d",
                adjustflag="3",
            )
        )
        factors = self._answered(
            lambda: self._library.query_adjust_factor(
                code=code, start_date="1990-01-01", end_date=end.isoformat()
            )
        )
        columns = {"time": "date", "symbol": "code", **_ENGLISH}
        columns |= {"tradestatus": "tradestatus", "is_st": "isST"}
        return Raw(
            rows=rows,
            mapping=ColumnMap(columns=columns, volume_unit="shares"),
            factors=_dated(factors, "dividOperateDate", "backAdjustFactor"),
            source=self.name,
        )

    def _answered(self, call: Callable[[], Any]) -> pl.DataFrame:
        """Return the rows of an answer; the library prints, and stdout is for results."""
        with contextlib.redirect_stdout(sys.stderr):
            result = call()
            if result.error_code != "0":
                raise DataError(
                    "source.failed",
                    f"baostock answered {result.error_code}: {result.error_msg}",
                    remedy="try later, or use another source",
                )
            return _polars(result.get_data()) if hasattr(result, "get_data") else pl.DataFrame()


class TushareAdapter:
    """Tushare Pro: volume in lots, turnover in thousands, factors from an interface of its own."""

    name = "tushare"
    markets = ("cn",)

    def __init__(self, options: Mapping[str, Any], library: Any = None) -> None:
        variable = options.get("token_env", "TUSHARE_TOKEN")
        token = environ(variable)
        if token is None:
            raise ConfigError(
                "source.no_token",
                "tushare needs a token",
                where=f"environment variable {variable}",
                remedy=f"export {variable}=... with the token of your account",
            )
        self._pro = (library or _import("tushare")).pro_api(token)

    def fetch(self, symbol: str, start: date, end: date) -> Raw:
        """Ask `daily` and `adj_factor`."""
        span = {
            "ts_code": symbol,
            "start_date": f"{start:%Y%m%d}",
            "end_date": f"{end:%Y%m%d}",
        }
        rows, factors = _polars(self._pro.daily(**span)), _polars(self._pro.adj_factor(**span))
        columns = {"time": "trade_date", "symbol": "ts_code", **_ENGLISH, "volume": "vol"}
        return Raw(
            rows=rows,
            mapping=ColumnMap(columns=columns, volume_unit="lots", amount_unit="thousand"),
            factors=_dated(factors, "trade_date", "adj_factor"),
            source=self.name,
        )


def _polars(frame: Any) -> pl.DataFrame:
    """Turn a pandas table into a polars one, its named index included."""
    if frame is None or not len(frame):
        return pl.DataFrame()
    table: pl.DataFrame = pl.from_pandas(frame.reset_index() if frame.index.name else frame)
    return table


def _dated(factors: pl.DataFrame, time: str, factor: str) -> pl.DataFrame | None:
    """Return dated factors under our names, None when there are none."""
    if factors.is_empty():
        return None
    absent = [name for name in (time, factor) if name not in factors.columns]
    if absent:
        raise DataError(
            "data.bad_columns",
            f"the factors lack {', '.join(absent)}; their columns are {', '.join(factors.columns)}",
            remedy="the source changed its table: use another source until its adapter follows",
        )
    text = pl.col(time).cast(pl.String).str.replace_all("-", "").str.slice(0, 8)
    return factors.select(
        text.str.to_datetime("%Y%m%d", time_unit="us").alias("time"),
        pl.col(factor).cast(pl.Float64).alias("adj_factor"),
    )


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ConfigError(
            "source.not_installed",
            f"the library {name} is not installed",
            remedy="install the extra: pip install 'kit[live]'",
        ) from error
