"""What every server of the kit shares: how a tool is published, how it refuses, how it all ends.

A refusal is a tool error with one JSON text: code, message, remedy, where, details. An argument
that a tool does not have is refused too: a misspelt date would otherwise be a wrong answer.
stdout belongs to the protocol; the SDK points file descriptor 1 at stderr while it serves.
"""

from __future__ import annotations

import inspect
import json
import logging
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Final, cast

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from mcp.server.mcpserver.tools import Tool
from mcp_types import CallToolResult, ContentBlock, TextContent, ToolAnnotations
from pydantic import BaseModel, ValidationError

from kit.errors import KitError, UsageError
from kit.schemas import dotted, suggestion

__all__ = ["KitTool", "answer", "make_server", "make_tool", "published", "serve"]

_LOG = logging.getLogger(__name__)
_MAX_DETAILS: Final = 20_000  # characters of JSON; a list of 10,000 symbols helps nobody
_SHOWN: Final = 5
_SIGNALED: Final = 128  # what a shell adds to the number of a signal


class KitTool(Tool):
    """A tool that refuses in the kit's own words."""

    async def run(
        self, arguments: dict[str, Any], context: Any, convert_result: bool = False
    ) -> Any:
        """Run it; whatever goes wrong comes back as a tool error with code, message and remedy."""
        try:
            self._know(arguments)
            return await super().run(arguments, context, convert_result)
        except KitError as error:
            return refusal(error)
        except ToolError as error:
            return refusal(self._explained(error))

    def _know(self, arguments: dict[str, Any]) -> None:
        known = self.parameters["properties"]
        unknown = [name for name in arguments if name not in known]
        if unknown:
            raise UsageError(
                "mcp.bad_arguments",
                f"{self.name} has no argument {unknown[0][:80]!r}",
                remedy=suggestion(unknown[0][:80], known) or f"arguments: {', '.join(known)}",
            )

    def _explained(self, error: ToolError) -> KitError:
        cause = error.__cause__
        if isinstance(cause, KitError):
            return cause
        if isinstance(cause, ValidationError) and not isinstance(error, UnexpectedToolError):
            problems = [f"{dotted(e['loc'])}: {e['msg']}" for e in cause.errors()]
            rest = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
            return UsageError(
                "mcp.bad_arguments",
                f"{self.name}: {'; '.join(problems[:_SHOWN])}{rest}",
                remedy="see the input schema of the tool",
            )
        _LOG.error("%s failed", self.name, exc_info=error)
        return KitError(
            "internal",
            f"{self.name} failed in a way nobody foresaw",
            remedy="the traceback is in the log of the server, on its stderr; please report it",
        )


def refusal(error: KitError) -> CallToolResult:
    """Return the tool error that stands for a `KitError`."""
    _LOG.info("refused: %s", error.code)
    body = error.to_dict()
    if len(json.dumps(body["details"], default=str)) > _MAX_DETAILS:
        body["details"] = {}
    text = json.dumps(body, ensure_ascii=False, default=str)
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=True)


def answer(value: BaseModel, *links: ContentBlock) -> CallToolResult:
    """Return a result: links first, then the value, as text and as structured content."""
    text = TextContent(type="text", text=value.model_dump_json())
    return CallToolResult(content=[*links, text], structured_content=value.model_dump(mode="json"))


def make_tool(
    function: Callable[..., Any],
    *,
    title: str,
    version: str,
    read_only: bool = True,
    open_world: bool = False,
) -> KitTool:
    """Publish a function as a tool: its docstring is the description, its annotations the schemas.

    Args:
        function: What a call runs; a plain function runs on a worker thread.
        title: Name for people.
        version: The tool's own version, in its `_meta`.
        read_only: Whether it changes nothing. No tool of the kit is destructive.
        open_world: Whether a call may reach beyond the workspace.
    """
    made = cast(
        KitTool,
        KitTool.from_function(
            function,
            title=title,
            description=inspect.getdoc(function),
            annotations=ToolAnnotations(
                read_only_hint=read_only,
                destructive_hint=False,
                idempotent_hint=read_only,
                open_world_hint=open_world,
            ),
            meta={"version": version},
            structured_output=True,
        ),
    )
    made.parameters["additionalProperties"] = False
    return made


def make_server(
    folder: Path, name: str, instructions: str, tools: Sequence[Tool]
) -> MCPServer[Any]:
    """Make a server whose version is what `VERSION` in its folder says."""
    return MCPServer(
        name,
        instructions=instructions,
        version=(folder / "VERSION").read_text(encoding="utf-8").strip(),
        tools=list(tools),
        log_level="WARNING",
        warn_on_duplicate_resources=False,
        subscriptions=False,
    )


async def published(server: MCPServer[Any]) -> dict[str, dict[str, Any]]:
    """Return what the server tells of each tool, by tool name: what `schemas/` holds."""
    return {
        tool.name: tool.model_dump(mode="json", by_alias=True, exclude_none=True)
        for tool in await server.list_tools()
    }


def serve(server: MCPServer[Any], *, leave: Callable[[], None] = lambda: None) -> None:
    """Serve over stdio until the client closes it or a signal comes.

    A signal ends the process at once: the thread that waits for the next line cannot be cancelled.

    Args:
        server: The server.
        leave: Called before a signal ends the process.
    """

    def end(number: int, _frame: FrameType | None) -> None:
        leave()
        os._exit(_SIGNALED + number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, end)
    server.run("stdio")
