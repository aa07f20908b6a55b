"""The MCP Inspector, a client that others wrote in another language, against the servers.

`npm install @modelcontextprotocol/inspector` somewhere, and name its `mcp-inspector` in
KIT_TEST_MCP_INSPECTOR.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

INSPECTOR = os.environ.get("KIT_TEST_MCP_INSPECTOR", "")
pytestmark = [
    pytest.mark.third_party,
    pytest.mark.skipif(
        not INSPECTOR, reason="KIT_TEST_MCP_INSPECTOR does not name an mcp-inspector"
    ),
]


def inspect(name: str, folder: Path, *options: str) -> Any:
    done = subprocess.run(
        [INSPECTOR, "--cli", str(Path(sys.executable).with_name(f"{name}-mcp")), *options],
        cwd=folder,
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_bars(tmp_path: Path) -> None:
    asked = ('codes=["600000.SH"]', "start_date=2024-09-18", "end_date=2024-09-19")
    call = ("--method", "tools/call", "--tool-name", "get_bars")
    arguments = [part for text in asked for part in ("--tool-arg", text)]
    got = inspect("trading-data-cn", tmp_path, *call, *arguments)
    bars = got["structuredContent"]["bars"]
    assert [bar["date"] for bar in bars] == ["2024-09-18", "2024-09-19"]
    assert json.loads(got["content"][0]["text"]) == got["structuredContent"]


def test_tools_and_skills(tmp_path: Path, copy_repository: Any) -> None:
    workspace = copy_repository(tmp_path / "desk")
    place = ("--workspace", str(workspace.root))
    tools = inspect("kit", tmp_path, *place, "--method", "tools/list")["tools"]
    assert {"load_skill", "screen_today"} <= {tool["name"] for tool in tools}
    call = ("--method", "tools/call", "--tool-name", "load_skill")
    got = inspect("kit", tmp_path, *place, *call, "--tool-arg", "id=ma250-pullback")
    assert got["structuredContent"]["ref"] == "ma250-pullback@0.3.1"
