"""Lint rules that compare the lock with what the draft was seen to read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from kit.bundle import layout
from kit.bundle.lint_context import Context, Hit, Rule
from kit.bundle.manifest import LockedMcp, LockedTool
from kit.bundle.recorded import read_recorded, recorded_path
from kit.errors import BundleError, DataError

if TYPE_CHECKING:
    from kit.mcp import Record

__all__ = ["RULES"]

# A panel brings the key of its rows and the securities behind them along, and passes no arguments.
_KEYS = {"symbol", "date"}
_META_TOOL = "get_security_meta"


def _unlocked(context: Context) -> Iterator[Hit]:
    record = _record(context)
    if record is None or context.manifest is None:
        return
    locked = {mcp.name: mcp for mcp in context.manifest.env_lock.required_mcps}
    for server, tools in record.to_tools_used().items():
        mcp = locked.get(server)
        for read in tools:
            name = str(read["tool_name"])
            tool = _tool(mcp, name)
            if tool is None:
                yield _hit(context, f"the draft reads {server}.{name}, which is not locked")
                continue
            for words, fields, known in (
                ("passes", read["required_input_fields"], tool.required_input_fields),
                ("reads", read["required_output_fields"], _outputs(tool)),
            ):
                extra = [field for field in fields if not _meant(known, [field])]
                # An empty list is filled at freeze with what was read.
                if extra and known:
                    message = f"the draft {words} {', '.join(extra)} of {server}.{name}, not locked"
                    yield _hit(context, message)


def _never_read(context: Context) -> Iterator[Hit]:
    record = _record(context)
    if record is None or context.manifest is None:
        return
    used = {(tool.mcp, tool.tool): tool for tool in record.tools}
    panels = {tool.mcp for tool in record.tools if not tool.calls}
    for mcp in context.manifest.env_lock.required_mcps:
        for tool in mcp.tools_used:
            read = used.get((mcp.name, tool.tool_name))
            if read is None:
                if not (tool.tool_name == _META_TOOL and mcp.name in panels):
                    text = f"{mcp.name}.{tool.tool_name} is locked, and the draft never read it"
                    yield _hit(context, text)
                continue
            brought = set() if read.calls else _KEYS
            inputs = tool.required_input_fields if read.calls else ()
            unread = [
                *(name for name in inputs if not _meant([name], read.inputs)),
                *(name for name in tool.required_output_fields if not _meant([name], read.outputs)),
            ]
            unread = [name for name in unread if name not in brought]
            if unread:
                yield _hit(
                    context,
                    f"{', '.join(unread)} of {mcp.name}.{tool.tool_name} locked, and never read",
                )


def _meant(names: Iterable[str], paths: Iterable[str]) -> bool:
    """Say whether one of the locked names means one of the fields read."""
    from kit.mcp import names_field

    return any(names_field(name, path) for name in names for path in paths)


def _outputs(tool: LockedTool) -> tuple[str, ...]:
    fields = tool.required_output_fields
    return (*fields, *tool.required_values) if fields else ()


def _tool(mcp: LockedMcp | None, name: str) -> LockedTool | None:
    tools = mcp.tools_used if mcp else ()
    return next((tool for tool in tools if tool.tool_name == name), None)


def _record(context: Context) -> Record | None:
    if not context.draft or not recorded_path(context.root).is_file():
        return None
    try:
        return read_recorded(context.root)
    except (BundleError, DataError):
        # What cannot be read of the draft is found by the rules of those files.
        return None


def _hit(context: Context, message: str) -> Hit:
    line = context.line(layout.MANIFEST, "env_lock.required_mcps")
    return Hit(path=layout.MANIFEST, message=message, line=line)


RULES = (
    Rule(
        id="lock.unlocked_read",
        severity="error",
        what="What the draft was seen to read from MCP tools is locked.",
        mend="lock the tool and the field; a tool with empty field lists is filled at freeze",
        check=_unlocked,
    ),
    Rule(
        id="lock.never_read",
        severity="warning",
        what="What is locked was read by the draft in its last backtest, screen or recording.",
        mend="drop it from the lock, or read it",
        check=_never_read,
    ),
)
