"""Write docs/commands.md from the commands themselves: `python tests/docs/reference.py`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from kit.cli.main import cli

PAGE = Path(__file__).resolve().parents[2] / "docs" / "commands.md"
HEAD = """# Commands

stdout carries the result, stderr everything else; `--json` prints one JSON document, errors too.
Colour and progress appear only on a terminal, and never when `NO_COLOR` is set.

| exit code | meaning |
|---|---|
| 0 | ok; a degraded run too, the report says so |
| 1 | a fault in kit |
| 2 | the request is wrong |
| 3 | a configuration file, a bundle, the registry or data is wrong |
| 4 | a guard or the environment lock refused |
| 5 | a run failed, or the disk refused |
| 6 | no channel took the card |
| 7 | already done, or held by another process |
| 130 | interrupted |

This page is written by `python tests/docs/reference.py`; a test keeps it true.
"""


def page() -> str:
    """Return the page."""
    parts = [HEAD]
    settings = {
        "terminal_width": 96,
        "max_content_width": 96,
        "help_option_names": ["-h", "--help"],
    }
    for name, command in walk(cli, "kit"):
        ctx = click.Context(command, info_name=name, **settings)
        with ctx:
            parts.append(f"\n## {name}\n\n```\n{command.get_help(ctx)}\n```\n")
    return "".join(parts)


def walk(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    """Yield every command with its full name, groups before their children."""
    yield name, command
    if isinstance(command, click.Group):
        for child in command.list_commands(click.Context(command)):
            found = command.get_command(click.Context(command), child)
            assert found is not None
            yield from walk(found, f"{name} {child}")


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
    sys.exit(0)
