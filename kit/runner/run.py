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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from kit import delivery, files
from kit.card import Card
from kit.clock import Clock, iso
from kit.delivery import Channel, Receipt
from kit.errors import Interrupted, KitError
from kit.runner import claims, wording
from kit.runner.attempt import TROUBLE, Attempt
from kit.runner.cells import ProgressEvent
from kit.runner.failure import RunFailure
from kit.runner.identity import RunFolder, last_attempt
from kit.runner.journal import Journal
from kit.runner.kernel import kill_marked, mark_of
from kit.runner.notebook import Executor, NotebookExecutor, NotebookOutcome
from kit.runner.record import RunRecord, RunStatus
from kit.runner.results import CARD_FILE, read_card
from kit.runner.spec import FallbackCard, Refusal, RunOutcome, RunSpec
from kit.runner.supervise import StopSignal, catch_signals
from kit.state import Store
from kit.workspace import Workspace

__all__ = ["RECEIPTS_FILE", "Refusal", "RunOutcome", "RunSpec", "perform"]

RECEIPTS_FILE = "receipts.json"


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
    attempt: Attempt = field(init=False)

    def __post_init__(self) -> None:
        nobodys = RunFolder(root=self.workspace.runs, key=self.spec.key, attempt=0)
        self._begin(nobodys)

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
        if self.store is not None:
            try:
                self.claim = claims.take(
                    self.store, self.clock, self.workspace, key, again=self.again
                )
                self._begin(self.claim.folder)
                return
            except TROUBLE as error:
                self.store = None
                self.journal.warn(f"the run could not be claimed: {error}")
        number = last_attempt(self.workspace, key) + 1
        self._begin(RunFolder(root=self.workspace.runs, key=key, attempt=number))

    def _begin(self, paths: RunFolder) -> None:
        self.attempt = Attempt(
            workspace=self.workspace,
            clock=self.clock,
            spec=self.spec,
            journal=self.journal,
            paths=paths,
            started_at=iso(self.clock.now()),
        )

    def _moved(self, folder: RunFolder) -> None:
        if self.store is not None and self.claim is not None:
            claims.move(self.store, self.clock, self.claim, folder)

    def _beat(self) -> None:
        if self.store is not None and self.claim is not None:
            with contextlib.suppress(*TROUBLE):
                claims.heartbeat(self.store, self.clock, self.claim)

    def _finish(self, status: RunStatus) -> None:
        if self.store is None or self.claim is None:
            return
        try:
            claims.finish(
                self.store, self.clock, self.claim, status, counts=not self._may_rerun(status)
            )
        except TROUBLE as error:
            self.journal.warn(f"the end of the run could not be recorded: {error}")

    def _may_rerun(self, status: RunStatus) -> bool:
        """A person who stopped a run may simply start it again; nothing of it was sent."""
        return status == "interrupted" and self.spec.key.run_type == "manual"

    def _leave(self) -> Interrupted:
        """Second Ctrl-C: kill, let go of the key, and be gone."""
        with contextlib.suppress(*TROUBLE, KitError):
            self.attempt.abandon()
            if self.store is not None and self.claim is not None:
                claims.finish(self.store, self.clock, self.claim, "interrupted", counts=False)
        return Interrupted(
            "run.interrupted",
            f"{self.spec.title} was left at once",
            remedy="run the command again",
        )

    # the run itself

    def _work(self) -> RunOutcome:
        attempt = self.attempt
        previous = self.claim.previous if self.claim is not None else None
        failure = attempt.prepare(previous, self._moved)
        outcome = NotebookOutcome(failure=failure, seconds=0.0)
        if failure is None:
            outcome = attempt.execute(self.executor, self.stop, self._beat)
        card, failure = self._card(outcome)
        status = attempt.status(failure)
        folder = attempt.publish(outcome, card, failure, status)
        if folder is None and failure is None:
            failure = attempt.complete(
                RunFailure(kind="storage", message="the run folder could not be published")
            )
            status = "failed"
        if card is not None and folder is None:
            card = wording.with_notice(card, wording.UNPUBLISHED)
        if card is not None and self.store is None:
            card = wording.with_notice(card, wording.UNCLAIMED)
        receipts: tuple[Receipt, ...] = ()
        if card is not None and self.wants_delivery and not self._may_rerun(status):
            receipts = self._deliver(card, folder)
        self._finish(status)
        return RunOutcome(
            run_id=attempt.paths.run_id,
            folder=folder,
            status=status,
            card=card,
            receipts=receipts,
            failure=failure,
            warnings=tuple(self.journal.warnings),
            claimed=self.claim is not None,
        )

    def _card(self, outcome: NotebookOutcome) -> tuple[Card | None, RunFailure | None]:
        """Choose the card: the notebook's own of a good run, else the fallback."""
        if self.fallback_card is None:
            failed = outcome.failure
            return None, None if failed is None else self.attempt.complete(failed)
        left = read_card(self.attempt.paths.partial)
        failure = outcome.failure
        if failure is None:
            if isinstance(left, Card):
                return left, None
            failure = left
        failure = replace(failure, left_card=left if isinstance(left, Card) else None)
        completed = self.attempt.complete(failure)
        try:
            return self.fallback_card(self.attempt.paths.partial, completed), completed
        except Exception as error:  # noqa: BLE001 - the last resort below needs no files
            self.journal.warn(
                f"the fallback card could not be built: {type(error).__name__}: {error}"
            )
        return wording.emergency_card(self.spec.key, completed), completed

    # delivery

    def _deliver(self, card: Card, folder: Path | None) -> tuple[Receipt, ...]:
        receipts = tuple(
            delivery.deliver(
                self.store,
                self.clock,
                self.attempt.paths.run_id,
                card,
                self.channels,
                folder=folder,
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
                "run_id": self.attempt.paths.run_id,
                "card_id": card.card_id,
                "recorded": recorded,
                "receipts": [receipt.to_dict() for receipt in receipts],
            }
            try:
                files.write_json(folder / RECEIPTS_FILE, value)
            except TROUBLE as error:
                self.journal.warn(f"the receipts could not be mirrored: {error}")
        return receipts

    def _resume(self, claim: claims.Claim, store: Store) -> RunOutcome | None:
        """Finish the delivery of a run whose process died; `None` when there is none to finish."""
        paths = claim.folder
        kill_marked(mark_of(paths.final))
        folder = paths.final if paths.final.is_dir() else None
        record: RunRecord | None = None
        card: Card | None = None
        with contextlib.suppress(KitError):
            record = RunRecord.read(paths.final)
        with contextlib.suppress(*TROUBLE, KitError):
            card = delivery.payload_of(store, paths.run_id)
        if card is None and folder is not None and (folder / CARD_FILE).is_file():
            left = read_card(folder)
            card = left if isinstance(left, Card) else None
        status: RunStatus = record.status if record is not None else "failed"
        if self._may_rerun(status) or (card is None and self.fallback_card is not None):
            with contextlib.suppress(*TROUBLE):
                claims.finish(store, self.clock, claim, status, counts=False)
            return None
        self.journal.warn(
            f"run {paths.run_id} was left by a process that died; its delivery was finished"
        )
        receipts: tuple[Receipt, ...] = ()
        if card is not None and self.wants_delivery:
            receipts = self._deliver(card, folder)
        self._finish(status)
        failure = record.failure if record is not None else None
        return RunOutcome(
            run_id=paths.run_id,
            folder=folder,
            status=status,
            card=card,
            receipts=receipts,
            failure=None if failure is None else RunFailure.from_dict(failure, paths),
            warnings=tuple(self.journal.warnings),
            resumed=True,
        )
