"""The result of a screen: `picks.json`, checked against its schema before anyone reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from kit import schemas
from kit.clock import iso
from kit.degradation import DegradationReport
from kit.screen.data import ScreenUniverse
from kit.screen.picks import Candidate

__all__ = ["EMPTY_UNIVERSE", "Explained", "ScreenResult"]

EMPTY_UNIVERSE = ScreenUniverse(asked=0, got=0, screened=0, dropped=())


@dataclass(frozen=True, kw_only=True)
class Explained:
    """A pick with its reason.

    Attributes:
        pick: The pick.
        reason_text: One line, zh-CN.
        confidence: `high`, `medium`, `low`; None for a template's text.
        reason_mode: Who wrote it: `live`, `offline` or `template`.
    """

    pick: Candidate
    reason_text: str
    confidence: str | None
    reason_mode: str

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            **self.pick.to_dict(),
            "reason_text": self.reason_text,
            "confidence": self.confidence,
            "reason_mode": self.reason_mode,
        }


@dataclass(frozen=True, kw_only=True)
class ScreenResult:
    """Everything a screen found.

    Attributes:
        skill_id: `id@version`.
        date: Trade date.
        asof: Moment of the newest data, aware; None when no data was reached.
        picks: Best first; empty when the run was aborted.
        universe: Account of the symbols.
        report: Degradation report.
        provenance: Where all this comes from; JSON values.
        rejected: How many picks the rule returned that cannot be used; the report names them.
        repeated: Symbols the rule returned more than once; each counts once.
    """

    skill_id: str
    date: date
    asof: datetime | None
    picks: Sequence[Explained]
    universe: ScreenUniverse
    report: DegradationReport
    provenance: Mapping[str, Any]
    rejected: int = 0
    repeated: Sequence[str] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the content of `picks.json`.

        Raises:
            DataError: `data.schema` when it does not match the schema `picks`.
        """
        value = {
            "skill_id": self.skill_id,
            "date": self.date.isoformat(),
            "asof": iso(self.asof) if self.asof else None,
            "picks": [pick.to_dict() for pick in self.picks],
            "universe": self.universe.to_dict(),
            "degradation_report": self.report.to_dict(),
            "provenance": dict(self.provenance),
        }
        schemas.check("picks", value, where="picks.json")
        schemas.check("degradation", value["degradation_report"], where="picks.json")
        return value
