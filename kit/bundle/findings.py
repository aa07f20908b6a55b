"""What lint and verify report: one finding a fault, with its place and how to mend it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["Finding", "Severity", "errors_of"]

Severity = Literal["error", "warning"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One fault.

    Attributes:
        rule: Stable rule id, such as `prompt.offline_missing`.
        severity: An `error` blocks freeze; a `warning` is shown.
        path: File relative to the bundle (or to the workspace for registry findings).
        line: Line in it, or None.
        message: What is wrong.
        mend: What to do about it.
    """

    rule: str
    severity: Severity
    path: str
    message: str
    mend: str
    line: int | None = None

    @property
    def where(self) -> str:
        """`path:line`, or the path alone."""
        return f"{self.path}:{self.line}" if self.line else self.path

    def __str__(self) -> str:
        return f"{self.where}: {self.severity} {self.rule}: {self.message}"

    def to_dict(self) -> dict[str, Any]:
        """Return the shape `--json` prints."""
        return {
            "rule": self.rule,
            "severity": self.severity,
            "path": self.path,
            "line": self.line,
            "message": self.message,
            "mend": self.mend,
        }


def errors_of(findings: Iterable[Finding]) -> list[Finding]:
    """Keep the findings that block."""
    return [finding for finding in findings if finding.severity == "error"]
