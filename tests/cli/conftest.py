"""Fixtures of the command tests: a desk copied from the repository, and the command in-process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kit.cli.main import run
from kit.workspace import Workspace


@dataclass(frozen=True)
class Said:
    """What one command left: its exit code, stdout and stderr."""

    code: int
    out: str
    err: str


@pytest.fixture
def desk(
    tmp_path: Path,
    copy_repository: Callable[[Path], Workspace],
    stand_in: Callable[..., Workspace],
) -> Workspace:
    return stand_in(copy_repository(tmp_path / "desk"))


@pytest.fixture
def kit(desk: Workspace, capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """`kit("list", "--json")` runs the command on the desk; `at=` names another workspace."""

    def call(*arguments: str, at: Any = None) -> Said:
        capsys.readouterr()
        code = run(["--workspace", str(at or desk.root), *arguments])
        captured = capsys.readouterr()
        return Said(code=code, out=captured.out, err=captured.err)

    return call
