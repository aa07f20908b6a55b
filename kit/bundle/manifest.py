"""`manifest.json` as frozen dataclasses: the lock, the steps, the limits, the data contract.

The shape is `kit/schemas/manifest.json`; this module reads a checked value into names and types,
and adds what JSON Schema cannot say (the zone of `asof_time`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import time
from types import MappingProxyType
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from kit.errors import BundleError
from kit.schemas import Problem, suggestion, validate

__all__ = [
    "DataContract",
    "EnvLock",
    "Execution",
    "Limits",
    "LlmStep",
    "LockedMcp",
    "LockedTool",
    "Manifest",
    "Provenance",
    "manifest_problems",
]

ZONES: Mapping[str, str] = MappingProxyType(
    {"CST": "Asia/Shanghai", "HKT": "Asia/Hong_Kong", "ET": "America/New_York"}
)
"""Short zone words of `asof_time` beside IANA names; CST is China Standard Time here."""

_PANEL_TOOLS = {"cn": "trading-data-cn.get_bars"}


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """Where a version comes from. A draft fills in little of it; freeze writes the rest."""

    created_by: str | None = None
    created_at: str | None = None
    parent_version: str | None = None
    kit_version: str | None = None
    git_commit: str | None = None
    python: str | None = None
    libraries: Mapping[str, str] = field(default_factory=dict)
    conversations: tuple[str, ...] = ()
    notebook: Mapping[str, str] | None = None


@dataclass(frozen=True, kw_only=True)
class Execution:
    """How the signal code is entered, and when its orders fill.

    Attributes:
        entry_module: `code/signal_engine.py`.
        entry_class: Name of the class in it.
        entry_method: Backtest method, `generate`.
        screen_method: Daily method, `screen_today`.
        fill: `next_open`, `next_close`, `vwap`; `same_open` and `same_close` need a waiver.
        same_bar_waiver: Why a same-bar fill is acceptable, or None.
    """

    entry_module: str
    entry_class: str
    entry_method: str
    screen_method: str
    fill: str
    same_bar_waiver: str | None = None


@dataclass(frozen=True, kw_only=True)
class LockedTool:
    """A tool of an MCP server and the fields of it the bundle relies on."""

    tool_name: str
    required_input_fields: tuple[str, ...]
    required_output_fields: tuple[str, ...]
    required_values: Mapping[str, Any] = field(default_factory=dict)
    canary: Mapping[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class LockedMcp:
    """An MCP server the bundle was made for."""

    name: str
    min_version: str
    source: str
    tools_used: tuple[LockedTool, ...]
    channel: str | None = None
    upstream_baseline: str | None = None


@dataclass(frozen=True, kw_only=True)
class EnvLock:
    """What must be there before the bundle may run.

    Attributes:
        required_mcps: Servers with their locked tools.
        required_env: Environment variable -> purpose.
        required_db: Database alias -> {kind, purpose}.
    """

    required_mcps: tuple[LockedMcp, ...] = ()
    required_env: Mapping[str, str] = field(default_factory=dict)
    required_db: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def channel(self) -> str | None:
        """The channel of the locked server that has one, else None."""
        return next((mcp.channel for mcp in self.required_mcps if mcp.channel), None)


@dataclass(frozen=True, kw_only=True)
class LlmStep:
    """One LLM call site: which prompt, which model, under which bounds (seconds, tokens)."""

    name: str
    prompt_path: str
    model: str
    temperature: float
    max_tokens: int
    called_by: str
    timeout_sec: float
    invocation_mode: str = "single"
    concurrency_limit: int = 1
    fallback_template_path: str | None = None

    @property
    def per_pick(self) -> bool:
        """Whether the step is called once for each pick, after the screen."""
        return self.invocation_mode == "per_pick_concurrent"


@dataclass(frozen=True, kw_only=True)
class DataContract:
    """The data the code was written for.

    Attributes:
        frequency: `daily`, or bar minutes such as `5m`.
        fields: Names of the needed columns (`close_adj` is the frame's adjusted `close`).
        history_days: Bars of history a screen needs.
        adjustment: `forward`, `backward` or `none`.
        asof_time: `T HH:MM ZONE`: the moment after which a session's data is complete.
        universe: Market and selector.
        warmup_bars: Smallest history after which outputs stop changing; None until measured.
        tool: `<server>.<tool>` that serves such bars; None for the market's own, see `panel_tool`.
        context: Other market -> symbols of read-only series beside the universe, never traded.
    """

    frequency: str
    fields: tuple[str, ...]
    history_days: int
    adjustment: str
    asof_time: str
    universe: Mapping[str, Any]
    warmup_bars: int | None = None
    tool: str | None = None
    context: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def market(self) -> str:
        """Market of the universe: `cn`, `hk` or `us`."""
        return str(self.universe["market"])

    @property
    def panel_tool(self) -> str | None:
        """The MCP tool that a read of bars counts as a read of; None where the market has none."""
        return self.tool or _PANEL_TOOLS.get(self.market)

    @property
    def selector(self) -> dict[str, Any]:
        """The universe without its market, as `kit.market.resolve_universe` takes it."""
        return {key: value for key, value in self.universe.items() if key != "market"}

    @property
    def asof(self) -> tuple[time, ZoneInfo]:
        """The time of day of `asof_time`, and its zone."""
        _, clock, zone = self.asof_time.split(" ")
        return time.fromisoformat(clock), ZoneInfo(ZONES.get(zone, zone))


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Hard limits of one production run."""

    production_runtime_sec: float
    production_max_llm_calls: int
    per_step_max_llm_calls: Mapping[str, int]

    def max_calls(self, step: str) -> int:
        """Return how often a step may call its model in one run."""
        return self.per_step_max_llm_calls.get(step, self.production_max_llm_calls)


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The machine-readable half of a bundle.

    Attributes:
        raw: The JSON value it was read from, `x-*` keys included.
    """

    schema_version: str
    strategy_id: str
    version: str
    provenance: Provenance
    agent_compatibility: tuple[str, ...]
    execution: Execution
    env_lock: EnvLock
    llm_steps: Mapping[str, LlmStep]
    data_contract: DataContract
    limits: Limits
    degradation_policy: Mapping[str, Any]
    raw: Mapping[str, Any]

    @classmethod
    def from_dict(cls, value: Any, where: str = "manifest.json") -> Manifest:
        """Read a manifest.

        Args:
            value: The parsed JSON.
            where: The file's name, for the message.

        Raises:
            BundleError: `bundle.manifest`; `details["problems"]` lists every problem with its
                dotted path, such as `env_lock.required_mcps[1].min_version`.
        """
        problems = manifest_problems(value)
        if problems:
            raise BundleError(
                "bundle.manifest",
                "; ".join(str(problem) for problem in problems),
                where=where,
                remedy="mend the keys named above; extra notes go under x-* keys",
                details={"problems": [vars(problem) for problem in problems]},
            )
        provenance = _known(value["provenance"])
        return cls(
            schema_version=value["schema_version"],
            strategy_id=value["strategy_id"],
            version=value["version"],
            provenance=Provenance(
                **{**provenance, "conversations": tuple(provenance.get("conversations", ()))}
            ),
            agent_compatibility=tuple(value["skill"].get("agent_compatibility", ())),
            execution=Execution(**_known(value["execution"])),
            env_lock=_env_lock(value["env_lock"]),
            llm_steps={
                name: LlmStep(name=name, **_known(step))
                for name, step in value["llm_steps"].items()
            },
            data_contract=DataContract(
                **{
                    **_known(value["data_contract"]),
                    "fields": tuple(value["data_contract"]["fields"]),
                    "context": {
                        series["market"]: tuple(series["symbols"])
                        for series in value["data_contract"].get("context", ())
                    },
                }
            ),
            limits=Limits(**_known(value["limits"])),
            degradation_policy=value["degradation_policy"],
            raw=value,
        )


def manifest_problems(value: Any) -> list[Problem]:
    """Return everything wrong with a manifest's shape, as (dotted path, message, hint)."""
    problems = validate("manifest", value)
    return problems or _beyond_schema(value)


def _beyond_schema(value: Mapping[str, Any]) -> list[Problem]:
    problems = []
    zone = value["data_contract"]["asof_time"].split(" ")[2]
    if not _is_zone(ZONES.get(zone, zone)):
        known = [*ZONES, *sorted(available_timezones())]
        problems.append(
            Problem(
                path="data_contract.asof_time",
                message=f"unknown zone {zone!r}",
                hint=suggestion(zone, known) or "use an IANA name such as Asia/Shanghai",
            )
        )
    markets = [value["data_contract"]["universe"]["market"]]
    for place, series in enumerate(value["data_contract"].get("context", ())):
        if series["market"] in markets:
            problems.append(
                Problem(
                    path=f"data_contract.context[{place}].market",
                    message=f"{series['market']!r} stands twice, or is the universe's own market",
                    hint="list the symbols of a market once; own ones belong to the universe",
                )
            )
        markets.append(series["market"])
    steps = value["llm_steps"]
    problems += [
        Problem(
            path=f"limits.per_step_max_llm_calls.{name}",
            message="llm_steps has no such step",
            hint=suggestion(name, steps) or f"steps: {', '.join(steps) or 'none'}",
        )
        for name in value["limits"]["per_step_max_llm_calls"]
        if name not in steps
    ]
    return problems


def _is_zone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


def _known(value: Mapping[str, Any]) -> dict[str, Any]:
    return {key: item for key, item in value.items() if not key.startswith("x-")}


def _env_lock(value: Mapping[str, Any]) -> EnvLock:
    return EnvLock(
        required_mcps=tuple(_mcp(mcp) for mcp in value["required_mcps"]),
        required_env={env["name"]: env["purpose"] for env in value["required_env"]},
        required_db={db["alias"]: _known(db) for db in value["required_db"]},
    )


def _mcp(value: Mapping[str, Any]) -> LockedMcp:
    tools = tuple(
        LockedTool(
            **{
                **_known(tool),
                "required_input_fields": tuple(tool["required_input_fields"]),
                "required_output_fields": tuple(tool["required_output_fields"]),
            }
        )
        for tool in value["tools_used"]
    )
    return LockedMcp(**{**_known(value), "tools_used": tools})
