from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kit import files
from kit.bundle import activations, registry
from kit.bundle.disagreements import index_findings
from kit.bundle.freeze import FrozenVersion
from kit.bundle.model import resolve
from kit.bundle.rebuild import rebuild
from kit.bundle.registry import activate, list_strategies, read_index, retire, show
from kit.bundle.verify import verify
from kit.clock import FixedClock
from kit.errors import BundleError, KitError, RegistryError, StorageError
from kit.workspace import Workspace


@pytest.fixture
def two(
    draft: Path, cut: Callable[..., FrozenVersion], clock: FixedClock
) -> tuple[FrozenVersion, FrozenVersion]:
    """0.1.0, active, and 0.1.1 cut an hour later."""
    first = cut(activate=True)
    clock.sleep(3600)
    (draft / "reason_template.md").write_text("other\n")
    return first, cut()


def index_of(workspace: Workspace) -> Any:
    return json.loads(workspace.index_path.read_text("utf-8"))


def test_the_index_lists_versions_newest_first(
    workspace: Workspace, two: tuple[FrozenVersion, FrozenVersion]
) -> None:
    entry = index_of(workspace)["strategies"]["tiny-pullback"]
    assert entry["latest_active_version"] == "0.1.0"
    assert [(v["version"], v["is_active"]) for v in entry["all_versions"]] == [
        ("0.1.1", False),
        ("0.1.0", True),
    ]
    assert [v["created_at"] for v in entry["all_versions"]] == [
        "2024-09-19T09:40:00+00:00",
        "2024-09-19T08:40:00+00:00",
    ]
    assert entry["all_versions"][1]["digest"] == two[0].digest
    assert entry["all_versions"][0]["channel"] is None


def test_activation_writes_who_when_why(
    workspace: Workspace, two: tuple[FrozenVersion, FrozenVersion], clock: FixedClock
) -> None:
    activate(workspace, "tiny-pullback", "0.1.1", who="lin", why="新模板", clock=clock)
    assert resolve(workspace, "tiny-pullback").version == "0.1.1"
    activate(workspace, "tiny-pullback", "0.1.0", who="lin", why="回滚", clock=clock)
    retire(workspace, "tiny-pullback", who="lin", why="停用", clock=clock)
    strategy, log = show(workspace, "tiny-pullback")
    assert strategy.latest_active_version is None
    assert not any(entry.is_active for entry in strategy.versions)
    assert [(e.event, e.version, e.who, e.why) for e in log[-3:]] == [
        ("activate", "0.1.1", "lin", "新模板"),
        ("activate", "0.1.0", "lin", "回滚"),
        ("retire", "0.1.0", "lin", "停用"),
    ]
    assert log[-1].ts == "2024-09-19T09:40:00+00:00"
    with pytest.raises(RegistryError) as error:
        retire(workspace, "tiny-pullback", who="lin", why="", clock=clock)
    assert error.value.code == "registry.no_active"
    assert index_findings(workspace) == []


@pytest.mark.parametrize(
    ("id_", "version", "code"),
    [
        ("tiny-pulback", "0.1.0", "registry.unknown_id"),
        ("tiny-pullback", "0.2.0", "registry.unknown_version"),
        ("tiny-pullback", "0.2", "bundle.bad_version"),
        ("../x", "0.1.0", "bundle.bad_id"),
    ],
)
def test_only_what_exists_is_activated(
    workspace: Workspace,
    frozen: FrozenVersion,
    clock: FixedClock,
    id_: str,
    version: str,
    code: str,
) -> None:
    with pytest.raises(KitError) as error:
        activate(workspace, id_, version, who="lin", why="", clock=clock)
    assert error.value.code == code


def test_a_tampered_version_is_not_activated(
    workspace: Workspace, two: tuple[FrozenVersion, FrozenVersion], clock: FixedClock
) -> None:
    path = two[1].root / "SKILL.md"
    path.chmod(0o644)
    path.write_text("x")
    with pytest.raises(BundleError, match=r"SKILL\.md"):
        activate(workspace, "tiny-pullback", "0.1.1", who="lin", why="", clock=clock)
    assert resolve(workspace, "tiny-pullback").version == "0.1.0"


def test_drafts_are_listed_too(
    workspace: Workspace, frozen: FrozenVersion, make_draft: Any
) -> None:
    make_draft(workspace, "another-one")
    found = list_strategies(workspace)["strategies"]
    assert list(found) == ["another-one", "tiny-pullback"]
    assert found["another-one"] == {
        "latest_active_version": None,
        "all_versions": [],
        "has_draft": True,
    }
    assert found["tiny-pullback"]["has_draft"]
    assert found["tiny-pullback"]["latest_active_version"] == "0.1.0"


