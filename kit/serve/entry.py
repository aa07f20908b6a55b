"""Start a server by name: the console scripts, and `kit mcp serve`."""

from __future__ import annotations

import logging
from importlib import import_module
from typing import Any

import click

from kit.errors import UsageError
from kit.schemas import suggestion
from kit.serve import SERVERS
from kit.serve.desk import Desk
from kit.workspace import environ

__all__ = ["build", "historical_news_cn", "kit", "start", "trading_data_cn"]


def build(name: str, desk: Desk) -> Any:
    """Make a server; `NAME-mcp`, as the console scripts are called, names it too.

    Raises:
        UsageError: `mcp.unknown_server`.
    """
    return _module(name).build(desk)


def start(name: str, *, workspace: str | None = None, source: str | None = None) -> None:
    """Serve over stdio until the client goes.

    Args:
        name: Which server.
        workspace: Directory of the workspace; looked for at each call when None.
        source: Bar source; `KIT_BAR_SOURCE`, else the embedded sample, when None.

    Raises:
        UsageError: `mcp.unknown_server`.
    """
    module = _module(name)
    desk = Desk(workspace_path=workspace, source=source or environ("KIT_BAR_SOURCE") or Desk.source)
    # Before the SDK sets up its own: plain lines for whoever reads a client's log.
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    from kit.serve.host import serve

    serve(module.build(desk), leave=getattr(module, "leave", lambda: None))


def _module(name: str) -> Any:
    known = name.removesuffix("-mcp")
    if known not in SERVERS:
        raise UsageError(
            "mcp.unknown_server",
            f"there is no server {name!r}",
            remedy=suggestion(known, SERVERS) or f"servers: {', '.join(SERVERS)}",
        )
    return import_module(SERVERS[known])


def _script(name: str) -> click.Command:
    @click.command(name=f"{name}-mcp", help=f"Serve {name} over stdio, for an MCP client.")
    @click.option("--workspace", help="Workspace directory [default: KIT_WORKSPACE, else above].")
    @click.option("--source", help="Bar source [default: KIT_BAR_SOURCE, else the sample].")
    @click.option("--transport", type=click.Choice(["stdio"]), default="stdio", hidden=True)
    def command(workspace: str | None, source: str | None, transport: str) -> None:
        del transport  # there is one; clients that name it are not turned away
        start(name, workspace=workspace, source=source)

    return command


trading_data_cn = _script("trading-data-cn")
historical_news_cn = _script("historical-news-cn")
kit = _script("kit")
