from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from kit.runner import supervise as module
from kit.runner.supervise import StopSignal, catch_signals, supervise


def run(work, *, limit_sec=30.0, stop=None, kill=None, beat=None) -> bool:
    return supervise(
        work,
        limit_sec=limit_sec,
        stop=stop or StopSignal(),
        kill=kill or (lambda reason: None),
        beat=beat or (lambda: None),
    )


def test_work_that_ends_is_waited_for() -> None:
    done: list[int] = []
    assert run(lambda: done.append(1))
    assert done == [1]


def test_what_the_work_raised_comes_back() -> None:
    def work() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        run(work)


def test_the_limit_kills_once() -> None:
    killed: list[str] = []
    ended = threading.Event()

    def kill(reason: str) -> None:
        killed.append(reason)
        ended.set()

    assert run(lambda: ended.wait(20) and None, limit_sec=0.2, kill=kill)
    assert killed == ["timeout"]


def test_work_that_does_not_die_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_GRACE_SEC", 0.2)
    release = threading.Event()
    try:
        assert run(lambda: release.wait(20) and None, limit_sec=0.1) is False
    finally:
        release.set()


def test_a_stop_asked_for_kills() -> None:
    stop, ended, killed = StopSignal(), threading.Event(), []
    stop.number = signal.SIGTERM

    def kill(reason: str) -> None:
        killed.append(reason)
        ended.set()

    assert run(lambda: ended.wait(20) and None, stop=stop, kill=kill)
    assert killed == ["interrupted"]


def test_it_beats_while_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BEAT_SEC", 0.15)
    beats: list[int] = []
    run(lambda: time.sleep(0.8), beat=lambda: beats.append(1))
    assert 2 <= len(beats) <= 6


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_is_noted_the_second_leaves(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with catch_signals() as stop:
        os.kill(os.getpid(), number)
        time.sleep(0.01)
        assert stop.requested
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
            time.sleep(0.01)
    assert signal.getsignal(number) is before


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with catch_signals() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not stop.requested
    finally:
        signal.signal(signal.SIGHUP, before)


def test_outside_the_main_thread_nothing_is_touched() -> None:
    seen: list[bool] = []

    def work() -> None:
        with catch_signals() as stop:
            seen.append(stop.requested)

    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [False]
    assert signal.getsignal(signal.SIGINT) is before
