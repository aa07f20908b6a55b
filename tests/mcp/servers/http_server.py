"""A real SDK server over streamable HTTP, on the loopback port given."""

import sys

from mcp.server import MCPServer
from pydantic import BaseModel


class Bar(BaseModel):
    date: str
    close_adj: float


class Bars(BaseModel):
    bars: list[Bar]


server = MCPServer("http-bars", version="2.0.1")


@server.tool()
def get_bars(codes: list[str]) -> Bars:
    """Daily bars."""
    return Bars(bars=[Bar(date="2024-09-18", close_adj=12.5) for _ in codes])


@server.resource("rows://all", mime_type="application/octet-stream")
def rows() -> bytes:
    """Bytes behind a link."""
    return b"\x00\x01rows"


server.run("streamable-http", port=int(sys.argv[1]))
