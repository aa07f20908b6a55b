"""Whether a server's version is its own, or only that of the library it is written with.

A server that declares no version reports the one of its SDK: the Python `mcp` 1.x and `fastmcp`
both fill in their own. Such a number says nothing about the server, so a lock must not accept it.

The rule: the version is the SDK's when it equals that of an `mcp` or `fastmcp` distribution
installed beside the server's program (its virtual environment), or, where none is found there
(a launcher such as npx or uvx, an HTTP server), in the environment `kit` itself runs in. Behind a
launcher or an address this cannot be proved either way; a lock's `source` pin is what remains.
"""

from __future__ import annotations

import sys
from pathlib import Path

from kit.errors import McpError
from kit.mcp.servers import ServerConfig

__all__ = ["is_sdk_version"]

_SDKS = ("mcp", "fastmcp")


def is_sdk_version(version: str, config: ServerConfig) -> bool:
    """Say whether `version` is only that of an SDK the server is written with."""
    return bool(version) and version in (
        _sdks_beside(_program(config)) or _sdks_beside(Path(sys.executable))
    )


def _program(config: ServerConfig) -> Path | None:
    try:
        return config.program() if config.command else None
    except McpError:
        return None


def _sdks_beside(program: Path | None) -> set[str]:
    if program is None:
        return set()
    # A launcher script may be a link into the environment, and an environment's Python one out.
    roots = {program.parent.parent, program.resolve().parent.parent}
    return {
        folder.name.removesuffix(".dist-info").partition("-")[2]
        for root in roots
        for sdk in _SDKS
        for folder in root.glob(f"lib/python3*/*-packages/{sdk}-*.dist-info")
    }
