"""Perform one run: claim, execute, card, record, publish, deliver, receipts.

```
claim ─> N.partial/ ─> cells ─> card ─> run.json ─> rename to N/ ─> outbox ─> receipts.json ─> done
```

A process may be killed anywhere in this line. The next `perform` of the same key finds a dead
holder and needs no human: before the rename the leftover folder becomes `N.dead/` and a new attempt
begins; after it only the delivery is finished. Whatever fails, a card leaves: the notebook's own,
the one `fallback_card` builds, or the card of last resort. A store or a disk that does not take the
run is a warning on the card, never a reason for silence.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from kit import delivery, files
from kit.card import Card
from kit.clock import Clock, iso
from kit.delivery import Channel, Receipt
from kit.errors import Interrupted, KitError, StorageError
from kit.runner import claims, wording
from kit.runner.cells import ProgressEvent
from kit.runner.failure import RunFailure
from kit.runner.identity import RunFolder, first_free, last_attempt
from kit.runner.journal import LOG_FILE, Journal
from kit.runner.kernel import kill_marked, mark_of
from kit.runner.notebook import Execution, Executor, NotebookExecutor, NotebookOutcome
from kit.runner.record import RECORD_FILE, RunRecord, RunStatus, git_commit, versions
from kit.runner.redact import Redactor
from kit.runner.results import CARD_FILE, read_card
from kit.runner.spec import FallbackCard, Refusal, RunOutcome, RunSpec
from kit.runner.supervise import StopSignal, catch_signals
from kit.state import Store
from kit.state.process import is_alive, this_process
from kit.workspace import Workspace

__all__ = ["RECEIPTS_FILE", "Refusal", "RunOutcome", "RunSpec", "perform"]

RECEIPTS_FILE = "receipts.json"
# The seam of fault injection raises bare OSErrors from the store.
_TROUBLE = (StorageError, OSError)


def perform(
    workspace: Workspace,
    store: Store,
    clock: Clock,
    spec: RunSpec,
    *,
    fallback_card: FallbackCard | None,
    channels: Sequence[Channel],
    deliver: bool = True,
    progress: Callable[[ProgressEvent], None] | None = None,
    again: bool = False,
    executor: Executor | None = None,
) -> RunOutcome:
    """Perform a run once, whatever happens on the way.

    Args:
        workspace: Where it happens.
        store: The state store.
        clock: For records and the cells' time stamps; the time limit runs on real time.
        spec: What to run.
        fallback_card: Builds the card of a failed run from the partial folder (which may be empty
            or missing) and the failure; must carry `failure.card_id`. `None` for a kind of run
            that delivers no card.
        channels: Where the card goes.
        deliver: Whether it is sent at all.
        progress: Takes every event; also written to `events.jsonl`.
        again: Run a new attempt although the key is done.
        executor: Runs the notebook; papermill and a kernel by default.

    Returns:
        The outcome; a failed run is an outcome, not an exception.

    Raises:
        AlreadyDone: The key is done, or another process holds it.
        UsageError: A wrong parameter (manual runs; a scheduled one delivers its refusal).
        ConfigError: A notebook that breaks its contract (likewise).
        Interrupted: Ctrl-C twice; the next run of the key begins anew.
    """
    runs_it = executor or NotebookExecutor()
    if spec.key.run_type == "manual":
        runs_it.check(spec.notebook, spec.parameters)
    with catch_signals() as stop:
        performance = _Performance(
            workspace=workspace,
            store=store,
            clock=clock,
            spec=spec,
            fallback_card=fallback_card,
            channels=channels,
            wants_delivery=deliver,
            journal=Journal(clock, spec.title, progress),
            again=again,
            executor=runs_it,
            stop=stop,
        )
        return performance.run()


@dataclass(kw_only=True)
class _Performance:
    """One call of `perform`, step by step."""

    workspace: Workspace
    store: Store | None
    clock: Clock
    spec: RunSpec
    fallback_card: FallbackCard | None
    channels: Sequence[Channel]
    wants_delivery: bool
    journal: Journal
    again: bool
    executor: Executor
    stop: StopSignal
    claim: claims.Claim | None = None
    paths: RunFolder = field(init=False)
    started_at: str = field(init=False)
    on_disk: bool = False

    def run(self) -> RunOutcome:
        try:
            self._take()
            if self.claim is not None and self.store is not None and self.claim.resume:
                resumed = self._resume(self.claim, self.store)
                if resumed is not None:
                    return resumed
                self._take()
            return self._work()
        except KeyboardInterrupt as error:
            raise self._leave() from error

    # claim

    def _take(self) -> None:
        key = self.spec.key
        self.started_at = iso(self.clock.now())
        if self.store is not None:
            try:
                self.claim = claims.take(
                    self.store, self.clock, self.workspace, key, again=self.again
                )
                self.paths = self.claim.folder
                return
            except _TROUBLE as error:
                self.store = None
                self.journal.warn(f"the run could not be claimed: {error}")
        number = last_attempt(self.workspace, key) + 1
        self.paths = RunFolder(root=self.workspace.runs, key=key, attempt=number)

    def _finish(self, status: RunStatus) -> None:
        if self.store is None or self.claim is None:
            return
        try:
            claims.finish(
                self.store, self.clock, self.claim, status, counts=not self._may_rerun(status)
            )
        except _TROUBLE as error:
            self.journal.warn(f"the end of the run could not be recorded: {error}")

    def _may_rerun(self, status: RunStatus) -> bool:
        """A person who stopped a run may simply start it again; nothing of it was sent."""
        return status == "interrupted" and self.spec.key.run_type == "manual"

    def _leave(self) -> Interrupted:
        """Second Ctrl-C: kill, let go of the key, and be gone."""
        kill_marked(mark_of(self.paths.final))
        with contextlib.suppress(*_TROUBLE, KitError):
            self.paths.set_aside()
            if self.store is not None and self.claim is not None:
                claims.finish(self.store, self.clock, self.claim, "interrupted", counts=False)
        return Interrupted(
            "run.interrupted",
            f"run {self.paths.run_id} was left at once",
            remedy="run the command again",
        )

    # the run itself

    def _work(self) -> RunOutcome:
        failure = self._prepare()
        outcome = NotebookOutcome(failure=failure, seconds=0.0)
        if failure is None:
            outcome = self._execute()
        card, failure = self._card(outcome)
        status = self._status(failure)
        folder = self._publish(outcome, card, failure, status)
        if folder is None and failure is None:
            failure = self._completed(
                RunFailure(kind="storage", message="the run folder could not be published")
            )
            status = "failed"
        if card is not None:
            if folder is None:
                card = wording.with_notice(card, wording.UNPUBLISHED)
            if self.store is None:
                card = wording.with_notice(card, wording.UNCLAIMED)
        sends = card is not None and self.wants_delivery and not self._may_rerun(status)
        receipts = self._deliver(card, folder) if card is not None and sends else ()
        self._finish(status)
        return RunOutcome(
            run_id=self.paths.run_id,
            folder=folder,
            status=status,
            card=card,
            receipts=receipts,
            failure=failure,
            warnings=tuple(self.journal.warnings),
            claimed=self.claim is not None,
        )

    def _prepare(self) -> RunFailure | None:
        """Make the partial folder, after setting aside what dead processes left."""
        try:
            self._clear_leftovers()
            folder = first_free(self.workspace, self.spec.key, self.paths.attempt)
            if folder.attempt != self.paths.attempt and self.store is not None and self.claim:
                claims.move(self.store, self.clock, self.claim, folder)
            self.paths = folder
            files.write_json(folder.partial / RECORD_FILE, self._record("running").to_dict())
        except _TROUBLE as error:
            with contextlib.suppress(OSError):
                self.paths.partial.rmdir()  # only when it is empty
            return self._storage_failure(error)
        self.on_disk = True
        self.journal.open(folder.partial)
        self.journal.say("started", self.paths.run_id)
        return None

    def _clear_leftovers(self) -> None:
        previous = self.claim.previous if self.claim is not None else None
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

    def _execute(self) -> NotebookOutcome:
        folder = self.paths
        execution = Execution(
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
            stop=self.stop,
            progress=self.journal.take,
            beat=self._beat,
        )
        if self.stop.requested:
            failure = RunFailure(kind="interrupted", message="interrupted before the first cell")
            return NotebookOutcome(failure=failure, seconds=0.0)
        try:
            return self.executor.execute(execution)
        except _TROUBLE as error:
            failure = self._storage_failure(error)
        except KitError as error:
            failure = RunFailure(
                kind="refused",
                message=str(error),
                code=error.code,
                remedy=error.remedy,
            )
        except Exception as error:  # noqa: BLE001 - a fault of ours must still end in a card
            failure = RunFailure(
                kind="crashed",
                message=f"{type(error).__name__}: {error}"[:500],
                ename=type(error).__name__,
            )
        return NotebookOutcome(failure=failure, seconds=0.0)

    def _card(self, outcome: NotebookOutcome) -> tuple[Card | None, RunFailure | None]:
        if self.fallback_card is None:
            failed = outcome.failure
            return None, None if failed is None else self._completed(failed)
        left = read_card(self.paths.partial)
        failure = outcome.failure
        if failure is None:
            if isinstance(left, Card):
                return left, None
            failure = left
        failure = replace(failure, left_card=left if isinstance(left, Card) else None)
        completed = self._completed(failure)
        return self._built(completed), completed

    def _built(self, failure: RunFailure) -> Card:
        build = self.fallback_card
        if build is not None:
            try:
                return build(self.paths.partial, failure)
            except Exception as error:  # noqa: BLE001 - the last resort below needs no files
                self.journal.warn(
                    f"the fallback card could not be built: {type(error).__name__}: {error}"
                )
        return wording.emergency_card(self.spec.key, failure)

    def _status(self, failure: RunFailure | None) -> RunStatus:
        if failure is not None:
            return "interrupted" if failure.kind == "interrupted" else "failed"
        with contextlib.suppress(KitError):
            report = files.read_json(self.paths.partial / "degradation.json")
            if isinstance(report, Mapping) and report.get("degraded") is True:
                return "degraded"
        return "ok"

    def _publish(
        self,
        outcome: NotebookOutcome,
        card: Card | None,
        failure: RunFailure | None,
        status: RunStatus,
    ) -> Path | None:
        """Write card, log and record, and rename the folder into place."""
        if not self.on_disk:
            return None
        partial = self.paths.partial
        try:
            if failure is not None and card is not None:
                self._replace_card(partial, card)
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
        except (*_TROUBLE, KitError) as error:
            self.journal.warn(f"the run folder could not be published: {error}")
            return None
        finally:
            self.journal.close()
        return self.paths.final

    def _replace_card(self, partial: Path, card: Card) -> None:
        """Keep what the failed notebook left beside the card that is really sent."""
        if (partial / CARD_FILE).is_file():
            files.write_bytes(partial / "card.rejected.json", (partial / CARD_FILE).read_bytes())
        files.write_json(partial / CARD_FILE, card.to_dict())

    # delivery

    def _deliver(self, card: Card, folder: Path | None) -> tuple[Receipt, ...]:
        receipts = tuple(
            delivery.deliver(
                self.store, self.clock, self.paths.run_id, card, self.channels, folder=folder
            )
        )
        recorded = self.store is not None and all(receipt.recorded for receipt in receipts)
        if self.store is not None and not recorded:
            self.journal.warn("the state store did not take every receipt")
        for receipt in receipts:
            self.journal.say("delivered", f"{receipt.channel}: {receipt.state} ({receipt.detail})")
        if folder is not None:
            value = {
                "schema_version": "1.0",
                "run_id": self.paths.run_id,
                "card_id": card.card_id,
                "recorded": recorded,
                "receipts": [receipt.to_dict() for receipt in receipts],
            }
            try:
                files.write_json(folder / RECEIPTS_FILE, value)
            except _TROUBLE as error:
                self.journal.warn(f"the receipts could not be mirrored: {error}")
        return receipts

    def _resume(self, claim: claims.Claim, store: Store) -> RunOutcome | None:
        """Finish the delivery of a run whose process died; `None` when there is none to finish."""
        kill_marked(mark_of(self.paths.final))
        folder = self.paths.final if self.paths.final.is_dir() else None
        record: RunRecord | None = None
        card: Card | None = None
        with contextlib.suppress(KitError):
            record = RunRecord.read(self.paths.final)
        with contextlib.suppress(*_TROUBLE, KitError):
            card = delivery.payload_of(store, self.paths.run_id)
        if card is None and folder is not None and (folder / CARD_FILE).is_file():
            left = read_card(folder)
            card = left if isinstance(left, Card) else None
        status: RunStatus = record.status if record is not None else "failed"
        if self._may_rerun(status) or (card is None and self.fallback_card is not None):
            with contextlib.suppress(*_TROUBLE):
                claims.finish(store, self.clock, claim, status, counts=False)
            return None
        self.journal.warn(
            f"run {self.paths.run_id} was left by a process that died; its delivery was finished"
        )
        receipts: tuple[Receipt, ...] = ()
        if card is not None and self.wants_delivery:
            receipts = self._deliver(card, folder)
        self._finish(status)
        failure = record.failure if record is not None else None
        return RunOutcome(
            run_id=self.paths.run_id,
            folder=folder,
            status=status,
            card=card,
            receipts=receipts,
            failure=None
            if failure is None
            else RunFailure(
                **{**failure, "traceback": tuple(failure["traceback"])},
                run_id=self.paths.run_id,
                card_id=self.paths.card_id,
            ),
            warnings=tuple(self.journal.warnings),
            resumed=True,
        )

    # words

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

    def _completed(self, failure: RunFailure) -> RunFailure:
        """Add to a failure what only the run knows."""
        return replace(
            failure,
            message=Redactor().text(failure.message),
            run_id=self.paths.run_id,
            card_id=self.paths.card_id,
            remedy=failure.remedy or f"kit rerun {self.paths.run_id}",
        )

    def _storage_failure(self, error: Exception) -> RunFailure:
        code = error.code if isinstance(error, KitError) else "file.io"
        remedy = error.remedy if isinstance(error, KitError) else ""
        self.journal.warn(f"the run folder cannot be written: {error}")
        return RunFailure(kind="storage", message=str(error), code=code, remedy=remedy)

    def _beat(self) -> None:
        if self.store is not None and self.claim is not None:
            with contextlib.suppress(*_TROUBLE):
                claims.heartbeat(self.store, self.clock, self.claim)
