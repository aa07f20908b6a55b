"""The slot job: when it runs, when it does not, and what leaves whatever happens."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from sqlalchemy import select

from kit import files
from kit.card import render_card
from kit.clock import FixedClock, parse_instant
from kit.errors import AlreadyDone, ConfigError, UsageError
from kit.jobs.slot import SlotOutcome, _fallback, run_slot
from kit.jobs.slot_stages import SlotRun, slot_at
from kit.runner import RunFailure
from kit.state import Store, tables
from kit.workspace import Workspace


def at(workspace: Workspace, store: Store, text: str, **changes: bool) -> SlotOutcome:
    now = parse_instant(text)
    return run_slot(
        workspace, "cn", now=now, clock=FixedClock(now), store=store, mode="offline", **changes
    )


def enable(workspace: Workspace) -> None:
    path = workspace.config_dir / "markets.json"
    value = json.loads(path.read_text(encoding="utf-8"))
    value["markets"]["cn"]["enabled"] = True
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")


@pytest.mark.parametrize(
    ("now", "word"),
    [
        ("2024-09-17T10:03:00+08:00", "holiday"),
        ("2024-09-18T12:03:00+08:00", "lunch"),
        ("2024-09-18T15:03:00+08:00", "after close"),
        ("2024-09-18T09:03:00+08:00", "before open"),
    ],
)
def test_a_closed_market_is_skipped_with_a_receipt(
    workspace: Workspace, store: Store, now: str, word: str
) -> None:
    outcome = at(workspace, store, now)
    assert (outcome.status, outcome.reason) == ("skipped", f"market_closed: {word}")
    assert outcome.run is None
    assert outcome.error() is None
    assert outcome.skip is not None
    assert outcome.skip.path is not None
    receipt = files.read_json(outcome.skip.path)
    assert (receipt["status"], receipt["reason"]) == ("skipped", "market_closed")
    with store.read() as connection:
        kinds = connection.execute(select(tables.audit.c.kind)).scalars().all()
        sent = connection.execute(select(tables.deliveries.c.id)).all()
    assert (kinds, sent) == (["skipped"], [])


def test_a_model_that_is_demanded_needs_its_key(
    workspace: Workspace, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By hand it is refused before anything is claimed; unattended its card says what failed."""
    now = parse_instant("2024-09-18T10:03:00+08:00")
    clock = FixedClock(now)
    monkeypatch.delenv("KIT_MODE")
    monkeypatch.setattr("kit.jobs.slot.perform", lambda *_a, **_k: pytest.fail("it ran"))
    with pytest.raises(ConfigError) as caught:
        run_slot(workspace, "cn", now=now, clock=clock, store=store, mode="live")
    assert (caught.value.code, caught.value.exit_code) == ("llm.no_key", 3)
    assert caught.value.remedy.startswith("set ")
    with store.read() as connection:
        assert connection.execute(select(tables.claims.c.key)).all() == []
    enable(workspace)
    with pytest.raises(pytest.fail.Exception, match="it ran"):
        run_slot(workspace, "cn", now=now, clock=clock, store=store, mode="live", cron=True)


def test_skipping_twice_leaves_one_receipt(workspace: Workspace, store: Store) -> None:
    for _ in range(2):
        assert at(workspace, store, "2024-09-17T10:03:00+08:00").status == "skipped"
    with store.read() as connection:
        assert len(connection.execute(select(tables.audit.c.id)).all()) == 1


def test_a_receipt_that_cannot_be_written_is_no_error(workspace: Workspace, store: Store) -> None:
    workspace.runs.write_text("a file where the folder should be")
    outcome = at(workspace, store, "2024-09-17T10:03:00+08:00")
    assert outcome.status == "skipped"
    assert outcome.skip is not None
    assert (outcome.skip.path, outcome.skip.recorded) == (None, False)


def test_the_schedule_leaves_a_disabled_market_alone(workspace: Workspace, store: Store) -> None:
    outcome = at(workspace, store, "2024-09-18T10:03:00+08:00", if_due=True)
    assert outcome.status == "not_due"
    assert "not enabled" in outcome.reason
    assert not list(workspace.runs.glob("2024*"))


