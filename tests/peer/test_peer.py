"""The real Vibe-Trading runs our bundles as they are, and agrees where the rules are the same.

Needs its environment: `make peer`, or a Python that has it in KIT_PEER_PYTHON.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from kit import files
from kit.bundle.skills_sync import sync_skills
from kit.errors import KitError, RunError
from kit.jobs.peer import compare_with_peer
from kit.workspace import Workspace

REPOSITORY = Path(__file__).resolve().parents[2]
PYTHON = Path(os.environ.get("KIT_PEER_PYTHON") or REPOSITORY / ".venv-peer" / "bin" / "python")
FROZEN = "ma250-pullback@0.3.1"
# Stamp duty has been 0.05 % since 2023-08-28, which is all the peer knows; with 299 bars of
# warm-up, a range from here is graded after that day.
SAME_RULES: dict[str, Any] = {
    "start": date(2022, 6, 10),
    "end": date(2024, 9, 19),
    "symbols": ["600000.SH", "000001.SZ", "000151.SZ"],
}

needs_peer = [
    pytest.mark.peer,
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON.exists(), reason="Vibe-Trading is not set up: make peer"),
]


@pytest.fixture
def desk(
    tmp_path: Path, copy_repository: Callable[[Path], Workspace], monkeypatch: pytest.MonkeyPatch
) -> Workspace:
    monkeypatch.setenv("KIT_PEER_PYTHON", str(PYTHON))
    return copy_repository(tmp_path / "desk")


class TestThePeer:
    pytestmark = needs_peer

    def test_runs_a_frozen_bundle_as_it_is(self, desk: Workspace) -> None:
        found = compare_with_peer(desk, FROZEN)
        assert len(found.fills) == 12
        assert found.same.all()
        # Only the rates of 2019 and 2020 and the cents separate the two: stamp duty 0.1 % against
        # 0.05 % of each sale, transfer fee 0.002 % against 0.001 % of each fill.
        worth = found.fills["size"] * found.fills["price"]
        sold = worth[found.fills["side"] == "sell"].sum()
        apart = 0.0005 * sold + 0.00001 * worth.sum()
        ours, theirs = found.equity.iloc[-1]
        assert theirs - ours == pytest.approx(apart, abs=0.015 * 12)
        # What ran is what is frozen, byte for byte.
        frozen, ran = desk.root / "strategies/ma250-pullback/0.3.1", found.folder.parent
        for name in ("config.json", "manifest.json", "code/signal_engine.py"):
            assert (ran / name).read_bytes() == (frozen / name).read_bytes()
        assert not (frozen / "artifacts").exists()

    def test_the_same_fills_and_equity_where_the_rules_are_the_same(self, desk: Workspace) -> None:
        found = compare_with_peer(desk, FROZEN, **SAME_RULES)
        assert len(found.fills) >= 2
        assert found.same.all()
        assert min(found.fills["time"]).date() >= date(2023, 8, 28)
        # Cents, three charges a fill.
        gap = (found.equity["kit"] - found.equity["peer"]).abs().max()
        assert gap <= 0.015 * len(found.fills)

    def test_the_command_compares(self, desk: Workspace, kit_command: Any) -> None:
        arguments = ("backtest", FROZEN, "--engine", "vibe-trading", "--json")
        secrets = {"KIT_PEER_PYTHON": str(PYTHON), "OPENAI_API_KEY": "sk-must-not-be-seen"}
        done = kit_command(desk.root, *arguments, **secrets)
        assert done.returncode == 0, done.stderr
        body = json.loads(done.stdout)
        assert (body["fills_same"], body["fills_different"]) == (12, 0)
        assert (desk.root / body["folder"] / "equity.csv").is_file()
        written = [path for path in (desk.runs / "peer").rglob("*") if path.is_file()]
        assert not any(b"sk-must-not-be-seen" in path.read_bytes() for path in written)

    def test_loads_the_synced_skills(self, desk: Workspace, tmp_path: Path) -> None:
        """By its own loader; it strips the front matter, so the body must say the version."""
        home = tmp_path / "home"
        sync_skills(desk, str(home / ".vibe-trading" / "skills" / "user"))
        script = (
            "import json; from src.agent.skills import SkillsLoader; loader = SkillsLoader();"
            "print(json.dumps({s.name: [s.description, loader.get_content(s.name)]"
            " for s in loader.skills}))"
        )
        done = subprocess.run(
            [PYTHON, "-c", script],
            env={"HOME": str(home), "PATH": os.defpath},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
        seen = json.loads(done.stdout.splitlines()[-1])
        index = files.read_json(desk.index_path)["strategies"]
        for strategy_id, entry in index.items():
            description, content = seen[strategy_id]
            assert description
            assert f"{strategy_id}@{entry['latest_active_version']}" in content
            assert "Check the lock first" in content
        assert "strategy-skill-author" in seen

    def test_what_it_refuses_is_said_in_its_words(self, desk: Workspace) -> None:
        draft = desk.root / "strategies" / "ma250-pullback" / "draft"
        files.copy_tree(draft.parent / "0.3.1", draft, skip=lambda path: path.name == "backtests")
        files.set_writable(draft)
        code = draft / "code" / "signal_engine.py"
        code.write_text(code.read_text() + "\nprint('at import')\n")
        with pytest.raises(RunError, match="SignalEngine source error") as caught:
            compare_with_peer(desk, "ma250-pullback@draft", **SAME_RULES)
        assert caught.value.code == "peer.failed"


def test_without_it_the_remedy_is_named(desk: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KIT_PEER_PYTHON", "/nowhere/python")
    with pytest.raises(KitError, match="/nowhere/python") as caught:
        compare_with_peer(desk, FROZEN)
    assert caught.value.code == "peer.not_installed"
    assert "make peer" in caught.value.remedy
