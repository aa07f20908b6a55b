"""The IPython extension: `%load_ext kit` in a notebook.

Each magic is a thin layer over the function of `kit.lab` that bears its name, so a script can do
whatever a cell can. Errors show message and remedy, not a wall of traceback.
"""

from __future__ import annotations

from typing import Any

from IPython.core.magic import Magics, cell_magic, line_magic, magics_class, needs_local_scope

from kit import lab
from kit.errors import KitError, UsageError
from kit.lab.cells import recorder
from kit.lab.display import register, show_error

__all__ = ["KitMagics", "load"]


@magics_class
class KitMagics(Magics):
    """The magics; each is documented where it is defined (`%kit_draft?`)."""

    @line_magic
    def kit_draft(self, line: str) -> Any:
        """Open a draft: `%kit_draft ID [--from ID@VERSION | --empty]`."""
        match line.split():
            case [strategy_id]:
                return lab.draft(strategy_id)
            case [strategy_id, "--empty"]:
                return lab.draft(strategy_id, empty=True)
            case [strategy_id, "--from", origin]:
                return lab.draft(strategy_id, from_=origin)
        raise UsageError(
            "lab.usage",
            f"{line.strip()!r} names no draft to open",
            remedy="%kit_draft ID, %kit_draft ID --from ID@VERSION, or %kit_draft ID --empty",
        )

    @cell_magic
    def kit_file(self, line: str, cell: str) -> Any:
        """Write the cell into the open draft, lint it, show what changed: `%%kit_file PATH`."""
        return lab.file(line.strip(), cell)

    @line_magic
    def kit_lint(self, line: str) -> Any:
        """Lint the open draft (or `%kit_lint ID@VERSION`)."""
        return lab.lint(line.strip() or None)

    @line_magic
    def kit_backtest(self, line: str) -> Any:
        """Backtest the open draft (or `%kit_backtest ID@VERSION`)."""
        return lab.backtest(line.strip() or None)

    @line_magic
    def kit_note(self, line: str) -> Any:
        """Record a decision into the open draft's conversation: `%kit_note TEXT`."""
        return lab.note(line.strip())

    @cell_magic
    def kit_chat(self, line: str, cell: str) -> Any:
        """Ask a model about the open draft, and record both: `%%kit_chat [MODEL]`."""
        return lab.chat(cell.strip(), model=line.strip() or None)

    @line_magic
    def kit_card(self, line: str) -> Any:
        """Preview a run's card as each channel shows it (the last run by default)."""
        return lab.card(line.strip() or None)

    @needs_local_scope
    @line_magic
    def kit_load(self, line: str, local_ns: dict[str, Any] | None = None) -> Any:
        """Load a past run: `%kit_load RUN`; its parts also become the variable `run`."""
        loaded = lab.load(line.strip() or None)
        if local_ns is not None:
            local_ns["run"] = loaded
        return loaded


def load(ipython: Any) -> None:
    """Register the magics and the short form of errors."""
    ipython.register_magics(KitMagics)
    ipython.set_custom_exc((KitError,), show_error)
    register(ipython)
    recorder.attach(ipython)
