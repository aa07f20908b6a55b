from __future__ import annotations

import ast
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kit.bundle.diff import BUMPS, content_digest, diff
from kit.bundle.diff_code import compare_code, method_signature

FILTER = "prompts/event_sector_filter.md"
ENGINE = "code/signal_engine.py"


@pytest.fixture
def pair(draft: Path, tmp_path: Path) -> tuple[Path, Path]:
    """The small bundle twice: the old one and the one to change."""
    new = tmp_path / "new" / "draft"
    shutil.copytree(draft, new)
    return draft, new


def sub(root: Path, name: str, old: str, new: str) -> None:
    path = root / name
    before = path.read_text("utf-8")
    assert old in before
    path.write_text(before.replace(old, new, 1), "utf-8")


def put(root: Path, name: str, *keys: Any, value: Any) -> None:
    whole = json.loads((root / name).read_text("utf-8"))
    node = whole
    for key in keys[:-1]:
        node = node[key]
    node[keys[-1]] = value
    (root / name).write_text(json.dumps(whole, ensure_ascii=False), "utf-8")


Edit = Callable[[Path], None]

# Every row of the table in the specification of versions, with the words the change is told in.
TABLE: dict[str, tuple[Edit, str, str]] = {
    "lock": (
        lambda r: put(r, "manifest.json", "env_lock", "required_mcps", 0, "min_version", value="2"),
        "major", "env_lock.required_mcps[trading-data-cn].min_version 1.0 -> 2"),
    "lock-env": (
        lambda r: put(r, "manifest.json", "env_lock", "required_env",
                      value=[{"name": "TUSHARE_TOKEN", "purpose": "x"}]),
        "major", "env_lock.required_env[TUSHARE_TOKEN] added"),
    "execution": (
        lambda r: put(r, "manifest.json", "execution", "fill", value="vwap"),
        "major", "execution.fill next_open -> vwap"),
    "interface": (
        lambda r: sub(r, ENGINE, "sector_filter=None, limit=7", "limit=7, sector_filter=None"),
        "major", "SignalEngine.screen_today"),
    "contract": (
        lambda r: put(r, "manifest.json", "data_contract", "history_days", value=60),
        "major", "data_contract.history_days 30 -> 60"),
    "context": (
        lambda r: put(r, "manifest.json", "data_contract", "context",
                      value=[{"market": "us", "symbols": ["AAPL"]}]),
        "major", "data_contract.context"),
    "rule": (
        lambda r: sub(r, ENGINE, "(gap >= 0)", "(gap > 0)"),
        "minor", "SignalEngine.generate changed"),
    "rule-by-name": (
        lambda r: sub(r, ENGINE, 'frame["close"].rolling', 'frame["low"].rolling'),
        "minor", "gap_to_average changed"),
    "rule-by-flag": (
        lambda r: sub(r, ENGINE, "sector_filter=None", "sector_filter=False"),
        "minor", "SignalEngine.screen_today changed"),
    "helper": (
        lambda r: sub(r, "code/helpers/offline_reason.py", 'inputs["pick"]', 'inputs.get("pick")'),
        "minor", "reason changed"),
    "new-code": (
        lambda r: (r / "code/helpers/new.py").write_text("x = 1\n"), "minor", "new.py added"),
    "prompt-text": (
        lambda r: sub(r, FILTER, "Name the sectors", "List the sectors"),
        "minor", f"{FILTER}: section 'task' reworded"),
    "prompt-schema": (
        lambda r: sub(r, FILTER, "rationale: string", "rationale: string?"),
        "minor", "output_schema.rationale string -> string?"),
    "step": (
        lambda r: put(r, "manifest.json", "llm_steps", "pick_explanation", "temperature",
                      value=0.5),
        "minor", "llm_steps.pick_explanation.temperature 0.3 -> 0.5"),
    "limits": (
        lambda r: put(r, "manifest.json", "limits", "production_max_llm_calls", value=30),
        "minor", "limits.production_max_llm_calls 20 -> 30"),
    "policy": (
        lambda r: put(r, "manifest.json", "degradation_policy", "rules", 0, "action",
                      value="abort_with_report"),
        "minor", "rules[llm_step_failed event_sector_filter].action skip_step -> abort"),
    "flow": (
        lambda r: sub(r, "SKILL.md", "3. **Sector filter**: run", "3. **Sector filter**: apply"),
        "minor", "how to invoke"),
    "parameter-kind": (
        lambda r: put(r, "config.json", "_kit", "params", "ma_window", value="20"),
        "minor", "ma window 20 -> 20"),
    "parameter-added": (
        lambda r: put(r, "config.json", "_kit", "params", "other", value=1),
        "minor", "other added: 1"),
    "position": (
        lambda r: put(r, "config.json", "position_adjustment", value="rebalance"),
        "minor", "position_adjustment hold -> rebalance"),
    "parameter": (
        lambda r: put(r, "config.json", "_kit", "params", "ma_window", value=18),
        "patch", "ma window 20 -> 18"),
    "constant": (
        lambda r: sub(r, ENGINE, "ABOVE = 0.03", "ABOVE = 0.05"), "patch", "ABOVE 0.03 -> 0.05"),
    "default": (
        lambda r: sub(r, ENGINE, "limit=7", "limit=5"), "patch", "limit 7 -> 5"),
    "sign": (
        lambda r: sub(r, ENGINE, "ABOVE = 0.03", "ABOVE = -0.03"), "patch", "ABOVE 0.03 -> -0.03"),
    "comment": (
        lambda r: sub(r, ENGINE, "ABOVE = 0.03", "ABOVE = 0.03  # share of the average"),
        "patch", "comments or layout"),
    "docstring": (
        lambda r: sub(r, ENGINE, '"""One candidate."""', '"""A candidate."""'),
        "patch", "comments or layout"),
    "wording-literal": (
        lambda r: sub(r, "code/helpers/offline_sectors.py", "sector(s) named", "sectors named"),
        "patch", "sector(s) named"),
    "template": (
        lambda r: (r / "reason_template.md").write_text("other\n"), "patch", "reason_template.md"),
    "wording": (
        lambda r: sub(r, "SKILL.md", "a little above", "slightly above"), "patch", "purpose"),
    "description": (
        lambda r: sub(r, "SKILL.md", "a bundle made for tests", "for tests"),
        "patch", "description"),
    "title": (
        lambda r: sub(r, "SKILL.md", "# 小战法", "# 小小战法"), "patch", "outside sections"),
    "reference": (
        lambda r: (r / "references/paper.md").write_text("x\n"),
        "patch", "references/paper.md added"),
    "note": (
        lambda r: put(r, "manifest.json", "x-note", value=1), "patch", "x-note added"),
    "window": (
        lambda r: put(r, "config.json", "end_date", value="2024-06-28"), "patch", "end_date"),
    "codes": (
        lambda r: put(r, "config.json", "codes", value=["600000.SH"]), "patch", "codes"),
    "warm-up": (
        lambda r: put(r, "manifest.json", "data_contract", "warmup_bars", value=19),
        "patch", "data_contract.warmup_bars added: 19"),
}  # fmt: skip


