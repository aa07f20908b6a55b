from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kit.mcp import ServerConfig, ServerPool

SERVERS = Path(__file__).parent / "servers"
Scripted = Callable[..., ServerConfig]


class Pids:
    """The processes that scripted servers told of."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def known(self) -> list[int]:
        return [int(line) for line in self.path.read_text().split()]

    def alive(self) -> list[int]:
        return [pid for pid in self.known() if _runs(pid)]

    def are_gone(self) -> bool:
        """Say whether all have ended; one that was just killed is given a moment."""
        until = time.monotonic() + 2
        while self.alive() and time.monotonic() < until:
            time.sleep(0.02)
        return not self.alive()


def _runs(pid: int) -> bool:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return False
    # A zombie of ours was not reaped; an orphan's end is for whoever adopted it to notice.
    return fields[0] != "Z" or fields[1] == str(os.getpid())


@pytest.fixture
def pids(tmp_path: Path) -> Iterator[Pids]:
    told = Pids(tmp_path / "pids")
    told.path.touch()
    yield told
    assert told.are_gone()


@pytest.fixture
def scripted(tmp_path: Path, pids: Pids) -> Scripted:
    """Return a function that describes a scripted server."""

    def make(how: str, *more: str, env: tuple[str, ...] = ()) -> ServerConfig:
        # -S -E: it starts in 20 ms, whatever is installed.
        args = ("-S", "-E", str(SERVERS / "scripted.py"), how, str(pids.path), *more)
        return ServerConfig(name=how, command=sys.executable, args=args, env=env, root=tmp_path)

    return make


@pytest.fixture
def pool(scripted: Scripted) -> Iterator[Callable[..., ServerPool]]:
    """Return a function that opens a pool of scripted servers; they close with the test."""
    opened: list[ServerPool] = []

    def make(*hows: str, deadline_sec: float = 20.0) -> ServerPool:
        servers = {how: scripted(how) for how in hows}
        opened.append(ServerPool(servers, deadline_sec=deadline_sec).__enter__())
        return opened[-1]

    yield make
    for one in opened:
        one.__exit__(None, None, None)
