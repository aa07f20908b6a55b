"""Fixtures of the backtest tests."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


def _load(name: str) -> ModuleType:
    # The test tree is no package, so neighbours are loaded by their path.
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up there
    spec.loader.exec_module(module)
    return module


_SLOW = _load("slow_simulator")


@pytest.fixture
def slow() -> ModuleType:
    """The plain Python simulator that the kernel is compared with."""
    return _SLOW
