"""The papermill engine of this kit, registered as `kit` under `papermill.engine`.

papermill prepares the notebook and injects the parameters; this engine runs the cells with
nbclient and differs from the stock one where that matters to an unattended run: a kernel of this
very interpreter, no waiting at the end, outputs that are counted and cut off, `exit()` noticed,
no cell allowed to fail, and the honest book-keeping of `kit.runner.cells`.
"""

from __future__ import annotations

import asyncio
import os
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError

from kit.clock import SystemClock
from kit.redact import Redactor
from kit.runner.cells import CellLedger, CellRecord
from kit.runner.failure import RunFailure
from kit.runner.kernel import Kernel, KernelStartError, kernel_environment, mark_of

__all__ = ["Control", "KitEngine", "Session", "StopReason"]

StopReason = Literal["timeout", "interrupted", "output_too_large"]

_POLL_SEC = 0.1
_NEVER_USED_TAG = "kit-no-cell-is-skipped"
_DEFAULT_OUTPUT_LIMIT = 5_000_000
_START_TIMEOUT_SEC = 60.0
_MAX_TRACEBACK_LINES = 30
_MAX_MESSAGE = 500
_KEPT_OF_A_FLOOD = 20_000


class Control:
    """Stops a session from another thread: the first reason given is the one that counts."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kernel: Kernel | None = None
        self.reason: StopReason | None = None

    def attach(self, kernel: Kernel) -> None:
        """Name the kernel to kill; it is killed at once when the stop came first."""
        with self._lock:
            self._kernel = kernel
            stopped = self.reason is not None
        if stopped:
            kernel.kill()

    def stop(self, reason: StopReason) -> None:
        """Kill the kernel and everything it started."""
        with self._lock:
            self.reason = self.reason or reason
            kernel = self._kernel
        if kernel is not None:
            kernel.kill()


@dataclass(kw_only=True)
class Session:
    """Everything the engine needs besides the notebook papermill hands it.

    Attributes:
        kernel: Launched, not necessarily ready.
        ledger_of: Makes the ledger for the notebook with injected parameters.
        control: How others stop it.
        redactor: Masks secrets in tracebacks.
        output_limit_bytes: Sum of all outputs at which the run is cut off.
        ledger: The ledger, once the engine has begun.
        failure: Why not every cell ran, `None` when all did.
    """

    kernel: Kernel
    ledger_of: Any
    control: Control = field(default_factory=Control)
    redactor: Redactor = field(default_factory=Redactor)
    output_limit_bytes: int = _DEFAULT_OUTPUT_LIMIT
    ledger: CellLedger | None = None
    failure: RunFailure | None = None

    def stopped(self) -> RunFailure | None:
        """Return the failure for the reason it was stopped, `None` when nobody stopped it."""
        records = self.ledger.records if self.ledger is not None else []
        reached = [record for record in records if record.status != "pending"]
        return _stopped(self, reached[-1].title if reached else "")


class KitEngine:
    """What papermill calls; it looks for these three names and needs no base class."""

    @classmethod
    def execute_notebook(
        cls,
        nb: Any,
        kernel_name: str,  # noqa: ARG003 - every notebook runs on this interpreter
        output_path: str | None = None,
        session: Session | None = None,
        **_ignored: Any,
    ) -> Any:
        """Run all cells of `nb` and return it; a failing cell ends the run without raising."""
        own = session or _plain_session(output_path)
        own.ledger = own.ledger_of(nb)
        for name in ("input_path", "output_path"):
            # papermill puts a notebook handed over in memory here, whole.
            if not isinstance(nb.metadata.papermill.get(name), str):
                nb.metadata.papermill.pop(name, None)
        own.ledger.begin()
        try:
            asyncio.run(_run_cells(nb, own, own.ledger))
        finally:
            own.kernel.close()
            own.ledger.close()
        return nb

    @classmethod
    def nb_kernel_name(cls, nb: Any, name: str | None = None) -> str:  # noqa: ARG003
        """Name the kernel for papermill's parameter translation."""
        return "python3"

    @classmethod
    def nb_language(cls, nb: Any, language: str | None = None) -> str:  # noqa: ARG003
        """Name the language for papermill's parameter translation."""
        return "python"


class _Client(NotebookClient):
    """nbclient, counting outputs and asking our own kernel whether it lives."""

    def __init__(self, nb: Any, session: Session) -> None:
        super().__init__(
            nb,
            km=session.kernel.manager,
            force_raise_errors=True,
            skip_cells_with_tag=_NEVER_USED_TAG,
            store_widget_state=False,
            record_timing=False,
            iopub_timeout=10,
            raise_on_iopub_timeout=False,
        )
        self._session = session
        self._bytes = 0
        self.asked_to_exit = False
        self.on_cell_executed = self._look_for_exit

    def process_message(self, msg: dict[str, Any], cell: Any, cell_index: int) -> Any:
        """Take one message of the kernel, unless the limit has been passed."""
        self._bytes += _size(msg["content"])
        if self._bytes > self._session.output_limit_bytes:
            self._session.control.stop("output_too_large")
            return None
        return super().process_message(msg, cell, cell_index)

    def _look_for_exit(self, *, execute_reply: dict[str, Any], **_: Any) -> None:
        # exit() in a cell only asks the front end to close; stock clients go on with the next cell.
        for payload in execute_reply["content"].get("payload", []):
            self.asked_to_exit = self.asked_to_exit or payload.get("source") == "ask_exit"

    async def _async_check_alive(self) -> None:
        if not self._session.kernel.is_alive:
            raise DeadKernelError("the kernel died")

    async def _async_poll_kernel_alive(self) -> None:
        while self._session.kernel.is_alive:
            await asyncio.sleep(_POLL_SEC)
        if self.task_poll_for_reply is not None:
            self.task_poll_for_reply.cancel()


