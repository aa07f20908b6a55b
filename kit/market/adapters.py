"""Where synced bars come from: one protocol, a folder of files, an MCP server, public services.

An adapter answers `fetch(symbol, start, end)` with the source's own rows and a declared mapping;
reading, unit conversion and every check are `kit.market.intake`'s.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from typing import TYPE_CHECKING, Any, Final, Protocol

import polars as pl

from kit.errors import DataError, UsageError
from kit.market import public
from kit.market.bars import PRICE_COLUMNS, SYNTHETIC
from kit.market.intake import ColumnMap, Raw, find_columns, read_table
from kit.workspace import Workspace

if TYPE_CHECKING:
    from kit.mcp import ServerPool

__all__ = ["ADAPTERS", "Adapter", "CsvAdapter", "McpAdapter", "open_adapter"]


class Adapter(Protocol):
    """Something that can be asked for the daily bars of one symbol."""

    @property
    def name(self) -> str:
        """Its name in `config/data.json`."""
        ...

    @property
    def markets(self) -> tuple[str, ...]:
        """Markets it serves."""
        ...

    def fetch(self, symbol: str, start: date, end: date) -> Raw:
        """Return its rows between two dates, both included; raises whatever the library does."""
        ...


class CsvAdapter:
    """A folder with one CSV or Parquet file a symbol."""

    name = "csv"
    markets = ("cn", "hk", "us")

    def __init__(self, workspace: Workspace, options: Mapping[str, Any]) -> None:
        self._folder = workspace.root / options["folder"]
        self._options = options

    def fetch(self, symbol: str, start: date, end: date) -> Raw:
        """Return the rows of `<folder>/<symbol>.csv` (or `.csv.gz`, `.parquet`); all of them."""
        del start, end
        for ending in (".csv", ".csv.gz", ".parquet"):
            path = self._folder / f"{symbol}{ending}"
            if path.is_file():
                rows = read_table(path)
                mapping = ColumnMap(
                    columns=find_columns(rows.columns, where=str(path)),
                    volume_unit=self._options["volume_unit"],
                    amount_unit=self._options.get("amount_unit", "currency"),
                    adjust=self._options.get("adjust", "none"),
                )
                return Raw(rows=rows, mapping=mapping, source="csv")
        raise DataError(
            "data.no_bars",
            f"there is no file {symbol}.csv",
            where=str(self._folder),
            remedy="put one file a symbol there, or change sources.csv.options.folder",
        )


class McpAdapter:
    """A server of `config/mcp.json` with the tool `get_bars`, such as `trading-data-cn`."""

    name = "mcp"
    markets = ("cn",)

    def __init__(self, pool: ServerPool, server: str) -> None:
        self._pool, self._server = pool, server

    def fetch(self, symbol: str, start: date, end: date) -> Raw:
        """Call `get_bars`; a large answer comes as a Parquet file that the server serves."""
        asked = {
            "codes": [symbol],
            "start_date": start.isoformat(),
            "end_date": end.isoformat(),
            "adjust": "backward",
        }
        payload = self._pool.call(self._server, "get_bars", asked).require_payload()
        if payload.get("file"):
            rows = pl.read_parquet(self._pool.fetch(self._server, payload["file"]["uri"]))
        else:
            rows = pl.DataFrame(payload["bars"], infer_schema_length=None)
        columns = {name: name for name in (*PRICE_COLUMNS, "volume")}
        columns |= {"time": "date", "symbol": "symbol", "adj_close": "close_adj"}
        restated = symbol in payload.get("restated", ())
        mark = f"{SYNTHETIC} via " if payload.get("synthetic") else ""
        return Raw(
            rows=rows,
            mapping=ColumnMap(
                columns=columns, volume_unit="shares", adjust="qfq" if restated else "none"
            ),
            source=f"{mark}mcp {self._server}: {payload.get('source', '')}".rstrip(": "),
        )


ADAPTERS: Final = ("csv", "mcp", "yfinance", "akshare", "baostock", "tushare")
"""Names `open_adapter` knows."""


_PUBLIC: Final[Mapping[str, Callable[[], Adapter]]] = {
    "yfinance": public.YfinanceAdapter,
    "akshare": public.AkshareAdapter,
    "baostock": public.BaostockAdapter,
}


@contextlib.contextmanager
def open_adapter(workspace: Workspace, name: str, options: Mapping[str, Any]) -> Iterator[Adapter]:
    """Open an adapter by name for the length of a `with` block.

    Raises:
        UsageError: `data.unknown_source`.
        ConfigError: `source.not_installed` or `source.no_token`.
    """
    if name == "csv":
        yield CsvAdapter(workspace, options)
    elif name == "mcp":
        from kit.mcp import ServerPool, load_servers

        with ServerPool(load_servers(workspace)) as pool:
            yield McpAdapter(pool, options.get("server", "trading-data-cn"))
    elif name == "tushare":
        yield public.TushareAdapter(options)
    elif name in _PUBLIC:
        yield _PUBLIC[name]()
    else:
        raise UsageError(
            "data.unknown_source",
            f"there is no source {name!r} to fetch from",
            remedy=f"sources: {', '.join(ADAPTERS)}",
        )
