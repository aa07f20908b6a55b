"""opencode itself: it lists a synced skill, and what it exports of a session is imported.

Nothing leaves the machine: the model is an HTTP server on loopback, and opencode is told not to
fetch model lists or updates. Skipped where the program is not installed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from kit.bundle import read_conversation
from kit.bundle.skills_sync import sync_skills
from kit.jobs.conversation import import_session
from kit.workspace import Workspace

ID = "ma250-pullback"
PROGRAM = shutil.which("opencode")

pytestmark = [
    pytest.mark.agents,
    pytest.mark.slow,
    pytest.mark.skipif(PROGRAM is None, reason="opencode is not on the PATH (npm i opencode-ai)"),
]


@pytest.fixture
def desk(tmp_path: Path, copy_repository: Callable[[Path], Workspace]) -> Workspace:
    return copy_repository(tmp_path / "desk")


@pytest.fixture
def opencode(desk: Workspace) -> Callable[..., str]:
    """`opencode("debug", "skill")` runs it in the workspace, offline, with a HOME of its own."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": os.environ["HOME"],
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
    }

    def call(*arguments: str) -> str:
        done = subprocess.run(
            [str(PROGRAM), "--pure", *arguments],
            cwd=desk.root,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return call


@pytest.mark.parametrize("target", ["claude", "opencode", "agents"])
def test_it_lists_the_synced_skills(
    desk: Workspace, opencode: Callable[..., str], target: str
) -> None:
    folder = sync_skills(desk, target).folder
    listed = {skill["name"]: skill for skill in json.loads(opencode("debug", "skill"))}
    for name in (ID, "strategy-skill-author"):
        assert listed[name]["location"] == str(folder / name / "SKILL.md")
    assert listed[ID]["description"].startswith("Pullback to the 250-day line")
    # It shows the body alone: the version must stand there.
    assert f"{ID}@0.3.1" in listed[ID]["content"]
    assert {"pullback", "event-driven"} & listed.keys() == set()


def _chunks(received: dict[str, Any]) -> list[dict[str, Any]]:
    """What the model streams: a tool call first, then words."""
    tools = [tool["function"]["name"] for tool in received.get("tools", [])]
    if "bash" in tools and received["messages"][-1]["role"] != "tool":
        call = {
            "name": "bash",
            "arguments": json.dumps({"command": "echo seen", "description": "x"}),
        }
        tool = {"index": 0, "id": "call_1", "type": "function", "function": call}
        return [{"role": "assistant", "content": "I look."}, {"tool_calls": [tool]}]
    return [{"role": "assistant", "content": "near_pct is 4.0 now." if tools else "Tuning"}]


def _stream(request: Request) -> Response:
    deltas = _chunks(request.get_json())
    finish = "tool_calls" if len(deltas) > 1 else "stop"
    choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": finish})
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    lines = [f"data: {json.dumps({**head, 'choices': [choice]})}\n\n" for choice in choices]
    return Response("".join([*lines, "data: [DONE]\n\n"]), content_type="text/event-stream")


def test_what_it_exports_is_imported(
    desk: Workspace, opencode: Callable[..., str], tmp_path: Path, kit_command: Callable[..., Any]
) -> None:
    with HTTPServer(host="127.0.0.1", threaded=True) as server:
        server.expect_request("/v1/chat/completions").respond_with_handler(_stream)
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "name": "Stub",
            "options": {"baseURL": server.url_for("/v1"), "apiKey": "none"},
            "models": {"m": {"name": "m", "limit": {"context": 100_000, "output": 1_000}}},
        }
        config = {"provider": {"stub": provider}, "model": "stub/m", "small_model": "stub/m"}
        (desk.root / "opencode.json").write_text(json.dumps(config), "utf-8")
        opencode("run", "把 near_pct 从 5 调到 4.0")
    (session,) = json.loads(opencode("session", "list", "--format", "json"))
    export = tmp_path / "export.json"
    export.write_text(opencode("export", session["id"]), "utf-8")
    assert kit_command(desk.root, "new", ID).returncode == 0
    done = import_session(desk, ID, export)
    assert done.log.format == "opencode"
    assert done.log.findings == ()
    assert done.path.stem.endswith("-tune-near-pct")
    events = read_conversation(done.path)
    assert [(e["role"], e["kind"]) for e in events] == [
        ("user", "message"),
        ("assistant", "message"),
        ("assistant", "tool_call"),
        ("tool", "tool_result"),
        ("assistant", "message"),
    ]
    assert "near_pct" in events[0]["content"]
    assert events[2]["content"]["input"]["command"] == "echo seen"
    assert events[3]["content"] == "seen\n"
    assert events[2]["call"] == events[3]["call"]
    assert import_session(desk, ID, export).added == 0
