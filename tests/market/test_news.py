"""Dated news of the sample: nothing is seen before its time, nothing undated is served."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from itertools import pairwise

import pyarrow.parquet as pq
import pytest

from kit.clock import parse_instant
from kit.errors import UsageError
from kit.market import SampleNews, sample

ALL = (parse_instant("1900-01-01T00:00+08:00"), parse_instant("2100-01-01T00:00+08:00"))


@pytest.fixture(scope="module")
def news() -> SampleNews:
    return SampleNews()


def rows(table: str) -> list[dict[str, object]]:
    """Read a table of the sample without the kit."""
    found: list[dict[str, object]] = pq.read_table(sample.FOLDER / f"{table}.parquet").to_pylist()
    return found


def test_every_dated_row_once_and_the_others_counted(news: SampleNews) -> None:
    found = news.query(*ALL)
    dates = [row["announce_date"] for row in rows("dividend_events")]
    undated = dates.count(None)
    asked = len(rows("investor_qa")) + len(dates) + len(rows("manager_trades"))
    assert undated == found.undated == 1
    assert len(found.items) == asked - undated
    assert len({item.news_id for item in found.items}) == len(found.items)
    times = [item.published_at for item in found.items]
    assert times == sorted(times)


def test_a_day_is_published_at_its_end(news: SampleNews) -> None:
    (row,) = [row for row in rows("investor_qa") if row["id"] == 759984]
    assert str(row["question_date"]) == "2021-05-06"
    assert str(row["answer_date"]) == "2021-06-08"
    end = parse_instant("2021-06-08T23:59:59+08:00")
    (item,) = [i for i in news.query(*ALL).items if i.news_id.endswith("-759984")]
    assert item.published_at == end, "known when answered, not when asked"
    assert item.precision == "date"
    assert str(row["answer"]) in item.summary
    before = news.query(end - timedelta(days=9), end - timedelta(seconds=1))
    assert item not in before.items
    assert item in news.query(end - timedelta(seconds=1), end).items, "the end is closed"
    assert item not in news.query(end, ALL[1]).items, "the start is open"


def test_windows_in_a_row_show_each_item_once(news: SampleNews) -> None:
    edges = [ALL[0], parse_instant("2015-06-30T15:00+08:00"), *[
        parse_instant(f"{year}-06-08T23:59:59+08:00") for year in (2019, 2021, 2022)
    ], ALL[1]]  # fmt: skip
    parts = [news.query(a, b).items for a, b in pairwise(edges)]
    assert [item for part in parts for item in part] == list(news.query(*ALL).items)
    for part, end in zip(parts, edges[1:], strict=True):
        assert all(item.published_at <= end for item in part)


def test_a_dividend_tells_nothing_set_later(news: SampleNews) -> None:
    """Record and ex dates come after the announcement, so no text may hold them."""
    for item in news.query(*ALL, ["dividend"]).items:
        day = f"{item.published_at:%Y-%m-%d}"
        text = f"{item.title} {item.summary}"
        assert set(re.findall(r"\d{4}-\d{2}-\d{2}", text)) == {day}
    plans = {str(row["plan"] or "内容未载") for row in rows("dividend_events")}
    titles = {item.title.partition("：")[2] for item in news.query(*ALL, ["dividend"]).items}
    assert titles <= plans


def test_categories(news: SampleNews) -> None:
    counts = {name: len(news.query(*ALL, [name]).items) for name in news.categories}
    assert counts["investor_qa"] == len(rows("investor_qa"))
    assert sum(counts.values()) == len(news.query(*ALL).items)
    assert news.query(*ALL, ["investor_qa"]).undated == 0
    with pytest.raises(UsageError, match="no category 'dividends'") as caught:
        news.query(*ALL, ["dividends"])
    assert "did you mean dividend?" in caught.value.remedy


def test_a_window_that_ends_before_it_begins(news: SampleNews) -> None:
    with pytest.raises(UsageError, match="ends before it begins"):
        news.query(ALL[1], ALL[0])
    at = datetime.fromisoformat("2021-06-08T23:59:59+08:00")
    assert news.query(at, at).items == ()
