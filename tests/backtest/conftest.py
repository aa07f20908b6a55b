"""Fixtures of the backtest tests."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kit.backtest.facts import Facts, StepQuality
from kit.backtest.lookahead import LookaheadVerdict


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
_HAND = _load("hand")


@pytest.fixture
def slow() -> ModuleType:
    """The plain Python simulator that the kernel is compared with."""
    return _SLOW


@pytest.fixture
def hand() -> ModuleType:
    """The module with the hand-made market and its readers."""
    return _HAND


@pytest.fixture
def market(tmp_path: Path) -> Any:
    """A `HandMarket` without symbols, in a folder of its own."""
    return _HAND.HandMarket(tmp_path / "market")


@pytest.fixture
def facts() -> Callable[..., Facts]:
    """`facts(**changed)` makes facts of a draft that passed its guards."""

    def make(**changed: Any) -> Facts:
        values: dict[str, Any] = {
            "ref": "tiny-pullback@draft",
            "created_at": "2024-09-19T08:40:00+00:00",
            "config": {"codes": ["600000.SH"], "_kit": {"params": {"ma_window": 20}}},
            "fingerprints": {
                part: digit * 64
                for part, digit in zip(("code", "prompts", "config", "data"), "abcd", strict=True)
            },
            "source": "hand",
            "synthetic": False,
            "market": "cn",
            "asked": ("600000.SH", "999999.SH"),
            "universe_note": "指定名单",
            "steps": (
                StepQuality(name="filter", quality="approximate", differences=("只数词", "不懂")),
                StepQuality(name="explain", quality="partial", differences=("不读新闻",)),
                StepQuality(name="rank", quality="exact"),
            ),
            "lookahead": LookaheadVerdict(
                ok=True, checked_dates=(date(2024, 3, 5), date(2024, 3, 6)), findings=()
            ),
            "warmup_declared": 20,
            "warmup_needed": 20,
        }
        return Facts(**(values | changed))

    return make
