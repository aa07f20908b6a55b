"""`kit init`."""

from __future__ import annotations

from pathlib import Path

import click

from kit.cli import output
from kit.workspace import init_workspace


@click.command(epilog="Example: kit init ~/research")
@click.argument("directory", type=click.Path(path_type=Path))
@output.json_option
def init(directory: Path, as_json: bool) -> None:
    """Make a working workspace.

    DIRECTORY is new, or empty.
    """
    workspace = init_workspace(directory)
    if as_json:
        output.emit_json({"workspace": str(workspace.root)})
        return
    click.echo(f"workspace ready: {workspace.root}")
    output.message(f"next: cd {directory} && kit list")
