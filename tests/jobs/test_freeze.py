"""Freezing the shipped bundle: each check that refuses, and what a version holds if none does."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from kit import files
from kit.backtest.evidence import read_all
from kit.bundle import Bundle, FrozenVersion, fingerprints, resolve
from kit.bundle.draft import new_draft
from kit.bundle.verify import verify
from kit.cli.main import run as kit
from kit.clock import FixedClock
from kit.errors import GuardError, Interrupted, StorageError
from kit.jobs import freeze as job
from kit.jobs.backtest import backtest
from kit.jobs.freeze import freeze_draft
from kit.runner import NotebookOutcome, RunFailure
from kit.workspace import Workspace, copy_workspace

ID = "ma250-pullback"
CLOCK = FixedClock("2026-12-02T08:40:00+00:00")
Cut = Callable[..., FrozenVersion]

# The fixture with its backtest is made once: all of this runs on one worker.
pytestmark = pytest.mark.xdist_group("jobs-freeze")


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text("utf-8")
    assert text.count(old) >= 1, f"{path.name} does not hold {old!r}"
    path.write_text(text.replace(old, new), "utf-8")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory, stand_in: Callable[..., Workspace]) -> Workspace:
    """A copy of the repository with a draft: one number changed, and backtested on one stock."""
    repository = Workspace.at(Path(__file__).resolve().parents[2])
    workspace = copy_workspace(repository, tmp_path_factory.mktemp("base") / "workspace")
    stand_in(workspace)
    draft = new_draft(workspace, ID)
    edit(draft / "config.json", '"volume_ratio_max": 1.1,', '"volume_ratio_max": 1.05,')
    config = json.loads((draft / "config.json").read_text("utf-8"))
    config["codes"] = ["000783.SZ"]
    (draft / "config.json").write_text(json.dumps(config, indent=2) + "\n", "utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        patch.setenv("KIT_MODE", "offline")
        backtest(workspace, f"{ID}@draft", clock=CLOCK)
    return workspace


@pytest.fixture
def place(base: Workspace, tmp_path: Path) -> Workspace:
    """A copy of it for one test."""
    shutil.copytree(base.root, tmp_path / "workspace")
    return Workspace(tmp_path / "workspace")


@pytest.fixture
def draft(place: Workspace) -> Path:
    """Its draft."""
    return place.strategies / ID / "draft"


@pytest.fixture
def cut(place: Workspace) -> Cut:
    """`cut(**options)` freezes the draft."""
    return lambda **options: freeze_draft(place, ID, clock=CLOCK, **options)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the notebook for granted: a kernel costs more than all the rest."""
    passed = NotebookOutcome(failure=None, seconds=0.0)
    monkeypatch.setattr(job, "run_clean", lambda *_arguments, **_named: passed)


def outside(workspace: Workspace) -> dict[str, bytes | None]:
    """Return everything of the strategies but drafts, and INDEX.json."""
    return {
        path.relative_to(workspace.root).as_posix(): path.read_bytes() if path.is_file() else None
        for path in [workspace.index_path, *workspace.strategies.rglob("*")]
        if "draft" not in path.parts
    }


def refused(cut: Cut, workspace: Workspace, **options: Any) -> GuardError:
    """Freeze, see that it is refused and nothing changed, and return the refusal."""
    before = outside(workspace)
    with pytest.raises(GuardError) as caught:
        cut(**options)
    assert caught.value.code == "freeze.checks"
    assert outside(workspace) == before
    return caught.value


def failed(error: GuardError) -> dict[str, str]:
    """Return what each check said that refused."""
    return {
        check["name"]: check["detail"]
        for check in error.details["checks"]
        if check["blocking"] and not check["ok"]
    }


def restamp(draft: Path) -> None:
    """Make the evidence that of the draft as it is now."""
    for evidence in read_all(draft):
        path = evidence.folder / "engine.json"
        value = json.loads(path.read_text("utf-8"))
        value["fingerprints"] |= fingerprints(draft)
        path.write_text(json.dumps(value), "utf-8")


def notebook_of(*cells: tuple[str, str]) -> str:
    """Return an authoring notebook of titled code cells."""
    source = 'bundle_dir = "."'
    code: dict[str, Any] = {"cell_type": "code", "execution_count": None, "outputs": []}
    body = [{**code, "metadata": {"tags": ["parameters"]}, "source": source}]
    for title, text in cells:
        body.append({"cell_type": "markdown", "metadata": {}, "source": f"## {title}\n"})
        body.append({**code, "metadata": {}, "source": text})
    body.append({**code, "metadata": {"tags": ["kit-end"]}, "source": "finished = True"})
    schema = {
        "type": "object",
        "required": ["bundle_dir"],
        "properties": {"bundle_dir": {"type": "string"}},
    }
    metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
        "kit": {"kind": "authoring", "parameters": schema, "results": {}},
    }
    return json.dumps({"cells": body, "metadata": metadata, "nbformat": 4, "nbformat_minor": 4})


