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
from kit.bundle.manifest import Manifest
from kit.bundle.registry import Index, VersionEntry, locked, read_index
from kit.bundle.text import read_bundle_json
from kit.clock import Clock, iso
from kit.errors import BundleError, RegistryError
from kit.workspace import Workspace

__all__ = ["Rebuilt", "entry_of", "rebuild", "strategy_dirs", "strategy_value", "version_dirs"]


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
        BundleError: The manifest or the checksums cannot be read.
    """
    manifest = Manifest.from_dict(read_bundle_json(root, MANIFEST), label(root, MANIFEST))
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

    Raises:
        RegistryError: `registry.digest_mismatch`, `registry.version_lost`.
        BundleError: `bundle.tampered`. Nothing is written when any version is refused.
    """
    with locked(workspace):
        strategies: dict[str, Any] = {}
        adopted: dict[Path, list[Activation]] = {}
        notes: list[str] = []
        for folder in strategy_dirs(workspace):
            events = activations.read(folder)
            roots = version_dirs(folder)
            _refuse_lost(folder.name, events, {root.name for root in roots}, notes)
            recorded = activations.recorded_digests(events)
            active = activations.active_version(events)
            entries = []
            for root in roots:
                checksums.require(root)
                entry = entry_of(root, is_active=root.name == active)
                _refuse_other_digest(folder.name, entry, recorded)
                if entry.version not in recorded:
                    notes.append(f"{folder.name}@{entry.version}: no record of it; adopted")
                    adopted.setdefault(folder, []).append(_adoption(entry, who, clock))
                entries.append(entry)
            if entries:
                strategies[folder.name] = strategy_value(entries)
        for folder, new in adopted.items():
            activations.write(folder, reversed(new))
            for event in new:
                files.set_readonly(folder / event.version)
        files.write_json(
            workspace.index_path,
            {"schema_version": "1.0", "updated_at": iso(clock.now()), "strategies": strategies},
        )
        return Rebuilt(index=read_index(workspace), notes=tuple(notes))


def strategy_dirs(workspace: Workspace) -> list[Path]:
    """Return the strategy directories of a workspace, by name."""
    if not workspace.strategies.is_dir():
        return []
    return sorted(
        path for path in workspace.strategies.iterdir() if path.is_dir() and not path.is_symlink()
    )


def _refuse_lost(id_: str, events: list[Activation], there: set[str], notes: list[str]) -> None:
    lost = {event.version for event in events} - there
    used = {event.version for event in events if event.event in {"activate", "retire"}} & lost
    if used:
        raise RegistryError(
            "registry.version_lost",
            f"{id_} lost version {', '.join(sorted(used))}, which was active once",
            where=f"{id_}/{activations.FILE}",
            remedy="restore the directory (git checkout) and rebuild again",
        )
    # A version that never was active may be a freeze that failed after its record was written.
    notes += [f"{id_}@{version}: recorded, but there is no directory" for version in sorted(lost)]


def _refuse_other_digest(id_: str, entry: VersionEntry, recorded: Mapping[str, str]) -> None:
    known = recorded.get(entry.version)
    if known is not None and known != entry.digest:
        raise RegistryError(
            "registry.digest_mismatch",
            f"{id_}@{entry.version} is not what was frozen: its digest differs from the record",
            where=f"{id_}/{entry.version}/{CHECKSUMS}",
            remedy="restore the version (git checkout); freeze a change as a new version",
            details={"recorded": known, "actual": entry.digest},
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
