"""The LLM steps of a screen: their inputs, and what their answers mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kit.llm import Mode, StepSpec
from kit.screen.picks import Candidate
from kit.text import clip, one_line

__all__ = [
    "StepNote",
    "explanation_inputs",
    "filter_check",
    "filter_inputs",
    "read_sectors",
]

_SECTOR_KEYS = ("focus_sectors", "sector_filter", "sectors")
_COMPANY_KEY = "focus_companies"
_MAX_SECTORS = 20
_MAX_SECTOR_TEXT = 20


@dataclass(frozen=True, kw_only=True)
class StepNote:
    """How one LLM step went, for the card and the result.

    Attributes:
        step: Name of the step.
        mode: Who answered; None when the step did not run.
        quality: Declared quality of the stand-in, or `model`.
        model: The step's model.
        ok: Answers taken.
        total: Answers wanted.
        calls: Calls made to a model.
        note: Anything a reader should know, in Chinese.
    """

    step: str
    mode: Mode | None
    quality: str
    model: str
    ok: int = 0
    total: int = 0
    calls: int = 0
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form used in the result's provenance."""
        return {
            "step": self.step,
            "mode": None if self.mode is None else str(self.mode),
            "quality": self.quality,
            "model": self.model,
            "ok": self.ok,
            "total": self.total,
            "calls": self.calls,
            "note": self.note,
        }


def filter_inputs(spec: StepSpec, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a step before the screen is given: the facts its input schema names.

    Args:
        spec: The step.
        facts: Everything the flow knows, by input name.
    """
    wanted = spec.input_schema.get("properties", {})
    return {name: facts[name] for name in wanted if name in facts}


def filter_check(inputs: Mapping[str, Any], value: Mapping[str, Any]) -> str | None:
    """Say what is wrong with a sector answer beyond its schema: sectors out of thin air."""
    silent = inputs.get("news_summary") == "" or inputs.get("news_window", {}).get("items") == []
    if silent and _sectors(value):
        return "sectors were named although there was no news"
    return None


def read_sectors(
    value: Mapping[str, Any], known: Sequence[str]
) -> tuple[list[str] | None, list[str]]:
    """Read the sectors, and the companies by symbol, to keep from a step's answer.

    Args:
        value: The answer.
        known: Sectors and symbols of the universe.

    Returns:
        The known ones, or None for no filter; and the names that no stock of the universe has.
    """
    named = list(dict.fromkeys(clip(one_line(s), _MAX_SECTOR_TEXT) for s in _sectors(value)))
    kept = [sector for sector in named if sector in known]
    unknown = [sector for sector in named if sector not in known]
    return kept[:_MAX_SECTORS] or None, unknown[:_MAX_SECTORS]


def _sectors(value: Mapping[str, Any]) -> list[str]:
    sectors = next((found for key in _SECTOR_KEYS if isinstance(found := value.get(key), list)), [])
    companies = value.get(_COMPANY_KEY)
    named = [*sectors, *(companies if isinstance(companies, list) else ())]
    return [item for item in named if isinstance(item, str)]


def explanation_inputs(
    pick: Candidate, today: str, sectors: Sequence[str] | None, news: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what the explanation of one pick is made from."""
    return {
        "pick": pick.to_dict(),
        "context": {
            "today": today,
            "sector_filter": list(sectors or ()),
            "news_window": dict(news),
        },
    }
