"""Fixtures of the lab tests: a desk in a copy of the repository, and a real IPython shell."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kit import lab
from kit.clock import FixedClock
from kit.lab import Desk
from kit.workspace import Workspace


@pytest.fixture
def desk(
    tmp_path: Path,
    copy_repository: Callable[[Path], Workspace],
    stand_in: Callable[..., Workspace],
    monkeypatch: pytest.MonkeyPatch,
) -> Desk:
    """The current desk of `kit.lab`, in a copy of the repository."""
    found = Desk(
        stand_in(copy_repository(tmp_path / "desk")), FixedClock("2024-09-19T08:40:00+00:00")
    )
    monkeypatch.setattr(lab, "_current", found)
    return found


@pytest.fixture(scope="session")
def interactive_shell(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One IPython shell; it cannot be taken down cleanly, so there is only one."""
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "nocolor"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IPYTHONDIR", str(tmp_path_factory.mktemp("ipython")))
        # Not the singleton, which other libraries ask for; and with a module of its own, or the
        # shell would take the place of __main__.
        module = ModuleType("kit_test_shell")
        return InteractiveShell(config=config, user_module=module)


@pytest.fixture
def shell(desk: Desk, interactive_shell: Any) -> Any:
    """The shell with the extension loaded, as a notebook's first cell leaves it."""
    interactive_shell.reset(new_session=False)
    assert run(interactive_shell, "%reload_ext kit").success
    return interactive_shell


def run(shell: Any, source: str) -> Any:
    return shell.run_cell(source, store_history=False)


@pytest.fixture
def cell(shell: Any) -> Callable[[str], Any]:
    """`cell(source)` runs a cell; returns IPython's result."""
    return lambda source: run(shell, source)
