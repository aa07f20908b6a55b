from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from kit.errors import ConfigError, McpError
from kit.mcp import ServerConfig, load_servers
from kit.workspace import Workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    for part in ("strategies", "config"):
        (tmp_path / part).mkdir()
    (tmp_path / "INDEX.json").write_text("{}")
    return Workspace.at(tmp_path)


def configured(workspace: Workspace, servers: Any) -> dict[str, ServerConfig]:
    value = {"schema_version": "1.0", "servers": servers}
    (workspace.config_dir / "mcp.json").write_text(json.dumps(value))
    return load_servers(workspace)


def test_the_servers_of_this_project_are_configured() -> None:
    servers = load_servers(Workspace.at(Path(__file__).parents[2]))
    assert {name: one.command for name, one in servers.items()} == {
        "historical-news-cn": "historical-news-cn-mcp",
        "trading-data-cn": "trading-data-cn-mcp",
    }


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ({"command": "x", "url": "http://127.0.0.1/mcp"}, "servers.x"),
        ({}, "servers.x"),
        ({"url": "http://127.0.0.1/mcp", "env": ["A"]}, "servers.x"),
        ({"url": "ftp://127.0.0.1"}, "servers.x"),
        ({"command": "x", "env": {"TOKEN": "secret"}}, "servers.x.env"),
        ({"command": "x", "cmd": "y"}, "servers.x.cmd"),
    ],
)
def test_a_bad_entry_is_named(workspace: Workspace, entry: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        configured(workspace, {"x": entry})
    assert caught.value.code == "config.invalid"
    assert says in caught.value.message


def test_a_process_gets_what_is_listed_and_set(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUSHARE_TOKEN", "0123456789")
    monkeypatch.setenv("OTHER_TOKEN", "9876543210")
    monkeypatch.setenv("EMPTY", "")
    monkeypatch.setenv("PATH", "/usr/bin")
    env = ["TUSHARE_TOKEN", "EMPTY", "UNSET_NAME", "KIT_WORKSPACE"]
    server = configured(workspace, {"x": {"command": "x", "env": env}})["x"]
    given = server.variables()
    assert given["TUSHARE_TOKEN"] == "0123456789"
    assert given["KIT_WORKSPACE"] == str(workspace.root)
    assert given["PATH"] == "/usr/bin"
    assert not {"OTHER_TOKEN", "EMPTY", "UNSET_NAME"} & set(given)


def test_headers_come_from_the_environment(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEB_AUTH", "Bearer 0123456789")
    entry = {
        "url": "http://127.0.0.1:1/mcp",
        "headers_env": {"Authorization": "WEB_AUTH", "X-Other": "UNSET_NAME"},
    }
    server = configured(workspace, {"x": entry})["x"]
    assert server.headers() == {"Authorization": "Bearer 0123456789"}
    assert server.redactor().text("sent Bearer 0123456789!") == "sent «redacted»!"


def test_a_bare_name_is_found_beside_python_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("venv", "path"):
        (tmp_path / folder).mkdir()
        for name in ("both", folder):
            (tmp_path / folder / name).write_text("#!/bin/sh\n")
            (tmp_path / folder / name).chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "venv/python"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))

    def found(name: str) -> Path:
        return ServerConfig(name="x", command=name, root=tmp_path).program()

    assert found("both") == tmp_path / "venv/both"
    assert found("path") == tmp_path / "path/path"
    # With a slash it is a path from the workspace, and PATH is not asked.
    assert found("venv/venv") == tmp_path / "venv/venv"
    with pytest.raises(McpError, match="is not there"):
        found("./path/none")
