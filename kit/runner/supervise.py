"""Time limit and signals of a run, kept by the main thread while a worker runs the cells.

The worker may be stuck in a kernel that never answers or in output that never ends; the main
thread only waits, so that a deadline, Ctrl-C or SIGTERM is acted upon whatever the worker does.
The first signal stops the run and lets it end in a recorded outcome; the second leaves at once.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Literal

from kit.clock import SystemClock

__all__ = ["StopSignal", "catch_signals", "supervise"]

_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")
_POLL_SEC = 0.1
_BEAT_SEC = 20.0
# After the kernel was killed the worker ends within moments; one that does not is left behind.
_GRACE_SEC = 15.0


class StopSignal:
    """Whether somebody asked this process to stop, and by which signal."""

    def __init__(self) -> None:
        self.number: int | None = None

    @property
    def requested(self) -> bool:
        """Whether a stop was asked for."""
        return self.number is not None

    def handle(self, number: int, _frame: FrameType | None) -> None:
        """Take a signal: remember the first, leave at the second."""
        if self.number is not None:
            raise KeyboardInterrupt
        self.number = number


@contextlib.contextmanager
def catch_signals() -> Iterator[StopSignal]:
    """Turn SIGINT, SIGTERM and SIGHUP into a `StopSignal` while the block runs.

    Only the main thread may set handlers; elsewhere the process keeps its own. A signal that is
    ignored (by `nohup`, or in a background job) stays ignored.
    """
    stop = StopSignal()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    numbers = [getattr(signal, name) for name in _SIGNALS if hasattr(signal, name)]
    before = {
        number: signal.signal(number, stop.handle)
        for number in numbers
        if signal.getsignal(number) != signal.SIG_IGN
    }
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def supervise(
    work: Callable[[], None],
    *,
    limit_sec: float,
    stop: StopSignal,
    kill: Callable[[Literal["timeout", "interrupted"]], None],
    beat: Callable[[], None],
) -> bool:
    """Run `work` in a thread until it ends, is out of time, or is asked to stop.

    Args:
        work: What to run.
        limit_sec: Wall-clock limit in real seconds, whatever clock the run is told.
        stop: Asked on every round.
        kill: Called with `timeout` or `interrupted`; must make `work` end.
        beat: Called now and then while `work` runs.

    Returns:
        Whether `work` ended; `False` when it had to be left behind.

    Raises:
        BaseException: Whatever `work` raised.
    """
    raised: list[BaseException] = []

    def worker() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - carried over to the caller's thread
            raised.append(error)

    clock = SystemClock()
    thread = threading.Thread(target=worker, name="kit-notebook", daemon=True)
    began = beaten = clock.monotonic()
    killed: float | None = None
    thread.start()
    try:
        while thread.is_alive():
            thread.join(_POLL_SEC)
            now = clock.monotonic()
            if killed is not None:
                if now - killed > _GRACE_SEC:
                    return False
                continue
            if stop.requested or now - began > limit_sec:
                kill("interrupted" if stop.requested else "timeout")
                killed = now
            elif now - beaten > _BEAT_SEC:
                beat()
                beaten = now
    except BaseException:
        kill("interrupted")
        raise
    if raised:
        raise raised[0]
    return True
