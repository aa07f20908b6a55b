"""`kit skills sync`: copies of active versions where agents load skills from, and nothing else.

Every copy carries a marker with the digest of what was written. A folder without one was made by
somebody else, one whose digest differs was changed since: neither is ever touched.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from kit import files
from kit.bundle.layout import walk
from kit.bundle.leftovers import claim, clean_stale, discard, process_suffix
from kit.bundle.model import resolve
from kit.bundle.registry import read_index
from kit.bundle.skill_copy import Contents, bundle_copy, plain_copy
from kit.errors import BundleError, DataError, GuardError, KitError, UsageError
from kit.workspace import Workspace

__all__ = ["META_SKILL", "TARGETS", "Copy", "Synced", "sync_skills", "target_folder"]

TARGETS = ("claude", "opencode", "agents", "vibe-trading")
META_SKILL = "strategy-skill-author"
"""Folder under `prompts/` of the skill that teaches an agent to write a bundle."""

_FOLDERS = {
    "claude": ".claude/skills",
    "opencode": ".opencode/skills",
    "agents": ".agents/skills",
}
_MARKER = ".kit-skill.json"

State = Literal["added", "updated", "unchanged", "removed", "kept", "refused"]


@dataclass(frozen=True, kw_only=True)
class Copy:
    """One skill of a target.

    Attributes:
        name: Name of its folder.
        ref: `id@version`, or the name of the meta-skill.
        state: What was done, or would be; `refused` for a version that is not what was frozen,
            `kept` for a copy that is no longer wanted and that somebody changed.
        detail: Why it was refused or kept.
    """

    name: str
    ref: str
    state: State
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class Synced:
    """What became of one target.

    Attributes:
        target: As it was named.
        folder: Where the copies stand.
        copies: One row a skill.
    """

    target: str
    folder: Path
    copies: tuple[Copy, ...]

    @property
    def ok(self) -> bool:
        """Whether no version was refused."""
        return all(copy.state != "refused" for copy in self.copies)

    def to_dict(self) -> dict[str, Any]:
        """Return the shape `--json` prints."""
        return {
            "target": self.target,
            "folder": str(self.folder),
            "ok": self.ok,
            "skills": [dict(vars(copy)) for copy in self.copies],
        }


def target_folder(workspace: Workspace, target: str) -> Path:
    """Return the folder of a target: one of `TARGETS`, or a directory.

    Raises:
        UsageError: `skills.unknown_target` for a bare word that is neither.
    """
    if target in _FOLDERS:
        return workspace.root / _FOLDERS[target]
    if target == "vibe-trading":
        return Path.home() / ".vibe-trading" / "skills" / "user"
    folder = Path(target).expanduser()
    if not target or ("/" not in target and not folder.is_dir()):
        raise UsageError(
            "skills.unknown_target",
            f"{target!r} is no target",
            remedy=f"name one of {', '.join(TARGETS)}, or a directory, such as ./skills",
        )
    return folder.absolute()


def sync_skills(workspace: Workspace, target: str, *, dry_run: bool = False) -> Synced:
    """Bring the copies of a target up to date; everything in the way is found before a change.

    Args:
        workspace: Whose active versions, and whose meta-skill.
        target: One of `TARGETS`, or a directory.
        dry_run: Whether to change nothing.

    Raises:
        UsageError: `skills.unknown_target`.
        GuardError: `skills.in_the_way`, naming every folder that was not made, or was changed, by
            hand; nothing was changed.
        RegistryError: INDEX.json cannot be read.
        StorageError: The disk refused; finished copies stand.
    """
    folder = target_folder(workspace, target)
    owner = _owner(workspace, folder)
    wanted, refused = _wanted(workspace, openai=target == "agents")
    ours = dict(_standing(folder, owner))
    there = {name: digest for name, digest in ours.items() if digest}
    _require_room(folder, [name for name in wanted if name not in there])
    done = [*refused]
    if not dry_run:
        clean_stale(folder)
    for name, (ref, contents) in wanted.items():
        digest = _digest({path: files.sha256_bytes(data) for path, data in contents.items()})
        state: State = "updated" if name in there else "added"
        if there.get(name) == digest:
            state = "unchanged"
        elif not dry_run:
            marker = {"kit_skill": "1.0", "ref": ref, "owner": owner, "digest": digest}
            _write(folder, name, contents, marker)
        done.append(Copy(name=name, ref=ref, state=state))
    for name in sorted(ours.keys() - wanted.keys() - {copy.name for copy in refused}):
        if name not in there:
            done.append(Copy(name=name, ref=name, state="kept", detail=_reason(folder / name)))
            continue
        done.append(Copy(name=name, ref=name, state="removed"))
        if not dry_run:
            files.remove_tree(folder / name)
    return Synced(
        target=target, folder=folder, copies=tuple(sorted(done, key=lambda copy: copy.name))
    )


def _wanted(
    workspace: Workspace, *, openai: bool
) -> tuple[dict[str, tuple[str, Contents]], list[Copy]]:
    """Return name -> (ref, contents) of what should stand there, and what must not."""
    wanted: dict[str, tuple[str, Contents]] = {}
    refused = []
    for id_, strategy in sorted(read_index(workspace).strategies.items()):
        if strategy.latest_active_version is None:
            continue
        ref = f"{id_}@{strategy.latest_active_version}"
        try:
            wanted[id_] = (ref, bundle_copy(resolve(workspace, ref), openai=openai))
        except KitError as error:
            refused.append(Copy(name=id_, ref=ref, state="refused", detail=str(error)))
    author = workspace.prompts / META_SKILL
    if (author / "SKILL.md").is_file():
        wanted.setdefault(META_SKILL, (META_SKILL, plain_copy(author)))
    return wanted, refused


def _owner(workspace: Workspace, folder: Path) -> str:
    """Name the workspace a copy belongs to, without naming a place of this machine."""
    root = workspace.root.resolve()
    if folder.resolve().is_relative_to(root):
        return os.path.relpath(root, folder.resolve())
    return files.sha256_bytes(str(root).encode("utf-8", "surrogateescape"))[:16]


def _standing(folder: Path, owner: str) -> Iterator[tuple[str, str]]:
    """Yield (name, digest) of the copies that this workspace made; empty when one was changed."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        marker = _marker(path)
        if marker is not None and marker["owner"] == owner:
            yield path.name, marker["digest"] if marker["digest"] == _found(path) else ""


