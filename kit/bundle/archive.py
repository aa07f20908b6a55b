"""Carry a frozen version in one file: always the same bytes, and checked before it lands.

An archive is a gzipped tar of `<id>/<x.y.z>/`, so it also unpacks into `strategies/` with no tool
of ours. What comes in is untrusted: it is measured while it is unpacked, every member is looked at
before anything is written, and the version is complete and verified beside its place before one
rename puts it there.
"""

from __future__ import annotations

import gzip
import io
import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from kit import files
from kit.bundle import checksums
from kit.bundle.draft import refuse_twin
from kit.bundle.landing import heal, land
from kit.bundle.layout import (
    FROZEN_FILES,
    MANIFEST,
    MAX_DEPTH,
    SKILL,
    Ref,
    Version,
    is_plain,
    parse_ref,
    staging_name,
    twins,
    walk,
)
from kit.bundle.leftovers import claim, discard, process_suffix
from kit.bundle.model import Bundle, resolve
from kit.bundle.registry import locked, strategy_dir
from kit.clock import Clock
from kit.errors import BundleError, DataError, KitError, RegistryError, UsageError
from kit.workspace import Workspace

__all__ = ["MAX_BYTES", "MAX_FILES", "Exported", "Imported", "export_version", "import_archive"]

MAX_BYTES = 64 << 20
"""Size above which an archive is refused, packed or unpacked (bytes)."""
MAX_FILES = 4096
"""Number of members above which an archive is refused."""
_MAX_RATIO = 200  # text of real bundles packs to a tenth; below the floor the ratio says nothing
_RATIO_FLOOR = 1 << 20
_MTIME = 315_532_800  # 1980-01-01: tar warns of dates at the epoch


@dataclass(frozen=True, kw_only=True)
class Exported:
    """An archive that was written.

    Attributes:
        path: The archive; its record stands beside it as `record_path`.
        ref: `id@version`.
        sha256: Of the archive.
        record: The artifact record, for whoever keeps artifacts.
    """

    path: Path
    record_path: Path
    ref: str
    sha256: str
    record: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Imported:
    """What became of an import.

    Attributes:
        ref: `id@version`.
        root: Directory of the version.
        digest: SHA-256 of its checksums.txt.
        landed: False when the very same version was there already, or on a dry run.
        notes: What happened beside it.
    """

    ref: str
    root: Path
    digest: str
    landed: bool
    notes: tuple[str, ...] = ()


def export_version(workspace: Workspace, ref: str, target: Path | None = None) -> Exported:
    """Write a frozen version as an archive, and its artifact record beside it.

    Args:
        workspace: The workspace.
        ref: `id` (the active version) or `id@1.2.3`.
        target: The archive; `<id>-<version>.tar.gz` in the current directory when None.

    Raises:
        UsageError: `bundle.is_draft`.
        BundleError: The version is not what was frozen; see `resolve` for this and the rest.
        StorageError: The disk refused.
    """
    if parse_ref(ref).is_draft:
        raise UsageError(
            "bundle.is_draft",
            "a draft is not carried: it has no checksums",
            remedy=f"freeze it first: kit freeze {parse_ref(ref).id}",
        )
    bundle = resolve(workspace, ref)
    path = target or Path(f"{bundle.id}-{bundle.version}.tar.gz")
    data = _packed(bundle)
    record = {
        "type": "custom",
        "subtype": "strategy_skill",
        "name": path.name,
        "metadata": {
            "strategy_id": bundle.id,
            "version": bundle.version,
            "skill_md_path": SKILL,
            "manifest_path": MANIFEST,
        },
    }
    stem = path.name.removesuffix(".gz").removesuffix(".tgz").removesuffix(".tar")
    record_path = path.with_name(f"{stem}.artifact.json")
    files.write_bytes(path, data)
    files.write_json(record_path, record)
    return Exported(
        path=path,
        record_path=record_path,
        ref=bundle.ref,
        sha256=files.sha256_bytes(data),
        record=record,
    )


