"""`kit backtest`: which bars, which symbols, what is said of the rest, and where evidence goes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from datetime import date
from pathlib import Path
from types import ModuleType
from typing import Any

import polars as pl
import pytest

from kit import files
from kit.backtest import BacktestResult
from kit.backtest.evidence import Evidence
from kit.backtest.lookahead import LookaheadVerdict
from kit.bundle import fingerprints
from kit.bundle.freeze import freeze
from kit.cli.main import run as kit
from kit.clock import FixedClock
from kit.errors import BundleError, DataError, RegistryError, StorageError, UsageError
from kit.jobs import backtest as job
from kit.jobs.backtest import backtest
from kit.market import SampleSource
from kit.workspace import Workspace

DRAFT = "tiny-pullback@draft"
START, END = date(2023, 5, 4), date(2023, 5, 31)  # twenty sessions
Run = Callable[..., tuple[BacktestResult, Path]]


def set_config(draft: Path, **changed: Any) -> None:
    path = draft / "config.json"
    value = json.loads(path.read_text("utf-8"))
    value["_kit"] |= changed.pop("_kit", {})
    path.write_text(json.dumps(value | changed), "utf-8")


@pytest.fixture
def draft(workspace: Workspace, builder: ModuleType) -> Path:
    """The small bundle with a window of three days, over twenty sessions of two stocks."""
    made: Path = builder.make_draft(workspace)
    set_config(made, start_date=str(START), end_date=str(END), _kit={"params": {"ma_window": 3}})
    return made


@pytest.fixture
def run(workspace: Workspace, clock: FixedClock, draft: Path) -> Run:
    """`run(ref, **options)` backtests; the draft by default."""

    def do(ref: str = DRAFT, **options: Any) -> tuple[BacktestResult, Path]:
        return backtest(workspace, ref, clock=clock, **options)

    return do


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the guards, which cost more than all the rest and have tests of their own."""
    passed = LookaheadVerdict(ok=True, checked_dates=(START,), findings=())
    monkeypatch.setattr(job, "check_lookahead", lambda *_: passed)
    monkeypatch.setattr(job, "needed_history", lambda *_: 3)


@pytest.fixture
def frozen(workspace: Workspace, builder: ModuleType, clock: FixedClock, draft: Path) -> Path:
    """Version 0.1.0 of it, active."""
    cut = freeze(
        workspace, "tiny-pullback", checks=builder.passing_checks(), clock=clock, activate=True
    )
    return cut.root


def state(root: Path) -> dict[str, tuple[str, int, int]]:
    """Return digest, mode and time of change of everything in a folder."""
    return {
        str(path.relative_to(root)): (
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
            path.stat().st_mode,
            path.stat().st_mtime_ns,
        )
        for path in [root, *root.rglob("*")]
    }


def engine_of(folder: Path) -> Any:
    return Evidence.read(folder).engine


def test_a_drafts_evidence_goes_into_the_draft(run: Run, draft: Path) -> None:
    stages: list[str] = []
    result, folder = run(progress=stages.append)
    assert stages == ["load", "lock", "simulate", "guards", "evidence"]
    assert folder == draft / "backtests" / "2024-09-19-iter-1"
    engine = engine_of(folder)
    assert engine["ref"] == DRAFT
    assert {part: engine["fingerprints"][part] for part in ("code", "prompts", "config")} == (
        fingerprints(draft)
    )
    assert (engine["range"]["start"], engine["range"]["end"]) == ("2023-05-05", "2023-05-31")
    assert len(result.dates) == 20
    assert [step["quality"] for step in engine["steps"]] == ["approximate", "exact"]
    assert engine["guards"]["lookahead"]["ok"]
    # A mean of three closes, and weights that look at nothing else.
    assert engine["guards"]["warmup"]["needed"] == 3
    # This bundle declares no warm-up, so nothing covers it.
    assert engine["guards"]["warmup"]["ok"] is False


@pytest.mark.usefixtures("quick")
def test_a_versions_evidence_leaves_the_version_alone(
    run: Run, frozen: Path, workspace: Workspace
) -> None:
    before = state(frozen)
    for ref in ("tiny-pullback@0.1.0", "tiny-pullback"):  # the active one
        _, folder = run(ref)
        assert folder.parent == workspace.runs / "backtests" / "tiny-pullback@0.1.0"
        assert engine_of(folder)["ref"] == "tiny-pullback@0.1.0"
    assert folder.name == "2024-09-19-iter-2"
    assert state(frozen) == before
    assert not (frozen.parent / "draft" / "backtests").exists()


