"""Files, written so that a crash at any line leaves the old state or the new one, never half.

Every write of the package goes through this module, and each of its operations passes one seam
(`operation`). Tests set `KIT_CRASH_AT=N` to kill the process, or `KIT_NO_SPACE_AT=N` to raise
"no space left", at the N-th operation.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kit.errors import DataError, KitError, StorageError

__all__ = [
    "append_json_line",
    "canonical_json",
    "copy_file",
    "copy_tree",
    "count_operations",
    "dump_json",
    "explained",
    "lock",
    "make_dir",
    "operation",
    "parse_json",
    "publish_dir",
    "read_json",
    "read_json_lines",
    "read_text",
    "remove_tree",
    "set_readonly",
    "set_writable",
    "sha256_bytes",
    "sha256_file",
    "write_bytes",
    "write_json",
    "write_text",
]

_NO_SPACE = {errno.ENOSPC, errno.EDQUOT}
_NOT_WRITABLE = {errno.EACCES, errno.EPERM, errno.EROFS}
_IN_THE_WAY = {errno.ENOTDIR, errno.EEXIST}
_TEMPORARY = re.compile(r"\..+\.\d+\.tmp")
_CHUNK = 1 << 16
_CRASH_EXIT = 137  # what a shell reports for kill -9

_operations = 0


def operation(path: Path) -> None:
    """Pass the fault-injection seam; called before every file and store operation."""
    global _operations  # noqa: PLW0603 - one counter per process is what the crash loop needs
    _operations += 1
    crash_at = os.environ.get("KIT_CRASH_AT")
    if crash_at is not None and _operations == int(crash_at):
        os._exit(_CRASH_EXIT)
    no_space_at = os.environ.get("KIT_NO_SPACE_AT")
    if no_space_at is not None and _operations == int(no_space_at):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


def count_operations() -> int:
    """Return how many operations this process has passed so far."""
    return _operations


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn an `OSError` into a `StorageError` that says what to do.

    Raises:
        StorageError: `file.no_space`, `file.not_writable` or `file.io`.
    """
    try:
        yield
    except OSError as error:
        where = str(path)
        if error.errno in _NO_SPACE:
            raise StorageError(
                "file.no_space",
                "the disk is full",
                where=where,
                remedy="free some space (old runs stand under runs/) and run the command again; "
                "nothing was half-written",
            ) from error
        if error.errno in _NOT_WRITABLE:
            raise StorageError(
                "file.not_writable",
                "this process may not write there",
                where=where,
                remedy="check the owner and the mode of that path",
            ) from error
        in_the_way = error.errno in _IN_THE_WAY
        raise StorageError(
            "file.io",
            "a file stands where a folder is needed"
            if in_the_way
            else error.strerror or type(error).__name__,
            where=where,
            remedy="move that file, or the one above it, away"
            if in_the_way
            else "check that the path exists and the disk is healthy",
        ) from error


def _sync_dir(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_bytes(path: Path, data: bytes) -> None:
    """Replace `path` with `data` atomically and durably.

    Raises:
        StorageError: `file.no_space`, `file.not_writable` or `file.io`; the old file then stands.
    """
    # A name per process: two writers never share a temporary file, and the last rename wins.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with explained(path):
        try:
            operation(temporary)
            with temporary.open("wb") as handle:
                handle.write(data)
                handle.flush()
                os.fsync(handle.fileno())
            operation(path)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _sync_dir(path.parent)


def write_text(path: Path, text: str) -> None:
    """Replace `path` with UTF-8 `text` atomically and durably."""
    write_bytes(path, text.encode("utf-8"))


def dump_json(value: Any) -> str:
    """Write JSON for people: two spaces, key order kept, Chinese readable, NaN refused.

    Raises:
        DataError: `file.bad_json` when the value holds NaN, Infinity or a non-JSON type.
    """
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, indent=2) + "\n"
    except (TypeError, ValueError) as error:
        raise DataError(
            "file.bad_json",
            f"a value cannot be written as JSON: {error}",
            remedy="use finite numbers and plain JSON types",
        ) from error


def write_json(path: Path, value: Any) -> None:
    """Replace `path` with `value` as readable JSON, atomically and durably."""
    try:
        text = dump_json(value)
    except DataError as error:
        error.where = str(path)
        raise
    write_text(path, text)


def append_json_line(path: Path, value: Any) -> None:
    """Append one JSON value as a line, in a single write, and sync it."""
    line = json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n"
    with explained(path):
        operation(path)
        with path.open("ab") as handle:
            handle.write(line.encode("utf-8"))
            handle.flush()
            os.fsync(handle.fileno())


def canonical_json(value: Any) -> bytes:
    """Return the one byte form of a JSON value that digests are taken over.

    Sorted keys, no spaces, UTF-8 with non-ASCII kept, NaN refused.
    """
    text = json.dumps(
        value, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")
    )
    return text.encode("utf-8")


def read_text(path: Path) -> str:
    """Read UTF-8 text.

    Raises:
        DataError: `file.missing` or `file.bad_json` (wrong encoding).
        StorageError: The system refused.
    """
    try:
        return path.read_bytes().decode("utf-8")
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        raise DataError("file.missing", "there is no such file", where=str(path)) from error
    except UnicodeDecodeError as error:
        raise DataError(
            "file.bad_json",
            f"not UTF-8 at byte {error.start}",
            where=str(path),
            remedy="save the file as UTF-8",
        ) from error
    except OSError as error:
        raise StorageError("file.io", error.strerror or str(error), where=str(path)) from error


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise ValueError(f"the key {key!r} stands twice")
        result[key] = value
    return result


