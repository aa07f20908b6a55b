"""The one tree of exceptions, and what each error code means.

```
KitError
├── UsageError      exit 2    the request itself is wrong (a bad date, an unknown option value)
├── ConfigError     exit 3    a file under config/, or the workspace, is missing or wrong
├── BundleError     exit 3    a strategy bundle is malformed or has been tampered with
├── RegistryError   exit 3    INDEX.json, an id or a version
├── DataError       exit 3    market data or another input file
├── GuardError      exit 4    a guard refused (lookahead, evidence, bump)
├── LockError       exit 4    the environment lock refused
├── RunError        exit 5    a run failed
├── StorageError    exit 5    the disk or the state store refused
├── DeliveryError   exit 6    no channel took the card
├── AlreadyDone     exit 7    done, or held by another process
└── Interrupted     exit 130  a person stopped it
```

Every error says what happened (`message`), where (`where`: a file, a line, a dotted key), and how
to mend it (`remedy`). `code` is stable: `kit explain CODE` and machines rely on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

__all__ = [
    "CODES",
    "AlreadyDone",
    "BundleError",
    "ConfigError",
    "DataError",
    "DeliveryError",
    "GuardError",
    "Interrupted",
    "KitError",
    "LockError",
    "RegistryError",
    "RunError",
    "StorageError",
    "UsageError",
]


class KitError(Exception):
    """Base of everything `kit` raises on purpose.

    Args:
        code: A key of `CODES`, stable across releases.
        message: What happened, in one sentence.
        remedy: What the reader should do next; a command where there is one.
        where: The file, `file:line`, or dotted key concerned.
        details: Extra machine-readable facts (JSON values only).
    """

    exit_code: ClassVar[int] = 1

    def __init__(
        self,
        code: str,
        message: str,
        *,
        remedy: str = "",
        where: str = "",
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.remedy = remedy
        self.where = where
        self.details: dict[str, Any] = dict(details or {})

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" if self.where else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        state = {"remedy": self.remedy, "where": self.where, "details": self.details}
        return (type(self), (self.code, self.message), state)

    def to_dict(self) -> dict[str, Any]:
        """Return the shape that `--json` prints: code, message, remedy, where, details."""
        return {
            "code": self.code,
            "message": self.message,
            "remedy": self.remedy,
            "where": self.where,
            "details": self.details,
        }


class UsageError(KitError):
    """The request itself is wrong."""

    exit_code = 2


class ConfigError(KitError):
    """A configuration file or the workspace is missing or wrong."""

    exit_code = 3


class BundleError(KitError):
    """A strategy bundle is malformed or has been tampered with."""

    exit_code = 3


class RegistryError(KitError):
    """INDEX.json, a strategy id or a version."""

    exit_code = 3


class DataError(KitError):
    """Market data, or another input file, cannot be used."""

    exit_code = 3


class GuardError(KitError):
    """A guard refused."""

    exit_code = 4


class LockError(KitError):
    """The environment lock refused."""

    exit_code = 4


class RunError(KitError):
    """A run failed."""

    exit_code = 5


class StorageError(KitError):
    """The disk or the state store refused."""

    exit_code = 5


class DeliveryError(KitError):
    """No channel took the card."""

    exit_code = 6


class AlreadyDone(KitError):  # noqa: N818 - it is not a failure
    """The work is done, or another process holds it."""

    exit_code = 7


class Interrupted(KitError):  # noqa: N818 - it is not a failure
    """A person stopped it."""

    exit_code = 130


CODES: dict[str, str] = {
    # floor 0
    "config.invalid": "A file under config/ does not match its schema.",
    "config.missing": "A file that config/ must hold is not there.",
    "data.schema": "A value does not match the JSON Schema of its kind.",
    "file.bad_json": "A file cannot be read: JSON syntax, a duplicate key, NaN, or not UTF-8.",
    "file.exists": "Something already stands where a finished folder should go.",
    "file.io": "The operating system refused a file operation.",
    "file.locked": "Another process holds the lock of this file.",
    "file.missing": "A file that should be there is not.",
    "file.no_space": "The disk, the quota or the inodes are used up.",
    "file.not_writable": "This process may not write there.",
    "state.corrupt": "The state store is not a readable database.",
    "state.newer": "The state store was written by a newer kit.",
    "state.unavailable": "The state store cannot be opened or is locked by another process.",
    "time.bad_date": "A date is not written YYYY-MM-DD.",
    "time.bad_instant": "An instant is not ISO 8601 with an offset.",
    "workspace.exists": "The directory already holds a workspace.",
    "workspace.not_empty": "The directory is not empty, so no workspace is made there.",
    "workspace.not_found": "No workspace was found here or above.",
}
