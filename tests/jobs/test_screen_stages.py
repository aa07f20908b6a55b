"""The stages of a screen in one process: every degradation, and that a card is always written."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from kit import files, schemas
from kit.card import render_card
from kit.clock import FixedClock
from kit.degradation import DegradationReport
from kit.errors import RegistryError, RunError, UsageError
from kit.jobs.screen_stages import ScreenRun
from kit.jobs.screen_steps import StepRunner
from kit.jobs.view import View
from kit.llm import CallError, Completion, Request
from kit.workspace import Workspace

STAGES = (
    "load_bundle",
    "check_lock",
    "load_data",
    "news",
    "sector_filter",
    "screen",
    "rank",
    "explain",
    "result",
    "card",
)
DAY = "2024-09-19"
TWO = """\
close = {s: float(data_map[s]["close"].iloc[-1]) for s in sorted(data_map)}
found = [Pick(s, 0.01, {"close": close[s], "gap_pct": 1.0}, ["near"]) for s in sorted(close)]
return found[:2]"""

Make = Callable[..., str]


def opened(workspace: Workspace, ref: str, tmp_path: Path, **changes: Any) -> ScreenRun:
    folder = tmp_path / "run"
    folder.mkdir(exist_ok=True)
    values: dict[str, Any] = {
        "bundle": ref,
        "date": DAY,
        "mode": "auto",
        "now": f"{DAY}T08:40:00+00:00",
        "run_folder": str(folder),
        "run_id": f"{DAY}/screen-{ref}/1",
        "card_id": "a1b2c3d4",
        "workspace": workspace,
    }
    return ScreenRun.open(**{**values, **changes})


def played(run: ScreenRun) -> dict[str, View]:
    views = {stage: getattr(run, stage)() for stage in STAGES}
    assert run.finish()
    return views


def written(run: ScreenRun) -> tuple[dict[str, Any], list[tuple[str, str]], str]:
    """Return picks.json, (code, action) of each degradation, and the plain card."""
    picks = files.read_json(run.folder / "picks.json")
    report = files.read_json(run.folder / "degradation.json")
    card = files.read_json(run.folder / "card.json")
    assert schemas.validate("picks", picks) == []
    assert schemas.validate("card", card) == []
    assert picks["degradation_report"] == report
    entries = DegradationReport.from_dict(report).entries
    assert run._card is not None
    text = render_card(run._card, "plain")
    return picks, [(entry.code, entry.action) for entry in entries], text


OFFLINE = [("D-012", "use_offline_equivalent")]


def test_the_whole_flow(workspace: Workspace, screen_draft: Make, tmp_path: Path) -> None:
    run = opened(workspace, screen_draft(TWO), tmp_path)
    views = played(run)
    picks, codes, text = written(run)
    assert picks["skill_id"] == "tiny-screen@draft"
    assert (picks["date"], picks["asof"]) == (DAY, f"{DAY}T15:00:00+08:00")
    assert [pick["symbol"] for pick in picks["picks"]] == ["000001.SZ", "000151.SZ"]
    assert [pick["reason_mode"] for pick in picks["picks"]] == ["offline", "offline"]
    assert picks["universe"]["asked"] == 10
    assert codes == [*OFFLINE, ("D-031", "push_partial"), ("D-012", "use_offline_equivalent")]
    assert text.startswith("【草稿】tiny-screen@draft 9月19日(周四)\n\n2 只候选\n")
    assert "供 9月20日(周五) 开盘参考" in text
    provenance = picks["provenance"]
    assert provenance["mode"] == "offline"
    assert [step["step"] for step in provenance["steps"]] == [
        "event_sector_filter",
        "pick_explanation",
    ]
    servers = {"trading-data-cn": "1.0.0"}
    assert provenance["env_lock"] == {"status": "valid", "stages_failed": [], "servers": servers}
    lock = files.read_json(run.folder / "lock.json")
    assert schemas.validate("lock-answer", lock) == []
    assert lock["tools"] == [{"mcp": "trading-data-cn", "tool": "get_bars", "evidence": "schema"}]
    assert "环境锁已核对" in text
    assert provenance["news"] == {
        "status": "none_found",
        "count": 0,
        "undated": 0,
        "left_out": 0,
        "source": "sample",
        "synthetic": False,
    }
    assert "新闻：窗口内没有（sample）\n板块过滤：离线规则" in text
    for name in ("news", "signals"):
        left = files.read_json(run.folder / f"{name}.json")
        assert schemas.validate(f"screen-{name}", left) == []
    lines = files.read_json_lines(run.folder / "llm.jsonl")
    assert [schemas.validate("llm-record", line) for line in lines] == [[], [], []]
    for view in views.values():
        assert view.title in view._repr_html_()
        assert repr(view).startswith(view.title)


def test_the_same_inputs_give_the_same_bytes(
    workspace: Workspace, screen_draft: Make, tmp_path: Path
) -> None:
    ref = screen_draft(TWO)
    texts = []
    for name in ("a", "b"):
        folder = tmp_path / name
        folder.mkdir()
        played(opened(workspace, ref, tmp_path, run_folder=str(folder)))
        texts.append([(folder / n).read_bytes() for n in ("picks.json", "card.json")])
    assert texts[0] == texts[1]


def aborted(run: ScreenRun, code: str, word: str) -> str:
    views = played(run)
    picks, codes, text = written(run)
    assert codes[-1] == (code, "abort_with_report")
    assert picks["picks"] == []
    assert picks["degradation_report"]["degraded"] is True
    assert "🔴 今日无可推送候选" in text
    assert word in text
    assert any("本阶段不再执行" in view.title for view in views.values())
    return text


def test_a_tampered_version_never_runs(
    workspace: Workspace, screen_frozen: Make, tmp_path: Path
) -> None:
    screen_frozen("raise SystemExit('must not run')")
    root = next(
        path for path in (workspace.strategies / "tiny-screen").iterdir() if path.name[0].isdigit()
    )
    engine = root / "code" / "signal_engine.py"
    engine.chmod(0o644)
    engine.write_text(engine.read_text(encoding="utf-8") + "#\n", encoding="utf-8")
    text = aborted(
        opened(workspace, f"tiny-screen@{root.name}", tmp_path), "D-051", "code/signal_engine.py"
    )
    assert text.startswith(f"tiny-screen@{root.name} ")


def test_a_missing_variable_aborts(
    workspace: Workspace, screen_draft: Make, base_manifest: dict[str, Any], tmp_path: Path
) -> None:
    lock = base_manifest["env_lock"] | {
        "required_env": [{"name": "TINY_TOKEN", "purpose": "data"}],
        "required_db": [{"alias": "bars", "kind": "postgres", "purpose": "cache"}],
    }
    ref = screen_draft(TWO, manifest={"env_lock": lock})
    run = opened(workspace, ref, tmp_path)
    text = aborted(run, "D-041", "请设置环境变量 TINY_TOKEN")
    # Every failure at once: the database too, that nothing says how to reach.
    assert "请在 config/databases.json 登记数据库 bars" in text
    lock = files.read_json(run.folder / "lock.json")
    assert schemas.validate("lock-answer", lock) == []
    assert lock["stages_failed"] == ["required_env", "required_db"]


def test_a_server_that_is_not_there_aborts(
    workspace: Workspace, screen_draft: Make, base_manifest: dict[str, Any], tmp_path: Path
) -> None:
    lock = json.loads(json.dumps(base_manifest["env_lock"]))
    lock["required_mcps"][0]["name"] = "nobody"
    run = opened(workspace, screen_draft(TWO, manifest={"env_lock": lock}), tmp_path)
    # In the words of the bundle's own policy; what to install is in the answer.
    text = aborted(run, "D-042", "nobody 不可用")
    assert "环境锁已核对" not in text
    lock = files.read_json(run.folder / "lock.json")
    assert "请安装 nobody 1.0 以上版本（pip:trading-data-cn==1.0.3）" in lock["remedy_hint"]


def test_a_configuration_that_cannot_be_read_aborts(
    workspace: Workspace, screen_draft: Make, tmp_path: Path
) -> None:
    (workspace.config_dir / "mcp.json").unlink()
    run = opened(workspace, screen_draft(TWO), tmp_path)
    aborted(run, "D-041", "config/mcp.json")
    assert (
        files.read_json(run.folder / "picks.json")["provenance"]["env_lock"]["status"] == "failed"
    )


def test_another_channel_can_be_forced_and_is_told(
    workspace: Workspace,
    screen_draft: Make,
    base_manifest: dict[str, Any],
    stand_in: Callable[..., Workspace],
    tmp_path: Path,
) -> None:
    stand_in(workspace, channel="community")
    lock = json.loads(json.dumps(base_manifest["env_lock"]))
    lock["required_mcps"][0]["channel"] = "internal-a-share"
    ref = screen_draft(TWO, manifest={"env_lock": lock})
    aborted(opened(workspace, ref, tmp_path), "D-041", "的渠道应为 internal-a-share")
    run = opened(workspace, ref, tmp_path, force_channel=True)
    played(run)
    picks, codes, text = written(run)
    assert codes[0] == ("D-043", "push_with_warning")
    assert len(picks["picks"]) == 2
    assert "渠道应为 internal-a-share，实为 community，已由人工放行" in text


def test_a_variable_that_is_there_is_enough(
    workspace: Workspace,
    screen_draft: Make,
    base_manifest: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TINY_TOKEN", "s3cret-value")
    lock = base_manifest["env_lock"] | {"required_env": [{"name": "TINY_TOKEN", "purpose": "d"}]}
    run = opened(workspace, screen_draft(TWO, manifest={"env_lock": lock}), tmp_path)
    views = played(run)
    assert "TINY_TOKEN  已配置" in repr(views["check_lock"])
    assert "MCP trading-data-cn  版本 1.0.0" in repr(views["check_lock"])
    assert "环境锁已核对" in written(run)[2]
    everything = "".join(p.read_text(encoding="utf-8") for p in run.folder.iterdir())
    assert "s3cret-value" not in everything


def test_no_bars_before_the_sample_begins(
    workspace: Workspace, screen_draft: Make, tmp_path: Path
) -> None:
    aborted(
        opened(workspace, screen_draft(TWO), tmp_path, date="2017-01-03"), "D-023", "行情不可用"
    )


def test_nobody_with_enough_history(
    workspace: Workspace, screen_draft: Make, base_manifest: dict[str, Any], tmp_path: Path
) -> None:
    contract = base_manifest["data_contract"] | {"warmup_bars": 9999}
    ref = screen_draft(TWO, manifest={"data_contract": contract})
    text = aborted(opened(workspace, ref, tmp_path), "D-023", "没有一只可参与筛选")
    assert "历史不足 9999 根日线" in text


def test_stale_data_is_pushed_with_a_warning(
    workspace: Workspace, screen_draft: Make, tmp_path: Path
) -> None:
    run = opened(workspace, screen_draft(TWO), tmp_path, date="2024-09-20")
    played(run)
    picks, codes, text = written(run)
    assert codes[0] == ("D-022", "push_with_warning")
    assert "数据延迟 1440 分钟" in text
    # The rule sees the newest session there is, and the card says which one that was.
    assert len(picks["picks"]) == 2
    assert "数据时点 2024-09-19 15:00 收盘" in text


def test_a_date_beyond_the_calendar_is_said(
    workspace: Workspace, screen_draft: Make, tmp_path: Path
) -> None:
    path = workspace.config_dir / "calendars.json"
    value = json.loads(path.read_text(encoding="utf-8"))
    overlay = value["exchanges"]["XSHG"]
    overlay["extension"] = None
    overlay["horizon"] = {"until": "2024-09-18", "source": "test"}
    path.write_text(json.dumps(value), encoding="utf-8")
    run = opened(workspace, screen_draft(TWO), tmp_path)
    played(run)
    _, codes, text = written(run)
    assert codes[0] == ("D-025", "push_with_warning")
    assert "日历未知：2024-09-19" in text
    assert "供 下一交易日（日历未知） 开盘参考" in text


BAD = """\
nan = float("nan")
return [
    Pick("000001.SZ", nan, {}, []),
    Pick("999999.SZ", 0.1, {}, []),
    Pick("000151.SZ", 0.1, {"ma": nan}, []),
    Pick("600000.SH", 0.1, {"close": 1}, []),
    Pick("600000.SH", 0.1, {"close": 1}, []),
]"""


def test_what_a_rule_should_not_return_is_dropped_by_name(
    workspace: Workspace, screen_draft: Make, tmp_path: Path
) -> None:
    run = opened(workspace, screen_draft(BAD), tmp_path)
    played(run)
    picks, codes, text = written(run)
    assert [pick["symbol"] for pick in picks["picks"]] == ["600000.SH"]
    assert [code for code, _ in codes].count("D-021") == 3
    assert picks["degradation_report"]["entries"][-2]["code"] == "D-031"
    assert "D-021 规则返回的 1 只评分不是有限数值，不采用（000001.SZ）" in text
    # The repeated pick is on the card: it lacks nothing.
    assert "规则重复返回 1 只（600000），每只只计一次" in text
    details = [
        (e["details"]["field"], e["details"]["symbols"])
        for e in picks["degradation_report"]["entries"]
        if e["code"] == "D-021"
    ]
    assert details == [
        ("score", ["000001.SZ"]),
        ("symbol", ["999999.SZ"]),
        ("ma", ["000151.SZ"]),
    ]
    assert "nan" not in text.lower()


def test_a_rule_that_returns_only_what_cannot_be_used_is_no_quiet_day(
    workspace: Workspace, screen_draft: Make, tmp_path: Path
) -> None:
    rule = 'return [Pick(s, float("nan"), {}, []) for s in ("000001.SZ", "600000.SH")]'
    run = opened(workspace, screen_draft(rule), tmp_path)
    played(run)
    picks, codes, text = written(run)
    assert picks["picks"] == []
    assert "🔴 今日无可推送候选\n规则返回 2 条结果，没有一条可用" in text
    assert "这不是故障" not in text
    assert ("D-031", "push_partial") in codes


def test_a_quiet_day_is_told_as_one(
    workspace: Workspace, screen_draft: Make, tmp_path: Path
) -> None:
    run = opened(workspace, screen_draft("return []"), tmp_path)
    played(run)
    picks, _, text = written(run)
    assert "规则正常跑完，没有标的命中；这不是故障" in text
    assert "今天没有符合条件的股票，不操作" in picks["degradation_report"]["impact"]
    assert "单只仓位" not in text


@pytest.mark.parametrize(
    ("rule", "word"),
    [
        ("raise KeyError('close')", "KeyError: 'close'"),
        ("return None", "筛选规则出错（返回 NoneType，应为列表）"),
        ("return [1] * (10 ** 9 // 0)", "ZeroDivisionError"),
    ],
)
def test_a_rule_that_fails_aborts(
    workspace: Workspace, screen_draft: Make, tmp_path: Path, rule: str, word: str
) -> None:
    aborted(opened(workspace, screen_draft(rule), tmp_path), "D-052", word)


def test_code_that_cannot_be_imported_aborts(
    workspace: Workspace, screen_draft: Make, tmp_path: Path
) -> None:
    ref = screen_draft(texts={"code/signal_engine.py": "import no_such_module\n"})
    aborted(opened(workspace, ref, tmp_path), "D-052", "no_such_module")


def test_a_rule_cannot_change_what_the_card_shows(
    workspace: Workspace, screen_draft: Make, tmp_path: Path
) -> None:
    spoil = "\n".join(["for s in data_map:", "    data_map[s].loc[:, 'close'] = 1.0", TWO])
    run = opened(workspace, screen_draft(spoil), tmp_path)
    played(run)
    plain = opened(workspace, screen_draft(TWO), tmp_path)
    played(plain)
    assert written(run)[0]["picks"] == written(plain)[0]["picks"]


def test_a_rule_sees_names_and_industries(
    workspace: Workspace, screen_draft: Make, tmp_path: Path
) -> None:
    rule = """\
