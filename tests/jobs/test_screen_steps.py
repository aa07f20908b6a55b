"""The LLM steps of a screen: paid for, shadowed, audited, and given again from the record."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from kit import files, schemas
from kit.clock import FixedClock
from kit.delivery import FileChannel
from kit.errors import RunError, UsageError
from kit.jobs.llm_budget import deliver_budget_alert
from kit.jobs.screen_stages import ScreenRun
from kit.llm import CallError, Completion, Request, Usage
from kit.llm.models import Price
from kit.state import Store, tables
from kit.workspace import Workspace

STAGES = (
    "load_bundle", "check_lock", "load_data", "news", "sector_filter", "screen", "rank",
    "explain", "result", "card",
)  # fmt: skip
DAY = "2024-09-19"
TWO = """\
close = {s: float(data_map[s]["close"].iloc[-1]) for s in sorted(data_map)}
found = [Pick(s, 0.01, {"close": close[s], "gap_pct": 1.0}, ["near"]) for s in sorted(close)]
return found[:2]"""

Make = Callable[..., str]


class Model:
    """Stands where litellm does: every call costs a thousandth of a dollar."""

    calls = 0
    broken = False

    def __init__(self, _: Any) -> None:
        pass

    def price(self, _: str) -> Price:
        return Price(prompt=0, completion=1)

    def complete(self, request: Request) -> Completion:
        Model.calls += 1
        if Model.broken:
            raise CallError("connection", "the server is switched off")
        inputs = json.loads(request.messages[1]["content"])
        text = {"focus_sectors": [], "rationale": "无"}
        if "pick" in inputs:
            text = {"reason_text": "贴近均线", "confidence": "high"}
        usage = Usage(prompt_tokens=9, completion_tokens=9, cost_usd=0.001)
        return Completion(text=json.dumps(text), finish_reason="stop", usage=usage, model="m")


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> type[Model]:
    monkeypatch.delenv("KIT_MODE")
    monkeypatch.setenv("DEEPSEEK_API_KEY", "test-key-0123")
    monkeypatch.setattr("kit.jobs.llm_budget.LiteLLM", Model)
    Model.calls, Model.broken = 0, False
    return Model


def played(
    workspace: Workspace, ref: str, folder: Path, replay: Path | None = None, mode: str = "auto"
) -> ScreenRun:
    folder.mkdir()
    run = ScreenRun.open(
        bundle=ref,
        date=DAY,
        mode=mode,
        replay=str(replay or ""),
        now=f"{DAY}T08:40:00+00:00",
        run_folder=str(folder),
        run_id=f"{DAY}/screen-{ref}/1",
        card_id="a1b2c3d4",
        workspace=workspace,
        timer=FixedClock(f"{DAY}T08:40:00+00:00"),
    )
    for stage in STAGES:
        getattr(run, stage)()
    return run


def same(one: Path, other: Path) -> None:
    for name in ("picks.json", "degradation.json", "card.json"):
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


def budget(workspace: Workspace, monthly: float) -> None:
    path = workspace.config_dir / "llm.json"
    value = files.read_json(path)
    value["budget"]["monthly_usd"] = monthly
    path.write_text(json.dumps(value), encoding="utf-8")


def rows(workspace: Workspace, table: Any) -> list[Any]:
    with Store(workspace.state_path).read() as connection:
        return list(connection.execute(select(table)).mappings())


def test_a_live_run_is_paid_for_shadowed_and_audited(
    workspace: Workspace, screen_draft: Make, tmp_path: Path, model: type[Model]
) -> None:
    played(workspace, screen_draft(TWO), tmp_path / "run")
    calls = rows(workspace, tables.llm_calls)
    assert [(c["state"], c["micro_usd"], c["basis"]) for c in calls] == [
        ("settled", 1_000, "table")
    ] * 3
    assert [c["step"] for c in calls] == ["event_sector_filter", *["pick_explanation"] * 2]
    assert {c["month"] for c in calls} == {"2024-09"}
    lines = files.read_json_lines(tmp_path / "run" / "llm.jsonl")
    assert [schemas.validate("llm-record", line) for line in lines] == [[]] * 3
    # Without news the stand-in names no sector either: two empty sets are the same.
    assert lines[0]["shadow"]["agreement"] == {
        "focus_sectors": {"measure": "jaccard", "score": 1.0}
    }
    audits = [json.loads(row["body"]) for row in rows(workspace, tables.audit)]
    assert [(a["step"], a["mode"], a["wanted"], a["fallbacks"], a["rate"]) for a in audits] == [
        ("event_sector_filter", "live", 1, 0, 0.0),
        ("pick_explanation", "live", 2, 0, 0.0),
    ]


@pytest.mark.parametrize("kind", ["live", "offline", "broken", "skipped"])
def test_a_replay_reproduces_picks_and_card_byte_for_byte(
    workspace: Workspace,
    screen_draft: Make,
    base_manifest: dict[str, Any],
    tmp_path: Path,
    model: type[Model],
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    rule = {"trigger": "llm_offline_equivalent", "action": "skip_step"}
    policy = base_manifest["degradation_policy"]
    policy = {**policy, "rules": [*policy["rules"], rule]}
    ref = screen_draft(TWO, manifest={"degradation_policy": policy} if kind == "skipped" else {})
    model.broken = kind == "broken"
    mode = "auto" if kind in {"live", "broken"} else "offline"
    played(workspace, ref, tmp_path / "first", mode=mode)
    wanted = files.read_json(tmp_path / "first" / "picks.json")["provenance"]["mode"]
    assert wanted == {"broken": "live", "skipped": "none"}.get(kind, kind)
    # Nobody to ask, no key, and an environment that forbids models: the record answers.
    model.broken, model.calls = True, 0
    monkeypatch.delenv("DEEPSEEK_API_KEY")
    monkeypatch.setenv("KIT_MODE", "offline")
    played(workspace, ref, tmp_path / "second", replay=tmp_path / "first", mode=mode)
    same(tmp_path / "first", tmp_path / "second")
    assert model.calls == 0
    # And the record of a replay replays.
    played(workspace, ref, tmp_path / "third", replay=tmp_path / "second", mode=mode)
    same(tmp_path / "first", tmp_path / "third")


def test_one_byte_of_a_prompt_shows_the_first_difference(
    workspace: Workspace, screen_draft: Make, tmp_path: Path, model: type[Model]
) -> None:
    ref = screen_draft(TWO)
    played(workspace, ref, tmp_path / "first")
    path = workspace.strategies / "tiny-screen" / "draft" / "prompts" / "event_sector_filter.md"
    text = path.read_text("utf-8")
    path.write_text(text.replace("Name the sectors", "name the sectors"), encoding="utf-8")
    with pytest.raises(RunError) as caught:
        played(workspace, ref, tmp_path / "second", replay=tmp_path / "first")
    assert caught.value.code == "llm.replay_miss"
    assert re.search(
        r"step event_sector_filter, request 1: request\.messages\[0\]\.content differs at "
        r"character \d+: recorded '.*Name the sectors.*', now '.*name the sectors",
        caught.value.message,
    )


def test_a_replay_needs_a_record(workspace: Workspace, screen_draft: Make, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        played(workspace, screen_draft(TWO), tmp_path / "run", mode="replay")
    assert (caught.value.code, "kit replay" in caught.value.remedy) == ("llm.bad_mode", True)


def test_the_budget_runs_out_between_two_picks(
    workspace: Workspace, screen_draft: Make, tmp_path: Path, model: type[Model]
) -> None:
    ref = screen_draft(TWO)
    played(workspace, ref, tmp_path / "rich")
    spent = sum(row["micro_usd"] for row in rows(workspace, tables.llm_calls))
    most = files.read_json(workspace.strategies / "tiny-screen" / "draft" / "manifest.json")
    tokens = most["llm_steps"]["pick_explanation"]["max_tokens"]
    # Room for the filter's cost and one reservation of a pick, not for two.
    budget(workspace, (spent + 1_000 + tokens * 1.5) / 1e6)
    model.calls = 0
    run = played(workspace, ref, tmp_path / "poor")
    assert model.calls == 2
    picks = files.read_json(tmp_path / "poor" / "picks.json")
    assert sorted(pick["reason_mode"] for pick in picks["picks"]) == ["live", "template"]
    entry = picks["degradation_report"]["entries"][-1]
    assert (entry["trigger"], entry["code"], entry["step"]) == (
        "budget_exceeded", "D-013", "pick_explanation",
    )  # fmt: skip
    assert entry["reason"].startswith("本月模型预算已用完（monthly_usd=")
    assert run._card is not None
    assert "D-013" in json.dumps(run._card.to_dict(), ensure_ascii=False)
    kinds = [json.loads(row["body"])["kinds"] for row in rows(workspace, tables.audit)]
    assert kinds[-1] == {"budget_exceeded": 1}


def test_the_alert_goes_out_once(
    workspace: Workspace, screen_draft: Make, tmp_path: Path, model: type[Model]
) -> None:
    clock, store = FixedClock(f"{DAY}T09:00:00+00:00"), Store(workspace.state_path)
    channels = [FileChannel()]
    budget(workspace, 0.003_5)
    assert deliver_budget_alert(workspace, store, clock, channels) == []
    played(workspace, screen_draft(TWO), tmp_path / "run")  # three thousandths: 86 %
    receipts = deliver_budget_alert(workspace, store, clock, channels)
    assert [receipt.state for receipt in receipts] == ["sent"]
    (text,) = [p.read_text("utf-8") for p in workspace.runs.glob("alerts/*/delivered/card.txt")]
    assert "本月模型花费 0.00 美元，已达预算 0.0035 美元的 86%" in text
    (card,) = workspace.runs.glob("alerts/*/delivered/card.json")
    assert schemas.validate("card", files.read_json(card)) == []
    assert deliver_budget_alert(workspace, store, clock, channels) == []
    # A store that is out of order leaves it to the next job.
    assert deliver_budget_alert(workspace, Store(tmp_path), clock, channels) == []
