"""A bundle stands alone: with only pandas and numpy it screens as it does through the kit.

Every frozen version in the repository is tried, whichever strategies there are.
"""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from kit.bundle import Bundle
from kit.bundle.rebuild import version_dirs
from kit.market import MarketPanel, SampleSource, load_panel, with_context
from kit.workspace import Workspace, template_root

STRATEGIES = Path(__file__).resolve().parents[2] / "strategies"
FROZEN = [
    root
    for folder in sorted(STRATEGIES.iterdir())
    if folder.is_dir()
    for root in version_dirs(folder)
]
ENTRIES = [
    pytest.param(root, entry, id=f"{root.parent.name}@{root.name} {entry}")
    for root in FROZEN
    for entry in ("code/signal_engine.py", "example_signal_engine.py")
    if (root / entry).is_file()
]
DAYS = 60

CHILD = """
import json, sys
sys.dont_write_bytecode = True
KEPT = {"pandas", "numpy", "dateutil", "six", "pytz", "tzdata", "zoneinfo"}
STDLIB = sys.stdlib_module_names

class Blocker:
    def find_spec(self, name, path=None, target=None):
        root = name.partition(".")[0]
        if root in KEPT or root in STDLIB or root.startswith("_"):
            return None
        raise ModuleNotFoundError(f"{name} is not here", name=name)

sys.meta_path.insert(0, Blocker())
bundle, data, industries, entry = sys.argv[1:5]
import pandas as pd
import runpy

names = runpy.run_path(f"{bundle}/{entry}", run_name="bundle")
engine = names["SignalEngine"]()
bars = pd.read_csv(data, parse_dates=["date"], float_precision="round_trip")
frames = {s: g.drop(columns="symbol").set_index("date") for s, g in bars.groupby("symbol")}
for symbol, name in json.loads(industries).items():
    frames[symbol].attrs["industry"] = name
out = {day: [[*pick] for pick in engine.screen_today(frames, day)] for day in sys.argv[5:]}
print(json.dumps({"picks": out, "kit": any(m.partition(".")[0] == "kit" for m in sys.modules)}))
"""


@cache
def panel_of(root: Path) -> MarketPanel:
    """Every stock that the sample has in a bundle's market, and the context beside it."""
    source, contract = SampleSource(), Bundle.open(root).manifest.data_contract
    market = contract.market
    symbols = [s.symbol for s in source.securities(market) if s.kind == "stock"]
    first, last = date(2018, 6, 1), date(2024, 9, 19)
    panel = load_panel(source, symbols, first, last, market=market)
    workspace = Workspace(root=template_root())
    return with_context(panel, workspace, source, contract.context, first, last)


@cache
def through_the_kit(root: Path) -> dict[str, list[Any]]:
    """The picks of the days on which there are some, and of a few more."""
    bundle = Bundle.open(root)
    panel = panel_of(root)
    engine: Any = bundle.engine()
    frames = {symbol: panel[symbol] for symbol in panel}
    screen = getattr(engine, "screen_panel", None)
    found = {}
    # Frame by frame a screen takes a while: every third session has enough of both kinds.
    for day in panel.dates if screen else panel.dates[::3]:
        data = panel if screen else frames
        picks = (screen or engine.screen_today)(data, day)
        found[day.date().isoformat()] = [[*pick] for pick in picks]
    fired = [day for day, picks in found.items() if picks]
    chosen = {*fired[:: max(1, len(fired) // DAYS)], *list(found)[::200]}
    return {day: found[day] for day in sorted(chosen)}


def test_there_are_versions_to_try() -> None:
    assert len(FROZEN) >= 2
    assert len(ENTRIES) >= len(FROZEN)


@pytest.mark.parametrize(("root", "entry"), ENTRIES)
def test_the_picks_are_the_same_without_the_kit(root: Path, entry: str, tmp_path: Path) -> None:
    expected = through_the_kit(root)
    panel = panel_of(root)
    frames = {symbol: panel[symbol] for symbol in panel}
    data = tmp_path / "bars.csv"
    pd.concat(
        [frame.rename_axis("date").reset_index().assign(symbol=s) for s, frame in frames.items()]
    ).to_csv(data, index=False)
    industries = {s: f.attrs["industry"] for s, f in frames.items() if f.attrs.get("industry")}
    before = sorted(path.name for path in root.rglob("*"))
    arguments = [str(root), str(data), json.dumps(industries), entry, *expected]
    child = subprocess.run(
        [sys.executable, "-I", "-c", CHILD, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        timeout=120,
    )
    assert child.returncode == 0, child.stderr
    answer = json.loads(child.stdout)
    assert answer["kit"] is False
    assert answer["picks"] == json.loads(json.dumps(expected))
    assert any(expected.values())
    assert sorted(path.name for path in root.rglob("*")) == before
