"""INDEX.json: which versions exist and which is active. Changed only under a lock, atomically."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kit import files
from kit.bundle import activations, checksums
from kit.bundle.activations import Activation
from kit.bundle.layout import DRAFT, Version, check_id
from kit.bundle.trust import require_manifest, require_recorded
from kit.clock import Clock, iso
from kit.errors import BundleError, DataError, RegistryError
from kit.schemas import suggestion, validate
from kit.workspace import Workspace

__all__ = [
    "Index",
    "Strategy",
    "VersionEntry",
    "activate",
    "commit",
    "known_ids",
    "list_strategies",
    "locked",
    "read_index",
    "require_strategy",
    "require_version",
    "retire",
    "show",
    "strategy_dir",
]


@dataclass(frozen=True, kw_only=True)
class VersionEntry:
    """One frozen version as INDEX.json lists it."""

    version: str
    created_at: str
    channel: str | None
    is_active: bool
    digest: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON value of the entry."""
        return dict(vars(self))


@dataclass(frozen=True, kw_only=True)
class Strategy:
    """One strategy as INDEX.json lists it: versions newest first."""

    id: str
    latest_active_version: str | None
    versions: tuple[VersionEntry, ...]

    def version(self, version: str) -> VersionEntry | None:
        """Return the entry of a version, or None."""
        return next((entry for entry in self.versions if entry.version == version), None)


@dataclass(frozen=True, kw_only=True)
class Index:
    """INDEX.json.

    Attributes:
        updated_at: When it was last written; None in a new workspace.
        strategies: Id -> strategy.
        raw: The JSON value, with any keys a newer kit added.
    """

    updated_at: str | None
    strategies: Mapping[str, Strategy]
    raw: Mapping[str, Any]


def read_index(workspace: Workspace) -> Index:
    """Read INDEX.json.

    Raises:
        RegistryError: `registry.missing` or `registry.bad_index`, with the dotted path.
    """
    where = workspace.relative(workspace.index_path)
    remedy = "rebuild it from the version directories: kit registry rebuild"
    if workspace.index_path.is_dir():
        raise RegistryError(
            "registry.bad_index",
            "is a directory, not a file",
            where=where,
            remedy="move it away (nothing replaces a directory), and restore the file "
            "(git checkout) or make it anew: kit registry rebuild",
        )
    try:
        raw = files.read_json(workspace.index_path)
    except DataError as error:
        missing = error.code == "file.missing"
        raise RegistryError(
            "registry.missing" if missing else "registry.bad_index",
            error.message,
            where=error.where.replace(str(workspace.index_path), where),
            remedy=remedy,
        ) from error
    problems = validate("index", raw)
    if problems:
        raise RegistryError(
            "registry.bad_index",
            "; ".join(map(str, problems)),
            where=where,
            remedy=remedy,
            details={"problems": [vars(problem) for problem in problems]},
        )
    return Index(
        updated_at=raw["updated_at"],
        strategies={id_: _strategy(id_, value) for id_, value in raw["strategies"].items()},
        raw=raw,
    )


def _strategy(id_: str, value: Mapping[str, Any]) -> Strategy:
    keys = ("version", "created_at", "channel", "is_active", "digest")
    return Strategy(
        id=id_,
        latest_active_version=value["latest_active_version"],
        versions=tuple(
            VersionEntry(**{key: entry[key] for key in keys if key in entry})
            for entry in value["all_versions"]
        ),
    )


def list_strategies(workspace: Workspace) -> dict[str, Any]:
    """List every strategy by id: what INDEX.json says, and whether there is a draft.

    Returns:
        `{"strategies": {id: {"latest_active_version", "all_versions", "has_draft"}}}`; a strategy
        that is only a draft so far has no versions.

    Raises:
        RegistryError: As `read_index`.
    """
    listed = read_index(workspace).raw["strategies"]
    folders = sorted(workspace.strategies.glob(f"*/{DRAFT}"))
    drafts = {path.parent.name for path in folders if path.is_dir()}
    empty: dict[str, Any] = {"latest_active_version": None, "all_versions": []}
    return {
        "strategies": {
            id_: {**listed.get(id_, empty), "has_draft": id_ in drafts}
            for id_ in sorted({*listed, *drafts})
        }
    }


def show(workspace: Workspace, id_: str) -> tuple[Strategy, list[Activation]]:
    """Return one strategy and its activation log.

    Raises:
        RegistryError: `registry.unknown_id` with a suggestion; `registry.bad_activations`.
    """
    check_id(id_)
    strategy = require_strategy(workspace, read_index(workspace), id_)
    return strategy, activations.read(strategy_dir(workspace, id_))


def activate(
    workspace: Workspace, id_: str, version: str, *, who: str, why: str, clock: Clock
) -> Strategy:
    """Make a frozen version the one the scheduler loads. Rollback is activating an older one.

    Raises:
        RegistryError: `registry.unknown_id`, `registry.unknown_version`,
            `registry.bad_activations`, `registry.no_record`.
        BundleError: What the loader would refuse is not activated: `bundle.tampered` (it differs
            from its checksums, INDEX.json or the log), `bundle.id_mismatch`,
            `bundle.version_mismatch`, `bundle.not_found`, `bundle.symlink`.
    """
    check_id(id_)
    Version.parse(version)
    with locked(workspace):
        index = read_index(workspace)
        strategy = require_strategy(workspace, index, id_)
        entry = require_version(strategy, version)
        root = strategy_dir(workspace, id_) / version
        checksums.require(root)
        require_manifest(root)
        require_recorded(root, entry.digest)
        event = Activation(ts=iso(clock.now()), event="activate", version=version, who=who, why=why)
        return _with_active(workspace, index, id_, version, event, clock)