found = data_map.securities
return [Pick(s, 0.1, {"industry": found[s].industry}, []) for s in sorted(data_map)]"""
    run = opened(workspace, screen_draft(rule), tmp_path)
    played(run)
    fields = {p["symbol"]: p["fields"]["industry"] for p in written(run)[0]["picks"]}
    assert fields == {"000001.SZ": "银行", "000151.SZ": "贸易", "600000.SH": "银行"}


def test_the_limit_cuts_and_meets_the_target(
    workspace: Workspace, screen_draft: Make, tmp_path: Path
) -> None:
    run = opened(workspace, screen_draft(TWO), tmp_path, limit=1)
    played(run)
    picks, codes, _ = written(run)
    assert [pick["symbol"] for pick in picks["picks"]] == ["000001.SZ"]
    assert "D-031" not in [code for code, _ in codes]


INVENTED = """\
def reason(inputs):
    return {"reason_text": "目标价 99.99 元", "confidence": "high"}
"""
RAISING = """\
def reason(inputs):
    raise ValueError("boom")
"""


@pytest.mark.parametrize(
    ("helper", "kind"), [(INVENTED, "回答不合格式"), (RAISING, "离线等价出错")]
)
def test_an_invented_number_takes_the_template(
    workspace: Workspace, screen_draft: Make, tmp_path: Path, helper: str, kind: str
) -> None:
    texts = {
        "code/helpers/offline_reason.py": helper,
        "reason_template.md": "{{ name }} 收盘 {{ fields.close }} 元\n",
    }
    run = opened(workspace, screen_draft(TWO, texts=texts), tmp_path)
    played(run)
    picks, codes, text = written(run)
    assert codes[-1] == ("D-011", "fallback_to_template")
    assert [pick["reason_mode"] for pick in picks["picks"]] == ["template", "template"]
    assert picks["picks"][0]["confidence"] is None
    assert picks["picks"][0]["reason_text"].startswith("平安银行 收盘 ")
    assert "99.99" not in text
    details = picks["degradation_report"]["entries"][-1]["details"]
    assert (details["failed"], details["total"], details["kind"]) == (2, 2, [kind])


def with_rule(manifest: dict[str, Any], *rules: dict[str, Any]) -> dict[str, Any]:
    changed = deepcopy(manifest["degradation_policy"])
    changed["rules"] += rules
    return {"degradation_policy": changed}


@pytest.mark.parametrize(
    ("trigger", "code", "rule", "changes"),
    [
        ("news_not_fetched", "D-024", TWO, {"feed": None}),
        ("data_freshness_violation", "D-022", TWO, {"date": "2024-09-20"}),
        ("required_field_missing", "D-021", BAD, {}),
        ("picks_count_below_target", "D-031", TWO, {}),
        ("llm_step_failed", "D-011", TWO, {"helper": RAISING}),
        ("runtime_exceeded", "D-015", TWO, {"live": 121}),
        ("limit_exceeded", "D-014", TWO, {"live": 0, "calls": 1}),
    ],
)
def test_the_flow_aborts_wherever_the_policy_says_so(
    workspace: Workspace,
    screen_draft: Make,
    base_manifest: dict[str, Any],
    tmp_path: Path,
    request: pytest.FixtureRequest,
    trigger: str,
    code: str,
    rule: str,
    changes: dict[str, Any],
) -> None:
    """By default each of these publishes; a rule of the strategy's own may end the run instead."""
    manifest = deepcopy(base_manifest)
    rules = [r for r in manifest["degradation_policy"]["rules"] if r["trigger"] != trigger]
    manifest["degradation_policy"]["rules"] = [
        *rules, {"trigger": trigger, "action": "abort_with_report"},
    ]  # fmt: skip
    if "calls" in changes:
        manifest["limits"]["production_max_llm_calls"] = changes["calls"]
    texts = {"code/helpers/offline_reason.py": changes["helper"]} if "helper" in changes else {}
    timer = FixedClock(f"{DAY}T08:40:00+00:00")
    options: dict[str, Any] = {"timer": timer}
    if "date" in changes:
        options["date"] = changes["date"]
    if "feed" in changes:
        path = workspace.config_dir / "mcp.json"
        servers = json.loads(path.read_text(encoding="utf-8"))
        del servers["servers"]["historical-news-cn"]
        path.write_text(json.dumps(servers), encoding="utf-8")
    if "live" in changes:
        request.getfixturevalue("live")(Fake(answer))
    run = opened(workspace, screen_draft(rule, manifest=manifest, texts=texts), tmp_path, **options)
    timer.sleep(changes.get("live", 0))
    played(run)
    picks, codes, text = written(run)
    assert codes[-1] == (code, "abort_with_report")
    assert picks["picks"] == []
    assert "🔴 今日无可推送候选" in text
    assert picks["degradation_report"]["impact"][-1].startswith("本次不产出候选")