# What refuses


@pytest.mark.usefixtures("quick")
def test_without_a_backtest_it_is_refused_and_the_command_named(
    cut: Cut, place: Workspace, draft: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(draft / "backtests")
    error = refused(cut, place)
    assert failed(error) == {
        "evidence": "there is no backtest",
        "lookahead": "not run on this code",
        "warmup": "not run on this code",
    }
    assert f"run kit backtest {ID}@draft" in error.remedy
    assert kit(["--workspace", str(place.root), "freeze", ID]) == 4
    shown = capsys.readouterr().err
    assert "evidence: there is no backtest" in shown
    assert f"kit backtest {ID}@draft" in shown


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("name", "old", "new", "part"),
    [
        ("config.json", '"stop_days": 2', '"stop_days": 3', "config"),
        ("manifest.json", '"history_days": 260', '"history_days": 300', "config"),
        ("code/signal_engine.py", "trend_pct > 0)", "trend_pct >= 0)", "code"),
        ("code/helpers/offline_explanation.py", "def ", "# one more remark\ndef ", "code"),
        ("prompts/pick_explanation.md", "## Task", "## Task\n\nBe brief.", "prompts"),
    ],
)
def test_evidence_of_other_content_is_stale(
    cut: Cut, place: Workspace, draft: Path, name: str, old: str, new: str, part: str
) -> None:
    edit(draft / name, old, new)
    (evidence,) = (draft / "backtests").iterdir()
    error = refused(cut, place)
    assert failed(error)["evidence"] == f"{evidence.name} is stale: {part} changed since"
    assert f"run kit backtest {ID}@draft" in error.remedy


@pytest.mark.usefixtures("quick")
def test_evidence_of_another_range_is_partial_and_not_enough(
    cut: Cut, place: Workspace, draft: Path
) -> None:
    shutil.rmtree(draft / "backtests")
    options = {"start": date(2018, 6, 1), "end": date(2020, 3, 31), "clock": CLOCK}
    _, folder = backtest(place, f"{ID}@draft", label="narrow", **options)
    assert read_all(draft)[0].partial == ("range",)
    assert "不能用于冻结" in (folder / "report.html").read_text("utf-8")
    error = refused(cut, place)
    assert failed(error) == {
        "evidence": f"{folder.name} is partial: other range than config.json names"
    }
    assert f"run kit backtest {ID}@draft" in error.remedy
    # The same range under the config's own name is what a freeze asks for.
    backtest(place, f"{ID}@draft", start=date(2018, 6, 1), end=date(2020, 6, 16), clock=CLOCK)
    assert cut().version == "0.3.3"


@pytest.mark.usefixtures("quick")
def test_bars_that_changed_since_make_evidence_stale(
    cut: Cut, place: Workspace, draft: Path
) -> None:
    (evidence,) = read_all(draft)
    value = dict(evidence.engine)
    value["fingerprints"] = {**value["fingerprints"], "data": "0" * 64}
    (evidence.folder / "engine.json").write_text(json.dumps(value), "utf-8")
    said = failed(refused(cut, place))
    assert said == {"evidence": f"{evidence.folder.name} is stale: data changed since"}
    # Bars from a source that is not there any more prove nothing either.
    value["data"] = {**value["data"], "source": "parquet"}
    (evidence.folder / "engine.json").write_text(json.dumps(value), "utf-8")
    assert set(failed(refused(cut, place))) == {"evidence"}


@pytest.mark.usefixtures("quick")
def test_costs_trials_and_folds_are_shown_and_do_not_refuse(cut: Cut) -> None:
    checks = {check.name: check for check in cut().checks}
    for name in ("costs", "trials", "folds"):
        assert not checks[name].blocking
    assert "with doubled costs" in checks["costs"].detail
    assert checks["trials"].detail.startswith("1 of 1 tried; deflated Sharpe ratio")
    assert "of 5 folds" in checks["folds"].detail


