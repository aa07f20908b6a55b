"""What a server works on: a workspace and a bar source, opened when a call needs them.

Nothing is opened at the start: a server whose workspace is missing answers, and each call that
needs the workspace says what is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from typing import Final

from kit.clock import parse_date
from kit.errors import UsageError
from kit.workspace import Workspace

__all__ = ["Desk", "day_window", "split_symbols"]

_SYMBOL: Final = re.compile(r"[0-9]{6}\.(SH|SZ|BJ)")


@dataclass(frozen=True, kw_only=True)
class Desk:
    """Where a server looks.

    Attributes:
        workspace_path: Directory named at the start; None to look for one at each call.
        source: Name of the bar source, as `kit.market.open_source` knows it.
    """

    workspace_path: str | None = None
    source: str = "sample"

    def workspace(self) -> Workspace:
        """Return the workspace.

        Raises:
            ConfigError: `workspace.not_found`.
        """
        return Workspace.at(self.workspace_path) if self.workspace_path else Workspace.find()


def day_window(start: str, end: str) -> tuple[date, date]:
    """Read two dates, both included.

    Raises:
        UsageError: `time.bad_date`, or `time.bad_window` when the end comes first.
    """
    first, last = parse_date(start), parse_date(end)
    if first > last:
        raise UsageError(
            "time.bad_window",
            f"the window from {first} to {last} ends before it begins",
            remedy="swap the two dates",
        )
    return first, last


def split_symbols(symbols: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the mainland symbols, each once and in order, and what is none."""
    asked = list(dict.fromkeys(symbols))
    good = [symbol for symbol in asked if _SYMBOL.fullmatch(symbol)]
    return good, [symbol for symbol in asked if not _SYMBOL.fullmatch(symbol)]
