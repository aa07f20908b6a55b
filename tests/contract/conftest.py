"""What the contract tests share: a desk copied from the repository, and how to kill its kernel."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kit import files, schemas
from kit.bundle import new_draft
from kit.card import Card, render_card
from kit.jobs.screen_stages import ScreenRun
from kit.runner import ProgressEvent
from kit.state import Store
from kit.workspace import Workspace


@pytest.fixture
def desk(
    tmp_path: Path,
    copy_repository: Callable[[Path], Workspace],
    stand_in: Callable[..., Workspace],
) -> Workspace:
    """A copy of this repository's workspace, for one test to spoil."""
    return stand_in(copy_repository(tmp_path / "desk"))


@pytest.fixture
def desk_store(desk: Workspace) -> Store:
    return Store(desk.state_path)


def kernels_of(parent: int) -> list[int]:
    """The kernel processes a process has started, found in /proc and not through the kit."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
            marked = b"KIT_KERNEL_MARK=" in (entry / "environ").read_bytes()
        except OSError:
            continue
        if marked and int(fields[1]) == parent and fields[0] != "Z":
            found.append(int(entry.name))
    return found


@pytest.fixture
def kill_kernel_in() -> Callable[[str], Callable[[ProgressEvent], None]]:
    """`progress=kill_kernel_in("Data")` kills the run's kernel as soon as that cell starts."""

    def make(title: str) -> Callable[[ProgressEvent], None]:
        def watch(event: Any) -> None:
            if event.kind == "cell_started" and event.title == title:
                kernels = kernels_of(os.getpid())
                assert len(kernels) == 1
                os.kill(kernels[0], signal.SIGKILL)

        return watch

    return make


# The stages of a screen in this process: a draft, changed as a test likes, without a kernel.

STAGES = ("load_bundle", "check_lock", "load_data", "news", "sector_filter", "screen", "rank")
STAGES += ("explain", "result", "card")


@pytest.fixture
def stages() -> tuple[str, ...]:
    """Names of the stages, in the order of the notebook."""
    return STAGES


@pytest.fixture
def staged(desk: Workspace, tmp_path: Path) -> Callable[..., tuple[dict[str, Any], str]]:
    """Run the stages of a draft after `change(root)`; returns picks.json and the card's text.

    What the cells would show is left in `staged.views`.
    """

    def run(change: Callable[[Path], None], **options: Any) -> tuple[dict[str, Any], str]:
        root = new_draft(desk, "ma250-pullback")
        change(root)
        folder = tmp_path / "run"
        folder.mkdir()
        values = {"date": "2020-02-27", "mode": "offline", "now": "2020-02-27T09:30:00+00:00"}
        screen = ScreenRun.open(
            workspace=desk,
            bundle="ma250-pullback@draft",
            run_folder=str(folder),
            **{**values, **options},
        )
        run.views = [getattr(screen, stage)() for stage in STAGES]  # type: ignore[attr-defined]
        assert screen.finish()
        picks = files.read_json(folder / "picks.json")
        assert schemas.validate("picks", picks) == []
        run.card = Card.from_dict(files.read_json(folder / "card.json"))  # type: ignore[attr-defined]
        return picks, render_card(run.card, "plain")  # type: ignore[attr-defined]

    return run


@pytest.fixture
def replace_rule() -> Callable[[Path, str], None]:
    """`replace_rule(draft, body)` puts a rule of a few lines in the place of the bundle's own."""

    def replace(root: Path, body: str) -> None:
        lines = "".join(f"        {line}\n" for line in body.splitlines())
        (root / "code" / "signal_engine.py").write_text(RULE + lines, encoding="utf-8")

    return replace


RULE = """\
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
"""


@pytest.fixture
def kernels() -> Callable[[int], list[int]]:
    """`kernels(pid)`: the kernel processes that process has started."""
    return kernels_of
