"""The whole check: every failure of every stage in one answer, in time, in the documented shape."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from kit.clock import SystemClock
from kit.errors import LockError
from kit.workspace import Workspace

SOURCE = "pip:bars-mcp==1.4.0"
Make = Callable[..., Any]


def test_a_lock_that_demands_nothing_holds(locked: Make, checked: Make) -> None:
    assert checked(locked()).to_dict() == {
        "kind": "env_lock_valid",
        "skill_id": "tiny-screen@draft",
        "servers": [], "tools": [], "env": [], "databases": [], "warnings": [],
    }  # fmt: skip


def test_an_empty_variable_is_a_missing_one_and_no_value_is_shown(
    locked: Make, checked: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = locked(env=[{"name": "BARS_TOKEN", "purpose": "行情"}])
    monkeypatch.setenv("BARS_TOKEN", "")
    answer = checked(bundle).to_dict()
    assert answer["stages_failed"] == ["required_env"]
    assert answer["details"]["missing_env"] == [{"name": "BARS_TOKEN", "purpose": "行情"}]
    assert answer["remedy_hint"] == "请设置环境变量 BARS_TOKEN（行情）"
    monkeypatch.setenv("BARS_TOKEN", "t0p-secret-value")
    good = checked(bundle)
    assert good.to_dict()["env"] == ["BARS_TOKEN"]
    assert "t0p-secret" not in json.dumps(good.to_dict())


def test_every_stage_fails_at_once_within_the_deadline(
    workspace: Workspace, locked: Make, lock_of: Make, serve: Make, bars: Make, checked: Make,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    pytest.importorskip("psycopg")
    serve("bars", tools=[bars(fields={"close": None})], version="0.9.0", channel="community")
    serve("news", how="hangs-at-start")
    monkeypatch.setenv("BARS_TOKEN", "")
    bundle = locked(
        mcps=[
            lock_of("bars", channel="internal-a-share"),
            lock_of("news", source="pip:news-mcp==2.0.0"),
            lock_of("nobody", source="git:owner/nobody@v1.0.0"),
        ],
        env=[{"name": "BARS_TOKEN", "purpose": "行情"}],
        db=[{"alias": "market", "kind": "postgres", "purpose": "缓存"}],
    )
    clock = SystemClock()
    began = clock.monotonic()
    with closing(socket.create_server(("127.0.0.1", 0))) as mute:
        monkeypatch.setenv("MARKET_URL", f"postgresql://u:pw@127.0.0.1:{mute.getsockname()[1]}/x")
        answer = checked(
            bundle,
            start_sec=2.0,
            deadline_sec=4.0,
            database_sec=2.0,
            databases={"market": {"url_env": "MARKET_URL"}},
        )
    assert clock.monotonic() - began < 6
    value = answer.to_dict()
    details = value["details"]
    # Where a message names seconds or paths, the row of its own says what it holds.
    for entry in details["missing_mcps"]:
        assert entry.pop("message")
        assert entry.pop("stderr_tail") == ""
    (diff,) = details["schema_diffs"]
    assert diff.pop("actual_output_fields") == [
        "bars[].symbol", "bars[].date", "bars[].volume", "bars[].volume_unit",
    ]  # fmt: skip
    assert value == {
        "kind": "env_lock_validation_failed",
        "skill_id": "tiny-screen@draft",
        "stages_failed": [
            "channel", "mcp_existence", "mcp_schema", "required_env", "required_db",
        ],
        "details": {
            "channel_mismatch": [
                {"mcp": "bars", "required": "internal-a-share", "actual": "community",
                 "source": SOURCE}
            ],
            "missing_mcps": [
                {"mcp": "news", "min_version": "1.0", "source": "pip:news-mcp==2.0.0",
                 "reason": "timeout"},
                {"mcp": "nobody", "min_version": "1.0", "source": "git:owner/nobody@v1.0.0",
                 "reason": "missing_server"},
            ],
            "version_too_old": [
                {"mcp": "bars", "min_version": "1.0", "source": SOURCE, "actual": "0.9.0",
                 "reason": "too_old", "message": "the server is 0.9.0, the lock wants 1.0 or newer"}
            ],
            "schema_diffs": [
                {"mcp": "bars", "tool": "get_bars", "source": SOURCE, "reason": "changed",
                 "message": "no longer gives close", "evidence": "schema",
                 "missing_input_fields": [], "new_required_inputs": [],
                 "missing_output_fields": ["close"], "value_mismatches": [],
                 "type_changes": [], "changed_since_freeze": [], "stderr_tail": ""}
            ],
            "missing_env": [{"name": "BARS_TOKEN", "purpose": "行情"}],
            "unreachable_db": [
                {"alias": "market", "kind": "postgres", "purpose": "缓存",
                 "url_env": "MARKET_URL", "reason": "timeout",
                 "message": "no answer within 2 s"}
            ],
        },
        "remedy_hint": (
            "bars 的渠道应为 internal-a-share，config/mcp.json 登记的是 community："
            "请换用 internal-a-share 渠道的服务；确认要混用时加 --force-channel-mismatch；"
            "news 已启动但没有回应：请检查该服务（应为 pip:news-mcp==2.0.0）；"
            "请安装 nobody 1.0 以上版本（git:owner/nobody@v1.0.0），并登记到 config/mcp.json；"
            f"bars 版本 0.9.0 过低：请升级到 1.0 以上（{SOURCE}）；"
            f"bars.get_bars 与冻结时不一致（close）：请换用 {SOURCE}，"
            "或按新结构修改并重新冻结策略；"
            "请设置环境变量 BARS_TOKEN（行情）；"
            "数据库 market（postgres）连不上：请检查 MARKET_URL 与数据库服务"
        ),
    }  # fmt: skip
    error = answer.error()
    assert isinstance(error, LockError)
    assert error.exit_code == 4
    assert error.details == answer.to_dict()
    assert "bars.get_bars" in error.message


def test_a_frozen_versions_stored_schemas_say_what_changed(
    locked: Make, lock_of: Make, serve: Make, bars: Make, checked: Make
) -> None:
    bundle = locked([lock_of()])
    was = bars()
    stored = {"input_schema": was["inputSchema"], "output_schema": was["outputSchema"]}
    folder = bundle.root / "schemas" / "bars"
    folder.mkdir(parents=True)
    (folder / "get_bars.json").write_text(json.dumps(stored), "utf-8")
    serve(tools=[bars()])
    assert checked(bundle).ok
    serve(tools=[bars(fields={"close": {"type": "string"}})])
    (diff,) = checked(bundle).to_dict()["details"]["schema_diffs"]
    assert diff["type_changes"] == [
        {"field": "close", "what": "type", "stored": ["number"], "live": ["string"]}
    ]
    assert diff["changed_since_freeze"] == ["output bars[].close: number -> string"]


def test_a_server_that_is_slow_leaves_the_others_their_time(
    locked: Make, lock_of: Make, serve: Make, bars: Make, checked: Make
) -> None:
    serve("slow", how="hangs-at-call")
    serve(tools=[bars()])
    tool = {"required_output_fields": ["codes"], "canary": {"arguments": {"codes": []}}}
    bundle = locked([lock_of("slow", tools={"get_bars": tool}), lock_of()])
    began = time.monotonic()
    answer = checked(bundle, deadline_sec=2.0)
    assert time.monotonic() - began < 5
    assert [tool.mcp for tool in answer.tools] == ["bars"]
    (diff,) = answer.to_dict()["details"]["schema_diffs"]
    assert (diff["mcp"], diff["reason"], diff["evidence"]) == ("slow", "timeout", "unverifiable")
