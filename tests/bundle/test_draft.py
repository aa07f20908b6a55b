from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kit import files
from kit.bundle.conversation import (
    append_event,
    conversation_files,
    read_conversation,
    slugify,
)
from kit.bundle.draft import new_draft, with_front_matter
from kit.bundle.freeze import FrozenVersion
from kit.bundle.lint import lint
from kit.bundle.model import Bundle
from kit.clock import FixedClock
from kit.errors import BundleError, KitError, RegistryError, StorageError, UsageError
from kit.workspace import Workspace


def test_a_draft_from_the_own_latest_version(
    workspace: Workspace, draft: Path, frozen: FrozenVersion, cut: Callable[..., FrozenVersion]
) -> None:
    (draft / "reason_template.md").write_text("other\n")
    (draft / "backtests/x").mkdir(parents=True)
    (draft / "backtests/x/metrics.json").write_text("{}")
    cut()
    files.remove_tree(draft)
    assert new_draft(workspace, "tiny-pullback") == draft
    bundle = Bundle.open(draft)
    assert bundle.is_draft
    assert bundle.manifest.provenance.parent_version == "0.1.1"
    assert (draft / "reason_template.md").read_text() == "other\n"
    assert conversation_files(draft)
    assert not (draft / "backtests").exists()
    assert not (draft / "checksums.txt").exists()
    assert lint(draft, draft=True) == []
    (draft / "SKILL.md").write_text("writable")
    (draft / "code/new.py").write_text("x")


def test_a_draft_from_an_older_version_is_frozen_on_top_of_it(
    workspace: Workspace, draft: Path, frozen: FrozenVersion, cut: Callable[..., FrozenVersion]
) -> None:
    files.remove_tree(draft)
    new_draft(workspace, "tiny-pullback", "tiny-pullback@0.1.0")
    (draft / "reason_template.md").write_text("patched\n")
    assert cut().ref == "tiny-pullback@0.1.1"


def test_a_draft_from_another_strategy_starts_its_own_history(
    workspace: Workspace,
    frozen: FrozenVersion,
    clock: FixedClock,
    cut: Callable[..., FrozenVersion],
) -> None:
    root = new_draft(workspace, "other-rule", "tiny-pullback")
    bundle = Bundle.open(root)
    assert (bundle.id, bundle.skill.name) == ("other-rule", "other-rule")
    assert bundle.manifest.provenance.parent_version is None
    assert bundle.manifest.provenance.created_by is None
    assert not (root / "conversations").exists()
    assert lint(root, draft=True) == []
    append_event(root, slug="start", role="user", kind="note", content="x", clock=clock)
    assert cut("other-rule").ref == "other-rule@0.1.0"


@pytest.mark.parametrize(
    ("id_", "source", "code"),
    [
        ("tiny-pullback", None, "draft.exists"),
        ("new-one", None, "draft.nothing_to_copy"),
        ("new-one", "tiny-pulback", "registry.unknown_id"),
        ("new-one", "tiny-pullback@9.0.0", "registry.unknown_version"),
        ("Tiny-pullback", "tiny-pullback", "bundle.bad_id"),
        ("ab", "tiny-pullback", "bundle.bad_id"),
    ],
)
def test_drafts_that_cannot_be_made(
    workspace: Workspace, frozen: FrozenVersion, id_: str, source: str | None, code: str
) -> None:
    with pytest.raises(KitError) as error:
        new_draft(workspace, id_, source)
    assert error.value.code == code
    assert error.value.remedy


def test_an_id_that_differs_by_case_only_is_taken(
    workspace: Workspace, frozen: FrozenVersion
) -> None:
    (workspace.strategies / "NEW-one").mkdir()
    with pytest.raises(RegistryError) as error:
        new_draft(workspace, "new-one", "tiny-pullback")
    assert error.value.code == "draft.id_taken"