def retire(workspace: Workspace, id_: str, *, who: str, why: str, clock: Clock) -> Strategy:
    """Leave a strategy without an active version.

    Raises:
        RegistryError: `registry.unknown_id`, or `registry.no_active` when none is active;
            `registry.bad_activations`.
        BundleError: `bundle.symlink`.
    """
    check_id(id_)
    with locked(workspace):
        strategy_dir(workspace, id_)
        index = read_index(workspace)
        active = require_strategy(workspace, index, id_).latest_active_version
        if active is None:
            raise RegistryError(
                "registry.no_active",
                f"{id_} has no active version",
                where="INDEX.json",
                remedy=f"nothing to retire; see: kit registry show {id_}",
            )
        event = Activation(ts=iso(clock.now()), event="retire", version=active, who=who, why=why)
        return _with_active(workspace, index, id_, None, event, clock)


def _with_active(
    workspace: Workspace,
    index: Index,
    id_: str,
    version: str | None,
    event: Activation,
    clock: Clock,
) -> Strategy:
    raw = {**index.raw, "strategies": {**index.raw["strategies"]}}
    old = raw["strategies"][id_]
    raw["strategies"][id_] = {
        **old,
        "latest_active_version": version,
        "all_versions": [
            {**entry, "is_active": entry["version"] == version} for entry in old["all_versions"]
        ],
    }
    commit(workspace, id_, [event], raw, clock)
    return read_index(workspace).strategies[id_]


def commit(
    workspace: Workspace,
    id_: str,
    events: list[Activation],
    raw: Mapping[str, Any],
    clock: Clock,
) -> None:
    """Write activation lines and a new INDEX.json together; the caller holds `locked`.

    A failure leaves both as they were. A crash between the two leaves the log ahead of the index,
    which `kit verify` finds and `kit registry rebuild` mends.

    Raises:
        StorageError: The disk refused.
    """
    strategy = workspace.strategies / id_
    old = activations.write(strategy, events)
    try:
        files.write_json(workspace.index_path, {**raw, "updated_at": iso(clock.now())})
    except BaseException:
        activations.restore(strategy, old)
        raise


def strategy_dir(workspace: Workspace, id_: str) -> Path:
    """Return the directory of a strategy, which may not exist yet.

    Raises:
        BundleError: `bundle.symlink` when it is a symbolic link.
    """
    folder = workspace.strategies / id_
    if folder.is_symlink():
        raise BundleError(
            "bundle.symlink",
            "the strategy's directory is a symbolic link",
            where=workspace.relative(folder),
            remedy="put the directory itself there",
        )
    return folder


@contextmanager
def locked(workspace: Workspace, timeout: float = 30.0) -> Iterator[None]:
    """Hold the one lock under which the registry of a workspace changes.

    Raises:
        StorageError: `file.locked` when another process holds it longer than `timeout` seconds.
    """
    folder = workspace.runs / "locks"
    files.make_dir(folder)
    with files.lock(folder / "registry.lock", timeout=timeout):
        yield


def require_strategy(workspace: Workspace, index: Index, id_: str) -> Strategy:
    """Return a strategy of the index.

    Raises:
        RegistryError: `registry.unknown_id` with a suggestion and the command that lists ids.
    """
    strategy = index.strategies.get(id_)
    if strategy is not None:
        return strategy
    folder = workspace.strategies / id_
    if (folder / "draft").is_dir():
        raise RegistryError(
            "registry.unknown_id",
            f"{id_} has a draft, but no frozen version",
            where="INDEX.json",
            remedy=f"use {id_}@draft, or freeze it: kit freeze {id_}",
        )
    if folder.is_dir() and any(Version.read(child.name) for child in folder.iterdir()):
        raise RegistryError(
            "registry.unlisted",
            f"{id_} has version directories that INDEX.json does not list",
            where="INDEX.json",
            remedy="a freeze may have been cut short; run: kit registry rebuild",
        )
    near = suggestion(id_, known_ids(workspace, index))
    raise RegistryError(
        "registry.unknown_id",
        f"there is no strategy {id_!r}; {near}".rstrip("; "),
        where="INDEX.json",
        remedy="see what there is: kit list",
    )


def require_version(strategy: Strategy, version: str) -> VersionEntry:
    """Return a version's entry.

    Raises:
        RegistryError: `registry.unknown_version`, naming the versions there are.
    """
    entry = strategy.version(version)
    if entry is not None:
        return entry
    known = [entry.version for entry in strategy.versions]
    hint = suggestion(version, known) or f"versions: {', '.join(known) or 'none'}"
    raise RegistryError(
        "registry.unknown_version",
        f"{strategy.id} has no version {version}; {hint}",
        where="INDEX.json",
        remedy=f"see what there is: kit registry show {strategy.id}",
    )


def known_ids(workspace: Workspace, index: Index) -> list[str]:
    """Return every id that INDEX.json or a directory has."""
    folders = workspace.strategies.iterdir() if workspace.strategies.is_dir() else ()
    return sorted({*index.strategies, *(path.name for path in folders if path.is_dir())})
