"""What the lock answers: every failure of every stage at once, in one documented shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kit.envlock import wording
from kit.errors import LockError

__all__ = ["DETAILS", "STAGES", "LockAnswer", "ServerSeen", "ToolSeen", "name_of", "refusal"]

DETAILS: Mapping[str, str] = {
    "channel_mismatch": "channel",
    "missing_mcps": "mcp_existence",
    "version_too_old": "mcp_existence",
    "schema_diffs": "mcp_schema",
    "missing_env": "required_env",
    "unreachable_db": "required_db",
}
"""Key of `details` -> the stage that fails with it, in the order of the stages."""

STAGES = tuple(dict.fromkeys(DETAILS.values()))
"""Codes of the stages, in their order."""

Entry = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class ServerSeen:
    """A server that started, as it described itself."""

    mcp: str
    version: str
    channel: str | None


@dataclass(frozen=True, kw_only=True)
class ToolSeen:
    """A locked tool that passed, and on what word: `schema` (its own) or `canary` (one call)."""

    mcp: str
    tool: str
    evidence: str


@dataclass(frozen=True, kw_only=True)
class LockAnswer:
    """What one check of a bundle's lock found.

    Attributes:
        skill_id: `id@version` or `id@draft`.
        details: Key of `DETAILS` -> its failures.
        forced: Channel mismatches that a person chose to run with.
        servers: Servers that started.
        tools: Locked tools that passed.
        env: Names of the locked environment variables.
        databases: Aliases of the locked databases.
    """

    skill_id: str
    details: Mapping[str, Sequence[Entry]] = field(default_factory=dict)
    forced: Sequence[Entry] = ()
    servers: Sequence[ServerSeen] = ()
    tools: Sequence[ToolSeen] = ()
    env: Sequence[str] = ()
    databases: Sequence[str] = ()

    @property
    def ok(self) -> bool:
        """Whether the bundle may run here."""
        return not self.stages_failed

    @property
    def stages_failed(self) -> list[str]:
        """Codes of the stages that failed, in the order of the stages."""
        failed = {stage for key, stage in DETAILS.items() if self.details.get(key)}
        return [stage for stage in STAGES if stage in failed]

    @property
    def remedy_hint(self) -> str:
        """What to install or to set (zh-CN); empty when nothing is wrong."""
        return wording.hint(self.details)

    @property
    def unavailable(self) -> Sequence[Entry]:
        """The failures of servers that are not there at all."""
        return self.details.get("missing_mcps", ())

    @property
    def refused(self) -> dict[str, Sequence[Entry]]:
        """Every other failure, by its key in `details`."""
        return {k: v for k, v in self.details.items() if v and k != "missing_mcps"}

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, which the schema `lock-answer` describes."""
        if self.ok:
            return {
                "kind": "env_lock_valid",
                "skill_id": self.skill_id,
                "servers": [dict(vars(server)) for server in self.servers],
                "tools": [dict(vars(tool)) for tool in self.tools],
                "env": list(self.env),
                "databases": list(self.databases),
                "warnings": [dict(entry) for entry in self.forced],
            }
        return {
            "kind": "env_lock_validation_failed",
            "skill_id": self.skill_id,
            "stages_failed": self.stages_failed,
            "details": {
                key: [dict(entry) for entry in self.details.get(key, ())] for key in DETAILS
            },
            "remedy_hint": self.remedy_hint,
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> LockAnswer:
        """Read what `to_dict` wrote."""
        return cls(
            skill_id=value["skill_id"],
            details=value.get("details", {}),
            forced=value.get("warnings", ()),
            servers=[ServerSeen(**server) for server in value.get("servers", ())],
            tools=[ToolSeen(**tool) for tool in value.get("tools", ())],
            env=value.get("env", ()),
            databases=value.get("databases", ()),
        )

    def error(self) -> LockError:
        """Return the error a command ends with; `details` is the whole answer."""
        return refusal(self.to_dict())


def refusal(answer: Mapping[str, Any]) -> LockError:
    """Return the error that a failed answer stands for, as read back from `lock.json`."""
    entries = [entry for found in answer["details"].values() for entry in found]
    names = dict.fromkeys(name_of(entry) for entry in entries)
    return LockError(
        "lock.failed",
        f"the environment lock refused: {', '.join(answer['stages_failed'])} ({', '.join(names)})",
        where=answer["skill_id"],
        remedy=answer["remedy_hint"],
        details=answer,
    )


def name_of(entry: Entry) -> str:
    """Return what an entry speaks of: a tool, a server, a variable or a database."""
    if "tool" in entry:
        return f"{entry['mcp']}.{entry['tool']}"
    return str(entry.get("mcp") or entry.get("name") or entry.get("alias"))