def test_a_tampered_version_does_not_run_and_names_the_file(
    run: Run, frozen: Path, workspace: Workspace
) -> None:
    engine = frozen / "code" / "signal_engine.py"
    engine.chmod(0o644)
    engine.write_text(engine.read_text("utf-8").replace("0.03", "0.04"), "utf-8")
    with pytest.raises(BundleError, match=r"code/signal_engine\.py") as caught:
        run("tiny-pullback@0.1.0")
    assert caught.value.code == "bundle.tampered"
    assert not (workspace.runs / "backtests").exists()


@pytest.mark.usefixtures("quick")
def test_the_range_and_the_symbols_may_be_given(run: Run) -> None:
    result, folder = run(
        start=date(2023, 6, 1), end=date(2023, 6, 21), symbols=["000001.SZ"], label="june"
    )
    assert folder.name == "2024-09-19-june"
    assert (str(result.dates[0].date()), str(result.dates[-1].date())) == (
        "2023-06-01",
        "2023-06-21",
    )
    assert list(result.prices.columns) == ["000001.SZ"]
    engine = engine_of(folder)
    assert engine["data"]["asked"] == ["000001.SZ"]
    # Other bars, another fingerprint; same bars, the same.
    again = engine_of(run(start=date(2023, 6, 1), end=date(2023, 6, 21), symbols=["000001.SZ"])[1])
    shorter = engine_of(
        run(start=date(2023, 6, 1), end=date(2023, 6, 20), symbols=["000001.SZ"])[1]
    )
    assert engine["fingerprints"] == again["fingerprints"]
    changed = {k for k, v in engine["fingerprints"].items() if v != shorter["fingerprints"][k]}
    assert changed == {"data"}


@pytest.mark.usefixtures("quick")
def test_what_cannot_be_traded_is_dropped_and_said(run: Run) -> None:
    asked = ["600000.SH", "600001.SH", "000300.SH", "601318.SH", "600000.SH"]
    result, folder = run(symbols=asked)
    assert list(result.prices.columns) == ["600000.SH"]
    reasons = {one.symbol: one.reason for one in result.dropped}
    assert reasons == {
        "600001.SH": "数据源没有该代码，是否为 600000.SH",
        "000300.SH": "指数不是可选标的",
        "601318.SH": "2023-05-04 至 2023-05-31 没有行情（最后一根 2020-06-16）",
    }
    data = engine_of(folder)["data"]
    assert data["asked"] == ["600000.SH", "600001.SH", "000300.SH", "601318.SH"]
    assert {one["symbol"]: one["reason"] for one in data["dropped"]} == reasons
    page = (folder / "report.html").read_text("utf-8")
    assert "要求 4 只，使用 1 只，剔除 3 只。" in page
    assert all(reason in page for reason in reasons.values())


@pytest.mark.parametrize(
    ("first", "last", "said"),
    [
        ("2025-01-02", "2025-03-31", "2018-06-01 to 2024-09-19"),  # after the sample
        ("2010-01-04", "2010-03-31", "2018-06-01"),  # before it
    ],
)
def test_a_range_without_bars_names_what_there_is(
    run: Run, draft: Path, first: str, last: str, said: str
) -> None:
    with pytest.raises(DataError) as caught:
        run(start=date.fromisoformat(first), end=date.fromisoformat(last))
    assert caught.value.code == "data.no_bars"
    assert said in caught.value.remedy
    assert not (draft / "backtests").exists()


def test_symbols_without_a_bar_name_what_there_is(run: Run) -> None:
    with pytest.raises(DataError, match="no symbol of tiny-pullback@draft") as caught:
        run(symbols=["999999.SH", "601318.SH"])
    assert caught.value.code == "data.no_bars"
    assert "2018-06-01 to 2024-09-19" in caught.value.remedy


