"""The stages of a slot, on the embedded minutes and in this process."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from kit import files, schemas
from kit.card import Card
from kit.clock import FixedClock
from kit.delivery import FileChannel, deliver
from kit.errors import ConfigError, DataError, UsageError
from kit.intraday import LAYERS, read_context
from kit.jobs.slot_stages import SlotRun, last_delivered
from kit.market import QuoteBatch
from kit.state import Store
from kit.workspace import Workspace


def open_slot(workspace: Workspace, folder: Path, now: str, **changes: Any) -> SlotRun:
    folder.mkdir(parents=True, exist_ok=True)
    hhmm = now[11:13] + ("00" if now[14:16] < "30" else "30")
    facts = {
        "market": "cn",
        "now": now,
        "mode": "offline",
        "run_folder": str(folder),
        "run_id": f"{now[:10]}/slot-cn-{hhmm}/1",
        "card_id": "abcd1234",
    }
    return SlotRun.open(workspace=workspace, **{**facts, **changes})


def perform(run: SlotRun) -> Card:
    for stage in (run.gather, run.delta, run.packet, run.judge, run.check, run.card):
        assert repr(stage())
    return Card.from_dict(files.read_json(run.folder / "card.json"))


def send(store: Store, clock: FixedClock, folder: Path, card: Card) -> None:
    deliver(store, clock, card.meta["run_id"], card, [FileChannel(folder=folder)])


def test_a_slot_leaves_its_evidence(workspace: Workspace, tmp_path: Path) -> None:
    run = open_slot(workspace, tmp_path / "run", "2024-09-18T10:03:00+08:00")
    card = perform(run)
    assert sorted(path.name for path in run.folder.iterdir()) == [
        "card.json",
        "checks.json",
        "context.json",
        "degradation.json",
        "llm.jsonl",
        "lock.json",
        "packet.json",
        "prose.md",
    ]
    context = read_context(files.read_json(run.folder / "context.json"))
    packet = files.read_json(run.folder / "packet.json")
    assert packet["index"]["context_id"] == context["context_id"] == card.meta["context_id"]
    control = [name for name, field in LAYERS.items() if field.layer == "control"]
    assert not set(control) & set(packet)
    prose = (run.folder / "prose.md").read_text(encoding="utf-8")
    assert prose.startswith("▎我的看法（离线整理")
    report = files.read_json(run.folder / "degradation.json")
    assert schemas.validate("degradation", report) == []
    assert [entry["trigger"] for entry in report["entries"]] == ["llm_offline_equivalent"]
    (line,) = files.read_json_lines(run.folder / "llm.jsonl")
    assert (line["step"], line["mode"], line["verdict"]) == ("intraday", "offline", "ok")


def test_the_card_of_the_sample_by_hand(workspace: Workspace, tmp_path: Path) -> None:
    card = perform(open_slot(workspace, tmp_path / "run", "2024-09-18T10:03:00+08:00"))
    # Closes of the bars ending 10:03 are 8.31, 9.73, 10.05; the closes of 09-13 before the holiday
    # are 8.35, 9.70, 10.09. Cost: 3000 x 8.42 + 2000 x 10.85 + 1500 x 9.12 = 60,640.
    assert card.block("table").lines == (  # type: ignore[union-attr]
        "| 代码 | 股 | 成本 | 现价 | 今日 | 浮% | 浮$ |",
        "| 600000 | 3000 | 8.42 | 8.31 | -0.5% | -1.3% | -330 |",
        "| 000001 | 2000 | 10.85 | 9.73 | +0.3% | -10.3% | -2,240 |",
        "| 000151 | 1500 | 9.12 | 10.05 | -0.4% | +10.2% | +1,395 |",
    )
    # 24,930 + 19,460 + 15,075; -330 - 2,240 + 1,395 = -1,175 = -1.94 %; -120 + 60 - 60 = -120
    assert card.block("book").lines == (  # type: ignore[union-attr]
        "📊 市值 59,465 CNY｜浮盈 -1,175（-1.9%）｜今日 -120（-0.2%）",
    )
    assert card.title == "A股盘中 10:03 HKT"
    assert "⛔" not in json.dumps(card.to_dict(), ensure_ascii=False)


def test_the_next_slot_is_compared_with_the_last_delivered_one(
    workspace: Workspace, store: Store, clock: FixedClock, tmp_path: Path
) -> None:
    first = perform(open_slot(workspace, tmp_path / "1", "2024-09-18T10:03:00+08:00"))
    send(store, clock, tmp_path / "1", first)
    run = open_slot(workspace, tmp_path / "2", "2024-09-18T10:33:00+08:00")
    second = perform(run)
    assert second.block("change").lines == (  # type: ignore[union-attr]
        "变化：无（与上次送达 10:00 相比，触发档位与行情状态都没有变）",
    )
    assert second.block("signals").lines == ("今日已报、仍在：TRIM 000151",)  # type: ignore[union-attr]


def test_what_was_not_delivered_is_no_baseline(
    workspace: Workspace, store: Store, clock: FixedClock, tmp_path: Path
) -> None:
    perform(open_slot(workspace, tmp_path / "1", "2024-09-18T10:03:00+08:00"))
    second = perform(open_slot(workspace, tmp_path / "2", "2024-09-18T10:33:00+08:00"))
    assert second.block("change").lines[0].startswith("变化：今日首个送达时点")  # type: ignore[union-attr]


def test_a_failed_product_does_not_move_the_cursor(
    workspace: Workspace, store: Store, clock: FixedClock, tmp_path: Path
) -> None:
    run = open_slot(workspace, tmp_path / "1", "2024-09-18T10:03:00+08:00")
    card = perform(run)
    failed = Card.from_dict({**card.to_dict(), "meta": {**card.meta, "product": "fail"}})
    send(store, clock, tmp_path / "1", failed)
    assert (
        last_delivered(
            store, open_slot(workspace, tmp_path / "2", "2024-09-18T10:33:00+08:00").slot
        )
        is None
    )


def test_only_earlier_slots_of_the_day_count(
    workspace: Workspace, store: Store, clock: FixedClock, tmp_path: Path
) -> None:
    for hhmm in ("09:33", "10:33", "11:03"):
        card = perform(open_slot(workspace, tmp_path / hhmm, f"2024-09-18T{hhmm}:00+08:00"))
        send(store, clock, tmp_path / hhmm, card)
    at = open_slot(workspace, tmp_path / "x", "2024-09-18T10:40:00+08:00").slot
    found = last_delivered(store, at)
    assert found is not None
    assert found.slot == "2024-09-18T09:30:00+08:00"


def test_a_store_that_cannot_be_read_is_said_on_the_card(
    workspace: Workspace, tmp_path: Path
) -> None:
    workspace.runs.mkdir(exist_ok=True)
    workspace.state_path.write_bytes(b"this is no database" * 100)
    card = perform(open_slot(workspace, tmp_path / "run", "2024-09-18T10:03:00+08:00"))
    assert card.block("health").lines == (  # type: ignore[union-attr]
        "⛔ 数据降级：上次送达记录读不到，变化按首个时点列出",
    )
    assert card.block("table") is not None


def test_a_quote_source_that_fails_is_a_line_and_not_an_exception(
    workspace: Workspace, tmp_path: Path
) -> None:
    class Broken:
        name = "broken"
        synthetic = False

        def quotes(self, symbols: Sequence[str], at: datetime) -> QuoteBatch:
            raise DataError("data.no_bars", "gone")

    run = open_slot(workspace, tmp_path / "run", "2024-09-18T10:03:00+08:00")
    run.quotes = Broken()
    card = perform(run)
    assert "\n".join(card.block("health").lines) == (  # type: ignore[union-attr]
        "⛔ 数据降级：600000、000001、000151 没有行情"
        "（行情源 broken 出错 data.no_bars），未计入市值\n"
        "⛔ 数据降级：行情未证实，价位线未核对：600000 止损线 8.05；600000 减仓线 9.20；"
        "000001 止损线 9.60；000151 止损线 8.60；000151 减仓线 10.00"
    )
    report = files.read_json(run.folder / "degradation.json")
    assert (
        report["entries"][0]["reason"] == "3 只持仓没有行情，未计入市值（600000、000001、000151）"
    )


def test_quotes_of_another_day_are_stale(workspace: Workspace, tmp_path: Path) -> None:
    run = open_slot(workspace, tmp_path / "run", "2024-09-19T10:03:00+08:00")
    card = perform(run)
    assert card.block("health").lines == (  # type: ignore[union-attr]
        "⛔ 数据降级：600000、000001、000151 行情未证实（沿用上一笔，自 09-18 15:00 起）",
        # Closes 8.32, 9.77, 10.12: 9.60 is 1.7 % away, 8.05 3.2 %, 9.20 10.6 %, 8.60 15.0 %.
        (
            "⛔ 数据降级：行情未证实，价位线未核对：000151 减仓线 10.00"
            "（上一笔 10.12 已到价，未发信号）；000001 止损线 9.60；600000 止损线 8.05；"
            "600000 减仓线 9.20；000151 止损线 8.60"
        ),
    )
    assert card.block("next_trigger").lines == (  # type: ignore[union-attr]
        (
            "下一触发：行情未证实，价位线未核对：000151 减仓线 10.00；000001 止损线 9.60；"
            "600000 止损线 8.05；600000 减仓线 9.20，另 1 条"
        ),
    )
    # The moves of the 18th are not today's; 300 and 2,160 down, 1,500 up on a cost of 60,640.
    assert card.block("table").lines[1:] == (  # type: ignore[union-attr]
        "| 600000 | 3000 | 8.42 | 8.32 | — | -1.2% | -300 |",
        "| 000001 | 2000 | 10.85 | 9.77 | — | -10.0% | -2,160 |",
        "| 000151 | 1500 | 9.12 | 10.12 | — | +11.0% | +1,500 |",
    )
    assert card.block("book").lines == (  # type: ignore[union-attr]
        "📊 市值 59,680 CNY｜浮盈 -960（-1.6%）｜今日 —（—）",
    )
    assert "今日最强" not in json.dumps(card.to_dict(), ensure_ascii=False)
    assert card.block("signals") is None
    report = files.read_json(run.folder / "degradation.json")
    assert report["entries"][0]["trigger"] == "data_freshness_violation"
    assert report["entries"][0]["details"]["lag_minutes"] == 19 * 60 + 3
    assert report["reasons"][0] == "持仓行情停在 09-18 收盘（15:00）"
    assert "名单" not in "".join(report["impact"])


def test_a_model_that_cannot_be_reached_closes_the_card(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kit.llm import CallError, Request

    class Down:
        def complete(self, request: Request) -> Any:
            raise CallError("http_error", "503")

    monkeypatch.delenv("KIT_MODE")
    monkeypatch.setattr(SlotRun, "_model", lambda self: Down())
    run = open_slot(workspace, tmp_path / "run", "2024-09-18T10:03:00+08:00", mode="live")
    card = perform(run)
    assert card.blocks[0].lines == ("🔴 本时点没有判断（模型服务端报错），仅发布数据块",)
    assert card.block("view") is None
    assert card.block("table") is not None
    assert card.meta["product"] == "fail"
    report = files.read_json(run.folder / "degradation.json")
    assert [entry["trigger"] for entry in report["entries"]] == ["llm_step_failed"]


def test_a_closed_market_has_no_slot_to_open(workspace: Workspace) -> None:
    with pytest.raises(UsageError) as caught:
        SlotRun.open(workspace=workspace, market="cn", now="2024-09-18T12:00:00+08:00")
    assert caught.value.code == "slot.closed"


def test_holdings_that_are_missing_stop_preflight(workspace: Workspace, tmp_path: Path) -> None:
    (workspace.config_dir / "portfolio.json").unlink()
    run = open_slot(workspace, tmp_path / "run", "2024-09-18T10:03:00+08:00")
    with pytest.raises(ConfigError):
        run.gather()


def test_stages_out_of_order_are_refused(workspace: Workspace, tmp_path: Path) -> None:
    run = open_slot(workspace, tmp_path / "run", "2024-09-18T10:03:00+08:00")
    with pytest.raises(UsageError) as caught:
        run.packet()
    assert caught.value.code == "slot.order"


def test_the_same_inputs_give_the_same_bytes(workspace: Workspace, tmp_path: Path) -> None:
    for name in ("a", "b"):
        perform(open_slot(workspace, tmp_path / name, "2024-09-18T10:03:00+08:00"))
    for name in ("context.json", "packet.json", "prose.md", "card.json", "degradation.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
