"""Rebuild INDEX.json from the version directories and the activation logs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kit import files
from kit.bundle import activations, checksums
from kit.bundle.activations import Activation
from kit.bundle.layout import CHECKSUMS, MANIFEST, Version, label
from kit.bundle.registry import Index, Strategy, VersionEntry, locked, read_index, strategy_dir
from kit.bundle.trust import require_manifest
from kit.clock import Clock, iso
from kit.errors import BundleError, RegistryError
from kit.workspace import Workspace

__all__ = [
    "Rebuilt",
    "entry_of",
    "rebuild",
    "refuse_other_digest",
    "strategy_dirs",
    "strategy_links",
    "strategy_value",
    "version_dirs",
]


@dataclass(frozen=True, kw_only=True)
class Rebuilt:
    """What a rebuild did.

    Attributes:
        index: The new index.
        notes: What was adopted or passed over, one line each.
    """

    index: Index
    notes: tuple[str, ...]


def version_dirs(strategy: Path) -> list[Path]:
    """Return the version directories of a strategy, newest first."""
    found = [
        (version, path)
        for path in strategy.iterdir()
        if path.is_dir() and (version := Version.read(path.name)) is not None
    ]
    return [path for _, path in sorted(found, reverse=True)]


def entry_of(root: Path, *, is_active: bool) -> VersionEntry:
    """Make the index entry of a version directory from its manifest and checksums.

    Raises:
        BundleError: The manifest or the checksums cannot be read, or the manifest names another
            strategy or version.
    """
    manifest = require_manifest(root)
    if manifest.provenance.created_at is None:
        raise BundleError(
            "bundle.manifest",
            "provenance.created_at: missing in a frozen version",
            where=label(root, MANIFEST),
            remedy="restore the version from git or from an export",
        )
    return VersionEntry(
        version=root.name,
        created_at=manifest.provenance.created_at,
        channel=manifest.env_lock.channel,
        is_active=is_active,
        digest=checksums.digest(root),
    )


def strategy_value(entries: list[VersionEntry]) -> dict[str, Any]:
    """Make the INDEX.json value of a strategy from its entries, newest first."""
    newest_first = sorted(entries, key=lambda entry: Version.parse(entry.version), reverse=True)
    active = next((entry.version for entry in newest_first if entry.is_active), None)
    return {
        "latest_active_version": active,
        "all_versions": [entry.to_dict() for entry in newest_first],
    }


def rebuild(workspace: Workspace, *, who: str, clock: Clock) -> Rebuilt:
    """Write INDEX.json anew from what is on disk.

    Versions without a record (a freeze cut short) are checked, adopted into the log and listed.
    Where the log was lost, the old INDEX.json, if it can be read, is the second source: of the
    digests, and of which version is active.

    Raises:
        RegistryError: `registry.digest_mismatch`, `registry.version_lost`; `registry.bad_index`
            or `registry.bad_activations` when a directory stands in the place of the file.
        BundleError: `bundle.tampered`, `bundle.id_mismatch`, `bundle.version_mismatch`,
            `bundle.symlink`. Nothing is written when any version is refused.
    """
    with locked(workspace):
        for link in strategy_links(workspace):
            strategy_dir(workspace, link.name)  # raises: left out, its versions would be gone
        old = _old_strategies(workspace)
        strategies: dict[str, Any] = {}
        added: dict[Path, list[Activation]] = {}
        notes: list[str] = []
        for folder in strategy_dirs(workspace):
            entries, new = _from_disk(folder, old.get(folder.name), who, clock, notes)
            if entries:
                strategies[folder.name] = strategy_value(entries)
            if new:
                added[folder] = new
        there = {folder.name for folder in strategy_dirs(workspace)}
        notes += [
            f"{id_}: listed before, but there is no directory" for id_ in old if id_ not in there
        ]
        _write(workspace, strategies, added, clock)
        return Rebuilt(index=read_index(workspace), notes=tuple(notes))


def _old_strategies(workspace: Workspace) -> Mapping[str, Strategy]:
    """Return what INDEX.json lists until now; nothing when it is lost or broken."""
    try:
        return read_index(workspace).strategies
    except RegistryError:
        if workspace.index_path.is_dir():
            raise  # no rebuild can replace it
        return {}


def _from_disk(
    folder: Path, old: Strategy | None, who: str, clock: Clock, notes: list[str]
) -> tuple[list[VersionEntry], list[Activation]]:
    """Return the entries of a strategy, and what its log lacks, oldest first."""
    events = activations.read(folder)
    roots = version_dirs(folder)
    there = {root.name for root in roots}
    _refuse_lost(folder.name, events, there, notes)
    recorded = activations.recorded_digests(events)
    unrecorded = [entry for entry in old.versions if entry.version not in recorded] if old else []
    listed = {entry.version: entry.digest for entry in unrecorded if entry.digest is not None}
    active = activations.active_version(events)
    kept = old.latest_active_version if old else None
    if kept is None or kept not in {entry.version for entry in unrecorded}:
        kept = None  # the log knows the version, so the log decides
    if kept is not None and kept not in there:
        raise _version_lost(folder.name, kept, "INDEX.json")
    notes += [
        f"{folder.name}@{entry.version}: listed before, but there is no directory"
        for entry in unrecorded
        if entry.version not in there
    ]
    entries: list[VersionEntry] = []
    new: list[Activation] = []
    for root in roots:
        checksums.require(root)
        entry = entry_of(root, is_active=root.name == (kept or active))
        refuse_other_digest(folder.name, entry, recorded, activations.FILE)
        refuse_other_digest(folder.name, entry, listed, "INDEX.json")
        if entry.version not in recorded:
            notes.append(f"{folder.name}@{entry.version}: no record of it; adopted")
            new.insert(0, _adoption(entry, who, clock))
        entries.append(entry)
    if kept is not None and kept != active:
        why = "the log had lost it; INDEX.json had it active"
        notes.append(f"{folder.name}@{kept}: kept active: {why}")
        new.append(
            Activation(ts=iso(clock.now()), event="activate", version=kept, who=who, why=why)
        )
    return entries, new


def _write(
    workspace: Workspace,
    strategies: Mapping[str, Any],
    added: Mapping[Path, list[Activation]],
    clock: Clock,
) -> None:
    """Write the logs and INDEX.json together: a failure leaves all of them as they were."""
    written: list[tuple[Path, bytes | None]] = []
    try:
        for folder, new in added.items():
            written.append((folder, activations.write(folder, new)))
            for version in {event.version for event in new}:
                files.set_readonly(folder / version)
        files.write_json(
            workspace.index_path,
            {"schema_version": "1.0", "updated_at": iso(clock.now()), "strategies": strategies},
        )
    except BaseException:
        for folder, old in written:
            activations.restore(folder, old)
        raise


def strategy_dirs(workspace: Workspace) -> list[Path]:
    """Return the strategy directories of a workspace, by name."""
    if not workspace.strategies.is_dir():
        return []
    return sorted(
        path for path in workspace.strategies.iterdir() if path.is_dir() and not path.is_symlink()
    )


def strategy_links(workspace: Workspace) -> list[Path]:
    """Return what stands under strategies/ as a symbolic link to a directory, or to nothing."""
    if not workspace.strategies.is_dir():
        return []
    return sorted(
        path
        for path in workspace.strategies.iterdir()
        if path.is_symlink() and (path.is_dir() or not path.exists())
    )


def _refuse_lost(id_: str, events: list[Activation], there: set[str], notes: list[str]) -> None:
    lost = {event.version for event in events} - there
    used = {event.version for event in events if event.event in {"activate", "retire"}} & lost
    if used:
        raise _version_lost(id_, ", ".join(sorted(used)), f"{id_}/{activations.FILE}")
    # A version that never was active may be a freeze that failed after its record was written.
    notes += [f"{id_}@{version}: recorded, but there is no directory" for version in sorted(lost)]


def _version_lost(id_: str, versions: str, where: str) -> RegistryError:
    return RegistryError(
        "registry.version_lost",
        f"{id_} lost version {versions}, which was active once",
        where=where,
        remedy="restore the directory (git checkout) and rebuild again",
    )


def refuse_other_digest(
    id_: str, entry: VersionEntry, recorded: Mapping[str, str | None], source: str
) -> None:
    """Compare a version's digest with the one that `source` recorded, if it did.

    Raises:
        RegistryError: `registry.digest_mismatch`.
    """
    known = recorded.get(entry.version)
    if known is not None and known != entry.digest:
        raise RegistryError(
            "registry.digest_mismatch",
            f"{id_}@{entry.version} is not what was frozen: {source} has another digest of it",
            where=f"{id_}/{entry.version}/{CHECKSUMS}",
            remedy="restore the version (git checkout); freeze a change as a new version",
            details={"recorded": known, "actual": entry.digest, "source": source},
        )


def _adoption(entry: VersionEntry, who: str, clock: Clock) -> Activation:
    return Activation(
        ts=iso(clock.now()),
        event="adopt",
        version=entry.version,
        digest=entry.digest,
        who=who,
        why="found by a rebuild",
    )
