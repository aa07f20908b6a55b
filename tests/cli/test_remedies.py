"""A remedy is a command that exists: whoever follows it must not be sent into a wall."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import kit
from kit.cli.main import cli

PACKAGE = Path(kit.__file__).parent
# `kit` as a command is followed by a word; the package is followed by a dot.
COMMAND = re.compile(r"(?<![\w./%])kit ([a-z]+)((?: [^\s;,'\"`)]+)*)")
# Sentences that speak of the kit itself.
PROSE = {
    *(
        "is",
        "was",
        "has",
        "knows",
        "cannot",
        "raises",
        "put",
        "added",
        "owns",
        "works",
        "and",
        "or",
    ),
    "sample",  # the seed of the generated series
}


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """String literals, with `{}` where an f-string takes a value in; docstrings left out."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docs = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    inside = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            inside |= {id(value) for value in node.values}
            parts = [v.value if isinstance(v, ast.Constant) else "{}" for v in node.values]
            yield node.lineno, "".join(map(str, parts))
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in docs | inside
        ):
            yield node.lineno, node.value


def mentions() -> list[tuple[str, str, str]]:
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        for number, text in texts(path):
            for match in COMMAND.finditer(text):
                if match[1] not in PROSE:
                    place = f"{path.relative_to(PACKAGE)}:{number}"
                    found.append((place, match[1], match[2].strip()))
    return found


def wrong(name: str, words: list[str]) -> str:
    """What is wrong with a command, empty when it would be understood."""
    command = cli.get_command(click.Context(cli), name)
    if isinstance(command, click.Group):
        child = command.commands.get(words[0]) if words else None
        command, words = child, words[1:]
    if command is None:
        return "no such command"
    options = {name for p in command.params for name in [*p.opts, *p.secondary_opts]}
    given = {word for word in words if word.startswith("--")}
    if given - options:
        return f"no option {given - options}"
    required = {p.opts[0] for p in command.params if isinstance(p, click.Option) and p.required}
    # A command that is spelt out with arguments is spelt out whole.
    return f"lacks {required - given}" if words and required - given else ""


def test_every_command_named_in_a_message_would_be_understood() -> None:
    found = mentions()
    assert len(found) > 40
    refused = {
        f"{place}: kit {name} {rest}": problem
        for place, name, rest in found
        if (problem := wrong(name, rest.rstrip(".").split()))
    }
    assert refused == {}


def test_the_search_would_find_a_wrong_one() -> None:
    assert wrong("prune", [])
    assert wrong("registry", ["remove"])
    assert wrong("registry", ["activate", "a-b-c", "1.2.3"])
    assert wrong("screen", ["{}", "--when", "{}"])
    assert not wrong("registry", ["activate", "{}@{}", "--why"])


def commands(group: click.Group, context: click.Context) -> Iterator[click.Command]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield command
        if isinstance(command, click.Group):
            yield from commands(command, context)


def test_the_example_of_every_help_is_understood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parsed as the command itself parses it: arguments, options and values."""
    examples = [command.epilog or "" for command in commands(cli, click.Context(cli))]
    assert len(examples) > 15
    monkeypatch.chdir(tmp_path)
    for example in examples:
        words = shlex.split(example.removeprefix("Example: "))
        for word in words:  # files that a command wants to be there
            if word.endswith("/"):
                (tmp_path / word).mkdir(exist_ok=True)
            elif word.endswith((".csv", ".parquet", ".gz", ".jsonl", ".json")):
                (tmp_path / word).touch()
        assert words[0] == "kit"
        command: click.Command = cli
        # With the settings of the real one: a command keeps the help option it is first asked for.
        context = click.Context(cli, **cli.context_settings)
        while isinstance(command, click.Group):
            words = words[1:]
            found = command.get_command(context, words[0])
            assert found is not None, example
            command = found
        command.make_context(command.name, words[1:], parent=context)
