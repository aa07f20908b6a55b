"""Carrying a version: the same bytes each time, and nothing hostile gets in."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kit import files
from kit.bundle import activations
from kit.bundle.archive import MAX_BYTES, MAX_FILES, export_version, import_archive
from kit.bundle.freeze import FrozenVersion, freeze
from kit.bundle.lint import lint
from kit.bundle.registry import activate, read_index
from kit.bundle.verify import verify
from kit.clock import FixedClock
from kit.errors import BundleError, KitError, RegistryError, StorageError
from kit.workspace import Workspace, init_workspace

ID = "tiny-pullback"
TOP = f"{ID}/0.1.0"


@pytest.fixture
def archive(workspace: Workspace, frozen: FrozenVersion, tmp_path: Path) -> Path:
    """`tiny-pullback` 0.1.0 as an archive."""
    return export_version(workspace, frozen.ref, tmp_path / "x.tar.gz").path


@pytest.fixture
def other(tmp_path: Path) -> Workspace:
    """Somebody else's new workspace."""
    return init_workspace(tmp_path / "other")


def take(workspace: Workspace, archive: Path, **options: Any) -> Any:
    clock = FixedClock("2024-09-20T08:00:00+08:00")
    return import_archive(workspace, archive, who="lin", clock=clock, **options)


def everything(workspace: Workspace) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(workspace.root)): path.read_bytes() if path.is_file() else None
        for path in workspace.root.rglob("*")
        if workspace.runs not in (path, *path.parents)
    }


def test_a_version_gives_the_same_bytes_wherever_it_stands(
    workspace: Workspace, frozen: FrozenVersion, archive: Path, tmp_path: Path
) -> None:
    twin = Workspace(Path(shutil.copytree(workspace.root, tmp_path / "twin")))
    for path in twin.strategies.rglob("*"):
        os.utime(path, (1_600_000_000, 1_600_000_000))
    files.set_writable(twin.strategies / ID / "0.1.0")
    again = export_version(twin, ID, tmp_path / "y.tgz")
    assert again.path.read_bytes() == archive.read_bytes()
    assert again.sha256 == files.sha256_file(archive)
    with tarfile.open(archive) as tar:
        members = tar.getmembers()
    names = [member.name for member in members]
    there = [p for p in frozen.root.rglob("*") if p.is_file()]
    assert names == sorted(f"{TOP}/{p.relative_to(frozen.root).as_posix()}" for p in there)
    assert {(m.uid, m.gid, m.uname, m.gname, m.mode, m.isreg()) for m in members} == {
        (0, 0, "", "", 0o444, True)
    }
    assert len({member.mtime for member in members}) == 1


def test_the_record_says_what_the_archive_is(archive: Path) -> None:
    record = json.loads(archive.with_name("x.artifact.json").read_text("utf-8"))
    assert record == {
        "type": "custom",
        "subtype": "strategy_skill",
        "name": "x.tar.gz",
        "metadata": {
            "strategy_id": ID,
            "version": "0.1.0",
            "skill_md_path": "SKILL.md",
            "manifest_path": "manifest.json",
        },
    }


def test_tar_and_sha256sum_suffice_to_unpack_and_check(archive: Path, tmp_path: Path) -> None:
    place = tmp_path / "by-hand"
    place.mkdir()
    subprocess.run(["tar", "xzf", str(archive), "-C", str(place)], check=True)
    subprocess.run(
        ["sha256sum", "-c", "--quiet", "--strict", "checksums.txt"], check=True, cwd=place / TOP
    )


def test_what_is_no_intact_version_is_not_exported(
    workspace: Workspace, frozen: FrozenVersion, tmp_path: Path
) -> None:
    target = tmp_path / "x.tar.gz"
    with pytest.raises(KitError, match="draft") as error:
        export_version(workspace, f"{ID}@draft", target)
    assert error.value.code == "bundle.is_draft"
    files.set_writable(frozen.root)
    (frozen.root / "SKILL.md").write_text("x")
    with pytest.raises(BundleError) as error:
        export_version(workspace, frozen.ref, target)
    assert error.value.code == "bundle.tampered"
    assert not target.exists()