@pytest.mark.parametrize("action", ["skip_step", "fallback_to_template"])
def test_a_policy_may_do_without_the_stand_ins(
    workspace: Workspace,
    screen_draft: Make,
    base_manifest: dict[str, Any],
    tmp_path: Path,
    action: str,
) -> None:
    rule = {"trigger": "llm_offline_equivalent", "action": action}
    run = opened(workspace, screen_draft(TWO, manifest=with_rule(base_manifest, rule)), tmp_path)
    played(run)
    picks, _, text = written(run)
    assert [pick["reason_mode"] for pick in picks["picks"]] == ["template", "template"]
    assert picks["provenance"]["mode"] == "none"
    assert "入选说明：未运行（按降级规则不用离线等价）" in text
    # The record says why no step ran; a replay then does without them too.
    lines = files.read_json_lines(run.folder / "llm.jsonl")
    assert [(x["verdict"], x["cause"]) for x in lines] == [("not_run", "forced")] * 2


def test_a_policy_may_abort_instead_of_using_a_stand_in(
    workspace: Workspace, screen_draft: Make, base_manifest: dict[str, Any], tmp_path: Path
) -> None:
    rule = {
        "trigger": "llm_offline_equivalent",
        "step": "pick_explanation",
        "action": "abort_with_report",
    }
    ref = screen_draft(TWO, manifest=with_rule(base_manifest, rule))
    run = opened(workspace, ref, tmp_path)
    for stage in STAGES:
        getattr(run, stage)()
    picks, codes, text = written(run)
    assert codes[-1] == ("D-012", "abort_with_report")
    assert picks["picks"] == []
    assert "🔴 今日无可推送候选" in text


