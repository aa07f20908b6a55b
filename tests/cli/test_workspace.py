"""`kit init`, and where a command finds its workspace."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kit.workspace
from kit import files
from kit.cli.main import run
from kit.workspace import Workspace, init_workspace, template_root

Kit = Callable[..., Any]


def test_init_makes_a_workspace_with_the_examples(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "my desk"
    assert run(["init", str(target)]) == 0
    captured = capsys.readouterr()
    assert captured.out == f"workspace ready: {target}\n"
    assert captured.err == f"next: cd '{target}' && kit list\n", "the path holds a space"
    at = ["--workspace", str(target)]
    assert run([*at, "list"]) == 0
    assert "ma250-pullback" in capsys.readouterr().out
    assert run([*at, "verify"]) == 0
    assert run([*at, "lint", "ma250-pullback@0.3.1"]) == 0
    assert run([*at, "registry", "rebuild"]) == 0
    assert not (target / "strategies" / "ma250-pullback" / "draft").exists()
    assert not (target / "runs" / "2020-02-27").exists()


def test_init_empty_and_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "deep" / "er" / "desk"
    assert run(["init", str(target), "--empty", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"workspace": str(target)}
    made = Workspace.at(target)
    assert files.read_json(made.index_path)["strategies"] == {}
    assert [p.name for p in made.strategies.iterdir()] == [".gitkeep"]


def test_init_refuses_what_is_not_empty(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / "thesis.txt").write_text("mine", encoding="utf-8")
    assert run(["init", str(full)]) == 3
    assert "[workspace.not_empty]" in capsys.readouterr().err
    assert [p.name for p in full.iterdir()] == ["thesis.txt"]
    assert run(["init", str(full / "thesis.txt")]) == 3
    assert run(["init", str(full / "thesis.txt" / "below")]) == 5
    assert "a file stands where a folder is needed" in capsys.readouterr().err
    assert (full / "thesis.txt").read_text("utf-8") == "mine"
    made = init_workspace(tmp_path / "made", examples=False)
    assert run(["init", str(made.root)]) == 3
    assert "[workspace.exists]" in capsys.readouterr().err


def test_init_where_a_shell_stands_leaves_it_a_folder_to_stand_in(
    tmp_path: Path, kit_command: Any
) -> None:
    """`mkdir desk; cd desk; kit init .; kit list`: the folder is filled, not replaced."""
    here = tmp_path / "here"
    here.mkdir()
    before = here.stat().st_ino
    assert kit_command(here, "init", ".").returncode == 0
    assert here.stat().st_ino == before
    assert "ma250-pullback" in kit_command(here, "list").stdout
    assert not list(here.glob(".here*"))


@pytest.mark.parametrize("existed", [False, True])
def test_a_full_disk_leaves_nothing_half_made(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    existed: bool,
) -> None:
    """At any operation: nothing is left, and the same command works once there is space."""
    init_workspace(tmp_path / "counted", examples=False)
    before = files.count_operations()
    init_workspace(tmp_path / "again", examples=False)
    total = files.count_operations() - before
    assert total > 20
    target = tmp_path / "desk"
    if existed:
        target.mkdir()
    for number in (1, 2, 3, total // 2, total - 1, total):
        monkeypatch.setattr(files, "_operations", 0)
        monkeypatch.setenv("KIT_NO_SPACE_AT", str(number))
        assert run(["init", str(target), "--empty"]) == 5, number
        assert "[file.no_space]" in capsys.readouterr().err
        monkeypatch.delenv("KIT_NO_SPACE_AT")
        assert target.exists() is existed, number
        assert not existed or list(target.iterdir()) == [], number
        assert sorted(p.name for p in tmp_path.iterdir() if "desk" in p.name) == (
            ["desk"] if existed else []
        )
    assert run(["init", str(target), "--empty"]) == 0


@pytest.mark.parametrize("existed", [False, True])
def test_a_killed_init_can_be_given_again(tmp_path: Path, kit_command: Any, existed: bool) -> None:
    target = tmp_path / "desk"
    if existed:
        target.mkdir()
    killed = kit_command(tmp_path, "init", "desk", KIT_CRASH_AT="12")
    assert killed.returncode == 137
    assert kit_command(tmp_path, "list").returncode == 3
    again = kit_command(tmp_path, "init", "desk")
    assert again.returncode == 0, again.stderr
    assert "ma250-pullback" in kit_command(target, "list").stdout
    left = [p.name for p in [*tmp_path.iterdir(), *target.iterdir()] if ".init-" in p.name]
    assert left == []


def test_in_a_wheel_the_templates_travel_inside_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repository: Path
) -> None:
    """What `force-include` of pyproject.toml puts there is all that `kit init` looks for."""
    import tomllib

    assert template_root() == repository
    description = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))
    wheel = description["tool"]["hatch"]["build"]["targets"]["wheel"]
    package = tmp_path / "site-packages" / "kit"
    for source, target in wheel["force-include"].items():
        inside = tmp_path / "site-packages" / target
        inside.parent.mkdir(parents=True, exist_ok=True)
        if (repository / source).is_dir():
            shutil.copytree(repository / source, inside)
        else:
            shutil.copyfile(repository / source, inside)
    monkeypatch.setattr(kit.workspace, "_PACKAGE", package)
    assert template_root() == package / "_workspace"
    made = init_workspace(tmp_path / "desk", examples=True)
    for name in ("config/markets.json", "notebooks/production/daily_screen.ipynb", "INDEX.json"):
        assert (made.root / name).read_bytes() == (repository / name).read_bytes()
    assert run(["--workspace", str(made.root), "verify"]) == 0
    assert init_workspace(tmp_path / "empty", examples=False).config("llm")["providers"]


# finding it


def test_no_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for line in (["list"], ["screen", "ma250-pullback"], ["runs"], ["lint", "x-y-z"], ["verify"]):
        assert run([*line, "--json"]) == 3, line
        shown = json.loads(capsys.readouterr().out)["error"]
        assert shown["code"] == "workspace.not_found"
        for way in ("cd into a workspace", "KIT_WORKSPACE", "kit init"):
            assert way in shown["remedy"]
    assert list(tmp_path.iterdir()) == []


def test_option_before_variable_before_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("one", "two", "three"):
        made = init_workspace(tmp_path / name, examples=False)
        (made.strategies / f"in-{name}" / "draft").mkdir(parents=True)

    def found(*options: str) -> str:
        assert run([*options, "list", "--json"]) == 0
        (name,) = json.loads(capsys.readouterr().out)["strategies"]
        return str(name)

    monkeypatch.chdir(tmp_path / "three" / "config")
    assert found() == "in-three"
    monkeypatch.setenv("KIT_WORKSPACE", str(tmp_path / "two"))
    assert found() == "in-two"
    assert found("--workspace", str(tmp_path / "one")) == "in-one"
    monkeypatch.setenv("KIT_WORKSPACE", str(tmp_path / "gone"))
    assert run(["list"]) == 3
    assert "gone is not a workspace" in capsys.readouterr().err


# the command as a shell meets it


def test_a_reader_that_goes_away_is_no_error(kit_command: Any, desk: Workspace) -> None:
    """`kit ... | head -1`: exit 0 and not a word on stderr, however much was left to say."""
    shell = (
        f"{kit_command.line()[0]} registry show ma250-pullback | true;"
        f"{kit_command.line()[0]} list --json | head -c 1; echo ${{PIPESTATUS[0]}} >&2"
    )
    for _ in range(3):
        done = subprocess.run(
            ["bash", "-c", shell],
            cwd=desk.root,
            env=kit_command.environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "0\n")


@pytest.mark.kernel
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_any_terminal_gets_something_readable(
    kit_command: Any, main_job: Any, encoding: str
) -> None:
    """Where only ASCII is claimed to be understood comes UTF-8; elsewhere escapes, and no error."""
    done = subprocess.run(
        kit_command.line("show", "latest"),
        cwd=main_job.workspace.root,
        env=kit_command.environment(PYTHONIOENCODING=encoding),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0
    holdings = "代码" if encoding == "ascii" else "\\u4ee3\\u7801"
    assert f"| {holdings} |".encode() in done.stdout


def test_a_hang_up_that_is_ignored_stays_ignored(kit_command: Any, desk: Workspace) -> None:
    """`nohup kit screen ... &`, and the terminal is closed."""
    script = (
        "import os, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN);"
        "sys.argv = ['kit', 'list']\n"
        "from kit.cli import main\n"
        "from kit.bundle import registry\n"
        "honest = registry.read_index\n"
        "def hung_up(workspace):\n"
        "    os.kill(os.getpid(), signal.SIGHUP)\n"
        "    return honest(workspace)\n"
        "registry.read_index = hung_up\n"
        "main.main()\n"
    )
    import sys

    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=desk.root,
        env=kit_command.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "ma250-pullback" in done.stdout


def test_a_missing_option_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["slot", "run"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("error: Missing option '--market'")
    assert "cn, hk, us" in lines[0]
    assert lines[1] == "  → kit slot run --help"


def test_help_of_every_command_has_no_colour_and_exits_0(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    for line in ([], ["slot"], ["registry"], ["screen"], ["freeze"]):
        assert run([*line, "--help"]) == 0
        captured = capsys.readouterr()
        assert captured.out.startswith("Usage: kit")
        assert "\x1b" not in captured.out
        assert captured.err == ""
    assert os.environ["NO_COLOR"] == "1"
