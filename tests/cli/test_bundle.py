"""`kit new`, `lint`, `diff`, `verify` and what `freeze` refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kit.workspace import Workspace

Kit = Callable[..., Any]
ID = "ma250-pullback"


def edit(desk: Workspace, name: str, old: str, new: str, strategy: str = ID) -> None:
    path = desk.strategies / strategy / "draft" / name
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1, name
    path.write_text(text.replace(old, new), encoding="utf-8")


def test_new_copies_a_version_under_its_id_or_another(kit: Kit, desk: Workspace) -> None:
    said = kit("new", ID)
    assert (said.code, said.out) == (0, "draft ready: strategies/ma250-pullback/draft\n")
    assert "kit lint ma250-pullback" in said.err
    shown = json.loads(kit("new", "quiet-one", "--from", f"{ID}@0.3.0", "--json").out)
    assert shown == {"id": "quiet-one", "draft": "strategies/quiet-one/draft", "near": []}
    manifest = json.loads((desk.root / shown["draft"] / "manifest.json").read_text("utf-8"))
    assert manifest["strategy_id"] == "quiet-one"
    assert manifest["provenance"] == {"x-forked-from": f"{ID}@0.3.0"}


@pytest.mark.parametrize(
    ("line", "code", "name"),
    [
        (["new", "Upper"], 2, "bundle.bad_id"),
        (["new", "a/../b"], 2, "bundle.bad_id"),
        (["new", "brand-new"], 3, "draft.nothing_to_copy"),
        (["new", "brand-new", "--from", "ma250-pulback@0.3.1"], 3, "registry.unknown_id"),
        (["new", "brand-new", "--from", f"{ID}@9.9.9"], 3, "registry.unknown_version"),
        (["new"], 2, "usage"),
        (["lint", "nope-nope"], 3, "registry.unknown_id"),
        (["lint", f"{ID}@9.9.9"], 3, "registry.unknown_version"),
        (["lint", f"{ID}@draft"], 3, "registry.no_draft"),
        (["diff", ID], 3, "registry.no_draft"),
        (["diff", ID, "9.9.9", "0.3.1"], 3, "registry.unknown_version"),
        (["diff", ID, "x", "0.3.1"], 2, "bundle.bad_version"),
        (["verify", "nope-nope"], 3, "registry.unknown_id"),
        (["verify", f"{ID}@9.9.9"], 3, "registry.unknown_version"),
        (["verify", f"{ID}@draft"], 2, "bundle.is_draft"),
        (["freeze", "nope-nope"], 3, "registry.unknown_id"),
        (["freeze", ID], 3, "registry.no_draft"),
        (["freeze", ID, "--bump", "huge"], 2, "usage"),
    ],
)
def test_wrong_requests_change_nothing(
    kit: Kit,
    desk: Workspace,
    contents_of: Callable[[Path], dict[str, str]],
    line: list[str],
    code: int,
    name: str,
) -> None:
    before = contents_of(desk.root)
    said = kit(*line, "--json")
    assert said.code == code
    shown = json.loads(said.out)["error"]
    assert shown["code"] == name
    assert shown["remedy"]
    assert contents_of(desk.root) == before


def test_a_second_draft_is_refused(kit: Kit, desk: Workspace) -> None:
    kit("new", ID)
    edit(desk, "config.json", '"near_pct": 4.0', '"near_pct": 3.5')
    said = kit("new", ID)
    assert said.code == 3
    assert "[draft.exists]" in said.err
    assert '"near_pct": 3.5' in (desk.strategies / ID / "draft" / "config.json").read_text("utf-8")


def test_lint_of_the_shipped_versions_is_clean(kit: Kit) -> None:
    for number in ("0.3.0", "0.3.1"):
        said = kit("lint", f"{ID}@{number}")
        assert said.code == 0
        assert f"strategies/{ID}/{number}: 0 errors" in said.out


def test_lint_names_file_line_rule_and_remedy(kit: Kit, desk: Workspace) -> None:
    kit("new", ID)
    edit(desk, "config.json", '"near_pct": 4.0,', '"near_pct": 4.0,,')
    said = kit("lint", ID)
    assert said.code == 3
    assert "config.json:" in said.out
    assert "  → " in said.out
    shown = json.loads(kit("lint", ID, "--json").out)
    assert shown["errors"] == len([f for f in shown["findings"] if f["severity"] == "error"]) > 0
    text = (desk.strategies / ID / "draft" / "config.json").read_text(encoding="utf-8")
    broken = text.split("\n").index('      "near_pct": 4.0,,') + 1
    (finding,) = [f for f in shown["findings"] if f["path"] == "config.json"]
    assert finding["line"] == broken
    # Not even a manifest that cannot be read keeps lint from speaking.
    (desk.strategies / ID / "draft" / "manifest.json").write_text("{", encoding="utf-8")
    assert kit("lint", ID).code == 3


def test_diff_of_two_versions(kit: Kit) -> None:
    """0.3.1 is 0.3.0 with a tighter cap on volume: 1.2 became 1.1."""
    said = kit("diff", ID, "0.3.0", "0.3.1")
    assert said.code == 0
    assert said.out == (
        "ma250-pullback: 0.3.0 → 0.3.1: PATCH\nparameters\n  volume ratio max 1.2 -> 1.1: PATCH\n"
    )
    shown = json.loads(kit("diff", ID, "0.3.0", "0.3.1", "--json").out)
    assert (shown["old"], shown["new"], shown["bump"]) == ("0.3.0", "0.3.1", "patch")


def test_diff_of_a_draft(kit: Kit, desk: Workspace) -> None:
    kit("new", ID)
    edit(desk, "config.json", '"near_pct": 4.0', '"near_pct": 3.5')
    shown = json.loads(kit("diff", ID, "--json").out)
    assert (shown["old"], shown["new"], shown["bump"]) == ("0.3.2", "draft", "patch")
    assert [change["text"] for change in shown["changes"]] == ["near pct 4.0 -> 3.5"]
    edit(desk, "prompts/pick_explanation.md", "at most two sentences", "at most three sentences")
    assert json.loads(kit("diff", ID, "--json").out)["bump"] == "minor"


def test_a_first_draft_is_compared_with_what_it_was_made_from(kit: Kit, desk: Workspace) -> None:
    kit("new", "first-one", "--from", f"{ID}@0.3.0")
    said = kit("diff", "first-one")
    assert (said.code, said.out) == (0, "first-one: ma250-pullback/0.3.0 → draft: NONE\n")
    edit(desk, "config.json", '"ma_window": 250', '"ma_window": 248', "first-one")
    edit(desk, "prompts/event_sector_filter.md", "at most three", "at most four", "first-one")
    assert kit("diff", "first-one").out == (
        "first-one: ma250-pullback/0.3.0 → draft: MINOR\n"
        "prompts\n"
        "  prompts/event_sector_filter.md: section 'output format' reworded: MINOR\n"
        "parameters\n"
        "  ma window 250 -> 248: PATCH\n"
    )
    kit("new", "second-one", "--template", "pullback")
    assert kit("diff", "second-one").out == "second-one: templates/pullback → draft: NONE\n"


def test_what_was_written_from_nothing_has_nothing_to_be_compared_with(
    kit: Kit, desk: Workspace
) -> None:
    kit("new", "first-one", "--template", "pullback")
    edit(desk, "manifest.json", '"x-template": "pullback"', '"created_by": "lin"', "first-one")
    said = kit("diff", "first-one")
    assert said.code == 2
    assert "[bundle.no_parent]" in said.err


def test_an_id_that_is_taken_is_refused_and_free_ones_are_proposed(
    kit: Kit, desk: Workspace
) -> None:
    for line in (["--template", "pullback"], ["--from", f"{ID}@0.3.0"]):
        kit("new", "other-one", "--template", "pullback")
        taken = kit("new", ID, "--template", "pullback", "--json")
        shown = json.loads(taken.out)["error"]
        assert (taken.code, shown["code"]) == (3, "draft.id_taken")
        assert shown["details"]["free"] == [f"{ID}-2", f"{ID}-3", f"{ID}-next"]
        assert f"{ID}-2" in shown["remedy"]
        assert json.loads(kit("new", "other-one", *line, "--json").out)["error"]["code"] == (
            "draft.exists"
        )
    near = kit("new", "ma250-pulback", "--template", "pullback")
    assert near.code == 0
    assert "easily mistaken for ma250-pullback" in near.err


@pytest.mark.parametrize("template", ["pullback", "event-driven"])
def test_a_draft_from_a_template_lints_clean(kit: Kit, desk: Workspace, template: str) -> None:
    shown = json.loads(kit("new", "my-own", "--template", template, "--json").out)
    assert shown == {"id": "my-own", "draft": "strategies/my-own/draft", "near": []}
    linted = json.loads(kit("lint", "my-own", "--json").out)
    assert linted["findings"] == []
    skill = (desk.strategies / "my-own" / "draft" / "SKILL.md").read_text("utf-8")
    assert skill.startswith("---\nname: my-own\n")


def test_wrong_templates(kit: Kit) -> None:
    said = kit("new", "my-own", "--template", "pulback")
    assert said.code == 2
    assert "did you mean 'pullback'?" in said.err
    both = kit("new", "my-own", "--template", "pullback", "--from", f"{ID}@0.3.0")
    assert (both.code, "exclude each other" in both.err) == (2, True)


def test_verify_mends_modes_and_nothing_else(kit: Kit, desk: Workspace) -> None:
    root = desk.strategies / ID / "0.3.1"
    (root / "SKILL.md").chmod(0o644)
    said = kit("verify")
    assert (said.code, said.out) == (0, "5 versions re-hashed: intact\n")
    assert "kit verify --fix" in said.err
    fixed = kit("verify", f"{ID}@0.3.1", "--fix", "--json")
    shown = json.loads(fixed.out)
    assert (fixed.code, shown["ok"], shown["checked"]) == (0, True, [f"{ID}@0.3.1"])
    assert shown["fixed"] == [f"{ID}@0.3.1"]
    assert (root / "SKILL.md").stat().st_mode & 0o777 == 0o444
    # Changed content is never made good by setting a mode.
    (root / "SKILL.md").chmod(0o644)
    (root / "SKILL.md").write_text("x", encoding="utf-8")
    broken = kit("verify", "--fix", "--json")
    assert broken.code == 3
    assert f"{ID}@0.3.1" not in json.loads(broken.out)["fixed"]
    assert (root / "SKILL.md").stat().st_mode & 0o777 == 0o644


def test_freeze_says_what_is_missing_and_leaves_no_half(
    kit: Kit, desk: Workspace, contents_of: Callable[[Path], dict[str, str]]
) -> None:
    kit("new", ID)
    before = contents_of(desk.root)
    said = kit("freeze", ID)
    assert said.code == 4
    assert "[freeze.identical]" in said.err
    edit(desk, "config.json", '"near_pct": 4.0', '"near_pct": 3.5')
    changed = contents_of(desk.root)
    said = kit("freeze", ID)
    assert said.code == 4
    assert "kit backtest ma250-pullback@draft" in said.err, "there is no evidence yet"
    assert contents_of(desk.root) == changed
    edit(desk, "config.json", '"near_pct": 3.5', '"near_pct": 4.0')
    assert contents_of(desk.root) == before