def test_a_version_lands_inactive_and_verifies(
    other: Workspace, frozen: FrozenVersion, archive: Path
) -> None:
    taken = take(other, archive)
    assert (taken.ref, taken.landed, taken.digest) == (frozen.ref, True, frozen.digest)
    assert taken.root == other.strategies / ID / "0.1.0"
    for path in frozen.root.rglob("*"):
        twin = taken.root / path.relative_to(frozen.root)
        assert twin.stat().st_mode == path.stat().st_mode
        assert path.is_dir() or twin.read_bytes() == path.read_bytes()
    strategy = read_index(other).strategies[ID]
    assert strategy.latest_active_version is None
    assert [(v.version, v.is_active, v.digest) for v in strategy.versions] == [
        ("0.1.0", False, frozen.digest)
    ]
    (event,) = activations.read(other.strategies / ID)
    assert (event.event, event.who, event.why) == ("adopt", "lin", "imported from x.tar.gz")
    assert verify(other).rows == ()
    assert lint(taken.root, draft=False) == []
    activate(other, ID, "0.1.0", who="lin", why="", clock=FixedClock("2024-09-20T09:00:00+08:00"))
    # And out again: the same archive.
    again = export_version(other, ID, archive.with_name("again.tar.gz"))
    assert again.path.read_bytes() == archive.read_bytes()


def test_the_same_version_again_changes_nothing(other: Workspace, archive: Path) -> None:
    take(other, archive)
    before = everything(other)
    again = take(other, archive)
    assert not again.landed
    assert again.notes == ("the very same version is here already",)
    assert everything(other) == before


def test_a_dry_run_checks_and_takes_nothing(other: Workspace, archive: Path) -> None:
    before = everything(other)
    assert not take(other, archive, dry_run=True).landed
    assert everything(other) == before


def test_other_content_under_the_same_name_is_refused(
    other: Workspace, builder: ModuleType, clock: FixedClock, tmp_path: Path, archive: Path
) -> None:
    take(other, archive)
    elsewhere = init_workspace(tmp_path / "third")
    (builder.make_draft(elsewhere) / "reason_template.md").write_text("other\n")
    freeze(elsewhere, ID, checks=builder.passing_checks(), clock=clock)
    rival = export_version(elsewhere, f"{ID}@0.1.0", tmp_path / "rival.tar.gz").path
    before = everything(other)
    with pytest.raises(RegistryError, match="other content") as error:
        take(other, rival)
    assert error.value.code == "archive.conflict"
    # Nor does it come in when only the directory is gone: what was recorded counts.
    files.remove_tree(other.strategies / ID / "0.1.0")
    with pytest.raises(RegistryError) as error:
        take(other, rival)
    assert error.value.code == "registry.digest_mismatch"
    assert not (other.strategies / ID / "0.1.0").exists()
    take(other, archive)
    after = everything(other)
    log = f"strategies/{ID}/activations.jsonl"
    assert {k: v for k, v in after.items() if k not in {log, "INDEX.json"}} == {
        k: v for k, v in before.items() if k not in {log, "INDEX.json"}
    }


def test_a_lost_active_version_comes_back_active(
    workspace: Workspace, frozen: FrozenVersion, archive: Path
) -> None:
    files.remove_tree(frozen.root)
    assert not verify(workspace).ok
    take(workspace, archive)
    assert verify(workspace).rows == ()
    assert read_index(workspace).strategies[ID].latest_active_version == "0.1.0"


# What does not come in


def members(archive: Path) -> list[tuple[tarfile.TarInfo, bytes]]:
    with tarfile.open(archive) as tar:
        return [(m, f.read() if (f := tar.extractfile(m)) else b"") for m in tar.getmembers()]