def test_a_mistaken_rule_gives_way_and_is_shown(
    workspace: Workspace, screen_draft: Make, base_manifest: dict[str, Any], tmp_path: Path
) -> None:
    policy = deepcopy(base_manifest["degradation_policy"])
    policy["rules"] = [{"trigger": "picks_count_below_target", "action": "push_harder"}]
    run = opened(workspace, screen_draft(TWO, manifest={"degradation_policy": policy}), tmp_path)
    views = played(run)
    assert "push_harder" in repr(views["load_bundle"])
    assert "（策略未写此规则，按默认处理）" in written(run)[2]


def test_sectors_named_without_news_are_not_taken(
    workspace: Workspace, screen_draft: Make, tmp_path: Path
) -> None:
    helper = "def sectors_in_news(inputs):\n"
    helper += "    return {'focus_sectors': ['银行'], 'rationale': 'x'}\n"
    texts = {"code/helpers/offline_sectors.py": helper}
    run = opened(workspace, screen_draft(TWO, texts=texts), tmp_path)
    played(run)
    picks, codes, _ = written(run)
    assert ("D-011", "skip_step") in codes
    assert picks["provenance"]["sector_filter"] is None


FILTER = """\
---
prompt_id: event_sector_filter
input_schema:
  today: date
  known_sectors: [string]
output_schema:
  focus_sectors: [string]
  rationale: string
model_default: deepseek/deepseek-v3.2
---
# Sector filter

## Task
Name a sector.

## Offline Quantization Equivalent
quality: approximate
callable: `code/helpers/offline_sectors.py::sectors_in_news`

Differences from the model:
- It always names the same.
"""


