"""What a pool does with servers that behave."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

import kit.mcp
from kit.errors import CODES, DataError, McpError
from kit.mcp import Recorder, ResourceLink, ServerConfig, ServerPool, ToolAnswer, output_fields

Open = Callable[..., ServerPool]
Scripted = Callable[..., ServerConfig]


def test_twenty_threads_share_one_process(pool: Open, pids: object) -> None:
    opened = pool("plain")

    def ask(number: int) -> dict[str, object]:
        answer = opened.call("plain", "get_bars", {"codes": [str(number)]})
        return dict(answer.require_payload())

    with ThreadPoolExecutor(20) as threads:
        answers = list(threads.map(ask, range(20)))
    assert [answer["codes"] for answer in answers] == [[str(number)] for number in range(20)]
    assert len({answer["pid"] for answer in answers}) == 1
    assert len(pids.known()) == 1  # type: ignore[attr-defined]


def test_it_is_called_while_a_loop_runs_as_in_a_notebook(pool: Open) -> None:
    opened = pool("plain")

    async def cell() -> list[str]:
        answer = opened.call("plain", "get_bars", {"codes": ["000001.SZ"]})
        return list(answer.require_payload()["codes"])

    assert asyncio.run(cell()) == ["000001.SZ"]


def test_nothing_starts_before_the_first_use(pool: Open, pids: object) -> None:
    opened = pool("plain")
    assert pids.known() == []  # type: ignore[attr-defined]
    opened.describe("plain")
    assert len(pids.alive()) == 1  # type: ignore[attr-defined]


def test_a_call_that_timed_out_leaves_the_server_usable(pool: Open) -> None:
    opened = pool("garbage-at-call")
    for _ in range(2):
        with pytest.raises(McpError) as caught:
            opened.call("garbage-at-call", "get_bars", {"codes": []}, timeout_sec=0.3)
        assert caught.value.code == "mcp.protocol"


def test_a_tool_that_is_not_there_is_named_with_a_suggestion(pool: Open) -> None:
    with pytest.raises(McpError) as caught:
        pool("plain").call("plain", "get_bar", {})
    assert (caught.value.code, caught.value.remedy) == ("mcp.no_tool", "did you mean 'get_bars'?")


def test_an_argument_that_is_no_json_is_refused_before_it_is_sent(pool: Open) -> None:
    with pytest.raises(DataError) as caught:
        pool("plain").call("plain", "get_bars", {"codes": {1, 2}})
    assert caught.value.code == "file.bad_json"


def test_json_inside_a_wrapped_text_is_the_payload(pool: Open) -> None:
    answer = pool("wrapped-text").call("wrapped-text", "get_bars", {"codes": []})
    assert (answer.payload, answer.structured) == ({"rows": [{"close": 1}]}, True)


def test_calls_are_recorded(scripted: Scripted) -> None:
    recorder = Recorder()
    with ServerPool({"plain": scripted("plain")}, recorder=recorder) as pool:
        answer = pool.call("plain", "get_bars", {"codes": ["000001.SZ"]})
        assert answer.payload["codes"] == ["000001.SZ"]
    (tool,) = recorder.record().tools
    assert (tool.mcp, tool.tool, tool.calls) == ("plain", "get_bars", 1)
    assert (tool.inputs, tool.outputs) == (("codes",), ("codes",))


def test_the_version_of_an_sdk_beside_the_program_is_not_the_servers(
    scripted: Scripted, tmp_path: Path
) -> None:
    # A virtual environment as far as the rule looks: bin/, and a distribution's folder.
    (tmp_path / "venv/bin").mkdir(parents=True)
    (tmp_path / "venv/bin/python").symlink_to(sys.executable)
    (tmp_path / "venv/lib/python3.11/site-packages/mcp-1.26.0.dist-info").mkdir(parents=True)

    def said(version: str) -> bool:
        config = scripted("sdk-version", version)
        config = ServerConfig(name="s", command="venv/bin/python", args=config.args, root=tmp_path)
        with ServerPool({"s": config}) as pool:
            info = pool.describe("s")
        assert info.version == version
        return info.version_is_sdk

    assert said("1.26.0")
    assert not said("1.26.1")


def link(uri: str) -> ToolAnswer:
    one = ResourceLink(uri=uri, meta={})
    return ToolAnswer(server="plain", tool="get_bars", payload=None, text="", links=(one,))


def test_rows_behind_a_link_are_read(pool: Open, tmp_path: Path) -> None:
    rows = pa.table({"symbol": ["000001.SZ"], "close": [12.5]})
    pq.write_table(rows, tmp_path / "the bars.parquet")
    opened = pool("plain")
    recorder = opened.recorder = Recorder()
    assert opened.table(link((tmp_path / "the bars.parquet").as_uri())).equals(rows)
    assert recorder.record().tools[0].outputs == ("close", "symbol")


@pytest.mark.parametrize(("content", "says"), [(b"PAR0", "it is no Parquet"), (None, "No such")])
def test_a_link_to_nothing_readable(
    pool: Open, tmp_path: Path, content: bytes | None, says: str
) -> None:
    if content is not None:
        (tmp_path / "x.parquet").write_bytes(content)
    with pytest.raises(McpError, match=says) as caught:
        pool("plain").table(link((tmp_path / "x.parquet").as_uri()))
    assert caught.value.code == "mcp.protocol"


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def http_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    script = Path(__file__).parent / "servers" / "http_server.py"
    with (tmp_path_factory.mktemp("http") / "log").open("w") as log:
        server = subprocess.Popen([sys.executable, script, str(port)], stdout=log, stderr=log)
        try:
            until = time.monotonic() + 60
            while not _answers(port):
                assert server.poll() is None
                assert time.monotonic() < until
                time.sleep(0.1)
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            server.kill()
            server.wait()


def test_a_server_over_http(http_url: str) -> None:
    with ServerPool({"web": ServerConfig(name="web", url=http_url)}) as pool:
        info = pool.describe("web")
        answer = pool.call("web", "get_bars", {"codes": ["a", "b"]})
        rows = pool.fetch("web", "rows://all")
        with pytest.raises(McpError) as caught:
            pool.fetch("web", "rows://none")
    assert (info.server_name, info.version) == ("http-bars", "2.0.1")
    assert "bars[].close_adj" in output_fields(info.tools[0].output_schema)
    assert answer.payload == {"bars": [{"date": "2024-09-18", "close_adj": 12.5}] * 2}
    assert rows == b"\x00\x01rows"
    assert caught.value.code == "mcp.tool_error"


def test_a_server_that_does_not_answer_the_goodbye_is_left(httpserver: HTTPServer) -> None:
    def answer(request: Request) -> Response:
        if request.method == "DELETE":
            time.sleep(6)
        if request.method != "POST" or "id" not in request.json:
            return Response(status=405 if request.method == "GET" else 202)
        server = {"name": "s", "version": "1.4.0"}
        result = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": server}
        listed = request.json["method"] == "tools/list"
        body = {"jsonrpc": "2.0", "id": request.json["id"], "result": {"tools": []}}
        return Response(
            json.dumps(body if listed else {**body, "result": result}),
            content_type="application/json",
            headers={"Mcp-Session-Id": "s1"},
        )

    httpserver.expect_request("/mcp").respond_with_handler(answer)
    config = ServerConfig(name="deaf", url=httpserver.url_for("/mcp"))
    with ServerPool({"deaf": config}) as pool:
        assert pool.describe("deaf").version == "1.4.0"
        began = time.monotonic()
    assert time.monotonic() - began < 5


def test_nobody_listens_at_an_address() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        config = ServerConfig(name="off", url=f"http://127.0.0.1:{port}/mcp")
        with ServerPool({"off": config}) as pool, pytest.raises(McpError) as caught:
            pool.describe("off")
    assert caught.value.code == "mcp.unreachable"


@pytest.mark.parametrize(
    ("status", "content_type", "body", "code", "says"),
    [
        (401, "text/plain", "no", "mcp.unreachable", "answered initialize with HTTP status 401"),
        (500, "text/plain", "no", "mcp.unreachable", "answered initialize with HTTP status 500"),
        (200, "text/html", "<html>", "mcp.protocol", "Unexpected content type: text/html"),
        (200, "application/json", '{"id"', "mcp.protocol", "garbled its answer to initialize"),
    ],
)
def test_an_address_that_is_no_mcp_server(
    httpserver: HTTPServer,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    content_type: str,
    body: str,
    code: str,
    says: str,
) -> None:
    monkeypatch.setenv("WEB_AUTH", "Bearer abcdefgh12345678")
    sent = {"Authorization": "Bearer abcdefgh12345678"}
    httpserver.expect_request("/mcp", headers=sent).respond_with_data(
        body, status=status, content_type=content_type
    )
    config = ServerConfig(
        name="web", url=httpserver.url_for("/mcp"), headers_env={"Authorization": "WEB_AUTH"}
    )
    with ServerPool({"web": config}) as pool, pytest.raises(McpError) as caught:
        pool.describe("web")
    assert caught.value.code == code
    assert says in caught.value.message


def test_the_sdk_is_imported_with_the_first_call_only() -> None:
    code = (
        "import sys, kit.mcp; print([n for n in ('mcp', 'pydantic', 'httpx2') if n in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "[]\n"


def test_every_public_name_exists_and_every_code_is_explained() -> None:
    assert sorted(kit.mcp.__all__) == list(dict.fromkeys(sorted(kit.mcp.__all__)))
    assert all(hasattr(kit.mcp, name) for name in kit.mcp.__all__)
    room = Path(kit.mcp.__file__).parent
    raised = {
        code
        for module in room.glob("*.py")
        for code in re.findall(r'"(mcp\.[a-z_]+)"', module.read_text(encoding="utf-8"))
    }
    assert raised <= set(CODES)
