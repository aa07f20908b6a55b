"""Long work as a `kit` command in a process of its own, its progress passed on line by line.

A run then has the signals, the memory and the imports to itself: a call that is cancelled, or a
server that is stopped, ends it as Ctrl-C does, in a recorded outcome.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Sequence
from subprocess import DEVNULL
from typing import Any, Final

import anyio
from anyio.abc import ByteReceiveStream, Process
from anyio.streams.text import TextReceiveStream
from mcp.server.mcpserver import Context

from kit.errors import KitError
from kit.workspace import Workspace

__all__ = ["leave", "run_kit"]

_AT_ONCE: Final = 2
_PATIENCE_SEC: Final = 20.0
_TAIL: Final = 2_000  # characters of stderr in an error

_running: set[Process] = set()
_turns = anyio.CapacityLimiter(_AT_ONCE)


async def run_kit(
    workspace: Workspace, arguments: Sequence[str], ctx: Context[Any, Any]
) -> tuple[int, dict[str, Any]]:
    """Run `kit ARGUMENTS --json` and return its exit code and its document.

    Raises:
        KitError: What the command printed as its error and nothing else; `internal` when it
            printed no document.
    """
    # -P: a module in the workspace must not stand in for one of the kit's.
    place = ["--workspace", str(workspace.root)]
    line = [sys.executable, "-P", "-m", "kit.cli.main", *place, *arguments]
    async with _turns:
        process = await anyio.open_process(line, stdin=DEVNULL, cwd=workspace.root)
        _running.add(process)
        try:
            code, out, log = await _watch(process, ctx)
        except BaseException:
            _stop(process)
            with anyio.CancelScope(shield=True), anyio.move_on_after(_PATIENCE_SEC):
                await process.wait()
            raise
        finally:
            _running.discard(process)
    try:
        document = json.loads(out)
    except ValueError as error:
        raise KitError(
            "internal",
            f"kit {arguments[0]} ended with {code} and no document: {log[-_TAIL:].strip()}",
            remedy="run the same command in a shell, with --debug",
        ) from error
    if document.keys() == {"error"}:
        raise _told(document["error"])
    return code, document


async def _watch(process: Process, ctx: Context[Any, Any]) -> tuple[int, str, str]:
    assert process.stdout is not None
    assert process.stderr is not None
    log: list[str] = []
    out: list[str] = []

    async def collect(stream: ByteReceiveStream) -> None:
        out.extend([text async for text in TextReceiveStream(stream, errors="replace")])

    async def follow(stream: ByteReceiveStream) -> None:
        rest, count = "", 0
        async for text in TextReceiveStream(stream, errors="replace"):
            log.append(text)
            *lines, rest = (rest + text).split("\n")
            for line in filter(None, map(str.strip, lines)):
                count += 1
                await ctx.report_progress(count, None, line)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(collect, process.stdout)
        tasks.start_soon(follow, process.stderr)
    return await process.wait(), "".join(out), "".join(log)


def _told(error: dict[str, Any]) -> KitError:
    """Rebuild the error that the command showed."""
    return KitError(
        error["code"],
        error["message"],
        remedy=error["remedy"],
        where=error["where"],
        details=error["details"],
    )


def _stop(process: Process) -> None:
    if process.returncode is None:
        process.send_signal(signal.SIGTERM)


def leave() -> None:
    """Stop what is running, before a signal ends the server."""
    for process in list(_running):
        _stop(process)