def pack(target: Path, content: list[tuple[tarfile.TarInfo, bytes]]) -> Path:
    with tarfile.open(target, "w:gz") as tar:
        for member, data in content:
            tar.addfile(member, io.BytesIO(data) if member.isreg() else None)
    return target


def plain(name: str, data: bytes = b"x") -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    return member, data


def special(name: str, kind: bytes, target: str = "") -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member, b""


def renamed(content: Any, change: Callable[[str], str]) -> Any:
    for member, _ in content:
        member.name = change(member.name)
    return content


def changed(content: Any, name: str, data: bytes) -> Any:
    return [plain(m.name, data) if m.name.endswith(name) else (m, d) for m, d in content]


def without(content: Any, name: str) -> Any:
    return [(m, d) for m, d in content if not m.name.endswith(name)]


def undated(content: Any) -> Any:
    (old,) = (d for m, d in content if m.name == f"{TOP}/manifest.json")
    manifest = json.loads(old)
    del manifest["provenance"]["created_at"]
    return changed(content, f"{TOP}/manifest.json", json.dumps(manifest).encode())


def summed(content: Any) -> Any:
    """Forge checksums that fit what is there."""
    kept = without(content, "checksums.txt")
    lines = sorted((m.name.removeprefix(f"{TOP}/"), hashlib.sha256(d).hexdigest()) for m, d in kept)
    text = "".join(f"{digest}  {name}\n" for name, digest in lines)
    return [*kept, plain(f"{TOP}/checksums.txt", text.encode())]


Forge = Callable[[list[tuple[tarfile.TarInfo, bytes]]], list[tuple[tarfile.TarInfo, bytes]]]

