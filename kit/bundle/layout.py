"""Names and places: ids, versions, references, required files, and a safe walk of a bundle."""

from __future__ import annotations

import os
import re
import stat
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Literal

from kit.errors import BundleError, UsageError

__all__ = [
    "CHANGELOG",
    "CHECKSUMS",
    "CONFIG",
    "DRAFT",
    "DRAFT_FILES",
    "ENGINE",
    "FROZEN_FILES",
    "MANIFEST",
    "MAX_DEPTH",
    "MAX_ID_LENGTH",
    "NOTEBOOK",
    "REASON_TEMPLATE",
    "SKILL",
    "Ref",
    "Tree",
    "Version",
    "check_id",
    "inside",
    "is_plain",
    "label",
    "parse_ref",
    "staging_name",
    "staging_of",
    "twins",
    "version_of",
    "walk",
]

DRAFT = "draft"
SKILL = "SKILL.md"
MANIFEST = "manifest.json"
CONFIG = "config.json"
ENGINE = "code/signal_engine.py"
CHANGELOG = "CHANGELOG.md"
CHECKSUMS = "checksums.txt"
REASON_TEMPLATE = "reason_template.md"
NOTEBOOK = "notebook.ipynb"

DRAFT_FILES = (SKILL, MANIFEST, CONFIG, ENGINE)
"""Files a draft must hold."""
FROZEN_FILES = (*DRAFT_FILES, CHANGELOG, CHECKSUMS)
"""Files a frozen version must hold."""

_ID = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*", re.ASCII)
MAX_ID_LENGTH = 41
"""Characters of the longest strategy id."""
_MIN_ID_LENGTH = 3
_VERSION = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)", re.ASCII)
_STAGING = re.compile(r"\.(\d+\.\d+\.\d+)\.staging-(\d+)(?:-\d+)?", re.ASCII)
MAX_DEPTH = 16
"""Folders a file of a bundle may lie in, one below the other."""
_MAX_NAME_BYTES = 200  # of 255, so that the name of a temporary file beside it fits too

_JUNK_DIRS = {
    "__pycache__", ".ipynb_checkpoints", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".git",
}  # fmt: skip
_JUNK_FILES = {".DS_Store", "Thumbs.db"}
_JUNK_ENDS = (".pyc", ".pyo", ".tmp", ".swp", "~")

Level = Literal["patch", "minor", "major"]


@dataclass(frozen=True, order=True)
class Version:
    """A strict `MAJOR.MINOR.PATCH`: no leading zeros, no pre-release, no build part."""

    major: int
    minor: int
    patch: int

    @classmethod
    def parse(cls, text: str) -> Version:
        """Read a version.

        Raises:
            UsageError: `bundle.bad_version`.
        """
        match = _VERSION.fullmatch(text)
        if match is None:
            raise UsageError(
                "bundle.bad_version",
                f"{text!r} is not a version",
                remedy="write it as MAJOR.MINOR.PATCH, for example 0.3.1",
            )
        return cls(*(int(part) for part in match.groups()))

    @classmethod
    def read(cls, text: str) -> Version | None:
        """Read a version, or return None when the text is none (a directory name, say)."""
        match = _VERSION.fullmatch(text)
        return cls(*(int(part) for part in match.groups())) if match else None

    def bumped(self, level: Level) -> Version:
        """Return the next version at that level."""
        if level == "major":
            return Version(self.major + 1, 0, 0)
        if level == "minor":
            return Version(self.major, self.minor + 1, 0)
        return Version(self.major, self.minor, self.patch + 1)

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


@dataclass(frozen=True, kw_only=True)
class Ref:
    """A bundle as a person names it: `id`, `id@1.2.3` or `id@draft`.

    Attributes:
        id: Strategy id.
        version: A version, `draft`, or None for the active version.
    """

    id: str
    version: str | None = None

    @property
    def is_draft(self) -> bool:
        """Whether the draft is meant."""
        return self.version == DRAFT

    def __str__(self) -> str:
        return f"{self.id}@{self.version}" if self.version else self.id


def check_id(text: str) -> str:
    """Return `text` when it is a valid strategy id.

    Raises:
        UsageError: `bundle.bad_id`.
    """
    if _ID.fullmatch(text) and _MIN_ID_LENGTH <= len(text) <= MAX_ID_LENGTH:
        return text
    raise UsageError(
        "bundle.bad_id",
        f"{text!r} is not a strategy id",
        remedy="use 3 to 41 lower-case letters, digits and single hyphens, starting with a letter, "
        "for example ma250-pullback",
    )


def parse_ref(text: str) -> Ref:
    """Read `id`, `id@1.2.3` or `id@draft`.

    Raises:
        UsageError: `bundle.bad_id` or `bundle.bad_version`.
    """
    name, at, version = text.partition("@")
    check_id(name)
    if at and version != DRAFT:
        Version.parse(version)
    return Ref(id=name, version=version if at else None)


def staging_name(version: Version, process: int | str) -> str:
    """Name the sibling folder in which a process prepares `version`.

    Args:
        version: The version.
        process: Process id, or `<pid>-<start time>`.
    """
    return f".{version}.staging-{process}"


