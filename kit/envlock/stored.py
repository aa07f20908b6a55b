"""The schemas of locked tools as freeze stores them: `schemas/<mcp>/<tool>.json` in the bundle.

With them a later failure says what changed, not only that something did.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from kit import files
from kit.bundle.layout import inside
from kit.envlock.tools import Stored
from kit.errors import DataError
from kit.mcp import ServerInfo, ToolInfo

__all__ = ["read_stored", "stored_bytes", "stored_path"]

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]|^\.")


def stored_path(mcp: str, tool: str) -> str:
    """Return where the schemas of a tool stand in a bundle; a name never leads out of it."""
    return f"schemas/{_UNSAFE.sub('_', mcp)}/{_UNSAFE.sub('_', tool)}.json"


def stored_bytes(info: ServerInfo, tool: ToolInfo) -> bytes:
    """Return the file that freeze writes for a live tool."""
    value: dict[str, Any] = {
        "mcp": info.name,
        "tool": tool.name,
        "server_version": info.version,
        "description": tool.description,
        "input_schema": tool.input_schema,
        "output_schema": tool.output_schema,
    }
    return files.dump_json(value).encode("utf-8")


def read_stored(root: Path, mcp: str, tool: str) -> Stored | None:
    """Return the schemas a bundle was frozen against; None where it stores none."""
    try:
        value = files.read_json(inside(root, stored_path(mcp, tool)))
    except DataError as error:
        if error.code == "file.missing":
            return None
        raise
    return Stored(input=value["input_schema"], output=value["output_schema"])
