"""Real processes that misbehave: a precise error, in time, and nothing left running."""

from __future__ import annotations

import stat
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kit.errors import McpError
from kit.mcp import ServerConfig, ServerInfo, ServerPool

Open = Callable[..., ServerPool]
Scripted = Callable[..., ServerConfig]
CODES = {"codes": ["000001.SZ"]}


def refusal(act: Callable[..., Any], *args: Any, **kwargs: Any) -> McpError:
    with pytest.raises(McpError) as caught:
        act(*args, **kwargs)
    assert caught.value.exit_code == 5
    assert caught.value.remedy
    return caught.value


def test_a_server_that_is_not_configured_is_named_with_a_suggestion(pool: Open) -> None:
    error = refusal(pool("banner").describe, "bannr")
    assert (error.code, error.remedy) == ("mcp.missing_server", "did you mean 'banner'?")


def test_a_command_that_is_nowhere(tmp_path: Path) -> None:
    with ServerPool({"x": ServerConfig(name="x", command="no-such-mcp", root=tmp_path)}) as pool:
        error = refusal(pool.describe, "x")
    assert error.code == "mcp.not_startable"
    assert "no-such-mcp is neither in" in error.message
    assert error.where == "config/mcp.json: servers.x.command"


@pytest.mark.parametrize(
    ("content", "mode", "says"),
    [
        ("#!/bin/sh\n", 0o600, "may not be executed"),
        ("#!/no/such/interpreter\n", 0o700, "No such file"),
        ("\x00\x01 not a program", 0o700, "Exec format error"),
    ],
)
def test_a_file_that_cannot_be_executed(tmp_path: Path, content: str, mode: int, says: str) -> None:
    program = tmp_path / "server"
    program.write_text(content)
    program.chmod(stat.S_IMODE(mode))
    with ServerPool({"x": ServerConfig(name="x", command="./server", root=tmp_path)}) as pool:
        error = refusal(pool.describe, "x")
    assert error.code == "mcp.not_startable"
    assert says in error.message


@pytest.mark.parametrize(
    ("how", "code", "says"),
    [
        ("exits-at-start", "mcp.exited", "ended with exit status 3 at initialize"),
        ("refuses-handshake", "mcp.protocol", "refused initialize: not with you (-32600)"),
        ("misses-info", "mcp.protocol", "answered initialize wrongly: "),
        (
            "speaks-nonsense",
            "mcp.protocol",
            "Unsupported protocol version from the server: tomorrow",
        ),
        ("cursor-loop", "mcp.protocol", "page 3 points to one before it"),
        ("endless-banner", "mcp.protocol", "sent more than 10000 lines that are no message"),
        ("endless-pages", "mcp.protocol", "never comes to the end of its tool list"),
        ("tools-not-a-list", "mcp.protocol", "lists its tools without a list of tools"),
    ],
)
def test_a_server_that_cannot_be_described(pool: Open, how: str, code: str, says: str) -> None:
    error = refusal(pool(how).describe, how)
    assert error.code == code
    assert says in error.message
    assert error.details["server"] == how


def test_the_last_words_of_a_server_that_ends_at_start_are_told(pool: Open) -> None:
    error = refusal(pool("exits-at-start").describe, "exits-at-start")
    assert error.details["stderr_tail"] == "ModuleNotFoundError: No module named 'tushare'"
    assert error.message.endswith("No module named 'tushare'")


@pytest.mark.parametrize(
    ("how", "code", "says"),
    [
        ("hangs-at-start", "mcp.timeout", "did not answer initialize in 2 s"),
        ("hangs-at-list", "mcp.timeout", "did not answer tools/list in 2 s"),
        ("only-banner", "mcp.protocol", "first 'Usage: scripted [OPTIONS]'"),
    ],
)
def test_a_server_that_hangs_is_given_up_in_time(
    pool: Open, how: str, code: str, says: str
) -> None:
    opened = pool(how, deadline_sec=2.0)
    started = time.monotonic()
    error = refusal(opened.describe, how)
    assert time.monotonic() - started < 5
    assert error.code == code
    assert says in error.message
    # The second time it is known.
    started = time.monotonic()
    assert refusal(opened.describe, how).message == error.message
    assert time.monotonic() - started < 0.5


@pytest.mark.parametrize(
    ("how", "code", "says"),
    [
        ("dies-at-call", "mcp.exited", "ended with exit status 7 at tools/call"),
        ("killed-at-call", "mcp.exited", "was ended by signal 9 at tools/call"),
        ("too-huge", "mcp.protocol", "sent a message of more than 32 MiB"),
    ],
)
def test_a_server_lost_in_a_call_stays_lost(pool: Open, how: str, code: str, says: str) -> None:
    opened = pool(how)
    error = refusal(opened.call, how, "get_bars", CODES)
    assert error.code == code
    assert says in error.message
    assert refusal(opened.call, how, "get_bars", CODES).code == code


