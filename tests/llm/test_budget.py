"""The month's money: reserve, call, settle; processes that race, and processes that die."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from kit.clock import FixedClock
from kit.errors import StorageError
from kit.llm import CallError, Completion, Mode, Request, StepSpec, Usage, run_step
from kit.llm.budget import Metered, StoreBudget
from kit.llm.models import Price
from kit.state import Store, tables

NOW = "2026-12-01T08:00:00+00:00"
MODEL = "deepseek/deepseek-v3.2"
REQUEST = Request(
    model=MODEL,
    messages=({"role": "user", "content": "中"},),
    temperature=0.0,
    max_tokens=100,
    timeout_sec=5.0,
    response_format={},
    step="explain",
)
# `[[{"content":"中","role":"user"}],{}]` has 38 bytes, and 256 tokens are left for the frame.
MOST_TOKENS = 38 + 256


def config(monthly: float | None = 1.0, **changes: Any) -> dict[str, Any]:
    budget = {"monthly_usd": monthly, "ceiling": {"prompt": 10, "completion": 100}}
    return {"default_provider": "openai", "providers": {}, "budget": budget, **changes}


class Fixed:
    """A model whose every answer used so many tokens, or that fails."""

    def __init__(self, usage: Usage | None = None, error: CallError | None = None) -> None:
        self.usage = usage or Usage()
        self.error = error
        self.calls = 0

    def complete(self, _: Request) -> Completion:
        self.calls += 1
        if self.error:
            raise self.error
        return Completion(text='{"text": "ok"}', finish_reason="stop", usage=self.usage)


def rows(store: Store) -> list[tuple[str, int, str]]:
    calls = tables.llm_calls.c
    with store.read() as connection:
        found = connection.execute(select(calls.state, calls.micro_usd, calls.basis))
        return [(row[0], row[1], row[2]) for row in found]


@pytest.mark.parametrize(
    ("usage", "prices", "listed", "settled"),
    [
        # 11 and 7 tokens at 2 and 3 USD for a million: 22 + 21 millionths.
        (Usage(prompt_tokens=11, completion_tokens=7), {MODEL: (2, 3)}, None, (43, "override")),
        # An override goes before litellm's word.
        (
            Usage(prompt_tokens=11, completion_tokens=7, cost_usd=0.5),
            {MODEL: (2, 3)},
            None,
            (43, "override"),
        ),
        (
            Usage(prompt_tokens=11, completion_tokens=7, cost_usd=0.000_12),
            {},
            (1, 1),
            (120, "table"),
        ),
        # Nobody knows the price: the ceiling's, 10 and 100.
        (Usage(prompt_tokens=11, completion_tokens=7), {}, None, (810, "ceiling")),
        # Nobody says how much was used: all that was reserved, at the ceiling's price.
        (Usage(), {}, None, (MOST_TOKENS * 10 + 100 * 100, "reserved")),
        (Usage(), {}, (1, 2), (MOST_TOKENS + 200, "reserved")),
    ],
)
def test_what_a_call_counts_as(
    store: Store,
    usage: Usage,
    prices: dict[str, tuple[float, float]],
    listed: tuple[float, float] | None,
    settled: tuple[int, str],
) -> None:
    overrides = {m: {"prompt": p, "completion": c} for m, (p, c) in prices.items()}
    around = config(prices=overrides)
    price = Price(prompt=listed[0], completion=listed[1]) if listed else None
    budget = StoreBudget(store, around, FixedClock(NOW))
    Metered(Fixed(usage), budget, around, lambda _: price).complete(REQUEST)
    assert rows(store) == [("settled", *settled)]
    (spent,) = budget.spend()
    assert (spent.step, spent.model, spent.calls) == ("explain", MODEL, 1)
    assert spent.usd == settled[0] / 1e6
    assert spent.bounded_usd == (spent.usd if settled[1] in {"ceiling", "reserved"} else 0)
    assert spent.prompt_tokens == (usage.prompt_tokens or 0)


@pytest.mark.parametrize(("charged", "counted"), [(True, MOST_TOKENS * 10 + 10_000), (False, 0)])
def test_a_failed_call_costs_what_it_may_have_cost(
    store: Store, charged: bool, counted: int
) -> None:
    llm = Fixed(error=CallError("connection", "reset", charged=charged))
    metered = Metered(llm, StoreBudget(store, config(), FixedClock(NOW)), config())
    with pytest.raises(CallError):
        metered.complete(REQUEST)
    assert [row[1] for row in rows(store)] == [counted]


def test_a_call_that_might_not_fit_is_not_made(store: Store) -> None:
    # One reservation is 12,940 millionths; each call then costs 810.
    around = config(monthly=0.014)
    llm = Fixed(Usage(prompt_tokens=11, completion_tokens=7))
    budget = StoreBudget(store, around, FixedClock(NOW))
    metered = Metered(llm, budget, around)
    metered.complete(REQUEST)
    metered.complete(REQUEST)  # 810 + 12,940 fit; 1,620 + 12,940 do not
    with pytest.raises(CallError) as caught:
        metered.complete(REQUEST)
    assert (caught.value.kind, caught.value.message) == ("budget_exceeded", "monthly_usd=0.014")
    assert llm.calls == 2
    assert sum(row[1] for row in rows(store)) == 1_620
    (spent,) = budget.spend()
    assert (spent.calls, spent.refused) == (2, 1)


def test_no_budget_refuses_nothing_and_keeps_the_account(store: Store) -> None:
    around = {"default_provider": "openai", "providers": {}}
    budget = StoreBudget(store, around, FixedClock(NOW))
    Metered(Fixed(Usage(prompt_tokens=1, completion_tokens=1)), budget, around).complete(REQUEST)
    assert budget.monthly_usd is None
    assert budget.take_alert() is None
    assert budget.spend()[0].usd == 90 / 1e6  # the built-in ceiling, 15 and 75


# processes


def spend_all(location: Path | str, monthly: float, barrier: Any, made: Any) -> None:
    """What each of many screens does: ask until it is refused."""
    around = config(monthly, prices={MODEL: {"prompt": 0, "completion": 10}})
    llm = Fixed(Usage(prompt_tokens=5, completion_tokens=100))  # all it may use: 1,000 millionths
    metered = Metered(llm, StoreBudget(Store(location), around, FixedClock(NOW)), around)
    barrier.wait(60)
    with pytest.raises(CallError, match=r"monthly_usd=0\.05"):
        while True:
            metered.complete(REQUEST)
    with made.get_lock():
        made.value += llm.calls


def race(location: Path | str, processes: int) -> int:
    context = multiprocessing.get_context("spawn")
    barrier, made = context.Barrier(processes), context.Value("i", 0)
    workers = [
        context.Process(target=spend_all, args=(location, 0.05, barrier, made))
        for _ in range(processes)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    assert [worker.exitcode for worker in workers] == [0] * processes
    return int(made.value)


@pytest.fixture
def postgres() -> Iterator[str]:
    """A database server of this test's own, on loopback."""
    initdb, server = shutil.which("initdb"), shutil.which("postgres")
    if initdb is None or server is None:
        pytest.skip("PostgreSQL's initdb and postgres are not installed")
    pytest.importorskip("psycopg")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    # Not below pytest's own folder: that belongs to this user alone, and the server refuses root.
    with tempfile.TemporaryDirectory(prefix="kit-pg-", ignore_cleanup_errors=True) as home:
        around: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        if os.geteuid() == 0:
            shutil.chown(home, "nobody")
            around |= {"user": "nobody", "group": "nogroup", "extra_groups": [], "cwd": home}
        line = [initdb, "-D", f"{home}/data", "-U", "kit", "-A", "trust", "-N"]
        subprocess.run(line, check=True, timeout=60, **around)
        line = [server, "-D", f"{home}/data", "-h", "127.0.0.1", "-p", str(port), "-k", home, "-F"]
        with subprocess.Popen(line, **around) as running:
            try:
                yield f"postgresql+psycopg://kit@127.0.0.1:{port}/postgres"
            finally:
                running.send_signal(signal.SIGQUIT)
                running.wait(30)


