"""`strategies/<id>/activations.jsonl`: who froze, activated or retired which version, when and why.

With the version directories it is all that INDEX.json can be rebuilt from, and it keeps the digest
of every frozen version: a file edited together with its checksums is still found.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from kit import files
from kit.bundle.text import decode
from kit.errors import DataError, RegistryError
from kit.schemas import validate

__all__ = ["FILE", "Activation", "active_version", "read", "recorded_digests", "restore", "write"]

FILE = "activations.jsonl"

Event = Literal["freeze", "adopt", "activate", "retire"]


@dataclass(frozen=True, kw_only=True)
class Activation:
    """One line of the log.

    Attributes:
        ts: When, ISO 8601 with an offset.
        event: `freeze`; `adopt` (found by a rebuild without a record); `activate`; `retire`.
        version: Version concerned.
        who: Person or program.
        why: Reason in a few words, possibly empty.
        digest: Digest of the version, for `freeze` and `adopt`.
    """

    ts: str
    event: Event
    version: str
    who: str
    why: str = ""
    digest: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON value of the line."""
        value: dict[str, Any] = {"ts": self.ts, "event": self.event, "version": self.version}
        if self.digest is not None:
            value["digest"] = self.digest
        return {**value, "who": self.who, "why": self.why}


def read(strategy: Path) -> list[Activation]:
    """Read the log of a strategy directory; no file means no record.

    Raises:
        RegistryError: `registry.bad_activations`, with `file:line`.
    """
    where = f"{strategy.name}/{FILE}"
    events = []
    text = decode(_bytes(strategy) or b"", where)
    # Split on line feeds only: text may hold other characters that Python takes for line ends.
    for number, line in enumerate(text.split("\n"), start=1):
        if line:
            events.append(_event(line, f"{where}:{number}"))
    return events


def write(strategy: Path, new: Iterable[Activation]) -> bytes | None:
    """Add lines to the log, in one atomic replace.

    Returns:
        The bytes the log had before, or None when there was none; for `restore`.

    Raises:
        RegistryError: `registry.bad_activations`: the last line is cut off, or it is no file.
        StorageError: The disk refused; the log is then unchanged.
    """
    path = strategy / FILE
    old = _bytes(strategy)
    lines = "".join(
        json.dumps(event.to_dict(), ensure_ascii=False, allow_nan=False) + "\n" for event in new
    )
    files.write_bytes(path, (old or b"") + lines.encode("utf-8"))
    return old


def restore(strategy: Path, old: bytes | None) -> None:
    """Put the log back as `write` found it."""
    path = strategy / FILE
    if old is None:
        path.unlink(missing_ok=True)
    else:
        files.write_bytes(path, old)


def active_version(events: Iterable[Activation]) -> str | None:
    """Return the version that the log leaves active, or None."""
    active = None
    for event in events:
        if event.event == "activate":
            active = event.version
        elif event.event == "retire":
            active = None
    return active


def recorded_digests(events: Iterable[Activation]) -> dict[str, str]:
    """Return version -> digest as first recorded: later lines cannot legitimise a change."""
    digests: dict[str, str] = {}
    for event in events:
        if event.digest is not None:
            digests.setdefault(event.version, event.digest)
    return digests


def _bytes(strategy: Path) -> bytes | None:
    """Return the bytes of the log, None when there is none; a line added to them is its own."""
    path = strategy / FILE
    where = f"{strategy.name}/{FILE}"
    if not path.exists():
        return None
    if not path.is_file():
        raise _bad(
            "is not a file",
            where,
            "move what stands there away, and restore the file (git checkout)",
        )
    data = path.read_bytes()
    if data and not data.endswith(b"\n"):
        line = data.count(b"\n") + 1
        raise _bad(
            "the last line is cut off: it has no line end",
            f"{where}:{line}",
            "restore the file (git checkout); where the line is whole, add the line end, "
            "otherwise remove the half line",
        )
    return data


def _event(line: str, where: str) -> Activation:
    try:
        value = files.parse_json(line, where=where)
    except DataError as error:
        raise _bad(error.message, where) from error
    problems = validate("activation", value)
    if problems:
        raise _bad("; ".join(map(str, problems)), where)
    known = {"ts", "event", "version", "who", "why", "digest"}
    return Activation(**{key: item for key, item in value.items() if key in known})


def _bad(
    message: str,
    where: str,
    remedy: str = "restore the file (git checkout); it is only ever added to",
) -> RegistryError:
    return RegistryError("registry.bad_activations", message, where=where, remedy=remedy)
