"""A run done over from its folder: the same bytes, or the first difference."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kit import files
from kit.clock import FixedClock
from kit.errors import UsageError
from kit.jobs.replay import Replay, latest_screen, replay_run
from kit.jobs.screen import run_screen
from kit.llm import Completion, Request
from kit.llm.models import Price
from kit.state import Store
from kit.workspace import Workspace

Make = Callable[..., str]
TWO = """\
close = {s: float(data_map[s]["close"].iloc[-1]) for s in sorted(data_map)}
found = [Pick(s, 0.01, {"close": close[s], "gap_pct": 1.0}, ["near"]) for s in sorted(close)]
return found[:2]"""
NEWS = {
    "news_id": "1", "title": "年报", "summary": "正文", "categories": ["notice"],
    "published_at": "2024-09-19T18:00:00+08:00", "precision": "instant",
    "symbols": ["000001.SZ"], "source": "test",
}  # fmt: skip


class Model:
    """Stands where litellm does, and counts."""

    calls = 0
    off = False

    def __init__(self, _: Any) -> None:
        pass

    def price(self, _: str) -> Price:
        return Price(prompt=0, completion=1)

    def complete(self, request: Request) -> Completion:
        assert not Model.off, "a replay asked a model"
        Model.calls += 1
        inputs = json.loads(request.messages[1]["content"])
        said = {"focus_sectors": [], "rationale": "无"}
        if "pick" in inputs:
            said = {"reason_text": "贴近均线", "confidence": "high"}
        return Completion(text=json.dumps(said, ensure_ascii=False), finish_reason="stop")


@pytest.fixture
def live_run(
    workspace: Workspace,
    screen_frozen: Make,
    store: Store,
    clock: FixedClock,
    stages_here: Any,
    stand_in: Callable[..., Workspace],
    monkeypatch: pytest.MonkeyPatch,
) -> str:
    """A finished live screen; from then on no model answers and no server starts."""
    monkeypatch.delenv("KIT_MODE")
    monkeypatch.setenv("DEEPSEEK_API_KEY", "test-key-0123")
    monkeypatch.setattr("kit.jobs.llm_budget.LiteLLM", Model)
    Model.calls, Model.off = 0, False
    stand_in(workspace, news=[NEWS])
    clock = FixedClock("2024-09-19T12:00:00+00:00")
    done = run_screen(
        workspace, screen_frozen(TWO), clock=clock, store=store, executor=stages_here(workspace)
    )
    assert done.run is not None
    assert done.run.folder is not None
    assert Model.calls == 3
    assert done.result is not None
    assert done.result["provenance"]["mode"] == "live"
    assert done.result["provenance"]["news"]["count"] == 1
    Model.off = True
    monkeypatch.delenv("DEEPSEEK_API_KEY")
    monkeypatch.setenv("KIT_MODE", "offline")
    path = workspace.config_dir / "mcp.json"
    path.write_text('{"schema_version": "1.0", "servers": {}}', encoding="utf-8")
    return done.run.run_id


@pytest.fixture
def replayed(workspace: Workspace, stages_here: Any) -> Callable[..., Replay]:
    def call(reference: str) -> Replay:
        clock = FixedClock("2030-01-01T00:00:00+00:00")
        return replay_run(workspace, reference, clock=clock, executor=stages_here(workspace))

    return call


RESULTS = ("signals.json", "picks.json", "degradation.json", "card.json")


def test_a_live_run_replays_byte_for_byte_with_everything_switched_off(
    workspace: Workspace, live_run: str, replayed: Callable[..., Replay]
) -> None:
    before = {p: p.read_bytes() for p in workspace.runs.rglob("*") if p.is_file()}
    found = replayed(live_run)
    assert found.error() is None
    assert found.to_dict() == {
        "run_id": live_run, "identical": True, "compared": list(RESULTS), "difference": "",
    }  # fmt: skip
    after = {p: p.read_bytes() for p in workspace.runs.rglob("*") if p.is_file()}
    assert after == before, "a replay leaves no trace"


def test_one_byte_of_a_frozen_prompt_is_found_by_its_checksum(
    workspace: Workspace, live_run: str, replayed: Callable[..., Replay]
) -> None:
    prompt = workspace.strategies / "tiny-screen" / "0.1.0" / "prompts" / "pick_explanation.md"
    prompt.chmod(0o644)
    prompt.write_bytes(prompt.read_bytes().replace(b"# ", b"* ", 1))
    found = replayed(live_run)
    error = found.error()
    assert error is not None
    assert (error.code, error.exit_code) == ("replay.differs", 5)
    assert "prompts/pick_explanation.md" in found.difference


def test_one_byte_of_a_drafts_prompt_shows_where_the_request_differs(
    workspace: Workspace,
    screen_draft: Make,
    store: Store,
    clock: FixedClock,
    stages_here: Any,
    replayed: Callable[..., Replay],
) -> None:
    ref = screen_draft(TWO)
    here = stages_here(workspace)
    done = run_screen(workspace, ref, clock=clock, store=store, executor=here)
    assert done.run is not None
    assert replayed(done.run.run_id).error() is None
    prompt = workspace.strategies / "tiny-screen" / "draft" / "prompts" / "pick_explanation.md"
    text = prompt.read_text(encoding="utf-8")
    body = text.index("## Task") + len("## Task\n")
    prompt.write_text(f"{text[:body]}X{text[body + 1 :]}", encoding="utf-8")
    found = replayed(done.run.run_id)
    assert "step pick_explanation, request 1: request.messages[0].content differs" in (
        found.difference
    )
    assert "now '" in found.difference
    assert "X" in found.difference.rpartition("now '")[2]


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("card.json", lambda v: v | {"title": "x"}, "card.json: title differs at character 1"),
        (
            "signals.json",
            lambda v: v | {"found": v["found"][:1]},
            "signals.json: found has another length",
        ),
        ("picks.json", None, "picks.json: the run left none"),
    ],
)
def test_the_first_file_that_differs_is_named(
    workspace: Workspace,
    live_run: str,
    replayed: Callable[..., Replay],
    name: str,
    change: Any,
    said: str,
) -> None:
    path = workspace.runs / live_run / name
    if change is None:
        path.unlink()
    else:
        files.write_json(path, change(files.read_json(path)))
    found = replayed(live_run)
    assert found.difference.startswith(said)
    assert found.compared == RESULTS[: RESULTS.index(name) + 1]


def test_a_record_that_lacks_an_answer_is_a_difference(
    workspace: Workspace, live_run: str, replayed: Callable[..., Replay]
) -> None:
    record = workspace.runs / live_run / "llm.jsonl"
    lines = record.read_text(encoding="utf-8").splitlines(keepends=True)
    record.write_text("".join(lines[:-1]), encoding="utf-8")
    assert "pick_explanation" in replayed(live_run).difference


def test_what_cannot_be_replayed_is_refused(
    workspace: Workspace, live_run: str, replayed: Callable[..., Replay]
) -> None:
    with pytest.raises(UsageError, match="no run") as caught:
        replayed("2001-01-01/screen-x/1")
    assert caught.value.code == "run.unknown"
    record = workspace.runs / live_run / "run.json"
    value = files.read_json(record)
    files.write_json(record, value | {"status": "failed"})
    with pytest.raises(UsageError) as caught:
        replayed(live_run)
    assert caught.value.code == "replay.unfinished"
    notebook = workspace.notebooks / "production" / "daily_screen.ipynb"
    text = notebook.read_text(encoding="utf-8")
    old = workspace.notebooks / "production" / "old.ipynb"
    old.write_text(text.replace("replay", "again"), encoding="utf-8")
    files.write_json(record, value | {"notebook": "notebooks/production/old.ipynb"})
    with pytest.raises(UsageError) as caught:
        replayed(live_run)
    assert caught.value.code == "replay.unsupported"


def test_the_latest_screen_is_the_last_finished_attempt_of_the_last_date(
    workspace: Workspace, live_run: str
) -> None:
    def copy(to: str, status: str) -> None:
        folder = workspace.runs / to
        shutil.copytree(workspace.runs / live_run, folder)
        value = files.read_json(folder / "run.json")
        files.write_json(folder / "run.json", value | {"status": status})

    base, _, _ = live_run.rpartition("/")
    copy(f"{base}/2", "degraded")
    copy(f"{base}/3", "failed")
    copy(f"2024-09-18/{Path(base).name}/1", "ok")
    assert latest_screen(workspace, "tiny-screen") == f"{base}/2"
    assert latest_screen(workspace, "tiny-screen@0.1.0", "2024-09-18").startswith("2024-09-18/")
    with pytest.raises(UsageError) as caught:
        latest_screen(workspace, "tiny-screen", "2024-09-17")
    assert caught.value.code == "run.unknown"
