"""The lock at work: what a job does when the environment is not the one a bundle was made for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from sqlalchemy import select

from kit import files, schemas
from kit.bundle import resolve
from kit.bundle.freeze import freeze
from kit.cli.main import run as kit
from kit.clock import FixedClock
from kit.errors import GuardError, LockError
from kit.jobs.freeze import freeze_draft
from kit.jobs.lock import bundle_lock, freeze_lock, lock_variables
from kit.jobs.recording import record_panel, recording
from kit.jobs.screen import run_screen
from kit.state import Store, tables
from kit.workspace import Workspace

TWO = """\
found = [Pick(s, 0.01, {"gap_pct": 1.0}, ["near"]) for s in sorted(data_map)]
return found[:2]"""
Make = Callable[..., str]
StandIn = Callable[..., Workspace]


@pytest.fixture(scope="module")
def shipped() -> list[dict[str, Any]]:
    """The tools of the shipped server, as it publishes them."""
    folder = Path(__file__).resolve().parents[2] / "kit" / "serve" / "trading_data_cn" / "schemas"
    return [json.loads(path.read_text("utf-8")) for path in sorted(folder.glob("*.json"))]


def without(tools: list[dict[str, Any]], field: str, instead: str = "") -> list[dict[str, Any]]:
    """Return the tools with a field of a bar gone, or renamed."""
    changed: list[dict[str, Any]] = json.loads(json.dumps(tools))
    record = next(t for t in changed if t["name"] == "get_bars")["outputSchema"]["$defs"]["Bar"]
    was = record["properties"].pop(field)
    record["required"].remove(field)
    if instead:
        record["properties"][instead] = was
    return changed


# the shipped bundle and the shipped server


@pytest.mark.slow
@pytest.mark.parametrize("version", ["0.3.0", "0.3.1"])
def test_the_shipped_versions_pass_on_the_shipped_server(
    copy_repository: Callable[[Path], Workspace], tmp_path: Path, version: str
) -> None:
    workspace = copy_repository(tmp_path / "desk")
    answer = bundle_lock(workspace, resolve(workspace, f"ma250-pullback@{version}"))
    assert answer.to_dict()["tools"] == [
        {"mcp": "trading-data-cn", "tool": "get_bars", "evidence": "schema"},
        {"mcp": "trading-data-cn", "tool": "get_security_meta", "evidence": "schema"},
    ]


def test_they_are_refused_when_get_bars_loses_close_adj(
    copy_repository: Callable[[Path], Workspace],
    stand_in: StandIn,
    shipped: list[dict[str, Any]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    workspace = stand_in(copy_repository(tmp_path / "desk"))
    command = ["--workspace", str(workspace.root)]
    check = [*command, "lock", "check", "ma250-pullback", "--json"]
    assert kit(check) == 0
    assert json.loads(capsys.readouterr().out)["kind"] == "env_lock_valid"
    stand_in(workspace, tools=without(shipped, "close_adj", instead="adj_close"))
    sweep = ["sweep", "ma250-pullback", "--param", "near_pct=2,3"]
    works = [["backtest", "ma250-pullback"], ["validate", "ma250-pullback"], sweep]
    for refused in (check, *([*command, *work, "--json"] for work in works)):
        assert kit(refused) == 4
        answer = json.loads(capsys.readouterr().out)
        assert schemas.validate("lock-answer", answer) == []
        assert answer["kind"] == "env_lock_validation_failed"
        assert answer["skill_id"] == "ma250-pullback@0.3.1"
        assert answer["stages_failed"] == ["mcp_schema"]
        (diff,) = answer["details"]["schema_diffs"]
        assert (diff["mcp"], diff["tool"]) == ("trading-data-cn", "get_bars")
        assert diff["missing_output_fields"] == ["close_adj"]
        assert "bars[].adj_close" in diff["actual_output_fields"]
    assert not (workspace.runs / "backtests").exists()
    # In words too: what, where, and what to do.
    assert kit([*command, "lock", "check", "ma250-pullback"]) == 4
    said = capsys.readouterr().err
    assert "trading-data-cn.get_bars" in said
    assert "pip:kit==0.1.0" in said


# another channel


@pytest.fixture
def channelled(screen_frozen: Make, base_manifest: dict[str, Any], stand_in: StandIn,
               workspace: Workspace, builder: ModuleType) -> str:  # fmt: skip
    """A version locked to one channel, where the workspace has the other."""
    lock = base_manifest["env_lock"]
    lock["required_mcps"][0] |= {"name": "vibe-trading", "channel": "internal-a-share"}
    stand_in(workspace, name="vibe-trading", channel="community")
    text = builder.SKILL.format(id="tiny-screen").replace(
        "trading-data-cn.get_bars", "vibe-trading.get_bars"
    )
    screen_frozen(TWO, manifest={"env_lock": lock}, texts={"SKILL.md": text})
    return "tiny-screen@0.1.0"


def forced(store: Store) -> list[dict[str, Any]]:
    with store.read() as connection:
        query = select(tables.audit.c.body).where(tables.audit.c.kind == "env_lock_forced")
        return [json.loads(body) for body in connection.execute(query).scalars()]


def test_another_channel_is_refused_and_forcing_it_is_recorded(
    workspace: Workspace, channelled: str, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    check = ["--workspace", str(workspace.root), "lock", "check", channelled, "--json"]
    assert kit(check) == 4
    answer = json.loads(capsys.readouterr().out)
    assert answer["stages_failed"] == ["channel"]
    assert forced(store) == []
    assert kit([*check, "--force-channel-mismatch"]) == 0
    warnings = json.loads(capsys.readouterr().out)["warnings"]
    assert [(w["required"], w["actual"]) for w in warnings] == [("internal-a-share", "community")]
    (record,) = forced(store)
    assert record.pop("forced_at").startswith("20")
    assert record.pop("forced_by")
    assert record == {
        "skill_id": channelled, "mcp": "vibe-trading",
        "source_channel": "internal-a-share", "target_channel": "community",
    }  # fmt: skip


def test_a_scheduled_job_may_not_force_unless_the_configuration_lets_it(
    workspace: Workspace, channelled: str, store: Store, clock: FixedClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    def performed(*arguments: Any, **_named: Any) -> Any:
        assert arguments[3].parameters["force_channel"] is True
        raise KeyboardInterrupt

    monkeypatch.setattr("kit.jobs.screen.perform", performed)

    def fire() -> None:
        run_screen(
            workspace, channelled, cron=True, forced_by="desk", clock=clock, store=store,
            date="2024-09-19",
        )  # fmt: skip

    with pytest.raises(LockError) as caught:
        fire()
    assert caught.value.code == "lock.force_scheduled"
    assert forced(store) == []
    path = workspace.config_dir / "mcp.json"
    value = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps(value | {"schedules_may_force_channel": True}), "utf-8")
    with pytest.raises(KeyboardInterrupt):
        fire()
    assert [record["forced_by"] for record in forced(store)] == ["desk"]


# a screen through its kernel


@pytest.mark.kernel
@pytest.mark.slow
def test_a_failed_lock_aborts_the_screen_with_its_card(
    workspace: Workspace, screen_frozen: Make, stand_in: StandIn, store: Store, clock: FixedClock,
    shipped: list[dict[str, Any]],
) -> None:  # fmt: skip
    screen_frozen(TWO)
    stand_in(workspace, tools=without(shipped, "close_adj"))
    options: dict[str, Any] = {"mode": "offline", "clock": clock, "store": store}
    by_hand = run_screen(workspace, "tiny-screen", **options)
    assert (by_hand.status, by_hand.exit_code) == ("degraded", 4)
    error = by_hand.error()
    assert isinstance(error, LockError)
    assert error.code == "lock.failed"
    assert error.details["details"]["schema_diffs"][0]["missing_output_fields"] == ["close_adj"]
    assert by_hand.run is not None
    assert by_hand.run.folder is not None
    assert files.read_json(by_hand.run.folder / "lock.json") == error.details
    assert by_hand.run.card is not None
    cards = by_hand.run.card.to_dict()["blocks"]
    scheduled = run_screen(workspace, "tiny-screen", cron=True, date="2024-09-19", **options)
    assert scheduled.exit_code == 0
    assert scheduled.run is not None
    assert scheduled.run.card is not None
    assert [receipt.state for receipt in scheduled.receipts] == ["sent"]
    # The same card, but for the run it names in its last line.
    assert scheduled.run.card.to_dict()["blocks"][:-1] == cards[:-1]


def test_the_kernel_is_given_what_the_check_reads(
    workspace: Workspace, screen_draft: Make, base_manifest: dict[str, Any]
) -> None:
    path = workspace.config_dir / "mcp.json"
    value = json.loads(path.read_text("utf-8"))
    value["servers"]["trading-data-cn"]["env"] = ["TUSHARE_TOKEN"]
    path.write_text(json.dumps(value), "utf-8")
    known = {"schema_version": "1.0", "databases": {"market": {"url_env": "MARKET_URL"}}}
    (workspace.config_dir / "databases.json").write_text(json.dumps(known), "utf-8")
    lock = base_manifest["env_lock"] | {
        "required_env": [{"name": "BARS_KEY", "purpose": "d"}],
        "required_db": [{"alias": "market", "kind": "postgres", "purpose": "d"}],
    }
    bundle = resolve(workspace, screen_draft(TWO, manifest={"env_lock": lock}))
    assert lock_variables(workspace, bundle) == {"TUSHARE_TOKEN", "MARKET_URL", "BARS_KEY"}


def test_what_locks_nothing_starts_nothing(
    workspace: Workspace, screen_draft: Make, base_manifest: dict[str, Any]
) -> None:
    nothing = {"required_mcps": [], "required_env": [], "required_db": []}
    bundle = resolve(workspace, screen_draft(TWO, manifest={"env_lock": nothing}))
    (workspace.config_dir / "mcp.json").unlink()
    assert bundle_lock(workspace, bundle).ok


# freeze and the recorder


def relock(draft: Path, **tool: Any) -> None:
    path = draft / "manifest.json"
    value = json.loads(path.read_text("utf-8"))
    value["env_lock"]["required_mcps"][0]["tools_used"] = [{"tool_name": "get_bars", **tool}]
    path.write_text(json.dumps(value), "utf-8")


def test_freeze_stores_the_schemas_of_the_locked_tools(
    workspace: Workspace, builder: ModuleType, clock: FixedClock, shipped: list[dict[str, Any]],
    stand_in: StandIn,
) -> None:  # fmt: skip
    builder.make_draft(workspace, "tiny-screen")
    checks = builder.passing_checks(lock=lambda bundle: freeze_lock(workspace, bundle))
    frozen = freeze(workspace, "tiny-screen", checks=checks, clock=clock)
    folder = frozen.root / "schemas" / "trading-data-cn"
    assert [path.name for path in folder.iterdir()] == ["get_bars.json"]
    stored = json.loads((folder / "get_bars.json").read_text("utf-8"))
    live = next(tool for tool in shipped if tool["name"] == "get_bars")
    assert stored["input_schema"] == live["inputSchema"]
    assert stored["output_schema"] == live["outputSchema"]
    # They are what a later failure is told with.
    stand_in(workspace, tools=without(shipped, "close_adj", instead="adj_close"))
    (diff,) = bundle_lock(workspace, resolve(workspace, frozen.ref)).details["schema_diffs"]
    assert "output bars[].close_adj removed" in diff["changed_since_freeze"]
    assert "output bars[].adj_close added" in diff["changed_since_freeze"]


def test_freeze_is_refused_with_the_answer_when_the_server_is_not_there(
    workspace: Workspace, builder: ModuleType, clock: FixedClock
) -> None:
    builder.make_draft(workspace, "tiny-screen")
    path = workspace.config_dir / "mcp.json"
    path.write_text('{"schema_version": "1.0", "servers": {}}', "utf-8")
    checks = builder.passing_checks(lock=lambda bundle: freeze_lock(workspace, bundle))
    with pytest.raises(GuardError) as caught:
        freeze(workspace, "tiny-screen", checks=checks, clock=clock)
    (failed,) = [check for check in caught.value.details["checks"] if not check["ok"]]
    assert failed["name"] == "lock"
    assert schemas.validate("lock-answer", failed["facts"]) == []
    assert failed["facts"]["stages_failed"] == ["mcp_existence"]
    assert "请安装 trading-data-cn" in caught.value.remedy


def test_a_draft_that_reads_two_fields_locks_these_two(
    workspace: Workspace, builder: ModuleType, clock: FixedClock, stand_in: StandIn,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    draft = builder.make_draft(workspace, "tiny-screen")
    relock(draft, required_input_fields=[], required_output_fields=[])
    bar = {"symbol": "000001.SZ", "date": "2024-09-18", "open": 1.0, "high": 1.0, "low": 1.0,
           "close": 9.5, "close_adj": 9.5, "low_adj": 9.4, "volume": 100.0,
           "volume_unit": "shares"}  # fmt: skip
    tool = {
        "name": "get_bars",
        "description": "",
        "inputSchema": {
            "type": "object",
            "properties": {"codes": {}, "start_date": {}},
            "required": ["codes"],
        },
    }
    stand_in(workspace, tools=[tool], answers={"get_bars": {"bars": [bar]}})
    with recording(workspace, "tiny-screen") as servers:
        answer = servers.call("trading-data-cn", "get_bars", {"codes": ["000001.SZ"]})
        (row,) = answer.payload["bars"]
        assert row["close_adj"] / row["volume"] == 0.095
    # Without an output schema the lock needs a canary.
    manifest = json.loads((draft / "manifest.json").read_text("utf-8"))
    (locked,) = manifest["env_lock"]["required_mcps"][0]["tools_used"]
    locked["canary"] = {"arguments": {"codes": ["000001.SZ"]}}
    (draft / "manifest.json").write_text(json.dumps(manifest), "utf-8")
    monkeypatch.setattr("kit.jobs.freeze.FreezeChecks", _only_the_lock(builder))
    frozen = freeze_draft(workspace, "tiny-screen", clock=clock)
    (mcp,) = json.loads((frozen.root / "manifest.json").read_text("utf-8"))["env_lock"][
        "required_mcps"
    ]
    (locked,) = mcp["tools_used"]
    assert locked["required_output_fields"] == ["bars[].close_adj", "bars[].volume"]
    assert locked["required_input_fields"] == ["codes"]
    assert not list(frozen.root.rglob("recordings"))
    assert (frozen.root / "schemas" / "trading-data-cn" / "get_bars.json").is_file()


def _only_the_lock(builder: ModuleType) -> Callable[..., Any]:
    return lambda **given: builder.passing_checks(lock=given["lock"])


def test_a_run_of_a_draft_records_the_fields_of_its_contract(
    workspace: Workspace, screen_draft: Make, base_manifest: dict[str, Any]
) -> None:
    from kit.bundle.recorded import read_recorded

    contract = base_manifest["data_contract"] | {"fields": ["close_adj", "volume"]}
    bundle = resolve(workspace, screen_draft(TWO, manifest={"data_contract": contract}))
    record_panel(bundle)
    found = read_recorded(bundle.root)
    assert found is not None
    assert found.to_tools_used() == {
        "trading-data-cn": [
            {"tool_name": "get_bars", "required_input_fields": [],
             "required_output_fields": ["close_adj", "volume"]}
        ]
    }  # fmt: skip


def test_a_version_records_nothing(workspace: Workspace, screen_frozen: Make) -> None:
    record_panel(resolve(workspace, screen_frozen(TWO)))
    assert not (workspace.runs / "recordings").exists()
