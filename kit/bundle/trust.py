"""Is a version directory the one that was frozen there: its name, its digest, its record?"""

from __future__ import annotations

from pathlib import Path

from kit.bundle import activations, checksums
from kit.bundle.layout import CHECKSUMS, MANIFEST, label
from kit.bundle.manifest import Manifest
from kit.bundle.text import read_bundle_json
from kit.errors import BundleError, RegistryError

__all__ = ["require_digest", "require_place", "require_recorded"]


def require_place(root: Path) -> Manifest:
    """Return the manifest of a version directory, refusing one that names another place.

    Raises:
        BundleError: `bundle.id_mismatch` or `bundle.version_mismatch`: a version was copied or
            renamed; `bundle.manifest` and the like when the manifest cannot be read.
    """
    where = label(root, MANIFEST)
    manifest = Manifest.from_dict(read_bundle_json(root, MANIFEST), where)
    for code, stated, named in (
        ("bundle.id_mismatch", manifest.strategy_id, root.parent.name),
        ("bundle.version_mismatch", manifest.version, root.name),
    ):
        if stated != named:
            raise BundleError(
                code,
                f"the manifest says {stated}, the directory {named}: "
                "a version was copied or renamed",
                where=where,
                remedy="move that directory away; only `kit freeze` makes a version",
            )
    return manifest


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
