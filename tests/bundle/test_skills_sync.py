"""Copies of active versions for agents: compliant, idempotent, and never over somebody's work."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from kit.bundle import activate, retire
from kit.bundle.skills_sync import TARGETS, sync_skills, target_folder
from kit.clock import FixedClock
from kit.errors import GuardError, UsageError
from kit.workspace import Workspace

ID = "ma250-pullback"
AUTHOR = "strategy-skill-author"


@pytest.fixture
def desk(tmp_path: Path, copy_repository: Callable[[Path], Workspace]) -> Workspace:
    return copy_repository(tmp_path / "desk")


def state(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {
        path.relative_to(folder).as_posix(): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    }


def states(workspace: Workspace, target: str, **options: bool) -> dict[str, str]:
    return {c.name: c.state for c in sync_skills(workspace, target, **options).copies}


@pytest.mark.parametrize("target", [*TARGETS, "DIR"])
def test_every_copy_is_a_valid_agent_skill(desk: Workspace, tmp_path: Path, target: str) -> None:
    target = str(tmp_path / "skills") if target == "DIR" else target
    done = sync_skills(desk, target)
    assert done.ok
    assert done.folder == target_folder(desk, target)
    validator = Path(sys.executable).with_name("agentskills")
    for copy in done.copies:
        root = done.folder / copy.name
        checked = subprocess.run(
            [validator, "validate", root], capture_output=True, text=True, timeout=60, check=False
        )
        assert checked.returncode == 0, checked.stdout + checked.stderr
        assert not any(path.is_symlink() for path in root.rglob("*"))
    assert {copy.name for copy in done.copies} >= {ID, AUTHOR}


def test_the_copy_says_what_it_is_and_carries_everything(desk: Workspace) -> None:
    root = sync_skills(desk, "claude").folder / ID
    version = desk.strategies / ID / "0.3.1"
    text = (root / "SKILL.md").read_text("utf-8")
    head, body = text.removeprefix("---\n").split("\n---\n", 1)
    lines = head.split("\n")
    assert lines[0] == f"name: {ID}"
    assert lines[1].startswith("description: Pullback to the 250-day line")
    assert lines[2:] == ["metadata:", "  version: 0.3.1", "  category: strategy"]
    assert '"' not in head
    assert f"{ID}@0.3.1" in body.split("# ", 1)[0]
    assert "Check the lock first" in body.split("# ", 1)[0]
    assert body.endswith((version / "SKILL.md").read_text("utf-8").split("\n---\n", 1)[1].lstrip())
    # Every other file is the version's own, byte for byte; its checksums hold for the copy.
    names = {p.relative_to(version).as_posix() for p in version.rglob("*") if p.is_file()}
    copied = {p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file()}
    assert copied == names | {".kit-skill.json"}
    for name in names - {"SKILL.md", "checksums.txt"}:
        assert (root / name).read_bytes() == (version / name).read_bytes()
    subprocess.run(
        ["sha256sum", "--quiet", "-c", "checksums.txt"], cwd=root, timeout=30, check=True
    )


def test_the_agents_target_declares_what_it_depends_on(desk: Workspace) -> None:
    folder = sync_skills(desk, "agents").folder
    value = yaml.safe_load((folder / ID / "agents" / "openai.yaml").read_text("utf-8"))
    assert 25 <= len(value["interface"]["short_description"]) <= 64
    assert f"${ID}" in value["interface"]["default_prompt"]
    (tool,) = value["dependencies"]["tools"]
    assert (tool["type"], tool["value"]) == ("mcp", "trading-data-cn")
    assert "get_bars, get_security_meta" in tool["description"]
    assert not (sync_skills(desk, "claude").folder / ID / "agents").exists()


def test_the_authoring_skill_comes_without_skills_inside(desk: Workspace) -> None:
    root = sync_skills(desk, "claude").folder / AUTHOR
    assert list(root.rglob("SKILL.md")) == [root / "SKILL.md"]
    for line in (root / "SKILL.md").read_text("utf-8").splitlines():
        for name in ("code", "prompts", "manifest", "checks"):
            if f"references/{name}.md" in line:
                assert (root / "references" / f"{name}.md").is_file()


def test_a_second_run_changes_no_byte_and_no_time(desk: Workspace) -> None:
    folder = sync_skills(desk, "claude").folder
    before = state(folder)
    assert set(states(desk, "claude").values()) == {"unchanged"}
    assert state(folder) == before


def test_another_version_replaces_and_a_retired_one_goes(
    desk: Workspace, clock: FixedClock
) -> None:
    folder = sync_skills(desk, "opencode").folder
    mine = folder / "mine"
    mine.mkdir()
    (mine / "SKILL.md").write_text("mine", "utf-8")
    activate(desk, ID, "0.3.0", who="t", why="t", clock=clock)
    assert states(desk, "opencode", dry_run=True)[ID] == "updated"
    assert "version: 0.3.1" in (folder / ID / "SKILL.md").read_text("utf-8")
    assert states(desk, "opencode")[ID] == "updated"
    assert "version: 0.3.0" in (folder / ID / "SKILL.md").read_text("utf-8")
    retire(desk, ID, who="t", why="t", clock=clock)
    assert states(desk, "opencode", dry_run=True)[ID] == "removed"
    assert (folder / ID).is_dir()
    assert states(desk, "opencode")[ID] == "removed"
    assert not (folder / ID).exists()
    assert ID not in states(desk, "opencode")
    assert (mine / "SKILL.md").read_text("utf-8") == "mine"


def test_a_dry_run_makes_nothing(desk: Workspace) -> None:
    assert states(desk, "claude", dry_run=True)[ID] == "added"
    assert not (desk.root / ".claude").exists()


@pytest.mark.parametrize("kind", ["folder", "file", "link", "edited", "extra", "marker", "stolen"])
def test_what_was_not_made_here_stands_and_is_named(
    desk: Workspace, tmp_path: Path, kind: str
) -> None:
    folder = target_folder(desk, "claude")
    place = folder / ID
    if kind in {"edited", "extra", "marker", "stolen"}:
        sync_skills(desk, "claude")
    folder.mkdir(parents=True, exist_ok=True)
    if kind == "folder":
        place.mkdir()
    elif kind == "file":
        place.write_text("mine", "utf-8")
    elif kind == "link":
        (tmp_path / "elsewhere").mkdir()
        place.symlink_to(tmp_path / "elsewhere")
    elif kind == "edited":
        (place / "SKILL.md").write_text("mine", "utf-8")
    elif kind == "extra":
        (place / "notes.md").write_text("mine", "utf-8")
    elif kind == "marker":
        (place / ".kit-skill.json").write_text("{", "utf-8")
    else:
        marker = json.loads((place / ".kit-skill.json").read_text("utf-8"))
        marker["owner"] = "somebody"
        (place / ".kit-skill.json").write_text(json.dumps(marker), "utf-8")
    shutil.rmtree(folder / AUTHOR, ignore_errors=True)
    before = state(folder)
    with pytest.raises(GuardError) as refused:
        sync_skills(desk, "claude")
    assert refused.value.code == "skills.in_the_way"
    assert refused.value.details["folders"] == [str(place)]
    assert str(place) in refused.value.message
    assert state(folder) == before, "nothing was changed, not even what had room"
    assert not (folder / AUTHOR).exists()


def test_an_edited_copy_of_a_retired_strategy_is_kept_and_said(
    desk: Workspace, clock: FixedClock
) -> None:
    folder = sync_skills(desk, "claude").folder
    (folder / ID / "SKILL.md").write_text("mine", "utf-8")
    retire(desk, ID, who="t", why="t", clock=clock)
    (row,) = [c for c in sync_skills(desk, "claude").copies if c.name == ID]
    assert (row.state, row.detail) == ("kept", "was changed since it was copied")
    assert (folder / ID / "SKILL.md").read_text("utf-8") == "mine"


def test_a_tampered_version_is_not_copied_and_said(desk: Workspace) -> None:
    path = desk.strategies / ID / "0.3.1" / "SKILL.md"
    path.chmod(0o644)
    path.write_bytes(path.read_bytes() + b"\n")
    done = sync_skills(desk, "claude")
    (row,) = [copy for copy in done.copies if copy.name == ID]
    assert (row.state, done.ok) == ("refused", False)
    assert "SKILL.md" in row.detail
    assert not (done.folder / ID).exists()
    assert (done.folder / AUTHOR / "SKILL.md").is_file()


def test_two_workspaces_do_not_take_each_others_copies(
    desk: Workspace, tmp_path: Path, copy_repository: Callable[[Path], Workspace]
) -> None:
    sync_skills(desk, "vibe-trading")
    other = copy_repository(tmp_path / "other")
    with pytest.raises(GuardError) as refused:
        sync_skills(other, "vibe-trading")
    assert "another workspace" in refused.value.message
    assert str(tmp_path) not in (Path.home() / ".vibe-trading/skills/user" / ID
                                 / ".kit-skill.json").read_text("utf-8")  # fmt: skip


def test_a_killed_sync_leaves_no_half_copy(desk: Workspace) -> None:
    """Kill it at every file operation; the next one needs nobody, and the copies are whole."""
    folder = target_folder(desk, "claude")
    code = (
        "import sys; from kit.workspace import Workspace; from kit.bundle.skills_sync import "
        "sync_skills; sync_skills(Workspace.at(sys.argv[1]), 'claude')"
    )
    for at in (2, 40, 110):
        shutil.rmtree(folder, ignore_errors=True)
        environment = {**os.environ, "KIT_CRASH_AT": str(at)}
        subprocess.run(
            [sys.executable, "-c", code, str(desk.root)], env=environment, timeout=60, check=False
        )
        for path in folder.iterdir() if folder.is_dir() else ():
            if not path.name.startswith("."):
                listing = {
                    p.relative_to(path).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest()
                    for p in path.rglob("*")
                    if p.is_file() and p.name != ".kit-skill.json"
                }
                marker = json.loads((path / ".kit-skill.json").read_text("utf-8"))
                wanted = json.dumps(listing, sort_keys=True, separators=(",", ":")).encode()
                assert marker["digest"] == hashlib.sha256(wanted).hexdigest()
        assert sync_skills(desk, "claude").ok
        assert sorted(p.name for p in folder.iterdir()) == sorted({ID, AUTHOR} | set(
            states(desk, "claude")))  # fmt: skip


def test_a_target_that_is_none_is_refused(desk: Workspace) -> None:
    for name in ("claud", ""):
        with pytest.raises(UsageError) as refused:
            sync_skills(desk, name)
        assert refused.value.code == "skills.unknown_target"


@pytest.mark.parametrize(
    "description",
    ["plain words", "with: colons # and hashes", "- leading", "--- fences --- inside", "{a: b}",
     "'quoted' \"twice\"", "多行\n描述：回踩", "true", "2024-01-02", "x" * 1024, "@ at",
     "a: " * 300],
)  # fmt: skip
def test_any_description_stays_one_line_that_every_host_reads(
    workspace: Workspace,
    draft: Path,
    cut: Callable[..., object],
    description: str,
) -> None:
    path = draft / "SKILL.md"
    text = path.read_text("utf-8")
    old = next(line for line in text.split("\n") if line.startswith("description:"))
    path.write_text(text.replace(old, f"description: {json.dumps(description)}"), "utf-8")
    cut(activate=True)
    root = sync_skills(workspace, "claude").folder / "tiny-pullback"
    from skills_ref import read_properties, validate

    assert validate(root) == []
    told = read_properties(root).description
    assert told
    raw = (root / "SKILL.md").read_text("utf-8").split("\n")[2]
    if description[0].isalpha() and ":" not in description:
        assert raw == f"description: {' '.join(description.split())}"
