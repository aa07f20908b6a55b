"""The screen job: requests that are refused, days that are skipped, and runs through a kernel."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pytest_httpserver import HTTPServer
from sqlalchemy import select
from werkzeug import Request as Received
from werkzeug import Response

from kit import files, schemas
from kit.clock import FixedClock, SystemClock
from kit.degradation import Policy, ReportBuilder
from kit.delivery import Receipt
from kit.errors import (
    AlreadyDone,
    ConfigError,
    DataError,
    DeliveryError,
    GuardError,
    Interrupted,
    KitError,
    LockError,
    RegistryError,
    RunError,
    UsageError,
)
from kit.jobs.replay import replay_run
from kit.jobs.screen import ScreenOutcome, run_screen
from kit.runner import RunFailure, RunOutcome
from kit.state import Store, tables
from kit.workspace import Workspace

Make = Callable[..., str]

TWO = """\
found = [Pick(s, 0.01, {"gap_pct": 1.0}, ["near"]) for s in sorted(data_map)]
return found[:2]"""
# Lint lets no frozen version look at this; a draft may.
HEAVY = """\
import sys
heavy = sorted({"litellm", "vectorbt"} & set(sys.modules))
return [Pick("000001.SZ", 0.01, {"heavy": ",".join(heavy) or "none"}, [])]"""


@pytest.fixture
def ran(workspace: Workspace, clock: FixedClock, store: Store) -> Callable[..., ScreenOutcome]:
    def call(ref: str = "tiny-screen", **changes: Any) -> ScreenOutcome:
        values: dict[str, Any] = {"mode": "offline", "clock": clock, "store": store}
        return run_screen(workspace, ref, **{**values, **changes})

    return call


def claims(store: Store) -> int:
    with store.read() as connection:
        return len(connection.execute(select(tables.claims.c.key)).all())


# requests


@pytest.mark.parametrize(
    ("changes", "error", "code"),
    [
        ({"date": "2024-9-19"}, UsageError, "time.bad_date"),
        ({"date": "0001-01-01"}, UsageError, "time.bad_date"),
        ({"date": "9999-12-31"}, UsageError, "time.bad_date"),
        ({"date": "2024-09-20"}, UsageError, "screen.future_date"),
        ({"date": "2017-01-03"}, DataError, "screen.no_bars"),
        ({"mode": "fast"}, UsageError, "llm.bad_mode"),
        ({"limit": 0}, UsageError, "screen.bad_limit"),
        ({"source": "samples"}, UsageError, "data.unknown_source"),
        ({"ref": "tiny-scren"}, RegistryError, "registry.unknown_id"),
        ({"ref": "tiny-screen@9.9.9"}, RegistryError, "registry.unknown_version"),
        ({"ref": "Tiny"}, UsageError, "bundle.bad_id"),
        ({"ref": "tiny-screen@draft", "cron": True}, UsageError, "screen.draft_scheduled"),
    ],
)
def test_a_wrong_request_is_refused_before_anything_is_claimed(
    ran: Callable[..., ScreenOutcome],
    screen_frozen: Make,
    workspace: Workspace,
    store: Store,
    changes: dict[str, Any],
    error: type[KitError],
    code: str,
) -> None:
    screen_frozen(TWO)
    with pytest.raises(error) as caught:
        ran(**changes)
    assert caught.value.code == code
    assert caught.value.remedy
    assert claims(store) == 0
    assert not list(workspace.runs.glob("*/screen-*"))


def test_live_by_hand_without_a_key_is_refused_before_anything_is_claimed(
    ran: Callable[..., ScreenOutcome],
    screen_frozen: Make,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen_frozen(TWO)
    monkeypatch.delenv("KIT_MODE")
    monkeypatch.delenv("DEEPSEEK_API_KEY", raising=False)
    monkeypatch.setattr("kit.jobs.screen.perform", performed)
    with pytest.raises(ConfigError) as caught:
        ran(mode="live")
    assert (caught.value.code, caught.value.exit_code) == ("llm.no_key", 3)
    assert "DEEPSEEK_API_KEY" in caught.value.remedy
    assert claims(store) == 0
    # Unattended, with the key, and where nothing may go live, the run goes on.
    for name, value, options in (
        ("UNUSED", "", {"mode": "live", "cron": True}),
        ("UNUSED", "", {"mode": "auto"}),
        ("DEEPSEEK_API_KEY", "test-key", {"mode": "live"}),
        ("KIT_MODE", "offline", {"mode": "live"}),
    ):
        with monkeypatch.context() as patch, pytest.raises(Performed):
            patch.setenv(name, value)
            ran(**options)


class Performed(Exception):  # noqa: N818 - a signal
    """The run would have begun."""


def performed(*_: Any, **__: Any) -> None:
    raise Performed


def test_no_bars_names_what_there_is(
    ran: Callable[..., ScreenOutcome], screen_frozen: Make
) -> None:
    screen_frozen(TWO)
    with pytest.raises(DataError) as caught:
        ran(clock=FixedClock("2026-03-02T10:00:00+00:00"))
    assert "it covers 2018-06-01 to 2024-09-19" in caught.value.message
    assert caught.value.remedy.endswith("--date 2024-09-19")
    assert caught.value.exit_code == 3


def test_today_before_its_as_of_time(
    ran: Callable[..., ScreenOutcome], screen_frozen: Make
) -> None:
    screen_frozen(TWO)
    early = FixedClock("2024-09-19T08:00:00+00:00")
    with pytest.raises(UsageError) as caught:
        ran(date="2024-09-19", clock=early)
    assert caught.value.code == "screen.too_early"
    waiting = ran(cron=True, clock=early)
    assert (waiting.status, waiting.exit_code, waiting.run) == ("not_due", 0, None)


@pytest.mark.parametrize("options", [{"date": "2024-09-17"}, {"cron": True}])
def test_a_closed_day_leaves_a_receipt_and_sends_nothing(
    ran: Callable[..., ScreenOutcome],
    screen_frozen: Make,
    store: Store,
    options: dict[str, Any],
) -> None:
    screen_frozen(TWO)
    outcome = ran(clock=FixedClock("2024-09-17T09:00:00+00:00"), **options)
    assert (outcome.status, outcome.day, outcome.exit_code) == ("skipped", date(2024, 9, 17), 0)
    assert outcome.reason.startswith("market_closed")
    assert outcome.skip is not None
    assert outcome.skip.path is not None
    assert files.read_json(outcome.skip.path)["reason"] == "market_closed"
    assert outcome.receipts == ()
    assert claims(store) == 0


# unattended, an impossible request still owes a card; no kernel is needed for it


@pytest.mark.parametrize(
    ("ref", "spoiled", "named", "word"),
    [
        ("tiny-scren", "", "tiny-scren@unknown", "tiny-scren"),
        ("tiny-screen@9.9.9", "", "tiny-screen@9.9.9", "9.9.9"),
        ("tiny-screen", "INDEX.json", "tiny-screen@unknown", "INDEX.json"),
        ("tiny-screen", "config/llm.json", "tiny-screen@0.1.0", "config/llm.json"),
        ("tiny-screen", "config/calendars.json", "tiny-screen@0.1.0", "config/calendars.json"),
    ],
)
def test_an_unattended_request_that_cannot_run_says_so_on_a_card(
    ran: Callable[..., ScreenOutcome],
    screen_frozen: Make,
    workspace: Workspace,
    ref: str,
    spoiled: str,
    named: str,
    word: str,
) -> None:
    screen_frozen(TWO)
    if spoiled:
        (workspace.root / spoiled).write_text("{", encoding="utf-8")
    stream = io.StringIO()
    result = ran(ref, cron=True, stream=stream)
    assert (result.status, result.exit_code, result.ref) == ("failed", 0, named)
    text = stream.getvalue()
    assert text.startswith(f"{named} 9月19日(周四)")
    assert "🔴 今日无可推送候选" in text
    assert "D-053" in text
    assert word in text


def test_broken_channels_still_leave_a_card_unattended(
    ran: Callable[..., ScreenOutcome], screen_frozen: Make, workspace: Workspace
) -> None:
    screen_frozen(TWO)
    (workspace.config_dir / "channels.json").write_text("{", encoding="utf-8")
    result = ran("tiny-scren", cron=True, stream=io.StringIO())
    assert [(r.channel, r.state) for r in result.receipts] == [
        ("file", "sent"),
        ("console", "sent"),
    ]


# exit codes


def done(**changes: Any) -> RunOutcome:
    sent = Receipt(channel="file", state="sent", attempts=1, at="", detail="")
    values: dict[str, Any] = {
        "run_id": "r",
        "folder": Path("r"),
        "status": "degraded",
        "card": None,
        "receipts": (sent,),
    }
    return RunOutcome(**{**values, **changes})


def outcome(run: RunOutcome, trigger: str = "", cron: bool = False, **details: Any) -> Any:
    report = ReportBuilder(Policy())
    if trigger:
        report.add(trigger, **details)
    return ScreenOutcome(
        status=run.status,
        ref="x@1.0.0",
        day=date(2024, 9, 19),
        run=run,
        result={"degradation_report": report.build().to_dict()},
        cron=cron,
    )


FAILED = RunFailure(kind="kernel_died", message="m", run_id="r", card_id="c")
UNSENT = (Receipt(channel="file", state="failed", attempts=1, at="", detail="no"),)


@pytest.mark.parametrize(
    ("run", "trigger", "error", "by_hand", "unattended"),
    [
        (done(), "picks_count_below_target", None, 0, 0),
        (done(), "bundle_tampered", GuardError, 4, 0),
        (done(), "env_lock_failed", LockError, 4, 0),
        (done(), "data_unavailable", DataError, 3, 0),
        (done(), "screen_failed", RunError, 5, 0),
        (done(status="failed", failure=FAILED), "", RunError, 5, 0),
        (done(receipts=UNSENT), "", DeliveryError, 6, 6),
        (done(status="failed", failure=FAILED, receipts=UNSENT), "", RunError, 5, 6),
        (done(receipts=()), "", None, 0, 0),
        (done(status="failed", failure=FAILED, receipts=(), folder=None), "", RunError, 5, 5),
        (
            done(status="interrupted", failure=replace(FAILED, kind="interrupted"), receipts=()),
            "",
            Interrupted,
            130,
            130,
        ),
    ],
)
def test_exit_codes(
    run: RunOutcome, trigger: str, error: type[KitError] | None, by_hand: int, unattended: int
) -> None:
    hand = outcome(run, trigger, files=["f"], names=["n"], error="e", actual=1, target=2)
    assert hand.exit_code == by_hand
    assert isinstance(hand.error(), error or type(None))
    assert json.dumps(hand.to_dict())
    assert outcome(run, trigger, cron=True).exit_code == unattended


# through a kernel


@pytest.mark.kernel
def test_the_real_thing_from_request_to_receipts(
    ran: Callable[..., ScreenOutcome], screen_frozen: Make, store: Store
) -> None:
    screen_frozen(TWO)
    stream = io.StringIO()
    started = time.monotonic()
    result = ran(stream=stream)
    assert time.monotonic() - started < 60
    assert (result.status, result.exit_code, result.ref) == ("degraded", 0, "tiny-screen@0.1.0")
    assert result.run is not None
    assert result.run.folder is not None
    assert [(r.channel, r.state) for r in result.receipts] == [
        ("file", "sent"),
        ("console", "sent"),
    ]
    folder = result.run.folder
    names = {path.name for path in folder.iterdir()}
    assert names >= {
        "run.json",
        "notebook.ipynb",
        "picks.json",
        "degradation.json",
        "card.json",
        "llm.jsonl",
        "receipts.json",
        "delivered",
    }
    assert result.result is not None
    assert schemas.validate("picks", result.result) == []
    text = stream.getvalue()
    assert text.startswith("tiny-screen@0.1.0 9月19日(周四)\n\n2 只候选\n")
    assert (folder / "delivered" / "card.txt").read_text(encoding="utf-8").strip() == text.strip()
    assert f"运行 {result.run.run_id} · 数据 sample · 模式 离线" in text
    assert result.result["provenance"]["run_id"] == result.run.run_id
    # The same request again changes nothing; another attempt is asked for by name.
    with pytest.raises(AlreadyDone):
        ran()
    assert claims(store) == 1


@pytest.mark.kernel
def test_a_draft_goes_nowhere_unless_asked(
    ran: Callable[..., ScreenOutcome], screen_draft: Make
) -> None:
    stream = io.StringIO()
    result = ran(screen_draft(HEAVY), stream=stream)
    assert result.receipts == ()
    assert stream.getvalue() == ""
    assert result.run is not None
    assert result.run.card is not None
    assert result.run.card.title.startswith("【草稿】tiny-screen@draft")
    # The kernel of an offline screen imports neither of the heavy libraries.
    assert result.result is not None
    assert result.result["picks"][0]["fields"] == {"heavy": "none"}


def test_a_tampered_version_delivers_its_empty_loud_card(
    ran: Callable[..., ScreenOutcome],
    screen_frozen: Make,
    workspace: Workspace,
    tmp_path: Path,
    stages_here: Any,
) -> None:
    screen_frozen(TWO)
    marker = tmp_path / "it-ran"
    engine = workspace.strategies / "tiny-screen" / "0.1.0" / "code" / "signal_engine.py"
    engine.chmod(0o644)
    changed = engine.read_text(encoding="utf-8") + f"\nopen({str(marker)!r}, 'w')\n"
    engine.write_text(changed, encoding="utf-8")
    stream, here = io.StringIO(), stages_here(workspace)
    result = ran(stream=stream, executor=here)
    assert not marker.exists()
    assert (result.status, result.exit_code) == ("degraded", 4)
    error = result.error()
    assert error is not None
    assert error.code == "bundle.tampered"
    assert "code/signal_engine.py" in error.message
    text = stream.getvalue()
    assert "🔴 今日无可推送候选" in text
    assert "code/signal_engine.py" in text
    assert result.result is not None
    assert result.result["picks"] == []
    # Unattended it is another run, with the same card and no error.
    again = ran(cron=True, stream=io.StringIO(), executor=here)
    assert (again.status, again.exit_code) == ("degraded", 0)
    assert again.run is not None
    assert again.run.delivered


@pytest.mark.kernel
def test_a_manifest_that_is_no_json_still_gets_its_card(
    ran: Callable[..., ScreenOutcome], screen_frozen: Make, workspace: Workspace
) -> None:
    screen_frozen(TWO)
    manifest = workspace.strategies / "tiny-screen" / "0.1.0" / "manifest.json"
    manifest.chmod(0o644)
    manifest.write_text("{", encoding="utf-8")
    stream = io.StringIO()
    result = ran(stream=stream)
    assert result.exit_code == 4
    assert "manifest.json" in stream.getvalue()
    assert stream.getvalue().startswith("tiny-screen@0.1.0 9月19日")


@pytest.mark.kernel
def test_a_dead_kernel_leaves_a_card_made_from_what_it_left(
    ran: Callable[..., ScreenOutcome], screen_frozen: Make
) -> None:
    screen_frozen("import os\nos._exit(7)")
    stream = io.StringIO()
    result = ran(stream=stream)
    assert (result.status, result.exit_code) == ("failed", 5)
    assert result.run is not None
    text = stream.getvalue()
    assert text.startswith("tiny-screen@0.1.0 9月19日(周四)")
    assert "🔴 今日无可推送候选" in text
    # What was known before, then how it ended and where.
    assert text.index("D-012") < text.index("D-054 运行进程在「筛选」被终止")
    assert text.strip().endswith(f"卡片 {result.run.card.card_id}")  # type: ignore[union-attr]
    assert result.result is not None
    assert schemas.validate("picks", result.result) == []
    assert result.result["picks"] == []
    assert files.read_json(result.run.folder / "degradation.json")["degraded"] is True  # type: ignore[operator]


GOOD = {
    "id": "c-1",
    "object": "chat.completion",
    "created": 1,
    "model": "tiny",
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}
KEY = "test-key-0123456789"


@pytest.fixture
def server() -> Iterator[HTTPServer]:
    with HTTPServer(host="127.0.0.1", threaded=True) as running:
        yield running


@pytest.mark.kernel
@pytest.mark.slow
def test_live_through_a_kernel_and_a_real_server(
    ran: Callable[..., ScreenOutcome],
    screen_frozen: Make,
    base_manifest: dict[str, Any],
    workspace: Workspace,
    server: HTTPServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = workspace.config_dir / "llm.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config["providers"]["openai"] = {
        "key_env": "TINY_API_KEY",
        "base_url": server.url_for("/v1"),
    }
    path.write_text(json.dumps(config), encoding="utf-8")
    steps = {
        name: {**step, "model": "openai/tiny"} for name, step in base_manifest["llm_steps"].items()
    }
    screen_frozen(TWO, manifest={"llm_steps": steps})
    seen: list[str] = []

    def handle(request: Received) -> Response:
        seen.append(request.headers.get("Authorization", ""))
        inputs = json.loads(request.get_json()["messages"][1]["content"])
        if "pick" not in inputs:
            text = '{"focus_sectors": [], "rationale": "无新闻"}'
        elif inputs["pick"]["symbol"] == "000001.SZ":
            text = '{"reason_text": "贴近均线 [点我](http://x)", "confidence": "high"}'
        else:
            text = '{"reason_text": "目标价 99 元", "confidence": "high"}'
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        return Response(json.dumps({**GOOD, "choices": [choice]}), content_type="application/json")

    server.expect_request("/v1/chat/completions").respond_with_handler(handle)
    monkeypatch.delenv("KIT_MODE")
    monkeypatch.setenv("TINY_API_KEY", KEY)
    stream = io.StringIO()
    result = ran(mode="auto", stream=stream)
    assert seen == [f"Bearer {KEY}"] * 3
    assert result.result is not None
    # A link, and a number out of nowhere: neither sentence is taken.
    assert [p["reason_mode"] for p in result.result["picks"]] == ["template", "template"]
    assert result.result["provenance"]["mode"] == "live"
    assert "99 元" not in stream.getvalue()
    assert "点我" not in stream.getvalue()
    assert result.run is not None
    assert result.run.folder is not None
    for file in result.run.folder.rglob("*"):
        if file.is_file():
            assert KEY.encode() not in file.read_bytes(), file.name
    # The server is switched off, the key is gone: the run can be done over, byte for byte.
    server.stop()
    monkeypatch.delenv("TINY_API_KEY")
    found = replay_run(workspace, result.run.run_id, clock=SystemClock())
    assert (found.difference, len(found.compared)) == ("", 4)
    assert len(seen) == 3


def test_importing_the_job_is_light() -> None:
    code = "import sys, kit.jobs.screen; print([m for m in "
    code += "('litellm', 'vectorbt', 'papermill', 'jsonschema') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ},
    )
    assert done.stdout.strip() == "[]"
