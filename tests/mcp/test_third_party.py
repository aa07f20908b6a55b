"""Servers that other people wrote, where they are installed.

Each variable holds the command line that starts one, for example a console script of a virtual
environment of its own. `KIT_TEST_MCP_TIME` is the reference time server (Python) of 2026 or later,
`KIT_TEST_MCP_TIME_OLD` one of 2025 with `mcp<2`; `KIT_TEST_MCP_FILESYSTEM` is the reference
filesystem server (Node), without the folder to serve.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from kit.errors import McpError
from kit.mcp import ServerConfig, ServerPool, output_fields, payload_fields, required_inputs

pytestmark = pytest.mark.third_party


def configured(variable: str, root: Path, *more: str) -> ServerConfig:
    line = os.environ.get(variable)
    if not line:
        pytest.skip(f"{variable} names no command")
    command, *args = shlex.split(line)
    return ServerConfig(name="theirs", command=command, args=(*args, *more), root=root)


ASKED = {
    "source_timezone": "Asia/Shanghai",
    "time": "15:00",
    "target_timezone": "America/New_York",
}


def test_the_time_server(tmp_path: Path) -> None:
    config = configured("KIT_TEST_MCP_TIME", tmp_path, "--local-timezone=Asia/Shanghai")
    with ServerPool({"theirs": config}, deadline_sec=60) as pool:
        info = pool.describe("theirs")
        convert = info.tool("convert_time")
        assert convert is not None
        answer = pool.call("theirs", "convert_time", ASKED)
        with pytest.raises(McpError) as caught:
            pool.call("theirs", "convert_time", {**ASKED, "time": "25:99"})
    assert (info.version_is_sdk, info.duplicates, info.problems) == (False, (), ())
    assert info.version.startswith("20")
    assert required_inputs(convert.input_schema) == set(ASKED)
    assert "target.timezone" in output_fields(convert.output_schema)
    assert answer.structured
    assert answer.payload["target"]["timezone"] == "America/New_York"
    assert caught.value.code == "mcp.tool_error"


def test_a_time_server_that_declares_no_version_reports_its_sdks(tmp_path: Path) -> None:
    config = configured("KIT_TEST_MCP_TIME_OLD", tmp_path, "--local-timezone=Asia/Shanghai")
    with ServerPool({"theirs": config}, deadline_sec=60) as pool:
        info = pool.describe("theirs")
        answer = pool.call("theirs", "convert_time", ASKED)
    assert info.version.startswith("1.")
    assert info.version_is_sdk
    assert output_fields(info.tools[0].output_schema) == {}
    assert not answer.structured
    assert "target.timezone" in payload_fields(answer.require_payload())


def test_the_filesystem_server(tmp_path: Path) -> None:
    (tmp_path / "bars.csv").write_text("date,close\n")
    config = configured("KIT_TEST_MCP_FILESYSTEM", tmp_path, str(tmp_path))
    with ServerPool({"theirs": config}, deadline_sec=60) as pool:
        info = pool.describe("theirs")
        reader = info.tool("read_text_file")
        assert reader is not None
        answer = pool.call("theirs", "read_text_file", {"path": str(tmp_path / "bars.csv")})
        with pytest.raises(McpError) as caught:
            pool.call("theirs", "read_text_file", {"path": "/etc/hostname"})
    assert (info.version_is_sdk, info.duplicates, info.problems) == (False, (), ())
    assert info.version
    assert "path" in required_inputs(reader.input_schema)
    assert "content" in output_fields(reader.output_schema)
    assert answer.payload == {"content": "date,close\n"}
    assert caught.value.code == "mcp.tool_error"
