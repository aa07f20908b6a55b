from __future__ import annotations

from pathlib import Path

import pytest

from kit.bundle import conversation_files, read_conversation, record_note
from kit.clock import FixedClock
from kit.errors import RegistryError, UsageError


def test_a_note_becomes_a_decision_of_the_day(tmp_path: Path, clock: FixedClock) -> None:
    draft = tmp_path / "quiet-pullback" / "draft"
    draft.mkdir(parents=True)
    record_note(draft, "为什么：近年回踩更浅", clock=clock)
    record_note(draft, "second", clock=clock)
    (path,) = conversation_files(draft)
    assert path.name == "2024-09-19-notes.jsonl"
    events = read_conversation(path)
    assert [(e["role"], e["kind"], e["content"]) for e in events] == [
        ("user", "decision", "为什么：近年回踩更浅"),
        ("user", "decision", "second"),
    ]


def test_a_note_needs_a_text_and_a_draft(tmp_path: Path, clock: FixedClock) -> None:
    draft = tmp_path / "quiet-pullback" / "draft"
    with pytest.raises(RegistryError) as error:
        record_note(draft, "why", clock=clock)
    assert (error.value.code, error.value.remedy) == (
        "draft.missing",
        "make one: kit new quiet-pullback",
    )
    with pytest.raises(UsageError):
        record_note(draft, "  ", clock=clock)
    assert not draft.exists()