@pytest.mark.usefixtures("quick")
def test_words_beside_the_rule_leave_evidence_fresh(cut: Cut, draft: Path) -> None:
    edit(draft / "SKILL.md", "## Purpose\n", "## Purpose\n\nIn other words.\n")
    (draft / "references" / "more.md").write_text("# More\n\nA thought.\n", "utf-8")
    assert cut().version == "0.3.3"


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    "peek",
    ["held = np.roll(held, -1, axis=0)", "held = held & (price < price[-1:])"],
    ids=["tomorrow", "the last row"],
)
def test_a_rule_that_peeks_is_refused_and_named(
    cut: Cut, place: Workspace, draft: Path, peek: str
) -> None:
    # Both forms decide from what tomorrow will say, and lint sees nothing wrong with it.
    edit(
        draft / "code/signal_engine.py",
        '    packed = np.where(held, 1.0 / params["max_positions"], 0.0)\n',
        f'    {peek}\n    packed = np.where(held, 1.0 / params["max_positions"], 0.0)\n',
    )
    backtest(
        place, f"{ID}@draft", symbols=["000783.SZ"], start=date(2018, 6, 1), end=date(2019, 12, 31),
        clock=CLOCK,
    )  # fmt: skip
    said = failed(refused(cut, place))["lookahead"]
    assert re.fullmatch(r"generate\w* of 000783.SZ changes from 2019-\d\d-\d\d on", said)
    # Of two backtests of this code one is enough to refuse it.
    (peeking,) = (e for e in read_all(draft) if not e.stale_parts(fingerprints(draft)))
    assert not peeking.engine["guards"]["lookahead"]["ok"]
    restamp(draft)
    assert failed(refused(cut, place)) == {"lookahead": said}


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        (
            {"checked_dates": [], "findings": [], "skipped": ["2024-03-07: generate raised X"]},
            "no truncation could be checked: 2024-03-07: generate raised X",
        ),
        (
            {"checked_dates": ["2024-03-07"], "findings": [], "skipped": []},
            "the result does not outlive one bar of delay",
        ),
    ],
)
def test_a_guard_that_failed_without_a_finding_says_why(
    cut: Cut, place: Workspace, draft: Path, verdict: dict[str, Any], said: str
) -> None:
    (evidence,) = read_all(draft)
    value = dict(evidence.engine)
    value["guards"]["lookahead"] |= {"ok": False, **verdict}
    (evidence.folder / "engine.json").write_text(json.dumps(value), "utf-8")
    assert failed(refused(cut, place)) == {"lookahead": said}


@pytest.mark.usefixtures("quick")
def test_a_warm_up_that_is_too_short_is_refused(cut: Cut, place: Workspace, draft: Path) -> None:
    edit(draft / "manifest.json", '"warmup_bars": 299', '"warmup_bars": 200')
    backtest(place, f"{ID}@draft", clock=CLOCK, label="short")
    (evidence,) = (e for e in read_all(draft) if e.folder.name.endswith("-short"))
    warmup = evidence.engine["guards"]["warmup"]
    # The line is a mean of 250 closes, compared with that of ten bars ago: no less can do.
    assert warmup["declared"] == 200
    assert 260 <= warmup["needed"] <= 299
    error = refused(cut, place)
    assert failed(error) == {"warmup": f"{warmup['needed']} bars needed, 200 declared"}
    assert "data_contract.warmup_bars" in error.remedy


