"""`kit mcp`: the servers that ship with the kit, served or looked at."""

from __future__ import annotations

import click

from kit.cli import output

_NAME = click.argument("name", metavar="NAME")


@click.group(epilog="Example: kit mcp serve trading-data-cn")
def mcp() -> None:
    """Serve the workspace and its data to MCP clients."""


@mcp.command(epilog="Example: kit mcp serve trading-data-cn --source parquet")
@_NAME
@click.option("--source", help="Bar source [default: KIT_BAR_SOURCE, else the embedded sample].")
@click.pass_obj
def serve(session: output.Session, name: str, source: str | None) -> None:
    """Serve over stdin and stdout until the client goes; NAME is one of `kit mcp list`."""
    from kit.serve.entry import start

    start(name, workspace=session.workspace_path, source=source)


@mcp.command("list", epilog="Example: kit mcp list --json")
@output.json_option
def list_servers(as_json: bool) -> None:
    """List the servers and their versions."""
    from kit.serve import SERVERS
    from kit.serve.desk import Desk
    from kit.serve.entry import build

    versions = {name: build(name, Desk()).version for name in SERVERS}
    if as_json:
        output.emit_json(versions)
        return
    output.table(("server", "version"), versions.items())


@mcp.command(epilog="Example: kit mcp tools trading-data-cn --json")
@_NAME
@output.json_option
def tools(name: str, as_json: bool) -> None:
    """List the tools of a server; --json gives their schemas."""
    import asyncio

    from kit.serve.desk import Desk
    from kit.serve.entry import build
    from kit.serve.host import published

    found = asyncio.run(published(build(name, Desk())))
    if as_json:
        output.emit_json(found)
        return
    rows = [
        (tool, about["_meta"]["version"], about["description"].split("\n")[0])
        for tool, about in found.items()
    ]
    output.table(("tool", "version", "what it does"), rows)