@pytest.mark.parametrize("name", list(TABLE))
def test_each_kind_of_change_has_its_bump(pair: tuple[Path, Path], name: str) -> None:
    old, new = pair
    edit, bump, words = TABLE[name]
    edit(new)
    found = diff(old, new)
    assert found.bump == bump, found
    assert any(words in change.text for change in found.changes), found
    assert content_digest(old) != content_digest(new)
    # Undoing it is a change of the same size, but for keys that come and go.
    assert diff(new, old).bump == bump


def test_the_same_content_is_no_change(pair: tuple[Path, Path]) -> None:
    old, new = pair
    assert diff(old, new).bump == "none"
    assert content_digest(old) == content_digest(new)


def test_what_freeze_writes_is_no_change(pair: tuple[Path, Path]) -> None:
    old, new = pair
    put(new, "manifest.json", "version", value="9.9.9")
    put(new, "manifest.json", "provenance", value={"created_by": "someone"})
    sub(new, "SKILL.md", "version: 0.1.0", "version: 9.9.9")
    for name in (
        "CHANGELOG.md",
        "checksums.txt",
        "backtests/2024-01-01-base/metrics.json",
        "schemas/prompts/x.json",
        "conversations/2024-09-19-more.jsonl",
    ):
        (new / name).parent.mkdir(parents=True, exist_ok=True)
        (new / name).write_text("x")
    assert diff(old, new).bump == "none"
    assert content_digest(old) == content_digest(new)