@pytest.mark.kernel
def test_a_notebook_that_fails_is_refused_and_its_cell_named(
    cut: Cut, place: Workspace, draft: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Other tests freeze at the same time: look for what stays behind in a place of one's own.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    claim = ("The claim", "assert 1 == 2, 'one is not two'")
    (draft / "notebook.ipynb").write_text(notebook_of(("Fine", "1 + 1"), claim), "utf-8")
    before = (draft / "notebook.ipynb").read_bytes()
    error = refused(cut, place)
    said = failed(error)
    assert set(said) == {"notebook"}
    assert "The claim" in said["notebook"]
    assert "one is not two" in said["notebook"]
    assert "mend the cell that fails" in error.remedy
    assert (draft / "notebook.ipynb").read_bytes() == before
    assert not list(Path(tempfile.gettempdir()).glob(f"kit-freeze-*/{ID}"))


@pytest.mark.parametrize("text", [None, "{", '{"cells": []}'])
def test_what_is_no_authoring_notebook_is_refused(
    cut: Cut, place: Workspace, draft: Path, text: str | None
) -> None:
    (draft / "notebook.ipynb").unlink()
    if text is not None:
        (draft / "notebook.ipynb").write_text(text, "utf-8")
    said = failed(refused(cut, place))
    assert set(said) == {"notebook"}
    assert "notebook.ipynb" in said["notebook"]


def test_a_draft_that_changes_while_its_notebook_runs_is_refused(
    cut: Cut, place: Workspace, draft: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def meanwhile(*_arguments: Any, **_named: Any) -> NotebookOutcome:
        edit(draft / "code/signal_engine.py", "trend_pct > 0)", "trend_pct >= 0)")
        return NotebookOutcome(failure=None, seconds=0.0)

    monkeypatch.setattr(job, "run_clean", meanwhile)
    assert failed(refused(cut, place)) == {"notebook": "the draft changed while its notebook ran"}


def test_a_full_disk_and_a_person_who_stops_are_no_fault_of_the_notebook(
    cut: Cut, place: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = outside(place)
    full = StorageError("file.no_space", "the disk is full")

    def disk(*_arguments: Any, **_named: Any) -> NotebookOutcome:
        raise full

    monkeypatch.setattr(job, "run_clean", disk)
    with pytest.raises(StorageError) as caught:
        cut()
    assert caught.value is full
    stopped = RunFailure(kind="interrupted", message="the run was interrupted")
    monkeypatch.setattr(
        job, "run_clean", lambda *_, **__: NotebookOutcome(failure=stopped, seconds=0.0)
    )
    with pytest.raises(Interrupted) as stop:
        cut()
    assert stop.value.exit_code == 130
    assert outside(place) == before


# What a version holds


@pytest.mark.kernel
@pytest.mark.slow
def test_a_changed_number_makes_a_patch_with_its_executed_notebook(
    cut: Cut, place: Workspace, draft: Path, tmp_path: Path
) -> None:
    # A cell that tells all there is to know of the machine it runs on.
    book = json.loads((draft / "notebook.ipynb").read_text("utf-8"))
    told = (
        "import sys, warnings\n"
        "warnings.warn('a warning names the file of its cell')\n"
        "print(Path.cwd(), Path(bundle_dir).resolve() / 'code', Path.home(), sys.prefix)\n"
        "Path(bundle_dir).resolve()"
    )
    cell = {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [],
            "source": told}  # fmt: skip
    if "id" in book["cells"][-1]:
        cell["id"] = "of-this-machine"
    book["cells"].insert(-1, cell)
    (draft / "notebook.ipynb").write_text(json.dumps(book), "utf-8")
    before = (draft / "notebook.ipynb").read_bytes()
    stages: list[str] = []

    frozen = cut(progress=stages.append)

    assert stages == [
        "lint", "conversation", "evidence", "lookahead", "warmup", "lock", "notebook", "costs",
        "trials", "folds", "stage", "publish",
    ]  # fmt: skip
    assert (frozen.version, frozen.bump, frozen.parent_version) == ("0.3.3", "patch", "0.3.2")
    texts = [change.text for change in frozen.changes]
    assert "volume ratio max 1.1 -> 1.05" in texts
    assert all(check.ok for check in frozen.checks if check.blocking)
    assert not frozen.activated
    assert resolve(place, ID).version == "0.3.1"
    assert verify(place).ok

    root = frozen.root
    assert fingerprints(root) == fingerprints(draft)
    assert [evidence.folder.name for evidence in read_all(root)] == ["2026-12-02-iter-1"]
    manifest = json.loads((root / "manifest.json").read_text("utf-8"))
    assert manifest["provenance"]["parent_version"] == "0.3.2"
    digest = files.sha256_file(root / "notebook.ipynb")
    assert manifest["provenance"]["notebook"] == {"path": "notebook.ipynb", "sha256": digest}
    assert "## 0.3.3 - 2026-12-02" in (root / "CHANGELOG.md").read_text("utf-8")

    executed = json.loads((root / "notebook.ipynb").read_text("utf-8"))
    assert [cell["source"] for cell in executed["cells"]] == [
        text if isinstance(text, list) else text.splitlines(keepends=True)
        for text in (cell["source"] for cell in book["cells"])
    ]
    code = [cell for cell in executed["cells"] if cell["cell_type"] == "code"]
    assert all(cell["execution_count"] for cell in code)
    assert sum(bool(cell["outputs"]) for cell in code) > 5
    assert "papermill" not in executed["metadata"]
    assert not any({"papermill", "execution"} & set(cell["metadata"]) for cell in code)
    assert not any("injected-parameters" in cell["metadata"].get("tags", ()) for cell in code)
    assert (draft / "notebook.ipynb").read_bytes() == before

    # What it told is there, in words that hold on every machine.
    said = json.dumps(code[-2]["outputs"])
    assert ". ./code ~ <python>" in said
    assert "<cell>:2: UserWarning: a warning names the file of its cell" in said
    assert "PosixPath('.')" in said
    for path in root.rglob("*"):
        if path.is_file():
            text = path.read_text("utf-8")
            for mark in (
                str(tmp_path), str(Path.home()), tempfile.gettempdir(), "kit-freeze-", "ipykernel_",
                sys.prefix,
            ):  # fmt: skip
                assert mark not in text, (path.name, mark)


@pytest.mark.usefixtures("quick")
def test_a_changed_rule_makes_a_minor_version(cut: Cut, place: Workspace, draft: Path) -> None:
    edit(draft / "code/signal_engine.py", "trend_pct > 0)", "trend_pct >= 0)")
    restamp(draft)
    with pytest.raises(GuardError) as caught:
        cut(bump="patch")
    assert caught.value.code == "freeze.bump_too_low"
    frozen = cut(activate=True)
    assert (frozen.version, frozen.bump) == ("0.4.0", "minor")
    assert resolve(place, ID).version == "0.4.0"
    assert verify(place).ok


@pytest.mark.usefixtures("quick")
def test_what_a_killed_backtest_left_does_not_get_in_the_way(
    cut: Cut, place: Workspace, draft: Path
) -> None:
    left = draft.parent / ".evidence-999999-2026-12-02-None"
    left.mkdir()
    (left / "engine.json").write_text("{", "utf-8")
    frozen = cut()
    assert verify(place).ok
    assert not list(frozen.root.rglob(".evidence*"))


# What happens when it cannot be finished


@pytest.mark.usefixtures("quick")
def test_a_full_disk_leaves_no_half_version(
    cut: Cut, place: Workspace, draft: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # How many operations a freeze takes, counted on a copy.
    shutil.copytree(place.root, tmp_path / "other")
    began = files.count_operations()
    freeze_draft(Workspace(tmp_path / "other"), ID, clock=CLOCK)
    operations = files.count_operations() - began
    assert operations > 40
    before = outside(place)
    there = {path.name for path in draft.parent.iterdir()}
    # First, in the copying, and at the end: the last three settle the draft, which is only noted.
    for number in (1, operations // 3, operations // 2, operations - 12, operations - 8):
        monkeypatch.setenv("KIT_NO_SPACE_AT", str(files.count_operations() + number))
        with pytest.raises(StorageError) as caught:
            cut()
        assert caught.value.code == "file.no_space", number
        assert outside(place) == before, number
        assert {path.name for path in draft.parent.iterdir()} == there
    monkeypatch.delenv("KIT_NO_SPACE_AT")
    assert cut().version == "0.3.3"
    assert verify(place).ok


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Path]:
    """A folder where two notebooks wait for each other."""
    folder = tmp_path / "gate"
    folder.mkdir()
    yield folder
    (folder / "open").touch()


@pytest.mark.kernel
@pytest.mark.slow
def test_of_two_freezes_at_once_one_wins(place: Workspace, draft: Path, gate: Path) -> None:
    meet = (
        "import os, time\n"
        "from pathlib import Path\n"
        f"gate = Path({str(gate)!r})\n"
        "(gate / str(os.getpid())).touch()\n"
        "late = time.monotonic() + 90\n"
        "while len(list(gate.iterdir())) < 2 and time.monotonic() < late:\n"
        "    time.sleep(0.05)"
    )
    (draft / "notebook.ipynb").write_text(notebook_of(("Meet", meet)), "utf-8")
    command = [Path(sys.executable).parent / "kit", "freeze", ID]
    rivals = [
        subprocess.Popen(
            command,
            cwd=place.root,
            env={**os.environ, "NO_COLOR": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    said = {rival.wait(): rival.communicate() for rival in rivals}
    assert set(said) == {0, 7}, said
    assert f"frozen: {ID}@0.3.3 (patch)" in said[0][0]
    assert f"{ID}@0.3.3 exists now" in said[7][1]
    assert "freeze.version_exists" in said[7][1]
    assert verify(place).ok
    assert sorted(path.name for path in draft.parent.iterdir() if path.is_dir()) == [
        "0.3.0", "0.3.1", "0.3.2", "0.3.3", "draft",
    ]  # fmt: skip
    index = json.loads(place.index_path.read_text("utf-8"))["strategies"][ID]
    versions = [entry["version"] for entry in index["all_versions"]]
    assert versions == ["0.3.3", "0.3.2", "0.3.1", "0.3.0"]
    assert Bundle.open(place.strategies / ID / "0.3.3").version == "0.3.3"
