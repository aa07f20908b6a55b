"""The workspace: the directory that holds one researcher's or one desk's whole state.

`INDEX.json`, `strategies/`, `notebooks/`, `prompts/` and `config/` are kept in git; `runs/` is
made on demand. This module finds it, makes a new one, reads its configuration, and is the only
seam to the process environment.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kit import files, schemas
from kit.errors import ConfigError, DataError

__all__ = [
    "Workspace",
    "copy_workspace",
    "environ",
    "git_commit",
    "init_workspace",
    "template_root",
]

_PACKAGE = Path(__file__).parent
_TEMPLATE_PARTS = ("config", "notebooks", "prompts")
_LEFT_BEHIND = {".ipynb_checkpoints", "__pycache__"}
_DRAFT_DEPTH = 2  # strategies/<id>/draft
_GITIGNORE = "/runs/\n/strategies/*/.*\n.ipynb_checkpoints/\n__pycache__/\n"


def environ(name: str, default: str | None = None) -> str | None:
    """Read one environment variable; an empty value counts as unset."""
    return os.environ.get(name) or default


def git_commit(root: Path) -> str | None:
    """Return the commit checked out around `root`, None outside git; starts no process."""
    try:
        git = next(at / ".git" for at in (root, *root.parents) if (at / ".git").exists())
        if git.is_file():  # a worktree or submodule points elsewhere
            git = git.parent / git.read_text(encoding="utf-8").removeprefix("gitdir:").strip()
        common = git / "commondir"
        shared = git / common.read_text(encoding="utf-8").strip() if common.is_file() else git
        head = (git / "HEAD").read_text(encoding="utf-8").strip()
        name = head.removeprefix("ref:").strip()
        if name == head:
            found = head
        elif loose := next((b / name for b in (git, shared) if (b / name).is_file()), None):
            found = loose.read_text(encoding="utf-8").strip()
        else:
            packed = (shared / "packed-refs").read_text(encoding="utf-8").splitlines()
            found = next(line.partition(" ")[0] for line in packed if line.endswith(f" {name}"))
    except (OSError, UnicodeDecodeError, StopIteration):
        return None
    return found if re.fullmatch(r"[0-9a-f]{40,64}", found) else None


# Contents that have passed their schema: a run asks a dozen times for the same few files, and the
# check of one takes longer than all the reading.
_PASSED: set[tuple[str, str]] = set()


@dataclass(frozen=True)
class Workspace:
    """A workspace by its root directory.

    Attributes:
        root: Absolute path of the directory holding `INDEX.json` and `strategies/`.
    """

    root: Path

    @classmethod
    def at(cls, path: Path | str) -> Workspace:
        """Return the workspace whose root is `path`.

        Raises:
            ConfigError: `workspace.not_found`.
        """
        root = Path(path).expanduser().resolve()
        if not _is_workspace(root):
            raise _not_found(f"{root} is not a workspace")
        return cls(root)

    @classmethod
    def find(cls, start: Path | None = None) -> Workspace:
        """Find the workspace: `KIT_WORKSPACE`, else the nearest one at or above `start`.

        Raises:
            ConfigError: `workspace.not_found`.
        """
        named = environ("KIT_WORKSPACE")
        if named:
            return cls.at(named)
        here = (start or Path.cwd()).resolve()
        for candidate in (here, *here.parents):
            if _is_workspace(candidate):
                return cls(candidate)
        raise _not_found(f"no workspace in {here} or above it")

    @property
    def index_path(self) -> Path:
        """`INDEX.json`, the registry."""
        return self.root / "INDEX.json"

    @property
    def strategies(self) -> Path:
        """Folder of bundles: `strategies/<id>/<version>/`."""
        return self.root / "strategies"

    @property
    def notebooks(self) -> Path:
        """Folder of notebooks."""
        return self.root / "notebooks"

    @property
    def prompts(self) -> Path:
        """Folder of workspace prompts."""
        return self.root / "prompts"

    @property
    def config_dir(self) -> Path:
        """Folder of everything a person may tune."""
        return self.root / "config"

    @property
    def runs(self) -> Path:
        """Folder of runs, state and market store; created on demand."""
        return self.root / "runs"

    @property
    def market_dir(self) -> Path:
        """Folder of the bars store."""
        return self.runs / "market"

    @property
    def state_path(self) -> Path:
        """The state store's SQLite file."""
        return self.runs / "state.sqlite3"

    def config(self, name: str) -> dict[str, Any]:
        """Read `config/<name>.json`, checked against schema `config-<name>` where there is one.

        Raises:
            ConfigError: `config.missing` or `config.invalid`, with the dotted path.
        """
        path = self.config_dir / f"{name}.json"
        where = self.relative(path)
        try:
            value = files.read_json(path)
        except DataError as error:
            missing = error.code == "file.missing"
            raise ConfigError(
                "config.missing" if missing else "config.invalid",
                error.message,
                where=where if missing else error.where.replace(str(path), where),
                remedy=f"`kit init` writes a default config/{name}.json into a new workspace; "
                "copy it from there"
                if missing
                else error.remedy,
            ) from error
        seen = (name, files.sha256_bytes(files.canonical_json(value)))
        if seen not in _PASSED and f"config-{name}" in schemas.names():
            schemas.check(
                f"config-{name}", value, error=ConfigError, code="config.invalid", where=where
            )
            _PASSED.add(seen)
        if not isinstance(value, dict):
            raise ConfigError("config.invalid", "must be a JSON object", where=where)
        return value

    def relative(self, path: Path) -> str:
        """Write a path relative to the root, with forward slashes, for messages and records."""
        try:
            return path.relative_to(self.root).as_posix()
        except ValueError:
            return path.as_posix()


