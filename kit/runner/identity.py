"""What a run is called: its key, its folder, its id and its card's id.

The key says what is being done: (kind, subject, trade date, slot, run type). A manual run and a
scheduled one never share a key, but they share a folder, so attempts are numbered per folder:

```
runs/2024-09-19/screen-ma250-pullback@0.3.1/1/            finished: final, never changed
                                           /2.partial/    running, or its process has died
                                           /3.dead/       set aside by whoever took over
```
"""

from __future__ import annotations

import errno
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Literal

from kit import files
from kit.clock import parse_date
from kit.errors import StorageError, UsageError
from kit.workspace import Workspace

__all__ = ["RunFolder", "RunKey", "RunType", "card_id_of", "first_free", "last_attempt"]

RunType = Literal["manual", "scheduled"]

_KIND = re.compile(r"[a-z][a-z0-9-]{0,30}")
_SUBJECT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,99}")
_SLOT = re.compile(r"(?:\d{4}-\d\d-\d\dT)?(\d\d):?(\d\d)(?::\d\d)?(?:Z|[+-]\d\d:?\d\d)?")
_ATTEMPT = re.compile(r"(\d{1,6})(?:\.(?:partial|dead))?")
_MAX_RACES = 100


@dataclass(frozen=True, kw_only=True)
class RunKey:
    """The identity under which a run happens at most once.

    Attributes:
        kind: What is run: `screen`, `slot`, `backtest`, ...
        subject: `id@version`, `id@draft`, or a market.
        trade_date: The trade date the run speaks for, in the exchange's zone.
        slot: Slot id (ISO local time with offset, or `HHMM`); `None` for what runs once a day.
        run_type: `scheduled` for cron, `manual` for a person.

    Raises:
        UsageError: `run.bad_key`; nothing in a key can then leave its folder.
    """

    kind: str
    subject: str
    trade_date: date
    slot: str | None = None
    run_type: RunType = "manual"

    def __post_init__(self) -> None:
        _require(_KIND.fullmatch(self.kind), "kind", self.kind)
        _require(_SUBJECT.fullmatch(self.subject), "subject", self.subject)
        _require(self.run_type in ("manual", "scheduled"), "run_type", self.run_type)
        if self.slot is not None:
            _require(_SLOT.fullmatch(self.slot), "slot", self.slot)

    @property
    def text(self) -> str:
        """The key as one line: the primary key of the claims table."""
        parts = (self.kind, self.subject, self.trade_date.isoformat(), self.slot, self.run_type)
        return "|".join(part or "-" for part in parts)

    @property
    def folder(self) -> str:
        """Folder of all attempts, relative to `runs/`."""
        match = _SLOT.fullmatch(self.slot) if self.slot else None
        time = f"-{match[1]}{match[2]}" if match else ""
        return f"{self.trade_date.isoformat()}/{self.kind}-{self.subject}{time}"

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON shape used in `run.json`."""
        return {
            "kind": self.kind,
            "subject": self.subject,
            "trade_date": self.trade_date.isoformat(),
            "slot": self.slot,
            "run_type": self.run_type,
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> RunKey:
        """Read what `to_dict` wrote."""
        return cls(
            kind=value["kind"],
            subject=value["subject"],
            trade_date=parse_date(value["trade_date"]),
            slot=value["slot"],
            run_type=value["run_type"],
        )


@dataclass(frozen=True, kw_only=True)
class RunFolder:
    """The paths of one attempt.

    Attributes:
        root: `runs/` of the workspace.
        key: The run's key.
        attempt: Number of this attempt within the folder, from 1.
    """

    root: Path
    key: RunKey
    attempt: int

    @property
    def run_id(self) -> str:
        """Id of the run: the final folder relative to `runs/`."""
        return f"{self.key.folder}/{self.attempt}"

    @property
    def final(self) -> Path:
        """Where the finished run stands."""
        return self.root / self.key.folder / str(self.attempt)

    @property
    def partial(self) -> Path:
        """Where it is made."""
        return self.final.with_name(f"{self.attempt}.partial")

    @property
    def dead(self) -> Path:
        """Where a partial folder goes whose process died."""
        return self.final.with_name(f"{self.attempt}.dead")

    @property
    def card_id(self) -> str:
        """Short id of the run's card."""
        return card_id_of(self.run_id)

    def create(self) -> bool:
        """Make the partial folder; `False` when this number is taken already.

        Raises:
            StorageError: The disk refused.
        """
        files.make_dir(self.partial.parent)
        if self.final.exists() or self.dead.exists():
            return False
        try:
            files.operation(self.partial)
            self.partial.mkdir()
        except FileExistsError:
            return False
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            raise StorageError(
                "file.no_space" if full else "file.io",
                error.strerror or str(error),
                where=str(self.partial),
                remedy="free some space, or check who may write to runs/",
            ) from error
        if self.final.exists():  # published between the two looks
            self.partial.rmdir()
            return False
        return True

    def set_aside(self) -> None:
        """Rename the partial folder of a dead process; it stays as evidence, outside the record.

        Raises:
            StorageError: The disk refused.
        """
        if self.partial.is_dir():
            files.publish_dir(self.partial, self.dead)


def last_attempt(workspace: Workspace, key: RunKey) -> int:
    """Return the highest attempt number on disk, 0 for none."""
    folder = workspace.runs / key.folder
    try:
        names = [entry.name for entry in folder.iterdir()]
    except OSError:
        return 0
    numbers = (_ATTEMPT.fullmatch(name) for name in names)
    return max((int(match[1]) for match in numbers if match), default=0)


def first_free(workspace: Workspace, key: RunKey, attempt: int) -> RunFolder:
    """Make the partial folder of the first free attempt number from `attempt` on.

    Raises:
        StorageError: The disk refused, or the numbers ran out.
    """
    for number in range(attempt, attempt + _MAX_RACES):
        folder = RunFolder(root=workspace.runs, key=key, attempt=number)
        if folder.create():
            return folder
    raise StorageError(
        "file.exists",
        f"no free attempt number in {key.folder}",
        where=workspace.relative(workspace.runs / key.folder),
        remedy="move old attempts away",
    )


def card_id_of(run_id: str) -> str:
    """Return the short id of a run's card: eight hex digits of the SHA-256 of the run id."""
    return files.sha256_bytes(run_id.encode("utf-8"))[:8]


def _require(condition: object, name: str, value: object) -> None:
    if not condition:
        raise UsageError(
            "run.bad_key",
            f"{value!r} is not a {name} a run can have",
            where=name,
            remedy="kind: lower-case letters, digits and hyphens; subject: id@version or a market; "
            "slot: HH:MM or an ISO time with offset",
        )
