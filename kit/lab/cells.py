"""Cells executed while a draft is open become tool calls of its conversation.

With their source, and a digest of what they put out: the conversation says what was done, the
notebook shows what came of it.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any

from kit.errors import KitError

__all__ = ["recorder"]


class _Tee:
    """A stream that counts and digests what passes through it."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.digest = hashlib.sha256()
        self.chars = 0

    def take(self, text: str) -> None:
        """Count a text that did not come through the stream."""
        self.digest.update(text.encode("utf-8", "surrogatepass"))
        self.chars += len(text)

    def write(self, text: str) -> Any:
        """Write through."""
        self.take(text)
        return self.stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


class CellRecorder:
    """Listens to the shell; one for each process, however often the extension is loaded."""

    def __init__(self) -> None:
        self._draft: Path | None = None
        self._tee: _Tee | None = None

    def attach(self, ipython: Any) -> None:
        """Listen to a shell; a second time changes nothing."""
        ipython.events.register("pre_run_cell", self.before)
        ipython.events.register("post_run_cell", self.after)

    def before(self, info: Any) -> None:
        """Note which draft is open, and begin to digest what is printed."""
        del info
        if self._tee is not None:  # a cell that runs a cell: the outer one counts
            return
        self._draft = _open_draft()
        if self._draft is not None:
            self._tee = _Tee(sys.stdout)
            sys.stdout = self._tee

    def after(self, result: Any) -> None:
        """Record the cell, if a draft was open when it began."""
        tee, draft, self._tee, self._draft = self._tee, self._draft, None, None
        if tee is None:
            return
        if sys.stdout is tee:
            sys.stdout = tee.stream
        source = (result.info.raw_cell or "").strip()
        if draft is None or not draft.is_dir() or not source or _tells_itself(source):
            return
        if result.result is not None:
            tee.take(_shown(result.result))
        error = result.error_in_exec or result.error_before_exec
        output = {"sha256": tee.digest.hexdigest(), "chars": tee.chars}
        if error is not None:
            output["error"] = f"{type(error).__name__}: {error}"[:500]
        from kit import lab

        try:
            lab.desk().record_cell(draft, source, output)
        except KitError as refused:
            print(f"the cell was not recorded: {refused}", file=sys.stderr)


recorder = CellRecorder()


def _tells_itself(source: str) -> bool:
    """Whether the cell is a note or a question, which are events of their own."""
    return source.startswith("%%kit_chat") or (
        source.startswith("%kit_note") and "\n" not in source
    )


def _shown(value: Any) -> str:
    try:
        return repr(value)
    except Exception as error:  # noqa: BLE001 - a result may be anything at all
        return type(error).__name__


def _open_draft() -> Path | None:
    """Return the open draft without looking for a workspace: most cells have none."""
    from kit import lab

    desk = lab.current()
    return desk.draft_root if desk is not None and desk.open_id is not None else None
