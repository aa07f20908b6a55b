from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kit import files
from kit.bundle.freeze import CheckResult, FreezeChecks, FrozenVersion, freeze
from kit.bundle.lint import lint
from kit.bundle.model import Bundle, fingerprints, resolve
from kit.bundle.verify import verify
from kit.clock import FixedClock
from kit.errors import AlreadyDone, BundleError, GuardError, KitError, RegistryError, UsageError
from kit.workspace import Workspace

Cut = Callable[..., FrozenVersion]


def put(root: Path, name: str, *keys: Any, value: Any) -> None:
    whole = json.loads((root / name).read_text("utf-8"))
    node = whole
    for key in keys[:-1]:
        node = node[key]
    node[keys[-1]] = value
    (root / name).write_text(json.dumps(whole, ensure_ascii=False), "utf-8")


def test_a_first_version(draft: Path, cut: Cut, workspace: Workspace) -> None:
    prints = fingerprints(draft)
    frozen = cut()
    assert (frozen.ref, frozen.bump, frozen.parent_version) == (
        "tiny-pullback@0.1.0",
        "first",
        None,
    )
    assert frozen.root == workspace.strategies / "tiny-pullback" / "0.1.0"
    assert frozen.root.stat().st_mode & 0o777 == 0o555
    assert (frozen.root / "SKILL.md").stat().st_mode & 0o777 == 0o444
    assert fingerprints(frozen.root) == prints
    assert lint(frozen.root, draft=False) == []
    assert verify(workspace).rows == ()
    assert not frozen.activated
    assert json.loads(json.dumps(frozen.to_dict(), ensure_ascii=False))["ref"] == frozen.ref


def test_another_first_version(draft: Path, cut: Cut) -> None:
    frozen = cut(first_version="0.3.0")
    assert frozen.version == "0.3.0"
    assert Bundle.open(frozen.root).manifest.version == "0.3.0"
    assert Bundle.open(frozen.root).skill.version == "0.3.0"
    (draft / "reason_template.md").write_text("x\n")
    with pytest.raises(UsageError) as error:
        cut(first_version="0.4.0")
    assert error.value.code == "freeze.not_first"


@pytest.mark.parametrize("version", ["1", "v1.0.0", "1.0.0-rc1"])
def test_a_first_version_is_a_version(draft: Path, cut: Cut, version: str) -> None:
    with pytest.raises(UsageError):
        cut(first_version=version)


def test_provenance_says_how_a_version_came_to_be(draft: Path, cut: Cut) -> None:
    (draft / "notebook.ipynb").write_text('{"cells": []}')
    put(draft, "manifest.json", "provenance", "x-desk", value="a-share")
    first = cut()
    (draft / "reason_template.md").write_text("x\n")
    second = cut(who="lin")
    for frozen, parent, who in ((first, None, "tester"), (second, "0.1.0", "lin")):
        provenance = json.loads((frozen.root / "manifest.json").read_text("utf-8"))["provenance"]
        assert provenance["created_by"] == who
        assert provenance["created_at"] == "2024-09-19T08:40:00+00:00"
        assert provenance["parent_version"] == parent
        assert provenance["git_commit"] is None
        assert provenance["conversations"] == ["2024-09-18-first-idea"]
        assert provenance["libraries"]["pandas"]
        assert provenance["x-desk"] == "a-share"
        assert provenance["notebook"] == {
            "path": "notebook.ipynb",
            "sha256": files.sha256_file(frozen.root / "notebook.ipynb"),
        }


def test_a_version_is_a_clean_complete_copy(draft: Path, cut: Cut) -> None:
    (draft / "code/__pycache__").mkdir()
    (draft / "code/__pycache__/x.pyc").write_bytes(b"x")
    (draft / ".ipynb_checkpoints").mkdir()
    (draft / ".ipynb_checkpoints/n.ipynb").write_text("{}")
    (draft / "backtests/2024-09-18-base").mkdir(parents=True)
    (draft / "backtests/2024-09-18-base/metrics.json").write_text("{}")
    (draft / "checksums.txt").write_text("stale\n")
    root = cut().root
    there = {p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file()}
    assert "backtests/2024-09-18-base/metrics.json" in there
    assert {"CHANGELOG.md", "checksums.txt", "schemas/prompts/pick_explanation.json"} <= there
    assert not any("pycache" in name or "checkpoints" in name for name in there)
    compiled = json.loads((root / "schemas/prompts/pick_explanation.json").read_text("utf-8"))
    assert compiled["output"]["properties"]["confidence"]["enum"] == ["high", "medium", "low"]
    for name in ("code/signal_engine.py", "config.json", "reason_template.md"):
        assert (root / name).read_bytes() == (draft / name).read_bytes()


