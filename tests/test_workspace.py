from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kit.errors import ConfigError
from kit.workspace import Workspace, copy_workspace, git_commit, init_workspace


def test_init_makes_a_workspace_that_is_found_from_below(tmp_path: Path) -> None:
    made = init_workspace(tmp_path / "desk 研究")
    below = made.root / "strategies" / "x"
    below.mkdir()
    assert Workspace.find(below) == made
    for part in ("config", "notebooks", "prompts"):
        assert any((made.root / part).rglob("*")), part
    assert made.config("markets")["markets"]


def test_init_refuses_a_workspace_and_a_full_directory(tmp_path: Path) -> None:
    made = init_workspace(tmp_path / "desk")
    with pytest.raises(ConfigError) as error:
        init_workspace(made.root)
    assert error.value.code == "workspace.exists"
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    with pytest.raises(ConfigError) as error:
        init_workspace(tmp_path / "full")
    assert error.value.code == "workspace.not_empty"
    assert [p.name for p in (tmp_path / "full").iterdir()] == ["thesis.txt"]


def test_no_workspace_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        Workspace.find(tmp_path)
    assert error.value.code == "workspace.not_found"
    assert "kit init" in error.value.remedy


def test_the_environment_names_one(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KIT_WORKSPACE", str(workspace.root))
    assert Workspace.find(tmp_path) == workspace
    monkeypatch.setenv("KIT_WORKSPACE", str(tmp_path / "gone"))
    with pytest.raises(ConfigError):
        Workspace.find(workspace.root)


def test_config_errors_name_the_file_and_the_key(workspace: Workspace) -> None:
    with pytest.raises(ConfigError) as error:
        workspace.config("nothing")
    assert (error.value.code, error.value.where) == ("config.missing", "config/nothing.json")
    path = workspace.config_dir / "markets.json"
    path.write_text('{"markets": \n}')
    with pytest.raises(ConfigError) as error:
        workspace.config("markets")
    assert (error.value.code, error.value.where) == ("config.invalid", "config/markets.json:2")
    path.write_text('{"market": {}}')
    with pytest.raises(ConfigError, match="did you mean 'markets'"):
        workspace.config("markets")


def test_copy_leaves_runs_behind(workspace: Workspace, tmp_path: Path) -> None:
    workspace.runs.mkdir()
    (workspace.runs / "secret").write_text("x")
    copy = copy_workspace(workspace, tmp_path / "scratch")
    assert not copy.runs.exists()
    assert copy.config("markets") == workspace.config("markets")


def test_a_lost_index_leaves_a_workspace_that_can_be_rebuilt(workspace: Workspace) -> None:
    workspace.index_path.unlink()
    assert Workspace.find(workspace.strategies) == workspace


def test_init_brings_the_examples_along(tmp_path: Path) -> None:
    made = init_workspace(tmp_path / "desk", examples=True)
    versions = sorted(path.name for path in (made.strategies / "ma250-pullback").glob("[0-9]*"))
    assert versions[:2] == ["0.3.0", "0.3.1"]
    assert not list(made.root.glob(".strategies*"))
    from kit.bundle.verify import verify

    assert verify(made).ok


def test_the_commit_is_found_from_below_and_in_worktrees(tmp_path: Path) -> None:
    """As `git rev-parse HEAD` says, on a branch, packed, detached, and in a worktree."""

    def git(*arguments: str, at: Path) -> str:
        identity = ("-c", "user.name=a", "-c", "user.email=a@b.invalid")
        line = ["git", "-C", str(at), *identity, *arguments]
        return subprocess.run(line, check=True, capture_output=True, text=True).stdout.strip()

    root = tmp_path / "repository"
    below = root / "strategies" / "x"
    below.mkdir(parents=True)
    assert git_commit(below) is None
    git("init", "-q", at=root)
    assert git_commit(below) is None, "nothing is committed yet"
    git("commit", "-q", "--allow-empty", "-m", "x", at=root)
    head = git("rev-parse", "HEAD", at=root)
    assert git_commit(root) == git_commit(below) == head
    git("worktree", "add", "-q", str(tmp_path / "tree"), "-b", "other", at=root)
    git("commit", "-q", "--allow-empty", "-m", "y", at=tmp_path / "tree")
    other = git("rev-parse", "HEAD", at=tmp_path / "tree")
    assert other != head
    assert git_commit(tmp_path / "tree") == other
    git("pack-refs", "--all", at=root)
    assert (git_commit(below), git_commit(tmp_path / "tree")) == (head, other)
    git("checkout", "-q", "--detach", at=root)
    assert git_commit(below) == head
