"""What servers do wrong, one row each, and the exact entry that says so."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from typing import Any

import pytest

from kit.clock import SystemClock

SOURCE = "pip:bars-mcp==1.4.0"
CANARY = {"canary": {"arguments": {"codes": ["000001.SZ"]}}}
NOWHERE = {"mcp": "bars", "min_version": "1.0", "source": SOURCE}
# What scripted servers answer to a call: {"codes": [...], "pid": ...} as text.
SHOWN = {"tools": {"get_bars": {"required_output_fields": ["codes"], **CANARY}}}

Make = Callable[..., Any]


def only(answer: Any, key: str) -> dict[str, Any]:
    """Return the one entry there is, which stands under `key`."""
    found = {name: entries for name, entries in answer.to_dict()["details"].items() if entries}
    assert list(found) == [key], found
    (entry,) = found[key]
    return dict(entry)


@pytest.mark.parametrize(
    ("served", "reason", "words"),
    [
        (None, "missing_server", "there is no MCP server 'bars' in config/mcp.json"),
        ({"entry": {"command": "/nowhere/bars-mcp"}}, "not_startable", "/nowhere/bars-mcp"),
        ({"entry": {"command": "no-such-program"}}, "not_startable", "no-such-program"),
        ({"how": "exits-at-start"}, "exited", ""),
        ({"how": "refuses-handshake"}, "protocol", "not with you"),
        ({"how": "speaks-nonsense"}, "protocol", "tomorrow"),
        ({"how": "only-banner"}, "protocol", "Usage: scripted"),
        ({"how": "hangs-at-start"}, "timeout", ""),
        ({"how": "hangs-at-list"}, "timeout", ""),
        ({"how": "endless-pages"}, "protocol", ""),
        ({"how": "tools-not-a-list"}, "protocol", ""),
        ({"entry": {"url": "http://127.0.0.1:9/mcp"}}, "unreachable", ""),
    ],
)
def test_a_server_that_cannot_be_used_is_named_with_the_reason(
    locked: Make, lock_of: Make, serve: Make, checked: Make, served: Any, reason: str, words: str
) -> None:
    if served is not None:
        serve(**served)
    answer = checked(locked([lock_of(**SHOWN)]), start_sec=1.5)
    entry = only(answer, "missing_mcps")
    assert {k: entry[k] for k in NOWHERE} == NOWHERE
    assert entry["reason"] == reason
    assert words in entry["message"]
    assert answer.stages_failed == ["mcp_existence"]
    assert SOURCE in answer.remedy_hint
    if reason == "exited":
        assert "No module named 'tushare'" in entry["stderr_tail"]


@pytest.mark.parametrize(
    "how", ["banner", "floods-stderr", "speaks-2024", "keeps-a-child", "wrapped-text", "well"]
)
def test_a_server_that_is_only_odd_passes_on_its_canary(
    locked: Make, lock_of: Make, serve: Make, checked: Make, how: str
) -> None:
    serve(how=how)
    fields = ["rows[].close"] if how == "wrapped-text" else ["codes"]
    lock = lock_of(tools={"get_bars": {"required_output_fields": fields, **CANARY}})
    answer = checked(locked([lock]))
    assert answer.ok, answer.to_dict()
    assert answer.to_dict()["servers"] == [{"mcp": "bars", "version": "1.4.0", "channel": None}]
    assert answer.to_dict()["tools"] == [{"mcp": "bars", "tool": "get_bars", "evidence": "canary"}]


def test_a_tool_on_a_late_page_is_found(
    locked: Make, lock_of: Make, serve: Make, checked: Make
) -> None:
    serve(how="many-pages")
    tool = {"required_output_fields": ["codes"], **CANARY}
    assert checked(locked([lock_of(tools={"tool_29_2": tool})])).ok


@pytest.mark.parametrize(
    ("how", "reason", "words"),
    [
        ("dies-at-call", "exited", ""),
        ("killed-at-call", "exited", ""),
        ("hangs-at-call", "timeout", ""),
        ("is-error", "tool_error", "no data for 000001.SZ"),
        ("prose", "changed", "no longer gives codes"),
        ("repeats-name", "repeated_tool", "more than once"),
    ],
)
def test_a_tool_that_cannot_be_called_is_named_with_the_reason(
    locked: Make, lock_of: Make, serve: Make, checked: Make, how: str, reason: str, words: str
) -> None:
    serve(how=how)
    entry = only(checked(locked([lock_of(**SHOWN)]), deadline_sec=2.0), "schema_diffs")
    assert (entry["mcp"], entry["tool"], entry["reason"]) == ("bars", "get_bars", reason)
    assert words in entry["message"]
    if how == "dies-at-call":
        assert "out of memory" in entry["stderr_tail"]


def test_a_bad_schema_condemns_its_own_tool_only(
    locked: Make, lock_of: Make, serve: Make, checked: Make
) -> None:
    serve(how="bad-schemas")
    assert checked(locked([lock_of(**SHOWN)])).ok
    lock = lock_of(tools={"no_schema": {"required_output_fields": [], **CANARY}})
    entry = only(checked(locked([lock])), "schema_diffs")
    assert (entry["tool"], entry["reason"], entry["evidence"]) == (
        "no_schema", "bad_schema", "unverifiable",
    )  # fmt: skip
    assert entry["message"]


@pytest.mark.parametrize(
    ("version", "wanted", "reason"),
    [
        ("1.4.0", "1.4.1", "too_old"),
        ("1.9", "1.10", "too_old"),
        ("2.0.0rc1", "2.0.0", "too_old"),
        ("", "1.0", "no_version"),
        ("nightly", "1.0", "not_a_version"),
        ("1.10", "1.9", ""),
        ("1.0", "1.0.0", ""),
    ],
)
def test_versions_are_compared_as_versions(
    locked: Make, lock_of: Make, serve: Make, bars: Make, checked: Make,
    version: str, wanted: str, reason: str,
) -> None:  # fmt: skip
    serve(version=version, tools=[bars()])
    answer = checked(locked([lock_of(min_version=wanted)]))
    if not reason:
        assert answer.ok
        return
    entry = only(answer, "version_too_old")
    assert (entry["actual"], entry["min_version"], entry["reason"]) == (version, wanted, reason)
    assert answer.stages_failed == ["mcp_existence"]


def test_the_version_of_the_library_is_no_version(
    locked: Make, lock_of: Make, serve: Make, bars: Make, checked: Make
) -> None:
    sdk = importlib.metadata.version("mcp")
    serve(version=sdk, tools=[bars()])
    entry = only(checked(locked([lock_of()])), "version_too_old")
    assert (entry["reason"], entry["actual"]) == ("sdk_version", sdk)


def test_the_channel_is_the_operators_word(
    locked: Make, lock_of: Make, serve: Make, bars: Make, checked: Make
) -> None:
    bundle = locked([lock_of(channel="internal-a-share")])
    serve(tools=[bars()], channel="internal-a-share")
    assert checked(bundle).ok
    for channel in ("community", None):
        serve(tools=[bars()], channel=channel)
        mismatch = {
            "mcp": "bars", "required": "internal-a-share", "actual": channel, "source": SOURCE,
        }  # fmt: skip
        answer = checked(bundle)
        assert only(answer, "channel_mismatch") == mismatch
        assert answer.stages_failed == ["channel"]
        forced = checked(bundle, force_channel=True)
        assert forced.ok
        assert forced.to_dict()["warnings"] == [mismatch]


def test_servers_are_asked_side_by_side(
    locked: Make, lock_of: Make, serve: Make, bars: Make, checked: Make
) -> None:
    names = [f"slow-{n}" for n in range(4)]
    for name in names:
        serve(name, how="hangs-at-start")
    serve(tools=[bars()])
    bundle = locked([*(lock_of(name) for name in names), lock_of()])
    clock = SystemClock()
    began = clock.monotonic()
    answer = checked(bundle, start_sec=2.0)
    # One after the other they would take eight seconds.
    assert clock.monotonic() - began < 6
    assert [entry["mcp"] for entry in answer.to_dict()["details"]["missing_mcps"]] == names
    assert [tool.mcp for tool in answer.tools] == ["bars"]
