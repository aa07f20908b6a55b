"""The process of a stdio server: its pipes, its last words, and its end.

The SDK's own stdio transport tells neither how a process ended nor what it wrote to stderr, waits
for a grandchild that keeps the pipes, and copies a long line once a chunk. This one reports all of
it, takes a line of up to 32 MiB, and leaves no process of the server's group behind.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from kit import files
from kit.errors import DataError, McpError
from kit.mcp.servers import ServerConfig
from kit.text import clip, one_line

if TYPE_CHECKING:
    from mcp.shared.message import SessionMessage

__all__ = ["GARBLED", "MAX_MESSAGE", "StdioServer"]

MAX_MESSAGE = 32 * 1024 * 1024
"""Most bytes of one message."""

GARBLED = -32700
"""JSON-RPC code of the error that stands in for an answer that could not be read."""

_CHUNK = 65536
_MOST_NOISE = 10_000
# More is kept than is shown: a secret cut in half at the start must not be among what is shown.
_TAIL_KEPT = 8192
_POLL_SEC = 0.02
# After its end, what it had written before is still on its way.
_DRAIN_SEC = 0.1
_POLITE_SEC, _TERMINATE_SEC, _KILL_SEC = 2.0, 1.0, 2.0


class StdioServer:
    """One server process and what it says beside the protocol.

    Attributes:
        noise: How many lines on its stdout were no message.
        first_noise: The first of them, cut short.
        fatal: Why the connection was given up; empty otherwise.
        polite: Whether closing waits for the server to end by itself.
    """

    def __init__(self, config: ServerConfig) -> None:
        self._config = config
        self._process: subprocess.Popen[bytes] | None = None
        self._tail = bytearray()
        self._swept = False
        self.noise = 0
        self.first_noise = ""
        self.fatal = ""
        self.polite = False

    @asynccontextmanager
    async def open(self) -> AsyncIterator[tuple[Any, Any]]:
        """Start the process; yield the read and the write stream that a session wants.

        Raises:
            McpError: `mcp.not_startable`.
        """
        process = self._process = self._spawn()
        to_session, from_server = anyio.create_memory_object_stream["SessionMessage | Exception"](0)
        # With room in it, a server that does not read cannot hold up a caller who gives up.
        to_server, from_session = anyio.create_memory_object_stream["SessionMessage"](64)
        try:
            async with anyio.create_task_group() as tasks:
                writing = anyio.CancelScope()
                tasks.start_soon(self._write, process, from_session, writing)
                tasks.start_soon(self._read, process, to_session)
                tasks.start_soon(self._listen, process)
                tasks.start_soon(self._await_end, process, to_session)
                try:
                    yield from_server, to_server
                finally:
                    with anyio.CancelScope(shield=True):
                        writing.cancel()
                        await anyio.sleep(0)
                        await self._stop(process)
                    tasks.cancel_scope.cancel()
        finally:
            for stream in (to_session, from_server, to_server, from_session):
                stream.close()
            for pipe in (process.stdin, process.stdout, process.stderr):
                with suppress(OSError):
                    pipe.close()  # type: ignore[union-attr]

    @property
    def exit_status(self) -> int | None:
        """How it ended: its exit status, a negative signal number, or None while it runs."""
        return None if self._process is None else self._process.poll()

    async def wait(self, seconds: float) -> int | None:
        """Wait that long at most for its end, and return `exit_status`."""
        with anyio.move_on_after(seconds):
            while self.exit_status is None:
                await anyio.sleep(_POLL_SEC)
        return self.exit_status

    @property
    def stderr(self) -> str:
        """The end of what it wrote to stderr, as it came."""
        return self._tail.decode("utf-8", "replace")

    def _spawn(self) -> subprocess.Popen[bytes]:
        config = self._config
        program = config.program()
        try:
            process = subprocess.Popen(
                [str(program), *config.args],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                cwd=config.root,
                env=config.variables(),
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise McpError(
                "mcp.not_startable",
                f"MCP server {config.name!r} cannot be started: {program}: {reason}",
                where=f"config/mcp.json: servers.{config.name}.command",
                remedy="run the command by hand; mend it in config/mcp.json",
            ) from error
        for pipe in (process.stdin, process.stdout, process.stderr):
            os.set_blocking(pipe.fileno(), False)  # type: ignore[union-attr]
        return process

    async def _read(
        self,
        process: subprocess.Popen[bytes],
        to_session: MemoryObjectSendStream[SessionMessage | Exception],
    ) -> None:
        buffer = bytearray()
        while chunk := await _receive(process.stdout):
            start = len(buffer)
            buffer += chunk
            while (end := buffer.find(b"\n", start)) >= 0:
                line, start = bytes(buffer[:end]), 0
                del buffer[: end + 1]
                if (message := self._message(line)) is not None:
                    with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
                        await to_session.send(message)
            if len(buffer) > MAX_MESSAGE:
                self.fatal = f"a message of more than {MAX_MESSAGE // 1024 // 1024} MiB"
            if self.noise > _MOST_NOISE:
                self.fatal = f"more than {_MOST_NOISE} lines that are no message"
            if self.fatal:
                break
        to_session.close()

    def _message(self, line: bytes) -> SessionMessage | None:
        """Read one line; None for one that is no message."""
        from mcp.shared.message import SessionMessage
        from mcp_types import ErrorData, JSONRPCError, jsonrpc_message_adapter

        text = line.decode("utf-8", "replace")
        if not text.strip():
            return None
        try:
            value = files.parse_json(text)
            return SessionMessage(jsonrpc_message_adapter.validate_python(value, by_name=False))
        except (DataError, ValueError) as error:
            self.noise += 1
            self.first_noise = self.first_noise or clip(one_line(text), 120)
            reason = str(error) if isinstance(error, DataError) else "it is no JSON-RPC message"
            if (request := _answered(text)) is None:
                return None
            # Whoever waits for it is told now, not when the time is up.
            return SessionMessage(
                JSONRPCError(
                    jsonrpc="2.0", id=request, error=ErrorData(code=GARBLED, message=reason)
                )
            )

    async def _listen(self, process: subprocess.Popen[bytes]) -> None:
        while chunk := await _receive(process.stderr):
            self._tail += chunk
            del self._tail[:-_TAIL_KEPT]

    async def _write(
        self,
        process: subprocess.Popen[bytes],
        from_session: MemoryObjectReceiveStream[SessionMessage],
        scope: anyio.CancelScope,
    ) -> None:
        pipe = process.stdin
        assert pipe is not None
        with scope, suppress(OSError):
            async for message in from_session:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                data = memoryview(text.encode("utf-8") + b"\n")
                while data:
                    await anyio.wait_writable(pipe)
                    with suppress(BlockingIOError):
                        data = data[os.write(pipe.fileno(), data) :]

    async def _await_end(
        self,
        process: subprocess.Popen[bytes],
        to_session: MemoryObjectSendStream[SessionMessage | Exception],
    ) -> None:
        # Not by the end of its stdout: a child it started may hold that open.
        while process.poll() is None:
            await anyio.sleep(_POLL_SEC)
        self._sweep(process)
        await anyio.sleep(_DRAIN_SEC)
        to_session.close()

    async def _stop(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        with suppress(OSError):
            process.stdin.close()
        if await self.wait(_POLITE_SEC if self.polite else 0.0) is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            await self.wait(_TERMINATE_SEC)
        self._sweep(process)
        await self.wait(_KILL_SEC)

    def _sweep(self, process: subprocess.Popen[bytes]) -> None:
        """Kill what is left of its group, once: later the number may be somebody else's."""
        if not self._swept:
            self._swept = True
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)


async def _receive(pipe: Any) -> bytes:
    """Return what is there, waiting for the first byte; nothing at the end."""
    while True:
        await anyio.wait_readable(pipe)
        try:
            return os.read(pipe.fileno(), _CHUNK)
        except BlockingIOError:
            continue
        except OSError:
            return b""


def _answered(text: str) -> int | str | None:
    """Return the request that a broken answer is meant for, as far as that can be read."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    request = value.get("id") if isinstance(value, dict) and "method" not in value else None
    return request if isinstance(request, int | str) else None