def test_a_rebuild_gives_the_identical_bytes(
    workspace: Workspace, two: tuple[FrozenVersion, FrozenVersion], clock: FixedClock
) -> None:
    activate(workspace, "tiny-pullback", "0.1.1", who="lin", why="", clock=clock)
    before = workspace.index_path.read_bytes()
    log = (two[0].root.parent / activations.FILE).read_bytes()
    workspace.index_path.unlink()
    outcome = rebuild(workspace, who="lin", clock=clock)
    assert outcome.notes == ()
    assert workspace.index_path.read_bytes() == before
    assert (two[0].root.parent / activations.FILE).read_bytes() == log
    assert rebuild(workspace, who="lin", clock=clock).index == outcome.index


def test_a_rebuild_adopts_a_version_without_a_record(
    workspace: Workspace, two: tuple[FrozenVersion, FrozenVersion], clock: FixedClock
) -> None:
    folder = two[0].root.parent
    before = index_of(workspace)["strategies"]
    log = folder / activations.FILE
    kept = [
        line for line in log.read_text("utf-8").splitlines(keepends=True) if "0.1.1" not in line
    ]
    log.write_text("".join(kept), "utf-8")
    index = index_of(workspace)
    index["strategies"]["tiny-pullback"]["all_versions"].pop(0)
    files.write_json(workspace.index_path, index)
    two[1].root.chmod(0o755)
    assert {f.rule for f in index_findings(workspace)} == {
        "registry.unlisted",
        "registry.no_record",
    }
    with pytest.raises(RegistryError) as error:
        resolve(workspace, "tiny-pullback@0.1.1")
    assert error.value.code == "registry.unlisted"
    outcome = rebuild(workspace, who="lin", clock=clock)
    assert outcome.notes == ("tiny-pullback@0.1.1: no record of it; adopted",)
    assert index_of(workspace)["strategies"] == before
    assert activations.read(folder)[-1].event == "adopt"
    assert verify(workspace).rows == ()


def test_a_rebuild_refuses_another_digest(
    workspace: Workspace, frozen: FrozenVersion, clock: FixedClock
) -> None:
    log = frozen.root.parent / activations.FILE
    log.write_text(log.read_text("utf-8").replace(frozen.digest, "0" * 64), "utf-8")
    before = workspace.index_path.read_bytes()
    with pytest.raises(RegistryError) as error:
        rebuild(workspace, who="lin", clock=clock)
    assert error.value.code == "registry.digest_mismatch"
    assert workspace.index_path.read_bytes() == before


def test_a_later_record_cannot_legitimise_another_digest(
    workspace: Workspace, frozen: FrozenVersion, clock: FixedClock
) -> None:
    log = frozen.root.parent / activations.FILE
    forged = activations.Activation(
        ts="2024-09-20T00:00:00+00:00", event="adopt", version="0.1.0", who="x", digest="0" * 64
    )
    activations.write(frozen.root.parent, [forged])
    assert rebuild(workspace, who="lin", clock=clock).notes == ()
    assert log.read_text("utf-8").count("\n") == 3


def test_a_rebuild_refuses_tampered_and_lost_versions(
    workspace: Workspace, two: tuple[FrozenVersion, FrozenVersion], clock: FixedClock
) -> None:
    path = two[1].root / "SKILL.md"
    path.chmod(0o644)
    good = path.read_bytes()
    path.write_bytes(b"x")
    with pytest.raises(BundleError):
        rebuild(workspace, who="lin", clock=clock)
    path.write_bytes(good)
    files.remove_tree(two[0].root)
    with pytest.raises(RegistryError) as error:
        rebuild(workspace, who="lin", clock=clock)
    assert error.value.code == "registry.version_lost"


def test_a_lost_version_that_never_was_active_is_noted(
    workspace: Workspace, two: tuple[FrozenVersion, FrozenVersion], clock: FixedClock
) -> None:
    files.remove_tree(two[1].root)
    assert {f.rule for f in index_findings(workspace)} == {"registry.no_directory"}
    assert rebuild(workspace, who="lin", clock=clock).notes == (
        "tiny-pullback@0.1.1: recorded, but there is no directory",
    )


def _set(*keys: Any, value: Any) -> Callable[[Any], None]:
    def do(index: Any) -> None:
        node = index["strategies"]["tiny-pullback"]
        for key in keys[:-1]:
            node = node[key]
        node[keys[-1]] = value

    return do


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (_set("latest_active_version", value="0.1.1"), "registry.active"),
        (_set("all_versions", 0, "is_active", value=True), "registry.active"),
        (_set("all_versions", 1, "is_active", value=False), "registry.active"),
        (_set("all_versions", 0, "digest", value="0" * 64), "registry.digest"),
        (_set("all_versions", 0, "channel", value="community"), "registry.channel"),
        (
            _set("all_versions", 0, "created_at", value="2020-01-01T00:00:00Z"),
            "registry.created_at",
        ),
        (lambda i: i["strategies"]["tiny-pullback"]["all_versions"].reverse(), "registry.order"),
        (lambda i: i["strategies"]["tiny-pullback"]["all_versions"].pop(), "registry.unlisted"),
        (lambda i: i["strategies"].pop("tiny-pullback"), "registry.unlisted"),
        (
            lambda i: i["strategies"]["tiny-pullback"]["all_versions"].insert(
                0, {**i["strategies"]["tiny-pullback"]["all_versions"][0], "version": "0.9.0"}
            ),
            "registry.no_directory",
        ),
    ],
)
def test_an_index_that_disagrees_is_found_and_rebuilt(
    workspace: Workspace,
    two: tuple[FrozenVersion, FrozenVersion],
    clock: FixedClock,
    change: Callable[[Any], Any],
    rule: str,
) -> None:
    before = index_of(workspace)
    index = index_of(workspace)
    change(index)
    files.write_json(workspace.index_path, index)
    found = index_findings(workspace)
    assert rule in {finding.rule for finding in found}
    assert all(finding.message and finding.mend for finding in found)
    assert not verify(workspace).ok
    rebuild(workspace, who="lin", clock=clock)
    assert index_of(workspace) == before
    assert index_findings(workspace) == []


