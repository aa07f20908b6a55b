from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import click
import pytest

from kit.cli import main as entry
from kit.cli import output
from kit.cli.main import _COMMANDS, cli, run
from kit.errors import CODES, BundleError

HEAVY = (
    "litellm",
    "vectorbt",
    "papermill",
    "plotly",
    "pandas",
    "polars",
    "sqlalchemy",
    "jsonschema",
)


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys; from kit.cli.main import run; run(['--help']);"
        f"print([m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stderr.strip() == "[]"


def test_help_answers_in_half_a_second() -> None:
    # Processor time, and the best of five: another process on the machine costs the first wall
    # clock, a heavy import costs both, every time.
    seconds = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-m", "kit.cli.main", "--help"], capture_output=True, check=True
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(seconds) < 0.5, seconds


@pytest.mark.parametrize("name", list(_COMMANDS))
def test_every_command_loads_and_has_help_with_an_example(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    assert command.help
    assert command.help.splitlines()[0] == _COMMANDS[name][2], "one wording in both places"
    assert "Example:" in (command.epilog or "")
    if isinstance(command, click.Group):
        for child in command.commands.values():
            assert child.help
            assert "Example:" in (child.epilog or ""), child.name


def test_an_unknown_command_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["screem"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "did you mean 'screen'?" in captured.err


def test_errors_are_json_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--workspace", str(tmp_path), "list", "--json"]) == 3
    captured = capsys.readouterr()
    assert json.loads(captured.out)["error"]["code"] == "workspace.not_found"
    assert "kit init" in captured.err


def test_an_unexpected_error_is_one_line_unless_debug(capsys: pytest.CaptureFixture[str]) -> None:
    assert output.show_error(ZeroDivisionError("x"), as_json=False, debug=False) == 1
    assert "Traceback" not in capsys.readouterr().err
    with pytest.raises(ZeroDivisionError) as raised:
        raise ZeroDivisionError("x")
    assert output.show_error(raised.value, as_json=False, debug=True) == 1
    assert "Traceback" in capsys.readouterr().err


def test_exit_codes_follow_the_families(capsys: pytest.CaptureFixture[str]) -> None:
    assert output.show_error(KeyboardInterrupt(), as_json=False, debug=False) == 130
    error = BundleError("bundle.tampered", "m", where="SKILL.md", remedy="r")
    assert output.show_error(error, as_json=False, debug=False) == 3
    assert "error: SKILL.md: m [bundle.tampered]\n  → r" in capsys.readouterr().err


def test_every_code_raised_is_documented(repository: Path) -> None:
    """A code that `kit explain` would not know is a code nobody can look up."""
    import ast

    families = {cls.__name__ for cls in _families()}
    raised: dict[str, str] = {}
    for path in sorted((repository / "kit").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                first = node.args[0] if node.args else None
                if node.func.id in families and isinstance(first, ast.Constant):
                    raised[str(first.value)] = str(path)
    assert raised
    assert {code: path for code, path in raised.items() if code not in CODES} == {}


def _families() -> list[type]:
    from kit import errors

    return [
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, errors.KitError)
    ]


def test_tables_line_up_with_chinese(capsys: pytest.CaptureFixture[str]) -> None:
    output.table(("名称", "x"), [("浦发银行", 1), ("a", None)])
    assert capsys.readouterr().out == "名称      x\n--------  -\n浦发银行  1\na\n"


def test_main_exits_with_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit) as stop:
        entry.main(["--version"])
    assert stop.value.code == 0