HOSTILE: dict[str, tuple[Forge, str]] = {
    "up": (lambda c: [*c, plain(f"{TOP}/../../../evil")], "archive.member"),
    "up-first": (lambda c: [plain("../evil"), *c], "archive.member"),
    "absolute": (lambda c: [*c, plain("/tmp/evil")], "archive.member"),
    "dot": (lambda c: [*c, plain(f"{TOP}/./evil")], "archive.member"),
    "empty-part": (lambda c: [*c, plain(f"{TOP}//evil")], "archive.member"),
    "backslash": (lambda c: [*c, plain(f"{TOP}/..\\..\\evil")], "archive.member"),
    "drive": (lambda c: [*c, plain("C:/evil")], "archive.member"),
    "control": (lambda c: [*c, plain(f"{TOP}/a\x1bb")], "archive.member"),
    "line-break": (lambda c: [*c, plain(f"{TOP}/a\nb")], "archive.member"),
    "symlink": (
        lambda c: [*c, special(f"{TOP}/x", tarfile.SYMTYPE, "/etc/passwd")], "archive.member"),
    "link-then-through": (
        lambda c: [*c, special(f"{TOP}/x", tarfile.SYMTYPE, "/tmp"), plain(f"{TOP}/x/evil")],
        "archive.member"),
    "hard-link": (
        lambda c: [*c, special(f"{TOP}/x", tarfile.LNKTYPE, f"{TOP}/SKILL.md")],
        "archive.member"),
    "device": (lambda c: [*c, special(f"{TOP}/x", tarfile.CHRTYPE)], "archive.member"),
    "pipe": (lambda c: [*c, special(f"{TOP}/x", tarfile.FIFOTYPE)], "archive.member"),
    "deep": (lambda c: [*c, plain(f"{TOP}/{'a/' * 1500}x")], "archive.member"),
    "long-name": (lambda c: [*c, plain(f"{TOP}/{'a' * 300}")], "archive.member"),
    "no-changelog": (lambda c: summed(without(c, "CHANGELOG.md")), "archive.member"),
    "no-date": (lambda c: summed(undated(c)), "archive.root"),
    "twice": (lambda c: [*c, plain(f"{TOP}/SKILL.md")], "archive.member"),
    "case-twin": (lambda c: [*c, plain(f"{TOP}/skill.md")], "archive.member"),
    "folder-twin": (lambda c: [*c, plain(f"{TOP}/Code/x.py")], "archive.member"),
    "composed-twin": (
        lambda c: [*c, plain(f"{TOP}/é.md"), plain(f"{TOP}/é.md")], "archive.member"),
    "below-a-file": (lambda c: [*c, plain(f"{TOP}/SKILL.md/x")], "archive.member"),
    "many": (lambda c: [plain(f"{TOP}/{n}") for n in range(MAX_FILES + 1)], "archive.too_large"),
    "empty": (lambda c: [], "archive.root"),
    "top-file": (lambda c: [*c, plain("README.md")], "archive.root"),
    "file-as-root": (lambda c: [plain(TOP)], "archive.root"),
    "file-beside": (lambda c: [*c, plain(f"{ID}/README.md")], "archive.root"),
    "two-versions": (lambda c: [*c, plain(f"{ID}/0.2.0/SKILL.md")], "archive.root"),
    "flat": (lambda c: renamed(c, lambda n: n.removeprefix(f"{TOP}/")), "archive.root"),
    "no-version": (lambda c: renamed(c, lambda n: n.replace("0.1.0", "draft")), "archive.root"),
    "loose-version": (lambda c: renamed(c, lambda n: n.replace("0.1.0", "v1")), "archive.root"),
    "chinese-id": (lambda c: renamed(c, lambda n: n.replace(ID, "回踩年线")), "archive.root"),
    "upper-case-id": (lambda c: renamed(c, str.upper), "archive.root"),
    "other-id": (lambda c: renamed(c, lambda n: n.replace(ID, "other-one")), "archive.root"),
    "other-version": (
        lambda c: renamed(c, lambda n: n.replace("0.1.0", "0.2.0")), "bundle.version_mismatch"),
    "changed": (lambda c: changed(c, "SKILL.md", b"x"), "bundle.tampered"),
    "missing": (lambda c: c[:-1], "bundle.tampered"),
    "extra": (lambda c: [*c, plain(f"{TOP}/extra.md")], "bundle.tampered"),
    "no-checksums": (
        lambda c: [x for x in c if "checksums" not in x[0].name], "bundle.missing_file"),
    "bad-checksums": (lambda c: changed(c, "checksums.txt", b"x\n"), "bundle.bad_checksums"),
    "temporary": (lambda c: [*c, plain(f"{TOP}/.x.1.tmp")], "archive.member"),
    "bytecode": (lambda c: [*c, plain(f"{TOP}/__pycache__/x.pyc")], "archive.member"),
}  # fmt: skip


@pytest.mark.parametrize("name", list(HOSTILE))
def test_a_hostile_archive_changes_nothing(
    other: Workspace, archive: Path, tmp_path: Path, name: str
) -> None:
    forge, code = HOSTILE[name]
    hostile = pack(tmp_path / "hostile.tar.gz", forge(members(archive)))
    before = everything(other)
    around = set(tmp_path.iterdir())
    with pytest.raises(KitError) as error:
        take(other, hostile, dry_run=True)
    assert error.value.code == code
    with pytest.raises(KitError) as error:
        take(other, hostile)
    assert error.value.code == code
    assert error.value.remedy
    assert "hostile.tar.gz" in error.value.where
    assert everything(other) == before
    assert set(tmp_path.iterdir()) == around


def test_bombs_are_not_unpacked(other: Workspace, archive: Path, tmp_path: Path) -> None:
    bomb = tmp_path / "bomb.tar.gz"
    with gzip.open(bomb, "wb", compresslevel=9) as stream:
        for _ in range(200):
            stream.write(bytes(1 << 20))
    assert bomb.stat().st_size < 1 << 20
    huge = tmp_path / "huge.tar.gz"
    with huge.open("wb") as stream:
        stream.truncate(MAX_BYTES + 1)
    # A member that says it is larger than the archive could ever be.
    member, _ = plain(f"{TOP}/x")
    member.size = 1 << 40
    claims = tmp_path / "claims.tar.gz"
    claims.write_bytes(gzip.compress(member.tobuf() + bytes(1024)))
    for path in (bomb, huge, claims):
        with pytest.raises(BundleError) as error:
            take(other, path)
        assert error.value.code == "archive.too_large"