async def _run_cells(nb: Any, session: Session, ledger: CellLedger) -> None:
    session.control.attach(session.kernel)
    client = _Client(nb, session)
    try:
        client.kc = await session.kernel.connect(_START_TIMEOUT_SEC)
        client.kc.allow_stdin = False
        client.reset_execution_trackers()
        for record in ledger.records:
            ledger.start(record)
            session.failure = await _run_cell(client, nb, session, record)
            if session.failure is not None:
                flooded = session.failure.kind == "output_too_large"
                keep = _KEPT_OF_A_FLOOD if flooded else None
                ledger.end(record, _status_after(session.failure), keep=keep)
                return
            ledger.end(record, "completed")
    except KernelStartError as error:
        words = session.redactor.text(str(error))
        session.failure = _stopped(session, "") or RunFailure(
            kind="kernel_died", message=words, evalue=words
        )
    finally:
        if client.kc is not None:
            client.kc.stop_channels()
        # The manager made this context for one kernel; its thread and sockets go with it.
        session.kernel.manager.context.destroy(linger=0)


async def _run_cell(
    client: _Client, nb: Any, session: Session, record: CellRecord
) -> RunFailure | None:
    try:
        await client.async_execute_cell(nb.cells[record.index], record.index)
    except CellExecutionError as error:
        return _stopped(session, record.title) or _cell_failure(session, nb, record, error)
    except DeadKernelError:
        return _stopped(session, record.title) or RunFailure(
            kind="kernel_died",
            message=f"the kernel died in cell {record.title!r}",
            cell=record.title,
            evalue=session.redactor.text(session.kernel.last_words()),
        )
    if client.asked_to_exit:
        return _exit_failure(record, "exit()")
    return _stopped(session, record.title)


def _stopped(session: Session, cell: str) -> RunFailure | None:
    reason = session.control.reason
    if reason is None:
        return None
    where = f"in cell {cell!r}" if cell else "before the first cell"
    happened = {
        "timeout": f"the time limit was reached {where}",
        "interrupted": f"the run was interrupted {where}",
        "output_too_large": f"the cells printed more than {session.output_limit_bytes} bytes; "
        f"cut off {where}",
    }
    return RunFailure(kind=reason, message=happened[reason], cell=cell)


def _cell_failure(
    session: Session, nb: Any, record: CellRecord, error: CellExecutionError
) -> RunFailure:
    outputs = nb.cells[record.index].outputs
    shown = next((o for o in reversed(outputs) if o.output_type == "error"), None)
    lines = "\n".join(shown.traceback).splitlines() if shown is not None else []
    evalue = session.redactor.text(str(error.evalue))
    if error.ename == "SystemExit":
        return _exit_failure(record, f"sys.exit({evalue})")
    return RunFailure(
        kind="cell_error",
        message=f"cell {record.title!r} raised {error.ename}: {evalue}"[:_MAX_MESSAGE],
        cell=record.title,
        ename=error.ename,
        evalue=evalue,
        traceback=tuple(session.redactor.text(line) for line in lines[-_MAX_TRACEBACK_LINES:]),
    )


def _exit_failure(record: CellRecord, call: str) -> RunFailure:
    return RunFailure(
        kind="exited",
        message=f"cell {record.title!r} left by {call}, so the cells below it never ran",
        cell=record.title,
        ename="SystemExit",
        evalue=call,
    )


def _status_after(failure: RunFailure) -> Literal["failed", "aborted"]:
    return "failed" if failure.kind in ("cell_error", "exited") else "aborted"


def _size(content: dict[str, Any]) -> int:
    """Return the size of a message's text, near enough for a limit."""
    total = 0
    for value in (content.get("text"), content.get("traceback"), content.get("evalue")):
        total += len(value) if isinstance(value, str) else sum(map(len, value or ()))
    data = content.get("data")
    if isinstance(data, dict):
        total += sum(len(v) if isinstance(v, str) else len(str(v)) for v in data.values())
    return total


def _plain_session(output_path: str | None) -> Session:
    """Make the session of somebody who calls papermill with `engine_name="kit"` directly."""
    folder = Path(output_path).parent if output_path else Path.cwd()
    redactor = Redactor()
    # Two of these may run in one folder, so the process goes into the mark.
    mark = mark_of(folder / str(os.getpid()))
    kernel = Kernel(cwd=folder, env=kernel_environment({}), mark=mark)
    kernel.launch()
    path = Path(output_path) if output_path else None
    return Session(
        kernel=kernel,
        ledger_of=lambda nb: CellLedger(nb, path, SystemClock(), lambda _event: None, redactor),
        redactor=redactor,
    )
