"""`checksums.txt`: what `sha256sum -c checksums.txt` checks, written and verified here.

One line a file, sorted: the SHA-256, two spaces, the relative path. The file does not list itself.
Names that `sha256sum` would have to escape are refused, so that its plain form always suffices.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kit import files
from kit.bundle.layout import CHECKSUMS, Tree, label, walk
from kit.bundle.text import read_bundle_text
from kit.errors import BundleError

__all__ = [
    "Difference",
    "compute",
    "digest",
    "parse",
    "read",
    "require",
    "tree_digest",
    "verify",
    "write",
]

Kind = Literal["missing", "extra", "changed", "symlink", "odd", "mode"]

_LINE = re.compile(r"([0-9a-f]{64})  (.+)")
_FILE_MODE = 0o444
_DIR_MODE = 0o555


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One way in which a directory is not what its checksums say.

    Attributes:
        path: Relative path.
        kind: `missing`, `extra`, `changed`, `symlink`, `odd` (device, pipe, unusable name), or
            `mode`, which is advice only: git keeps no modes.
    """

    path: str
    kind: Kind

    @property
    def is_advice(self) -> bool:
        """Whether the content is intact."""
        return self.kind == "mode"


def compute(root: Path, *, junk: bool = False) -> str:
    """Return the text of `checksums.txt` for the files under `root`.

    Args:
        root: Directory of the bundle.
        junk: Whether caches and editor droppings count (they do in a frozen version).

    Raises:
        BundleError: `bundle.symlink` or `bundle.bad_name`.
    """
    tree = walk(root, junk=junk)
    if tree.symlinks:
        raise BundleError(
            "bundle.symlink",
            f"symbolic links are not allowed: {', '.join(tree.symlinks)}",
            where=label(root, tree.symlinks[0]),
            remedy="put copies of the files there",
        )
    if tree.odd:
        raise BundleError(
            "bundle.bad_name",
            f"not a plain file with a plain name: {', '.join(map(repr, tree.odd))}",
            where=label(root),
            remedy="rename it without backslash, line break or control characters, or remove it",
        )
    return "".join(
        f"{files.sha256_file(root / name)}  {name}\n" for name in tree.files if name != CHECKSUMS
    )


def write(root: Path) -> str:
    """Write `checksums.txt` and return the digest of the version: the SHA-256 of that file.

    Raises:
        BundleError: As `compute`.
        StorageError: The disk refused.
    """
    text = compute(root, junk=True)
    files.write_text(root / CHECKSUMS, text)
    return files.sha256_bytes(text.encode("utf-8"))


def digest(root: Path) -> str:
    """Return the digest of a frozen version: the SHA-256 of its `checksums.txt`."""
    return files.sha256_bytes(read(root).encode("utf-8"))


def tree_digest(root: Path) -> str:
    """Return the digest of a draft: the SHA-256 of the `checksums.txt` it would have."""
    return files.sha256_bytes(compute(root).encode("utf-8"))


def read(root: Path) -> str:
    """Return the text of a version's `checksums.txt`; what is wrong with it nobody mends by hand.

    Raises:
        BundleError: `bundle.not_found`, `bundle.missing_file` and the like.
    """
    try:
        if not root.is_dir():
            raise BundleError(
                "bundle.not_found", "the version has no directory any more", where=label(root)
            )
        return read_bundle_text(root, CHECKSUMS)
    except BundleError as error:
        error.remedy = "restore the version from git or from an export"
        raise


def parse(text: str, where: str) -> dict[str, str]:
    """Read the text of a `checksums.txt`: path -> SHA-256.

    Raises:
        BundleError: `bundle.bad_checksums` with `where:line`: malformed, out of order or twice.
    """
    listed: dict[str, str] = {}
    last = ""
    for number, line in enumerate(text.split("\n")[:-1] if text else [], start=1):
        match = _LINE.fullmatch(line)
        if match is None or match[2] <= last:
            raise BundleError(
                "bundle.bad_checksums",
                "not a line `sha256  path`, or not in ascending order of paths",
                where=f"{where}:{number}",
                remedy="restore the version from git or from an export",
            )
        last = match[2]
        listed[match[2]] = match[1]
    if text and not text.endswith("\n"):
        raise BundleError(
            "bundle.bad_checksums",
            "the last line has no line end",
            where=where,
            remedy="restore the version from git or from an export",
        )
    return listed


def verify(root: Path, text: str | None = None) -> list[Difference]:
    """Re-hash a frozen version and return everything that differs; modes as advice.

    Args:
        root: Directory of the version.
        text: Its `checksums.txt`, where that has been read already.

    Raises:
        BundleError: `bundle.not_found` when there is no directory; `bundle.missing_file` or
            `bundle.bad_checksums` when `checksums.txt` itself is unusable; `bundle.symlink` when
            the directory is a link.
    """
    listed = parse(read(root) if text is None else text, label(root, CHECKSUMS))
    tree = walk(root, junk=True)
    there = set(tree.files) - {CHECKSUMS}
    found = [Difference(path=path, kind="symlink") for path in tree.symlinks]
    found += [Difference(path=path, kind="odd") for path in tree.odd]
    named = {difference.path for difference in found}
    found += [Difference(path=path, kind="missing") for path in listed.keys() - there - named]
    found += [Difference(path=path, kind="extra") for path in there - listed.keys()]
    # No checksum line can name an empty directory, and git keeps none: somebody put it there.
    found += [Difference(path=f"{path}/", kind="extra") for path in tree.empty]
    found += [
        Difference(path=path, kind="changed")
        for path in sorted(listed.keys() & there)
        if files.sha256_file(f"{root}/{path}") != listed[path]
    ]
    found.sort(key=lambda difference: (difference.path, difference.kind))
    return found + _modes(tree)


def require(root: Path) -> None:
    """Verify a frozen version and refuse it when its content differs.

    Raises:
        BundleError: `bundle.tampered`, naming every file; `details["differences"]` lists them.
    """
    found = [difference for difference in verify(root) if not difference.is_advice]
    if found:
        shown = ", ".join(f"{difference.path} ({difference.kind})" for difference in found[:10])
        more = f" and {len(found) - 10} more" if len(found) > 10 else ""
        raise BundleError(
            "bundle.tampered",
            f"the frozen version differs from its checksums: {shown}{more}",
            where=label(root, found[0].path),
            remedy="restore the files (git checkout), or freeze the change as a new version",
            details={"differences": [vars(difference) for difference in found]},
        )


def _modes(tree: Tree) -> list[Difference]:
    files_of = set(tree.files)
    return [
        Difference(path=path or ".", kind="mode")
        for path, mode in sorted(tree.modes.items())
        if mode != (_FILE_MODE if path in files_of else _DIR_MODE)
    ]
