"""Freeze under full disks, kills and rivals: a whole version or none, and an index that agrees."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from kit import files
from kit.bundle.freeze import FrozenVersion
from kit.bundle.verify import verify
from kit.errors import AlreadyDone, GuardError, StorageError
from kit.workspace import Workspace

Cut = Callable[..., FrozenVersion]

SCRIPT = """
import importlib.util, sys, time
from pathlib import Path
from kit.bundle.freeze import freeze
from kit.clock import FixedClock
from kit.errors import KitError
from kit.workspace import Workspace

spec = importlib.util.spec_from_file_location("builder", sys.argv[1])
builder = importlib.util.module_from_spec(spec)
spec.loader.exec_module(builder)
gate = Path(sys.argv[3])


def meet(message):
    # Both rivals have staged before either publishes.
    if message == "publish":
        gate.with_name(f"ready-{sys.argv[4]}").touch()
        while len(list(gate.parent.glob("ready-*"))) < int(sys.argv[5]):
            time.sleep(0.01)


try:
    frozen = freeze(
        Workspace.at(sys.argv[2]),
        "tiny-pullback",
        checks=builder.passing_checks(),
        clock=FixedClock("2024-09-19T08:40:00+00:00"),
        activate=True,
        progress=meet,
    )
    print("won", frozen.version)
except KitError as error:
    print(error.code, error.message)
"""


def start(
    builder: ModuleType, workspace: Workspace, gate: Path, name: str, rivals: int, **env: str
) -> subprocess.Popen[str]:
    gate.parent.mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(builder.__file__), str(workspace.root), str(gate), name,
         str(rivals)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **env},
    )  # fmt: skip


def snapshot(workspace: Workspace) -> dict[str, bytes | None]:
    """Everything outside the draft, folders included."""
    return {
        path.relative_to(workspace.root).as_posix(): path.read_bytes() if path.is_file() else None
        for path in [workspace.index_path, *workspace.strategies.rglob("*")]
        if "draft" not in path.parts
    }


def test_a_full_disk_at_any_operation_changes_nothing(
    draft: Path, cut: Cut, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut(activate=True)
    (draft / "reason_template.md").write_text("other\n")
    before = snapshot(workspace)
    codes: list[str] = []
    for step in range(1, 500):
        monkeypatch.setenv("KIT_NO_SPACE_AT", str(files.count_operations() + step))
        try:
            frozen = cut(activate=True)
        except StorageError as error:
            codes.append(error.code)
            assert snapshot(workspace) == before
        else:
            break
    assert set(codes) == {"file.no_space"}
    assert len(codes) > 40  # every file copied, and every file written
    assert frozen.version == "0.1.1"
    monkeypatch.delenv("KIT_NO_SPACE_AT")
    assert verify(workspace).rows == ()


def test_a_disk_that_stays_full_leaves_no_half_version(
    draft: Path, cut: Cut, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From operation N on everything fails but removing: what a really full disk does."""
    before = snapshot(workspace)
    real, real_remove = files.operation, files.remove_tree
    first = count = 0
    removing = False

    def remove(path: Path) -> None:
        nonlocal removing
        removing = True
        real_remove(path)
        removing = False

    def operation(path: Path) -> None:
        nonlocal count
        count += 1
        if count > first and not removing:
            raise OSError(28, "No space left on device", str(path))
        real(path)

    monkeypatch.setattr(files, "operation", operation)
    monkeypatch.setattr(files, "remove_tree", remove)
    for first in range(500):  # noqa: B007 - `operation` reads it
        count = 0
        try:
            cut()
        except StorageError:
            left = {k: v for k, v in snapshot(workspace).items() if "activations" not in k}
            assert left == before
            (draft.parent / "activations.jsonl").unlink(missing_ok=True)
        else:
            break
    assert first > 30


