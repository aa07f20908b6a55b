"""Promise 1: every due slot or screen ends in a card, loud and empty when there is nothing else."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kit import files, schemas
from kit.clock import FixedClock, parse_instant
from kit.jobs.screen import ScreenOutcome, run_screen
from kit.jobs.slot import run_slot
from kit.state import Store
from kit.workspace import Workspace

# Half past five in Shanghai: the data of that session is complete, its screen is due.
DUE = "2020-02-27T09:30:00+00:00"
# A Monday long after the sample's last bar.
AFTER_THE_DATA = "2026-03-02T10:00:00+00:00"
LOUD = "🔴 今日无可推送候选"

Unattended = Callable[..., tuple[ScreenOutcome, str]]


@pytest.fixture
def unattended(desk: Workspace, desk_store: Store) -> Unattended:
    """Run the active version as cron does; returns the outcome and what the console was sent."""

    def run(now: str = DUE, **options: Any) -> tuple[ScreenOutcome, str]:
        stream = io.StringIO()
        outcome = run_screen(
            desk,
            "ma250-pullback",
            clock=FixedClock(now),
            store=desk_store,
            cron=True,
            stream=stream,
            **options,
        )
        return outcome, stream.getvalue()

    return run


def assert_told(outcome: ScreenOutcome, text: str) -> dict[str, Any]:
    """An empty loud card reached every channel, the record agrees; returns the report."""
    assert outcome.exit_code == 0
    assert [(r.channel, r.state) for r in outcome.receipts] == [
        ("file", "sent"),
        ("console", "sent"),
    ]
    lines = text.splitlines()
    assert lines[2] == LOUD
    assert "⛔" in text
    assert outcome.run is not None
    folder = outcome.run.folder
    assert folder is not None
    assert (folder / "delivered" / "card.txt").read_text(encoding="utf-8").strip() == text.strip()
    picks = files.read_json(folder / "picks.json")
    assert schemas.validate("picks", picks) == []
    assert picks["picks"] == []
    report: dict[str, Any] = picks["degradation_report"]
    assert report["degraded"] is True
    assert files.read_json(folder / "degradation.json") == report
    for entry in report["entries"]:
        assert entry["code"] in text
    assert not list(folder.parent.glob("*.partial"))
    return report


@pytest.mark.kernel
def test_a_tampered_version_under_cron(desk: Workspace, unattended: Unattended) -> None:
    path = desk.strategies / "ma250-pullback" / "0.3.1" / "SKILL.md"
    path.chmod(0o644)
    path.write_bytes(path.read_bytes() + b" ")
    outcome, text = unattended()
    report = assert_told(outcome, text)
    assert [entry["trigger"] for entry in report["entries"]] == ["bundle_tampered"]
    assert "SKILL.md" in text
    assert text.startswith("ma250-pullback@0.3.1 ")


@pytest.mark.kernel
def test_a_kernel_that_dies_under_cron(
    desk: Workspace, unattended: Unattended, kill_kernel_in: Callable[[str], Any]
) -> None:
    outcome, text = unattended(progress=kill_kernel_in("Screen"))
    assert (outcome.status, outcome.day.isoformat()) == ("failed", "2020-02-27")
    report = assert_told(outcome, text)
    # What was known before stands first, the death last, with the cell it happened in.
    triggers = [entry["trigger"] for entry in report["entries"]]
    assert triggers[-1] == "kernel_died"
    assert "news_not_fetched" in triggers[:-1]
    assert "Screen" in report["entries"][-1]["reason"]
    assert outcome.run is not None
    record = files.read_json(outcome.run.folder / "run.json")  # type: ignore[operator]
    status = {cell["title"]: cell["status"] for cell in record["cells"]}
    assert (status["Data"], status["Card"]) == ("completed", "pending")
    # The same key again is done: the failure was told, and nothing is computed behind its back.
    with pytest.raises(Exception, match="has done this already") as done:
        unattended()
    assert done.value.exit_code == 7  # type: ignore[attr-defined]


@pytest.mark.kernel
def test_a_day_without_data_under_cron(unattended: Unattended) -> None:
    outcome, text = unattended(AFTER_THE_DATA)
    assert outcome.day.isoformat() == "2026-03-02"
    report = assert_told(outcome, text)
    assert [entry["trigger"] for entry in report["entries"]] == ["data_unavailable"]


@pytest.mark.parametrize("spoiled", ["daily_screen.ipynb", "markets.json", "INDEX.json"])
def test_a_workspace_that_cannot_run_says_so_without_a_kernel(
    desk: Workspace, unattended: Unattended, spoiled: str
) -> None:
    path = next(path for path in sorted(desk.root.rglob(spoiled)))
    path.write_text("{ no JSON", encoding="utf-8")
    outcome, text = unattended()
    assert_told(outcome, text)
    assert spoiled in text


def test_a_closed_market_sends_nothing_and_leaves_a_receipt(
    desk: Workspace, unattended: Unattended
) -> None:
    # The Spring Festival of 2020; the market stayed closed until 3 February.
    outcome, text = unattended("2020-01-27T09:30:00+00:00")
    assert (outcome.status, outcome.exit_code, text) == ("skipped", 0, "")
    (receipt,) = desk.runs.glob("2020-01-27/*/skipped.json")
    value = json.loads(receipt.read_text(encoding="utf-8"))
    assert (value["status"], value["reason"]) == ("skipped", "market_closed")


@pytest.mark.kernel
def test_a_slot_whose_kernel_dies_sends_its_holdings(
    desk: Workspace, desk_store: Store, kill_kernel_in: Callable[[str], Any]
) -> None:
    markets = desk.config_dir / "markets.json"
    value = files.read_json(markets)
    value["markets"]["cn"]["enabled"] = True
    files.write_json(markets, value)
    now = parse_instant("2024-09-18T10:03+08:00")
    stream = io.StringIO()
    outcome = run_slot(
        desk,
        "cn",
        now=now,
        clock=FixedClock(now),
        store=desk_store,
        cron=True,
        stream=stream,
        progress=kill_kernel_in("Judgement"),
    )
    assert (outcome.status, outcome.error()) == ("failed", None)
    assert outcome.run is not None
    assert [r.state for r in outcome.run.receipts] == ["sent", "sent"]
    text = stream.getvalue()
    # The price at 10:03 is 8.31 on cost 8.42: 3000 shares are 330 down.
    assert "| 600000 | 3000 | 8.42 | 8.31 | -0.5% | -1.3% | -330 |" in text
    assert "🔴" in text
    delivered = Path(outcome.run.folder or "") / "delivered" / "card.txt"
    assert delivered.read_text(encoding="utf-8").strip() == text.strip()
