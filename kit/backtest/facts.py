"""What a backtest was made from and how it was guarded: the facts beside the numbers."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

from kit.backtest.lookahead import LookaheadVerdict
from kit.backtest.stress import Stress
from kit.backtest.trials import Trials

__all__ = ["Facts", "StepQuality"]

_LIBRARIES = ("numpy", "pandas", "polars", "numba")


@dataclass(frozen=True, kw_only=True)
class StepQuality:
    """How well an LLM step's offline equivalent stands in for it.

    Attributes:
        name: Step name.
        quality: `exact`, `approximate` or `partial`, as the prompt declares.
        differences: What the model does that the equivalent does not.
        agreement: Share of recorded model answers the equivalent agreed with; None when nobody
            has measured it.
        interval: Its 95 % interval.
        answers: How many answers were compared.
    """

    name: str
    quality: str
    differences: tuple[str, ...] = ()
    agreement: float | None = None
    interval: tuple[float, float] | None = None
    answers: int = 0


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What a result was made from and how it was guarded.

    Attributes:
        ref: `id@version` or `id@draft`.
        created_at: ISO 8601, UTC.
        config: The bundle's `config.json`.
        fingerprints: SHA-256 of `code`, `prompts`, `config` and `data`.
        source: Name of the bar source.
        synthetic: Whether the bars are invented.
        market: Market of the universe.
        asked: Symbols asked for.
        universe_note: What is to be said about the universe, Chinese.
        steps: Quality of each LLM step.
        lookahead: Verdict of the guard.
        warmup_declared: `data_contract.warmup_bars`.
        warmup_needed: Measured smallest history after which outputs stop changing.
        partial: What was narrowed against `config.json`: any of `symbols`, `range`. Such evidence
            shows something, and a freeze does not take it.
        stress: The result under worse conditions, or None.
        folds: The result in parts of its time; see `by_fold`.
        trials: What the strategy family has tried so far, or None.
    """

    ref: str
    created_at: str
    config: Mapping[str, Any]
    fingerprints: Mapping[str, str]
    source: str
    synthetic: bool
    market: str
    asked: tuple[str, ...]
    universe_note: str = ""
    steps: tuple[StepQuality, ...] = ()
    lookahead: LookaheadVerdict
    warmup_declared: int | None
    warmup_needed: int
    partial: tuple[str, ...] = ()
    stress: Stress | None = None
    folds: tuple[Mapping[str, Any], ...] = ()
    trials: Trials | None = None
    versions: Mapping[str, str] = field(
        default_factory=lambda: {
            "kit": metadata.version("kit"),
            "python": platform.python_version(),
            **{name: metadata.version(name) for name in _LIBRARIES},
        }
    )

    @property
    def warmup_ok(self) -> bool:
        """Whether the declared warm-up covers what was measured."""
        return self.warmup_declared is not None and self.warmup_needed <= self.warmup_declared

    def guards(self) -> dict[str, Any]:
        """Return what every guard said, as `engine.json` and `--json` write it."""
        found: dict[str, Any] = {
            "lookahead": self.lookahead.to_dict(),
            "warmup": {
                "declared": self.warmup_declared,
                "needed": self.warmup_needed,
                "ok": self.warmup_ok,
            },
        }
        if self.stress is not None:
            found["costs"] = self.stress.to_dict()
        if self.trials is not None:
            found["trials"] = self.trials.to_dict()
        if self.folds:
            found["folds"] = [dict(fold) for fold in self.folds]
        return found
