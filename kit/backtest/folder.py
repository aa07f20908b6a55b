"""Folders of results: complete or absent, numbered, and never mistaken for another's."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from kit import files
from kit.errors import DataError, StorageError
from kit.state.process import is_alive, this_process

__all__ = ["check_label", "publish"]

_LABEL = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*", re.ASCII)
_STAGING = re.compile(r"\.evidence-(\d+)-", re.ASCII)


def check_label(label: str) -> None:
    """Refuse what cannot name a folder of evidence.

    Raises:
        DataError: `backtest.bad_label`.
    """
    if not _LABEL.fullmatch(label):
        raise DataError(
            "backtest.bad_label",
            f"{label!r} is not a label",
            remedy="use lower-case words joined by hyphens, such as with-event-overlay",
        )


def publish(
    parent: Path, day: str, label: str | None, fill: Callable[[Path], None], *, place: Path
) -> Path:
    """Fill `<parent>/<day>-<label>/`, complete or not at all, and return it.

    Args:
        parent: Folder that holds one folder a result.
        day: ISO date.
        label: Lower-case words with hyphens; `iter-N` when None.
        fill: Writes everything into the folder it is given.
        place: Where the folder is made before it is moved: on the same disk, and outside whatever
            others may copy meanwhile.

    Raises:
        DataError: `backtest.bad_label`, or `backtest.label_taken` for the same day.
        StorageError: The disk refused; nothing is left behind.
    """
    if label is not None:
        check_label(label)
        if (parent / f"{day}-{label}").exists():
            raise _taken(parent / f"{day}-{label}")
    _sweep(place)
    staging = place / f".evidence-{os.getpid()}-{day}-{label}"
    try:
        files.make_dir(staging)
        fill(staging)
        files.make_dir(parent)
        return _move(staging, parent, day, label)
    except BaseException:
        files.remove_tree(staging)
        raise


def _move(staging: Path, parent: Path, day: str, label: str | None) -> Path:
    """Move a finished folder into place; of two at once each gets a number of its own."""
    while True:
        final = parent / f"{day}-{label or _next_label(parent)}"
        try:
            files.publish_dir(staging, final)
        except StorageError as error:
            if error.code != "file.exists":
                raise
            if label is not None:
                raise _taken(final) from error
        else:
            return final


def _taken(final: Path) -> DataError:
    return DataError(
        "backtest.label_taken",
        f"there is evidence called {final.name} already",
        where=str(final),
        remedy="choose another --label, or leave it out",
    )


def _sweep(place: Path) -> None:
    """Remove what killed processes left."""
    for path in sorted(place.glob(".evidence-*")):
        match = _STAGING.match(path.name)
        if match and is_alive(replace(this_process(), pid=int(match[1]), started="")) is False:
            files.remove_tree(path)


def _next_label(parent: Path) -> str:
    numbers = [
        int(match.group(1))
        for path in parent.glob("*")
        if (match := re.search(r"-iter-(\d+)$", path.name))
    ]
    return f"iter-{max(numbers, default=0) + 1}"