def test_the_next_version_takes_the_computed_bump(draft: Path, cut: Cut) -> None:
    cut()
    put(draft, "config.json", "_kit", "params", "ma_window", value=18)
    patch = cut()
    assert (patch.version, patch.bump) == ("0.1.1", "patch")
    assert [change.text for change in patch.changes] == ["ma window 20 -> 18"]
    put(draft, "manifest.json", "limits", "production_max_llm_calls", value=30)
    minor = cut()
    assert (minor.version, minor.parent_version) == ("0.2.0", "0.1.1")
    put(draft, "manifest.json", "data_contract", "history_days", value=60)
    assert cut().version == "1.0.0"


def test_a_higher_bump_is_allowed_and_a_lower_one_refused(draft: Path, cut: Cut) -> None:
    cut()
    put(draft, "manifest.json", "limits", "production_max_llm_calls", value=30)
    with pytest.raises(GuardError, match="production_max_llm_calls 20 -> 30") as error:
        cut(bump="patch")
    assert error.value.code == "freeze.bump_too_low"
    assert error.value.details["computed"] == "minor"
    frozen = cut(bump="major")
    assert (frozen.version, frozen.bump, frozen.computed_bump) == ("1.0.0", "major", "minor")
    with pytest.raises(UsageError):
        cut(bump="huge")


def test_identical_content_is_refused_and_named(draft: Path, cut: Cut) -> None:
    before = (draft / "reason_template.md").read_bytes()
    cut()
    with pytest.raises(GuardError, match=r"0\.1\.0") as error:
        cut()
    assert error.value.code == "freeze.identical"
    (draft / "reason_template.md").write_text("x\n")
    cut()
    (draft / "reason_template.md").write_bytes(before)  # back to 0.1.0, which is not the parent
    with pytest.raises(GuardError) as error:
        cut()
    assert error.value.details["version"] == "0.1.0"
    (draft / "SKILL.md").write_text((draft / "SKILL.md").read_text("utf-8") + "\n\n", "utf-8")
    with pytest.raises(GuardError):
        cut(bump="major")


def test_the_changelog_grows_and_takes_what_is_unreleased(draft: Path, cut: Cut) -> None:
    (draft / "CHANGELOG.md").write_text("# Changelog\n\n## Unreleased\n\nFirst idea.\n", "utf-8")
    cut()
    put(draft, "config.json", "_kit", "params", "ma_window", value=18)
    root = cut().root
    assert (root / "CHANGELOG.md").read_text("utf-8") == (
        "# Changelog\n\n"
        "## 0.1.1 - 2024-09-19\n\n"
        "Patch change from 0.1.0:\n\n"
        "- ma window 20 -> 18\n\n"
        "## 0.1.0 - 2024-09-19\n\n"
        "First idea.\n\n"
        "First version.\n"
    )


def test_the_draft_goes_on_from_the_version(draft: Path, cut: Cut) -> None:
    cut()
    manifest = json.loads((draft / "manifest.json").read_text("utf-8"))
    assert manifest["provenance"]["parent_version"] == "0.1.0"
    assert "## 0.1.0" in (draft / "CHANGELOG.md").read_text("utf-8")


def test_a_draft_made_from_an_older_version_is_compared_with_that(draft: Path, cut: Cut) -> None:
    cut()
    put(draft, "manifest.json", "limits", "production_max_llm_calls", value=30)
    assert cut().version == "0.2.0"
    put(draft, "manifest.json", "limits", "production_max_llm_calls", value=20)
    (draft / "reason_template.md").write_text("hot fix\n")
    put(draft, "manifest.json", "provenance", "parent_version", value="0.1.0")
    frozen = cut()
    assert (frozen.version, frozen.parent_version) == ("0.1.1", "0.1.0")
    put(draft, "manifest.json", "provenance", "parent_version", value="0.1.0")
    (draft / "reason_template.md").write_text("another fix\n")
    with pytest.raises(AlreadyDone, match=r"0\.1\.1 exists"):
        cut()


