"""The environment lock of a job: a bundle against the servers and databases of its workspace."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from sqlalchemy import insert

from kit import files, schemas
from kit.bundle import Bundle, CheckResult
from kit.clock import Clock, iso
from kit.degradation import ReportBuilder
from kit.envlock import (
    LockAnswer,
    channel_mismatches,
    check_lock,
    evidence_label,
    hint,
    name_of,
    stored_bytes,
    stored_path,
)
from kit.errors import LockError
from kit.mcp import ServerPool, load_servers
from kit.redact import Redactor
from kit.state import Store, tables
from kit.workspace import Workspace

__all__ = [
    "LOCK_FILE",
    "LOCK_UNCHECKED",
    "LockCheck",
    "bundle_lock",
    "force_channel",
    "freeze_lock",
    "lock_facts",
    "lock_note",
    "lock_rows",
    "lock_variables",
    "recorded_lock",
    "require_lock",
    "tell_lock",
]

LOCK_FILE = "lock.json"
LOCK_UNCHECKED: Mapping[str, Any] = {"status": "not_checked", "stages_failed": [], "servers": {}}
"""What a result says of a lock that no stage came to check."""
FORCED = "env_lock_forced"


class LockCheck(Protocol):
    """How a job checks the lock of a bundle; `bundle_lock` does."""

    def __call__(self, workspace: Workspace, bundle: Bundle, *, forced: bool = False) -> LockAnswer:
        """Return what the check found."""
        ...


def bundle_lock(workspace: Workspace, bundle: Bundle, *, forced: bool = False) -> LockAnswer:
    """Check a bundle's lock; what locks nothing starts nothing.

    Args:
        workspace: Whose `config/mcp.json` and `config/databases.json`.
        bundle: The bundle.
        forced: Whether a wrong channel is a warning only; see `force_channel`.

    Raises:
        ConfigError: A configuration file that the lock needs is missing or wrong.
    """
    with _pool(workspace, bundle) as pool:
        return check_lock(bundle, pool, _databases(workspace, bundle), force_channel=forced)


def recorded_lock(folder: Path) -> LockCheck:
    """Return a check that gives the answer of a recorded run again; nothing is started.

    A run whose configuration let no check happen left no answer: it is checked anew.
    """

    def check(workspace: Workspace, bundle: Bundle, *, forced: bool = False) -> LockAnswer:
        if not (folder / LOCK_FILE).is_file():
            return bundle_lock(workspace, bundle, forced=forced)
        value = files.read_json(folder / LOCK_FILE)
        schemas.check("lock-answer", value, where=LOCK_FILE)
        return LockAnswer.from_dict(value)

    return check


def require_lock(
    workspace: Workspace, bundle: Bundle, *, forced_by: str | None = None, clock: Clock
) -> LockAnswer:
    """Check a bundle's lock, and refuse to go on when it fails.

    Raises:
        LockError: `lock.failed`; `details` is the answer with every failure.
        ConfigError: As `bundle_lock`.
    """
    if forced_by is not None:
        force_channel(workspace, bundle, Store(workspace.state_path), clock, forced_by)
    answer = bundle_lock(workspace, bundle, forced=forced_by is not None)
    if not answer.ok:
        raise answer.error()
    return answer


def force_channel(
    workspace: Workspace,
    bundle: Bundle,
    store: Store,
    clock: Clock,
    who: str,
    *,
    scheduled: bool = False,
) -> None:
    """Write into the audit log that somebody runs a bundle against another channel.

    Args:
        workspace: Whose `config/mcp.json`.
        bundle: The bundle.
        store: The state store.
        clock: Gives the time.
        who: Who chose so.
        scheduled: Whether nobody is there to answer for it.

    Raises:
        LockError: `lock.force_scheduled` when config/mcp.json does not let scheduled jobs do it.
        StorageError: The record cannot be written: without it nothing is forced.
    """
    servers = load_servers(workspace)
    if scheduled and not workspace.config("mcp").get("schedules_may_force_channel", False):
        raise LockError(
            "lock.force_scheduled",
            "a scheduled job may not run against another channel than the lock's",
            where=bundle.ref,
            remedy="run it by hand, or set schedules_may_force_channel in config/mcp.json",
        )
    at = iso(clock.now())
    for mismatch in channel_mismatches(bundle.manifest.env_lock, servers):
        body = {
            "skill_id": bundle.ref,
            "mcp": mismatch["mcp"],
            "source_channel": mismatch["required"],
            "target_channel": mismatch["actual"],
            "forced_by": who,
            "forced_at": at,
        }
        text = files.canonical_json(body).decode("utf-8")
        with store.begin() as connection:
            connection.execute(insert(tables.audit).values(at=at, kind=FORCED, body=text))


def freeze_lock(workspace: Workspace, bundle: Bundle) -> CheckResult:
    """Check a draft's lock before it is frozen, and take the locked tools' schemas along."""
    with _pool(workspace, bundle) as pool:
        answer = check_lock(bundle, pool, _databases(workspace, bundle))
        if not answer.ok:
            return CheckResult(
                name="lock",
                ok=False,
                detail=answer.error().message,
                mend=answer.remedy_hint,
                facts=answer.to_dict(),
            )
        artifacts, masked = {}, Redactor()  # a version is published as it is
        for seen in answer.tools:
            info = pool.describe(seen.mcp)
            tool = info.tool(seen.tool)
            if tool is not None:
                text = stored_bytes(info, tool).decode("utf-8")
                artifacts[stored_path(seen.mcp, seen.tool)] = masked.text(text).encode("utf-8")
    servers = ", ".join(f"{server.mcp} {server.version}" for server in answer.servers)
    return CheckResult(
        name="lock",
        ok=True,
        detail=f"{len(answer.tools)} locked tool(s) of {servers}" if servers else "nothing locked",
        facts=answer.to_dict(),
        artifacts=artifacts,
    )


def tell_lock(report: ReportBuilder, answer: LockAnswer) -> None:
    """Put what a lock found into a degradation report: who is not there, what differs."""
    for entry in answer.unavailable:
        report.add(
            "required_mcp_unavailable",
            mcp_name=entry["mcp"],
            remedy_hint=hint({"missing_mcps": [entry]}),
            error=entry["message"],
        )
    if answer.refused:
        entries = [entry for found in answer.refused.values() for entry in found]
        report.add(
            "env_lock_failed",
            names=list(dict.fromkeys(name_of(entry) for entry in entries)),
            remedy_hint=hint(answer.refused),
        )
    for entry in answer.forced:
        report.add(
            "channel_forced",
            mcp_name=entry["mcp"],
            required=entry["required"],
            actual=entry["actual"] or "未登记",
        )


def lock_facts(answer: LockAnswer) -> dict[str, Any]:
    """Return what a result says of its lock; all of the answer stands in `lock.json`."""
    return {
        "status": "valid" if answer.ok else "failed",
        "stages_failed": answer.stages_failed,
        # Of a lock that failed, `lock.json` keeps the failures and not who was there.
        "servers": {server.mcp: server.version for server in answer.servers if answer.ok},
    }


def lock_note(bundle: Bundle | None, facts: Mapping[str, Any]) -> str:
    """Return what a card says of a lock that held; nothing of one that did not (zh-CN)."""
    if bundle is None or facts["status"] != "valid":
        return ""
    lock = bundle.manifest.env_lock
    demands = lock.required_mcps or lock.required_env or lock.required_db
    return "环境锁已核对" if demands else "环境锁无要求"


def lock_rows(answer: LockAnswer) -> list[tuple[str, str]]:
    """Return what was checked and what failed, a row each, for a notebook cell (zh-CN)."""
    entries = [entry for found in answer.details.values() for entry in found]
    failed = {name_of(entry) for entry in entries}
    rows = [(f"MCP {server.mcp}", f"版本 {server.version}") for server in answer.servers]
    rows += [
        (f"工具 {tool.mcp}.{tool.tool}", f"一致（{evidence_label(tool.evidence)}）")
        for tool in answer.tools
    ]
    rows += [(f"环境变量 {name}", "已配置") for name in answer.env if name not in failed]
    rows += [(f"数据库 {alias}", "已连通") for alias in answer.databases if alias not in failed]
    rows += [
        (f"未通过 {name_of(entry)}", hint({key: [entry]}))
        for key, found in answer.details.items()
        for entry in found
    ]
    return rows or [("环境锁", "没有要求")]


def lock_variables(workspace: Workspace, bundle: Bundle) -> frozenset[str]:
    """Return the environment variables that the check of a bundle's lock reads, by name.

    Raises:
        ConfigError: As `bundle_lock`.
    """
    lock = bundle.manifest.env_lock
    names = set(lock.required_env)
    databases = _databases(workspace, bundle)["databases"]
    names |= {databases[alias]["url_env"] for alias in lock.required_db if alias in databases}
    for mcp in lock.required_mcps:
        if server := load_servers(workspace).get(mcp.name):
            names |= {*server.env, *server.headers_env.values()}
    return frozenset(names)


def _pool(workspace: Workspace, bundle: Bundle) -> ServerPool:
    locked = bundle.manifest.env_lock.required_mcps
    return ServerPool(load_servers(workspace) if locked else {})


def _databases(workspace: Workspace, bundle: Bundle) -> Mapping[str, Any]:
    if not bundle.manifest.env_lock.required_db:
        return {"databases": {}}
    return workspace.config("databases")