def test_sectors_reach_the_rule(workspace: Workspace, screen_draft: Make, tmp_path: Path) -> None:
    helper = "def sectors_in_news(inputs):\n"
    helper += "    return {'focus_sectors': ['贸易', '航天'], 'rationale': '<b>&'}\n"
    texts = {
        "code/helpers/offline_sectors.py": helper,
        "prompts/event_sector_filter.md": FILTER,
    }
    rule = "return [Pick('600000.SH', 0.1, {'seen': ','.join(sector_filter)}, [])]"
    run = opened(workspace, screen_draft(rule, texts=texts), tmp_path)
    views = played(run)
    picks, codes, _ = written(run)
    assert picks["picks"][0]["fields"] == {"seen": "贸易"}
    assert picks["provenance"]["sector_filter"] == ["贸易"]
    assert picks["provenance"]["news"]["status"] == "not_needed"
    assert "D-024" not in [code for code, _ in codes]
    assert "（股票池没有：航天）" in repr(views["sector_filter"])
    assert "&lt;b&gt;&amp;" in views["sector_filter"]._repr_html_()


# live, with a small fake in the client's place (the real one is tested in tests/llm)


class Fake:
    def __init__(self, answer: Callable[[Request], str]) -> None:
        self.answer = answer
        self.calls = 0

    def complete(self, request: Request) -> Completion:
        self.calls += 1
        return Completion(text=self.answer(request), finish_reason="stop")


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> Callable[[Fake], Fake]:
    def use(fake: Fake) -> Fake:
        monkeypatch.delenv("KIT_MODE")
        monkeypatch.setenv("DEEPSEEK_API_KEY", "test-key")
        monkeypatch.setattr(StepRunner, "model", lambda _: fake)
        return fake

    return use


