"""Promise 3: a version that was changed does not run, and what refuses it names the file."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kit import files
from kit.cli.main import run
from kit.workspace import Workspace

REF = "ma250-pullback@0.3.1"


def changed(root: Path) -> str:
    """One byte of the rule, to another letter of the same length."""
    path = root / "code" / "signal_engine.py"
    text = path.read_bytes()
    assert text.count(b"Pullback to the 250-day line") == 1
    path.chmod(0o644)
    path.write_bytes(text.replace(b"Pullback to", b"Pullback ta"))
    return "code/signal_engine.py"


def added(root: Path) -> str:
    (root / "code").chmod(0o755)
    (root / "code" / "sitecustomize.py").write_text("import os\n", encoding="utf-8")
    return "code/sitecustomize.py"


def removed(root: Path) -> str:
    (root / "references").chmod(0o755)
    (root / "references" / "rule.md").unlink()
    return "references/rule.md"


TAMPERINGS = [changed, added, removed]
Tamper = Callable[[Path], str]
Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture
def desk(tmp_path: Path, copy_repository: Callable[[Path], Workspace]) -> Workspace:
    return copy_repository(tmp_path / "desk")


@pytest.fixture
def cli(desk: Workspace, capsys: pytest.CaptureFixture[str]) -> Cli:
    def call(*arguments: str) -> tuple[int, str, str]:
        code = run(["--workspace", str(desk.root), *arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def version(desk: Workspace) -> Path:
    return desk.strategies / "ma250-pullback" / "0.3.1"


@pytest.mark.parametrize("tamper", TAMPERINGS)
def test_verify_and_backtest_refuse_and_name_the_file(
    desk: Workspace, cli: Cli, tamper: Tamper
) -> None:
    assert cli("verify")[0] == 0
    name = tamper(version(desk))

    code, out, _ = cli("verify", "--json")
    assert code == 3
    rows = [row for row in json.loads(out)["differences"] if not row["advice"]]
    assert [(row["ref"], row["path"]) for row in rows] == [(REF, name)]

    code, out, err = cli("verify")
    assert (code, out.splitlines()[-1]) == (3, "5 versions re-hashed: NOT INTACT")
    assert name in out
    assert "→" in err

    code, out, err = cli("backtest", REF)
    assert (code, out) == (3, "")
    assert name in err
    assert "[bundle.tampered]" in err
    assert not (desk.runs / "backtests").exists()
    # The other version is not concerned.
    assert cli("verify", "ma250-pullback@0.3.0")[0] == 0


@pytest.mark.kernel
@pytest.mark.parametrize("tamper", TAMPERINGS)
def test_a_screen_refuses_and_delivers_its_empty_loud_card(
    desk: Workspace, cli: Cli, tamper: Tamper
) -> None:
    name = tamper(version(desk))
    code, out, err = cli("screen", REF, "--date", "2020-02-27", "--json")
    assert code == 4
    shown = json.loads(out)
    assert shown["error"]["code"] == "bundle.tampered"
    assert name in shown["error"]["message"]
    assert shown["result"]["picks"] == []
    assert [r["state"] for r in shown["receipts"]] == ["sent", "sent"]
    report = shown["result"]["degradation_report"]
    assert [(e["trigger"], e["action"]) for e in report["entries"]] == [
        ("bundle_tampered", "abort_with_report")
    ]
    assert report["entries"][0]["details"]["files"] == [name]
    sent = (desk.root / shown["folder"] / "delivered" / "card.txt").read_text(encoding="utf-8")
    assert sent.strip() in err
    assert "🔴 今日无可推送候选" in sent
    assert "⛔" in sent
    assert name in sent


def change_with_checksums(root: Path) -> Path:
    """Change a file, and checksums.txt so that it fits; return the latter."""
    before = files.sha256_file(root / "code" / "signal_engine.py")
    changed(root)
    after = files.sha256_file(root / "code" / "signal_engine.py")
    sums = root / "checksums.txt"
    sums.chmod(0o644)
    sums.write_text(sums.read_text(encoding="utf-8").replace(before, after), encoding="utf-8")
    subprocess.run(["sha256sum", "-c", "--quiet", "checksums.txt"], cwd=root, check=True)
    return sums


def change_with_index(desk: Workspace) -> None:
    """Change INDEX.json to fit as well."""
    sums = change_with_checksums(version(desk))
    index = files.read_json(desk.index_path)
    entry = index["strategies"]["ma250-pullback"]["all_versions"][1]
    assert entry["version"] == "0.3.1"
    entry["digest"] = files.sha256_file(sums)
    files.write_json(desk.index_path, index)


def test_files_and_checksums_changed_together_are_found(desk: Workspace, cli: Cli) -> None:
    """Whoever edits a file may edit checksums.txt too; the digest recorded at the freeze stays."""
    change_with_checksums(version(desk))
    assert cli("verify")[0] == 3
    code, _, err = cli("backtest", REF)
    assert code == 3
    assert "checksums.txt" in err
    assert cli("registry", "activate", REF, "--why", "x")[0] == 3


def test_with_the_index_changed_too_the_activation_log_knows_better(
    desk: Workspace, cli: Cli
) -> None:
    change_with_index(desk)
    assert cli("verify")[0] == 3
    assert cli("backtest", REF)[0] == 3
    assert cli("registry", "rebuild")[0] == 3


def test_such_a_version_is_not_activated_either(desk: Workspace, cli: Cli) -> None:
    change_with_index(desk)
    assert cli("registry", "activate", REF, "--why", "x")[0] == 3


@pytest.mark.parametrize("number", ["0.3.0", "0.3.1"])
def test_the_checksums_of_the_shipped_versions_hold_without_our_tool(
    repository: Path, number: str
) -> None:
    root = repository / "strategies" / "ma250-pullback" / number
    done = subprocess.run(
        ["sha256sum", "-c", "--strict", "checksums.txt"],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    listed = {line.rpartition(": ")[0] for line in done.stdout.splitlines()}
    there = {p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file()}
    assert listed == there - {"checksums.txt"}


def test_no_command_that_reads_changes_a_version(desk: Workspace, cli: Cli) -> None:
    def state() -> dict[str, tuple[str, int]]:
        found = sorted(p for p in desk.strategies.rglob("*") if p.is_file())
        return {str(p): (files.sha256_file(p), p.stat().st_mtime_ns) for p in found}

    before = state()
    for line in (
        ["list"],
        ["lint", REF],
        ["diff", "ma250-pullback", "0.3.0", "0.3.1"],
        ["verify"],
        ["registry", "show", "ma250-pullback"],
        ["registry", "rebuild"],
        ["screen", REF, "--date", "2020-01-27"],
    ):
        assert cli(*line)[0] == 0, line
    assert state() == before


def test_the_shared_job_left_its_versions_alone(main_job: Any, repository: Path) -> None:
    for number in ("0.3.0", "0.3.1"):
        ours = main_job.workspace.strategies / "ma250-pullback" / number
        theirs = repository / "strategies" / "ma250-pullback" / number
        names = sorted(p.relative_to(theirs) for p in theirs.rglob("*"))
        assert sorted(p.relative_to(ours) for p in ours.rglob("*")) == names
        for name in names:
            if (theirs / name).is_file():
                assert files.sha256_file(ours / name) == files.sha256_file(theirs / name)


def test_the_suite_would_notice_a_change(
    desk: Workspace, contents_of: Callable[[Path], dict[str, str]]
) -> None:
    """The session-wide check in tests/conftest.py compares exactly this before and after."""
    before = contents_of(desk.root)
    assert len(before) > 60
    assert contents_of(desk.root) == before
    changed(version(desk))
    differing = {name for name, what in contents_of(desk.root).items() if before[name] != what}
    assert differing == {"strategies/ma250-pullback/0.3.1/code/signal_engine.py"}
    (desk.strategies / "ma250-pullback" / "stray").symlink_to("/etc")
    assert set(contents_of(desk.root)) - set(before) == {"strategies/ma250-pullback/stray"}
    desk.index_path.write_text("{}", encoding="utf-8")
    assert contents_of(desk.root)["INDEX.json"] != before["INDEX.json"]
