"""Which MCP servers there are: `config/mcp.json`, the only place that commands come from."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kit.errors import McpError
from kit.redact import Redactor
from kit.workspace import Workspace, environ

__all__ = ["ServerConfig", "load_servers"]

# What every program needs to find its own files and to speak the right language.
_INHERITED = (
    "HOME",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "LOGNAME",
    "PATH",
    "SHELL",
    "TMPDIR",
    "TZ",
    "USER",
)


@dataclass(frozen=True, kw_only=True)
class ServerConfig:
    """One server, as the operator describes it.

    Attributes:
        name: What bundles call it.
        command: Program of a stdio server; empty for an HTTP server.
        args: Its arguments.
        env: Names of the variables it is given beside PATH, HOME and the locale.
        url: Address of a streamable HTTP server; empty for a stdio server.
        headers_env: HTTP header names by the variable that holds the value.
        channel: Which line of the server this is; None where the operator names none.
        root: The workspace: working directory, and value of KIT_WORKSPACE.
    """

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    url: str = ""
    headers_env: Mapping[str, str] = field(default_factory=dict)
    channel: str | None = None
    root: Path = field(default_factory=Path.cwd)

    def program(self) -> Path:
        """Return the executable file that `command` names.

        A bare name is looked for beside the running Python first: that is where this project's
        own servers are installed, whether or not PATH knows of it.

        Raises:
            McpError: `mcp.not_startable`.
        """
        if "/" in self.command:
            path = self.root / Path(self.command).expanduser()
            if path.is_file() and shutil.which(str(path)):
                return path
            what = "may not be executed" if path.exists() else "is not there"
        else:
            beside = str(Path(sys.executable).parent)
            found = shutil.which(self.command, path=beside) or shutil.which(
                self.command, path=environ("PATH", "")
            )
            if found:
                return Path(found)
            what = f"is neither in {beside} nor on PATH"
        raise McpError(
            "mcp.not_startable",
            f"MCP server {self.name!r} cannot be started: {self.command} {what}",
            where=f"config/mcp.json: servers.{self.name}.command",
            remedy="install the server, or mend its command in config/mcp.json",
            details={"server": self.name},
        )

    def variables(self) -> dict[str, str]:
        """Return the environment of its process: what is allowed, as far as it is set."""
        values = {name: environ(name) for name in (*_INHERITED, *self.env)}
        if "KIT_WORKSPACE" in self.env:
            values["KIT_WORKSPACE"] = str(self.root)
        return {name: value for name, value in values.items() if value is not None}

    def headers(self) -> dict[str, str]:
        """Return the HTTP headers, as far as their variables are set."""
        values = {header: environ(name) for header, name in self.headers_env.items()}
        return {header: value for header, value in values.items() if value is not None}

    def redactor(self) -> Redactor:
        """Return what masks the values it is handed: no message may show them."""
        handed = enumerate([*self.env, *self.headers_env.values()])
        values = {f"SECRET_{place}": environ(name, "") or "" for place, name in handed}
        return Redactor(values)


def load_servers(workspace: Workspace) -> dict[str, ServerConfig]:
    """Read `config/mcp.json`.

    Returns:
        The servers by name, in the order of the file.

    Raises:
        ConfigError: `config.missing` or `config.invalid`, with the dotted path.
    """
    entries: Mapping[str, Mapping[str, Any]] = workspace.config("mcp")["servers"]
    return {
        name: ServerConfig(
            name=name,
            command=entry.get("command", ""),
            args=tuple(entry.get("args", ())),
            env=tuple(entry.get("env", ())),
            url=entry.get("url", ""),
            headers_env=entry.get("headers_env", {}),
            channel=entry.get("channel"),
            root=workspace.root,
        )
        for name, entry in entries.items()
    }