def answer(request: Request) -> str:
    if "pick" in json.loads(request.messages[1]["content"]):
        return '{"reason_text": "贴近均线", "confidence": "high"}'
    return '{"focus_sectors": [], "rationale": "无"}'


def test_a_live_run_is_not_degraded_by_its_steps(
    workspace: Workspace, screen_draft: Make, tmp_path: Path, live: Callable[[Fake], Fake]
) -> None:
    fake = live(Fake(answer))
    run = opened(workspace, screen_draft(TWO), tmp_path)
    played(run)
    picks, codes, text = written(run)
    assert [code for code, _ in codes] == ["D-031"]
    assert [pick["reason_mode"] for pick in picks["picks"]] == ["live", "live"]
    assert picks["provenance"]["mode"] == "live"
    assert "说明（模型·置信度高）：贴近均线" in text
    assert fake.calls == 3


def test_a_live_step_that_fails_takes_the_template_never_the_stand_in(
    workspace: Workspace, screen_draft: Make, tmp_path: Path, live: Callable[[Fake], Fake]
) -> None:
    def refuse(_: Request) -> str:
        raise CallError("http_error", "500")

    live(Fake(refuse))
    run = opened(workspace, screen_draft(TWO), tmp_path)
    played(run)
    picks, codes, _ = written(run)
    assert [pick["reason_mode"] for pick in picks["picks"]] == ["template", "template"]
    assert codes[0] == ("D-011", "skip_step")
    assert codes[-1] == ("D-011", "fallback_to_template")


