"""What goes into a freeze and what comes out: the checks handed in, and the version cut."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kit.bundle.diff import Change
from kit.bundle.findings import Finding
from kit.bundle.model import Bundle

__all__ = ["Check", "CheckResult", "FreezeChecks", "FrozenVersion"]


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """What one check of a draft said.

    Attributes:
        name: Short name, such as `evidence`.
        ok: Whether it passed.
        detail: What it found, one sentence.
        mend: What to do when it did not pass.
        blocking: Whether a failure stops the freeze; other failures are shown.
        facts: What a machine may want to know of it, such as the whole answer of the lock.
        artifacts: Relative path -> bytes to put into the version, such as the executed notebook.
    """

    name: str
    ok: bool
    detail: str
    mend: str = ""
    blocking: bool = True
    facts: Mapping[str, Any] = field(default_factory=dict)
    artifacts: Mapping[str, bytes] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the shape `--json` prints (artifacts by name)."""
        value = {key: item for key, item in vars(self).items() if key != "artifacts"}
        return {**value, "artifacts": sorted(self.artifacts)}


Check = Callable[[Bundle], CheckResult]


@dataclass(frozen=True, kw_only=True)
class FreezeChecks:
    """The checks that need rooms above this one; the job that freezes hands them in.

    Attributes:
        evidence: A backtest exists whose fingerprints equal the draft's.
        lookahead: The lookahead guard passed on that same code.
        warmup: The manifest's warm-up covers what was measured.
        lock: The environment lock holds here; returns the schemas of the locked tools.
        notebook: The authoring notebook re-executes clean; may return the executed copy.
        advisory: Further checks; their own `blocking` decides.
    """

    evidence: Check
    lookahead: Check
    warmup: Check
    lock: Check
    notebook: Check
    advisory: tuple[Check, ...] = ()

    @property
    def all(self) -> tuple[Check, ...]:
        """Every check, in the order in which they run."""
        return (
            self.evidence,
            self.lookahead,
            self.warmup,
            self.lock,
            self.notebook,
            *self.advisory,
        )


@dataclass(frozen=True, kw_only=True)
class FrozenVersion:
    """A version that was just cut.

    Attributes:
        id: Strategy id.
        version: Its number.
        root: Its directory.
        digest: SHA-256 of its checksums.txt.
        parent_version: Version it was compared with; None for a first version.
        bump: Bump taken; `first` for a first version.
        computed_bump: Bump the differences demand; `first` for a first version.
        changes: Differences to the parent.
        checks: What each check said.
        warnings: Lint findings that do not block.
        activated: Whether it is now the active version.
        notes: What happened beside the freeze itself.
    """

    id: str
    version: str
    root: Path
    digest: str
    parent_version: str | None
    bump: str
    computed_bump: str
    changes: tuple[Change, ...]
    checks: tuple[CheckResult, ...]
    warnings: tuple[Finding, ...] = ()
    activated: bool = False
    notes: tuple[str, ...] = ()

    @property
    def ref(self) -> str:
        """`id@version`."""
        return f"{self.id}@{self.version}"

    def to_dict(self) -> dict[str, Any]:
        """Return the shape `--json` prints."""
        return {
            **vars(self),
            "ref": self.ref,
            "root": str(self.root),
            "changes": [dict(vars(change)) for change in self.changes],
            "checks": [check.to_dict() for check in self.checks],
            "warnings": [finding.to_dict() for finding in self.warnings],
            "notes": list(self.notes),
        }
