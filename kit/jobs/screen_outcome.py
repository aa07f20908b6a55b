"""What became of a screen, and what that means to a shell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from typing import Any, Literal

from kit.degradation import ABORT, TRIGGERS
from kit.delivery import Receipt
from kit.envlock import refusal
from kit.errors import AlreadyDone, DataError, GuardError, KitError, LockError, RunError
from kit.jobs.skip import Skip
from kit.runner import RunOutcome

__all__ = ["MergedOutcome", "ScreenOutcome"]

# What an abort means to a shell, by the stage it happened in.
_ABORTED: Mapping[str, type[KitError]] = {
    "bundle": GuardError,
    "env_lock": LockError,
    "data": DataError,
    "news": DataError,
}

_CODES = {
    "bundle_tampered": "bundle.tampered",
    "env_lock_failed": "lock.failed",
    "data_unavailable": "data.no_bars",
    "screen_failed": "screen.failed",
}

Status = Literal["running", "ok", "degraded", "failed", "interrupted", "skipped", "not_due"]


@dataclass(frozen=True, kw_only=True)
class ScreenOutcome:
    """What became of a screen.

    Attributes:
        status: `ok`, `degraded`, `failed` or `interrupted` when it ran; `skipped` on a closed day;
            `not_due` when an unattended run comes before the day's data is complete.
        ref: `id@version` or `id@draft`.
        day: Trade date.
        reason: Why it did not run, in words; empty when it ran.
        run: The run, when there was one.
        result: Content of `picks.json`, when the run left it.
        lock: Content of `lock.json`, when the run left it.
        skip: The receipt of a skipped run.
        cron: Whether the unattended contract holds.
    """

    status: Status
    ref: str
    day: date
    reason: str = ""
    run: RunOutcome | None = None
    result: Mapping[str, Any] | None = None
    lock: Mapping[str, Any] | None = None
    skip: Skip | None = None
    cron: bool = False

    @property
    def receipts(self) -> tuple[Receipt, ...]:
        """What each channel said; empty when nothing was to be delivered."""
        return self.run.receipts if self.run else ()

    @property
    def exit_code(self) -> int:
        """Exit code of the command: by hand what happened, under cron whether it was told."""
        error = self.error()
        return error.exit_code if error else 0

    def error(self) -> KitError | None:
        """Return the error the command ends with, None for exit code 0.

        Unattended, an abort or a failure that was delivered or recorded is a success; a card that
        no channel took, or an interruption, is not.
        """
        run = self.run
        if run is None:
            return None
        if not self.cron:
            return run.error() or self._abort_error()
        if run.receipts and not run.delivered:
            # The failure of the run, if any, is in its record; that nobody was told is the news.
            return replace(run, failure=None).error()
        told = run.delivered or run.folder is not None
        return None if told and self.status != "interrupted" else run.error()

    def _abort_error(self) -> KitError | None:
        report = (self.result or {}).get("degradation_report", {})
        for entry in report.get("entries", ()):
            if entry["action"] == ABORT:
                stage = entry["step"] or TRIGGERS[entry["trigger"]].stage
                if stage == "env_lock" and self.lock and "stages_failed" in self.lock:
                    return refusal(self.lock)
                kind = _ABORTED.get(stage, RunError)
                details = entry["details"]
                message = str(details.get("message") or details.get("error") or entry["reason"])
                remedy = str(details.get("remedy") or details.get("remedy_hint") or "")
                code = _CODES.get(entry["trigger"], "screen.aborted")
                return kind(code, message, where=self.ref, remedy=remedy or _look(self.run))
        return None

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form of `kit screen --json`."""
        run = self.run
        return {
            "status": self.status,
            "ref": self.ref,
            "date": self.day.isoformat(),
            "reason": self.reason,
            "exit_code": self.exit_code,
            "run_id": run.run_id if run else None,
            "result": None if self.result is None else dict(self.result),
            "lock": None if self.lock is None else dict(self.lock),
            "card": run.card.to_dict() if run and run.card else None,
            "receipts": [receipt.to_dict() for receipt in self.receipts],
            "failure": run.failure.to_dict() if run and run.failure else None,
            "warnings": list(run.warnings) if run else [],
        }


@dataclass(frozen=True, kw_only=True)
class MergedOutcome:
    """What became of the screens that share a card.

    Attributes:
        merged: The run around them; not run when they are not due or the market is closed.
        screens: Each of them, in the registry's order.
        already: Says that their card is done, or that another process works on it.
    """

    merged: ScreenOutcome
    screens: tuple[ScreenOutcome, ...] = ()
    already: AlreadyDone | None = None

    def error(self) -> KitError | None:
        """Return the error a command ends with: by hand also the first of a screen's own."""
        if self.already is not None:
            # Unattended, a second fire is as it should be.
            return None if self.merged.cron else self.already
        own = self.merged.error()
        if own is not None or self.merged.cron:
            return own
        return next((error for s in self.screens if (error := s.error())), None)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form: the run around them, and `screens`."""
        return {**self.merged.to_dict(), "screens": [s.to_dict() for s in self.screens]}


def _look(run: RunOutcome | None) -> str:
    return f"look at it: kit show {run.run_id}" if run else ""
