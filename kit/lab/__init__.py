"""What a researcher touches in JupyterLab: the steps from an idea to a card.

```python
from kit import lab

lab.scratch()                          # a copy to play in; leave it out to work for real
lab.draft("ma250-pullback", from_="ma250-pullback@0.3.1")
lab.backtest()
lab.freeze(activate=True)
lab.screen("ma250-pullback", "2020-02-27")
lab.card()
```

Every function acts on the current desk: the workspace found from the notebook's folder, or the
scratch copy. The magics of `%load_ext kit` are thin layers over these functions.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from kit.lab.desk import Desk, scratch_desk
from kit.workspace import Workspace

if TYPE_CHECKING:
    from kit.backtest import BacktestResult
    from kit.bundle import FrozenVersion
    from kit.jobs.runs import RunDetails
    from kit.jobs.screen import ScreenOutcome
    from kit.jobs.slot import SlotOutcome
    from kit.jobs.sweep import Sweep
    from kit.lab.display import Note, Rows, Sheet
    from kit.mcp import ServerPool

__all__ = [
    "Desk",
    "backtest",
    "card",
    "chat",
    "current",
    "desk",
    "diff",
    "draft",
    "file",
    "freeze",
    "lint",
    "load",
    "note",
    "recording",
    "scratch",
    "screen",
    "slot",
    "strategies",
    "sweep",
    "validate",
    "verify",
]

_current: Desk | None = None


def desk() -> Desk:
    """Return the current desk; the first call finds the workspace.

    Raises:
        ConfigError: `workspace.not_found`.
    """
    global _current  # noqa: PLW0603 - a notebook has one desk, as a person has
    if _current is None:
        _current = Desk(Workspace.find())
    return _current


def current() -> Desk | None:
    """Return the current desk, or None before there is one."""
    return _current


def scratch() -> Desk:
    """Go on in a temporary copy of the workspace, and return its desk."""
    global _current  # noqa: PLW0603
    _current = scratch_desk(desk().workspace)
    return _current


def strategies() -> Rows:
    """See `Desk.strategies`."""
    return desk().strategies()


def draft(strategy_id: str, *, from_: str | None = None, empty: bool = False) -> Note:
    """See `Desk.draft`."""
    return desk().draft(strategy_id, from_=from_, empty=empty)


def file(path: str, text: str) -> Rows | Note:
    """See `Desk.file`."""
    return desk().file(path, text)


def lint(ref: str | None = None) -> Rows:
    """See `Desk.lint`."""
    return desk().lint(ref)


def diff(old: str | None = None, new: str = "draft") -> Rows:
    """See `Desk.diff`."""
    return desk().diff(old, new)


def note(text: str, *, kind: str = "decision") -> Note:
    """See `Desk.note`."""
    return desk().note(text, kind=kind)


def chat(question: str, *, model: str | None = None) -> Note:
    """See `Desk.chat`."""
    return desk().chat(question, model=model)


def recording(strategy_id: str | None = None) -> AbstractContextManager[ServerPool]:
    """See `Desk.recording`."""
    return desk().recording(strategy_id)


def backtest(ref: str | None = None, **options: Any) -> BacktestResult:
    """See `Desk.backtest`."""
    return desk().backtest(ref, **options)


def validate(ref: str | None = None, **options: Any) -> Rows:
    """See `Desk.validate`."""
    return desk().validate(ref, **options)


def sweep(*params: str, **options: Any) -> Sweep:
    """See `Desk.sweep`."""
    return desk().sweep(*params, **options)


def freeze(strategy_id: str | None = None, **options: Any) -> FrozenVersion:
    """See `Desk.freeze`."""
    return desk().freeze(strategy_id, **options)


def verify(ref: str | None = None) -> Rows:
    """See `Desk.verify`."""
    return desk().verify(ref)


def screen(ref: str, day: str | None = None, **options: Any) -> ScreenOutcome:
    """See `Desk.screen`."""
    return desk().screen(ref, day, **options)


def slot(market: str, now: str | None = None, **options: Any) -> SlotOutcome:
    """See `Desk.slot`."""
    return desk().slot(market, now, **options)


def load(run: str | None = None) -> RunDetails:
    """See `Desk.load`."""
    return desk().load(run)


def card(run: str | None = None) -> Sheet:
    """See `Desk.card`."""
    return desk().card(run)