def template_root() -> Path:
    """Return the folder that holds the default config, notebooks and prompts.

    In a wheel they travel inside the package; in a checkout they are the repository's own.
    """
    packaged = _PACKAGE / "_workspace"
    return packaged if packaged.is_dir() else _PACKAGE.parent


def init_workspace(directory: Path, *, examples: bool = False) -> Workspace:
    """Make a working workspace in a new or empty directory.

    Args:
        directory: Where.
        examples: Whether the shipped strategies come along.

    Raises:
        ConfigError: `workspace.exists` or `workspace.not_empty`; nothing is then changed.
        StorageError: The disk refused.
    """
    root = directory.expanduser().resolve()
    if _is_workspace(root):
        raise ConfigError(
            "workspace.exists",
            "this is a workspace already",
            where=str(root),
            remedy=f"use it: cd {root}",
        )
    aside = f".{root.name}.init-"
    existed = root.is_dir()
    if root.exists() and (
        not existed or any(not path.name.startswith(aside) for path in root.iterdir())
    ):
        raise ConfigError(
            "workspace.not_empty",
            "the directory is not empty",
            where=str(root),
            remedy="name a new or an empty directory",
        )
    # Made aside and renamed: killed half-way, the same command can simply be given again. An empty
    # directory is filled, not replaced: a shell may stand in it, or a disk be mounted there.
    place = root if existed else root.parent
    staging = place / f"{aside}{os.getpid()}"
    for left in place.iterdir() if place.is_dir() else ():
        if left.name.startswith(aside):
            files.remove_tree(left)
    try:
        _fill(staging, template_root(), examples=examples)
        if existed:
            # strategies/ last: only a complete workspace is ever recognised as one.
            for part in sorted(staging.iterdir(), key=lambda path: path.name == "strategies"):
                files.publish_dir(part, root / part.name)
            files.remove_tree(staging)
        else:
            files.publish_dir(staging, root)
    except BaseException:
        files.remove_tree(staging)
        raise
    return Workspace(root)


def _fill(root: Path, template: Path, *, examples: bool) -> None:
    files.make_dir(root)
    for part in _TEMPLATE_PARTS:
        for source in sorted((template / part).rglob("*")):
            inside = source.relative_to(template)
            if source.is_dir() or not _LEFT_BEHIND.isdisjoint(inside.parts):
                continue
            files.make_dir((root / inside).parent)
            files.copy_file(source, root / inside)
    files.write_text(root / ".gitignore", _GITIGNORE)
    files.write_text(root / ".gitattributes", "strategies/** -text\n")
    if examples:
        files.copy_file(template / "INDEX.json", root / "INDEX.json")
        files.copy_tree(template / "strategies", root / "strategies", skip=_is_draft)
        return
    files.write_json(
        root / "INDEX.json", {"schema_version": "1.0", "updated_at": None, "strategies": {}}
    )
    files.make_dir(root / "strategies")
    files.write_text(root / "strategies" / ".gitkeep", "")


def copy_workspace(source: Workspace, directory: Path) -> Workspace:
    """Copy a workspace without its runs and drafts: what a scratch session works in.

    Raises:
        ConfigError: `workspace.not_empty`.
        StorageError: The disk refused.
    """
    root = directory.expanduser().resolve()
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise ConfigError(
            "workspace.not_empty",
            "the directory is not empty",
            where=str(root),
            remedy="name a new or an empty directory",
        )
    files.make_dir(root)
    for part in (*_TEMPLATE_PARTS, "strategies"):
        if (source.root / part).is_dir():
            files.copy_tree(
                source.root / part,
                root / part,
                skip=_is_draft if part == "strategies" else _is_litter,
            )
    for name in (".gitignore", ".gitattributes", "INDEX.json"):
        # INDEX.json may be missing too: `kit registry rebuild` makes it anew.
        if (source.root / name).is_file():
            files.copy_file(source.root / name, root / name)
    return Workspace(root)


def _is_litter(path: Path) -> bool:
    return path.name in _LEFT_BEHIND


def _is_draft(path: Path) -> bool:
    """Say of a path below `strategies/` that a copy does without it.

    Inside a version nothing is left out: the copy is what was frozen, or what it was made into.
    """
    return len(path.parts) == _DRAFT_DEPTH and (
        path.name == "draft" or path.name.startswith(".") or _is_litter(path)
    )


def _is_workspace(path: Path) -> bool:
    # Without its INDEX.json it is still one: `kit registry rebuild` makes the file anew.
    marks = ("INDEX.json", "config/markets.json")
    return (path / "strategies").is_dir() and any((path / mark).is_file() for mark in marks)


def _not_found(message: str) -> ConfigError:
    return ConfigError(
        "workspace.not_found",
        message,
        remedy="cd into a workspace, set KIT_WORKSPACE, or make one: kit init DIR",
    )
