from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest


def _reference(repository: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "docs_reference", repository / "tests/docs/reference.py"
    )
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_commands_page_is_what_the_commands_say(repository: Path) -> None:
    module = _reference(repository)
    assert module.PAGE.read_text("utf-8") == module.page(), "run python tests/docs/reference.py"


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "docs"])
def test_links_lead_somewhere(repository: Path, name: str) -> None:
    start = repository / name
    pages = sorted(start.glob("*.md")) if start.is_dir() else [start]
    assert pages
    for page in pages:
        for target in re.findall(r"\]\(([^)#]+)", page.read_text("utf-8")):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_commands_in_the_docs_exist(repository: Path) -> None:
    """A `kit …` line in a code block names a real command."""
    from kit.cli.main import cli

    known = {name.removeprefix("kit ") for name, _ in _reference(repository).walk(cli, "kit")}
    pages = [repository / "README.md", *sorted((repository / "docs").glob("*.md"))]
    for page in pages:
        for block in re.findall(r"```\n(.*?)```", page.read_text("utf-8"), re.DOTALL):
            for line in re.findall(r"^kit (.+)$", block, re.MULTILINE):
                words = line.split()
                assert words[0] in known, f"{page.name}: kit {line}"
