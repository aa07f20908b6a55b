"""What went wrong with a server, in one sentence of the house's own words."""

from __future__ import annotations

from typing import Any

import anyio

from kit.errors import KitError, McpError
from kit.mcp.servers import ServerConfig
from kit.mcp.stdio import GARBLED, StdioServer
from kit.text import clip, one_line, visible

__all__ = ["Trouble", "is_closed"]

_TAIL_SHOWN = 2000
_HTTP_ERROR = 400
_REMEDIES = {
    "mcp.exited": "run its command by hand and read what it prints",
    "mcp.protocol": "update the server, or report it to its maker",
    "mcp.timeout": "try again, or see whether the server waits for something",
    "mcp.tool_error": "mend the arguments, or whatever the tool says is wrong",
    "mcp.unreachable": "start the server, or mend its url in config/mcp.json",
}


class Trouble:
    """Turns exceptions of the SDK and of the transports into errors about one server.

    Attributes:
        http_status: Status of the last answer of an HTTP server; 0 before the first.
    """

    def __init__(self, config: ServerConfig, process: StdioServer | None) -> None:
        self._config = config
        self._process = process
        self._redactor = config.redactor()
        self.http_status = 0

    def explained(
        self, error: BaseException, doing: str, *, seconds: float, noisy: bool, known: bool
    ) -> KitError:
        """Return the error that an exception means.

        Args:
            error: What was raised.
            doing: The request it was raised at.
            seconds: How long was waited for its answer.
            noisy: Whether lines that are no message came in the meantime.
            known: Whether the server has been described, so that a refusal is a tool's.
        """
        from mcp.shared.exceptions import MCPError
        from pydantic import ValidationError

        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, KitError):
            error.details.setdefault("server", self._config.name)
            return error
        if isinstance(error, TimeoutError) and noisy:
            said = f"gave no answer to {doing} in {round(seconds, 1):g} s; {self.noise()}"
            return self.error("mcp.protocol", said)
        if isinstance(error, TimeoutError):
            return self.error("mcp.timeout", f"did not answer {doing} in {round(seconds, 1):g} s")
        if is_closed(error):
            return self._ended(doing)
        if isinstance(error, MCPError) and error.code == GARBLED:
            said = clip(one_line(error.message), 300)
            return self.error("mcp.protocol", f"garbled its answer to {doing}: {said}")
        if self.http_status >= _HTTP_ERROR:
            said = f"answered {doing} with HTTP status {self.http_status}"
            return self.error("mcp.unreachable", said)
        if isinstance(error, MCPError):
            said = f"refused {doing}: {clip(one_line(error.message), 500)} ({error.code})"
            return self.error("mcp.tool_error" if known else "mcp.protocol", said)
        if isinstance(error, ValidationError):
            parts = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:3]]
            return self.error("mcp.protocol", f"answered {doing} wrongly: {'; '.join(parts)}")
        if self._process is None and not isinstance(error, RuntimeError):
            return self.error("mcp.unreachable", f"cannot be reached: {error!r}")
        return self.error("mcp.protocol", f"cannot be understood at {doing}: {error}")

    def error(self, code: str, said: str) -> McpError:
        """Return an error about the server, with the end of its stderr."""
        tail = self.tail()
        last = f"; its last words: {clip(tail.splitlines()[-1], 200)}" if tail else ""
        return McpError(
            code,
            self._redactor.text(f"MCP server {self._config.name!r} {said}") + last,
            where=f"config/mcp.json: servers.{self._config.name}",
            remedy=_REMEDIES[code],
            details={"server": self._config.name, "stderr_tail": tail},
        )

    def tail(self) -> str:
        """Return the end of its stderr for people: visible characters, secrets masked."""
        text = self._redactor.text(self._process.stderr) if self._process else ""
        return visible(text)[-_TAIL_SHOWN:].strip()

    def noise(self) -> str:
        """Say what it printed on stdout beside the protocol; empty where nothing."""
        if self._process is None or not self._process.noise:
            return ""
        return self._redactor.text(
            f"it printed {self._process.noise} line(s) that are no message, "
            f"first {self._process.first_noise!r}"
        )

    def _ended(self, doing: str) -> McpError:
        if self._process is None:
            return self.error("mcp.unreachable", f"closed the connection at {doing}")
        if self._process.fatal:
            return self.error("mcp.protocol", f"sent {self._process.fatal}")
        status = self._process.exit_status
        how = f"ended with exit status {status}"
        if status is None:
            how = "closed its output"
        elif status < 0:
            how = f"was ended by signal {-status}"
        noise = self.noise()
        return self.error("mcp.exited", f"{how} at {doing}" + (f"; {noise}" if noise else ""))


def is_closed(error: Any) -> bool:
    """Say whether an exception means that the connection is gone."""
    from mcp.shared.exceptions import MCPError
    from mcp_types import CONNECTION_CLOSED

    if isinstance(error, MCPError):
        return bool(error.code == CONNECTION_CLOSED)
    return isinstance(error, anyio.ClosedResourceError | anyio.BrokenResourceError)
