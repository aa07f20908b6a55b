"""Fixtures of the job tests: small bundles, as drafts and frozen."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kit.bundle.freeze import freeze
from kit.clock import FixedClock
from kit.workspace import Workspace

ENGINE = """\
from typing import NamedTuple


class Pick(NamedTuple):
    symbol: str
    score: float
    fields: dict
    matched_rules: list


class SignalEngine:
    def generate(self, data_map):
        return {}

    def screen_today(self, data_map, today, sector_filter=None, limit=7):
%s
"""


def _builder() -> ModuleType:
    # The test tree is no package, so a neighbour is loaded by its path.
    path = Path(__file__).parent.parent / "bundle" / "builder.py"
    spec = importlib.util.spec_from_file_location("bundle_builder", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_BUILDER = _builder()


@pytest.fixture
def workspace(workspace: Workspace, stand_in: Callable[..., Workspace]) -> Workspace:
    """A new, empty workspace whose data server starts at once."""
    return stand_in(workspace)


@pytest.fixture
def builder() -> ModuleType:
    """The module that builds the small bundle."""
    return _BUILDER


@pytest.fixture
def screen_draft(workspace: Workspace) -> Callable[..., str]:
    """`screen_draft(rule=..., manifest=..., texts=...)` writes a draft and returns its reference.

    `rule` is the body of `screen_today`, `manifest` changes top-level keys, `texts` adds files.
    """

    def make(
        rule: str | None = None,
        *,
        manifest: Mapping[str, Any] | None = None,
        texts: Mapping[str, str] | None = None,
    ) -> str:
        root = _BUILDER.make_draft(workspace, "tiny-screen")
        value = json.loads((root / "manifest.json").read_text(encoding="utf-8"))
        value |= manifest or {}
        written = {"manifest.json": json.dumps(value, ensure_ascii=False), **(texts or {})}
        if rule is not None:
            body = "\n".join(f"        {line}" for line in rule.splitlines())
            written["code/signal_engine.py"] = ENGINE % body
        for name, text in written.items():
            (root / name).write_text(text, encoding="utf-8")
        return "tiny-screen@draft"

    return make


@pytest.fixture
def screen_frozen(
    workspace: Workspace, clock: FixedClock, screen_draft: Callable[..., str]
) -> Callable[..., str]:
    """The same, frozen and active; returns `tiny-screen`."""

    def make(rule: str | None = None, **options: Any) -> str:
        screen_draft(rule, **options)
        checks = _BUILDER.passing_checks()
        freeze(workspace, "tiny-screen", checks=checks, activate=True, clock=clock)
        return "tiny-screen"

    return make


@pytest.fixture
def active(workspace: Workspace, clock: FixedClock) -> Callable[..., None]:
    """`active("a", rule)` freezes a small bundle of that id, and makes it active."""

    def make(id_: str, rule: str, asof: str = "") -> None:
        root = _BUILDER.make_draft(workspace, id_)
        code = ENGINE % f"        {rule}"
        (root / "code" / "signal_engine.py").write_text(code, encoding="utf-8")
        if asof:
            path = root / "manifest.json"
            value = json.loads(path.read_text(encoding="utf-8"))
            value["data_contract"]["asof_time"] = asof
            path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")
        freeze(workspace, id_, checks=_BUILDER.passing_checks(), activate=True, clock=clock)

    return make


@pytest.fixture
def base_manifest() -> dict[str, Any]:
    """The manifest of the small bundle, to change."""
    value: dict[str, Any] = _BUILDER.manifest("tiny-screen")
    return value
