"""`kit init`."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from kit.cli import output
from kit.workspace import init_workspace


@click.command(epilog="Example: kit init ~/research")
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--empty", is_flag=True, help="Leave the shipped example strategies out.")
@output.json_option
def init(directory: Path, empty: bool, as_json: bool) -> None:
    """Make a working workspace.

    DIRECTORY is new, or empty.
    """
    workspace = init_workspace(directory, examples=not empty)
    if as_json:
        output.emit_json({"workspace": str(workspace.root)})
        return
    output.say(f"workspace ready: {workspace.root}")
    output.message(f"next: cd {shlex.quote(str(directory))} && kit list")
