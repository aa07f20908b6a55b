"""Why a run failed, in one shape for the record, the fallback card and the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from kit.card import Card
from kit.errors import Interrupted, KitError, RunError
from kit.runner.identity import RunFolder

__all__ = ["FailureKind", "RunFailure"]

FailureKind = Literal[
    "cell_error",  # a cell raised
    "exited",  # a cell called sys.exit() or exit(): later cells would look as if they had run
    "kernel_died",  # the process ended by itself: os._exit, a crash, the out-of-memory killer
    "timeout",  # the wall-clock limit of the run
    "interrupted",  # Ctrl-C or SIGTERM
    "output_too_large",  # the cells print without end
    "missing_result",  # every cell ran, but a result file is not there
    "bad_result",  # a result file is there and does not hold what it must
    "refused",  # the run was refused before its kernel started
    "storage",  # the disk did not take the run folder
    "crashed",  # a fault of the runner itself
]


@dataclass(frozen=True, kw_only=True)
class RunFailure:
    """One failed run.

    Attributes:
        kind: What happened.
        message: One sentence for a person, secrets masked.
        cell: Title of the cell concerned; empty when it is not about a cell.
        ename: Class of the exception, where there was one.
        evalue: Its message.
        traceback: The end of its traceback, without colours, secrets masked.
        code: Error code of a refusal or of the storage.
        run_id: The run.
        card_id: Id the fallback card must carry.
        remedy: The command that runs it again.
        left_card: The valid card the notebook left before it failed, if any. Nothing proves it
            complete; a fallback builder may quote it.
    """

    kind: FailureKind
    message: str
    cell: str = ""
    ename: str = ""
    evalue: str = ""
    traceback: tuple[str, ...] = ()
    code: str = ""
    run_id: str = ""
    card_id: str = ""
    remedy: str = ""
    left_card: Card | None = None

    def to_error(self) -> KitError:
        """Return it as an error of the family whose exit code the command ends with."""
        family = Interrupted if self.kind == "interrupted" else RunError
        details = {"run_id": self.run_id, "cell": self.cell, "code": self.code}
        return family(
            f"run.{self.kind}",
            self.message,
            where=self.run_id,
            remedy=self.remedy,
            details={name: value for name, value in details.items() if value},
        )

    @classmethod
    def from_dict(cls, value: Mapping[str, Any], paths: RunFolder) -> RunFailure:
        """Read what `to_dict` wrote into the record of the run at `paths`."""
        plain = {**value, "traceback": tuple(value["traceback"])}
        return cls(**plain, run_id=paths.run_id, card_id=paths.card_id)

    def to_dict(self) -> dict[str, Any]:
        """Return the shape used in `run.json`."""
        value = asdict(self)
        for name in ("run_id", "card_id", "left_card"):
            value.pop(name)
        value["traceback"] = list(self.traceback)
        return value
