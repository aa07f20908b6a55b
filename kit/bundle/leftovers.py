"""Scratch folders made beside their place, and what dead processes left of them.

A scratch name carries the process that made it: its id and, where the system tells, its start
time. The id alone proves nothing: it is reused, and in a container it is the same every time.
"""

from __future__ import annotations

import re
import socket
from pathlib import Path

from kit import files
from kit.state.process import Holder, is_alive, this_process

__all__ = ["claim", "clean_stale", "discard", "in_progress", "process_suffix"]

_LEFTOVERS = (
    re.compile(r"\.\d+\.\d+\.\d+\.staging-(\d+)(?:-(\d+))?", re.ASCII),
    re.compile(r"\.draft\.new-(\d+)(?:-(\d+))?", re.ASCII),
    re.compile(r"\.kit-skill\.new-(\d+)(?:-(\d+))?", re.ASCII),
    re.compile(r"\.(?:INDEX\.json|activations\.jsonl)\.(\d+)()\.tmp", re.ASCII),
)

# Scratch folders this process works in now; one of its own that is not here was left behind.
_claimed: set[Path] = set()


def process_suffix() -> str:
    """Return `<pid>-<start time>` of this process; only `<pid>` where there is no `/proc`."""
    me = this_process()
    return f"{me.pid}-{me.started}" if me.started else str(me.pid)


def in_progress(folder: Path) -> bool:
    """Return whether this very process works in a scratch folder now."""
    return folder.resolve() in _claimed


def claim(folder: Path) -> None:
    """Take a scratch folder for this process, removing what a failed attempt left there.

    Raises:
        StorageError: The disk refused.
    """
    files.remove_tree(folder)
    _claimed.add(folder.resolve())


def discard(folder: Path) -> None:
    """Remove a scratch folder that `claim` took, if it still stands."""
    try:
        files.remove_tree(folder)
    finally:
        _claimed.discard(folder.resolve())


def clean_stale(folder: Path) -> list[str]:
    """Remove what dead processes left in a strategy's (or the workspace's) directory.

    Returns:
        The names of the staging folders and temporary files that are gone now.
    """
    removed = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        left = next((m for m in (p.fullmatch(path.name) for p in _LEFTOVERS) if m), None)
        if left is None or not _is_stale(path, int(left[1]), left[2] or ""):
            continue
        if path.is_dir():
            files.remove_tree(path)
        else:
            path.unlink(missing_ok=True)
        removed.append(path.name)
    return removed


def _is_stale(path: Path, pid: int, started: str) -> bool:
    me = this_process()
    if pid == me.pid and started in {"", me.started}:
        # Its own temporary files are gone after every write, so a folder is all that can be left.
        return path.is_dir() and not in_progress(path)
    # `None` (it cannot be known) never comes back for the host's own name.
    maker = Holder(pid=pid, started=started, boot="", host=socket.gethostname())
    return is_alive(maker) is False