def test_notebook_outputs_are_no_change_and_cells_are(pair: tuple[Path, Path]) -> None:
    old, new = pair
    cell: dict[str, Any] = {"cell_type": "code", "source": ["a = 1\n", "a"], "outputs": []}
    (old / "notebook.ipynb").write_text(json.dumps({"cells": [cell]}))
    executed = {**cell, "outputs": [{"x": 1}], "execution_count": 3, "source": "a = 1\na"}
    (new / "notebook.ipynb").write_text(json.dumps({"cells": [executed]}))
    assert diff(old, new).bump == "none"
    assert content_digest(old) == content_digest(new)
    (new / "notebook.ipynb").write_text(json.dumps({"cells": [{**cell, "source": "b"}]}))
    assert diff(old, new).bump == "patch"


def test_the_largest_change_decides_and_is_named(pair: tuple[Path, Path]) -> None:
    old, new = pair
    for name in ("template", "parameter", "rule", "limits"):
        TABLE[name][0](new)
    found = diff(old, new)
    assert found.bump == "minor"
    assert {change.area for change in found.forcing} == {"rules", "limits"}
    assert [BUMPS.index(change.level) for change in found.changes] == [2, 2, 1, 1]


def test_a_change_reads_as_a_line(pair: tuple[Path, Path]) -> None:
    old, new = pair
    TABLE["parameter"][0](new)
    assert [str(change) for change in diff(old, new).changes] == ["ma window 20 -> 18: PATCH"]


def test_rewrapped_text_is_no_change(pair: tuple[Path, Path]) -> None:
    old, new = pair
    sub(new, "SKILL.md", "Picks stocks whose close", "Picks stocks\nwhose  close")
    assert diff(old, new).bump == "none"


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None
)
@given(names=st.sets(st.sampled_from(sorted(TABLE)), min_size=1, max_size=5))
def test_several_changes_never_need_less_than_the_largest(
    draft: Path, tmp_path_factory: pytest.TempPathFactory, names: set[str]
) -> None:
    new = tmp_path_factory.mktemp("pair") / "draft"
    shutil.copytree(draft, new)
    done = []
    for name in sorted(names):
        try:
            TABLE[name][0](new)
        except AssertionError:
            continue  # two edits of the same line: the first one stands
        done.append(TABLE[name][1])
    assert BUMPS.index(diff(draft, new).bump) >= max(BUMPS.index(level) for level in done)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("x = 1", "x = 2", ["x 1 -> 2"]),
        ("x = 1", "x = -1", ["x 1 -> -1"]),
        ("x = 1", "x = 1.0", ["x 1 -> 1.0"]),
        ("x: int = 1", "x: int = 2", ["x 1 -> 2"]),
        ("f(window=250)", "f(window=248)", ["window 250 -> 248"]),
        ("t = {'a': 1, 'b': 2}", "t = {'a': 1, 'b': 3}", ["b 2 -> 3"]),
        ("def f(a, b=1, *, c=2): pass", "def f(a, b=9, *, c=8): pass", ["b 1 -> 9", "c 2 -> 8"]),
        ("f(3)", "f(4)", ["line 1: 3 -> 4"]),
        ("x = 'two words'", "x = 'three words'", ["x 'two words' -> 'three words'"]),
        ("'''doc'''\nx = 1", "x = 1", []),
        ("def f():\n  'doc'\n  return 1", "def f():\n\n  return 1 # c", []),
        ("def f():\n  'doc'", "def f(): pass", []),
        ("x = 'close'", "x = 'open'", None),
        ("x = True", "x = False", None),
        ("x = None", "x = 0", None),
        ("x = 1", "x = '1 a'", None),
        ("x = 1", "y = 1", None),
        ("x = [1]", "x = [1, 2]", None),
        ("x = a > 1", "x = a >= 1", None),
        ("x = a - 1", "x = a + 1", None),
        ("x = -a", "x = a", None),
    ],
)
def test_code_is_compared_by_structure(old: str, new: str, expected: list[str] | None) -> None:
    found = compare_code(ast.parse(old), ast.parse(new))
    assert (found if found is None else sorted(map(str, found))) == expected


def test_signatures_leave_annotations_and_values_out() -> None:
    tree = ast.parse("class A:\n    def f(self, x: int, *, y: str = 'a') -> int: ...\n")
    assert method_signature(tree, "A", "f") == "self, x, *, y=..."
    assert method_signature(tree, "A", "g") is None
