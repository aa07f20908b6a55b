"""Servers in this process, as real processes behind the SDK's own client, and line by line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import ClientSession, StdioServerParameters, stdio_client

from kit.serve.desk import Desk
from kit.serve.entry import build

BIN = Path(sys.executable).parent


def environment(**extra: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    return {**kept, "KIT_MODE": "offline", **extra}


@dataclass(frozen=True)
class Answer:
    """What one call gave."""

    failed: bool
    content: list[Any]
    value: Any

    @property
    def error(self) -> dict[str, Any]:
        assert self.failed, self.value
        (block,) = self.content
        found: dict[str, Any] = json.loads(block.text)
        assert found["code"]
        assert found["message"]
        assert found["remedy"]
        return found


def answered(result: Any) -> Answer:
    return Answer(
        failed=bool(result.is_error), content=result.content, value=result.structured_content
    )


Call = Callable[..., Answer]


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """`call("trading-data-cn", "get_bars", {...}, source="parquet")`: one call in this process.

    Without `workspace=` there is none.
    """
    away = tmp_path / "away"
    away.mkdir()
    monkeypatch.chdir(away)

    def one(name: str, tool: str, arguments: dict[str, Any], **desk: Any) -> Answer:
        made = build(name, Desk(**desk))
        return answered(anyio.run(made.call_tool, tool, arguments))

    return one


@asynccontextmanager
async def client(
    name: str, *options: str, folder: Path | None = None, **extra: str
) -> AsyncIterator[tuple[ClientSession, Any]]:
    """Start a server by its console script and shake hands with it, through the SDK's client."""
    parameters = StdioServerParameters(
        command=str(BIN / f"{name}-mcp"), args=list(options), env=environment(**extra), cwd=folder
    )
    with (Path(os.environ["HOME"]) / "server.log").open("a", encoding="utf-8") as log:
        async with (
            stdio_client(parameters, errlog=log) as (reader, writer),
            ClientSession(reader, writer) as session,
        ):
            yield session, await session.initialize()


class Raw:
    """A server as a process, spoken to in lines."""

    def __init__(self, name: str, *options: str, folder: Path, **extra: str) -> None:
        self.process = subprocess.Popen(
            [str(BIN / f"{name}-mcp"), *options],
            cwd=folder,
            env=environment(**extra),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )
        self.asked = 0

    def send(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def request(self, method: str, **params: Any) -> int:
        self.asked += 1
        body = {"jsonrpc": "2.0", "id": self.asked, "method": method, "params": params}
        self.send(json.dumps(body))
        return self.asked

    def read(self, number: int) -> dict[str, Any]:
        """Return the reply to a request; every line on the way must be protocol."""
        assert self.process.stdout is not None
        while line := self.process.stdout.readline():
            message: dict[str, Any] = json.loads(line)
            assert message["jsonrpc"] == "2.0"
            if message.get("id") == number:
                return message
        raise AssertionError("the server closed its output")

    def hello(self) -> dict[str, Any]:
        about = {"name": "test", "version": "1"}
        number = self.request(
            "initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=about
        )
        reply = self.read(number)
        self.send(json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}))
        return reply

    def call(self, tool: str, arguments: dict[str, Any]) -> int:
        return self.request("tools/call", name=tool, arguments=arguments)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(timeout=20)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream is not None
            with suppress(BrokenPipeError):
                stream.close()


@pytest.fixture
def raw(tmp_path: Path) -> Any:
    """`raw("kit", "--workspace", ...)`: a started server, killed after the test if need be."""
    started: list[Raw] = []

    def start(name: str, *options: str, folder: Path = tmp_path, **extra: str) -> Raw:
        started.append(Raw(name, *options, folder=folder, **extra))
        return started[-1]

    yield start
    for one in started:
        one.close()


@pytest.fixture(scope="session")
def connect() -> Any:
    """The asynchronous context manager `client`."""
    return client
