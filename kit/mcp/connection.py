"""One live connection: handshake, tool list, requests."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio

import kit
from kit.errors import KitError
from kit.mcp.answers import ServerInfo, read_tools
from kit.mcp.servers import ServerConfig
from kit.mcp.stdio import StdioServer
from kit.mcp.trouble import Trouble, is_closed
from kit.mcp.versions import is_sdk_version
from kit.text import clip, one_line

__all__ = ["Connection"]

_MOST_PAGES = 200
_METHOD_NOT_FOUND = -32601
_LAST_WORDS_SEC = 0.5
_MOST_VERSION = 100
_GOODBYE_SEC = 2.0


class Connection:
    """A server from start to end; lives in one task of the pool's event loop.

    Attributes:
        info: What the server said of itself, once `ready` is set and `failure` is None.
        failure: Why it cannot be used; stays for good.
        ready: Set once one of the two is known.
    """

    def __init__(self, config: ServerConfig, deadline_sec: float) -> None:
        self.config = config
        self.info: ServerInfo | None = None
        self.failure: KitError | None = None
        self.ready = anyio.Event()
        self._deadline_sec = deadline_sec
        self._done = anyio.Event()
        self._introducing = anyio.CancelScope()
        self._process = StdioServer(config) if config.command else None
        self._dispatcher: Any = None
        self._headers: dict[str, str] = {}
        self._trouble = Trouble(config, self._process)
        self._doing = "initialize"
        self._owed = 0

    async def run(self) -> None:
        """Start the server, keep it until `stop`, end it. Never raises; see `failure`."""
        try:
            async with self._session() as session:
                await self._introduce(session)
                if self.info is not None:
                    await self._done.wait()
        except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001 - told by `failure`
            if self.failure is None:
                self.failure = await self._explained(error, self._doing, self._deadline_sec, 0)
        finally:
            self.ready.set()

    def stop(self) -> None:
        """Let `run` end the server, however far it has come."""
        self._introducing.cancel()
        self._done.set()
        if self._process is not None:
            # Who still owes an answer does not listen for its end either.
            heard = self.info is not None and self.failure is None
            self._process.polite = heard and not self._owed

    async def request(
        self, method: str, params: Mapping[str, Any] | None, timeout_sec: float
    ) -> dict[str, Any]:
        """Send a request and return its result as it came.

        Raises:
            McpError: `mcp.timeout`, `mcp.exited`, `mcp.unreachable`, `mcp.protocol`;
                `mcp.tool_error` where the server refused the request.
        """
        self.check()
        noise = self._noise
        self._owed += 1
        try:
            with anyio.fail_after(timeout_sec):
                result = await self._send(method, params)
            self._owed -= 1
            return result
        except Exception as error:
            if not isinstance(error, TimeoutError):
                self._owed -= 1
            explained = await self._explained(error, method, timeout_sec, noise)
            if is_closed(error):
                self.failure = copy.copy(explained)
            raise explained from error

    def introduced(self, deadline_sec: float) -> ServerInfo:
        """Return `info`, once `ready` is set or so much time has passed.

        Raises:
            McpError: See `failure`; `mcp.timeout`.
        """
        self.check()
        if self.info is None:
            raise self._trouble.error(
                "mcp.timeout", f"did not answer {self._doing} in {round(deadline_sec, 1):g} s"
            )
        return self.info

    def check(self) -> None:
        """Raise why the server cannot be used, if so."""
        if self.failure is not None:
            raise copy.copy(self.failure)

    @property
    def _noise(self) -> int:
        return self._process.noise if self._process else 0

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[Any]:
        from mcp.client.session import ClientSession
        from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
        from mcp_types import Implementation

        async with AsyncExitStack() as stack:
            if self._process is not None:
                streams = await stack.enter_async_context(self._process.open())
            else:
                streams = await stack.enter_async_context(self._http())
            self._dispatcher = JSONRPCDispatcher(*streams)
            about = Implementation(name="kit", version=kit.__version__)
            yield await stack.enter_async_context(
                ClientSession(dispatcher=self._dispatcher, client_info=about)
            )

    @asynccontextmanager
    async def _http(self) -> AsyncIterator[Any]:
        from mcp.client.streamable_http import streamable_http_client
        from mcp.shared._httpx_utils import create_mcp_http_client

        async def note_status(response: Any) -> None:
            # The SDK tells of an error response, not of which one. To a GET, 405 is no error.
            if response.request.method == "POST":
                self._trouble.http_status = response.status_code

        async with (
            create_mcp_http_client(headers=self.config.headers()) as client,
            streamable_http_client(self.config.url, http_client=client) as streams,
        ):
            client.event_hooks = {"response": [note_status]}
            try:
                yield streams
            finally:
                # The transport says goodbye to the session, and waits for an answer.
                client.timeout = _GOODBYE_SEC

    async def _introduce(self, session: Any) -> None:
        try:
            with self._introducing, anyio.fail_after(self._deadline_sec):
                greeting = await session.initialize()
                self._headers = {"mcp-protocol-version": greeting.protocol_version}
                self._doing = "tools/list"
                entries, problems = await self._listing()
                self.info = self._describe(greeting, entries, problems)
        except Exception as error:  # noqa: BLE001 - told by `failure`
            self.failure = await self._explained(error, self._doing, self._deadline_sec, 0)
        # Told before the process is ended, which may take longer than the deadline.
        self.ready.set()

    async def _listing(self) -> tuple[list[Any], list[str]]:
        from mcp.shared.exceptions import MCPError

        entries: list[Any] = []
        seen: set[str] = set()
        cursor = None
        while True:
            try:
                page = await self._send("tools/list", {"cursor": cursor} if cursor else None)
            except MCPError as error:
                if error.code == _METHOD_NOT_FOUND and not seen:
                    return [], ["it has no tools at all"]
                raise
            if not isinstance(page.get("tools"), list):
                raise self._trouble.error("mcp.protocol", "lists its tools without a list of tools")
            entries += page["tools"]
            cursor = page.get("nextCursor")
            if not cursor:
                return entries, []
            if str(cursor) in seen or len(seen) >= _MOST_PAGES:
                raise self._trouble.error(
                    "mcp.protocol",
                    f"never comes to the end of its tool list: page {len(seen) + 1} points to "
                    + ("one before it" if str(cursor) in seen else "yet another"),
                )
            seen.add(str(cursor))

    async def _send(self, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
        # Not through the session: it refuses a whole page of tools for one that is malformed.
        result: dict[str, Any] = await self._dispatcher.send_raw_request(
            method, params, {"headers": dict(self._headers)}
        )
        return result

    def _describe(self, greeting: Any, entries: list[Any], problems: list[str]) -> ServerInfo:
        tools, duplicates = read_tools(entries)
        problems += [f"lists tool {name!r} more than once" for name in duplicates]
        problems += filter(None, [self._trouble.noise()])
        version = clip(one_line(greeting.server_info.version), _MOST_VERSION)
        return ServerInfo(
            name=self.config.name,
            channel=self.config.channel,
            server_name=clip(one_line(greeting.server_info.name), _MOST_VERSION),
            version=version,
            version_is_sdk=is_sdk_version(version, self.config),
            protocol_version=greeting.protocol_version,
            tools=tools,
            duplicates=duplicates,
            stderr_tail=self._trouble.tail(),
            problems=tuple(problems),
        )

    async def _explained(
        self, error: BaseException, doing: str, seconds: float, noise: int
    ) -> KitError:
        if is_closed(error) and self._process is not None:
            # How it ended is known a moment after its pipes are closed.
            await self._process.wait(_LAST_WORDS_SEC)
        return self._trouble.explained(
            error, doing, seconds=seconds, noisy=self._noise > noise, known=self.info is not None
        )
