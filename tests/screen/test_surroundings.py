"""What a step may look at beside the universe: moves abroad by hand, companies beside sectors."""

from __future__ import annotations

from datetime import date, datetime
from zoneinfo import ZoneInfo

import pytest

from kit.degradation import Policy, ReportBuilder
from kit.market import SampleSource, load_panel, with_context
from kit.market.context import ContextLag
from kit.screen import context_moves, filter_check, news_of, read_sectors, tell_context
from kit.workspace import Workspace, template_root

DAY = date(2023, 3, 17)


def test_moves_are_those_that_became_known_with_the_session() -> None:
    source = SampleSource()
    first = date(2023, 3, 1)
    own = load_panel(source, ["600000.SH"], first, DAY, market="cn")
    workspace = Workspace(root=template_root())
    panel = with_context(own, workspace, source, {"us": ["AAPL"]}, first, DAY)
    close = load_panel(source, ["AAPL"], first, DAY, market="us")["AAPL"]["close"]
    # Thursday the 16th is what Friday the 17th sees; a session, and five, before it.
    last, one, five = (close[f"2023-03-{day:02}"] for day in (16, 15, 9))
    assert context_moves(panel, DAY) == [
        {
            "symbol": "AAPL",
            "name": "苹果",
            "change_pct": round((last / one - 1) * 100, 2),
            "change_5_pct": round((last / five - 1) * 100, 2),
        }
    ]
    assert context_moves(panel, date(2023, 3, 20)) == []  # nothing new is no move
    assert context_moves(own, DAY) == []
    assert context_moves(None, DAY) == []
    short = with_context(
        load_panel(source, ["600000.SH"], date(2023, 3, 15), DAY, market="cn"),
        workspace, source, {"us": ["AAPL"]}, date(2023, 3, 15), DAY,
    )  # fmt: skip
    assert context_moves(short, DAY)[0]["change_5_pct"] is None


@pytest.mark.parametrize(
    ("value", "kept", "unknown"),
    [
        ({"focus_companies": ["600000.SH"]}, ["600000.SH"], []),
        ({"focus_sectors": ["银行"], "focus_companies": ["600000.SH"]}, ["银行", "600000.SH"], []),
        ({"focus_sectors": [], "focus_companies": []}, None, []),
        ({"focus_sectors": [], "focus_companies": ["300750.SZ"]}, None, ["300750.SZ"]),
        ({"focus_companies": "600000.SH"}, None, []),
    ],
)
def test_companies_are_read_beside_sectors(
    value: dict[str, object], kept: list[str] | None, unknown: list[str]
) -> None:
    assert read_sectors(value, ["银行", "600000.SH"]) == (kept, unknown)


def test_companies_out_of_thin_air_are_refused() -> None:
    named = {"focus_sectors": [], "focus_companies": ["600000.SH"]}
    assert filter_check({"news_window": {"items": []}}, named) is not None
    assert filter_check({"news_window": {"items": [{"title": "x"}]}}, named) is None
    assert filter_check({"news_window": {"items": []}}, {"focus_companies": []}) is None


def test_a_pick_is_given_its_own_news_only() -> None:
    items = [
        {"published_at": "t1", "symbols": ["A"], "title": "one", "summary": "s"},
        {"published_at": "t2", "symbols": ["B"], "title": "two", "summary": "s"},
    ]
    window = {"start": "a", "end": "b", "items": items}
    assert news_of(window, "B") == {
        "start": "a",
        "end": "b",
        "items": [{"published_at": "t2", "title": "two"}],
    }
    assert news_of(window, "C") == {}
    assert news_of({}, "A") == {}


def test_a_series_that_is_behind_is_a_degradation_beyond_the_tolerance() -> None:
    zone = ZoneInfo("America/New_York")
    close = datetime(2023, 9, 21, 16, tzinfo=zone)
    report = ReportBuilder(Policy())
    tell_context(report, [])
    same = ContextLag(market="us", symbols=("A",), data_time=close, expected_time=close)
    tell_context(report, [same])
    assert report.build().entries == ()
    later = datetime(2023, 9, 22, 16, tzinfo=zone)
    late = ContextLag(market="us", symbols=("A", "B"), data_time=close, expected_time=later)
    tell_context(report, [late])
    (entry,) = report.build().entries
    assert entry.code == "D-022"
    assert entry.details["lag_minutes"] == 1440
    assert "A、B" in entry.reason