def test_secrets_that_a_server_was_given_are_masked(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "tushare-0123456789")
    config = scripted("dies-at-call", env=("SECRET_TOKEN",))
    with ServerPool({"s": replace(config, name="s")}) as pool:
        error = refusal(pool.call, "s", "get_bars", CODES)
    assert error.details["stderr_tail"] == "Traceback: out of memory, token=«redacted»"
    assert "tushare-0123456789" not in str(error.to_dict())


def test_secrets_that_a_tool_quotes_are_masked(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "tushare-0123456789")
    config = scripted("quotes-token", env=("SECRET_TOKEN",))
    with ServerPool({"s": replace(config, name="s")}) as pool:
        error = refusal(pool.call, "s", "get_bars", CODES)
    assert error.message == "s.get_bars failed: token «redacted» was refused"
    assert "tushare-0123456789" not in str(error.to_dict())


def test_a_server_is_given_no_variable_that_is_not_listed(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "tushare-0123456789")
    with ServerPool({"s": replace(scripted("dies-at-call"), name="s")}) as pool:
        error = refusal(pool.call, "s", "get_bars", CODES)
    assert error.details["stderr_tail"] == "Traceback: out of memory, token=None"


@pytest.mark.parametrize(
    ("how", "code", "says"),
    [
        ("hangs-at-call", "mcp.timeout", "did not answer tools/call in 1 s"),
        ("garbage-at-call", "mcp.protocol", "it printed 1 line(s) that are no message"),
        ("half-json-at-call", "mcp.protocol", "gave no answer to tools/call in 1 s"),
        ("result-no-object", "mcp.protocol", "garbled its answer to tools/call"),
        ("nan-structured", "mcp.protocol", "NaN is not JSON"),
        ("infinite-text", "mcp.protocol", "answered with NaN or an infinite number"),
        ("is-error", "mcp.tool_error", "get_bars failed: no data for 000001.SZ"),
        ("off-schema", "mcp.off_schema", "close: '12.5' is not of type 'number'"),
    ],
)
def test_an_answer_that_is_none(pool: Open, how: str, code: str, says: str) -> None:
    opened = pool(how)
    opened.describe(how)
    started = time.monotonic()
    error = refusal(opened.call, how, "get_bars", CODES, timeout_sec=1.0)
    assert time.monotonic() - started < 3
    assert error.code == code
    assert says in error.message


@pytest.mark.parametrize(
    ("how", "says"), [("prose", "its text is not JSON"), ("nan-text", "NaN is not JSON")]
)
def test_text_that_is_no_json_is_no_payload(pool: Open, how: str, says: str) -> None:
    answer = pool(how).call(how, "get_bars", CODES)
    assert answer.payload is None
    assert says in answer.problem
    assert refusal(answer.require_payload).code == "mcp.no_payload"


def test_a_banner_on_stdout_is_told_and_does_no_harm(pool: Open) -> None:
    opened = pool("banner")
    info = opened.describe("banner")
    assert info.problems == (
        "it printed 2 line(s) that are no message, first 'Welcome to scripted 1.4.0!'",
    )
    assert opened.call("banner", "get_bars", CODES).payload["codes"] == ["000001.SZ"]


def test_ten_megabytes_on_stderr_block_nobody(pool: Open) -> None:
    info = pool("floods-stderr").describe("floods-stderr")
    assert info.stderr_tail.endswith("\nthe last line")
    assert len(info.stderr_tail) <= 2000


def test_a_repeated_name_is_told_and_not_called(pool: Open) -> None:
    opened = pool("repeats-name")
    info = opened.describe("repeats-name")
    assert [tool.name for tool in info.tools] == ["get_bars", "x"]
    assert info.duplicates == ("get_bars",)
    error = refusal(opened.call, "repeats-name", "get_bars", CODES)
    assert error.code == "mcp.no_tool"
    assert "lists more than one tool 'get_bars'" in error.message
    assert opened.call("repeats-name", "x", CODES).payload["codes"] == ["000001.SZ"]


def test_every_page_is_read(pool: Open) -> None:
    info = pool("many-pages").describe("many-pages")
    assert [tool.name for tool in info.tools] == [
        f"tool_{page}_{i}" for page in range(30) for i in range(3)
    ]


