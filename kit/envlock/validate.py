"""Check a bundle's lock: five stages in order, every failure of every one of them at once.

The servers are asked side by side, and so are the databases; the stages are an order of telling.
No stage stops another, except that a server that did not start has no tools to look at.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kit.clock import Clock, SystemClock
from kit.envlock.answer import DETAILS, LockAnswer, ServerSeen, ToolSeen
from kit.envlock.databases import check_databases
from kit.envlock.stored import read_stored
from kit.envlock.tools import UNVERIFIABLE, ToolDiff, compare_tool
from kit.errors import McpError
from kit.mcp import ServerConfig, ServerInfo, ServerPool
from kit.redact import Redactor
from kit.text import clip, visible
from kit.workspace import environ

if TYPE_CHECKING:
    from kit.bundle import Bundle
    from kit.bundle.manifest import EnvLock, LockedMcp, LockedTool

__all__ = ["DEADLINE_SEC", "channel_mismatches", "check_lock"]

DEADLINE_SEC = 30.0
"""Seconds one check may take, all servers and databases together."""

_LEEWAY_SEC = 1.0  # for those who keep the deadline themselves, and name what they waited for
_MOST_TEXT, _MOST_ITEMS = 2000, 100


def check_lock(
    bundle: Bundle,
    pool: ServerPool,
    databases: Mapping[str, Any],
    *,
    force_channel: bool = False,
    deadline_sec: float = DEADLINE_SEC,
    database_sec: float = 5.0,
    clock: Clock | None = None,
) -> LockAnswer:
    """Compare what a bundle's manifest locks with what is here.

    Args:
        bundle: The bundle; its own directory may hold the schemas of its freeze.
        pool: The servers of this run; those the lock names are started.
        databases: `config/databases.json`.
        force_channel: Whether a wrong channel is a warning only.
        deadline_sec: Seconds for everything together. A server's start is bounded by the pool.
        database_sec: Seconds for each database.
        clock: Measures them.
    """
    lock = bundle.manifest.env_lock
    found: dict[str, list[Mapping[str, Any]]] = {key: [] for key in DETAILS}
    if lock.required_mcps:
        pool.warm()
    timer = clock or SystemClock()
    check = _Check(root=bundle.root, pool=pool, until=timer.monotonic() + deadline_sec, clock=timer)
    asked = [check.begin(mcp) for mcp in lock.required_mcps]
    reached = check_databases(lock.required_db, databases, seconds=database_sec)
    servers = [each() for each in asked]
    forced: list[Mapping[str, Any]] = []
    (forced if force_channel else found["channel_mismatch"]).extend(
        channel_mismatches(lock, pool.servers)
    )
    for key, entry in (failure for server in servers for failure in server.failures):
        found[key].append(entry)
    found["missing_env"] = [
        {"name": name, "purpose": purpose}
        for name, purpose in lock.required_env.items()
        if environ(name) is None
    ]
    found["unreachable_db"] = [*reached]
    return LockAnswer(
        skill_id=bundle.ref,
        details=found,
        forced=forced,
        servers=[server.seen for server in servers if server.seen],
        tools=[tool for server in servers for tool in server.tools],
        env=list(lock.required_env),
        databases=list(lock.required_db),
    )


def channel_mismatches(lock: EnvLock, servers: Mapping[str, ServerConfig]) -> list[dict[str, Any]]:
    """Return where the operator's word on a server's channel differs from the lock's.

    A server that is not configured has no channel to compare: it is missing.
    """
    return [
        {"mcp": mcp.name, "required": mcp.channel, "actual": config.channel, "source": mcp.source}
        for mcp in lock.required_mcps
        if (config := servers.get(mcp.name)) is not None
        and mcp.channel is not None
        and config.channel != mcp.channel
    ]


@dataclass(kw_only=True)
class _Server:
    """What became of one server: failures by their key in `details`, and what passed."""

    seen: ServerSeen | None = None
    tools: list[ToolSeen] = field(default_factory=list)
    failures: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class _Check:
    root: Path
    pool: ServerPool
    until: float
    clock: Clock

    @property
    def _left(self) -> float:
        return max(0.0, self.until - self.clock.monotonic())

    def begin(self, mcp: LockedMcp) -> Callable[[], _Server]:
        """Begin to look at a server; what is returned waits for the outcome, until the deadline."""
        done: queue.SimpleQueue[_Server | BaseException] = queue.SimpleQueue()

        def look() -> None:
            try:
                done.put(self.server(mcp))
            except BaseException as error:  # noqa: BLE001 - raised where it is waited for
                done.put(error)

        def outcome() -> _Server:
            try:
                result = done.get(timeout=self._left + _LEEWAY_SEC)
            except queue.Empty:
                said = "the check of this server did not come to its end in time"
                return _Server(failures=[_missing(mcp, McpError("mcp.timeout", said))])
            if isinstance(result, BaseException):
                raise result
            return result

        # Work on a schema cannot be stopped: it is left behind, and ends with us.
        threading.Thread(target=look, name=f"lock-{mcp.name}", daemon=True).start()
        return outcome

    def server(self, mcp: LockedMcp) -> _Server:
        """Start a server, compare its version, then each locked tool."""
        result = _Server()
        names = {"mcp": mcp.name, "min_version": mcp.min_version, "source": mcp.source}
        try:
            info = self.pool.describe(mcp.name, timeout_sec=self._left)
        except McpError as error:
            result.failures.append(_missing(mcp, error))
            return result
        masked = self.pool.servers[mcp.name].redactor()
        version = masked.text(info.version)
        result.seen = ServerSeen(mcp=mcp.name, version=version, channel=info.channel)
        too_old = _version(mcp, info)
        if too_old:
            reason, message = too_old
            entry = {**names, "actual": info.version, "reason": reason, "message": message}
            result.failures.append(("version_too_old", _told(entry, masked)))
        for tool in mcp.tools_used:
            diff = self._tool(mcp, tool, info)
            if diff.failed:
                entry = {"mcp": mcp.name, "tool": tool.tool_name, "source": mcp.source}
                result.failures.append(("schema_diffs", _told({**entry, **vars(diff)}, masked)))
            else:
                result.tools.append(
                    ToolSeen(mcp=mcp.name, tool=tool.tool_name, evidence=diff.evidence)
                )
        return result

    def _tool(self, mcp: LockedMcp, tool: LockedTool, info: ServerInfo) -> ToolDiff:
        name = tool.tool_name
        live = info.tool(name)
        if live is None:
            there = ", ".join(sorted(each.name for each in info.tools)) or "none"
            message = f"the server has no tool {name!r}; it has {there}"
            return ToolDiff(reason="no_tool", message=message, evidence=UNVERIFIABLE)
        if name in info.duplicates:
            message = f"the server lists {name!r} more than once"
            return ToolDiff(reason="repeated_tool", message=message, evidence=UNVERIFIABLE)

        def call(arguments: Mapping[str, Any]) -> Any:
            if not (left := self._left):
                raise McpError("mcp.timeout", "no time was left for the call")
            return self.pool.call(mcp.name, name, arguments, timeout_sec=left).payload

        return compare_tool(tool, live, read_stored(self.root, mcp.name, name), call)


def _missing(mcp: LockedMcp, error: McpError) -> tuple[str, Mapping[str, Any]]:
    """Return the failure of a server that cannot be used."""
    return "missing_mcps", {
        "mcp": mcp.name,
        "min_version": mcp.min_version,
        "source": mcp.source,
        "reason": error.code.removeprefix("mcp."),
        "message": error.message,
        "stderr_tail": str(error.details.get("stderr_tail", "")),
    }


def _told(value: Any, masked: Redactor) -> Any:
    """Return what a server said as it may be shown: without secrets, visible, of bounded length."""
    if isinstance(value, str):
        return clip(visible(masked.text(value)), _MOST_TEXT)
    if isinstance(value, Mapping):
        return {key: _told(item, masked) for key, item in value.items()}
    if isinstance(value, list):
        kept = [_told(item, masked) for item in value[:_MOST_ITEMS]]
        strings = all(isinstance(item, str) for item in kept)
        more = len(value) - len(kept)
        return [*kept, f"… and {more} more"] if more and strings else kept
    return value


def _version(mcp: LockedMcp, info: ServerInfo) -> tuple[str, str] | None:
    """Return why a server's version does not do, None when it does."""
    from packaging.version import InvalidVersion, Version

    if not info.version.strip():
        return "no_version", "the server reports no version"
    if info.version_is_sdk:
        return (
            "sdk_version",
            f"the server reports {info.version}, the version of the library it is written with",
        )
    try:
        actual = Version(info.version)
    except InvalidVersion:
        return "not_a_version", f"the server reports {info.version!r}, which is no version"
    try:
        wanted = Version(mcp.min_version)
    except InvalidVersion:
        return "bad_min_version", f"the lock wants {mcp.min_version!r}, which is no version"
    if actual < wanted:
        return "too_old", f"the server is {actual}, the lock wants {wanted} or newer"
    return None
