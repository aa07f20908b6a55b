"""`%load_ext kit` in a real shell: the magics, and errors that fail the cell without a wall."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kit import lab
from kit.errors import KitError
from kit.lab import Desk
from kit.lab.display import Note, Rows, Sheet

Cell = Callable[[str], Any]
ID = "ma250-pullback"


def test_a_draft_from_magic_to_file(cell: Cell, desk: Desk) -> None:
    opened = cell(f"%kit_draft {ID}")
    assert opened.success
    assert isinstance(opened.result, Note)
    assert desk.open_id == ID

    written = cell("%%kit_file references/idea.md\n# Idea\n\nOnly on quiet days.\n")
    assert written.success
    assert written.result.text.startswith("references/idea.md: +3 -0 lines")
    text = (desk.draft_root / "references" / "idea.md").read_text(encoding="utf-8")
    assert text == "# Idea\n\nOnly on quiet days.\n"

    linted = cell("%kit_lint")
    assert linted.success
    assert isinstance(linted.result, Rows)
    assert cell(f"%kit_lint {ID}@0.3.1").result.title == "Lint: clean"

    noted = cell("%kit_note don't chase: it's the volume")
    assert noted.success
    (path,) = (desk.draft_root / "conversations").glob("2024-09-19-notes.jsonl")
    last = json.loads(path.read_text("utf-8").splitlines()[-1])
    assert (last["kind"], last["content"]) == ("decision", "don't chase: it's the volume")


def test_a_broken_file_is_written_and_its_findings_shown(cell: Cell, desk: Desk) -> None:
    cell(f"%kit_draft {ID}")
    shown = cell("%%kit_file code/signal_engine.py\nclass SignalEngine(:\n")
    assert shown.success, "a finding is a result, not an error"
    assert isinstance(shown.result, Rows)
    assert "code/signal_engine.py" in shown.result.title
    assert shown.result.rows


@pytest.mark.parametrize(
    "line", ["", "-h", "a b", f"{ID} --form x", f"{ID} --from", f"{ID} --empty --from x"]
)
def test_a_draft_line_that_is_not_understood_is_refused(cell: Cell, desk: Desk, line: str) -> None:
    result = cell(f"%kit_draft {line}")
    assert isinstance(result.error_in_exec, KitError)
    assert desk.open_id is None


def test_draft_options(cell: Cell, desk: Desk) -> None:
    assert cell(f"%kit_draft quiet-one --from {ID}@0.3.0").success
    assert (desk.draft_root / "manifest.json").is_file()
    assert cell("%kit_draft from-nothing --empty").success
    assert list(desk.draft_root.iterdir()) == []


@pytest.mark.parametrize("path", ["../x.md", "/tmp/x.md", "code/../../x.md", "linked.md", ""])
def test_a_path_outside_the_draft_fails_the_cell(
    cell: Cell, desk: Desk, path: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    cell(f"%kit_draft {ID}")
    (desk.draft_root / "linked.md").symlink_to(tmp_path / "x.md")
    capsys.readouterr()
    result = cell(f"%%kit_file {path}\nmine\n")
    assert not result.success
    assert result.error_in_exec.code == "lab.bad_path"
    assert not (tmp_path / "x.md").exists()
    assert not (desk.draft_root.parent / "x.md").exists()


def assert_short(text: str, code: str) -> None:
    """Message and remedy, and nothing of Python's machinery."""
    assert f"[{code}]" in text
    assert "→" in text
    for wall in ("Traceback", 'File "', "line ", "----> "):
        assert wall not in text, wall
    assert len(text.strip().splitlines()) == 2


def test_an_error_of_a_magic_fails_the_cell_in_two_lines(
    cell: Cell, capsys: pytest.CaptureFixture[str]
) -> None:
    result = cell("%kit_lint")
    assert not result.success
    assert isinstance(result.error_in_exec, KitError)
    captured = capsys.readouterr()
    assert_short(captured.out + captured.err, "lab.no_draft")