def test_a_bad_schema_spoils_its_own_tool_only(pool: Open) -> None:
    opened = pool("bad-schemas")
    info = opened.describe("bad-schemas")
    problems = {tool.name: tool.problem for tool in info.tools if tool.problem}
    assert problems == {
        "no_object": "inputSchema: is not an object but str",
        "no_schema": "inputSchema: type: 'objet' is not valid under any of the given schemas",
        "far": "inputSchema: refers to another document: http://127.0.0.1:9/schema.json",
        "lost": "outputSchema: refers to what is not there: #/$defs/X",
        "#5": "an entry without a name",
    }
    error = refusal(opened.call, "bad-schemas", "lost", {})
    assert (error.code, error.where) == ("mcp.bad_schema", "bad-schemas.lost")
    assert opened.call("bad-schemas", "get_bars", CODES).payload["codes"] == ["000001.SZ"]


def test_a_server_without_tools_has_none(pool: Open) -> None:
    info = pool("no-tools-method").describe("no-tools-method")
    assert (info.tools, info.problems) == ((), ("it has no tools at all",))


def test_an_old_protocol_is_spoken(pool: Open) -> None:
    opened = pool("speaks-2024")
    assert opened.describe("speaks-2024").protocol_version == "2024-11-05"
    assert opened.call("speaks-2024", "get_bars", CODES).payload["codes"] == ["000001.SZ"]


def test_eight_megabytes_are_taken(pool: Open) -> None:
    rows = pool("huge").call("huge", "get_bars", CODES).payload["rows"]
    assert (len(rows), rows[-1]["close"]) == (8000, 7999)


def test_a_question_of_the_server_is_answered_with_a_refusal(pool: Open) -> None:
    # -32600 and below are JSON-RPC's own refusals.
    payload = pool("asks-back").call("asks-back", "get_bars", CODES, timeout_sec=10).payload
    assert payload["error"] <= -32600


def test_a_version_without_end_is_cut(pool: Open) -> None:
    assert len(pool("endless-version").describe("endless-version").version) == 100


def test_an_empty_version_is_shown_as_it_is(pool: Open) -> None:
    info = pool("no-version").describe("no-version")
    assert (info.version, info.version_is_sdk) == ("", False)


def test_a_child_that_keeps_the_pipes_ends_with_the_pool(pool: Open, pids: Any) -> None:
    opened = pool("keeps-a-child")
    opened.call("keeps-a-child", "get_bars", CODES)
    assert len(pids.alive()) == 2
    opened.__exit__(None, None, None)
    assert pids.are_gone()


def test_a_server_whose_child_keeps_the_pipes_is_seen_to_end(pool: Open) -> None:
    opened = pool("child-keeps-pipes")
    opened.describe("child-keeps-pipes")
    started = time.monotonic()
    error = refusal(opened.call, "child-keeps-pipes", "get_bars", CODES)
    assert time.monotonic() - started < 5
    assert error.code == "mcp.exited"
    assert "ended with exit status 0" in error.message


def test_a_server_that_ignores_its_end_is_killed(pool: Open, pids: Any) -> None:
    opened = pool("ignores-the-end")
    opened.describe("ignores-the-end")
    started = time.monotonic()
    opened.__exit__(None, None, None)
    assert time.monotonic() - started < 6
    assert len(pids.known()) == 1
    assert pids.are_gone()


def test_all_are_described_at_once_under_one_deadline(pool: Open) -> None:
    hows = ["banner", "hangs-at-start", "exits-at-start", "hangs-at-list", "many-pages"]
    opened = pool(*hows)
    started = time.monotonic()
    said = opened.describe_all([*hows, "unknown"], 3.0)
    assert time.monotonic() - started < 6
    assert {
        name: one.code if isinstance(one, McpError) else type(one) for name, one in said.items()
    } == {
        "banner": ServerInfo,
        "hangs-at-start": "mcp.timeout",
        "exits-at-start": "mcp.exited",
        "hangs-at-list": "mcp.timeout",
        "many-pages": ServerInfo,
        "unknown": "mcp.missing_server",
    }


def test_closing_the_pool_ends_a_call_that_waits(pool: Open) -> None:
    opened = pool("hangs-at-call")
    opened.describe("hangs-at-call")
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(refusal, opened.call, "hangs-at-call", "get_bars", CODES)
        time.sleep(0.3)
        started = time.monotonic()
        opened.__exit__(None, None, None)
        assert waiting.result(10).code == "mcp.exited"
    assert time.monotonic() - started < 6


def test_a_pool_is_used_inside_its_block_only(scripted: Scripted) -> None:
    pool = ServerPool({"banner": scripted("banner")})
    assert refusal(pool.describe, "banner").code == "mcp.closed"
    with pool:
        pool.describe("banner")
    assert refusal(pool.describe, "banner").code == "mcp.closed"
