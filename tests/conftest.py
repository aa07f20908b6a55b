"""Shared fixtures: every test works in its own workspace, HOME and clock."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.clock import FixedClock
from kit.state import Store
from kit.workspace import Workspace, init_workspace

REPOSITORY = Path(__file__).resolve().parent.parent
PROVIDER_KEYS = ("OPENAI_API_KEY", "DEEPSEEK_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY")


@pytest.fixture(autouse=True)
def _isolated(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("KIT_MODE", "offline")
    for name in (*PROVIDER_KEYS, "KIT_WORKSPACE", "KIT_CRASH_AT", "KIT_NO_SPACE_AT"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def repository() -> Path:
    """The checkout that is being tested."""
    return REPOSITORY


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """A new, empty workspace."""
    return init_workspace(tmp_path / "workspace")


@pytest.fixture
def clock() -> FixedClock:
    """Half past four in Shanghai plus ten minutes, on a day the sample has bars for."""
    return FixedClock("2024-09-19T08:40:00+00:00")


@pytest.fixture
def store(workspace: Workspace) -> Iterator[Store]:
    """The state store of `workspace`."""
    return Store(workspace.state_path)