def staging_of(name: str) -> tuple[Version, int] | None:
    """Read a staging folder's name back: version and process id, or None."""
    match = _STAGING.fullmatch(name)
    version = Version.read(match[1]) if match else None
    return (version, int(match[2])) if match and version else None


def version_of(root: Path) -> Version | None:
    """Return the version a bundle directory (or its staging copy) is named after; None: a draft."""
    staged = staging_of(root.name)
    return staged[0] if staged else Version.read(root.name)


def label(root: Path, relative: str = "") -> str:
    """Name a place in a bundle for a message: `ma250-pullback/draft/manifest.json`."""
    return PurePosixPath(root.parent.name, root.name, relative).as_posix()


def inside(root: Path, relative: str) -> Path:
    """Return the path of a bundle file that a bundle names, refusing any way out of the bundle.

    Raises:
        BundleError: `bundle.path_escape` for absolute paths, `..`, backslashes and symlinks.
    """
    parts = PurePosixPath(relative).parts
    wrong = (
        not parts
        or relative.startswith(("/", "~"))
        or ".." in parts
        or any(char in relative for char in "\\\0\n")
        or re.match(r"[A-Za-z]:", relative) is not None
    )
    path = root.joinpath(*parts) if not wrong else root
    walked = root
    for part in () if wrong else parts:
        walked = walked / part
        wrong = wrong or walked.is_symlink()
    if wrong:
        raise BundleError(
            "bundle.path_escape",
            f"{relative!r} is not a plain path inside the bundle",
            where=label(root),
            remedy="name files by their relative path, with forward slashes, "
            "and put copies in place of links",
        )
    return path


@dataclass(frozen=True, kw_only=True)
class Tree:
    """What stands under a bundle's root, by relative POSIX path, sorted.

    Attributes:
        files: Plain files.
        symlinks: Symbolic links, of files or directories; they are never followed.
        odd: Devices, sockets, pipes, names no checksum line can carry, and folders nested too deep.
        empty: Directories that hold nothing; git does not keep them.
        modes: Permission bits of the plain files and of the directories, the root's under `""`.
    """

    files: tuple[str, ...]
    symlinks: tuple[str, ...] = ()
    odd: tuple[str, ...] = ()
    empty: tuple[str, ...] = ()
    modes: Mapping[str, int] = field(default_factory=dict)


def walk(root: Path, *, junk: bool = False) -> Tree:
    """List a bundle without following links.

    Args:
        root: Directory of the bundle.
        junk: Whether to list caches and editor droppings too (a frozen version must have none).

    Raises:
        BundleError: `bundle.not_found` when `root` is no directory, `bundle.symlink` when it is a
            symbolic link.
    """
    if root.is_symlink():
        raise BundleError(
            "bundle.symlink",
            "the bundle's directory is a symbolic link",
            where=label(root),
            remedy="put the directory itself there",
        )
    if not root.is_dir():
        raise BundleError(
            "bundle.not_found",
            "there is no such bundle directory",
            where=label(root),
            remedy="see what there is: kit list",
        )
    found: dict[str, list[str]] = {"files": [], "symlinks": [], "odd": [], "empty": []}
    modes = {"": stat.S_IMODE(root.stat().st_mode)}
    _collect(str(root), "", junk, found, modes)
    return Tree(**{kind: tuple(sorted(names)) for kind, names in found.items()}, modes=modes)


def _collect(
    folder: str, prefix: str, junk: bool, found: dict[str, list[str]], modes: dict[str, int]
) -> None:
    with os.scandir(folder) as entries:
        entry = None
        for entry in entries:
            relative = f"{prefix}{entry.name}"
            if not is_plain(entry.name):
                found["odd"].append(relative)
            elif entry.is_symlink():
                found["symlinks"].append(relative)
            elif entry.is_dir(follow_symlinks=False):
                if prefix.count("/") >= MAX_DEPTH:
                    found["odd"].append(relative)
                elif junk or entry.name not in _JUNK_DIRS:
                    modes[relative] = stat.S_IMODE(entry.stat().st_mode)
                    _collect(entry.path, f"{relative}/", junk, found, modes)
            elif not stat.S_ISREG(mode := entry.stat(follow_symlinks=False).st_mode):
                found["odd"].append(relative)
            elif junk or not _is_junk(entry.name):
                found["files"].append(relative)
                modes[relative] = stat.S_IMODE(mode)
    if entry is None and prefix:
        found["empty"].append(prefix.rstrip("/"))


def twins(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Find paths that some file system takes for one: they differ by case or by composition.

    Yields:
        The later path, of a file or a directory, and the earlier one it would meet.
    """
    seen: dict[str, str] = {}
    for name in names:
        for path in (*reversed([str(p) for p in PurePosixPath(name).parents][:-1]), name):
            other = seen.setdefault(unicodedata.normalize("NFC", path).casefold(), path)
            if other != path:
                yield path, other
                break


def _is_junk(name: str) -> bool:
    return name in _JUNK_FILES or name.endswith(_JUNK_ENDS)


def is_plain(name: str) -> bool:
    """Whether `sha256sum -c` reads the name of a file or folder back unchanged, on any machine."""
    if not name.isprintable() or "\\" in name:
        return False
    return len(name.encode("utf-8")) <= _MAX_NAME_BYTES
