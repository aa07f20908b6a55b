"""Whatever happens to the bytes of a file, the commands answer: findings, or an error of ours."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kit import files
from kit.bundle.freeze import freeze
from kit.bundle.lint import lint
from kit.bundle.rebuild import rebuild
from kit.bundle.registry import list_strategies, read_index
from kit.bundle.verify import verify
from kit.clock import FixedClock
from kit.errors import KitError
from kit.workspace import Workspace, init_workspace

BUILDER = runpy.run_path(str(Path(__file__).parents[1] / "bundle" / "builder.py"))
ID = "tiny-pullback"
DRAFT = ("SKILL.md", "manifest.json", "config.json", "reason_template.md",
         "prompts/event_sector_filter.md", "prompts/pick_explanation.md",
         "conversations/2024-09-18-first-idea.jsonl")  # fmt: skip
VERSION = (*DRAFT, "checksums.txt", "CHANGELOG.md", "schemas/prompts/pick_explanation.json")
CLOCK = FixedClock("2024-09-19T08:40:00+00:00")


@pytest.fixture(scope="session")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A workspace with one version, active, and its draft."""
    workspace = init_workspace(tmp_path_factory.mktemp("damaged") / "desk")
    BUILDER["make_draft"](workspace)
    root = freeze(
        workspace, ID, checks=BUILDER["passing_checks"](), clock=CLOCK, activate=True
    ).root
    files.set_writable(root)
    return workspace


@st.composite
def damages(draw: st.DrawFn) -> Callable[[bytes], bytes]:
    """A flip, a cut, a hole, or something strange put in."""
    where = draw(st.floats(0, 1))
    what = draw(st.sampled_from(["flip", "cut", "hole", "insert"]))
    value = draw(st.integers(0, 255))
    strange = draw(
        st.sampled_from(
            [b"\0", b"\xff\xfe", b"\r\n", b"{", b'"', b"---\n", b"[" * 5000, b"1e999", b"&a *a",
             b"\xed\xa0\x80", b"\\ud800", b"null", b"\xe2\x80\xa8", b"- ? !!python/object:x "]
        )
    )  # fmt: skip

    def damage(data: bytes) -> bytes:
        at = min(int(where * len(data)), len(data) - 1)
        if what == "flip":
            return data[:at] + bytes([value]) + data[at + 1 :]
        if what == "cut":
            return data[:at]
        if what == "hole":
            return data[:at] + data[at + 1 + value :]
        return data[:at] + strange + data[at:]

    return damage


def with_damage(path: Path, damage: Callable[[bytes], bytes], look: Callable[[], object]) -> object:
    before = path.read_bytes()
    try:
        path.write_bytes(damage(before))
        return look()
    except KitError as error:
        return error
    finally:
        path.write_bytes(before)


@settings(max_examples=150, deadline=None)
@given(name=st.sampled_from(DRAFT), damage=damages())
def test_lint_always_answers(desk: Workspace, name: str, damage: Callable[[bytes], bytes]) -> None:
    draft = desk.strategies / ID / "draft"
    found = with_damage(draft / name, damage, lambda: lint(draft, draft=True))
    assert isinstance(found, list)
    assert all(finding.message and finding.mend for finding in found)


@settings(max_examples=60, deadline=None)
@given(name=st.sampled_from(VERSION), damage=damages())
def test_verify_finds_every_change_of_a_version(
    desk: Workspace, name: str, damage: Callable[[bytes], bytes]
) -> None:
    path = desk.strategies / ID / "0.1.0" / name
    same = damage(path.read_bytes()) == path.read_bytes()
    found = with_damage(path, damage, lambda: verify(desk, f"{ID}@0.1.0"))
    assert not isinstance(found, KitError)
    assert found.ok is same


@settings(max_examples=80, deadline=None)
@given(name=st.sampled_from(["INDEX.json", f"strategies/{ID}/activations.jsonl"]), damage=damages())
def test_the_registry_always_answers(
    desk: Workspace, name: str, damage: Callable[[bytes], bytes]
) -> None:
    path = desk.root / name

    def look() -> None:
        assert isinstance(verify(desk).rows, tuple)
        list_strategies(desk)
        read_index(desk)

    with_damage(path, damage, look)
    index, log = desk.index_path, desk.strategies / ID / "activations.jsonl"
    before = index.read_bytes(), log.read_bytes()
    try:
        with_damage(path, damage, lambda: rebuild(desk, who="x", clock=CLOCK))
    finally:
        index.write_bytes(before[0])
        log.write_bytes(before[1])
