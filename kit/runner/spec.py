"""What a run is asked for, and what becomes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kit.card import Card
from kit.delivery import Receipt
from kit.errors import DeliveryError, KitError
from kit.runner.failure import RunFailure
from kit.runner.identity import RunKey
from kit.runner.notebook import Execution, NotebookOutcome
from kit.runner.record import RunStatus

__all__ = ["FallbackCard", "Refusal", "RunOutcome", "RunSpec"]

FallbackCard = Callable[[Path, RunFailure], Card]


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """What to run.

    Attributes:
        key: Identity; the run happens at most once under it.
        notebook: Path of the notebook.
        parameters: Plain JSON values by name.
        time_limit_sec: Wall-clock limit of the cells in seconds.
        display: Title for progress and listings; made from the key when empty.
        output_limit_bytes: Limit on the sum of all cell outputs.
        facts: What the job knows of its inputs, for `run.json`.
        environment: Variables added to the kernel's environment.
        kernel_secrets: Names of secret variables the kernel may see (a provider's key in live
            mode); every other variable that sounds like a secret is withheld.
    """

    key: RunKey
    notebook: Path
    parameters: Mapping[str, Any] = field(default_factory=dict)
    time_limit_sec: float = 600.0
    display: str = ""
    output_limit_bytes: int = 5_000_000
    facts: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    kernel_secrets: frozenset[str] = frozenset()

    @property
    def title(self) -> str:
        """The title shown to people."""
        return self.display or f"{self.key.kind} {self.key.subject}"


@dataclass(frozen=True, kw_only=True)
class RunOutcome:
    """What became of a run.

    Attributes:
        run_id: Its id.
        folder: Its finished folder, `None` when it could not be written.
        status: `ok`, `degraded`, `failed` or `interrupted`.
        card: The card that was to be delivered.
        receipts: One a channel; empty when nothing was to be delivered.
        failure: Why it is not ok.
        warnings: What a person should know beside the result.
        claimed: Whether the state store took the claim.
        resumed: Whether only the delivery of a dead process's run was finished.
    """

    run_id: str
    folder: Path | None
    status: RunStatus
    card: Card | None
    receipts: tuple[Receipt, ...] = ()
    failure: RunFailure | None = None
    warnings: tuple[str, ...] = ()
    claimed: bool = True
    resumed: bool = False

    def error(self) -> KitError | None:
        """Return the error a command ends with by hand, `None` for exit code 0.

        That is `RunError` (5), `Interrupted` (130) or `DeliveryError` (6: no channel took it).
        """
        if self.failure is not None:
            return self.failure.to_error()
        if self.receipts and not self.delivered:
            states = ", ".join(f"{r.channel}: {r.state} ({r.detail})" for r in self.receipts)
            return DeliveryError(
                "delivery.failed",
                f"the run is done, but no channel took its card: {states}",
                where=self.run_id,
                remedy=f"read it here: kit show {self.run_id}",
            )
        return None

    @property
    def delivered(self) -> bool:
        """Whether at least one channel certainly took the card."""
        return any(receipt.state == "sent" for receipt in self.receipts)


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """An executor for a run that is known to be impossible, yet owes a card.

    A job that finds its bundle tampered with performs the run with this, and so gets claim,
    fallback card, record and receipts as for any other failure.
    """

    error: KitError

    def check(self, notebook: Path, parameters: Mapping[str, Any]) -> None:
        """Let it pass: the refusal is the run's outcome."""

    def execute(self, execution: Execution) -> NotebookOutcome:  # noqa: ARG002 - never runs
        """Refuse."""
        raise self.error
