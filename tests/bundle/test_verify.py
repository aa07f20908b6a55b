"""`kit verify` where people really get a workspace from: a clone."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kit.bundle.verify import verify
from kit.workspace import Workspace


def git(*arguments: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b.invalid")
    subprocess.run(["git", *identity, *arguments], check=True, capture_output=True, timeout=60)


@pytest.mark.parametrize("line_ends", ["false", "true"])
def test_a_clone_is_intact_whatever_git_does_to_line_ends(
    copy_repository: Callable[[Path], Workspace], tmp_path: Path, line_ends: str
) -> None:
    origin = copy_repository(tmp_path / "origin").root
    git("init", "-q", str(origin))
    git("-C", str(origin), "-c", f"core.autocrlf={line_ends}", "add", ".")
    git("-C", str(origin), "commit", "-q", "-m", "x")
    place = tmp_path / "clone"
    git("clone", "-q", "-c", f"core.autocrlf={line_ends}", str(origin), str(place))
    clone = Workspace.at(place)
    found = verify(clone)
    assert found.ok
    assert len(found.checked) >= 2
    # Git keeps no modes: they are advice, and can be set again.
    assert {row.kind for row in found.rows} == {"mode"}
    fixed = verify(clone, fix=True)
    assert fixed.fixed == found.checked
    assert verify(clone).rows == ()
    changed = place / "strategies" / found.checked[0].replace("@", "/") / "SKILL.md"
    changed.chmod(0o644)
    changed.write_bytes(changed.read_bytes().replace(b"\n", b"\r\n"))
    rows = [row for row in verify(clone).rows if not row.advice]
    assert [(row.path, row.kind) for row in rows] == [("SKILL.md", "changed")]