@pytest.mark.parametrize("last", ["2023-05-04", "2023-05-03", "2020-01-02"])
def test_a_range_that_does_not_go_forward_is_refused(run: Run, last: str) -> None:
    with pytest.raises(UsageError) as caught:
        run(end=date.fromisoformat(last))
    assert caught.value.code == "backtest.bad_range"
    assert last in caught.value.message


def test_a_range_too_short_for_the_warm_up_is_refused(run: Run, draft: Path) -> None:
    set_config(draft, warmup_bars=19)
    with pytest.raises(DataError, match="20 bars leave nothing to grade") as caught:
        run()
    assert caught.value.code == "backtest.too_short"


def test_bars_of_another_spacing_are_those_of_the_source(run: Run, draft: Path) -> None:
    set_config(draft, interval="4H")
    with pytest.raises(DataError, match="4h") as caught:
        run()
    assert caught.value.code == "data.unknown_interval"


@pytest.mark.usefixtures("quick")
def test_grading_begins_where_the_config_says(run: Run, draft: Path) -> None:
    set_config(draft, evaluation_start_date="2023-05-20")  # a Saturday
    result, folder = run()
    assert str(result.start) == "2023-05-22"
    assert engine_of(folder)["range"]["start"] == "2023-05-22"
    assert (result.orders["time"] >= "2023-05-22").all()


@pytest.mark.usefixtures("quick")
def test_the_markets_index_is_compared_where_there_is_one(run: Run, draft: Path) -> None:
    result, _ = run()
    index = SampleSource().bars(["000300.SH"], START, END).collect()["close"].to_list()
    assert result.benchmark_name == "000300.SH"
    assert result.metrics.benchmark_return == pytest.approx(index[-1] / index[0] - 1)
    # The index begins in 2021: before, nothing is compared, and the report says so.
    early, folder = run(start=date(2020, 5, 6), end=date(2020, 6, 1), symbols=["601318.SH"])
    assert early.benchmark_name is None
    assert "区间内没有可用的基准指数，不作比较。" in (folder / "report.html").read_text("utf-8")
    set_config(draft, _kit={"benchmark": "600000.SH"})
    assert run()[0].benchmark_name == "600000.SH"


def test_a_rule_that_peeks_is_reported_not_refused(run: Run, draft: Path) -> None:
    path = draft / "code" / "signal_engine.py"
    rule = "gap = gap_to_average(frame, window)\n            signals"
    code = path.read_text("utf-8")
    assert rule in code
    path.write_text(code.replace(rule, rule.replace("window)", "window).shift(-1)")), "utf-8")
    result, folder = run()
    verdict = engine_of(folder)["guards"]["lookahead"]
    assert verdict["ok"] is False
    assert {leak["output"] for leak in verdict["findings"]} == {"generate"}
    assert "未通过" in (folder / "report.html").read_text("utf-8")
    assert len(result.orders)


def test_a_rule_that_needs_the_last_date_has_no_date_to_be_checked_on(
    run: Run, draft: Path
) -> None:
    path = draft / "code" / "signal_engine.py"
    rule = '        window = self.params()["ma_window"]\n        signals'
    code = path.read_text("utf-8")
    assert rule in code
    peek = (
        "        last = max(frame.index[-1] for frame in data_map.values())\n"
        '        assert str(last.date()) == "2023-05-31", last\n'
    )
    path.write_text(code.replace(rule, peek + rule), "utf-8")
    _, folder = run()
    verdict = engine_of(folder)["guards"]["lookahead"]
    assert (verdict["ok"], verdict["checked_dates"], verdict["findings"]) == (False, [], [])
    assert "generate raised AssertionError" in verdict["skipped"][0]
    # It can do with no less than everything.
    assert engine_of(folder)["guards"]["warmup"] == {"declared": None, "needed": 20, "ok": False}
    assert "没有一个日期能检查" in (folder / "report.html").read_text("utf-8")


@pytest.mark.usefixtures("quick")
def test_a_draft_edited_meanwhile_has_stale_evidence(run: Run, draft: Path) -> None:
    before = fingerprints(draft)

    def edit(stage: str) -> None:
        if stage == "guards":
            path = draft / "code" / "signal_engine.py"
            path.write_text(path.read_text("utf-8").replace("0.03", "0.04"), "utf-8")

    _, folder = run(progress=edit)
    evidence = Evidence.read(folder)
    assert evidence.stale_parts(before) == []
    assert evidence.stale_parts(fingerprints(draft)) == ["code"]


