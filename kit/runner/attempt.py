"""One attempt in its folder: made, executed in, recorded, published.

Nothing here knows of claims or channels. Trouble with the disk comes back as a failure of kind
`storage`, so that the caller can still send a card from memory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from kit import files
from kit.card import Card
from kit.clock import Clock, iso
from kit.errors import KitError, StorageError
from kit.redact import Redactor
from kit.runner.failure import RunFailure
from kit.runner.identity import RunFolder, first_free
from kit.runner.journal import LOG_FILE, Journal
from kit.runner.kernel import kill_marked, mark_of
from kit.runner.notebook import Execution, Executor, NotebookOutcome
from kit.runner.record import RECORD_FILE, RunRecord, RunStatus, versions
from kit.runner.results import CARD_FILE
from kit.runner.scrub import scrub
from kit.runner.spec import RunSpec
from kit.runner.supervise import StopSignal
from kit.state.process import is_alive, this_process
from kit.workspace import Workspace, git_commit

__all__ = ["TROUBLE", "Attempt"]

# Trouble with disk or store; the seam of fault injection raises bare OSErrors from the store.
TROUBLE = (StorageError, OSError)

_MAX_MESSAGE = 500


@dataclass(kw_only=True)
class Attempt:
    """One attempt.

    Attributes:
        workspace: Where it happens.
        clock: For time stamps.
        spec: What is run.
        journal: Takes events and warnings.
        paths: Its folder; the number changes when another process was quicker.
        started_at: When it was claimed, ISO 8601 in UTC.
        in_place: Whether the partial folder stands and holds a record.
    """

    workspace: Workspace
    clock: Clock
    spec: RunSpec
    journal: Journal
    paths: RunFolder
    started_at: str
    in_place: bool = False

    def prepare(
        self, previous: RunFolder | None, moved: Callable[[RunFolder], None]
    ) -> RunFailure | None:
        """Set aside what dead processes left, then make the partial folder with its first record.

        Args:
            previous: The attempt of a dead holder whose claim was taken over.
            moved: Called with the new paths when the number was taken.
        """
        try:
            self._clear_leftovers(previous)
            folder = first_free(self.workspace, self.spec.key, self.paths.attempt)
            if folder != self.paths:
                moved(folder)
            self.paths = folder
            files.write_json(folder.partial / RECORD_FILE, self._record("running").to_dict())
        except TROUBLE as error:
            with contextlib.suppress(OSError):
                self.paths.partial.rmdir()  # only when it is empty
            return self._storage_failure(error)
        self.in_place = True
        self.journal.open(folder.partial)
        self.journal.say("started", folder.run_id)
        return None

    def execute(
        self, executor: Executor, stop: StopSignal, beat: Callable[[], None]
    ) -> NotebookOutcome:
        """Run the notebook; whatever goes wrong is in the outcome."""
        if stop.requested:
            failure = RunFailure(kind="interrupted", message="interrupted before the first cell")
            return NotebookOutcome(failure=failure, seconds=0.0)
        outcome = self._executed(executor, stop, beat)
        # Before the card is read: nobody is sent what is not fit for the folder.
        scrub(self.paths.partial, Redactor(), self.journal.warn)
        return outcome

    def _executed(
        self, executor: Executor, stop: StopSignal, beat: Callable[[], None]
    ) -> NotebookOutcome:
        try:
            return executor.execute(self._execution(stop, beat))
        except TROUBLE as error:
            failure = self._storage_failure(error)
        except KitError as error:
            failure = RunFailure(
                kind="refused", message=str(error), code=error.code, remedy=error.remedy
            )
        except Exception as error:  # noqa: BLE001 - a fault of ours must still end in a card
            failure = RunFailure(
                kind="crashed",
                message=f"{type(error).__name__}: {error}"[:_MAX_MESSAGE],
                ename=type(error).__name__,
            )
        return NotebookOutcome(failure=failure, seconds=0.0)

    def status(self, failure: RunFailure | None) -> RunStatus:
        """Return the status the run ends with."""
        if failure is not None:
            return "interrupted" if failure.kind == "interrupted" else "failed"
        with contextlib.suppress(KitError):
            report = files.read_json(self.paths.partial / "degradation.json")
            if isinstance(report, Mapping) and report.get("degraded") is True:
                return "degraded"
        return "ok"

    def publish(
        self,
        outcome: NotebookOutcome,
        card: Card | None,
        failure: RunFailure | None,
        status: RunStatus,
    ) -> Path | None:
        """Write card, log and record, and rename the folder into place; `None` when that failed."""
        if not self.in_place:
            return None
        partial = self.paths.partial
        try:
            if failure is not None and card is not None:
                _replace_card(partial, card)
            self.journal.say("finished", status)
            record = replace(
                self._record(status),
                notebook_sha256=outcome.digest,
                finished_at=iso(self.clock.now()),
                seconds=outcome.seconds,
                cells=tuple(cell.to_dict() for cell in outcome.cells),
                failure=None if failure is None else failure.to_dict(),
            )
            files.write_text(partial / LOG_FILE, self.journal.log(failure))
            files.write_json(partial / RECORD_FILE, record.to_dict())
            files.publish_dir(partial, self.paths.final)
        except (*TROUBLE, KitError) as error:
            self.journal.warn(f"the run folder could not be published: {error}")
            return None
        finally:
            self.journal.close()
        return self.paths.final

    def abandon(self) -> None:
        """Kill what runs and set the partial folder aside.

        Raises:
            StorageError: The disk refused.
        """
        if self.in_place:  # else the number belongs to nobody, or to somebody else
            kill_marked(mark_of(self.paths.final))
            self.paths.set_aside()

    def complete(self, failure: RunFailure) -> RunFailure:
        """Add to a failure what only the attempt knows."""
        return replace(
            failure,
            message=Redactor().text(failure.message),
            run_id=self.paths.run_id,
            card_id=self.paths.card_id,
            remedy=failure.remedy or f"kit rerun {self.paths.run_id}",
        )

    def _clear_leftovers(self, previous: RunFolder | None) -> None:
        for entry in sorted((self.workspace.runs / self.spec.key.folder).glob("*.partial")):
            if not entry.stem.isdigit():
                continue
            left = RunFolder(root=self.workspace.runs, key=self.spec.key, attempt=int(entry.stem))
            if left != previous:
                try:
                    if is_alive(RunRecord.read(entry).holder) is not False:
                        continue
                except KitError:
                    continue  # nothing says whose it is; it may be about to get its record
            # A kernel outlives its killed runner for a moment, and could still write there.
            kill_marked(mark_of(left.final))
            left.set_aside()
            self.journal.warn(f"{entry.name} was left by a process that died; set aside")

    def _execution(self, stop: StopSignal, beat: Callable[[], None]) -> Execution:
        folder = self.paths
        return Execution(
            notebook=self.spec.notebook,
            parameters=self.spec.parameters,
            reserved={
                "run_folder": ".",  # the kernel's working directory: no path of this machine
                "run_id": folder.run_id,
                "card_id": folder.card_id,
            },
            folder=folder.partial,
            time_limit_sec=self.spec.time_limit_sec,
            output_limit_bytes=self.spec.output_limit_bytes,
            environment={
                "KIT_WORKSPACE": str(self.workspace.root),
                "KIT_RUN_FOLDER": str(folder.partial),
                "KIT_RUN_ID": folder.run_id,
                "KIT_CARD_ID": folder.card_id,
                **self.spec.environment,
            },
            secrets=self.spec.kernel_secrets,
            mark=mark_of(folder.final),
            clock=self.clock,
            stop=stop,
            progress=self.journal.take,
            beat=beat,
        )

    def _record(self, status: RunStatus) -> RunRecord:
        redactor = Redactor()
        return RunRecord(
            run_id=self.paths.run_id,
            card_id=self.paths.card_id,
            key=self.spec.key,
            attempt=self.paths.attempt,
            status=status,
            display=self.spec.title,
            notebook=self.workspace.relative(self.spec.notebook),
            parameters=redactor.value(self.spec.parameters),
            facts=redactor.value(self.spec.facts),
            versions=versions(),
            git_commit=git_commit(self.workspace.root),
            started_at=self.started_at,
            holder=this_process(),
            warnings=tuple(redactor.value(self.journal.warnings)),
        )

    def _storage_failure(self, error: Exception) -> RunFailure:
        code = error.code if isinstance(error, KitError) else "file.io"
        remedy = error.remedy if isinstance(error, KitError) else ""
        self.journal.warn(f"the run folder cannot be written: {error}")
        return RunFailure(kind="storage", message=str(error), code=code, remedy=remedy)


def _replace_card(partial: Path, card: Card) -> None:
    """Keep what the failed notebook left beside the card that is really sent."""
    if (partial / CARD_FILE).is_file():
        files.write_bytes(partial / "card.rejected.json", (partial / CARD_FILE).read_bytes())
    files.write_json(partial / CARD_FILE, card.to_dict())
