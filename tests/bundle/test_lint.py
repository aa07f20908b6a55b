from __future__ import annotations

import runpy
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from kit.bundle.findings import Finding, errors_of
from kit.bundle.freeze import FrozenVersion
from kit.bundle.lint import RULES, lint
from kit.bundle.rebuild import version_dirs
from kit.bundle.registry import read_index
from kit.workspace import Workspace

corpus = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("corpus.py"))))


def test_the_small_bundle_is_clean(draft: Path) -> None:
    assert lint(draft, draft=True) == []


def test_every_shipped_version_is_clean(repository: Path) -> None:
    index = read_index(Workspace(repository)).raw
    roots = [r for f in sorted((repository / "strategies").iterdir()) for r in version_dirs(f)]
    assert len(roots) >= 2
    assert {str(root): lint(root, draft=False, index=index) for root in roots} == {
        str(root): [] for root in roots
    }


def test_a_frozen_version_is_clean(frozen: FrozenVersion) -> None:
    assert lint(frozen.root, draft=False) == []


@pytest.mark.parametrize("name", list(corpus.FAULTS))
def test_a_planted_fault_is_found_and_nothing_else(
    builder: ModuleType, tmp_path: Path, name: str
) -> None:
    draft = builder.make_draft(Workspace(tmp_path))
    fault = corpus.FAULTS[name]
    fault.plant(draft)
    found = lint(draft, draft=True)
    assert [(f.rule, f.path) for f in found] == [(fault.rule, fault.path)] * fault.count, found
    for finding in found:
        assert fault.word in finding.message
        assert finding.message
        assert finding.mend
        assert (finding.line is None) == (not fault.on)
        if finding.line is not None:
            text = (draft / finding.path).read_bytes().decode("utf-8", "replace")
            assert fault.on in text.split("\n")[finding.line - 1]


def test_every_rule_of_a_draft_has_a_planted_fault() -> None:
    planted = {fault.rule for fault in corpus.FAULTS.values()}
    # Where the directory itself is wrong, or a version, or what was recorded of a run.
    elsewhere = {
        "layout.id", "layout.checksums", "layout.changelog", "manifest.provenance",
        "lock.unlocked_read", "lock.never_read",
    }  # fmt: skip
    assert planted | elsewhere == {rule.id for rule in RULES}


def test_rule_ids_are_unique_and_explained() -> None:
    assert len({rule.id for rule in RULES}) == len(RULES)
    assert all(rule.what.endswith(".") and rule.mend for rule in RULES)


def test_findings_come_all_at_once_with_their_lines(draft: Path) -> None:
    corpus.FAULTS["unknown-key"].plant(draft)
    corpus.FAULTS["no-purpose"].plant(draft)
    corpus.FAULTS["syntax"].plant(draft)
    corpus.FAULTS["no-quality"].plant(draft)
    found = lint(draft, draft=True)
    assert {f.rule for f in found} >= {
        "manifest.schema", "skill.section", "code.syntax", "prompt.offline"
    }  # fmt: skip
    lines = (draft / "manifest.json").read_text("utf-8").splitlines()
    place = next(f for f in found if f.rule == "manifest.schema")
    assert place.line is not None
    assert '"env_lck"' in lines[place.line - 1]


def test_a_typo_hides_no_other_finding(draft: Path) -> None:
    for name in ("unknown-key", "branch-pin", "lost-stage", "unlocked-tool"):
        corpus.FAULTS[name].plant(draft)
    corpus.data("manifest.json", *corpus.MCP, "tools_usd", value=[])(draft)
    assert [f.rule for f in lint(draft, draft=True)] == [
        "skill.flow", "skill.reference", "manifest.source", "manifest.schema", "manifest.schema"
    ]  # fmt: skip


@pytest.mark.parametrize(
    "source", ["git:owner/mcps/trading-data-cn@v1.0.3", "pip:trading-data-cn==1.0.3"]
)
def test_pinned_sources_pass(draft: Path, source: str) -> None:
    corpus.data("manifest.json", *corpus.MCP, "source", value=source)(draft)
    assert lint(draft, draft=True) == []


def test_a_declared_channel_passes(draft: Path) -> None:
    corpus.data("manifest.json", *corpus.MCP, "name", value="vibe-trading")(draft)
    corpus.data("manifest.json", *corpus.MCP, "channel", value="internal-a-share")(draft)
    corpus.text("SKILL.md", "trading-data-cn.get_bars", "vibe-trading.get_bars")(draft)
    assert lint(draft, draft=True) == []


def test_an_id_is_unique_whatever_the_case(draft: Path) -> None:
    index = {"strategies": {"TINY-pullback": {}, "tiny-pullback": {}}}
    assert [f.rule for f in lint(draft, draft=True, index=index)] == ["layout.id"]


def test_a_directory_with_a_bad_id_is_named(draft: Path) -> None:
    moved = draft.parent.with_name("Bad_Name")
    draft.parent.rename(moved)
    rules = {f.rule for f in lint(moved / "draft", draft=True)}
    assert rules == {"layout.id", "manifest.names", "skill.names"}


def test_a_frozen_version_owes_more(frozen: FrozenVersion) -> None:
    root = frozen.root
    root.chmod(0o755)
    for name in ("CHANGELOG.md", "manifest.json"):
        (root / name).chmod(0o644)
    (root / "CHANGELOG.md").write_text("# Changelog\n")
    corpus.data("manifest.json", "provenance", "created_at", value=...)(root)
    corpus.data("manifest.json", "version", value="0.1.1")(root)
    rules = {f.rule for f in lint(root, draft=False)}
    assert rules == {
        "layout.changelog",
        "layout.checksums",
        "manifest.provenance",
        "manifest.names",
    }


def test_the_example_in_the_prompt_is_the_sample_input(draft: Path) -> None:
    corpus.text(
        corpus.FILTER,
        "A JSON object with the summary of the news and the markets to look at.",
        'An object:\n```json\n{"news_summary": "航天", "reference_markets": ["US"]}\n```\n',
    )(draft)
    corpus.text(
        "code/helpers/offline_sectors.py",
        "    found =",
        '    assert inputs["reference_markets"] == ["US"]\n    found =',
    )(draft)
    assert lint(draft, draft=True) == []


def test_a_warning_does_not_block(draft: Path) -> None:
    corpus.FAULTS["prompt-unused"].plant(draft)
    found = lint(draft, draft=True)
    unused = [f for f in found if f.rule == "prompt.unused"]
    assert unused
    assert unused[0] not in errors_of(found)


def test_a_finding_reads_as_a_line_and_as_json() -> None:
    finding = Finding(
        rule="a.b", severity="error", path="x.md", line=3, message="is wrong", mend="mend it"
    )
    assert str(finding) == "x.md:3: error a.b: is wrong"
    assert finding.to_dict()["line"] == 3


def test_nothing_that_the_gate_refuses_is_executed(draft: Path, tmp_path: Path) -> None:
    mark = tmp_path / "executed"
    corpus.text(
        "code/signal_engine.py", "ABOVE = 0.03", f"open({str(mark)!r}, 'w').close()\nABOVE = 0.03"
    )(draft)
    assert "code.gate" in {f.rule for f in lint(draft, draft=True)}
    assert not mark.exists()


def test_linting_writes_nothing(draft: Path) -> None:
    before = {p: p.stat().st_mtime_ns for p in draft.rglob("*")}
    lint(draft, draft=True)
    assert {p: p.stat().st_mtime_ns for p in draft.rglob("*")} == before
