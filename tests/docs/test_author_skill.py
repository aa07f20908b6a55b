"""The skill that teaches an agent to write a bundle is true: its list, its commands, its links."""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kit.bundle.lint import RULES
from kit.bundle.lint_manifest import CHANNELED_MCPS
from kit.bundle.skill import SECTIONS
from kit.degradation.triggers import ACTIONS, TRIGGERS
from kit.workspace import init_workspace


@pytest.fixture
def author(repository: Path) -> Path:
    return repository / "prompts" / "strategy-skill-author"


def _self_check(repository: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "docs_self_check", repository / "tests/docs/self_check.py"
    )
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_self_check_list_is_the_lint_rules(repository: Path, author: Path) -> None:
    text = (author / "references" / "checks.md").read_text("utf-8")
    listed = re.findall(r"^- \[ \] `([a-z_.]+)`( \(warning\))?: ", text, re.MULTILINE)
    wanted = [(rule.id, " (warning)" * (rule.severity == "warning")) for rule in RULES]
    assert listed == wanted, "run python tests/docs/self_check.py"
    assert text == _self_check(repository).page(), "run python tests/docs/self_check.py"


def test_it_is_a_valid_agent_skill(author: Path) -> None:
    validator = Path(sys.executable).with_name("agentskills")
    done = subprocess.run(
        [validator, "validate", author], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_names_what_there_is(author: Path) -> None:
    skill = (author / "SKILL.md").read_text("utf-8")
    manifest = (author / "references" / "manifest.md").read_text("utf-8")
    for section in SECTIONS:
        assert section in skill.lower()
    for name in re.findall(r"`(references/[\w.]+)`", skill):
        assert (author / name).is_file(), name
    for server, channels in CHANNELED_MCPS.items():
        assert all(f"`{word}`" in manifest for word in (server, *channels))
    assert all(f"`{action}`" in manifest for action in ACTIONS)
    # "Owed at least": the five that the manifest page lists in words.
    assert sum(trigger.owed for trigger in TRIGGERS.values()) == 5


def _contents(root: Path, *, without: tuple[str, ...]) -> dict[str, bytes]:
    return {
        name: path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and not (name := path.relative_to(root).as_posix()).startswith(without)
    }


@pytest.mark.slow
@pytest.mark.kernel
def test_following_it_from_an_empty_workspace_ends_in_a_version(
    author: Path, tmp_path: Path, kit_command: Callable[..., Any]
) -> None:
    """The commands of its text, in their order, typed as they stand."""
    text = (author / "SKILL.md").read_text("utf-8")
    blocks = re.findall(r"```\n(.*?)```", text, re.DOTALL)
    commands = [line.strip() for block in blocks for line in block.splitlines() if line.strip()]
    verbs = [command.split()[1] for command in commands]
    assert verbs == ["new", "lint", "note", "backtest", "freeze", "verify"]
    workspace = init_workspace(tmp_path / "desk")
    draft = "strategies/quiet-pullback/draft/"
    before = _contents(workspace.root, without=("runs/", draft))
    for verb, command in zip(verbs, commands, strict=True):
        if verb == "freeze":
            # Up to here nothing was written outside the draft.
            assert _contents(workspace.root, without=("runs/", draft)) == before
        said = kit_command(workspace.root, *shlex.split(command)[1:], timeout=400)
        assert said.returncode == 0, f"{command}\n{said.stdout}{said.stderr}"
    version = workspace.strategies / "quiet-pullback" / "0.1.0"
    # The note gave the conversation its name.
    (conversation,) = (version / "conversations").iterdir()
    assert not conversation.stem.endswith("-notes")