def test_the_slug_names_the_newest_conversation(draft: Path, cut: Cut) -> None:
    event = {"ts": "2024-09-19T01:00:00Z", "role": "user", "kind": "note", "content": "x"}
    (draft / "conversations/2024-09-19-session.jsonl").write_text(json.dumps(event) + "\n")
    root = cut(slug="Tune the Pullback!").root
    assert sorted(p.name for p in (root / "conversations").iterdir()) == [
        "2024-09-18-first-idea.jsonl",
        "2024-09-19-tune-the-pullback.jsonl",
    ]
    assert (draft / "conversations/2024-09-19-session.jsonl").exists()


def test_a_slug_that_is_none_is_refused_before_any_check(
    cut: Cut, builder: ModuleType, workspace: Workspace
) -> None:
    def check(_bundle: Bundle) -> CheckResult:
        raise AssertionError("checks take minutes")

    before = unchanged(workspace)
    with pytest.raises(UsageError) as error:
        cut(slug="回踩", checks=builder.passing_checks(evidence=check))
    assert error.value.code == "conversation.bad_slug"
    assert unchanged(workspace) == before


def test_activation_with_the_freeze(draft: Path, cut: Cut, workspace: Workspace) -> None:
    cut(activate=True)
    assert resolve(workspace, "tiny-pullback").version == "0.1.0"
    (draft / "reason_template.md").write_text("x\n")
    assert cut(activate=True).activated
    entry = json.loads(workspace.index_path.read_text("utf-8"))["strategies"]["tiny-pullback"]
    assert entry["latest_active_version"] == "0.1.1"
    assert [version["is_active"] for version in entry["all_versions"]] == [True, False]


def test_the_index_channel_is_the_manifests(draft: Path, cut: Cut, workspace: Workspace) -> None:
    put(draft, "manifest.json", "env_lock", "required_mcps", 0, "name", value="vibe-trading")
    put(draft, "manifest.json", "env_lock", "required_mcps", 0, "channel", value="community")
    skill = (draft / "SKILL.md").read_text("utf-8")
    (draft / "SKILL.md").write_text(skill.replace("trading-data-cn.", "vibe-trading."), "utf-8")
    cut()
    index = json.loads(workspace.index_path.read_text("utf-8"))
    assert index["strategies"]["tiny-pullback"]["all_versions"][0]["channel"] == "community"


def unchanged(workspace: Workspace) -> dict[str, bytes]:
    """Every file under strategies/ but the drafts', and INDEX.json."""
    found = {
        path.relative_to(workspace.root).as_posix(): path.read_bytes()
        for path in workspace.strategies.rglob("*")
        if path.is_file() and "draft" not in path.parts
    }
    return {**found, "INDEX.json": workspace.index_path.read_bytes()}


def test_lint_errors_refuse_with_all_findings(draft: Path, cut: Cut, workspace: Workspace) -> None:
    (draft / "reason_template.md").unlink()
    put(draft, "manifest.json", "limits", "nope", value=1)
    before = unchanged(workspace)
    with pytest.raises(BundleError) as error:
        cut()
    assert error.value.code == "freeze.lint"
    rules = {finding["rule"] for finding in error.value.details["findings"]}
    assert "manifest.schema" in rules
    assert unchanged(workspace) == before


def failing(name: str, *, blocking: bool = True) -> Any:
    def check(_bundle: Bundle) -> CheckResult:
        return CheckResult(
            name=name, ok=False, detail=f"{name} is stale", mend=f"mend {name}", blocking=blocking
        )

    return check


def test_failed_checks_refuse_all_at_once(
    draft: Path, cut: Cut, builder: ModuleType, workspace: Workspace
) -> None:
    (draft / "conversations/2024-09-18-first-idea.jsonl").unlink()

    def warmup(_bundle: Bundle) -> CheckResult:
        return CheckResult(name="warmup", ok=False, detail="not run", mend="mend evidence")

    checks = builder.passing_checks(
        evidence=failing("evidence"), lookahead=failing("lookahead"), warmup=warmup
    )
    before = unchanged(workspace)
    with pytest.raises(GuardError) as error:
        cut(checks=checks)
    assert error.value.code == "freeze.checks"
    for word in ("conversation: 0 event", "evidence is stale", "lookahead is stale"):
        assert word in error.value.message
    assert error.value.remedy.count("mend evidence") == 1  # one mend may serve several checks
    assert "mend lookahead" in error.value.remedy
    assert unchanged(workspace) == before


def test_an_advisory_check_is_shown(draft: Path, cut: Cut, builder: ModuleType) -> None:
    checks = builder.passing_checks(advisory=(failing("costs", blocking=False),))
    frozen = cut(checks=checks)
    assert [check.name for check in frozen.checks if not check.ok] == ["costs"]


