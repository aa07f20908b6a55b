"""`kit list` and `kit registry`."""

from __future__ import annotations

import getpass
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kit.workspace import Workspace, init_workspace

Kit = Callable[..., Any]
ID = "ma250-pullback"


def test_list(kit: Kit, desk: Workspace) -> None:
    head, _, *rows = kit("list").out.splitlines()
    assert head.split() == ["strategy", "active", "versions", "draft"]
    folders = sorted(folder.name for folder in desk.strategies.iterdir() if folder.is_dir())
    assert [row.split()[0] for row in rows] == folders
    (row,) = [row for row in rows if row.startswith(ID)]
    versions = sorted(
        (p.parent.name for p in desk.strategies.glob(f"{ID}/*/SKILL.md")), reverse=True
    )
    assert row.split() == [ID, "0.3.1", *", ".join(versions).split(), "no"]
    entry = json.loads(kit("list", "--json").out)["strategies"][ID]
    assert entry["latest_active_version"] == "0.3.1"
    assert [version["version"] for version in entry["all_versions"]] == versions
    assert kit("registry", "list", "--json").out == kit("list", "--json").out
    (desk.strategies / "new-idea" / "draft").mkdir(parents=True)
    (row,) = [row for row in kit("list").out.splitlines() if row.startswith("new-idea")]
    assert row.split() == ["new-idea", "none", "none", "yes"]


def test_list_of_an_empty_workspace_says_where_to_begin(kit: Kit, tmp_path: Path) -> None:
    empty = init_workspace(tmp_path / "empty", examples=False)
    said = kit("list", at=empty.root)
    assert (said.code, said.out) == (0, "")
    named = [word for word in said.err.split() if word.startswith("notebooks/")]
    assert named
    assert all((empty.root / name).is_file() for name in named)
    assert json.loads(kit("list", "--json", at=empty.root).out) == {"strategies": {}}


def test_show_tells_who_activated_what_and_why(kit: Kit, desk: Workspace) -> None:
    said = kit("registry", "activate", f"{ID}@0.3.0", "--why", "roll back", "--who", "li")
    assert (said.code, said.out) == (0, "ma250-pullback: active version is 0.3.0\n")
    shown = json.loads(kit("registry", "show", ID, "--json").out)
    there = {path.parent.name for path in desk.strategies.glob(f"{ID}/*/SKILL.md")}
    assert {v["version"] for v in shown["versions"]} == there
    assert [v["version"] for v in shown["versions"] if v["is_active"]] == ["0.3.0"]
    last = shown["log"][-1]
    assert (last["event"], last["version"], last["who"], last["why"]) == (
        "activate",
        "0.3.0",
        "li",
        "roll back",
    )
    table = kit("registry", "show", ID).out
    assert "roll back" in table
    assert "0.3.0    yes" in table


def test_retire_and_what_a_screen_then_says(kit: Kit) -> None:
    assert kit("registry", "retire", ID, "--why", "out of season").out == (
        "ma250-pullback: active version is none\n"
    )
    said = kit("screen", ID, "--date", "2020-02-27")
    assert said.code == 3
    assert "[registry.no_active]" in said.err
    assert "0.3.1" in said.err
    again = kit("registry", "retire", ID, "--why", "again", "--json")
    assert again.code == 3
    assert json.loads(again.out)["error"]["code"] == "registry.no_active"


@pytest.mark.parametrize(
    ("line", "code", "name"),
    [
        (["activate", ID, "--why", "x"], 2, "bundle.bad_version"),
        (["activate", f"{ID}@draft", "--why", "x"], 2, "bundle.bad_version"),
        (["activate", f"{ID}@9.9.9", "--why", "x"], 3, "registry.unknown_version"),
        (["activate", "ma250-pulback@0.3.1", "--why", "x"], 3, "registry.unknown_id"),
        (["activate", f"{ID}@0.3.1"], 2, "usage"),
        (["retire", "nope-nope", "--why", "x"], 3, "registry.unknown_id"),
        (["show", "Upper"], 2, "bundle.bad_id"),
        (["show"], 2, "usage"),
    ],
)
def test_wrong_requests(kit: Kit, desk: Workspace, line: list[str], code: int, name: str) -> None:
    before = desk.index_path.read_bytes()
    said = kit("registry", *line, "--json")
    assert said.code == code
    shown = json.loads(said.out)["error"]
    assert shown["code"] == name
    assert shown["remedy"]
    assert f"[{name}]" in said.err
    assert desk.index_path.read_bytes() == before


def test_did_you_mean_an_id(kit: Kit) -> None:
    assert "did you mean 'ma250-pullback'?" in kit("registry", "show", "ma250-pulback").err


def test_rebuild_makes_the_same_index(kit: Kit, desk: Workspace) -> None:
    before = json.loads(desk.index_path.read_text("utf-8"))["strategies"]
    desk.index_path.unlink()
    assert "kit registry rebuild" in kit("list").err
    said = kit("registry", "rebuild")
    assert (said.code, said.out) == (0, f"INDEX.json rebuilt: {len(before)} strategies\n")
    assert json.loads(desk.index_path.read_text("utf-8"))["strategies"] == before
    assert json.loads(kit("registry", "rebuild", "--json").out)["strategies"] == sorted(before)


def test_a_version_copied_in_is_adopted_by_a_rebuild(
    kit: Kit, desk: Workspace, tmp_path: Path
) -> None:
    """What `git pull` into one's own workspace leaves: files with ordinary modes, no record."""
    own = init_workspace(tmp_path / "own", examples=False)
    source = desk.strategies / ID / "0.3.1"
    target = own.strategies / ID / "0.3.1"
    for path in (p for p in source.rglob("*") if p.is_file()):
        (target / path.relative_to(source)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target / path.relative_to(source))
    said = kit("registry", "rebuild", at=own.root)
    assert said.code == 0
    assert "ma250-pullback@0.3.1: no record of it; adopted" in said.err
    assert "0.3.1" in kit("list", at=own.root).out
    assert kit("verify", at=own.root).code == 0
    # It is there, and not active: that is a person's decision.
    assert "[registry.no_active]" in kit("screen", ID, at=own.root).err


def test_a_user_without_a_name_can_work(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container's user id often has no entry in the password file."""

    def nobody() -> str:
        raise KeyError("getpwuid(): uid not found: 4711")

    monkeypatch.setattr(getpass, "getuser", nobody)
    assert kit("registry", "activate", f"{ID}@0.3.0", "--why", "x").code == 0
    assert json.loads(kit("registry", "show", ID, "--json").out)["log"][-1]["who"] == (
        f"uid-{os.getuid()}"
    )
    assert kit("registry", "rebuild").code == 0


def test_a_file_in_place_of_runs_is_explained(kit: Kit, desk: Workspace) -> None:
    desk.runs.write_text("x", encoding="utf-8")
    before = desk.index_path.read_bytes()
    said = kit("registry", "activate", f"{ID}@0.3.0", "--why", "x")
    assert said.code == 5
    assert "a file stands where a folder is needed" in said.err
    assert "→ move that file" in said.err
    assert desk.index_path.read_bytes() == before


@pytest.mark.parametrize("group", ["registry", "slot"])
def test_a_group_without_a_command_shows_its_help(kit: Kit, group: str) -> None:
    said = kit(group)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith(f"Usage: kit {group} ")
    assert "error:" not in said.err
