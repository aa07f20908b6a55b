"""The tools of `trading-data-cn-mcp` and what each is called with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.resources import FileResource
from mcp_types import CallToolResult, ResourceLink
from pydantic import Field

from kit.clock import parse_date
from kit.errors import UsageError
from kit.schemas import suggestion
from kit.serve.desk import Desk, day_window, split_symbols
from kit.serve.host import answer, make_server, make_tool
from kit.serve.trading_data_cn.shapes import Bars, Dropped, Filters, Meta, Security, Universe

if TYPE_CHECKING:
    from kit.market import BarSource
    from kit.market import Security as Listed

__all__ = ["MAX_ROWS", "build"]

MARKET: Final = "cn"
MAX_ROWS: Final = 5_000
"""Bars answered as JSON; more go into a Parquet file."""

_SHOWN: Final = 200
_SUGGESTED: Final = 20  # looking for near names takes long in a market of thousands
_PARQUET: Final = "application/vnd.apache.parquet"
_INSTRUCTIONS: Final = """\
Securities, universes and bars of the mainland Chinese market, from the workspace's own store.
Prices are CNY per share, volume is in shares. Every answer counts what was asked for and got, and
names what was dropped and why. Large answers of get_bars are a link to a Parquet file."""

Symbols = Annotated[
    list[Annotated[str, Field(max_length=32)]],
    Field(min_length=1, max_length=20_000, description="symbols such as 600000.SH, 000001.SZ"),
]
Day = Annotated[str, Field(description="YYYY-MM-DD", max_length=32)]


class TradingData:
    """The tools over one desk.

    Args:
        desk: Where bars come from.
    """

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def get_security_meta(self, symbols: Symbols) -> Annotated[CallToolResult, Meta]:
        """Name, industry, board, listing date and ST state of securities."""
        source, known = self._open()
        good, dropped = _known(symbols, known)
        rows = [
            Security(
                symbol=item.symbol,
                name=item.name,
                industry=item.industry,
                is_st=item.is_st,
                listed_date=item.listed_date.isoformat() if item.listed_date else None,
                board=item.board,
                kind=item.kind,
            )
            for item in (known[symbol] for symbol in good)
        ]
        return answer(Meta(securities=rows, **_asked(source, good, dropped)))

    def get_universe(
        self, date: Day, filters: Filters | None = None
    ) -> Annotated[CallToolResult, Universe]:
        """Symbols that could be picked on a date: listed by then, traded in its last session.

        Membership is today's list looked back at, not a point-in-time index: the note says so.
        """
        from kit.market import resolve_universe

        on = parse_date(date)
        source, known = self._open()
        selector: dict[str, Any] = (filters or Filters()).model_dump(exclude_none=True)
        unknown: list[Dropped] = []
        if "symbols" in selector:
            selector["symbols"], unknown = _known(selector["symbols"], known)
        if selector.get("symbols") == []:
            return answer(Universe(date=date, symbols=[], note="", **_asked(source, [], unknown)))
        found = resolve_universe(source, MARKET, selector or {"kind": "all"}, on)
        dropped = [Dropped(symbol=item.symbol, reason=item.reason) for item in found.dropped]
        return answer(
            Universe(
                date=date,
                symbols=list(found.symbols),
                note=found.note,
                **_asked(source, found.symbols, [*unknown, *dropped]),
            )
        )

    def get_bars(
        self,
        codes: Symbols,
        start_date: Day,
        end_date: Day,
        ctx: Context[Any, Any],
        interval: Annotated[
            str, Field(pattern="^[0-9]{1,3}[mhdw]$", description="bar spacing: 1d, 1m, 5m")
        ] = "1d",
        adjust: Annotated[
            Literal["none", "forward", "backward"],
            Field(description="forward: the last bar of the window keeps its price; see close_adj"),
        ] = "forward",
    ) -> Annotated[CallToolResult, Bars]:
        """Bars of symbols between two dates, both included: raw prices and adjusted ones.

        More than 5,000 bars come as a resource link to a Parquet file with the same columns.
        """
        from kit.serve.trading_data_cn.bars import publish, read_bars

        first, last = day_window(start_date, end_date)
        source, known = self._open()
        good, dropped = _known(codes, known)
        found = read_bars(source, good, first, last, interval, adjust)
        have = set(found.symbols)
        reason = f"no {interval} bar from {first} to {last}"
        dropped += [Dropped(symbol=code, reason=reason) for code in good if code not in have]
        made = Bars(
            interval=interval,
            adjust=adjust,
            rows=len(found.frame),
            synthetic=found.synthetic,
            restated=found.restated[:_SHOWN],
            bars=[],
            **_asked(source, found.symbols, dropped),
        )
        if len(found.frame) <= MAX_ROWS:
            made.bars = found.rows()
            return answer(made)
        made.file = publish(self._desk.workspace(), found.frame)
        name = f"{made.rows} bars of {made.got} symbols, {first} to {last}"
        resource = FileResource(
            uri=made.file.uri, name=name, path=Path(made.file.path), mime_type=_PARQUET
        )
        ctx.mcp_server.add_resource(resource)
        link = ResourceLink(
            type="resource_link",
            uri=made.file.uri,
            name=name,
            mime_type=_PARQUET,
            size=made.file.bytes,
        )
        return answer(made, link)

    def _open(self) -> tuple[BarSource, dict[str, Listed]]:
        from kit.market import SampleSource, open_source

        if self._desk.source == "mcp":
            raise UsageError(
                "data.unknown_source",
                "a server of bars cannot take its bars from a server: it would ask itself",
                remedy="start it with --source sample, parquet or a provider",
            )
        # The sample travels with the package: it needs no workspace.
        source: BarSource = (
            SampleSource()
            if self._desk.source == SampleSource.name
            else open_source(self._desk.workspace(), self._desk.source)
        )
        return source, {item.symbol: item for item in source.securities(MARKET)}


def _known(symbols: Iterable[str], known: dict[str, Listed]) -> tuple[list[str], list[Dropped]]:
    """Split symbols into those the source knows and the others, with the reason."""
    good, malformed = split_symbols(symbols)
    dropped = [
        Dropped(symbol=symbol, reason="not a mainland symbol: write 600000.SH or 000001.SZ")
        for symbol in malformed
    ]
    unknown = [symbol for symbol in good if symbol not in known]
    for place, symbol in enumerate(unknown):
        near = suggestion(symbol, known) if place < _SUGGESTED else ""
        reason = "the source does not know it" + (f"; {near}" if near else "")
        dropped.append(Dropped(symbol=symbol, reason=reason))
    return [symbol for symbol in good if symbol in known], dropped


def _asked(source: BarSource, got: Sequence[str], dropped: list[Dropped]) -> dict[str, Any]:
    return {
        "asked": len(got) + len(dropped),
        "got": len(got),
        "dropped": dropped[:_SHOWN],
        "dropped_more": max(len(dropped) - _SHOWN, 0),
        "source": source.name,
    }


def build(desk: Desk) -> MCPServer[Any]:
    """Make the server."""
    tools = TradingData(desk)
    return make_server(
        Path(__file__).parent,
        "trading-data-cn",
        _INSTRUCTIONS,
        [
            make_tool(tools.get_security_meta, title="Security master data", version="1.0.0"),
            make_tool(tools.get_universe, title="Universe on a date", version="1.0.0"),
            make_tool(tools.get_bars, title="Bars", version="1.0.0"),
        ],
    )