def _marker(path: Path) -> Mapping[str, str] | None:
    if path.is_symlink() or not (path / _MARKER).is_file():
        return None
    try:
        value = files.read_json(path / _MARKER)
    except DataError:
        return None
    keys = {"kit_skill", "ref", "owner", "digest"}
    return value if isinstance(value, dict) and keys <= value.keys() else None


def _found(path: Path) -> str:
    """Return the digest of what stands in a copy, anything but plain files counting as a change."""
    try:
        tree = walk(path, junk=True)
    except BundleError:
        return ""
    if tree.symlinks or tree.odd or tree.empty:
        return ""
    names = [name for name in tree.files if name != _MARKER]
    return _digest({name: files.sha256_file(path / name) for name in names})


def _digest(listing: Mapping[str, str]) -> str:
    return files.sha256_bytes(files.canonical_json(listing))


def _require_room(folder: Path, names: Sequence[str]) -> None:
    taken = [name for name in names if os.path.lexists(folder / name)]
    if not taken:
        return
    raise GuardError(
        "skills.in_the_way",
        "; ".join(f"{folder / name} {_reason(folder / name)}" for name in taken),
        where=str(folder),
        remedy="move it away, or delete it when nothing in it is yours, and sync again",
        details={"folders": [str(folder / name) for name in taken]},
    )


def _reason(path: Path) -> str:
    marker = _marker(path)
    if marker is None:
        return "was not made by kit skills sync"
    if marker["digest"] != _found(path):
        return "was changed since it was copied"
    return "is a copy that another workspace made"


def _write(folder: Path, name: str, contents: Contents, marker: Mapping[str, str]) -> None:
    """Write a copy aside and rename it into place, so that no half copy is ever loaded."""
    files.make_dir(folder)
    aside = folder / f".kit-skill.new-{process_suffix()}"
    try:
        claim(aside)
        for path, data in contents.items():
            files.make_dir((aside / path).parent)
            files.write_bytes(aside / path, data)
        files.write_json(aside / _MARKER, dict(marker))
        files.remove_tree(folder / name)
        files.publish_dir(aside, folder / name)
    finally:
        discard(aside)
