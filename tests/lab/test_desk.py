"""The desk: a draft opened, written, linted, noted and compared, in a copy of the workspace."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kit import lab
from kit.clock import FixedClock
from kit.errors import ConfigError, KitError, RegistryError, UsageError
from kit.lab import Desk, scratch_desk
from kit.lab.display import Note, Rows
from kit.workspace import Workspace

ID = "ma250-pullback"


def test_strategies_lists_versions_and_drafts(desk: Desk) -> None:
    assert (ID, "0.3.1", "0.3.2, 0.3.1, 0.3.0", "no") in desk.strategies().rows
    lab.draft(ID)
    assert (ID, "0.3.1", "0.3.2, 0.3.1, 0.3.0", "yes") in lab.strategies().rows
    assert repr(desk) == f"Desk(desk, draft {ID})"


def test_without_a_draft_every_step_says_how_to_open_one(desk: Desk) -> None:
    for step in (
        lambda: desk.file("SKILL.md", "x"),
        desk.lint,
        lambda: desk.note("why"),
        desk.diff,
        desk.backtest,
        desk.validate,
        lambda: desk.sweep("near_pct=2,3"),
        desk.freeze,
    ):
        with pytest.raises(UsageError) as refused:
            step()
        assert refused.value.code == "lab.no_draft"
        assert "%kit_draft" in refused.value.remedy


def test_a_draft_is_opened_copied_or_begun(desk: Desk) -> None:
    lab.draft(ID)
    assert (desk.draft_root / "manifest.json").is_file()
    lab.draft("quiet-one", from_=f"{ID}@0.3.0")
    assert json.loads((desk.draft_root / "manifest.json").read_text("utf-8"))["strategy_id"] == (
        "quiet-one"
    )
    note = lab.draft("from-nothing", empty=True)
    assert list(desk.draft_root.iterdir()) == []
    assert "0 files" in repr(note)
    # Opened again it is the same draft, whatever is in it.
    lab.file("SKILL.md", "mine")
    lab.draft(ID)
    lab.draft("from-nothing")
    assert (desk.draft_root / "SKILL.md").read_text("utf-8") == "mine\n"


@pytest.mark.parametrize("options", [{"empty": True}, {"from_": f"{ID}@0.3.0"}])
def test_a_draft_is_never_overwritten(desk: Desk, options: dict[str, object]) -> None:
    lab.draft(ID)
    lab.file("SKILL.md", "mine")
    with pytest.raises(RegistryError) as refused:
        lab.draft(ID, **options)  # type: ignore[arg-type]
    assert refused.value.code == "draft.exists"
    assert (desk.draft_root / "SKILL.md").read_text("utf-8") == "mine\n"


def test_a_wrong_id_or_version_opens_nothing(desk: Desk) -> None:
    for id_, options in (("../x", {}), ("Upper", {}), ("new-one", {"from_": f"{ID}@9.9.9"})):
        with pytest.raises(KitError) as refused:
            lab.draft(id_, **options)
        assert refused.value.remedy
        assert desk.open_id is None
    assert not (desk.workspace.strategies / "new-one" / "draft").exists()


def test_a_file_is_written_linted_and_compared(desk: Desk) -> None:
    lab.draft(ID)
    path = desk.draft_root / "config.json"
    text = path.read_text(encoding="utf-8")
    clean = lab.file("config.json", text.replace('"near_pct": 4.0', '"near_pct": 3.5'))
    assert isinstance(clean, Note)
    assert clean.text == "config.json: +1 -1 lines; lint: clean"
    assert '"near_pct": 3.5' in path.read_text(encoding="utf-8")
    same = lab.file("config.json", path.read_text(encoding="utf-8"))
    assert same.text == "config.json: unchanged; lint: clean"  # type: ignore[union-attr]
    lines = len(path.read_text(encoding="utf-8").splitlines())
    broken = lab.file("./config.json", "no JSON")
    assert isinstance(broken, Rows)
    assert broken.title == f"config.json: +1 -{lines} lines; lint:"
    assert broken.rows
    assert all(row[-1] for row in broken.rows), "every finding says how to mend it"


def test_a_file_that_is_no_text_can_be_replaced(desk: Desk) -> None:
    lab.draft(ID)
    (desk.draft_root / "notes.md").write_bytes(b"\xff\xfe\x00")
    lab.file("notes.md", "now it is text")
    assert (desk.draft_root / "notes.md").read_text("utf-8") == "now it is text\n"


@pytest.fixture
def outside(desk: Desk, tmp_path: Path) -> Path:
    """A file beside the workspace, and ways that lead to it."""
    target = tmp_path / "outside.txt"
    target.write_text("theirs", encoding="utf-8")
    lab.draft(ID)
    (desk.draft_root / "link.md").symlink_to(target)
    (desk.draft_root / "folder").symlink_to(tmp_path)
    (desk.draft_root / "inner.md").symlink_to(desk.draft_root / "SKILL.md")
    return target


@pytest.mark.parametrize(
    "path",
    [
        "",
        ".",
        "code",
        "code/",
        "../outside.txt",
        "code/../../outside.txt",
        "../draft/SKILL.md",
        "{outside}",
        "{draft}/SKILL.md",
        "link.md",
        "folder/outside.txt",
        "folder/new.txt",
        "inner.md",
        "a\0b",
        "a\nb.md",
        "code/\x1b[31m.py",
    ],
)
def test_paths_outside_the_draft_are_refused(desk: Desk, outside: Path, path: str) -> None:
    path = path.format(outside=outside, draft=desk.draft_root)

    def state() -> dict[str, bytes]:
        files = [p for p in desk.workspace.root.rglob("*") if p.is_file()]
        return {str(p): p.read_bytes() for p in [*files, outside]}

    before = state()
    with pytest.raises(UsageError) as refused:
        lab.file(path, "mine")
    assert refused.value.code == "lab.bad_path"
    assert refused.value.remedy
    assert state() == before


def test_a_file_below_a_file_is_explained(desk: Desk) -> None:
    lab.draft(ID)
    with pytest.raises(KitError) as refused:
        lab.file("SKILL.md/x.md", "mine")
    assert "a file stands where a folder is needed" in refused.value.message


def test_a_draft_that_is_a_link_is_not_written_through(desk: Desk, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    folder = desk.workspace.strategies / "linked-one"
    folder.mkdir()
    (folder / "draft").symlink_to(elsewhere)
    lab.draft("linked-one")
    with pytest.raises(UsageError):
        lab.file("SKILL.md", "mine")
    assert list(elsewhere.iterdir()) == []


def test_lint_of_a_draft_and_of_a_version(desk: Desk) -> None:
    lab.draft(ID)
    assert lab.lint(f"{ID}@0.3.1").title == "Lint: clean"
    lab.file("config.json", "{")
    found = lab.lint()
    assert found.title == "Lint"
    assert "config.json" in " ".join(row[1] for row in found.rows)


def test_notes_become_the_conversation(desk: Desk) -> None:
    lab.draft(ID)
    said = "tighter: it bought into selling; 只看缩量"
    note = lab.note(said)
    path = desk.draft_root / "conversations" / "2024-09-19-notes.jsonl"
    assert note.text == f"noted in {path.name}"
    lab.note("one more", kind="note")
    events = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert [(e["role"], e["kind"], e["content"]) for e in events] == [
        ("user", "decision", said),
        ("user", "note", "one more"),
    ]
    assert events[0]["ts"] == "2024-09-19T08:40:00+00:00"
    with pytest.raises(UsageError) as refused:
        lab.note("")
    assert refused.value.remedy


def test_diff_names_the_change_and_the_bump(desk: Desk) -> None:
    lab.draft(ID)
    config = desk.draft_root / "config.json"
    text = config.read_text(encoding="utf-8")
    lab.file("config.json", text.replace('"near_pct": 4.0', '"near_pct": 3.5'))
    found = lab.diff()
    assert found.title == "0.3.2 → draft: patch"
    assert ("patch", "parameters", "near pct 4.0 -> 3.5") in found.rows
    # Against 0.3.0 the older changes show as well: a number, and a section reworded.
    older = lab.diff("0.3.0")
    assert older.title == "0.3.0 → draft: patch"
    assert len(older.rows) == len(found.rows) + 2
    with pytest.raises(RegistryError) as refused:
        lab.diff("9.9.9")
    assert refused.value.code == "registry.unknown_version"


def test_diff_of_a_fork_is_with_what_it_was_made_from(desk: Desk) -> None:
    lab.draft("first-one", from_=f"{ID}@0.3.0")
    config = desk.draft_root / "config.json"
    text = config.read_text(encoding="utf-8")
    lab.file("config.json", text.replace('"near_pct": 4.0', '"near_pct": 3.5'))
    found = lab.diff()
    assert found.title == f"{ID}/0.3.0 → draft: patch"
    assert list(found.rows) == [("patch", "parameters", "near pct 4.0 -> 3.5")]


def test_diff_of_what_was_made_from_nothing_says_so(desk: Desk) -> None:
    lab.draft("first-one", from_=f"{ID}@0.3.1")
    manifest = desk.draft_root / "manifest.json"
    value = json.loads(manifest.read_text(encoding="utf-8"))
    value["provenance"] = {}
    manifest.write_text(json.dumps(value), encoding="utf-8")
    with pytest.raises(UsageError) as refused:
        lab.diff()
    assert refused.value.code == "bundle.no_parent"


@pytest.mark.slow
def test_a_rule_is_judged_and_swept_from_a_notebook(desk: Desk) -> None:
    lab.draft(ID)
    judged = lab.validate()
    assert judged.title == f"{ID}@draft: no guard refuses"
    assert [row[:2] for row in judged.rows][:2] == [("lookahead", "ok"), ("warmup", "ok")]
    swept = lab.sweep("near_pct=3,4", symbols=["000783.SZ", "601318.SH"])
    assert [dict(cell.params) for cell in swept.cells] == [{"near_pct": 3.0}, {"near_pct": 4.0}]
    assert (swept.folder / "report.html").is_file()


def test_verify_shows_what_was_changed(desk: Desk) -> None:
    assert lab.verify().title == "5 versions re-hashed: intact"
    path = desk.workspace.strategies / ID / "0.3.1" / "SKILL.md"
    path.chmod(0o644)
    path.write_bytes(path.read_bytes() + b"\n")
    found = lab.verify()
    assert found.title == "5 versions re-hashed: NOT INTACT"
    assert [row[:2] for row in found.rows] == [(f"{ID}@0.3.1", "SKILL.md")]


def test_without_a_run_there_is_nothing_to_load(desk: Desk) -> None:
    with pytest.raises(UsageError) as refused:
        lab.load()
    assert refused.value.code == "lab.no_runs"
    with pytest.raises(UsageError) as refused:
        lab.card("2020-02-27")
    assert refused.value.code == "run.unknown"


def test_wrong_dates_are_usage_errors(desk: Desk) -> None:
    lab.draft(ID)
    for step in (
        lambda: lab.backtest(start="2020-2-1"),
        lambda: lab.screen(ID, "27.02.2020"),
        lambda: lab.slot("cn", "2024-09-18T10:03"),
        lambda: lab.slot("jp", "2024-09-18T10:03+08:00"),
    ):
        with pytest.raises(UsageError) as refused:
            step()
        assert refused.value.remedy


# scratch


def test_scratch_leaves_the_origin_alone(
    desk: Desk, contents_of: Callable[[Path], dict[str, str]]
) -> None:
    origin = desk.workspace
    lab.draft(ID)
    origin.runs.mkdir(exist_ok=True)
    (origin.runs / "secret.txt").write_text("x", encoding="utf-8")
    (origin.notebooks / ".ipynb_checkpoints").mkdir()
    before = contents_of(origin.root)

    copy = lab.scratch()
    assert lab.desk() is copy
    assert copy.open_id is None
    root = copy.workspace.root
    assert root != origin.root
    assert root.name == origin.root.name
    assert not copy.workspace.runs.exists()
    assert not (copy.workspace.strategies / ID / "draft").exists()
    assert not list(root.rglob(".ipynb_checkpoints"))
    # Everything else is there, byte for byte and mode for mode.
    kept = {name: what for name, what in before.items() if "/draft/" not in name}
    assert contents_of(root) == kept
    for part in ("config", "notebooks", "prompts"):
        names = [p.relative_to(origin.root) for p in (origin.root / part).rglob("*.*")]
        assert all((root / name).exists() for name in names if "checkpoints" not in str(name))

    lab.draft(ID)
    lab.file("SKILL.md", "mine")
    lab.note("only here")
    assert contents_of(origin.root) == before


def test_scratch_keeps_everything_inside_a_version(
    desk: Desk, contents_of: Callable[[Path], dict[str, str]]
) -> None:
    """A folder called draft inside a version is part of it; a link there stays one, and is seen."""
    version = desk.workspace.strategies / ID / "0.3.1"
    (version / "references").chmod(0o755)
    (version / "references" / "draft").mkdir()
    (version / "references" / "draft" / "x.md").write_text("x", encoding="utf-8")
    (version / "references" / "link.md").symlink_to("rule.md")
    copy = scratch_desk(desk.workspace)
    assert contents_of(copy.workspace.root) == contents_of(desk.workspace.root)
    differing = {row[1] for row in copy.verify().rows}
    assert differing == {"references/draft/x.md", "references/link.md"}


def test_scratch_of_a_workspace_that_lost_its_index(desk: Desk) -> None:
    desk.workspace.index_path.unlink()
    copy = scratch_desk(desk.workspace, FixedClock("2024-09-19T08:40:00+00:00"))
    with pytest.raises(RegistryError) as refused:
        copy.strategies()
    assert "kit registry rebuild" in refused.value.remedy


def test_the_desk_is_found_once_and_says_when_there_is_none(
    tmp_path: Path, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lab, "_current", None)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as refused:
        lab.desk()
    assert "kit init" in refused.value.remedy
    monkeypatch.chdir(workspace.strategies)
    assert lab.desk().workspace == workspace
    assert lab.desk() is lab.desk()
