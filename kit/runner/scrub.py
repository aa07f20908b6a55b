"""Take secrets out of the files a notebook left, before anyone else reads them.

A kernel is given no secret it does not need, but code in it may look for them where they are, in
the environment of the process that started it. What it then prints is masked on the way; what it
writes is masked here.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from kit import files
from kit.errors import StorageError
from kit.redact import Redactor

__all__ = ["scrub"]

# A larger file is not rewritten; when it holds a secret it goes.
_MAX_TEXT = 16 * 2**20
_CHUNK = 2**20
# Longer than any secret: what is carried over, so that none is missed between two chunks.
_OVERLAP = 2**16


def scrub(folder: Path, redactor: Redactor, warn: Callable[[str], None]) -> None:
    """Mask secrets in every text file below a folder; remove other files that hold one.

    Compressed or otherwise encoded secrets are not found.

    Args:
        folder: The run folder, when nothing writes to it any more.
        redactor: Knows the secrets.
        warn: Told of every file that was changed, removed, or could not be looked at.
    """
    for path in _files_below(folder):
        name = path.relative_to(folder).as_posix()
        try:
            done = _scrub_file(path, redactor)
        except (OSError, StorageError) as error:
            warn(f"{name} could not be searched for secrets: {error}")
        else:
            if done:
                warn(f"{name} held a secret and was {done}")


def _files_below(folder: Path) -> Iterator[Path]:
    for parent, _, names in os.walk(folder):
        for name in sorted(names):
            yield Path(parent) / name


def _scrub_file(path: Path, redactor: Redactor) -> str:
    """Return what was done to the file, empty when nothing had to be."""
    # A link leads elsewhere, a pipe would wait for ever.
    if not stat.S_ISREG(path.lstat().st_mode):
        return ""
    text = _text_of(path)
    if text is not None:
        masked = redactor.text(text)
        if masked != text:
            files.write_bytes(path, masked.encode("utf-8"))
            return "masked"
    elif _holds_secret(path, redactor):
        path.unlink()
        return "removed"
    return ""


def _text_of(path: Path) -> str | None:
    """Return the content of a text file of bounded size, None for any other."""
    if path.stat().st_size > _MAX_TEXT:
        return None
    data = path.read_bytes()
    if b"\0" in data:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _holds_secret(path: Path, redactor: Redactor) -> bool:
    before = b""
    with path.open("rb") as handle:
        while chunk := handle.read(_CHUNK):
            if redactor.found_in(before + chunk):
                return True
            before = (before + chunk)[-_OVERLAP:]
    return False
