"""Fixtures of the bundle tests: the small bundle, as a draft and frozen."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kit.bundle.freeze import FrozenVersion, freeze
from kit.clock import FixedClock
from kit.workspace import Workspace


def _load(name: str) -> ModuleType:
    # The test tree is no package, so neighbours are loaded by their path.
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_BUILDER = _load("builder")


@pytest.fixture
def builder() -> ModuleType:
    """The module that builds the small bundle."""
    return _BUILDER


@pytest.fixture
def make_draft() -> Callable[..., Path]:
    """`make_draft(workspace, id)` writes the small bundle as a draft."""
    return _BUILDER.make_draft


@pytest.fixture
def draft(workspace: Workspace) -> Path:
    """The small bundle as the draft of `tiny-pullback`."""
    return _BUILDER.make_draft(workspace)


@pytest.fixture
def cut(workspace: Workspace, clock: FixedClock) -> Callable[..., FrozenVersion]:
    """`cut(id, **options)` freezes a draft with checks that pass."""

    def do(id_: str = "tiny-pullback", **options: Any) -> FrozenVersion:
        checks = options.pop("checks", None) or _BUILDER.passing_checks()
        return freeze(workspace, id_, checks=checks, clock=clock, **options)

    return do


@pytest.fixture
def frozen(draft: Path, cut: Callable[..., FrozenVersion]) -> FrozenVersion:
    """`tiny-pullback` 0.1.0, frozen and active; its draft still there."""
    return cut(activate=True)
