"""Cells and questions of a notebook become part of the open draft's conversation."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from typing import Any

import pytest

from kit.bundle import conversation_files, read_conversation
from kit.lab import Desk
from kit.lab.display import Note

Cell = Callable[[str], Any]
ID = "ma250-pullback"


def said(desk: Desk) -> list[dict[str, Any]]:
    """What was recorded today; the version's own conversations are older or newer."""
    (path,) = [p for p in conversation_files(desk.draft_root) if p.name.startswith("2024-09-19")]
    return read_conversation(path)


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_cells_are_tool_calls_with_source_and_digest(
    cell: Cell, desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    cell("before = 1")
    cell(f"%kit_draft {ID}")
    assert not any(p.name.startswith("2024-09-19") for p in conversation_files(desk.draft_root))
    stdout = sys.stdout
    capsys.readouterr()
    cell("print('线', end='')\n'shown'")
    assert "线" in capsys.readouterr().out, "what is printed is still shown"
    cell("1 / 0")
    cell("this is no Python")
    cell("   ")
    assert sys.stdout is stdout
    events = said(desk)
    assert [event["content"]["source"] for event in events] == [
        "print('线', end='')\n'shown'",
        "1 / 0",
        "this is no Python",
    ]
    assert {(event["role"], event["kind"]) for event in events} == {("user", "tool_call")}
    assert {event["content"]["tool"] for event in events} == {"cell"}
    # By hand: what was printed, then the repr of the result. The shell prints `Out[..]: 'shown'`
    # itself, through the same stream.
    assert events[0]["output"]["chars"] >= len("线'shown'")
    assert "error" not in events[0]["output"]
    assert events[1]["output"]["error"] == "ZeroDivisionError: division by zero"
    assert events[2]["output"]["error"].startswith("SyntaxError")


def test_the_digest_is_that_of_the_output(cell: Cell, desk: Desk) -> None:
    cell(f"%kit_draft {ID}")
    cell("print('a\\nb');")
    cell("x = 3")
    first, second = said(desk)
    assert first["output"] == {"sha256": digest("a\nb\n"), "chars": 4}
    assert second["output"] == {"sha256": digest(""), "chars": 0}


def test_notes_and_questions_record_themselves_once(cell: Cell, desk: Desk) -> None:
    cell(f"%kit_draft {ID}")
    cell("%kit_note tighter")
    asked = cell("%%kit_chat\n为什么是 250？\n")
    assert isinstance(asked.result, Note)
    assert "no model was asked" in asked.result.text
    assert [(e["kind"], e["content"]) for e in said(desk)] == [
        ("decision", "tighter"),
        ("note", "为什么是 250？"),
    ]
    assert cell("%%kit_chat\n\n").error_in_exec.code == "conversation.empty_note"


def test_a_secret_in_a_cell_is_masked(
    cell: Cell, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_PASSWORD", "correct horse battery staple")
    cell(f"%kit_draft {ID}")
    cell("key = 'sk-test-0123456789abcdefghijkl'; word = 'correct horse battery staple'")
    (event,) = said(desk)
    assert event["content"]["source"] == "key = '«redacted»'; word = '«redacted»'"


def test_a_cell_that_cannot_be_recorded_still_ran(
    cell: Cell, desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    cell(f"%kit_draft {ID}")
    folder = desk.draft_root / "conversations"
    folder.rename(folder.with_name("elsewhere"))
    folder.write_text("a file stands here", "utf-8")
    capsys.readouterr()
    assert cell("40 + 2").result == 42
    shown = capsys.readouterr()
    assert "the cell was not recorded" in shown.err
    assert "Traceback" not in shown.out + shown.err


def test_a_question_needs_a_draft(cell: Cell, desk: Desk) -> None:
    assert cell("%%kit_chat\nwhy\n").error_in_exec.code == "lab.no_draft"


@pytest.mark.kernel
def test_in_a_kernel_output_is_shown_and_digested(
    desk: Desk, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("KIT_WORKSPACE", str(desk.workspace.root))
    notebook = nbformat.v4.new_notebook()
    sources = ["%load_ext kit", f"%kit_draft {ID}", "print('seen')", "%reload_ext kit", "7"]
    notebook.cells = [nbformat.v4.new_code_cell(source) for source in sources]
    NotebookClient(notebook, kernel_name="python3", timeout=60).execute(cwd=str(tmp_path))
    assert notebook.cells[2].outputs[0].text == "seen\n"
    root = desk.workspace.strategies / ID / "draft"
    events = read_conversation(
        next(p for p in conversation_files(root) if p.name.endswith("-notes.jsonl"))
    )
    assert [event["content"]["source"] for event in events] == sources[2:]
    assert events[0]["output"] == {"sha256": digest("seen\n"), "chars": 5}
    assert events[2]["output"] == {"sha256": digest("7"), "chars": 1}