def test_strays_are_named(workspace: Workspace, frozen: FrozenVersion, make_draft: Any) -> None:
    folder = frozen.root.parent
    for name in ("v0.2.0", "0.1", "0.1.0-rc1", "最新", ".0.2.0.staging-1"):
        (folder / name).mkdir()
    (folder / "0.9.0").symlink_to("0.1.0")
    make_draft(workspace, "TINY-pullback")
    found = {(f.rule, Path(f.path).name) for f in index_findings(workspace)}
    assert {
        ("registry.stray", "v0.2.0"),
        ("registry.stray", "0.1"),
        ("registry.stray", "0.1.0-rc1"),
        ("registry.stray", "最新"),
        ("registry.staging", ".0.2.0.staging-1"),
        ("registry.symlink", "0.9.0"),
        ("registry.case", "tiny-pullback"),
    } <= found


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (None, "registry.missing"),
        ("{", "registry.bad_index"),
        ("[]", "registry.bad_index"),
        (
            '{"schema_version": "1.0", "updated_at": null, "strategies": {"a": {}}}',
            "registry.bad_index",
        ),
        ('{"schema_version": "1.0", "schema_version": "1.0"}', "registry.bad_index"),
    ],
)
def test_an_unreadable_index_says_how_to_rebuild_it(
    workspace: Workspace, content: str | None, code: str
) -> None:
    if content is None:
        workspace.index_path.unlink()
    else:
        workspace.index_path.write_text(content)
    with pytest.raises(RegistryError) as error:
        read_index(workspace)
    assert error.value.code == code
    assert error.value.where.startswith("INDEX.json")
    assert "kit registry rebuild" in error.value.remedy
    assert [f.rule for f in index_findings(workspace)] == ["registry.index"]


def test_keys_of_a_newer_kit_are_kept(
    workspace: Workspace, two: tuple[FrozenVersion, FrozenVersion], clock: FixedClock
) -> None:
    index = index_of(workspace)
    index["strategies"]["tiny-pullback"]["tags"] = ["x"]
    index["strategies"]["tiny-pullback"]["all_versions"][0]["new"] = 1
    files.write_json(workspace.index_path, index)
    activate(workspace, "tiny-pullback", "0.1.1", who="lin", why="", clock=clock)
    entry = index_of(workspace)["strategies"]["tiny-pullback"]
    assert entry["tags"] == ["x"]
    assert entry["all_versions"][0]["new"] == 1


@pytest.mark.parametrize("line", ["{", "[]", '{"ts": "x"}', '{"event": "freeze"}'])
def test_a_bad_log_is_named_by_line(workspace: Workspace, frozen: FrozenVersion, line: str) -> None:
    log = frozen.root.parent / activations.FILE
    log.write_text(log.read_text("utf-8") + line + "\n", "utf-8")
    with pytest.raises(RegistryError) as error:
        activations.read(frozen.root.parent)
    assert error.value.code == "registry.bad_activations"
    assert error.value.where == "tiny-pullback/activations.jsonl:3"
    assert "registry.activations" in {f.rule for f in index_findings(workspace)}


def test_a_full_disk_leaves_log_and_index_as_they_were(
    workspace: Workspace,
    two: tuple[FrozenVersion, FrozenVersion],
    clock: FixedClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = two[0].root.parent / activations.FILE
    before = (workspace.index_path.read_bytes(), log.read_bytes())
    codes = set()
    for step in range(1, 20):
        monkeypatch.setenv("KIT_NO_SPACE_AT", str(files.count_operations() + step))
        try:
            activate(workspace, "tiny-pullback", "0.1.1", who="lin", why="", clock=clock)
        except StorageError as error:
            codes.add(error.code)
            assert (workspace.index_path.read_bytes(), log.read_bytes()) == before
        else:
            break
    assert step > 3
    assert codes == {"file.no_space"}
    assert resolve(workspace, "tiny-pullback").version == "0.1.1"


def test_the_lock_is_waited_for_and_then_named(workspace: Workspace) -> None:
    with (
        registry.locked(workspace),
        pytest.raises(StorageError) as error,
        registry.locked(workspace, timeout=0.05),
    ):
        pass
    assert error.value.code == "file.locked"