def test_what_is_no_archive_is_named(other: Workspace, archive: Path, tmp_path: Path) -> None:
    whole = archive.read_bytes()
    path = tmp_path / "y.tar.gz"
    for data in (b"", b"x", whole[:100], whole[:-9], whole + b"x", gzip.compress(b"no tar here")):
        path.write_bytes(data)
        with pytest.raises(KitError) as error:
            take(other, path)
        assert error.value.code in {"archive.unreadable", "archive.root"}
    with pytest.raises(KitError) as error:
        take(other, tmp_path / "nowhere.tar.gz")
    assert error.value.code == "file.missing"


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.data())
def test_any_damage_is_an_error_of_ours_or_harmless(
    other: Workspace, archive: Path, tmp_path: Path, data: st.DataObject
) -> None:
    """Bits flipped and ends cut, of the packed file and of the tar inside it."""
    inner = data.draw(st.booleans())
    whole = gzip.decompress(archive.read_bytes()) if inner else archive.read_bytes()
    broken = bytearray(whole[: data.draw(st.integers(0, len(whole)))] or whole)
    # Headers are where a parser is led astray; most bytes are content.
    header = 512 * data.draw(st.integers(0, len(broken) // 512))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(header, header + 511))
        if at < len(broken):
            broken[at] = data.draw(st.integers(0, 255))
    path = tmp_path / "z.tar.gz"
    path.write_bytes(gzip.compress(bytes(broken)) if inner else bytes(broken))
    before = everything(other)
    try:
        taken = take(other, path, dry_run=True)
    except KitError:
        pass
    else:
        assert taken.digest  # what was damaged is no part of the content: a date, a mode, an owner
    assert everything(other) == before


def test_a_full_disk_at_any_operation_changes_nothing(
    other: Workspace, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = everything(other)
    failed = 0
    for step in range(1, 200):
        monkeypatch.setenv("KIT_NO_SPACE_AT", str(files.count_operations() + step))
        try:
            take(other, archive)
        except StorageError:
            failed += 1
            assert everything(other) == before
        else:
            break
    assert failed > 20
    monkeypatch.delenv("KIT_NO_SPACE_AT")
    assert verify(other).rows == ()


def test_a_version_that_a_kill_left_unlisted_is_listed_by_the_next_import(
    other: Workspace, archive: Path
) -> None:
    before = other.index_path.read_bytes()
    root = take(other, archive).root
    # As after a kill between the rename and the log, or between the log and the index.
    for log in (None, (root.parent / activations.FILE).read_bytes()):
        (root.parent / activations.FILE).unlink()
        if log is not None:
            (root.parent / activations.FILE).write_bytes(log)
        other.index_path.write_bytes(before)
        assert verify(other).rows
        again = take(other, archive)
        assert not again.landed
        assert any("rebuilt" in note for note in again.notes)
        assert verify(other).rows == ()
        assert read_index(other).strategies[ID].version("0.1.0")


def test_an_id_that_differs_by_case_only_is_taken(other: Workspace, archive: Path) -> None:
    (other.strategies / ID.upper()).mkdir()
    with pytest.raises(RegistryError) as error:
        take(other, archive)
    assert error.value.code == "draft.id_taken"


def test_a_tampered_version_in_the_way_is_named(other: Workspace, archive: Path) -> None:
    root = take(other, archive).root
    files.set_writable(root)
    (root / "SKILL.md").write_text("x")
    with pytest.raises(BundleError, match=r"SKILL\.md \(changed\)") as error:
        take(other, archive)
    assert error.value.code == "bundle.tampered"