def parse_json(text: str, *, where: str = "") -> Any:
    """Parse strict JSON: no NaN, no duplicate keys, no byte-order mark.

    Raises:
        DataError: `file.bad_json`, with `where:line` when the parser knows the line.
    """
    try:
        return json.loads(
            text, parse_constant=_refuse_constant, object_pairs_hook=_refuse_duplicates
        )
    except json.JSONDecodeError as error:
        raise DataError(
            "file.bad_json",
            f"{error.msg} (column {error.colno})",
            where=f"{where}:{error.lineno}" if where else f"line {error.lineno}",
            remedy="mend the JSON at that place",
        ) from error
    except (ValueError, RecursionError) as error:
        raise DataError("file.bad_json", str(error), where=where, remedy="mend the JSON") from error


def read_json(path: Path) -> Any:
    """Read strict JSON from a file.

    Raises:
        DataError: `file.missing` or `file.bad_json` with `path:line`.
    """
    return parse_json(read_text(path), where=str(path))


def read_json_lines(path: Path) -> list[Any]:
    """Read a JSON Lines file; blank lines are skipped.

    Raises:
        DataError: `file.bad_json` with `path:line`.
    """
    values = []
    # Not splitlines(): U+2028 and its like may stand inside a JSON string.
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if line.strip():
            values.append(parse_json(line, where=f"{path}:{number}"))
    return values


def sha256_bytes(data: bytes) -> str:
    """Return the SHA-256 of `data` in lower-case hex."""
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path | str) -> str:
    """Return the SHA-256 of a file in lower-case hex."""
    digest = hashlib.sha256()
    # Most files are small: `hashlib.file_digest` spends longer on its buffer than on them.
    with open(path, "rb", buffering=0) as handle:
        while chunk := handle.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def make_dir(path: Path) -> None:
    """Create a directory and its parents; an existing one is fine."""
    with explained(path):
        operation(path)
        path.mkdir(parents=True, exist_ok=True)


def copy_file(source: Path, target: Path) -> None:
    """Copy the bytes of a file (not its mode) and sync them."""
    with explained(target):
        operation(target)
        with source.open("rb") as reader, target.open("wb") as writer:
            shutil.copyfileobj(reader, writer)
            writer.flush()
            os.fsync(writer.fileno())


def copy_tree(source: Path, target: Path, *, skip: Callable[[Path], bool]) -> None:
    """Copy a folder with its modes, symbolic links as links; not synced, unlike `copy_file`.

    Args:
        source: The folder.
        target: Where the copy goes; must not exist.
        skip: Asked for every entry by its path relative to `source`; true leaves it out.
    """

    def left_out(folder: str, names: list[str]) -> set[str]:
        inside = Path(folder).relative_to(source)
        return {name for name in names if skip(inside / name)}

    with explained(target):
        operation(target)
        try:
            shutil.copytree(source, target, symlinks=True, ignore=left_out)
        except shutil.Error as error:
            # It goes on after a failure and reports them all together; the first one says enough.
            name, _, reason = error.args[0][0]
            raise OSError(errno.EIO, f"{name}: {reason}", str(target)) from error


def publish_dir(staging: Path, final: Path) -> None:
    """Move a finished folder into place: sync every file, then one rename.

    Temporary files of a writer that was killed (a notebook's kernel, say) do not come along.

    Raises:
        StorageError: `file.exists` when `final` is already there; nothing is then changed.
    """
    with explained(final):
        for folder, _, names in os.walk(staging):
            for name in names:
                if _TEMPORARY.fullmatch(name):
                    (Path(folder) / name).unlink()
                    continue
                descriptor = os.open(Path(folder) / name, os.O_RDONLY)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
            _sync_dir(Path(folder))
        operation(final)
        # rename() would silently replace an empty directory.
        if final.exists():
            raise _exists(final)
        try:
            staging.rename(final)
        except OSError as error:
            if error.errno in {errno.EEXIST, errno.ENOTEMPTY}:
                raise _exists(final) from error
            raise
        _sync_dir(final.parent)


def _exists(path: Path) -> KitError:
    return StorageError(
        "file.exists",
        "something already stands there",
        where=str(path),
        remedy="another process finished first, or an earlier run left it",
    )


def remove_tree(path: Path) -> None:
    """Delete a folder, read-only ones included; a missing one is fine."""
    if not path.exists():
        return
    with explained(path):
        operation(path)
        set_writable(path)
        shutil.rmtree(path)


def set_readonly(root: Path) -> None:
    """Set files to 0444 and directories to 0555, children first."""
    with explained(root):
        for folder, _, names in os.walk(root, topdown=False):
            for name in names:
                (Path(folder) / name).chmod(0o444)
            Path(folder).chmod(0o555)


def set_writable(root: Path) -> None:
    """Give the owner write permission back, parents first."""
    with explained(root):
        for folder, _, names in os.walk(root):
            Path(folder).chmod(0o755)
            for name in names:
                file = Path(folder) / name
                if not file.is_symlink():
                    file.chmod(stat.S_IMODE(file.stat().st_mode) | 0o644)


@contextmanager
def lock(path: Path, timeout: float = 10.0) -> Iterator[None]:
    """Hold an inter-process lock on `path` (a lock file of its own; it stays behind, empty).

    Raises:
        StorageError: `file.locked` when another process holds it longer than `timeout` seconds.
    """
    from filelock import FileLock, Timeout

    guard = FileLock(path, timeout=timeout)
    with explained(path):
        try:
            guard.acquire()
        except Timeout as error:
            raise StorageError(
                "file.locked",
                f"another process has held this lock for {timeout:g} s",
                where=str(path),
                remedy="wait for the other command to end, then try again",
            ) from error
    try:
        yield
    finally:
        guard.release()
