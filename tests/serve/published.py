"""Write the published schemas of the servers: `python tests/serve/published.py`."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import anyio

from kit.serve import SERVERS
from kit.serve.desk import Desk
from kit.serve.entry import build
from kit.serve.host import published


def folder_of(name: str) -> Path:
    """Return the folder of a server."""
    return Path(str(import_module(SERVERS[name]).__file__)).parent


def schemas_of(name: str) -> dict[str, dict[str, Any]]:
    """Return what a server tells of its tools, by file name."""
    found = anyio.run(published, build(name, Desk()))
    return {f"{tool}.json": about for tool, about in found.items()}


if __name__ == "__main__":
    for server in SERVERS:
        for file, about in schemas_of(server).items():
            path = folder_of(server) / "schemas" / file
            path.parent.mkdir(exist_ok=True)
            path.write_text(
                json.dumps(about, ensure_ascii=False, indent=2) + "\n", encoding="utf-8"
            )
