"""Execute one notebook and say whether it did all it promised.

Success is not papermill returning. It is: every cell completed, the `kit-end` cell among them, and
every promised result file there and valid (`kit.runner.results`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from kit.clock import Clock, iso
from kit.redact import Redactor
from kit.runner.cells import CellLedger, CellRecord, ProgressEvent
from kit.runner.contract import RESERVED, NotebookContract, check_parameters, read_contract
from kit.runner.failure import RunFailure
from kit.runner.kernel import Kernel, kernel_environment
from kit.runner.results import check_results
from kit.runner.supervise import StopSignal, supervise

if TYPE_CHECKING:
    from kit.runner.engine import Control, StopReason

__all__ = ["Execution", "Executor", "NotebookExecutor", "NotebookOutcome", "execute"]

NOTEBOOK_FILE = "notebook.ipynb"
KERNEL_LOG = "kernel.log"


@dataclass(frozen=True, kw_only=True)
class Execution:
    """One execution asked for.

    Attributes:
        notebook: The notebook to run; it is not changed.
        parameters: Plain JSON values by name.
        reserved: Values for the parameters named in `RESERVED`.
        folder: Run folder, the kernel's working directory; results are expected here.
        time_limit_sec: Wall-clock limit in seconds.
        output_limit_bytes: Limit on the sum of all cell outputs.
        environment: Variables added to the kernel's environment.
        secrets: Names of secret variables the kernel may see; all others are withheld.
        mark: Mark of every process of this attempt.
        clock: For time stamps in the record.
        stop: Whether somebody asked to stop.
        progress: Takes every event.
        beat: Called now and then while the cells run.
    """

    notebook: Path
    parameters: Mapping[str, Any]
    reserved: Mapping[str, str]
    folder: Path
    time_limit_sec: float
    output_limit_bytes: int
    environment: Mapping[str, str]
    secrets: frozenset[str]
    mark: str
    clock: Clock
    stop: StopSignal
    progress: Callable[[ProgressEvent], None]
    beat: Callable[[], None]


@dataclass(frozen=True, kw_only=True)
class NotebookOutcome:
    """What became of an execution.

    Attributes:
        failure: Why it did not succeed, `None` when it did.
        seconds: Wall-clock seconds, kernel start included.
        cells: Every code cell with its status.
        digest: SHA-256 of the notebook as it was read.
    """

    failure: RunFailure | None
    seconds: float
    cells: tuple[CellRecord, ...] = field(default=())
    digest: str = ""

    @property
    def ok(self) -> bool:
        """Whether every cell completed and every result is valid."""
        return self.failure is None

    @property
    def failed_cell(self) -> str | None:
        """Title of the cell that failed."""
        return self.failure.cell or None if self.failure else None

    @property
    def error(self) -> str | None:
        """The failure in one sentence."""
        return self.failure.message if self.failure else None


class Executor(Protocol):
    """Runs notebooks; `perform` takes one, so that tests and refusals need no kernel."""

    def check(self, notebook: Path, parameters: Mapping[str, Any]) -> None:
        """Refuse, before anything is claimed, what can be seen to be wrong.

        Raises:
            KitError: The notebook or a parameter is wrong.
        """
        ...

    def execute(self, execution: Execution) -> NotebookOutcome:
        """Run it.

        Raises:
            KitError: It was refused, or the disk did not take it.
        """
        ...


class NotebookExecutor:
    """The real one: papermill and a kernel."""

    def check(self, notebook: Path, parameters: Mapping[str, Any]) -> None:
        """Check the notebook's contract and the parameters."""
        check_parameters(read_contract(notebook), parameters, dict.fromkeys(RESERVED, ""))

    def execute(self, execution: Execution) -> NotebookOutcome:
        """Run the notebook in a kernel of its own."""
        return execute(execution)


def execute(execution: Execution) -> NotebookOutcome:
    """Run a notebook through papermill under a time limit, and check its results.

    Raises:
        ConfigError: The notebook breaks its contract.
        UsageError: `run.bad_parameter`.
        StorageError: The run folder cannot be written.
    """
    began = execution.clock.monotonic()
    contract = read_contract(execution.notebook)
    parameters = check_parameters(contract, execution.parameters, execution.reserved)
    failure, cells = _run(execution, contract, parameters)
    if failure is None:
        failure = check_results(execution.folder, contract.results)
    return NotebookOutcome(
        failure=failure,
        seconds=execution.clock.monotonic() - began,
        cells=cells,
        digest=contract.digest,
    )


def _run(
    execution: Execution, contract: NotebookContract, parameters: dict[str, Any]
) -> tuple[RunFailure | None, tuple[CellRecord, ...]]:
    redactor = Redactor()
    log = execution.folder / KERNEL_LOG
    kernel = Kernel(
        cwd=execution.folder,
        env=kernel_environment(execution.environment, secrets=execution.secrets),
        mark=execution.mark,
        stderr=log,
    )
    # The kernel boots on one core while papermill is imported on the other.
    kernel.launch()
    try:
        from kit.runner.engine import Control, Session

        control = Control()
        control.attach(kernel)
        session = Session(
            kernel=kernel,
            ledger_of=lambda notebook: CellLedger(
                notebook,
                execution.folder / NOTEBOOK_FILE,
                execution.clock,
                execution.progress,
                redactor,
            ),
            control=control,
            redactor=redactor,
            output_limit_bytes=execution.output_limit_bytes,
        )
        ended = supervise(
            lambda: _papermill(contract, parameters, session),
            limit_sec=execution.time_limit_sec,
            stop=execution.stop,
            kill=lambda reason: _stop(execution, control, reason),
            beat=execution.beat,
        )
    finally:
        kernel.close()
    _tidy_log(log, redactor)
    records = tuple(session.ledger.records) if session.ledger is not None else ()
    if not ended or (session.failure is None and control.reason is not None):
        return session.stopped(), records
    if session.failure is None and (session.ledger is None or not session.ledger.all_completed):
        return RunFailure(kind="crashed", message="not every cell was run"), records
    return session.failure, records


def _stop(execution: Execution, control: Control, reason: StopReason) -> None:
    control.stop(reason)
    execution.progress(
        ProgressEvent(
            at=iso(execution.clock.now()),
            kind="stopping",
            title=execution.notebook.stem,
            message=f"{reason}: the kernel was killed; the run is being closed "
            "(Ctrl-C again leaves at once)",
        )
    )


def _papermill(contract: NotebookContract, parameters: dict[str, Any], session: Any) -> None:
    import papermill
    from papermill.exceptions import PapermillExecutionError

    logging.getLogger("papermill").setLevel(logging.ERROR)
    try:
        papermill.execute_notebook(
            contract.notebook,
            None,
            parameters=parameters,
            engine_name="kit",
            progress_bar=False,
            session=session,
        )
    except PapermillExecutionError:
        # It found the error output of a cell; the session has the whole story.
        if session.failure is None:
            raise


def _tidy_log(log: Path, redactor: Redactor) -> None:
    """Keep what the kernel process wrote to its own stderr only when there is something."""
    from kit import files

    try:
        text = log.read_bytes()[-65536:].decode("utf-8", errors="replace")
    except OSError:
        return
    log.unlink(missing_ok=True)
    if text.strip():
        files.write_text(log, redactor.text(text))