def _packed(bundle: Bundle) -> bytes:
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w", format=tarfile.PAX_FORMAT) as writer:
        for name in walk(bundle.root, junk=True).files:
            data = (bundle.root / name).read_bytes()
            member = tarfile.TarInfo(f"{bundle.id}/{bundle.version}/{name}")
            member.size, member.mtime, member.mode = len(data), _MTIME, 0o444
            writer.addfile(member, io.BytesIO(data))
    return gzip.compress(tar.getvalue(), mtime=0)


def import_archive(
    workspace: Workspace,
    archive: Path,
    *,
    who: str,
    why: str = "",
    clock: Clock,
    dry_run: bool = False,
) -> Imported:
    """Take a version in from an archive; it is not activated.

    A version whose directory was lost comes back the same way, and stays what it was.

    Args:
        workspace: The workspace.
        archive: The file.
        who: Person or program, for the activation log.
        why: Reason, for the activation log.
        clock: Gives the time of the record.
        dry_run: Whether to check everything and leave the registry alone.

    Raises:
        DataError: `file.missing`.
        BundleError: `archive.unreadable`, `archive.too_large`, `archive.member`, `archive.root`;
            `bundle.tampered` when checksums differ, and what `Bundle.open` raises.
        RegistryError: `archive.conflict` when the version is there with other content;
            `registry.digest_mismatch` when another content was recorded for it; `draft.id_taken`.
        StorageError: The disk refused. Whatever is raised, nothing has changed.
    """
    ref, contents = _unpacked(archive)
    folder = strategy_dir(workspace, ref.id)
    version = Version.parse(str(ref.version))
    root = folder / str(version)
    refuse_twin(workspace, ref.id)
    existed = folder.is_dir()
    notes = [] if dry_run else heal(workspace, folder, who="kit import", clock=clock)
    staging = folder / staging_name(version, process_suffix())
    try:
        claim(staging)
        digest = _stage(staging, contents, ref, archive)
        with locked(workspace):
            landed = not root.exists() and not dry_run
            if root.exists():
                _refuse_other_content(root, digest, archive)
                notes.append("the very same version is here already")
            if landed:
                reason = why or f"imported from {archive.name}"
                land(workspace, staging, root, event="adopt", who=who, why=reason, clock=clock)
    finally:
        discard(staging)
        if not existed and folder.is_dir() and not any(folder.iterdir()):
            files.remove_tree(folder)
    return Imported(ref=str(ref), root=root, digest=digest, landed=landed, notes=tuple(notes))


def _unpacked(archive: Path) -> tuple[Ref, dict[str, bytes]]:
    """Return what an archive holds: the version it is, and path inside it -> bytes."""
    raw = _inflated(archive)
    contents: dict[str, bytes] = {}
    heads: set[tuple[str, ...]] = set()
    total = 0
    try:
        with tarfile.open(fileobj=io.BytesIO(raw), mode="r:") as reader:
            for count, member in enumerate(reader, start=1):
                if count > MAX_FILES:
                    raise _refused(
                        archive, "archive.too_large", f"it has more than {MAX_FILES:,} members"
                    )
                name = _checked_name(archive, member)
                parts = tuple(name.split("/"))
                heads.add(parts[:2] if member.isdir() or len(parts) > 2 else (name, ""))
                total += member.size  # members may overlap, so that little holds much
                if not 0 <= member.size <= total <= MAX_BYTES:
                    raise _refused(archive, "archive.too_large", "its members claim too much")
                if member.isdir():
                    continue
                if name in contents:
                    raise _bad_member(archive, name, "stands twice")
                data = reader.extractfile(member)
                contents[name] = data.read() if data else b""
    except (tarfile.TarError, EOFError, ValueError, OverflowError, OSError) as error:
        raise _refused(
            archive, "archive.unreadable", f"no gzipped tar, or cut off: {error}"
        ) from error
    ref = _ref_of(archive, heads)
    for name, other in twins(contents):
        raise _bad_member(archive, name, f"meets {other} where case does not count")
    for name in contents:
        if any(str(above) in contents for above in PurePosixPath(name).parents):
            raise _bad_member(archive, name, "lies below a file")
    return ref, {name.split("/", 2)[2]: data for name, data in contents.items()}


