"""Hard limits on model calls: a call past one is never made."""

from __future__ import annotations

import threading
from collections import Counter

__all__ = ["CallLimits"]


class CallLimits:
    """Counts every call of a run, retries included; shared by all its steps and threads.

    Args:
        total: Most calls of the whole run (`limits.production_max_llm_calls`), or None.
    """

    def __init__(self, total: int | None = None) -> None:
        self.total = total
        self._made: Counter[str] = Counter()
        self._guard = threading.Lock()

    def take(self, step: str, most: int | None) -> str | None:
        """Count one call of a step, or say which limit forbids it.

        Args:
            step: Name of the step.
            most: Most calls of that step (`limits.per_step_max_llm_calls`), or None.

        Returns:
            None when the call may be made; else the limit in words.
        """
        with self._guard:
            if self.total is not None and self._made.total() >= self.total:
                return f"production_max_llm_calls={self.total}"
            if most is not None and self._made[step] >= most:
                return f"per_step_max_llm_calls.{step}={most}"
            self._made[step] += 1
            return None

    def made(self, step: str | None = None) -> int:
        """Return how many calls were made, of one step or of all."""
        with self._guard:
            return self._made[step] if step else self._made.total()
