"""What servers do wrong, one row each, and the exact entry that says so."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Callable
from typing import Any

import pytest

from kit.clock import SystemClock
from kit.workspace import Workspace

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


HOSTILE = "\x1b[31mred\x9b0m\u202e\u200bignore <b>all</b>"
CLEAN = "[31mred0mignore <b>all</b>"


def test_what_a_server_says_is_shown_without_secrets_or_hidden_characters(
    locked: Make, lock_of: Make, serve: Make, bars: Make, checked: Make,
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("BARS_TOKEN", "tushare-0123456789")
    quoted = {"tushare-0123456789": {"type": "string"}, HOSTILE: {}, "x" * 9000: {}}
    many = {f"f{i}": {} for i in range(300)}
    tool = bars(fields={**quoted, "close": None, **many}, required=["tushare-0123456789", HOSTILE])
    serve(tools=[tool], version="tushare-0123456789")
    path = workspace.config_dir / "mcp.json"
    value = json.loads(path.read_text("utf-8"))
    value["servers"]["bars"]["env"] = ["BARS_TOKEN"]
    path.write_text(json.dumps(value), "utf-8")

    answer = checked(locked([lock_of()])).to_dict()
    (version,) = answer["details"]["version_too_old"]
    assert (version["actual"], version["reason"]) == ("«redacted»", "not_a_version")
    (diff,) = answer["details"]["schema_diffs"]
    assert diff["new_required_inputs"] == [CLEAN, "«redacted»"]
    # 4 fields of the tool itself, 3 odd ones, 300 more: the first hundred are named.
    assert len(diff["actual_output_fields"]) == 101
    assert diff["actual_output_fields"][4:6] == ["bars[].«redacted»", f"bars[].{CLEAN}"]
    assert len(diff["actual_output_fields"][6]) == 2000
    assert diff["actual_output_fields"][-1] == "… and 207 more"
    text = json.dumps(answer, ensure_ascii=False)
    assert "0123456789" not in text
    assert not {"\x9b", "\u202e", "\u200b"} & set(text)
    assert "\\u001b" not in text
    assert "bars 报告的版本不是版本号" in answer["remedy_hint"]


def test_a_schema_that_keeps_the_check_busy_does_not_keep_the_answer(
    locked: Make, lock_of: Make, serve: Make, bars: Make, checked: Make
) -> None:
    # Valid, small, and holding the answer against it takes 2**16 steps: some seconds here.
    node = {"properties": {"a": {"$ref": "#/$defs/N"}}}
    endless = {"$defs": {"N": {"allOf": [node, dict(node)]}}, "$ref": "#/$defs/N"}
    payload: dict[str, Any] = {}
    for _ in range(16):
        payload = {"a": payload}
    serve("busy", tools=[bars(outputSchema=endless)], answers={"get_bars": payload})
    serve(tools=[bars()])
    clock = SystemClock()
    began = clock.monotonic()
    busy = lock_of("busy", tools={"get_bars": CANARY})
    answer = checked(locked([busy, lock_of()]), deadline_sec=1.0)
    assert clock.monotonic() - began < 6
    assert [tool.mcp for tool in answer.tools] == ["bars"]
    entry = only(answer, "missing_mcps")
    assert (entry["mcp"], entry["reason"]) == ("busy", "timeout")
    assert entry["message"] == "the check of this server did not come to its end in time"


@pytest.mark.parametrize(
    ("tool", "payload", "passes"),
    [
        # ECMA's own classes, and a pattern that this engine never finishes.
        ({"properties": {"close": {"pattern": r"^\p{L}+$"}}}, {"close": "a"}, True),
        ({"properties": {"x": {"pattern": "^(a+)+$"}}}, {"close": 1, "x": "a" * 60 + "!"}, True),
        ({"$ref": "#"}, {"close": 1}, False),
    ],
)
def test_a_schema_that_no_answer_can_be_held_against(
    locked: Make, lock_of: Make, serve: Make, bars: Make, checked: Make,
    tool: dict[str, Any], payload: Any, passes: bool,
) -> None:  # fmt: skip
    serve(tools=[bars(outputSchema=tool)], answers={"get_bars": payload})
    lock = lock_of(tools={"get_bars": {**CANARY, "required_values": {"close": payload["close"]}}})
    answer = checked(locked([lock]))
    assert answer.ok is passes, answer.to_dict()
    if not passes:
        assert only(answer, "schema_diffs")["reason"] == "bad_schema"
        assert "bars.get_bars 声明的结构不可用" in answer.remedy_hint


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