@pytest.mark.usefixtures("quick")
def test_bars_of_the_workspaces_own_store(run: Run, workspace: Workspace) -> None:
    folder = workspace.market_dir / "cn" / "1d"
    folder.mkdir(parents=True)
    bars = SampleSource().bars(["600000.SH"], date(2023, 5, 4), date(2023, 5, 31)).collect()
    bars.with_columns(pl.lit("synthetic walk").alias("source")).write_parquet(folder / "x.parquet")
    result, evidence = run(source="parquet", symbols=["600000.SH"])
    assert engine_of(evidence)["data"]["source"] == "parquet"
    assert engine_of(evidence)["data"]["synthetic"] is True
    assert "合成数据" in result.notes
    assert "合成数据，不能作为证据" in (evidence / "report.html").read_text("utf-8")


@pytest.mark.usefixtures("quick")
def test_a_disk_that_fills_up_leaves_no_evidence(
    run: Run, draft: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KIT_NO_SPACE_AT", str(files.count_operations() + 12))
    with pytest.raises(StorageError) as caught:
        run()
    assert caught.value.code == "file.no_space"
    assert not (draft / "backtests").exists()
    assert [path.name for path in draft.parent.iterdir()] == ["draft"]


def test_what_is_not_there_is_said(run: Run, frozen: Path) -> None:
    for ref, code, said in (
        ("tiny-pulback", "registry.unknown_id", "tiny-pullback"),
        ("tiny-pullback@0.9.0", "registry.unknown_version", "0.1.0"),
    ):
        with pytest.raises(RegistryError) as caught:
            run(ref)
        assert caught.value.code == code
        assert said in f"{caught.value.message} {caught.value.remedy}"


def command(workspace: Workspace, *arguments: str) -> int:
    return kit(["--workspace", str(workspace.root), "backtest", *arguments])


def test_the_command_prints_a_result_and_where_its_report_is(
    draft: Path, workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(workspace, DRAFT, "--symbols", "600000.SH, 000001.SZ", "--label", "two") == 0
    out, err = capsys.readouterr()
    # This bundle declares no warm-up: what has not passed its guards is said before any number.
    first, second = out.splitlines()[:2]
    assert "warmup" in first
    assert "not passed" in first
    assert second.startswith("2023-05-05 至 2023-05-31：总收益 ")
    (folder,) = (draft / "backtests").iterdir()
    report = f"strategies/tiny-pullback/draft/backtests/{folder.name}/report.html"
    assert out.splitlines()[-1] == f"report: {report}"
    assert (workspace.root / report).is_file()
    assert "guards" in err

    manifest = draft / "manifest.json"
    contract = '"history_days": 30,'
    text = manifest.read_text("utf-8")
    assert contract in text
    manifest.write_text(text.replace(contract, f'{contract} "warmup_bars": 3,'), "utf-8")
    assert command(workspace, DRAFT) == 0
    # Three bars of warm-up end on 05-08.
    assert capsys.readouterr().out.startswith("2023-05-09 至 2023-05-31：总收益 ")

    arguments = (DRAFT, "--symbols", "600000.SH", "--start", "2023-05-08", "--json")
    assert command(workspace, *arguments) == 0
    body = json.loads(capsys.readouterr().out)
    assert body["symbols"] == ["600000.SH"]
    assert body["start"] == "2023-05-11"
    assert (workspace.root / body["evidence"] / "engine.json").is_file()


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (["--start", "2023-05-31"], 2, "backtest.bad_range"),
        (["--start", "31.5.2023"], 2, "time.bad_date"),
        (["--start", "2025-01-01", "--end", "2025-02-01"], 3, "data.no_bars"),
        (["--symbols", " , "], 3, "market.bad_selector"),
        (["--label", "Two Words"], 3, "backtest.bad_label"),
    ],
)
def test_a_command_that_cannot_run_says_why(
    draft: Path,
    workspace: Workspace,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    error: str,
) -> None:
    assert command(workspace, DRAFT, *arguments, "--json") == code
    shown = json.loads(capsys.readouterr().out)["error"]
    assert shown["code"] == error
    assert not (draft / "backtests").exists()
