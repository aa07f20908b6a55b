"""Which process this is, and whether another one recorded earlier still lives.

A process id alone proves nothing: ids are reused. The boot id, the start time the kernel gives
(`/proc/<pid>/stat`, field 22) and the host name together name one process for ever.
Without `/proc` (macOS) only the id can be asked; a reused id then looks alive until its lease ends.
"""

from __future__ import annotations

import json
import os
import socket
from dataclasses import asdict, dataclass
from pathlib import Path

__all__ = ["Holder", "environment", "is_alive", "this_process"]

_PROC = Path("/proc")


@dataclass(frozen=True, kw_only=True)
class Holder:
    """One process, named so that no later process can be mistaken for it.

    Attributes:
        pid: Process id.
        started: Start time in clock ticks since boot; empty where the system does not tell.
        boot: Boot id of the machine; empty where the system does not tell.
        host: Host name.
    """

    pid: int
    started: str
    boot: str
    host: str

    def to_text(self) -> str:
        """Write it for a column of the store."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_text(cls, text: str) -> Holder | None:
        """Read what `to_text` wrote; `None` when it is something else."""
        try:
            value = json.loads(text)
            return cls(
                pid=int(value["pid"]),
                started=str(value["started"]),
                boot=str(value["boot"]),
                host=str(value["host"]),
            )
        except (ValueError, TypeError, KeyError):
            return None


def this_process() -> Holder:
    """Name the running process (read each time: a forked child is another process)."""
    pid = os.getpid()
    _, started = _state_and_start(pid)
    return Holder(pid=pid, started=started, boot=_boot_id(), host=socket.gethostname())


def is_alive(holder: Holder) -> bool | None:
    """Say whether that process still lives; `None` when it cannot be known from here."""
    if holder.host != socket.gethostname():
        return None
    boot = _boot_id()
    if holder.boot and boot and holder.boot != boot:
        return False
    state, started = _state_and_start(holder.pid)
    if state:
        # A zombie has ended; its parent has only not looked yet.
        return state not in {"Z", "X"} and (not holder.started or started == holder.started)
    if _PROC.is_dir() and (_PROC / "self" / "stat").exists():
        return False
    return _answers_signals(holder.pid)


def environment() -> dict[str, str]:
    """Copy the process environment: what a kernel inherits, less what its starter removes."""
    return dict(os.environ)


def _boot_id() -> str:
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _state_and_start(pid: int) -> tuple[str, str]:
    try:
        text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "", ""
    # The command name in brackets may hold spaces and brackets: count from its end.
    fields = text.rpartition(")")[2].split()
    return fields[0], fields[19]


def _answers_signals(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
