"""One pool of MCP servers for a run: started on first use, called many times, closed with it."""

from __future__ import annotations

import base64
import logging
import threading
from collections.abc import AsyncIterator, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import unquote, urlsplit

import anyio
from anyio.abc import TaskGroup
from anyio.from_thread import BlockingPortal, start_blocking_portal

from kit import files, schemas
from kit.errors import KitError, McpError
from kit.mcp.answers import ResourceLink, ServerInfo, ToolAnswer, ToolInfo, read_answer
from kit.mcp.connection import Connection
from kit.mcp.recorder import Recorder
from kit.mcp.servers import ServerConfig

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ServerPool"]

# Between a connection's own deadline and giving up on it unheard.
_LEEWAY_SEC = 2.0


class ServerPool:
    """The servers of one run; a context manager, safe to use from several threads.

    A server is started on its first use, once. One that failed, or died, stays failed for the
    run: the same error is raised again at once. Leaving the `with` block ends every process,
    those that a server started included.

    Args:
        servers: What may be started, from `load_servers`.
        deadline_sec: Seconds that a server has to start, shake hands and list its tools.
        call_timeout_sec: Seconds that a call has, unless it says otherwise.
        recorder: Observes the calls, while a draft is open.
    """

    def __init__(
        self,
        servers: Mapping[str, ServerConfig],
        *,
        deadline_sec: float = 30.0,
        call_timeout_sec: float = 60.0,
        recorder: Recorder | None = None,
    ) -> None:
        self.servers = servers
        self.recorder = recorder
        self._deadline_sec = deadline_sec
        self._call_timeout_sec = call_timeout_sec
        self._open = False
        self._guard = threading.Lock()
        self._hall = ExitStack()
        self._running: BlockingPortal | None = None
        self._connections: dict[str, Connection] = {}
        self._group: TaskGroup

    def __enter__(self) -> Self:
        self._open = True
        return self

    def __exit__(self, *exc: object) -> None:
        with self._guard:
            self._open = False
            self._hall.close()

    def warm(self) -> None:
        """Load the SDK, which takes seconds on a busy machine, before a deadline runs."""
        self._portal()

    def describe(self, name: str, *, timeout_sec: float | None = None) -> ServerInfo:
        """Start a server if need be, and return what it says of itself.

        Args:
            name: Name of the server.
            timeout_sec: Seconds to wait for it; the pool's own deadline by default.

        Raises:
            McpError: `mcp.missing_server`, `mcp.not_startable`, `mcp.unreachable`, `mcp.exited`,
                `mcp.timeout` or `mcp.protocol`. `details` holds `server` and `stderr_tail`.
        """
        # The connection keeps the deadline itself, and names what it was waiting for.
        own = self._deadline_sec + _LEEWAY_SEC
        return self._described(name, own if timeout_sec is None else timeout_sec)

    def describe_all(
        self, names: Iterable[str], deadline_sec: float
    ) -> dict[str, ServerInfo | KitError]:
        """Describe several servers at once under one overall deadline; errors are returned.

        Returns:
            One entry for each name, in the order given.
        """
        asked = list(dict.fromkeys(names))
        self._portal()

        def one(name: str) -> ServerInfo | KitError:
            try:
                return self._described(name, deadline_sec)
            except KitError as error:
                return error

        with ThreadPoolExecutor(max_workers=max(1, len(asked))) as threads:
            return dict(zip(asked, threads.map(one, asked), strict=True))

    def call(
        self,
        server: str,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout_sec: float | None = None,
    ) -> ToolAnswer:
        """Call a tool and wait for its answer.

        Args:
            server: Name of the server.
            tool: Name of the tool.
            arguments: Plain JSON values by argument name.
            timeout_sec: Seconds to wait for the answer; the pool's own by default.

        Raises:
            McpError: As `describe`; `mcp.no_tool` (with a suggestion), `mcp.bad_schema` (the
                tool declares an unusable one), `mcp.timeout`,
                `mcp.tool_error` (the tool says it failed), `mcp.off_schema` (the structured
                answer does not match the declared schema), `mcp.protocol` (NaN, for example).
            DataError: `file.bad_json` where an argument is no JSON value.
        """
        given = dict(arguments or {})
        files.dump_json(given)
        known = self._callable(self.describe(server), tool)
        result = self._ask(server, "tools/call", {"name": tool, "arguments": given}, timeout_sec)
        try:
            answer = read_answer(server, known, result)
        except McpError as error:
            # A tool may quote the token it was given.
            masked = self._config(server).redactor()
            error.message = masked.text(error.message)
            error.details = masked.value(error.details)
            raise
        if self.recorder is None:
            return answer
        return replace(answer, payload=self.recorder.watch(server, tool, given, answer.payload))

    def fetch(self, server: str, link: ResourceLink | str) -> bytes:
        """Return the bytes behind a resource link: a local file, or read through the server.

        Raises:
            McpError: As `call`; `mcp.protocol` where there are no bytes behind it.
        """
        uri = link if isinstance(link, str) else link.uri
        address = urlsplit(uri)
        if address.scheme == "file" and self._config(server).command:
            try:
                return Path(unquote(address.path)).read_bytes()
            except OSError as error:
                raise _bad_link(server, uri, error.strerror or str(error)) from error
        contents = self._ask(server, "resources/read", {"uri": uri}, None).get("contents")
        part = contents[0] if isinstance(contents, list) and contents else {}
        if isinstance(part.get("text"), str):
            return str(part["text"]).encode("utf-8")
        try:
            return base64.b64decode(part["blob"], validate=True)
        except (KeyError, TypeError, ValueError) as error:
            raise _bad_link(server, uri, "the server sends neither text nor base64") from error

    def table(self, answer: ToolAnswer) -> pa.Table:
        """Return the rows of the one Parquet resource that an answer links to.

        With a recorder, that counts as reading every column.

        Raises:
            McpError: `mcp.protocol` where there is not exactly one link or it is no Parquet.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        if len(answer.links) != 1:
            said = f"{len(answer.links)} links where one was expected"
            raise _bad_link(answer.server, answer.tool, said)
        uri = answer.links[0].uri
        try:
            table = pq.read_table(pa.BufferReader(self.fetch(answer.server, uri)))
        except pa.ArrowInvalid as error:
            raise _bad_link(answer.server, uri, f"it is no Parquet: {error}") from error
        if self.recorder is not None:
            self.recorder.add(answer.server, answer.tool, (), table.column_names)
        return table

    def _config(self, name: str) -> ServerConfig:
        if name not in self.servers:
            raise McpError(
                "mcp.missing_server",
                f"there is no MCP server {name!r} in config/mcp.json",
                where=f"config/mcp.json: servers.{name}",
                remedy=schemas.suggestion(name, self.servers)
                or "add it to config/mcp.json with the command that starts it",
                details={"server": name, "known": sorted(self.servers)},
            )
        return self.servers[name]

    def _callable(self, info: ServerInfo, tool: str) -> ToolInfo:
        known = info.tool(tool)
        details = {"server": info.name, "tool": tool}
        if known is None or tool in info.duplicates:
            what = "has no tool" if known is None else "lists more than one tool"
            raise McpError(
                "mcp.no_tool",
                f"MCP server {info.name!r} {what} {tool!r}",
                where=f"{info.name}.{tool}",
                remedy=schemas.suggestion(tool, (entry.name for entry in info.tools))
                or f"its tools: {', '.join(entry.name for entry in info.tools)}",
                details=details,
            )
        if known.problem:
            raise McpError(
                "mcp.bad_schema",
                f"tool {tool!r} of MCP server {info.name!r} cannot be relied on: {known.problem}",
                where=f"{info.name}.{tool}",
                remedy="update the server, or report it to its maker",
                details=details,
            )
        return known

    def _described(self, name: str, deadline_sec: float) -> ServerInfo:
        config = self._config(name)
        return self._portal().call(self._introduced, config, deadline_sec)

    def _ask(
        self, server: str, method: str, params: dict[str, Any], timeout_sec: float | None
    ) -> dict[str, Any]:
        self.describe(server)
        connection = self._connections[server]
        seconds = self._call_timeout_sec if timeout_sec is None else timeout_sec
        return self._portal().call(connection.request, method, params, seconds)

    def _portal(self) -> BlockingPortal:
        with self._guard:
            if not self._open:
                raise McpError(
                    "mcp.closed",
                    "a pool of MCP servers was used outside its `with` block",
                    remedy="call the server inside `with ServerPool(...) as pool:`",
                )
            if self._running is None:
                _load_sdk()
                # A thread with a loop of its own: a notebook's kernel runs one already.
                portal = self._hall.enter_context(start_blocking_portal())
                self._hall.enter_context(portal.wrap_async_context_manager(self._tasks()))
                self._running = portal
            return self._running

    @asynccontextmanager
    async def _tasks(self) -> AsyncIterator[None]:
        async with anyio.create_task_group() as group:
            self._group = group
            try:
                yield
            finally:
                for connection in self._connections.values():
                    connection.stop()

    async def _introduced(self, config: ServerConfig, deadline_sec: float) -> ServerInfo:
        connection = self._connections.get(config.name)
        if connection is None:
            connection = Connection(config, self._deadline_sec)
            self._connections[config.name] = connection
            self._group.start_soon(connection.run)
        with anyio.move_on_after(deadline_sec):
            await connection.ready.wait()
        return connection.introduced(deadline_sec)


def _load_sdk() -> None:
    # Before any deadline runs, and outside the event loop: it takes seconds on a busy machine.
    import mcp.client.session  # noqa: F401

    # Where nobody configured logging, Python prints a library's warnings to stderr.
    for name in ("mcp", "client"):
        logging.getLogger(name).addHandler(logging.NullHandler())


def _bad_link(server: str, uri: str, said: str) -> McpError:
    return McpError(
        "mcp.protocol",
        f"MCP server {server!r} points to data that cannot be read: {said}",
        where=uri,
        remedy="update the server, or report it to its maker",
        details={"server": server},
    )
