"""What a forged, copied, lost or misplaced file of the registry may not get away with."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kit import files
from kit.bundle import activations
from kit.bundle.disagreements import index_findings
from kit.bundle.freeze import FrozenVersion
from kit.bundle.model import resolve
from kit.bundle.rebuild import rebuild
from kit.bundle.registry import activate, read_index, retire, show
from kit.bundle.verify import verify
from kit.clock import FixedClock
from kit.errors import BundleError, KitError, RegistryError, StorageError
from kit.workspace import Workspace

ID = "tiny-pullback"


def forge(root: Path, name: str = "config.json") -> str:
    """Change a file and mend its line in checksums.txt; return the digest that gives."""
    path, listed = root / name, root / "checksums.txt"
    files.set_writable(root)
    old = hashlib.sha256(path.read_bytes()).hexdigest()
    path.write_bytes(path.read_bytes() + b"\n")
    new = hashlib.sha256(path.read_bytes()).hexdigest()
    listed.write_text(listed.read_text("utf-8").replace(old, new), "utf-8")
    return hashlib.sha256(listed.read_bytes()).hexdigest()


def entry_in(workspace: Workspace, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the first version's entry in INDEX.json."""
    index = json.loads(workspace.index_path.read_text("utf-8"))
    change(index["strategies"][ID]["all_versions"][-1])
    files.write_json(workspace.index_path, index)


def log_of(frozen: FrozenVersion) -> Path:
    return frozen.root.parent / activations.FILE


def put_on(workspace: Workspace, clock: FixedClock, version: str = "0.1.0") -> None:
    activate(workspace, ID, version, who="lin", why="", clock=clock)


def test_a_lost_log_does_not_legitimise_a_forged_version(
    workspace: Workspace, frozen: FrozenVersion, clock: FixedClock
) -> None:
    forged = forge(frozen.root)
    log_of(frozen).unlink()
    before = workspace.index_path.read_bytes()
    with pytest.raises(RegistryError) as error:
        rebuild(workspace, who="lin", clock=clock)
    assert error.value.code == "registry.digest_mismatch"
    assert error.value.details == {
        "recorded": frozen.digest,
        "actual": forged,
        "source": "INDEX.json",
    }
    assert workspace.index_path.read_bytes() == before
    assert not log_of(frozen).exists()


def test_a_lost_log_keeps_the_active_version(
    workspace: Workspace, draft: Path, frozen: FrozenVersion, cut: Any, clock: FixedClock
) -> None:
    (draft / "reason_template.md").write_text("other\n")
    cut()
    before = workspace.index_path.read_bytes()
    log_of(frozen).unlink()
    mends = [finding.mend for finding in index_findings(workspace)]
    assert mends
    assert all("from git first" in mend for mend in mends)
    notes = rebuild(workspace, who="lin", clock=clock).notes
    assert [note.partition(": ")[0] for note in notes] == [
        f"{ID}@0.1.1",
        f"{ID}@0.1.0",
        f"{ID}@0.1.0",
    ]
    assert "kept active" in notes[-1]
    assert (
        json.loads(workspace.index_path.read_text())["strategies"]
        == (json.loads(before)["strategies"])
    )
    assert [(e.event, e.version) for e in activations.read(draft.parent)] == [
        ("adopt", "0.1.0"),
        ("adopt", "0.1.1"),
        ("activate", "0.1.0"),
    ]
    assert verify(workspace).rows == ()


def test_a_lost_log_and_a_lost_active_version_are_refused(
    workspace: Workspace, frozen: FrozenVersion, clock: FixedClock
) -> None:
    log_of(frozen).unlink()
    files.remove_tree(frozen.root)
    with pytest.raises(RegistryError) as error:
        rebuild(workspace, who="lin", clock=clock)
    assert error.value.code == "registry.version_lost"


def test_a_strategy_that_is_gone_is_noted(
    workspace: Workspace, frozen: FrozenVersion, clock: FixedClock
) -> None:
    files.remove_tree(frozen.root.parent)
    notes = rebuild(workspace, who="lin", clock=clock).notes
    assert notes == (f"{ID}: listed before, but there is no directory",)


