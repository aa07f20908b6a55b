"""`kit conversation import` and `kit skills sync`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kit.workspace import Workspace

Kit = Callable[..., Any]
ID = "ma250-pullback"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A session log with one good, one broken and one torn line."""
    path = tmp_path / "session.jsonl"
    entry = {
        "type": "user",
        "uuid": "u1",
        "sessionId": "s1",
        "timestamp": "2026-05-15T02:00:00Z",
        "message": {"role": "user", "content": "收紧 near_pct\x1b[31m"},
    }
    path.write_text(json.dumps(entry) + '\n{broken\n{"type": "us', "utf-8")
    return path


def test_a_session_is_imported_into_the_only_draft(kit: Kit, desk: Workspace, log: Path) -> None:
    assert kit("conversation", "import", str(log)).code == 2
    kit("new", ID)
    said = kit("conversation", "import", str(log), "--dry-run")
    assert "1 events would be added" in said.out
    said = kit("conversation", "import", str(log))
    path = f"strategies/{ID}/draft/conversations/2026-05-15-tighten-near-pct.jsonl"
    assert (said.code, said.out) == (0, f"{path}: 1 events added, 0 known before\n")
    assert "session.jsonl:2: warning session.malformed" in said.err
    assert "line 3 is cut off" in said.err
    shown = json.loads(kit("conversation", "import", str(log), "--json").out)
    assert (shown["added"], shown["known"], shown["conversation"]) == (0, 1, path)
    assert shown["findings"][0]["line"] == 2
    kit("new", "other-one", "--from", f"{ID}@0.3.1")
    said = kit("conversation", "import", str(log))
    assert (said.code, "--draft ID" in said.err) == (2, True)
    said = kit("conversation", "import", str(log), "--draft", "other-one", "--slug", "mine too")
    assert "2026-05-15-mine-too.jsonl" in said.out


def test_what_is_no_log_is_refused(kit: Kit, tmp_path: Path) -> None:
    kit("new", ID)
    path = tmp_path / "x.txt"
    path.write_text("nothing", "utf-8")
    said = kit("conversation", "import", str(path), "--json")
    assert said.code == 2
    assert json.loads(said.out)["error"]["code"] == "conversation.unknown_format"
    said = kit("conversation", "import", str(path), "--format", "opencode")
    assert (said.code, "conversation.unreadable" in said.err) == (3, True)


def test_skills_are_synced_and_shown(kit: Kit, desk: Workspace) -> None:
    said = kit("skills", "sync", "--dry-run")
    assert (said.code, "added" in said.out) == (0, True)
    assert not (desk.root / ".claude").exists()
    said = kit("skills", "sync", "--target", "claude", "--target", "agents", "--json")
    shown = json.loads(said.out)
    assert [target["target"] for target in shown["targets"]] == ["claude", "agents"]
    assert {row["state"] for target in shown["targets"] for row in target["skills"]} == {"added"}
    assert "unchanged" in kit("skills", "sync").out
    (desk.root / ".claude" / "skills" / ID / "SKILL.md").write_text("mine", "utf-8")
    said = kit("skills", "sync")
    assert (said.code, "skills.in_the_way" in said.err) == (4, True)


def test_a_tampered_version_is_said_and_exits_3(kit: Kit, desk: Workspace) -> None:
    path = desk.strategies / ID / "0.3.1" / "config.json"
    path.chmod(0o644)
    path.write_bytes(path.read_bytes() + b"\n")
    said = kit("skills", "sync")
    assert said.code == 3
    assert "refused" in said.out
    assert "config.json" in said.out
