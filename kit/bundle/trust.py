"""Is a version directory the one that was frozen there: its name, its digest, its record?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from kit import files
from kit.bundle import activations, checksums
from kit.bundle.layout import CHECKSUMS, MANIFEST, label
from kit.bundle.manifest import Manifest
from kit.bundle.text import read_bundle_json
from kit.errors import BundleError, RegistryError

__all__ = ["Facts", "require_digest", "require_manifest", "require_place", "require_recorded"]


@dataclass(frozen=True)
class Facts:
    """What a version directory says of itself, each read once.

    Attributes:
        root: Directory of the version.
    """

    root: Path

    @cached_property
    def listed(self) -> str:
        """The text of `checksums.txt`; raises as `checksums.read`."""
        return checksums.read(self.root)

    @cached_property
    def digest(self) -> str:
        """The digest of the version."""
        return files.sha256_bytes(self.listed.encode("utf-8"))

    @cached_property
    def place(self) -> Mapping[str, Any]:
        """What its manifest states; raises as `require_place`."""
        return require_place(self.root)


def _stated(root: Path) -> dict[str, Any]:
    """Return what the manifest of a version says it is, its shape unchecked.

    Returns:
        `strategy_id`, `version`, `created_at`, `channel`; None for what it does not say.

    Raises:
        BundleError: `bundle.missing_file`, `bundle.bad_json` and the like.
    """
    raw = _object(read_bundle_json(root, MANIFEST))
    mcps = _object(raw.get("env_lock")).get("required_mcps")
    channels = [_object(mcp).get("channel") for mcp in mcps] if isinstance(mcps, list) else []
    return {
        "strategy_id": raw.get("strategy_id"),
        "version": raw.get("version"),
        "created_at": _object(raw.get("provenance")).get("created_at"),
        "channel": next((channel for channel in channels if channel), None),
    }


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def require_place(root: Path) -> dict[str, Any]:
    """Return what a version's manifest states, refusing one that names another place.

    Raises:
        BundleError: `bundle.id_mismatch` or `bundle.version_mismatch`: a version was copied or
            renamed; see also `read_bundle_json`.
    """
    said = _stated(root)
    for code, key, named in (
        ("bundle.id_mismatch", "strategy_id", root.parent.name),
        ("bundle.version_mismatch", "version", root.name),
    ):
        if said[key] != named:
            raise BundleError(
                code,
                f"the manifest says {said[key]}, the directory {named}: "
                "a version was copied or renamed",
                where=label(root, MANIFEST),
                remedy="move that directory away; only `kit freeze` makes a version",
            )
    return said


def require_manifest(root: Path) -> Manifest:
    """Return the manifest of a version directory, its place and its shape checked.

    Raises:
        BundleError: As `require_place`, and `bundle.manifest`.
    """
    require_place(root)
    return Manifest.from_dict(read_bundle_json(root, MANIFEST), label(root, MANIFEST))


def require_recorded(root: Path, listed: str | None) -> None:
    """Compare a version's digest with INDEX.json's and with the activation log's.

    Args:
        root: Directory of the version.
        listed: Digest that INDEX.json lists, or None when it has none.

    Raises:
        BundleError: `bundle.tampered`: files and checksums were changed together.
        RegistryError: `registry.bad_activations`; `registry.no_record` when neither has a digest.
    """
    recorded = activations.recorded_digests(activations.read(root.parent)).get(root.name)
    if listed is None and recorded is None:
        raise RegistryError(
            "registry.no_record",
            f"neither INDEX.json nor the log holds a digest of {root.parent.name}@{root.name}",
            where=f"{root.parent.name}/{activations.FILE}",
            remedy=f"restore INDEX.json and {activations.FILE} (git checkout); "
            "where they never held it: kit registry rebuild",
        )
    require_digest(listed, root, "INDEX.json")
    require_digest(recorded, root, activations.FILE)


def require_digest(recorded: str | None, root: Path, source: str) -> None:
    """Compare a version's digest with the recorded one.

    Raises:
        BundleError: `bundle.tampered`: files and checksums were changed together.
    """
    actual = checksums.digest(root)
    if recorded is not None and actual != recorded:
        raise BundleError(
            "bundle.tampered",
            f"checksums.txt differs from the digest recorded in {source}",
            where=label(root, CHECKSUMS),
            remedy="restore the version (git checkout); freeze a change as a new version",
            details={"recorded": recorded, "actual": actual},
        )
