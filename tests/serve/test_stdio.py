"""The servers as processes: only protocol on stdout, quick to start, and sure to end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kit.serve import SERVERS

HEAVY = {"litellm", "numba", "pandas", "papermill", "polars", "sqlalchemy", "vectorbt"}
BARS = {"codes": ["600000.SH"], "start_date": "2024-09-18", "end_date": "2024-09-19"}


@pytest.mark.parametrize("name", SERVERS)
def test_a_start_imports_nothing_heavy(name: str) -> None:
    line = (
        "import sys; from kit.serve.entry import build; from kit.serve.desk import Desk; "
        f"build({name!r}, Desk()); print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", line], capture_output=True, text=True, timeout=60, check=True
    )
    assert not HEAVY & set(done.stdout.split())


def test_it_starts_where_there_is_no_workspace(raw: Any, tmp_path: Path) -> None:
    server = raw("kit", "--workspace", str(tmp_path / "nowhere"))
    assert server.hello()["result"]["serverInfo"] == {"name": "kit", "version": "1.0.0"}
    result = server.read(server.call("list_skills", {}))["result"]
    assert result["isError"] is True
    assert json.loads(result["content"][0]["text"])["code"] == "workspace.not_found"


def test_noise_on_the_line_changes_nothing(raw: Any) -> None:
    server = raw("trading-data-cn")
    server.hello()
    for noise in ("", "not json", "{}", '{"jsonrpc":"2.0"}', "[1,2]", '"' + "x" * 1_000_000, "\0"):
        server.send(noise)
    unknown = server.read(server.request("tools/explode"))
    assert unknown["error"]["code"] == -32601
    wrong = server.read(server.request("tools/call", name="get_bars", arguments=[1]))
    assert "error" in wrong
    missing = server.read(server.call("no_such_tool", {}))
    assert "error" in missing or missing["result"]["isError"]
    right = server.read(server.call("get_bars", BARS))["result"]
    assert right["structuredContent"]["rows"] == 2
    server.process.stdin.close()
    assert server.process.wait(timeout=20) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it(raw: Any, number: signal.Signals) -> None:
    server = raw("historical-news-cn", "--transport", "stdio")
    server.hello()
    server.process.send_signal(number)
    assert server.process.wait(timeout=20) == 128 + number


def test_kit_mcp_serve_is_the_same_server(tmp_path: Path, kit_command: Any) -> None:
    hello = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        },
    }
    done = subprocess.run(
        kit_command.line("mcp", "serve", "trading-data-cn"),
        input=json.dumps(hello) + "\n",
        cwd=tmp_path,
        env=kit_command.environment(),
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=True,
    )
    (reply,) = map(json.loads, done.stdout.splitlines())
    assert reply["result"]["serverInfo"] == {"name": "trading-data-cn", "version": "1.0.0"}


class TestCommand:
    def test_list_and_tools(self, tmp_path: Path, kit_command: Any) -> None:
        found = json.loads(kit_command(tmp_path, "mcp", "list", "--json").stdout)
        assert found == dict.fromkeys(SERVERS, "1.0.0")
        tools = json.loads(kit_command(tmp_path, "mcp", "tools", "kit-mcp", "--json").stdout)
        assert tools["list_skills"]["annotations"]["readOnlyHint"] is True

    def test_an_unknown_server(self, tmp_path: Path, kit_command: Any) -> None:
        done = kit_command(tmp_path, "mcp", "serve", "trading-data")
        assert done.returncode == 2
        assert done.stdout == ""
        assert "did you mean 'trading-data-cn'?" in done.stderr
