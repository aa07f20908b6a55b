"""What a draft was seen to read, against what it locks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kit.bundle.lint import lint
from kit.bundle.recorded import draft_state, fill_lock, read_recorded, recorded_path, save_recorded
from kit.mcp import Record, Recorder


def record(*reads: tuple[str, str, tuple[str, ...], tuple[str, ...]], calls: int = 1) -> Record:
    recorder = Recorder()
    for mcp, tool, inputs, outputs in reads:
        recorder.add(mcp, tool, inputs, outputs, calls=calls)
    return recorder.record()


def panel(*columns: str) -> Record:
    recorder = Recorder()
    recorder.note_panel("trading-data-cn.get_bars", columns)
    return recorder.record()


def save(draft: Path, found: Record) -> None:
    save_recorded(draft, found, draft_state(draft))


def findings(draft: Path) -> list[tuple[str, str]]:
    return [(f.severity, f.message) for f in lint(draft, draft=True)]


def relock(draft: Path, **changed: Any) -> None:
    """Change the one locked tool: symbol, date and close_adj of trading-data-cn.get_bars."""
    path = draft / "manifest.json"
    value = json.loads(path.read_text("utf-8"))
    value["env_lock"]["required_mcps"][0]["tools_used"][0] |= changed
    path.write_text(json.dumps(value), "utf-8")


@pytest.fixture
def lock_of(draft: Path) -> Callable[[], Any]:
    def read() -> Any:
        value = json.loads((draft / "manifest.json").read_text("utf-8"))
        return value["env_lock"]["required_mcps"][0]["tools_used"][0]

    return read


BARS = ("trading-data-cn", "get_bars")


def test_nothing_recorded_says_nothing(draft: Path) -> None:
    assert read_recorded(draft) is None
    assert findings(draft) == []
    assert fill_lock(draft) == []


def test_a_panel_of_what_is_locked_is_clean(draft: Path) -> None:
    # The key of the rows comes with every panel: symbol and date are locked and read.
    save(draft, panel("close_adj"))
    assert findings(draft) == []


def test_a_field_that_is_read_and_not_locked_is_an_error(draft: Path) -> None:
    save(draft, panel("close_adj", "volume"))
    assert findings(draft) == [
        ("error", "the draft reads volume of trading-data-cn.get_bars, not locked")
    ]


def test_a_field_that_is_locked_and_never_read_is_a_warning(draft: Path) -> None:
    save(draft, panel("low_adj"))
    relock(draft, required_output_fields=["close_adj", "low_adj"])
    assert findings(draft) == [
        ("warning", "close_adj of trading-data-cn.get_bars locked, and never read")
    ]


def test_a_call_is_held_to_its_arguments_too(draft: Path) -> None:
    save(draft, record((*BARS, ("codes", "adjust"), ("bars[].close_adj", "bars"))))
    assert findings(draft) == [
        (
            "warning",
            "start_date, end_date, symbol, date of trading-data-cn.get_bars locked, and never read",
        ),
        ("error", "the draft passes adjust of trading-data-cn.get_bars, not locked"),
    ]


def test_a_tool_that_is_not_locked_is_an_error(draft: Path) -> None:
    other = ("news-cn", "query_news", ("start_time",), ("title",))
    save(draft, Record.merge([panel("close_adj"), record(other)]))
    assert findings(draft) == [("error", "the draft reads news-cn.query_news, which is not locked")]


def test_several_runs_of_the_same_code_add_up(draft: Path) -> None:
    save(draft, panel("close_adj"))
    save(draft, panel("low_adj"))
    found = read_recorded(draft)
    assert found is not None
    assert found.tools[0].outputs == ("close_adj", "low_adj")


def test_what_other_code_read_does_not_count(draft: Path) -> None:
    save(draft, panel("volume"))
    engine = draft / "code" / "signal_engine.py"
    engine.write_text(engine.read_text("utf-8") + "\n# another thought\n", "utf-8")
    assert read_recorded(draft) is None
    assert findings(draft) == []
    save(draft, panel("close_adj"))
    found = read_recorded(draft)
    assert found is not None
    assert found.tools[0].outputs == ("close_adj",)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"state": 1}'])
def test_a_record_that_cannot_be_read_is_written_anew(draft: Path, text: str) -> None:
    path = recorded_path(draft)
    path.parent.mkdir(parents=True)
    path.write_text(text, "utf-8")
    assert findings(draft) == []
    save(draft, panel("close_adj"))
    assert read_recorded(draft) == panel("close_adj")


def test_empty_lists_are_filled_with_exactly_what_was_read(
    draft: Path, lock_of: Callable[[], Any]
) -> None:
    relock(draft, required_input_fields=[], required_output_fields=[])
    save(draft, record((*BARS, ("codes",), ("bars", "bars[].close_adj", "bars[].volume"))))
    assert findings(draft) == []
    assert fill_lock(draft) == [
        "trading-data-cn.get_bars: codes",
        "trading-data-cn.get_bars: bars[].close_adj, bars[].volume",
    ]
    assert lock_of() == {
        "tool_name": "get_bars",
        "required_input_fields": ["codes"],
        "required_output_fields": ["bars[].close_adj", "bars[].volume"],
    }
    assert findings(draft) == []


def test_a_list_that_says_something_is_left_alone(draft: Path, lock_of: Callable[[], Any]) -> None:
    before = lock_of()
    save(draft, panel("volume"))
    assert fill_lock(draft) == []
    assert lock_of() == before


def test_a_manifest_that_cannot_be_read_is_left_to_lint(draft: Path) -> None:
    save(draft, panel("volume"))
    (draft / "manifest.json").write_text("{", "utf-8")
    assert fill_lock(draft) == []
    assert [f.rule for f in lint(draft, draft=True)] == ["manifest.schema"] or lint(
        draft, draft=True
    )
