"""The report in a real browser: charts are drawn, nothing runs over the edge, nothing is loaded."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from html import escape, unescape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pytest_httpserver import HTTPServer

from kit.backtest import stress
from kit.backtest.facts import Facts
from kit.backtest.folds import by_fold
from kit.backtest.report import build_report
from kit.market import Dropped

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="chromium is not installed"),
]

# A page around the report measures it: the report itself runs no script. Waits for the frame.
AROUND = """\
<!DOCTYPE html><meta charset="utf-8"><body>
<iframe id="f" style="width:%(width)dpx;height:900px;border:0" srcdoc="%(report)s"></iframe>
<pre id="told"></pre><script>
document.getElementById("f").addEventListener("load", () => {
  const view = document.getElementById("f").contentWindow, page = view.document;
  const box = e => e.getBoundingClientRect();
  const charts = [...page.querySelectorAll("svg.kit-chart")];
  document.getElementById("told").textContent = JSON.stringify({
    inside: page.documentElement.clientWidth,
    needed: page.documentElement.scrollWidth,
    cut: [...page.querySelectorAll(".body")].filter(e => e.scrollWidth > e.clientWidth + 1)
      .map(e => e.parentElement.querySelector("h2").textContent),
    charts: charts.map(e => [Math.round(box(e).left), Math.round(box(e).right)]),
    drawn: charts.map(e => Math.round(Math.max(...[...e.querySelectorAll("path.line,rect")]
      .map(line => box(line).width)))),
    loaded: view.performance.getEntriesByType("resource").map(e => e.name),
  });
});
</script>
"""


def seen(tmp_path: Path, report: str, width: int) -> Any:
    """Return what a page of some width looks like from outside."""
    path = tmp_path / f"around-{width}.html"
    path.write_text(AROUND % {"width": width, "report": escape(report)}, "utf-8")
    command = [
        str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom",
        "--disable-background-networking", "--host-resolver-rules=MAP * ~NOTFOUND",
        f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=4000",
        "--window-size=1400,1000", path.as_uri(),
    ]  # fmt: skip
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    told = re.search(r'<pre id="told">(.*?)</pre>', ran.stdout, re.DOTALL)
    assert told is not None
    return json.loads(unescape(told[1]))


@pytest.fixture
def report(market: Any, facts: Callable[..., Facts]) -> str:
    """A page with everything on it: trades of three symbols, an index, drops, guards."""
    steps = np.random.default_rng(5).normal(0, 0.02, (3, 120))
    symbols = ["600000.SH", "000001.SZ", "601318.SH"]
    for symbol, walk in zip(symbols, 10 * np.exp(steps.cumsum(axis=1)), strict=True):
        market.add(symbol, [round(float(price), 2) for price in walk])
    held = ([0.3] * 7 + [0.0] * 5) * 10
    index = pd.Series(np.linspace(4000, 4300, 120), pd.bdate_range("2024-03-04", periods=120))
    result = market.run(
        dict.fromkeys(symbols, held),
        benchmark=index.rename("000300.SH"),
        dropped=[Dropped(symbol="999999.SH", name="某股", reason="数据源没有该代码")],
        evaluation_start="2024-04-01",
    )
    told = facts(
        partial=("symbols",),
        stress=stress(result),
        folds=tuple(by_fold(result.equity, 250.0)),
    )
    return build_report(result, told)


@pytest.mark.parametrize("width", [500, 1200])
def test_charts_are_drawn_inside_the_page_and_nothing_is_loaded(
    tmp_path: Path, report: str, width: int
) -> None:
    found = seen(tmp_path, report, width)
    assert found["needed"] <= found["inside"] <= width
    assert found["cut"] == []
    assert found["loaded"] == []
    # Curve, drawdown, years, and the price of each of three symbols.
    assert len(found["charts"]) == 6
    assert all(0 <= left < right <= width for left, right in found["charts"])
    assert all(wide > 10 for wide in found["drawn"])


def test_the_browser_would_tell(tmp_path: Path, httpserver: HTTPServer) -> None:
    """The measures above do see a page that is too wide, and one that asks for a file."""
    wide = '<section><h2>x</h2><div class="body" style="width:900px">x</div></section>'
    httpserver.expect_request("/dot.svg").respond_with_data(
        '<svg xmlns="http://www.w3.org/2000/svg"/>', content_type="image/svg+xml"
    )
    image = httpserver.url_for("/dot.svg")
    found = seen(tmp_path, f'{wide}<img src="{image}">', 500)
    assert found["needed"] > found["inside"]
    assert found["loaded"] == [image]  # asked for, whatever came of it