def _inflated(archive: Path) -> bytes:
    """Return the tar inside an archive, reading no more of it than an honest one can hold."""
    if not archive.is_file():
        raise DataError(
            "file.missing",
            "there is no such file",
            where=str(archive),
            remedy="name an archive that kit export wrote",
        )
    packed = archive.stat().st_size
    if packed > MAX_BYTES:
        raise _refused(
            archive, "archive.too_large", f"it has {packed:,} bytes; at most {MAX_BYTES:,} are read"
        )
    allowed = min(MAX_BYTES, max(_RATIO_FLOOR, _MAX_RATIO * packed))
    try:
        with gzip.open(archive) as stream:
            raw = stream.read(allowed + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise _refused(
            archive, "archive.unreadable", f"no gzipped tar, or cut off: {error}"
        ) from error
    if len(raw) > allowed:
        raise _refused(archive, "archive.too_large", f"it unpacks to more than {allowed:,} bytes")
    return raw


def _checked_name(archive: Path, member: tarfile.TarInfo) -> str:
    """Return the name of a member that may be written, refusing every other kind and name."""
    name = member.name
    if member.issparse() or member.type not in {
        tarfile.REGTYPE,
        tarfile.AREGTYPE,
        tarfile.DIRTYPE,
    }:
        raise _bad_member(archive, name, "is no plain file: no links, devices or holes")
    parts = name.split("/")
    plain = all(is_plain(part) and part not in {"", ".", ".."} for part in parts)
    if not plain or ":" in parts[0] or len(parts) > len(("id", "version", "file")) + MAX_DEPTH:
        raise _bad_member(archive, name, "is not a plain relative path of a moderate length")
    return name


def _ref_of(archive: Path, heads: set[tuple[str, ...]]) -> Ref:
    try:
        ((id_, version),) = {head for head in heads if len(head) > 1}
        if any(head[0] != id_ for head in heads):
            raise ValueError(heads)
        Version.parse(version)
        return parse_ref(f"{id_}@{version}")
    except (ValueError, UsageError) as error:
        found = ", ".join(sorted("/".join(head) for head in heads)[:3]) or "nothing"
        what = f"it holds {found}, not one <strategy-id>/<X.Y.Z>"
        raise _refused(archive, "archive.root", what) from error


def _stage(staging: Path, contents: dict[str, bytes], ref: Ref, archive: Path) -> str:
    """Write the version beside its place and verify it there; return its digest."""
    files.make_dir(staging)
    for name, data in contents.items():
        files.make_dir((staging / name).parent)
        files.write_bytes(staging / name, data)
    if walk(staging).files != walk(staging, junk=True).files:
        raise _bad_member(archive, str(ref), "holds caches or temporary files")
    try:
        bundle = Bundle.open(staging)
    except KitError as error:
        error.where = f"{archive}: {error.where.replace(staging.name, str(ref.version))}"
        error.remedy = "ask for a new export; nothing was taken in"
        raise
    for name in FROZEN_FILES:
        if name not in contents:
            raise _bad_member(archive, name, "is missing")
    if bundle.manifest.provenance.created_at is None:
        raise _refused(archive, "archive.root", "its manifest does not say when it was frozen")
    if bundle.id != ref.id:
        what = f"the manifest says {bundle.id}, the archive {ref.id}"
        raise _refused(archive, "archive.root", what)
    return bundle.digest


def _refuse_other_content(root: Path, digest: str, archive: Path) -> None:
    checksums.require(root)
    if checksums.digest(root) != digest:
        raise RegistryError(
            "archive.conflict",
            f"{root.parent.name}@{root.name} is here already, with other content",
            where=str(archive),
            remedy="a frozen version never changes; ask for that change as a new version",
        )


def _bad_member(archive: Path, name: str, what: str) -> BundleError:
    return _refused(archive, "archive.member", f"{name!r} {what}")


def _refused(archive: Path, code: str, what: str) -> BundleError:
    remedy = "name an archive that kit export wrote; nothing was taken in"
    return BundleError(code, what, where=str(archive), remedy=remedy)