def test_an_interrupt_leaves_nothing(
    draft: Path, cut: Cut, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = snapshot(workspace)
    real = files.operation
    count = 0

    def operation(path: Path) -> None:
        nonlocal count
        count += 1
        if count == stop:
            raise KeyboardInterrupt
        real(path)

    monkeypatch.setattr(files, "operation", operation)
    for stop in (5, 20, 30, 38):  # noqa: B007 - `operation` reads it
        count = 0
        with pytest.raises(KeyboardInterrupt):
            cut()
        assert snapshot(workspace) == before


def count_of_one_freeze(draft: Path, cut: Cut) -> int:
    before = files.count_operations()
    cut(activate=True)
    return files.count_operations() - before


@pytest.mark.slow
def test_a_kill_at_any_operation_is_mended_by_the_next_freeze(
    draft: Path, cut: Cut, workspace: Workspace, builder: ModuleType, tmp_path: Path
) -> None:
    baseline = tmp_path / "baseline"
    shutil.copytree(workspace.root, baseline)
    total = count_of_one_freeze(draft, cut)
    # A version and the index can only part near the end; the rest is copying into the staging.
    steps = [1, total // 2, *range(total - 8, total + 1)]
    parted = 0
    for step in steps:
        files.remove_tree(workspace.root)
        shutil.copytree(baseline, workspace.root)
        process = start(
            builder, workspace, tmp_path / f"{step}" / "x", "a", 1, KIT_CRASH_AT=f"{step}"
        )
        process.communicate(timeout=60)
        assert process.returncode == 137
        there = (draft.parent / "0.1.0").is_dir()
        index = json.loads(workspace.index_path.read_text("utf-8"))
        listed = "tiny-pullback" in index["strategies"]
        assert there or not listed
        rows = [row for row in verify(workspace).rows if not row.advice]
        assert bool(rows) == (there and not listed)  # a version left unlisted is found
        parted += bool(rows)
        # No person is needed: the next freeze cuts the version, or finds it and lists it.
        try:
            outcome = cut().ref
        except GuardError as error:
            outcome = error.code
        assert outcome == ("freeze.identical" if there else "tiny-pullback@0.1.0")
        assert verify(workspace).rows == ()
        names = sorted(path.name for path in draft.parent.iterdir())
        assert names == ["0.1.0", "activations.jsonl", "draft"]
    assert parted


def test_a_version_left_unlisted_is_adopted_by_the_next_freeze(
    draft: Path, cut: Cut, workspace: Workspace
) -> None:
    before = workspace.index_path.read_bytes()
    cut()
    (draft.parent / "activations.jsonl").unlink()
    workspace.index_path.write_bytes(before)
    with pytest.raises(GuardError, match=r"0\.1\.0"):
        cut()
    (draft / "reason_template.md").write_text("other\n")
    assert cut().version == "0.1.1"
    assert verify(workspace).rows == ()


def test_staging_folders_of_the_dead_are_removed_and_of_the_living_kept(
    draft: Path, cut: Cut
) -> None:
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    process.wait()
    dead = draft.parent / f".0.9.0.staging-{process.pid}"
    living = draft.parent / f".0.9.0.staging-{os.getppid()}"
    for folder in (dead, living):
        folder.mkdir()
        (folder / "x").write_text("x")
    frozen = cut()
    assert not dead.exists()
    assert living.exists()
    assert frozen.notes == (f"removed {dead.name}, left by a dead process",)


def test_of_two_freezes_at_once_one_wins(
    draft: Path, workspace: Workspace, builder: ModuleType, tmp_path: Path
) -> None:
    gate = tmp_path / "gate" / "x"
    rivals = [start(builder, workspace, gate, name, 2) for name in ("a", "b")]
    said = sorted(process.communicate(timeout=60)[0] for process in rivals)
    assert [line.split()[0] for line in said] == ["freeze.version_exists", "won"]
    assert "tiny-pullback@0.1.0 exists now" in said[0]
    assert verify(workspace).rows == ()
    assert sorted(p.name for p in draft.parent.iterdir()) == ["0.1.0", "activations.jsonl", "draft"]
    log = (draft.parent / "activations.jsonl").read_text("utf-8")
    assert log.count('"event": "freeze"') == 1


def test_a_rival_that_cuts_another_version_meanwhile_is_named(
    draft: Path, cut: Cut, workspace: Workspace, builder: ModuleType
) -> None:
    cut()
    (draft / "reason_template.md").write_text("other\n")

    def rival(message: str) -> None:
        if message == "publish":
            (draft / "reason_template.md").write_text("a rival's\n")
            cut(bump="minor")

    with pytest.raises(AlreadyDone, match=r"0\.2\.0 exists now") as error:
        cut(progress=rival)
    assert error.value.code == "freeze.version_exists"
    assert sorted(p.name for p in draft.parent.iterdir()) == [
        "0.1.0", "0.2.0", "activations.jsonl", "draft"
    ]  # fmt: skip


def test_what_stands_in_the_way_is_not_removed(draft: Path, cut: Cut) -> None:
    (draft.parent / "0.1.0").write_text("somebody's file")
    with pytest.raises(AlreadyDone):
        cut()
    assert (draft.parent / "0.1.0").read_text() == "somebody's file"


def test_a_settling_that_fails_is_a_note(
    draft: Path, cut: Cut, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def settle(_draft: Path, _version: Path) -> None:
        raise StorageError("file.no_space", "the disk is full")

    monkeypatch.setattr("kit.bundle.freeze.settle_draft", settle)
    frozen = cut()
    assert "old parent" in frozen.notes[0]
    assert verify(workspace).ok