def test_the_runs_call_limit_is_hard(
    workspace: Workspace,
    screen_draft: Make,
    base_manifest: dict[str, Any],
    tmp_path: Path,
    live: Callable[[Fake], Fake],
) -> None:
    fake = live(Fake(answer))
    limits = base_manifest["limits"] | {"production_max_llm_calls": 2}
    run = opened(workspace, screen_draft(TWO, manifest={"limits": limits}), tmp_path)
    played(run)
    picks, codes, text = written(run)
    assert fake.calls == 2
    assert codes[-1] == ("D-014", "fallback_to_template")
    assert sorted(pick["reason_mode"] for pick in picks["picks"]) == ["live", "template"]
    assert "production_max_llm_calls=2" in text


def test_past_the_runs_time_optional_steps_stop(
    workspace: Workspace,
    screen_draft: Make,
    base_manifest: dict[str, Any],
    tmp_path: Path,
    live: Callable[[Fake], Fake],
) -> None:
    fake = live(Fake(answer))
    rule = {"trigger": "runtime_exceeded", "action": "stop_optional_steps"}
    ref = screen_draft(TWO, manifest=with_rule(base_manifest, rule))
    timer = FixedClock(f"{DAY}T08:40:00+00:00")
    run = opened(workspace, ref, tmp_path, timer=timer)
    timer.sleep(121)
    played(run)
    picks, codes, text = written(run)
    assert fake.calls == 0
    assert ("D-015", "stop_optional_steps") in codes
    assert "超出运行时限（120 秒）" in text
    assert "入选说明：未运行（可选步骤已停止）" in text
    assert [pick["reason_mode"] for pick in picks["picks"]] == ["template", "template"]


# use and misuse


def test_stages_out_of_order_say_so(
    workspace: Workspace, screen_draft: Make, tmp_path: Path
) -> None:
    run = opened(workspace, screen_draft(TWO), tmp_path)
    for call in (run.check_lock, run.screen, run.card, run.finish):
        with pytest.raises(RunError) as caught:
            call()
        assert caught.value.code == "screen.out_of_order"


def test_an_unknown_bundle_and_mode_are_refused(workspace: Workspace, tmp_path: Path) -> None:
    with pytest.raises(RegistryError):
        opened(workspace, "no-such", tmp_path).load_bundle()
    with pytest.raises(UsageError):
        opened(workspace, "no-such", tmp_path, mode="fast")
    with pytest.raises(UsageError):
        opened(workspace, "no-such", tmp_path, date="20240919")


def test_by_hand_it_needs_neither_folder_nor_date(
    workspace: Workspace, screen_draft: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workspace.root)
    run = ScreenRun.open(bundle=screen_draft(TWO), now="2024-09-19T08:00:00+00:00", mode="offline")
    played(run)
    # Before the as-of time of the 19th, the latest complete session is the 18th.
    assert written(run)[0]["date"] == "2024-09-18"
