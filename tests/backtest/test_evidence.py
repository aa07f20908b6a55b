"""The folder that a backtest leaves: complete or absent, readable, fresh or stale."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pytest

from kit import files
from kit.backtest import BacktestResult, stress
from kit.backtest.evidence import Evidence, read_all, write_evidence
from kit.backtest.facts import Facts, StepQuality
from kit.backtest.trials import Trials
from kit.errors import DataError, StorageError
from kit.market import Dropped
from kit.schemas import validate

MAIN = "600000.SH"
FILES = {
    "config.json", "metrics.json", "artifacts", "equity.csv", "trades.csv", "engine.json",
    "run_card.json", "report.html",
}  # fmt: skip


@pytest.fixture
def result(market: Any) -> BacktestResult:
    """One trade won, one left open, some intents unfilled, one symbol dropped."""
    market.add(
        MAIN, [10.0, 10.0, 10.5, 10.5, 10.5, 9.45], opens=[10.0, 10.0, 10.5, 10.5, 10.5, 10.5]
    )
    made: BacktestResult = market.run(
        {MAIN: [0.5, 0.0, 0.0, 0.5, 0.5, 0.5]},
        dropped=[Dropped(symbol="999999.SH", name="", reason="数据源没有该代码")],
    )
    return made


@pytest.fixture
def parent(tmp_path: Path) -> Path:
    """Where a draft keeps its evidence."""
    return tmp_path / "strategies" / "tiny" / "draft" / "backtests"


def tree(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_a_folder_holds_everything(
    result: BacktestResult, facts: Callable[..., Facts], parent: Path
) -> None:
    folder = write_evidence(parent, result, facts(), "with-overlay")
    assert folder == parent / "2024-09-19-with-overlay"
    assert {path.name for path in folder.iterdir()} == FILES
    assert [path.name for path in parent.iterdir()] == [folder.name]  # nothing beside it
    assert json.loads((folder / "config.json").read_text("utf-8")) == facts().config


def test_engine_json_says_what_the_numbers_were_made_from(
    result: BacktestResult, facts: Callable[..., Facts], parent: Path
) -> None:
    folder = write_evidence(parent, result, facts(), None)
    engine = json.loads((folder / "engine.json").read_text("utf-8"))
    assert validate("backtest-engine", engine) == []
    assert engine["ref"] == "tiny-pullback@draft"
    assert engine["created_at"] == "2024-09-19T08:40:00+00:00"
    assert engine["range"] == {"start": "2024-03-05", "end": "2024-03-11"}
    assert engine["data"] == {
        "source": "hand",
        "synthetic": False,
        "market": "cn",
        "asked": [MAIN, "999999.SH"],
        "dropped": [{"symbol": "999999.SH", "reason": "数据源没有该代码"}],
    }
    assert engine["fingerprints"] == dict(facts().fingerprints)
    assert [step["quality"] for step in engine["steps"]] == ["approximate", "partial", "exact"]
    assert engine["guards"]["lookahead"]["ok"] is True
    assert engine["guards"]["warmup"] == {"declared": 20, "needed": 20, "ok": True}
    # Left open at the lower limit of the last close: counted, not hidden.
    assert engine["unfilled"] == {MAIN: {"limit_down": 1}}
    assert set(engine["versions"]) == {"kit", "python", "numpy", "pandas", "polars", "numba"}
    # 5,000 shares at 10.00 and again 4,800 at 10.50; commissions 12.50 + 13.13 + 12.60.
    assert engine["costs"]["commission"] == 38.23


@pytest.mark.parametrize(
    ("declared", "needed", "ok"), [(20, 21, False), (None, 5, False), (21, 21, True)]
)
def test_a_warm_up_counts_when_it_is_declared_and_long_enough(
    facts: Callable[..., Facts], declared: int | None, needed: int, ok: bool
) -> None:
    assert facts(warmup_declared=declared, warmup_needed=needed).warmup_ok is ok


def test_tables_can_be_read_back(
    result: BacktestResult, facts: Callable[..., Facts], parent: Path
) -> None:
    folder = write_evidence(parent, result, facts(), None)
    equity = pd.read_csv(folder / "equity.csv", parse_dates=["timestamp"], index_col="timestamp")
    assert list(equity.columns) == ["ret", "equity", "drawdown", "benchmark_equity", "active_ret"]
    assert equity.index.equals(result.equity.index)
    assert equity["equity"].tolist() == pytest.approx(result.equity.tolist(), abs=0.005)
    growth = result.equity / result.equity.shift(1) - 1
    assert equity["ret"].tolist() == pytest.approx([0.0, *growth.tolist()[1:]], abs=1e-8)
    highest = 0.0
    for level, fall in zip(result.equity, equity["drawdown"], strict=True):
        highest = max(highest, level)
        assert fall == pytest.approx(level / highest - 1, abs=1e-8)

    trades = pd.read_csv(folder / "trades.csv", parse_dates=["entry_time", "exit_time"])
    assert list(trades.columns) == list(result.trades.columns)
    assert trades["symbol"].tolist() == [MAIN, MAIN]
    assert trades["exit_time"].isna().tolist() == [False, True]
    assert trades["size"].tolist() == [5_000, 4_800]
    # 52,500 - 13.13 - 0.53 - 26.25 against 50,013; 4,800 x 9.45 against 50,400 + 12.60 + 0.50.
    assert trades["pnl"].tolist() == pytest.approx([2_447.09, 45_360 - 50_413.10])

    written = json.loads((folder / "metrics.json").read_text("utf-8"))
    assert written == result.metrics.to_dict()


def test_the_peers_readers_find_what_they_look_for(
    result: BacktestResult, facts: Callable[..., Facts], parent: Path
) -> None:
    """Column and key names as Vibe-Trading 0.1.18 writes and reads them."""
    folder = write_evidence(parent, result, facts(), None)
    artifacts = folder / "artifacts"
    equity = pd.read_csv(artifacts / "equity.csv", index_col=0, parse_dates=True)
    assert equity.index.name == "timestamp"
    assert equity["equity"].tolist() == pytest.approx(result.equity.tolist(), abs=0.005)
    assert equity["benchmark_equity"].isna().all()  # there was no index

    trades = pd.read_csv(artifacts / "trades.csv")
    assert list(trades.columns) == [
        "timestamp", "code", "side", "price", "qty", "reason", "pnl", "holding_days",
        "holding_bars", "return_pct", "event",
    ]  # fmt: skip
    rows = trades[["timestamp", "code", "side", "price", "qty", "event"]].to_numpy().tolist()
    # Bought on Tuesday, sold on Wednesday; bought on Friday, and still open on Monday.
    assert rows == [
        ["2024-03-05", MAIN, "buy", 10.0, 5000.0, "entry"],
        ["2024-03-06", MAIN, "sell", 10.5, 5000.0, "exit"],
        ["2024-03-08", MAIN, "buy", 10.5, 4800.0, "entry"],
    ]
    sold = trades.loc[1]
    assert (sold["pnl"], sold["holding_days"], sold["holding_bars"]) == (2_447.09, 1, 1.0)
    assert sold["return_pct"] == pytest.approx(100 * 2_447.09 / 50_013, abs=0.005)

    metrics = pd.read_csv(artifacts / "metrics.csv").loc[0]
    assert metrics["final_value"] == round(float(result.equity.iloc[-1]), 2)
    assert metrics["total_return"] == pytest.approx(result.metrics.total_return)
    assert metrics["trade_count"] == 1
    assert pd.isna(metrics["benchmark_beta"])

    card = json.loads((folder / "run_card.json").read_text("utf-8"))
    assert card["schema_version"] == "1.0"
    assert card["generated_at"] == facts().created_at
    assert card["strategy"] == "tiny-pullback@draft"
    assert card["backtest"]["codes"] == [MAIN]
    span = (card["backtest"]["start_date"], card["backtest"]["end_date"])
    assert span == ("2024-03-05", "2024-03-11")
    assert card["metrics"]["total_return"] == result.metrics.total_return
    assert card["data_sources"] == ["hand"]
    assert card["warnings"] == list(result.notes)
    for one in card["artifacts"]:
        data = (folder / one["path"]).read_bytes()
        digest = hashlib.sha256(data).hexdigest()
        assert (one["sha256"], one["size_bytes"]) == (digest, len(data))
    config = hashlib.sha256((folder / "config.json").read_bytes()).hexdigest()
    assert card["reproducibility"]["config_hash"] == config


def test_the_index_starts_from_the_same_money(
    market: Any, facts: Callable[..., Facts], parent: Path
) -> None:
    market.add(MAIN, [10.0] * 5)
    index = pd.Series([50.0, 50.0, 55.0, 55.0, 44.0], pd.bdate_range("2024-03-04", periods=5))
    result = market.run({MAIN: [0.0] * 5}, benchmark=index.rename("000300.SH"))
    table = pd.read_csv(write_evidence(parent, result, facts(), None) / "artifacts" / "equity.csv")
    assert table["benchmark_equity"].tolist() == [1e5, 1e5, 1.1e5, 1.1e5, 0.88e5]
    # The account stood still: what it did beyond the index is what the index did not.
    assert table["active_ret"].tolist()[1:] == pytest.approx([0.0, -0.1, 0.0, 0.2])


def test_what_the_guards_said_is_in_engine_json(
    result: BacktestResult, facts: Callable[..., Facts], parent: Path
) -> None:
    told = facts(
        partial=("symbols",),
        stress=stress(result),
        trials=Trials(place=2, tried=7, expected_best=1.25, deflated_sharpe=0.5),
        folds=(
            {
                "start": "2024-03-05",
                "end": "2024-03-06",
                "total_return": 0.02,
                "sharpe": None,
                "max_drawdown": 0.0,
            },
        ),
        steps=(StepQuality(name="filter", quality="partial", agreement=0.75),),
    )
    evidence = Evidence.read(write_evidence(parent, result, told, None))
    guards = evidence.engine["guards"]
    assert guards["trials"]["tried"] == 7
    assert guards["folds"][0]["total_return"] == 0.02
    assert guards["costs"]["as_is"]["total_return"] == pytest.approx(result.metrics.total_return)
    # Four orders wanted, three filled: the last sale met the lower limit.
    assert guards["costs"]["unfilled_share"] == pytest.approx(1 / 4)
    assert evidence.engine["steps"][0]["agreement"] == 0.75
    assert evidence.partial == ("symbols",)


def test_shares_are_written_without_the_noise_of_a_factor(
    market: Any, facts: Callable[..., Facts], parent: Path
) -> None:
    # A dividend of 0.30 on 10.00 grows 3,900 shares to 4,020.618557 when it is reinvested.
    market.add(MAIN, [10.0, 10.0, 9.7, 9.7, 9.7], factor=[1.0, 1.0, *[10 / 9.7] * 3])
    folder = write_evidence(parent, market.run({MAIN: [0.39, 0.39, 0.0, 0.0, 0.0]}), facts(), None)
    assert pd.read_csv(folder / "trades.csv", dtype=str).loc[0, "size"] == "4020.618557"


def test_without_a_trade_the_tables_are_there_all_the_same(
    market: Any, facts: Callable[..., Facts], parent: Path
) -> None:
    market.add(MAIN, [10.0] * 5)
    folder = write_evidence(parent, market.run({MAIN: [0.0] * 5}), facts(), None)
    trades = pd.read_csv(folder / "trades.csv")
    assert len(trades) == 0
    assert "pnl" in trades.columns
    assert Evidence.read(folder).engine["unfilled"] == {}


def test_labels_count_on_and_are_per_day(
    result: BacktestResult, facts: Callable[..., Facts], parent: Path
) -> None:
    names = [write_evidence(parent, result, facts(), None).name for _ in range(2)]
    assert names == ["2024-09-19-iter-1", "2024-09-19-iter-2"]
    (parent / "2024-09-19-iter-1").rename(parent / "2024-09-19-iter-9")
    # On another day it goes on counting, so that a number means one backtest.
    later = facts(created_at="2024-09-20T00:10:00+00:00")
    assert write_evidence(parent, result, later, None).name == "2024-09-20-iter-10"
    assert write_evidence(parent, result, later, "base").name == "2024-09-20-base"
    with pytest.raises(DataError, match="2024-09-20-base already") as caught:
        write_evidence(parent, result, later, "base")
    assert caught.value.code == "backtest.label_taken"
    assert write_evidence(parent, result, facts(), "base").name == "2024-09-19-base"


@pytest.mark.parametrize("label", ["", "Base", "a b", "../up", "a--b", "a_b", "基线", "-a", "a\n"])
def test_a_bad_label_is_refused_before_anything_is_written(
    result: BacktestResult, facts: Callable[..., Facts], parent: Path, label: str
) -> None:
    with pytest.raises(DataError) as caught:
        write_evidence(parent, result, facts(), label)
    assert caught.value.code == "backtest.bad_label"
    assert not parent.exists()


def test_two_at_once_get_a_number_each(
    result: BacktestResult,
    facts: Callable[..., Facts],
    parent: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    publish = files.publish_dir
    rival = parent / "2024-09-19-iter-1"

    def late(staging: Path, final: Path) -> None:
        if not rival.exists():
            rival.mkdir(parents=True)
            (rival / "engine.json").write_text("{}")
        publish(staging, final)

    monkeypatch.setattr(files, "publish_dir", late)
    assert write_evidence(parent, result, facts(), None).name == "2024-09-19-iter-2"
    (rival / "engine.json").unlink()
    rival.rmdir()
    rival = parent / "2024-09-19-base"
    with pytest.raises(DataError) as caught:
        write_evidence(parent, result, facts(), "base")
    assert caught.value.code == "backtest.label_taken"


def test_threads_do_not_meet(
    result: BacktestResult, facts: Callable[..., Facts], parent: Path
) -> None:
    labels = ["one", "two", "three", "four"]
    threads = [
        threading.Thread(target=write_evidence, args=(parent, result, facts(), label))
        for label in labels
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {path.name for path in parent.iterdir()} == {f"2024-09-19-{label}" for label in labels}
    assert all({p.name for p in path.iterdir()} == FILES for path in parent.iterdir())


def test_a_full_disk_at_any_operation_leaves_nothing(
    result: BacktestResult,
    facts: Callable[..., Facts],
    parent: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root = parent.parents[2]
    kept = write_evidence(parent, result, facts(), "kept")
    before = tree(root)
    for number in range(1, 100):
        monkeypatch.setenv("KIT_NO_SPACE_AT", str(files.count_operations() + number))
        refused = None
        try:
            written = write_evidence(parent, result, facts(), "next")
        except StorageError as error:
            refused = error.code
        if refused is None:
            break
        assert refused == "file.no_space"
        assert tree(root) == before
        assert [path.name for path in parent.iterdir()] == [kept.name]
        assert [path.name for path in parent.parents[1].iterdir()] == ["draft"]
    assert {path.name for path in written.iterdir()} == FILES
    assert number > 15  # eight files, two operations each, were really tried


KILLED = """
import sys, pickle
from pathlib import Path
sys.path.insert(0, sys.argv[1])
result, facts = pickle.loads(Path(sys.argv[2]).read_bytes())
from kit.backtest.evidence import write_evidence
write_evidence(Path(sys.argv[3]), result, facts, None)
"""


def test_what_a_killed_backtest_left_is_no_evidence_and_goes_with_the_next(
    result: BacktestResult, facts: Callable[..., Facts], parent: Path, hand: ModuleType
) -> None:
    handed = parent.parents[3] / "result.pickle"
    handed.write_bytes(pickle.dumps((replace(result), facts())))
    # At its nineteenth operation engine.json is there and report.html is not.
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(Path(hand.__file__).parent), str(handed), str(parent)],
        env={**os.environ, "KIT_CRASH_AT": "19"},
        check=False,
    )
    assert killed.returncode == 137
    bundle = parent.parent
    # Nothing of it stands in the bundle, where a freeze would take it along.
    assert not bundle.exists()
    assert read_all(bundle) == []
    (left,) = bundle.parent.iterdir()
    assert left.name.startswith(".evidence-")
    assert (left / "engine.json").is_file()
    folder = write_evidence(parent, result, facts(), None)
    assert folder.name == "2024-09-19-iter-1"
    assert [path.name for path in parent.parent.parent.iterdir()] == ["draft"]


def test_what_another_process_is_writing_is_left_alone(
    result: BacktestResult, facts: Callable[..., Facts], parent: Path
) -> None:
    bundle = parent.parent
    living = bundle.parent / f".evidence-{os.getppid()}-2024-09-19-None"
    living.mkdir(parents=True)
    write_evidence(parent, result, facts(), None)
    assert living.is_dir()


def test_each_changed_part_makes_it_stale(
    result: BacktestResult, facts: Callable[..., Facts], parent: Path
) -> None:
    evidence = Evidence.read(write_evidence(parent, result, facts(), None))
    now = {"code": "a" * 64, "prompts": "b" * 64, "config": "c" * 64}
    assert evidence.stale_parts(now) == []
    for part in now:
        assert evidence.stale_parts({**now, part: "0" * 64}) == [part]
    assert evidence.stale_parts(dict.fromkeys(now, "0" * 64)) == ["code", "prompts", "config"]
    assert evidence.stale_parts({"data": "d" * 64}) == []
    assert evidence.stale_parts({"data": "0" * 64}) == ["data"]


def test_all_evidence_is_read_newest_first_and_the_unreadable_skipped(
    result: BacktestResult, facts: Callable[..., Facts], parent: Path
) -> None:
    for hour in ("10", "08", "09"):
        write_evidence(parent, result, facts(created_at=f"2024-09-19T{hour}:00:00+00:00"), None)
    good = parent / "2024-09-19-iter-1" / "engine.json"
    broken = {
        "bad-json": "{",
        "not-utf8": b"\xff\xfe",
        "no-guards": json.dumps({k: v for k, v in json.loads(good.read_text("utf-8")).items()
                                 if k != "guards"}),
        ".hidden": good.read_text("utf-8"),
    }  # fmt: skip
    for name, content in broken.items():
        (parent / name).mkdir()
        data = content.encode("utf-8") if isinstance(content, str) else content
        (parent / name / "engine.json").write_bytes(data)
    (parent / "empty").mkdir()
    found = read_all(parent.parent)
    assert [one.folder.name for one in found] == [
        "2024-09-19-iter-1", "2024-09-19-iter-3", "2024-09-19-iter-2"
    ]  # fmt: skip
    assert read_all(parent) == []
    with pytest.raises(DataError, match="guards: missing") as caught:
        Evidence.read(parent / "no-guards")
    assert caught.value.code == "data.schema"
    with pytest.raises(DataError) as caught:
        Evidence.read(parent / "empty")
    assert caught.value.code == "file.missing"


def test_evidence_of_the_shipped_bundles_is_readable_and_fresh(repository: Path) -> None:
    from kit.bundle import fingerprints

    roots = sorted(repository.glob("strategies/*/[0-9]*"))
    assert roots
    for root in roots:
        found = read_all(root)
        assert found
        assert any(not evidence.stale_parts(fingerprints(root)) for evidence in found)