@pytest.mark.slow
def test_twenty_screens_at_once_overspend_nothing(tmp_path: Path) -> None:
    location = tmp_path / "state.sqlite3"
    # 0.05 USD are fifty calls of 1,000 millionths, to the last one.
    assert race(location, 20) == 50
    store = Store(location)
    assert sum(row[1] for row in rows(store)) == 50_000
    assert sum(row[0] == "refused" for row in rows(store)) == 20


@pytest.mark.slow
def test_on_postgresql_neither(postgres: str) -> None:
    store = Store(postgres)
    for _ in range(200):  # until the server is up
        with contextlib.suppress(StorageError):
            assert rows(store) == []
            break
        time.sleep(0.1)
    assert race(postgres, 4) == 50
    assert sum(row[1] for row in rows(store)) == 50_000
    store._open().dispose()


def die_while_calling(location: Path) -> None:
    class Dying:
        def complete(self, _: Request) -> Completion:
            os._exit(9)

    budget = StoreBudget(Store(location), config(0.02), FixedClock(NOW))
    Metered(Dying(), budget, config(0.02)).complete(REQUEST)


def test_what_a_dead_process_reserved_counts_for_a_day(store: Store, tmp_path: Path) -> None:
    location = tmp_path / "state.sqlite3"
    store = Store(location)
    worker = multiprocessing.get_context("spawn").Process(
        target=die_while_calling, args=(location,)
    )
    worker.start()
    worker.join(60)
    assert worker.exitcode == 9
    assert rows(store) == [("reserved", 12_940, "reserved")]
    clock = FixedClock(NOW)
    llm = Fixed(Usage(prompt_tokens=11, completion_tokens=7))
    budget = StoreBudget(store, config(0.02), clock)
    metered = Metered(llm, budget, config(0.02))
    clock.sleep(23 * 3600)
    assert budget.spend()[0].open_usd == 0.012_94
    with pytest.raises(CallError):
        metered.complete(REQUEST)
    clock.sleep(2 * 3600)
    metered.complete(REQUEST)
    assert [row[0] for row in rows(store)] == ["expired", "refused", "settled"]


