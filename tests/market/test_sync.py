"""Sync: gentle, resumable, and the last good series stays whatever a source does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from kit.clock import FixedClock
from kit.errors import DataError, UsageError
from kit.market import SampleSource, calendar, load_panel, open_source
from kit.market.adapters import open_adapter
from kit.market.intake import ColumnMap, Raw
from kit.market.live import LiveSource, due_sessions
from kit.market.store import BarStore
from kit.market.sync import Outcome, Terms, sync
from kit.workspace import Workspace

START = date(2024, 8, 1)
TERMS = Terms(
    host="nowhere",
    pause_seconds=1.0,
    timeout_seconds=5.0,
    retries=2,
    failures_before_stop=2,
    deadline_seconds=3600.0,
    stale_sessions=3,
    options={},
)
_COLUMNS = {n: n for n in ("symbol", "time", "open", "high", "low", "close", "volume")}


class Scripted:
    """An adapter whose answers are written down: rows by symbol, or something to raise or do."""

    name = "scripted"
    markets = ("cn",)

    def __init__(self, workspace: Workspace, **answers: Any) -> None:
        self.days = calendar(workspace, "cn").sessions(START, date(2024, 9, 19))
        self.answers = answers
        self.asked: list[str] = []

    def fetch(self, symbol: str, start: date, end: date) -> Raw:
        self.asked.append(symbol)
        answer = self.answers.get(symbol, 0)
        if isinstance(answer, list):
            answer = answer.pop(0)
        if isinstance(answer, Exception):
            raise answer
        if callable(answer):
            answer()
        drop = answer if isinstance(answer, int) else 0
        days = self.days[: len(self.days) - drop]
        price = [10.0 + 0.1 * place for place in range(len(days))]
        rows = pl.DataFrame(
            {"symbol": symbol, "time": days, "volume": 1000.0}
            | dict.fromkeys(("open", "high", "low", "close"), price)
        )
        mapping = ColumnMap(columns=_COLUMNS, volume_unit="shares")
        return Raw(rows=rows, mapping=mapping, source=self.name)


A, B, C, D = "600000.SH", "000001.SZ", "000002.SZ", "600036.SH"


@pytest.fixture
def run(workspace: Workspace, clock: FixedClock) -> Callable[..., dict[str, Outcome]]:
    def call(adapter: Any, *symbols: str, terms: Terms = TERMS, at: Any = clock) -> Any:
        outcomes = sync(
            adapter,
            BarStore(workspace.market_dir),
            symbols,
            market="cn",
            due=due_sessions(workspace, "cn", at),
            terms=terms,
            clock=at,
            start=START,
            progress=lambda line: None,
        )
        return {outcome.symbol: outcome for outcome in outcomes}

    return call


def test_it_fetches_and_then_has_nothing_to_do(workspace: Workspace, run: Any) -> None:
    adapter = Scripted(workspace)
    first = run(adapter, A, B)
    assert [outcome.status for outcome in first.values()] == ["fetched", "fetched"]
    assert first[A].last == date(2024, 9, 19)
    again = run(adapter, A, B, C)
    assert [outcome.status for outcome in again.values()] == ["current", "current", "fetched"]
    assert adapter.asked == [A, B, C]
    assert again[A].rows == first[A].rows


def test_it_keeps_a_pause_after_every_call(workspace: Workspace, run: Any) -> None:
    clock = FixedClock("2024-09-19T08:40:00+00:00")
    run(Scripted(workspace), A, B, C, at=clock)
    assert clock.monotonic() == 3.0


def test_what_may_pass_is_tried_again(workspace: Workspace, run: Any) -> None:
    adapter = Scripted(workspace, **{A: [ConnectionError("reset by peer"), 0]})
    assert run(adapter, A)[A].status == "fetched"
    assert adapter.asked == [A, A]


@pytest.mark.parametrize(
    ("error", "code", "calls"),
    [
        (ConnectionError("HTTP Error 500"), "source.failed", 3),
        (TimeoutError("read timed out"), "source.timeout", 3),
        (ValueError("Too Many Requests. Rate limited."), "source.rate_limited", 3),
        (Exception("抱歉，您每分钟最多访问该接口500次"), "source.rate_limited", 3),
        (type("YFPricesMissingError", (Exception,), {})("possibly delisted"), "data.no_bars", 1),
        (DataError("data.bad_columns", "renamed"), "data.bad_columns", 1),
    ],
)
def test_failures_have_names(
    workspace: Workspace, run: Any, error: Exception, code: str, calls: int
) -> None:
    adapter = Scripted(workspace, **{A: error})
    outcome = run(adapter, A)[A]
    assert (outcome.status, outcome.code) == ("failed", code)
    assert len(adapter.asked) == calls


def test_a_source_that_keeps_failing_is_left_alone(workspace: Workspace, run: Any) -> None:
    down = {symbol: ConnectionError("down") for symbol in (A, B)}
    found = run(Scripted(workspace, **down), A, B, C, D)
    assert [found[s].status for s in (A, B, C, D)] == ["failed", "failed", "not_tried", "not_tried"]
    assert found[C].code == "source.stopped"
    # One that works in between is no row of failures.
    mixed = run(Scripted(workspace, **down), A, C, B, D)
    assert mixed[D].status == "fetched"


def test_the_deadline_names_what_was_not_done(workspace: Workspace, run: Any) -> None:
    clock = FixedClock("2024-09-19T08:40:00+00:00")
    terms = Terms(**{**vars(TERMS), "deadline_seconds": 1.5})
    found = run(Scripted(workspace), A, B, C, terms=terms, at=clock)
    assert [outcome.status for outcome in found.values()] == ["fetched", "fetched", "not_tried"]
    assert found[C].code == "source.deadline"


def test_a_call_that_hangs_ends(workspace: Workspace, run: Any) -> None:
    never = threading.Event()
    terms = Terms(**{**vars(TERMS), "timeout_seconds": 0.2, "retries": 0})
    adapter = Scripted(workspace, **{A: lambda: never.wait(30)})
    try:
        outcome = run(adapter, A, terms=terms)[A]
        assert (outcome.status, outcome.code) == ("failed", "source.timeout")
    finally:
        never.set()


def test_the_last_good_series_stays(workspace: Workspace, run: Any) -> None:
    store = BarStore(workspace.market_dir)
    run(Scripted(workspace), A)
    good = store.read("cn", "1d", A)
    later = FixedClock("2024-09-26T08:40:00+00:00")
    for answer, code in (
        (ConnectionError("down"), "source.failed"),
        (3, "source.shrunk"),  # three of the bars it served before are gone
    ):
        found = run(Scripted(workspace, **{A: answer}), A, at=later)[A]
        assert (found.status, found.code) == ("failed", code)
        assert found.last == date(2024, 9, 19)
        assert store.read("cn", "1d", A).equals(good)


def test_a_tail_that_ends_early_is_stale(workspace: Workspace, run: Any) -> None:
    found = run(Scripted(workspace, **{A: 4, B: 3}), A, B)
    assert (found[A].status, found[A].code) == ("stale", "source.stale")
    assert found[B].status == "fetched"


def test_rows_of_somebody_else_are_refused(workspace: Workspace, run: Any) -> None:
    adapter = Scripted(workspace)
    whole = adapter.fetch
    adapter.fetch = lambda symbol, start, end: whole(B, start, end)  # type: ignore[method-assign]
    outcome = run(adapter, A)[A]
    assert outcome.status == "failed"
    assert B in outcome.message


def test_an_interrupted_sync_goes_on_where_it_stopped(workspace: Workspace, run: Any) -> None:
    seen: list[str] = []

    def progress(line: str) -> None:
        seen.append(line)
        if len(seen) == 2:
            raise KeyboardInterrupt

    clock = FixedClock("2024-09-19T08:40:00+00:00")
    with pytest.raises(KeyboardInterrupt):
        list(
            sync(
                Scripted(workspace),
                BarStore(workspace.market_dir),
                [A, B, C],
                market="cn",
                due=due_sessions(workspace, "cn", clock),
                terms=TERMS,
                clock=clock,
                start=START,
                progress=progress,
            )
        )
    found = run(Scripted(workspace), A, B, C)
    assert [outcome.status for outcome in found.values()] == ["current", "current", "fetched"]


def _csv(workspace: Workspace, symbol: str, days: tuple[date, ...]) -> Path:
    folder = workspace.root / "data" / "csv"
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"{day},10,11,9,10.5,1000" for day in days]
    path = folder / f"{symbol}.csv"
    path.write_text("\n".join(["date,open,high,low,close,volume", *lines]))
    return path


def test_a_live_source_serves_a_panel_and_marks_what_is_old(
    workspace: Workspace, clock: FixedClock
) -> None:
    days = calendar(workspace, "cn").sessions(START, date(2024, 9, 19))
    path = _csv(workspace, A, days)
    _csv(workspace, B, days[:-10])
    source = LiveSource(workspace, "csv", clock)
    panel = load_panel(source, [A, B], START, date(2024, 9, 19), market="cn")
    assert panel.symbols == (A, B)
    assert panel.source == "csv"
    assert source.stale == (B,)
    # The file is gone a week later: the last good series is served, and said to be old.
    path.unlink()
    later = LiveSource(workspace, "csv", FixedClock("2024-09-26T08:40:00+00:00"))
    assert len(load_panel(later, [A], START, date(2024, 9, 19), market="cn").dates) == len(days)
    assert later.stale == (A,)
    with pytest.raises(DataError) as caught:
        later.bars([C], START, date(2024, 9, 19))
    assert caught.value.code == "data.no_bars"
    with pytest.raises(DataError) as caught:
        later.bars([A], START, START + timedelta(days=1), "1m")
    assert caught.value.code == "data.unknown_interval"


def test_sources_open_by_name_and_others_are_refused(workspace: Workspace) -> None:
    assert open_source(workspace, "csv").name == "csv"
    with pytest.raises(UsageError) as caught:
        Terms.load(workspace, "yahoo")
    assert caught.value.code == "data.unknown_source"


def test_only_sessions_that_are_over_are_wanted(workspace: Workspace) -> None:
    before = due_sessions(workspace, "cn", FixedClock("2024-09-19T06:59:00+00:00"))
    after = due_sessions(workspace, "cn", FixedClock("2024-09-19T07:00:00+00:00"))
    assert (before.until, after.until) == (date(2024, 9, 18), date(2024, 9, 19))
    assert after.sessions[-2:] == (before.until, after.until)


def test_beyond_the_calendar_nothing_is_called_stale(workspace: Workspace, run: Any) -> None:
    later = FixedClock("2031-03-03T08:40:00+00:00")
    assert due_sessions(workspace, "cn", later).sessions == ()
    assert run(Scripted(workspace), A, at=later)[A].status == "fetched"


def test_a_real_server_fills_the_store(workspace: Workspace, run: Any) -> None:
    """Over a pipe: the shipped `trading-data-cn-mcp`, as config/mcp.json starts it."""
    terms = Terms.load(workspace, "mcp")
    with open_adapter(workspace, "mcp", terms.options) as adapter:
        outcome = run(adapter, A, terms=terms)[A]
    assert (outcome.status, outcome.message) == ("fetched", "")
    held = BarStore(workspace.market_dir).read("cn", "1d", A)
    real = SampleSource().bars([A], START, date(2024, 9, 19)).collect()
    for name in ("time", "open", "high", "low", "close", "volume", "adj_factor"):
        assert held[name].to_list() == real[name].to_list()
    assert held["source"][0] == "mcp trading-data-cn: sample"


@pytest.mark.parametrize(("factor", "code"), [(-1.0, "data.bad_bars"), (None, "data.no_bars")])
def test_bad_factors_and_rows_outside_the_window_are_failures(
    workspace: Workspace, run: Any, factor: float | None, code: str
) -> None:
    adapter = Scripted(workspace)
    whole = adapter.fetch

    def fetch(symbol: str, start: date, end: date) -> Raw:
        raw = whole(symbol, start, end)
        if factor is None:  # it ignores the window and answers with an old year
            return replace(raw, rows=raw.rows.with_columns(pl.col("time").dt.offset_by("-1y")))
        dated = pl.DataFrame({"time": [datetime(2024, 1, 1)], "adj_factor": [factor]})
        return replace(raw, factors=dated)

    adapter.fetch = fetch  # type: ignore[method-assign]
    outcome = run(adapter, A)[A]
    assert (outcome.status, outcome.code) == ("failed", code)
