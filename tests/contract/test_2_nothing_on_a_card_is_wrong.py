"""Promise 2: each number on a card comes from code, and the holdings table is never rewritten.

The numbers are looked up in the run's own evidence, and the evidence is computed once more here,
from the bars alone and with nothing of the kit's own arithmetic.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import kit.market.sample
from kit.card import Block, Card, render_card

pytestmark = pytest.mark.kernel

SAMPLE = Path(kit.market.sample.__file__).parent
# A number as people write it: sign, thousands separators, decimals.
NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)?")
# Names of things hold digits that are no figures.
NAMES = re.compile(
    r"""
      \d{4}-\d\d-\d\d/(?:screen|slot)-\S+            # a run
    | [a-z][a-z0-9]*-[a-z-]+@\d+\.\d+\.\d+           # a bundle
    | D-\d{3}                                        # a degradation code
    | 卡片[ ][0-9a-f]{8}
    """,
    re.VERBOSE,
)


def numbers_in(text: str) -> list[str]:
    return [match.replace(",", "") for match in NUMBER.findall(NAMES.sub(" ", text))]


def values_of(evidence: Any) -> Iterator[float]:
    """Every number of a JSON value, the ones inside its texts and the lengths of its lists too."""
    if isinstance(evidence, dict):
        for value in evidence.values():
            yield from values_of(value)
    elif isinstance(evidence, list):
        yield float(len(evidence))
        for value in evidence:
            yield from values_of(value)
    elif isinstance(evidence, str):
        yield from (float(part) for part in re.findall(r"\d+(?:\.\d+)?", evidence))
    elif isinstance(evidence, int | float) and not isinstance(evidence, bool):
        yield float(evidence)


def unexplained(text: str, evidence: Any) -> list[str]:
    """The numbers of a text that no number of the evidence rounds to."""
    known = list(values_of(evidence))
    missing = []
    for written in numbers_in(text):
        digits = len(written.partition(".")[2])
        # Half a unit of the last written digit, and a little for binary fractions.
        near = 0.5 * 10**-digits + 1e-9
        if not any(abs(abs(float(written)) - abs(value)) <= near for value in known):
            missing.append(written)
    return missing


def blocks(card: Any, kind: str) -> list[str]:
    return ["\n".join(b["lines"]) for b in card["blocks"] if b["kind"] == kind]


def test_the_search_itself_finds_an_invented_number() -> None:
    evidence = {"close": 6.98, "pct": -0.684, "dropped": ["a", "b", "c"], "day": "2020-02-27"}
    good = "2月27日 收 6.98 元，-0.68%，剔除 3 只 D-024"
    assert unexplained(good, evidence) == []
    assert unexplained("目标价 7.50 元，收 6.99 元，剔除 4 只", evidence) == ["7.50", "6.99", "4"]


def test_every_number_of_the_screen_card_is_in_its_evidence(main_job: Any) -> None:
    card, picks = main_job.read("card.json"), main_job.read("picks.json")
    shown = blocks(card, "pick")
    assert len(shown) == len(picks["picks"]) == 2
    # A block may quote its own pick only: a figure of the neighbour would be wrong there.
    for place, (text, pick) in enumerate(zip(shown, picks["picks"], strict=True), start=1):
        evidence = [pick["score"], pick["fields"], pick["reason_text"], pick["symbol"], place]
        assert unexplained(text, evidence) == [], text
        assert unexplained(pick["reason_text"], pick["fields"]) == []
    assert unexplained(blocks(card, "universe")[0], picks["universe"]) == []
    assert unexplained(blocks(card, "degradation")[0], picks["degradation_report"]) == []
    assert blocks(card, "conclusion")[0] == "2 只候选"
    times = {"asof": picks["asof"], "next": picks["provenance"]["next_session"]}
    assert unexplained(blocks(card, "times")[0], times) == []
    assert unexplained(card["title"], picks["date"]) == []


def bars(file: str, symbol: str, until: str) -> pd.DataFrame:
    frame = pd.read_parquet(SAMPLE / file)
    return frame[(frame["symbol"] == symbol) & (frame["time"] <= until)]


@pytest.mark.parametrize("place", [0, 1])
def test_the_figures_of_a_pick_are_what_the_bars_say(main_job: Any, place: int) -> None:
    """The rule of 0.3.1 in plain arithmetic: 250 closes, ten sessions back, twenty volumes."""
    pick = main_job.read("picks.json")["picks"][place]
    frame = bars("daily.parquet", pick["symbol"], "2020-02-27")
    frame = frame[frame["volume"] > 0]
    assert str(frame["time"].iloc[-1].date()) == "2020-02-27"
    closes, volumes = frame["close"].tolist(), frame["volume"].tolist()
    low = float(frame["low"].iloc[-1])

    def line(back: int) -> float:
        window = closes[len(closes) - back - 250 : len(closes) - back]
        assert len(window) == 250
        return float(sum(window) / 250)

    fields = pick["fields"]
    assert pick["score"] == round(closes[-1] / line(0) - 1, 6)
    assert fields["close"] == round(closes[-1], 3)
    assert fields["low"] == round(low, 3)
    assert fields["ma250"] == round(line(0), 3)
    assert fields["distance_pct"] == round((closes[-1] / line(0) - 1) * 100, 2)
    assert fields["low_distance_pct"] == round((low / line(0) - 1) * 100, 2)
    assert fields["ma250_trend_pct"] == round((line(0) / line(10) - 1) * 100, 2)
    assert fields["closes_above"] == sum(closes[-1 - back] > line(back) for back in range(1, 11))
    assert fields["volume_ratio"] == round(volumes[-1] / (sum(volumes[-20:]) / 20), 2)


def test_every_number_of_the_slot_card_is_in_its_context(main_job: Any) -> None:
    folder = main_job.slot_folder
    card, context = main_job.read("card.json", folder), main_job.read("context.json", folder)
    # Nothing that is text already: only what the table and the signals were made from.
    evidence = {
        name: context[name]
        for name in ("full_holdings", "book", "data_time", "generated_at", "slot")
    }
    for block in card["blocks"]:
        text = "\n".join(block["lines"])
        assert unexplained(text, evidence) == [], block["kind"]


# Shares, cost and lines of config/portfolio.json; price and previous close read off the bars.
HOLDINGS = {
    "600000.SH": (3000, 8.42),
    "000001.SZ": (2000, 10.85),
    "000151.SZ": (1500, 9.12),
}


def test_the_holdings_table_is_what_the_minutes_say(main_job: Any) -> None:
    rows = main_job.read("context.json", main_job.slot_folder)["full_holdings"]
    assert [row["symbol"] for row in rows] == list(HOLDINGS)
    value = gain = day = paid = before = 0.0
    for row in rows:
        shares, cost = HOLDINGS[row["symbol"]]
        price = float(bars("minute.parquet", row["symbol"], "2024-09-18 10:03")["close"].iloc[-1])
        # The sessions before 2024-09-18 ended on the 13th: the Mid-Autumn festival lies between.
        last = bars("daily.parquet", row["symbol"], "2024-09-17").iloc[-1]
        assert str(last["time"].date()) == "2024-09-13"
        close = float(last["close"])
        assert (row["price"], row["prev_close"]) == (round(price, 3), round(close, 3))
        assert row["gain"] == round((price - cost) * shares, 2)
        assert row["gain_pct"] == round((price / cost - 1) * 100, 1)
        assert row["pct_1d"] == round((price / close - 1) * 100, 1)
        value += price * shares
        gain += (price - cost) * shares
        day += (price - close) * shares
        paid += cost * shares
        before += close * shares
    book = main_job.read("context.json", main_job.slot_folder)["book"]
    assert book["value"] == round(value, 2)
    assert book["gain"] == round(gain, 2)
    assert book["gain_pct"] == round(gain / paid * 100, 1)
    assert book["day_gain"] == round(day, 2)
    assert book["day_pct"] == round(day / before * 100, 1)


def table(text: str) -> bytes:
    return "\n".join(line for line in text.split("\n") if line.startswith("|")).encode()


def test_the_holdings_table_is_the_same_bytes_everywhere(main_job: Any) -> None:
    folder = main_job.slot_folder
    context = main_job.read("context.json", folder)
    card = Card.from_dict(main_job.read("card.json", folder))
    expected = table(context["raw_wechat_block"])
    assert len(expected.splitlines()) == 1 + len(HOLDINGS)
    assert table(context["analyzer_block"]) == expected
    assert table(render_card(card, "plain")) == expected
    assert table(render_card(card, "telegram")) == expected
    wecom = render_card(card, "wecom")
    assert "**" in wecom
    assert table(wecom.replace("**", "")) == expected
    for name in ("card.txt", "card.json", "console.txt"):
        sent = (folder / "delivered" / name).read_text(encoding="utf-8")
        if name == "card.json":
            lines = next(b["lines"] for b in json.loads(sent)["blocks"] if b["kind"] == "table")
            sent = "\n".join(lines)
        assert table(sent) == expected, name


def test_a_tight_budget_never_cuts_inside_the_table() -> None:
    """A channel's byte limit takes whole blocks away, or whole rows; no row is ever shortened."""
    rows = tuple(f"| {code} | 100 | 8.42 | 8.31 | -0.5% |" for code in range(600000, 600030))
    card = Card(
        card_id="0123abcd",
        kind="slot",
        title="t",
        mode="none",
        blocks=(
            Block(kind="table", lines=rows, keep=True, bold_rows=(3, 7)),
            Block(kind="provenance", lines=("运行 x",), keep=True),
        ),
    )
    whole = render_card(card, "wecom")
    for budget in range(80, len(whole.encode()), 97):
        text = render_card(card, "wecom", max_bytes=budget)
        assert len(text.encode()) <= budget
        left = text.replace("**", "").split("\n")
        assert [line for line in left if line.startswith("|")] == [
            row for row in rows if row in left
        ]