def test_an_error_of_a_plain_call_does_so_too(
    cell: Cell, capsys: pytest.CaptureFixture[str]
) -> None:
    result = cell("from kit import lab\nx = 1\nlab.screen('ma250-pulback', '2020-02-27')\nx = 2")
    assert not result.success
    assert result.error_in_exec.code == "registry.unknown_id"
    captured = capsys.readouterr()
    assert_short(captured.out + captured.err, "registry.unknown_id")
    assert "did you mean 'ma250-pullback'?" in captured.out + captured.err
    # The statements after it did not run.
    assert cell("x").result == 1


def test_other_errors_keep_their_traceback(cell: Cell, capsys: pytest.CaptureFixture[str]) -> None:
    result = cell("1 / 0")
    assert isinstance(result.error_in_exec, ZeroDivisionError)
    captured = capsys.readouterr()
    assert "Traceback" in captured.out + captured.err


def test_loading_twice_changes_nothing(cell: Cell) -> None:
    assert cell("%reload_ext kit").success
    assert not cell("%kit_lint").success


@pytest.mark.kernel
def test_cards_and_runs(cell: Cell, desk: Desk, main_job: Any, monkeypatch: Any) -> None:
    """The shared job's runs, looked at from a notebook."""
    monkeypatch.setattr(lab, "_current", Desk(main_job.workspace, desk.clock))
    screen = "2020-02-27/screen-ma250-pullback@0.3.1/1"
    shown = cell(f"%kit_card {screen}")
    assert shown.success
    assert isinstance(shown.result, Sheet)
    assert set(shown.result.texts) == {"plain", "wecom", "telegram"}
    sent = (main_job.screen_folder() / "delivered" / "card.txt").read_text(encoding="utf-8")
    assert shown.result.texts["plain"].strip() == sent.strip()

    loaded = cell(f"%kit_load {screen}")
    assert loaded.success
    assert loaded.result.run_id == screen
    assert loaded.result.status == "degraded"
    assert cell("run.record['status'], len(run.receipts)").result == ("degraded", 2)
    assert cell("run.card.kind").result == "screen"
    # Without a name: the run that was started last.
    assert cell("%kit_load").result.run_id == "2024-09-18/slot-cn-1000/1"
    assert "| 600000 |" in cell("%kit_card").result.texts["plain"]
    unknown = cell("%kit_load 2020-02-28")
    assert unknown.error_in_exec.code == "run.unknown"


@pytest.mark.kernel
def test_results_of_other_rooms_show_as_html(shell: Any, main_job: Any, desk: Desk) -> None:
    details = Desk(main_job.workspace).load("2020-02-27/screen-ma250-pullback@0.3.1/1")
    data, _ = shell.display_formatter.format(details)
    html = data["text/html"]
    assert "degraded" in html
    assert "picks.json" in html
    assert "D-012" in html
    skipped = Desk(desk.workspace, desk.clock).screen(ID, "2020-01-27")
    data, _ = shell.display_formatter.format(skipped)
    assert data["text/html"] == "<p>skipped: market_closed: 2020-01-27 is no session</p>"


@pytest.mark.kernel
def test_in_a_kernel_the_error_is_published_and_the_cell_fails(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What JupyterLab and nbval see: an error output with two lines, and a cell that failed."""
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError

    monkeypatch.setenv("KIT_WORKSPACE", str(desk.workspace.root))
    notebook = nbformat.v4.new_notebook()
    sources = ["%load_ext kit", "%kit_lint", "after = True"]
    notebook.cells = [nbformat.v4.new_code_cell(source) for source in sources]
    client = NotebookClient(notebook, kernel_name="python3", timeout=60)
    with pytest.raises(CellExecutionError) as failed:
        client.execute(cwd=str(tmp_path))
    assert failed.value.ename == "UsageError"
    (output,) = notebook.cells[1].outputs
    assert output.output_type == "error"
    assert output.ename == "UsageError"
    assert_short("\n".join(output.traceback), "lab.no_draft")
    assert notebook.cells[2].execution_count is None