@pytest.mark.parametrize(
    "now",
    [
        "2024-09-18T10:01:00+08:00",
        "2024-09-18T10:24:00+08:00",
        "2024-09-18T12:03:00+08:00",
        "2024-09-17T10:01:00+08:00",
    ],
)
def test_the_schedule_runs_nothing_outside_its_windows(
    workspace: Workspace, store: Store, now: str
) -> None:
    enable(workspace)
    assert at(workspace, store, now, cron=True).status == "not_due"
    assert not list(workspace.runs.glob("2024*"))


def test_a_due_slot_of_a_holiday_is_skipped_with_a_receipt(
    workspace: Workspace, store: Store
) -> None:
    enable(workspace)
    outcome = at(workspace, store, "2024-09-17T10:03:00+08:00", cron=True)
    assert outcome.status == "skipped"
    assert outcome.skip is not None
    assert outcome.skip.key.run_type == "scheduled"


def test_an_unknown_market_is_refused(workspace: Workspace, store: Store) -> None:
    now = parse_instant("2024-09-18T10:03:00+08:00")
    with pytest.raises(UsageError) as caught:
        run_slot(workspace, "jp", now=now, clock=FixedClock(now), store=store)
    assert caught.value.code == "market.unknown"


def failure(**changes: str) -> RunFailure:
    facts = {
        "kind": "kernel_died",
        "message": "the kernel died",
        "cell": "Judgement",
        "run_id": "2024-09-18/slot-cn-1000/1",
        "card_id": "abcd1234",
    }
    return RunFailure(**{**facts, **changes})  # type: ignore[arg-type]


def test_the_fallback_card_carries_what_preflight_left(
    workspace: Workspace, tmp_path: Path
) -> None:
    now = "2024-09-18T10:03:00+08:00"
    run = SlotRun.open(
        workspace=workspace, market="cn", now=now, mode="offline", run_folder=str(tmp_path)
    )
    run.gather()
    slot, info = slot_at(workspace, "cn", parse_instant(now))
    build = _fallback(slot, info, "Asia/Hong_Kong")
    card = build(tmp_path, failure())
    text = render_card(card, "plain")
    assert "🔴 本时点没有判断（运行进程退出，停在「判断」：the kernel died），仅发布数据块" in text
    assert "| 600000 | 3000 | 8.42 | 8.31 | -0.5% | -1.3% | -330 |" in text
    assert "▎我的看法" not in text
    assert text.splitlines()[-1].startswith("运行 2024-09-18/slot-cn-1000/1｜数据截至 09-18 10:03")
    assert (card.card_id, card.meta["product"], card.mode) == ("abcd1234", "fail", "none")


@pytest.mark.parametrize("left", ["nothing", "half", "another slot", "edited"])
def test_without_a_whole_context_the_fallback_card_says_so(
    workspace: Workspace, tmp_path: Path, left: str
) -> None:
    slot, info = slot_at(workspace, "cn", parse_instant("2024-09-18T10:03:00+08:00"))
    if left != "nothing":
        now = f"2024-09-18T{'10:33' if left == 'another slot' else '10:03'}:00+08:00"
        SlotRun.open(
            workspace=workspace, market="cn", now=now, mode="offline", run_folder=str(tmp_path)
        ).gather()
        path = tmp_path / "context.json"
        text = path.read_text(encoding="utf-8")
        if left == "half":
            path.write_text(text[: len(text) // 2], encoding="utf-8")
        if left == "edited":
            path.write_text(text.replace("8.31", "8.99"), encoding="utf-8")
    card = _fallback(slot, info, "Asia/Hong_Kong")(tmp_path, failure(kind="timeout", cell=""))
    assert card.blocks[0].lines[0] == "⛔ 数据降级：本时点没有取到任何数据（超过时限）"
    assert card.block("table") is None


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        (
            {
                "kind": "cell_error",
                "message": "cell 'Quotes and holdings' raised ConfigError: config/portfolio.json",
                "evalue": "config/portfolio.json: there are no holdings of market 'us'",
                "cell": "Quotes and holdings",
            },
            "流程出错，停在「行情与持仓」：portfolio.json: there are no holdings of market 'us'",
        ),
        (
            {"kind": "storage", "message": "/home/me/desk/runs: no\nspace, 3/7 done", "cell": ""},
            "磁盘不可写：runs: no space, 3/7 done",
        ),
        ({"kind": "crashed", "message": "x" * 300, "cell": ""}, f"运行器故障：{'x' * 79}…"),
        (
            {"kind": "cell_error", "message": "cell 'A' raised E: ", "ename": "E", "cell": "A"},
            "流程出错，停在「A」：E",
        ),
    ],
)
def test_the_loud_card_names_the_cause_and_no_path(
    workspace: Workspace, tmp_path: Path, facts: dict[str, str], told: str
) -> None:
    slot, info = slot_at(workspace, "cn", parse_instant("2024-09-18T10:03:00+08:00"))
    card = _fallback(slot, info, "Asia/Hong_Kong")(tmp_path, failure(**facts))
    assert card.blocks[0].lines[0] == f"⛔ 数据降级：本时点没有取到任何数据（{told}）"


