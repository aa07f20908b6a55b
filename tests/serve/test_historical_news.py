"""`historical-news-cn-mcp`: the window, the count of what is not in it, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

NAME = "historical-news-cn"
DAY = {"start_time": "2021-06-07T23:59:59+08:00", "end_time": "2021-06-08T23:59:59+08:00"}


def test_a_window(call: Any) -> None:
    got = call(NAME, "query_news", {**DAY, "categories": ["investor_qa"]}).value
    assert got["matched"] == len(got["news"]) > 0
    for item in got["news"]:
        assert item["published_at"] == "2021-06-08T23:59:59+08:00"
        assert item["precision"] == "date"
        assert item["categories"] == ["investor_qa"]
    assert (got["older_left_out"], got["undated"], got["source"]) == (0, 0, "sample")


def test_offsets_are_instants(call: Any) -> None:
    """One second before the end of the day in Shanghai, written in UTC."""
    early = call(NAME, "query_news", {**DAY, "end_time": "2021-06-08T15:59:58Z"}).value
    late = call(NAME, "query_news", {**DAY, "end_time": "2021-06-08T15:59:59+00:00"}).value
    assert early["matched"] == 0
    assert late["matched"] == call(NAME, "query_news", DAY).value["matched"]


def test_of_many_the_newest_and_a_count(call: Any) -> None:
    wide = {"start_time": "1900-01-01T00:00Z", "end_time": "2100-01-01T00:00Z"}
    got = call(NAME, "query_news", wide).value
    assert len(got["news"]) == 500
    assert got["older_left_out"] == got["matched"] - 500 > 0
    assert got["undated"] == 1
    assert got["news"][-1]["published_at"].startswith("2023-12-28")
    assert set(got["categories"]) == {"investor_qa", "dividend", "manager_trade"}


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"start_time": "2021-06-07T00:00"}, "time.bad_instant"),
        ({"end_time": "NaN"}, "time.bad_instant"),
        ({"end_time": "1999-01-01T00:00Z"}, "time.bad_window"),
        ({"categories": ["../x"]}, "news.unknown_category"),
        ({"categories": []}, "mcp.bad_arguments"),
        ({"categories": "dividend"}, "mcp.bad_arguments"),
        ({"category": ["dividend"]}, "mcp.bad_arguments"),
    ],
)
def test_refusals(call: Any, wrong: dict[str, Any], code: str) -> None:
    assert call(NAME, "query_news", {**DAY, **wrong}).error["code"] == code
