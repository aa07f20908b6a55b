"""Every command that a remedy names is there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import kit
from kit.cli.main import _COMMANDS, cli

PACKAGE = Path(kit.__file__).parent
_NAMED = re.compile(
    r"(?:^|[`:;,(]\s*|\b(?:run|with|see|let|or|names|use|only)\s+`?)kit ([a-z-]+)(?: ([a-z-]+))?"
)
_WORDS = {"remedy", "mend", "_MEND", "_MEND_LOG"}


def _texts(node: ast.AST) -> Iterator[str]:
    """The string constants below a node; what is filled in becomes one upper-case word."""
    if isinstance(node, ast.JoinedStr):
        yield "".join(part.value if isinstance(part, ast.Constant) else "X" for part in node.values)
    elif isinstance(node, ast.Constant):
        if isinstance(node.value, str):
            yield node.value
    else:
        for child in ast.iter_child_nodes(node):
            yield from _texts(child)


def _remedies(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        found: list[ast.AST] = []
        if isinstance(node, ast.keyword) and node.arg in _WORDS:
            found = [node.value]
        elif isinstance(node, ast.Assign):
            names = {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}
            found = [node.value] if names & _WORDS else []
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in {"_finding", "_bad"}:
            found = list(node.args)
        for value in found:
            yield from ((value.lineno, text) for text in _texts(value))


def named_commands() -> list[tuple[str, str, str | None]]:
    """Every (place, command, next word) that a remedy of the package names."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        for line, text in _remedies(ast.parse(path.read_text("utf-8"))):
            place = f"{path.relative_to(PACKAGE)}:{line}"
            found += [(place, match[1], match[2]) for match in _NAMED.finditer(text)]
    return found


def unknown(command: str, word: str | None) -> bool:
    if command not in _COMMANDS:
        return True
    context = click.Context(cli)
    known = cli.get_command(context, command)
    return isinstance(known, click.Group) and word not in known.list_commands(context)


def test_remedies_are_found_at_all() -> None:
    named = {(command, word) for _, command, word in named_commands()}
    assert {("registry", "rebuild"), ("registry", "activate"), ("freeze", None)} <= named


@pytest.mark.parametrize(
    ("command", "word", "wrong"),
    [("prune", None, True), ("registry", "mend", True), ("registry", None, True),
     ("registry", "show", False), ("lint", "x", False)],
)  # fmt: skip
def test_what_is_unknown(command: str, word: str | None, wrong: bool) -> None:
    assert unknown(command, word) is wrong


def test_every_command_a_remedy_names_exists() -> None:
    wrong = [named for named in named_commands() if unknown(named[1], named[2])]
    assert wrong == []