def test_by_hand_a_market_without_holdings_is_refused_before_any_claim(
    workspace: Workspace, store: Store
) -> None:
    now = parse_instant("2024-09-18T10:03:00-04:00")
    with pytest.raises(ConfigError) as caught:
        run_slot(workspace, "us", now=now, clock=FixedClock(now), store=store, mode="offline")
    assert (caught.value.code, caught.value.exit_code) == ("slot.no_holdings", 3)
    assert "config/portfolio.json" in caught.value.remedy
    assert not list(workspace.runs.glob("2024*"))
    with store.read() as connection:
        assert connection.execute(select(tables.deliveries.c.id)).all() == []
        assert connection.execute(select(tables.audit.c.id)).all() == []


@pytest.mark.kernel
def test_a_slot_from_kernel_to_receipts(workspace: Workspace, store: Store) -> None:
    now = parse_instant("2024-09-18T10:03:00+08:00")
    screen = io.StringIO()
    outcome = run_slot(
        workspace, "cn", now=now, clock=FixedClock(now), store=store, mode="offline", stream=screen
    )
    assert outcome.run is not None, outcome.reason
    assert outcome.run.failure is None, outcome.run.failure
    assert (outcome.status, outcome.error()) == ("degraded", None)
    assert outcome.run.run_id == "2024-09-18/slot-cn-1000/1"
    assert [receipt.state for receipt in outcome.run.receipts] == ["sent", "sent"]
    text = screen.getvalue()
    assert "| 000151 | 1500 | 9.12 | 10.05 | -0.4% | +10.2% | +1,395 |" in text
    assert "▎我的看法（离线整理" in text
    folder = outcome.run.folder
    assert folder is not None
    assert (folder / "delivered" / "card.txt").read_text(encoding="utf-8").strip() == text.strip()
    json.dumps(outcome.to_dict(), allow_nan=False)

    # The same slot again is done; the next one is compared with it.
    with pytest.raises(AlreadyDone):
        at(workspace, store, "2024-09-18T10:03:00+08:00")
    second = at(workspace, store, "2024-09-18T10:33:00+08:00")
    assert second.run is not None
    assert second.run.card is not None
    assert second.run.card.block("change").lines[0].startswith("变化：无（与上次送达 10:00 相比")  # type: ignore[union-attr]


@pytest.mark.kernel
def test_unattended_a_slot_without_holdings_still_sends_its_loud_card(
    workspace: Workspace, store: Store
) -> None:
    enable(workspace)
    path = workspace.config_dir / "portfolio.json"
    value = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**value, "markets": {}}), encoding="utf-8")
    outcome = at(workspace, store, "2024-09-18T10:03:00+08:00", cron=True)
    assert outcome.run is not None
    assert outcome.status == "failed"
    assert outcome.error() is None  # the card arrived
    assert outcome.run.card is not None
    assert outcome.run.card.blocks[0].lines[0] == (
        "⛔ 数据降级：本时点没有取到任何数据（流程出错，停在「行情与持仓」："
        "portfolio.json: there are no holdings of market 'cn'）"
    )
    assert "no holdings of market 'cn'" in outcome.reason
    assert [receipt.state for receipt in outcome.run.receipts] == ["sent"]