def test_a_draft_is_whole_or_not_there(
    workspace: Workspace, frozen: FrozenVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = workspace.strategies / "new-one"
    for step in range(1, 200):
        monkeypatch.setenv("KIT_NO_SPACE_AT", str(files.count_operations() + step))
        try:
            new_draft(workspace, "new-one", "tiny-pullback")
        except StorageError:
            assert not folder.exists() or list(folder.iterdir()) == []
        else:
            break
    assert step > 20
    assert lint(folder / "draft", draft=True) == []


def test_front_matter_is_set_in_place() -> None:
    text = "---\nname: a\nversion: 1.0.0 # old\n---\nversion: x\n"
    assert with_front_matter(text, version="1.0.1", name="b") == (
        "---\nname: b\nversion: 1.0.1\n---\nversion: x\n"
    )
    assert with_front_matter("---\nname: a\n--- \nx", version="1.0.1") == (
        "---\nname: a\nversion: 1.0.1\n--- \nx"
    )


def test_events_are_appended_by_day(draft: Path, clock: FixedClock) -> None:
    path = append_event(
        draft, slug="Tune it", role="user", kind="message", content="板块\u2028过滤", clock=clock
    )
    clock.sleep(60)
    append_event(
        draft,
        slug="tune-it",
        role="tool",
        kind="tool_result",
        content={"sharpe": 1.2},
        clock=clock,
        extra={"digest": "abc"},
    )
    assert path.name == "2024-09-19-tune-it.jsonl"
    assert read_conversation(path) == [
        {
            "ts": "2024-09-19T08:40:00+00:00",
            "role": "user",
            "kind": "message",
            "content": "板块\u2028过滤",
        },
        {
            "ts": "2024-09-19T08:41:00+00:00",
            "role": "tool",
            "kind": "tool_result",
            "content": {"sharpe": 1.2},
            "digest": "abc",
        },
    ]
    assert [p.name for p in conversation_files(draft)] == [
        "2024-09-18-first-idea.jsonl",
        "2024-09-19-tune-it.jsonl",
    ]


@pytest.mark.parametrize(
    "event",
    [
        {"role": "robot", "kind": "note", "content": "x"},
        {"role": "user", "kind": "thought", "content": "x"},
        {"role": "user", "kind": "note", "content": 3},
        {"role": "user", "kind": "note", "content": None},
    ],
)
def test_what_is_no_event_is_refused(draft: Path, clock: FixedClock, event: dict[str, str]) -> None:
    with pytest.raises(BundleError) as error:
        append_event(draft, slug="new", clock=clock, **event)
    assert error.value.code == "conversation.bad_event"
    assert len(conversation_files(draft)) == 1


def test_a_bad_line_is_named(draft: Path) -> None:
    path = draft / "conversations/2024-09-18-first-idea.jsonl"
    path.write_text(path.read_text("utf-8") + '\n{"ts": "yesterday"}\n', "utf-8")
    with pytest.raises(BundleError) as error:
        read_conversation(path)
    assert error.value.where == "conversations/2024-09-18-first-idea.jsonl:3"


@pytest.mark.parametrize(
    ("text", "slug"),
    [
        ("Tune Pullback", "tune-pullback"),
        ("  a__b!! c ", "a-b-c"),
        ("x" * 80, "x" * 60),
        ("MA 250日", "ma-250"),
    ],
)
def test_slugs(text: str, slug: str) -> None:
    assert slugify(text) == slug


def test_a_title_without_latin_letters_gives_no_slug() -> None:
    with pytest.raises(UsageError) as error:
        slugify("板块过滤太激进")
    assert error.value.code == "conversation.bad_slug"


def test_the_manifest_of_a_draft_stays_readable(draft: Path, frozen: FrozenVersion) -> None:
    text = (draft / "manifest.json").read_text("utf-8")
    assert "板块过滤" in text
    assert json.loads(text)["provenance"]["parent_version"] == "0.1.0"


def test_of_two_new_drafts_at_once_the_loser_is_told(
    workspace: Workspace, frozen: FrozenVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = files.publish_dir

    def late(staging: Path, root: Path) -> None:
        (root / "rival").mkdir(parents=True)  # between the first look and the rename
        real(staging, root)

    monkeypatch.setattr(files, "publish_dir", late)
    with pytest.raises(RegistryError) as error:
        new_draft(workspace, "twin-one", "tiny-pullback")
    assert (error.value.code, error.value.exit_code) == ("draft.exists", 3)
    names = [path.name for path in (workspace.strategies / "twin-one").iterdir()]
    assert names == ["draft"]


def test_what_is_being_written_today_is_the_newest(draft: Path) -> None:
    """A version copied today brings a named conversation of today along: a slug is not for that."""
    folder = draft / "conversations"
    for path in folder.iterdir():
        path.unlink()
    for name in ("2026-12-01-tighter-cap", "2026-12-01-notes", "2026-11-30-notes"):
        (folder / f"{name}.jsonl").write_text("", "utf-8")
    assert [path.stem for path in conversation_files(draft)] == [
        "2026-11-30-notes",
        "2026-12-01-tighter-cap",
        "2026-12-01-notes",
    ]
