"""How long a whole daily screen of a market takes, stage by stage, offline.

    python benchmarks/screen_e2e.py [--symbols 5400] [--bars 320]

The stages of the production notebook on the shipped 250-day pullback, from the bundle to the card,
against a bare read of the columns its rule needs. Then the reasons of the picks once more from a
model that takes a second for each: seven side by side take as long as one.

Bars are generated (a seeded random walk): this measures time, nothing else. Servers are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from backtest import clocked, store

COLUMNS = ("symbol", "time", "low", "close", "volume", "adj_factor")
STAGES = (
    "load_bundle", "check_lock", "load_data", "news", "sector_filter", "screen", "rank",
    "explain", "result", "card",
)  # fmt: skip
SECONDS = 1.0


class Slow:
    """A model that takes its time."""

    def complete(self, request: Any) -> Any:
        from kit.llm import Completion

        time.sleep(SECONDS)
        said: dict[str, Any] = {"reason_text": "贴近年线", "confidence": "high"}
        if "pick" not in json.loads(request.messages[1]["content"]):
            said = {"focus_sectors": [], "rationale": "无"}
        return Completion(text=json.dumps(said, ensure_ascii=False), finish_reason="stop")


def prepared(folder: Path, bars: int, symbols: int) -> tuple[Any, Any]:
    """Return a workspace with that many symbols and a draft that screens them, and the last day."""
    from kit.bundle import new_draft
    from kit.workspace import Workspace, copy_workspace

    workspace = copy_workspace(Workspace.at(Path(__file__).parents[1]), folder)
    _, last, _ = store(workspace.market_dir, bars, symbols)
    root = new_draft(workspace, "ma250-pullback")
    manifest = json.loads((root / "manifest.json").read_text(encoding="utf-8"))
    manifest["data_contract"]["universe"] = {"market": "cn", "kind": "all"}
    manifest["env_lock"]["required_mcps"] = []
    (root / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    (workspace.config_dir / "mcp.json").write_text(
        '{"schema_version": "1.0", "servers": {}}', encoding="utf-8"
    )
    return workspace, last


def screened(workspace: Any, last: Any, mode: str) -> tuple[dict[str, float], Any]:
    """Run every stage; return its seconds, and the run."""
    from kit.jobs.screen_stages import ScreenRun

    at = datetime(last.year, last.month, last.day, 17, tzinfo=ZoneInfo("Asia/Shanghai"))
    run = ScreenRun.open(
        workspace=workspace,
        bundle="ma250-pullback@draft",
        date=last.isoformat(),
        mode=mode,
        now=at.isoformat(),
        source="parquet",
    )
    return {stage: clocked(getattr(run, stage)) for stage in STAGES}, run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--symbols", type=int, default=5_400)
    parser.add_argument("--bars", type=int, default=320)
    options = parser.parse_args()
    import polars as pl

    from kit.jobs.screen_steps import StepRunner

    with tempfile.TemporaryDirectory() as folder:
        workspace, last = prepared(Path(folder) / "desk", options.bars, options.symbols)
        path = next(workspace.market_dir.glob("cn/1d/*.parquet"))
        reading = min(
            clocked(lambda: pl.read_parquet(path, columns=list(COLUMNS))) for _ in range(5)
        )
        os.environ["KIT_MODE"] = "offline"
        first, _ = screened(workspace, last, "offline")
        warm, run = screened(workspace, last, "offline")
        del os.environ["KIT_MODE"]
        os.environ["DEEPSEEK_API_KEY"] = "not-a-key"
        StepRunner.model = lambda _: Slow()  # type: ignore[method-assign, assignment, return-value]
        live, asked = screened(workspace, last, "live")
    universe = run.data.universe
    print(f"{options.symbols:,} symbols x {options.bars:,} bars; {universe.screened:,} screened, ")
    print(f"{len(run.picks)} picks. Seconds:         first     warm")
    for stage in STAGES:
        print(f"  {stage:<24} {first[stage]:9.3f} {warm[stage]:8.3f}")
    total = sum(warm.values())
    print(f"  {'all':<24} {sum(first.values()):9.3f} {total:8.3f}")
    print(f"reading the columns        {reading:9.3f}")
    print(f"ratio, bundle to card      {total / reading:9.1f} x")
    print(f"ratio, data and rule       {(warm['load_data'] + warm['screen']) / reading:9.1f} x")
    print(f"{len(asked.picks)} reasons from a model of {SECONDS:g} s each: {live['explain']:.2f} s")


if __name__ == "__main__":
    main()
