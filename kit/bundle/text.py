"""Read a bundle's own text files strictly: UTF-8, LF, no BOM, no NUL, of bounded size.

A frozen version must have the same bytes on every machine and in every editor, so what editors
and shells disagree about is refused by name, with the line where it stands.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kit import files
from kit.bundle.layout import inside, label
from kit.errors import BundleError, DataError

__all__ = ["MAX_TEXT_BYTES", "read_bundle_json", "read_bundle_text"]

MAX_TEXT_BYTES = 1 << 20
"""Size above which a text file of a bundle is refused (bytes)."""

_BOM = b"\xef\xbb\xbf"


def read_bundle_text(root: Path, relative: str) -> str:
    """Read one text file of a bundle.

    Raises:
        BundleError: `bundle.missing_file`, `bundle.too_large`, `bundle.text` (BOM, CRLF, NUL, not
            UTF-8) or `bundle.path_escape`; `where` carries the line where there is one.
    """
    path = inside(root, relative)
    where = label(root, relative)
    if not path.is_file():
        raise BundleError(
            "bundle.missing_file",
            f"{relative} is missing",
            where=where,
            remedy=f"write {relative}, or mend the place that names it",
        )
    size = path.stat().st_size
    if size > MAX_TEXT_BYTES:
        raise BundleError(
            "bundle.too_large",
            f"{relative} has {size:,} bytes; at most {MAX_TEXT_BYTES:,} are read",
            where=where,
            remedy="shorten it; long material belongs into references/",
        )
    return decode(path.read_bytes(), where)


def read_bundle_json(root: Path, relative: str) -> Any:
    """Read one JSON file of a bundle, strictly.

    Raises:
        BundleError: As `read_bundle_text`; `bundle.bad_json` with `where:line`.
    """
    text = read_bundle_text(root, relative)
    try:
        return files.parse_json(text, where=label(root, relative))
    except DataError as error:
        raise BundleError(
            "bundle.bad_json", error.message, where=error.where, remedy=error.remedy
        ) from error


def decode(data: bytes, where: str) -> str:
    """Decode the bytes of a text file, refusing what would not travel.

    Raises:
        BundleError: `bundle.text`.
    """
    if data.startswith(_BOM):
        raise _bad(where, 1, "starts with a byte-order mark (BOM)", "save it as UTF-8 without BOM")
    for mark, name, mend in (
        (b"\0", "holds a NUL byte", "remove it; the file may not be text at all"),
        (b"\r", "has CRLF or CR line ends", "save it with LF line ends"),
    ):
        at = data.find(mark)
        if at >= 0:
            raise _bad(where, data.count(b"\n", 0, at) + 1, name, mend)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise _bad(where, line, "is not UTF-8", "save it as UTF-8") from error


def _bad(where: str, line: int, problem: str, mend: str) -> BundleError:
    return BundleError("bundle.text", f"the file {problem}", where=f"{where}:{line}", remedy=mend)
