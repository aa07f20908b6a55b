"""A bundle stands alone: with only pandas and numpy it screens as it does through the kit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from kit.market import MarketPanel

DAYS = ["2020-02-27", "2020-02-12", "2019-12-03", "2024-04-12"]

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


@pytest.mark.parametrize("entry", ["code/signal_engine.py", "example_signal_engine.py"])
def test_the_picks_are_the_same_without_the_kit(
    bundle_root: Path,
    panel: MarketPanel,
    frames: dict[str, pd.DataFrame],
    module: Any,
    tmp_path: Path,
    entry: str,
) -> None:
    data = tmp_path / "bars.csv"
    pd.concat(
        [frame.rename_axis("date").reset_index().assign(symbol=s) for s, frame in frames.items()]
    ).to_csv(data, index=False)
    known = {symbol: frame.attrs["industry"] for symbol, frame in frames.items()}
    before = sorted(path.name for path in bundle_root.rglob("*"))
    child = subprocess.run(
        [
            sys.executable,
            "-I",
            "-c",
            CHILD,
            str(bundle_root),
            str(data),
            json.dumps(known),
            entry,
            *DAYS,
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert child.returncode == 0, child.stderr
    answer = json.loads(child.stdout)
    assert answer["kit"] is False
    engine = module.SignalEngine()
    through_the_kit = {day: [[*pick] for pick in engine.screen_panel(panel, day)] for day in DAYS}
    assert answer["picks"] == json.loads(json.dumps(through_the_kit))
    assert any(through_the_kit.values())
    assert sorted(path.name for path in bundle_root.rglob("*")) == before
