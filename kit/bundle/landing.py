"""Put a prepared version into its place and into the registry, or leave everything as it was.

What a process that was killed on the way left behind is mended before the next version lands.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from kit import files
from kit.bundle import activations
from kit.bundle.activations import Activation
from kit.bundle.leftovers import clean_stale
from kit.bundle.rebuild import (
    entry_of,
    rebuild,
    refuse_other_digest,
    strategy_value,
    version_dirs,
)
from kit.bundle.registry import VersionEntry, commit, read_index
from kit.clock import Clock, iso
from kit.errors import StorageError
from kit.workspace import Workspace

__all__ = ["heal", "land"]


def heal(workspace: Workspace, folder: Path, *, who: str, clock: Clock) -> list[str]:
    """Clean up after processes that were killed, and list a version they could not register.

    Args:
        workspace: The workspace.
        folder: Directory of a strategy, which may not exist yet.
        who: The program, for the activation log.
        clock: Gives the time of the record.

    Returns:
        What was done, one line each.

    Raises:
        RegistryError: INDEX.json or the log cannot be read; what `rebuild` raises.
        BundleError: What `rebuild` raises.
    """
    notes = [
        f"removed {name}, left by a dead process"
        for place in (workspace.root, folder)
        for name in clean_stale(place)
    ]
    activations.read(folder)  # a log that cannot be added to is better found before the checks
    strategy = read_index(workspace).strategies.get(folder.name)
    listed = {entry.version for entry in strategy.versions} if strategy else set()
    roots = version_dirs(folder) if folder.is_dir() else []
    if all(root.name in listed for root in roots):
        return notes
    rebuilt = rebuild(workspace, who=who, clock=clock)
    return [*notes, f"INDEX.json lacked a version of {folder.name}: rebuilt", *rebuilt.notes]


def land(
    workspace: Workspace,
    staging: Path,
    root: Path,
    *,
    event: Literal["freeze", "adopt"],
    who: str,
    why: str,
    activate: bool = False,
    clock: Clock,
) -> None:
    """Rename a staged version into place, make it read-only, and record it.

    The caller holds the registry's lock. A failure takes the version away again.

    Args:
        workspace: The workspace.
        staging: The complete version, beside its place.
        root: Its place, `strategies/<id>/<x.y.z>`.
        event: What the activation log calls it.
        who: Person or program.
        why: Reason, for the activation log.
        activate: Whether it becomes the active version. A version that INDEX.json lists already,
            whose directory was lost, keeps what it was.
        clock: Gives the time of the record.

    Raises:
        StorageError: The disk refused; `file.exists` when another version was first.
        RegistryError: `registry.digest_mismatch`: another content was recorded for that version.
    """
    raw = read_index(workspace).raw
    try:
        files.publish_dir(staging, root)
    except StorageError as error:
        # When the rename is done, what came after it failed.
        if error.code != "file.exists" and not staging.exists():
            files.remove_tree(root)
        raise
    try:
        files.set_readonly(root)
        _register(workspace, root, raw, event, who, why, activate, clock)
    except BaseException:
        files.remove_tree(root)
        raise


def _register(
    workspace: Workspace,
    root: Path,
    raw: Mapping[str, Any],
    event: Literal["freeze", "adopt"],
    who: str,
    why: str,
    activate: bool,
    clock: Clock,
) -> None:
    id_ = root.parent.name
    old = raw["strategies"].get(id_, {"latest_active_version": None, "all_versions": []})
    was_active = old["latest_active_version"] == root.name
    entry = entry_of(root, is_active=activate or was_active)
    recorded = activations.recorded_digests(activations.read(root.parent))
    refuse_other_digest(id_, entry, recorded, activations.FILE)
    listed = {value["version"]: value.get("digest") for value in old["all_versions"]}
    refuse_other_digest(id_, entry, listed, "INDEX.json")
    keys = ("version", "created_at", "channel", "is_active", "digest")
    kept = [
        VersionEntry(**{key: value[key] for key in keys if key in value})
        for value in old["all_versions"]
        if value["version"] != root.name
    ]
    if activate:
        kept = [VersionEntry(**{**vars(other), "is_active": False}) for other in kept]
    strategies = {**raw["strategies"], id_: {**old, **strategy_value([*kept, entry])}}
    ordered = {name: strategies[name] for name in sorted(strategies)}
    now = iso(clock.now())
    events = [
        Activation(ts=now, event=event, version=root.name, digest=entry.digest, who=who, why=why)
    ]
    if activate:
        events.append(Activation(ts=now, event="activate", version=root.name, who=who, why=why))
    commit(workspace, id_, events, {**raw, "strategies": ordered}, clock)