def test_every_blocking_check_must_be_given() -> None:
    with pytest.raises(TypeError):
        FreezeChecks()  # type: ignore[call-arg]


@pytest.mark.parametrize("name", ["code/signal_engine.py", "SKILL.md", "references/glossary.md"])
def test_an_edit_while_it_is_checked_is_not_frozen(
    draft: Path, cut: Cut, builder: ModuleType, workspace: Workspace, name: str
) -> None:
    def slow(_bundle: Bundle) -> CheckResult:
        (draft / name).write_bytes((draft / name).read_bytes() + b"\n")
        return CheckResult(name="evidence", ok=True, detail="of what it was")

    before = workspace.index_path.read_bytes()
    with pytest.raises(GuardError, match="changed while") as error:
        cut(checks=builder.passing_checks(evidence=slow))
    assert error.value.code == "freeze.edited"
    assert [path.name for path in draft.parent.iterdir()] == ["draft"]
    assert workspace.index_path.read_bytes() == before


def test_checks_see_the_draft_and_may_leave_files(
    draft: Path, cut: Cut, builder: ModuleType
) -> None:
    seen = []

    def notebook(bundle: Bundle) -> CheckResult:
        seen.append(bundle.ref)
        executed = b'{"cells": [], "executed": true}'
        return CheckResult(
            name="notebook", ok=True, detail="", artifacts={"notebook.ipynb": executed}
        )

    (draft / "notebook.ipynb").write_text('{"cells": []}')
    root = cut(checks=builder.passing_checks(notebook=notebook)).root
    assert seen == ["tiny-pullback@draft"]
    assert b"executed" in (root / "notebook.ipynb").read_bytes()
    assert b"executed" not in (draft / "notebook.ipynb").read_bytes()


def test_a_file_that_a_check_leaves_stays_inside(
    draft: Path, cut: Cut, builder: ModuleType, workspace: Workspace
) -> None:
    def notebook(_bundle: Bundle) -> CheckResult:
        return CheckResult(name="notebook", ok=True, detail="", artifacts={"../../x": b""})

    with pytest.raises(BundleError) as error:
        cut(checks=builder.passing_checks(notebook=notebook))
    assert error.value.code == "bundle.path_escape"
    assert sorted(p.name for p in draft.parent.iterdir()) == ["draft"]


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("2024-09-18-bad.jsonl", "{"),
        ("2024-09-18-bad.jsonl", '{"ts": "x"}'),
        (
            "Notes.jsonl",
            '{"ts": "2024-09-18T00:00:00Z", "role": "user", "kind": "note", "content": ""}',
        ),
    ],
)
def test_a_broken_conversation_refuses(draft: Path, cut: Cut, name: str, line: str) -> None:
    (draft / "conversations" / name).write_text(line + "\n")
    with pytest.raises(GuardError, match="conversation"):
        cut()


@pytest.mark.parametrize(
    ("id_", "code"),
    [
        ("tiny-pulback", "registry.unknown_id"),
        ("Bad", "bundle.bad_id"),
        ("../x", "bundle.bad_id"),
    ],
)
def test_what_is_no_draft_is_not_frozen(draft: Path, cut: Cut, id_: str, code: str) -> None:
    with pytest.raises(KitError) as error:
        cut(id_)
    assert error.value.code == code


def test_a_linked_draft_is_refused(draft: Path, cut: Cut, workspace: Workspace) -> None:
    folder = workspace.strategies / "linked-one"
    folder.mkdir()
    (folder / "draft").symlink_to(draft)
    with pytest.raises(BundleError) as error:
        cut("linked-one")
    assert error.value.code == "bundle.symlink"


def test_a_missing_index_is_named(draft: Path, cut: Cut, workspace: Workspace) -> None:
    workspace.index_path.unlink()
    with pytest.raises(RegistryError) as error:
        cut()
    assert error.value.code == "registry.missing"


def test_progress_is_told(
    draft: Path, workspace: Workspace, builder: ModuleType, clock: FixedClock
) -> None:
    told: list[str] = []
    freeze(
        workspace,
        "tiny-pullback",
        checks=builder.passing_checks(),
        clock=clock,
        progress=told.append,
    )
    assert told == [
        "lint", "conversation", "evidence", "lookahead", "warmup", "lock", "notebook", "stage",
        "publish",
    ]  # fmt: skip
