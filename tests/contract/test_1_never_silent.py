"""Promise 1: every due slot or screen ends in a card, loud and empty when there is nothing else."""

from __future__ import annotations

import errno
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kit import files, schemas
from kit.clock import FixedClock, parse_instant
from kit.delivery import FileChannel
from kit.errors import DataError
from kit.jobs.screen import ScreenOutcome, run_screen
from kit.jobs.slot import run_slot
from kit.llm import CallError, Completion, Request
from kit.llm.models import Price
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


def test_a_tampered_version_under_cron(
    desk: Workspace, unattended: Unattended, stages_here: Any
) -> None:
    path = desk.strategies / "ma250-pullback" / "0.3.1" / "SKILL.md"
    path.chmod(0o644)
    path.write_bytes(path.read_bytes() + b" ")
    outcome, text = unattended(executor=stages_here(desk))
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
    assert "llm_offline_equivalent" in triggers[:-1]
    assert "「筛选」" in report["entries"][-1]["reason"]
    assert outcome.run is not None
    record = files.read_json(outcome.run.folder / "run.json")  # type: ignore[operator]
    status = {cell["title"]: cell["status"] for cell in record["cells"]}
    assert (status["Data"], status["Card"]) == ("completed", "pending")
    # The same key again is done: the failure was told, and nothing is computed behind its back.
    with pytest.raises(Exception, match="has done this already") as done:
        unattended()
    assert done.value.exit_code == 7  # type: ignore[attr-defined]


def test_a_day_without_data_under_cron(
    desk: Workspace, unattended: Unattended, stages_here: Any
) -> None:
    outcome, text = unattended(AFTER_THE_DATA, executor=stages_here(desk))
    assert outcome.day.isoformat() == "2026-03-02"
    report = assert_told(outcome, text)
    (entry,) = report["entries"]
    assert entry["trigger"] == "data_unavailable"
    # Chinese on the card, the English message for whoever looks into the result.
    assert "没有行情" in entry["reason"]
    assert entry["details"]["message"] not in text


# Every component fails in turn: the flow ends in a delivered card each time.


class Model:
    """A model that answers both steps, but for the one that is told to fail."""

    failing = ""
    calls = 0

    def __init__(self, *_: Any) -> None:
        pass

    def price(self, _: str) -> Price:
        return Price(prompt=0, completion=1)

    def complete(self, request: Request) -> Completion:
        Model.calls += 1
        step = "explanation" if "pick" in json.loads(request.messages[1]["content"]) else "filter"
        if step == Model.failing:
            raise CallError("http_error", "500")
        said: dict[str, Any] = {"reason_text": "贴近年线", "confidence": "high"}
        if step == "filter":
            said = {"focus_sectors": [], "rationale": "无"}
        return Completion(text=json.dumps(said, ensure_ascii=False), finish_reason="stop")


class Bad:
    """Stands where a bundle's engine does."""

    def __init__(self, said: Any) -> None:
        self.said = said

    def screen_today(self, *_: Any) -> Any:
        if isinstance(self.said, Exception):
            raise self.said
        return self.said


def broken_data(*_: Any, **__: Any) -> Any:
    raise DataError("data.unreadable", "truncated", where="x.parquet", remedy="sync it")


def spoil(component: str, desk: Workspace, patch: pytest.MonkeyPatch) -> Any:
    """Break one component; returns what is called before each stage, where that breaks it."""
    mcp = desk.config_dir / "mcp.json"
    servers = files.read_json(mcp)
    if component in ("filter", "explanation", "budget"):
        patch.delenv("KIT_MODE")
        patch.setenv("DEEPSEEK_API_KEY", "test-key-0123")
        patch.setattr("kit.jobs.llm_budget.LiteLLM", Model)
        patch.setattr(Model, "failing", component)
        patch.setattr(Model, "calls", 0)
    if component == "budget":
        llm = files.read_json(desk.config_dir / "llm.json")
        llm["budget"]["monthly_usd"] = 0
        files.write_json(desk.config_dir / "llm.json", llm)
    elif component in ("trading-data-cn", "historical-news-cn"):
        servers["servers"][component] = {"command": "no-such-command-anywhere"}
        files.write_json(mcp, servers)
    elif component == "data":
        patch.setattr("kit.jobs.screen_stages.open_source", broken_data)
    elif component == "rule":
        patch.setattr("kit.bundle.Bundle.engine", lambda _: Bad(KeyError("close")))
    elif component == "rubbish":
        patch.setattr("kit.bundle.Bundle.engine", lambda _: Bad([object(), None, 7]))
    elif component == "card":
        patch.setattr("kit.screen.screen_card", lambda *_: 1 / 0)
    elif component == "disk":

        def full(path: Path) -> None:
            if ".partial" in str(path):
                raise OSError(errno.ENOSPC, "No space left on device", str(path))

        def before(stage: str, _: Path) -> None:
            if stage == "result":
                patch.setattr("kit.files.operation", full)

        return before
    elif component == "channel":
        patch.setattr(FileChannel, "send", lambda *_: 1 / 0)
    elif component == "bundle":
        path = desk.strategies / "ma250-pullback" / "0.3.1" / "manifest.json"
        path.chmod(0o644)
        path.write_text("{", encoding="utf-8")
    return lambda *_: None


@pytest.mark.parametrize(
    ("component", "status", "picks", "said"),
    [
        ("bundle", "degraded", 0, "D-051 策略包与校验和不符：manifest.json"),
        ("trading-data-cn", "degraded", 0, "D-042 数据服务 trading-data-cn 连不上"),
        ("data", "degraded", 0, "D-023 取不到行情：x.parquet：本地行情文件无法读取"),
        ("historical-news-cn", "degraded", 2, "D-024 新闻没有取到：新闻源没有回应"),
        ("filter", "degraded", 2, "D-011 板块过滤失败（服务端报错）"),
        ("explanation", "degraded", 2, "D-011 2 只候选中有 2 只的说明生成失败（服务端报错）"),
        ("budget", "degraded", 2, "D-013 本月模型预算用完"),
        ("rule", "degraded", 0, "D-052 筛选代码报错：code/signal_engine.py：筛选规则出错"),
        ("rubbish", "degraded", 0, "D-021 规则返回的"),
        ("card", "failed", 0, "运行失败"),
        ("disk", "failed", 0, "磁盘不可写"),
        ("channel", "degraded", 2, "2 只候选"),
    ],
)
def test_whatever_fails_a_card_arrives(
    desk: Workspace,
    unattended: Unattended,
    stages_here: Any,
    monkeypatch: pytest.MonkeyPatch,
    component: str,
    status: str,
    picks: int,
    said: str,
) -> None:
    before = spoil(component, desk, monkeypatch)
    outcome, text = unattended(executor=stages_here(desk, before))
    assert (outcome.status, outcome.exit_code) == (status, 0)
    assert "sent" in [receipt.state for receipt in outcome.receipts]
    assert text.strip()
    assert said in text
    assert text.count("　说明（") == picks
    if not picks and component != "card":
        assert LOUD in text
    assert "Traceback" not in text
    if component == "budget":
        assert Model.calls == 0


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