def test_a_full_disk_in_a_rebuild_leaves_the_logs_as_they_were(
    workspace: Workspace,
    frozen: FrozenVersion,
    make_draft: Any,
    cut: Any,
    clock: FixedClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make_draft(workspace, "another-one")
    cut("another-one")
    logs = [log_of(frozen), workspace.strategies / "another-one" / activations.FILE]
    lines = logs[1].read_bytes()
    logs[0].unlink()
    logs[1].write_bytes(b"\n")
    index = workspace.index_path.read_bytes()
    failed = 0
    for step in range(1, 20):
        monkeypatch.setenv("KIT_NO_SPACE_AT", str(files.count_operations() + step))
        try:
            rebuild(workspace, who="lin", clock=clock)
        except StorageError:
            failed += 1
            assert not logs[0].exists()
            assert logs[1].read_bytes() == b"\n"
            assert workspace.index_path.read_bytes() == index
        else:
            break
    assert failed >= 6  # two logs and the index, each opened and put into place
    assert len(lines.splitlines()) == len(activations.read(logs[1].parent))


def copied(frozen: FrozenVersion, where: str) -> Path:
    target = frozen.root.parent.parent / where
    target.parent.mkdir(exist_ok=True)
    shutil.copytree(frozen.root, target)
    files.set_readonly(target)
    return target


@pytest.mark.parametrize(
    ("where", "code"),
    [
        (f"{ID}/9.9.9", "bundle.version_mismatch"),
        ("another-one/0.1.0", "bundle.id_mismatch"),
    ],
)
def test_a_copied_version_is_no_version(
    workspace: Workspace, frozen: FrozenVersion, clock: FixedClock, where: str, code: str
) -> None:
    root = copied(frozen, where)
    assert code in {row.kind for row in verify(workspace).rows}
    assert not verify(workspace, f"{root.parent.name}@{root.name}").ok
    before = workspace.index_path.read_bytes()
    with pytest.raises(BundleError) as error:
        rebuild(workspace, who="lin", clock=clock)
    assert error.value.code == code
    assert "move that directory away" in error.value.remedy
    assert workspace.index_path.read_bytes() == before
    # Listed by an older kit, it is still not activated.
    index = json.loads(before)
    entry = {**index["strategies"][ID]["all_versions"][0], "version": root.name}
    strategy = index["strategies"].setdefault(root.parent.name, {"latest_active_version": None})
    strategy["all_versions"] = [entry]
    files.write_json(workspace.index_path, index)
    with pytest.raises(BundleError) as error:
        activate(workspace, root.parent.name, root.name, who="lin", why="", clock=clock)
    assert error.value.code == code


@pytest.mark.parametrize("key_removed", [False, True])
def test_activate_trusts_no_more_than_the_loader(
    workspace: Workspace, frozen: FrozenVersion, clock: FixedClock, key_removed: bool
) -> None:
    forged = forge(frozen.root)
    entry_in(workspace, lambda e: e.pop("digest") if key_removed else e.update(digest=forged))
    for attempt in (lambda: put_on(workspace, clock), lambda: resolve(workspace, ID)):
        with pytest.raises(BundleError, match=r"activations\.jsonl") as error:
            attempt()
        assert error.value.code == "bundle.tampered"


def test_a_version_without_any_recorded_digest_is_not_activated(
    workspace: Workspace, frozen: FrozenVersion, clock: FixedClock
) -> None:
    entry_in(workspace, lambda entry: entry.pop("digest"))
    log_of(frozen).unlink()
    with pytest.raises(RegistryError) as error:
        put_on(workspace, clock)
    assert error.value.code == "registry.no_record"
    assert error.value.remedy.startswith("restore")


@pytest.mark.parametrize("cut_off", [1, 20])
def test_nothing_is_added_to_a_half_line(
    workspace: Workspace, frozen: FrozenVersion, cut: Any, clock: FixedClock, cut_off: int
) -> None:
    log = log_of(frozen)
    log.write_bytes(log.read_bytes()[:-cut_off])
    before = log.read_bytes()
    event = activations.Activation(ts="2024-09-20T00:00:00Z", event="retire", version="0.1.0",
                                   who="x")  # fmt: skip
    for attempt in (
        lambda: put_on(workspace, clock),
        lambda: retire(workspace, ID, who="lin", why="", clock=clock),
        lambda: rebuild(workspace, who="lin", clock=clock),
        lambda: activations.write(log.parent, [event]),
        cut,
    ):
        with pytest.raises(RegistryError) as error:
            attempt()
        assert error.value.code == "registry.bad_activations"
        assert error.value.where == f"{ID}/activations.jsonl:2"
        assert "git checkout" in error.value.remedy
        assert "half line" in error.value.remedy
        assert log.read_bytes() == before
    assert not verify(workspace).ok


def test_a_linked_strategy_is_an_error_everywhere(
    workspace: Workspace, frozen: FrozenVersion, clock: FixedClock, tmp_path: Path
) -> None:
    folder = frozen.root.parent
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    before = (workspace.index_path.read_bytes(), log_of(frozen).read_bytes())
    for ref in (None, ID, f"{ID}@0.1.0"):
        found = verify(workspace, ref)
        assert [(row.path, row.kind) for row in found.rows] == [
            (f"strategies/{ID}", "registry.symlink")
        ]
        assert not found.ok
    for attempt in (
        lambda: rebuild(workspace, who="lin", clock=clock),
        lambda: put_on(workspace, clock),
        lambda: retire(workspace, ID, who="lin", why="", clock=clock),
        lambda: show(workspace, ID),
    ):
        with pytest.raises(BundleError) as error:
            attempt()
        assert error.value.code == "bundle.symlink"
    assert (workspace.index_path.read_bytes(), log_of(frozen).read_bytes()) == before
    folder.unlink()
    folder.symlink_to(tmp_path / "nowhere")
    assert "registry.symlink" in {row.kind for row in verify(workspace).rows}


def test_an_empty_directory_in_a_version_is_extra(
    workspace: Workspace, frozen: FrozenVersion, clock: FixedClock
) -> None:
    frozen.root.chmod(0o755)
    (frozen.root / "new" / "inner").mkdir(parents=True)
    frozen.root.chmod(0o555)
    rows = [row for row in verify(workspace).rows if not row.advice]
    assert [(row.path, row.kind) for row in rows] == [("new/inner/", "extra")]
    with pytest.raises(BundleError, match=r"new/inner/ \(extra\)"):
        put_on(workspace, clock)


def test_a_directory_in_the_place_of_the_index(
    workspace: Workspace, frozen: FrozenVersion, clock: FixedClock
) -> None:
    workspace.index_path.unlink()
    workspace.index_path.mkdir()
    for attempt in (
        lambda: read_index(workspace),
        lambda: rebuild(workspace, who="lin", clock=clock),
    ):
        with pytest.raises(RegistryError, match="is a directory") as error:
            attempt()
        assert error.value.code == "registry.bad_index"
        assert error.value.remedy.startswith("move it away")
    assert [row.kind for row in verify(workspace).rows][:1] == ["registry.index"]


def test_a_directory_in_the_place_of_the_log(
    workspace: Workspace, frozen: FrozenVersion, clock: FixedClock
) -> None:
    log_of(frozen).unlink()
    log_of(frozen).mkdir()
    for attempt in (
        lambda: put_on(workspace, clock),
        lambda: retire(workspace, ID, who="lin", why="", clock=clock),
        lambda: rebuild(workspace, who="lin", clock=clock),
    ):
        with pytest.raises(RegistryError, match="is not a file") as error:
            attempt()
        assert error.value.code == "registry.bad_activations"
        assert "rebuild" not in error.value.remedy
    rows = verify(workspace).rows
    assert [row.kind for row in rows] == ["registry.activations"]
    assert "rebuild" not in rows[0].detail


@pytest.mark.parametrize(
    ("gone", "code"), [("", "bundle.not_found"), ("checksums.txt", "bundle.missing_file")]
)
def test_what_is_gone_is_restored_not_written(
    workspace: Workspace, frozen: FrozenVersion, clock: FixedClock, gone: str, code: str
) -> None:
    if gone:
        frozen.root.chmod(0o755)
        (frozen.root / gone).unlink()
    else:
        files.remove_tree(frozen.root)
    with pytest.raises(KitError) as error:
        put_on(workspace, clock)
    assert error.value.code == code
    assert error.value.remedy == "restore the version from git or from an export"


def start_time(pid: int) -> str:
    # proc(5): field 22 of stat; the command name in brackets may hold spaces.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="start times come from /proc")
def test_a_staging_folder_of_a_reused_process_id_is_removed(draft: Path, cut: Any) -> None:
    me, parent = os.getpid(), os.getppid()
    dead = [
        f".0.1.0.staging-{me}-1",  # a container's earlier process of the same id
        f".0.1.0.staging-{me}-{start_time(me)}",  # this very process, an attempt that failed
        f".0.1.0.staging-{me}",  # the same, from an older kit
        f".0.1.0.staging-{parent}-1",  # a stranger has the id now
        f".draft.new-{parent}-1",
    ]
    living = f".0.1.0.staging-{parent}-{start_time(parent)}"
    for name in (*dead, living):
        (draft.parent / name).mkdir()
        (draft.parent / name / "x").write_text("x")
    notes = cut().notes
    assert sorted(notes) == sorted(f"removed {name}, left by a dead process" for name in dead)
    assert [p.name for p in draft.parent.iterdir() if ".staging-" in p.name] == [living]


def test_a_staging_folder_in_progress_is_kept(draft: Path, cut: Any) -> None:
    """A second freeze within this process, while the first has staged."""
    cut()
    (draft / "reason_template.md").write_text("other\n")
    kept: list[bool] = []

    def rival(message: str) -> None:
        if message == "publish":
            (draft / "reason_template.md").write_text("a rival's\n")
            before = sorted(p.name for p in draft.parent.glob(".*.staging-*"))
            with pytest.raises(KitError) as error:
                cut()
            assert error.value.code == "freeze.busy"
            kept.append(before == sorted(p.name for p in draft.parent.glob(".*.staging-*")) != [])

    assert cut(progress=rival).version == "0.1.1"
    assert kept == [True]
    assert not list(draft.parent.glob(".*.staging-*"))