# the alert


def test_four_fifths_alert_once_a_month_whoever_asks(store: Store) -> None:
    clock = FixedClock(NOW)
    around = config(0.001, prices={MODEL: {"prompt": 0, "completion": 1}})
    llm = Fixed(Usage(prompt_tokens=0, completion_tokens=100))
    budget = StoreBudget(store, around, clock)
    metered = Metered(llm, budget, around)
    for _ in range(7):
        metered.complete(REQUEST)
    assert budget.take_alert() is None  # 70 %
    metered.complete(REQUEST)
    taken: list[Any] = []
    others = [StoreBudget(Store(store.location), around, clock) for _ in range(8)]
    threads = [threading.Thread(target=lambda b=b: taken.append(b.take_alert())) for b in others]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (alert,) = [each for each in taken if each is not None]
    assert alert.to_dict() == {
        "tenant": "default",
        "month": "2026-12",
        "spent_usd": 0.0008,
        "budget_usd": 0.001,
        "refused": 0,
        "at": NOW,
    }
    metered.complete(REQUEST)
    assert budget.take_alert() is None
    clock.set("2027-01-01T00:00:00+00:00")
    assert budget.take_alert() is None  # a new month, nothing spent
    for _ in range(8):
        metered.complete(REQUEST)
    january = budget.take_alert()
    assert january is not None
    assert january.month == "2027-01"


def test_a_refusal_alerts_too(store: Store) -> None:
    """A budget smaller than one call never reaches four fifths."""
    budget = StoreBudget(store, config(0.001), FixedClock(NOW))
    with pytest.raises(CallError):
        Metered(Fixed(), budget, config(0.001)).complete(REQUEST)
    alert = budget.take_alert()
    assert alert is not None
    assert (alert.spent_usd, alert.refused) == (0, 1)


def test_tenants_do_not_share(store: Store) -> None:
    other = config(0.001)
    other["budget"]["tenant"] = "desk"
    with pytest.raises(CallError):
        Metered(Fixed(), StoreBudget(store, other, FixedClock(NOW)), other).complete(REQUEST)
    mine = StoreBudget(store, config(), FixedClock(NOW))
    assert (mine.spend(), mine.take_alert()) == ([], None)


# in a step


def step(**changes: Any) -> StepSpec:
    values: dict[str, Any] = {
        "name": "explain",
        "system": "Explain.",
        "input_schema": {"type": "object"},
        "output_schema": {"type": "object", "properties": {"text": {"type": "string"}}},
        "model": MODEL,
        "temperature": 0.0,
        "max_tokens": 100,
        "timeout_sec": 5.0,
    }
    return StepSpec(**{**values, **changes})


@pytest.mark.parametrize("broken", [False, True])
def test_a_step_without_money_fails_and_calls_nobody(
    store: Store, tmp_path: Path, broken: bool
) -> None:
    if broken:  # a store that is out of order keeps no account, so nothing may be spent
        store = Store(tmp_path)
    llm = Fixed()
    metered = Metered(llm, StoreBudget(store, config(0), FixedClock(NOW)), config(0))
    result = run_step(step(), {}, mode=Mode.LIVE, llm=metered)
    assert result.failure is not None
    assert result.failure.kind == "budget_exceeded"
    assert (result.calls, llm.calls) == (0, 0)


def test_an_answer_nobody_waits_for_any_more_is_still_paid(store: Store) -> None:
    gone, done = threading.Event(), threading.Event()

    class Late(Fixed):
        def complete(self, request: Request) -> Completion:
            gone.wait(20)
            return super().complete(request)

    class Watched(StoreBudget):
        def settle(self, *arguments: Any) -> None:
            super().settle(*arguments)
            done.set()

    budget = Watched(store, config(), FixedClock(NOW))
    metered = Metered(Late(Usage(prompt_tokens=11, completion_tokens=7)), budget, config())
    result = run_step(step(timeout_sec=0.5), {}, mode=Mode.LIVE, llm=metered)
    assert result.failure is not None
    assert result.failure.kind == "timeout"
    assert [row[0] for row in rows(store)] == ["reserved"]
    gone.set()
    assert done.wait(20)
    assert rows(store) == [("settled", 810, "ceiling")]
