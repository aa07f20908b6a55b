from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kit import files
from kit.bundle import checksums
from kit.bundle.freeze import FrozenVersion
from kit.bundle.model import Bundle, fingerprints, resolve
from kit.bundle.verify import verify
from kit.errors import BundleError, KitError, RegistryError, UsageError
from kit.workspace import Workspace


def change(path: Path, data: bytes | None) -> None:
    """Write, or delete, inside a read-only version."""
    path.parent.chmod(0o755)
    if data is None:
        path.unlink()
        return
    if path.exists():
        path.chmod(0o644)
    path.write_bytes(data)


def test_sha256sum_checks_a_version_without_us(frozen: FrozenVersion) -> None:
    done = subprocess.run(
        ["sha256sum", "--strict", "-c", "checksums.txt"],
        cwd=frozen.root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    listed = [
        line.split("  ")[1] for line in (frozen.root / "checksums.txt").read_text().splitlines()
    ]
    assert listed == sorted(listed)
    there = {p.relative_to(frozen.root).as_posix() for p in frozen.root.rglob("*") if p.is_file()}
    assert there - {"checksums.txt"} == set(listed)


def test_a_frozen_version_opens(frozen: FrozenVersion) -> None:
    bundle = Bundle.open(frozen.root)
    assert (bundle.id, bundle.version, bundle.ref) == (
        "tiny-pullback",
        "0.1.0",
        "tiny-pullback@0.1.0",
    )
    assert not bundle.is_draft
    assert bundle.digest == frozen.digest
    assert bundle.digest == hashlib.sha256((frozen.root / "checksums.txt").read_bytes()).hexdigest()
    assert bundle.params == {"ma_window": 20}
    assert bundle.reason_template == (frozen.root / "reason_template.md").read_text("utf-8")
    assert bundle.policy.ignored == ()
    assert list(bundle.prompts) == ["event_sector_filter", "pick_explanation"]


def test_a_draft_opens_and_its_digest_follows_its_content(draft: Path) -> None:
    first = Bundle.open(draft)
    assert (first.version, first.ref) == (None, "tiny-pullback@draft")
    assert Bundle.open(draft).digest == first.digest
    (draft / "reason_template.md").write_text("new\n")
    assert Bundle.open(draft).digest != first.digest


def test_a_step_carries_what_the_manifest_and_the_prompt_say(draft: Path) -> None:
    bundle = Bundle.open(draft)
    step = bundle.step("pick_explanation")
    assert step.system == bundle.prompts["pick_explanation"].body
    assert (step.model, step.max_tokens, step.max_calls) == ("deepseek/deepseek-v3.2", 256, 10)
    assert (step.quality, step.concurrency_limit) == ("exact", 7)
    assert step.offline is not None
    answer = step.offline({"pick": {"name": "浦发银行", "score": 0.5}})
    assert answer == {"reason_text": "浦发银行 0.5000", "confidence": "medium"}
    with pytest.raises(BundleError, match="did you mean 'pick_explanation'"):
        bundle.step("pick_explanaton")


def test_fingerprints_follow_what_a_backtest_depends_on(draft: Path, frozen: FrozenVersion) -> None:
    before = fingerprints(draft)
    assert before == fingerprints(frozen.root)
    (draft / "SKILL.md").write_text((draft / "SKILL.md").read_text("utf-8") + "\nmore\n", "utf-8")
    assert fingerprints(draft) == before
    (draft / "code/helpers/offline_reason.py").write_text("def reason(i):\n    return {}\n")
    after = fingerprints(draft)
    assert after["code"] != before["code"]
    assert after["prompts"] == before["prompts"]
    manifest = json.loads((draft / "manifest.json").read_text("utf-8"))
    manifest["execution"]["fill"] = "vwap"
    files.write_json(draft / "manifest.json", manifest)
    assert fingerprints(draft)["config"] != before["config"]


def _edit(root: Path) -> None:
    change(root / "reason_template.md", b"changed\n")


def _delete(root: Path) -> None:
    change(root / "references/glossary.md", None)


def _add(root: Path) -> None:
    change(root / "code/helpers/extra.py", b"x = 1\n")


def _cache(root: Path) -> None:
    (root / "code").chmod(0o755)
    (root / "code/__pycache__").mkdir()
    (root / "code/__pycache__/x.pyc").write_bytes(b"x")


def _rename(root: Path) -> None:
    (root / "references").chmod(0o755)
    (root / "references/glossary.md").rename(root / "references/words.md")


def _link(root: Path) -> None:
    change(root / "reason_template.md", None)
    (root / "reason_template.md").symlink_to("SKILL.md")


def _link_folder(root: Path) -> None:
    root.chmod(0o755)
    (root / "more").symlink_to("/etc")


def _drop_sums(root: Path) -> None:
    change(root / "checksums.txt", None)


@pytest.mark.parametrize(
    ("tamper", "code", "named"),
    [
        (_edit, "bundle.tampered", "reason_template.md (changed)"),
        (_delete, "bundle.tampered", "references/glossary.md (missing)"),
        (_add, "bundle.tampered", "code/helpers/extra.py (extra)"),
        (_cache, "bundle.tampered", "code/__pycache__/x.pyc (extra)"),
        (_rename, "bundle.tampered", "references/words.md (extra)"),
        (_link, "bundle.symlink", "reason_template.md"),
        (_link_folder, "bundle.symlink", "more"),
        (_drop_sums, "bundle.missing_file", "checksums.txt"),
    ],
)
def test_a_tampered_version_does_not_open_and_names_the_file(
    workspace: Workspace,
    frozen: FrozenVersion,
    tamper: Callable[[Path], None],
    code: str,
    named: str,
) -> None:
    tamper(frozen.root)
    with pytest.raises(BundleError) as error:
        resolve(workspace, frozen.ref)
    assert error.value.code == code
    assert named in error.value.message
    assert not verify(workspace).ok


def test_one_changed_bit_of_every_file_is_found(
    workspace: Workspace, frozen: FrozenVersion
) -> None:
    for path in sorted(p for p in frozen.root.rglob("*") if p.is_file()):
        data = path.read_bytes()
        change(path, bytes([data[0] ^ 1]) + data[1:])
        with pytest.raises(KitError):
            resolve(workspace, frozen.ref)
        change(path, data)
    assert resolve(workspace, frozen.ref).version == "0.1.0"


def test_files_and_checksums_changed_together_are_found(
    workspace: Workspace, frozen: FrozenVersion
) -> None:
    _edit(frozen.root)
    change(frozen.root / "checksums.txt", checksums.compute(frozen.root).encode())
    checksums.require(frozen.root)  # by itself it is consistent
    with pytest.raises(BundleError, match=r"INDEX\.json") as error:
        resolve(workspace, frozen.ref)
    assert error.value.code == "bundle.tampered"
    index = json.loads(workspace.index_path.read_text("utf-8"))
    entry = index["strategies"]["tiny-pullback"]["all_versions"][0]
    entry["digest"] = checksums.digest(frozen.root)
    files.write_json(workspace.index_path, index)
    with pytest.raises(BundleError, match=r"activations\.jsonl"):
        resolve(workspace, frozen.ref)
    assert "registry.digest" in {row.kind for row in verify(workspace).rows}


def test_unverified_opening_skips_the_hashes_only(frozen: FrozenVersion) -> None:
    _edit(frozen.root)
    assert Bundle.open(frozen.root, verify=False).version == "0.1.0"
    _link_folder(frozen.root)
    with pytest.raises(BundleError):
        Bundle.open(frozen.root, verify=False)


@pytest.mark.parametrize(
    "text",
    ["nonsense\n", "0" * 64 + " a\n", "0" * 64 + "  b\n" + "0" * 64 + "  a\n", "0" * 64 + "  a"],
)
def test_malformed_checksums_are_named(frozen: FrozenVersion, text: str) -> None:
    change(frozen.root / "checksums.txt", text.encode())
    with pytest.raises(BundleError) as error:
        Bundle.open(frozen.root)
    assert error.value.code == "bundle.bad_checksums"


def test_names_that_sums_cannot_carry_are_refused(draft: Path) -> None:
    (draft / "references/a\nb").write_text("x")
    with pytest.raises(BundleError) as error:
        checksums.compute(draft)
    assert error.value.code == "bundle.bad_name"


@pytest.mark.parametrize(
    ("ref", "error", "code", "word"),
    [
        ("tiny-pulback", RegistryError, "registry.unknown_id", "did you mean 'tiny-pullback'"),
        ("tiny-pullback@0.1.1", RegistryError, "registry.unknown_version", "0.1.0"),
        ("Tiny", UsageError, "bundle.bad_id", ""),
        ("tiny-pullback@x", UsageError, "bundle.bad_version", ""),
        ("../../etc@draft", UsageError, "bundle.bad_id", ""),
        ("nobody@draft", RegistryError, "registry.unknown_id", ""),
    ],
)
def test_unknown_names_say_what_there_is(
    workspace: Workspace,
    frozen: FrozenVersion,
    ref: str,
    error: type[KitError],
    code: str,
    word: str,
) -> None:
    with pytest.raises(error) as caught:
        resolve(workspace, ref)
    assert caught.value.code == code
    assert word in caught.value.message
    assert caught.value.remedy


def test_resolution_takes_the_active_version(
    workspace: Workspace, draft: Path, cut: Callable[..., FrozenVersion]
) -> None:
    with pytest.raises(RegistryError, match="has a draft"):
        resolve(workspace, "tiny-pullback")
    cut()
    with pytest.raises(RegistryError) as error:
        resolve(workspace, "tiny-pullback")
    assert error.value.code == "registry.no_active"
    assert "kit registry activate tiny-pullback@0.1.0" in error.value.remedy
    (draft / "reason_template.md").write_text("other\n")
    cut(activate=True)
    assert resolve(workspace, "tiny-pullback").version == "0.1.1"
    assert resolve(workspace, "tiny-pullback@0.1.0").version == "0.1.0"
    assert resolve(workspace, "tiny-pullback@draft").is_draft
    files.remove_tree(draft)
    with pytest.raises(RegistryError) as error:
        resolve(workspace, "tiny-pullback@draft")
    assert error.value.code == "registry.no_draft"


def test_a_manifest_of_another_strategy_is_refused(workspace: Workspace, draft: Path) -> None:
    draft.parent.rename(workspace.strategies / "other-name")
    with pytest.raises(BundleError) as error:
        resolve(workspace, "other-name@draft")
    assert error.value.code == "bundle.id_mismatch"


def test_a_linked_strategy_is_refused(workspace: Workspace, frozen: FrozenVersion) -> None:
    (workspace.strategies / "linked").symlink_to("tiny-pullback")
    with pytest.raises(BundleError) as error:
        resolve(workspace, "linked@0.1.0")
    assert error.value.code == "bundle.symlink"


def test_a_version_whose_manifest_says_otherwise_is_refused(frozen: FrozenVersion) -> None:
    other = frozen.root.with_name("0.2.0")
    frozen.root.rename(other)
    with pytest.raises(BundleError) as error:
        Bundle.open(other)
    assert error.value.code == "bundle.version_mismatch"


def test_a_copy_elsewhere_opens_too(frozen: FrozenVersion, tmp_path: Path) -> None:
    copy = tmp_path / "scratch"
    for path in frozen.root.rglob("*"):
        if path.is_file():
            target = copy / path.relative_to(frozen.root)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    assert Bundle.open(copy).ref == "tiny-pullback@0.1.0"


def test_modes_are_advice_and_can_be_fixed(workspace: Workspace, frozen: FrozenVersion) -> None:
    assert verify(workspace).rows == ()
    (frozen.root / "SKILL.md").chmod(0o644)
    frozen.root.chmod(0o755)
    outcome = verify(workspace)
    assert outcome.ok
    assert {(row.path, row.kind) for row in outcome.rows} == {(".", "mode"), ("SKILL.md", "mode")}
    fixed = verify(workspace, fix=True)
    assert fixed.fixed == ("tiny-pullback@0.1.0",)
    assert fixed.rows == ()
    assert (frozen.root / "SKILL.md").stat().st_mode & 0o777 == 0o444


def test_modes_of_a_changed_version_are_not_fixed(
    workspace: Workspace, frozen: FrozenVersion
) -> None:
    _edit(frozen.root)
    outcome = verify(workspace, fix=True)
    assert not outcome.ok
    assert outcome.fixed == ()


def test_verify_takes_one_reference(workspace: Workspace, frozen: FrozenVersion) -> None:
    assert verify(workspace, "tiny-pullback").checked == ("tiny-pullback@0.1.0",)
    assert verify(workspace, "tiny-pullback@0.1.0").ok
    with pytest.raises(RegistryError):
        verify(workspace, "tiny-pullback@9.9.9")
    with pytest.raises(UsageError):
        verify(workspace, "tiny-pullback@draft")
