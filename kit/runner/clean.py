"""Re-execute a notebook where it stands: the proof that it runs from top to bottom.

No claim, no key and no card: this is for authoring notebooks, which freeze runs in a copy of the
draft. The notebook needs no more contract than any other one that the runner executes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kit.clock import Clock
from kit.runner.kernel import mark_of
from kit.runner.notebook import NOTEBOOK_FILE, Execution, NotebookOutcome, execute
from kit.runner.supervise import catch_signals

__all__ = ["run_clean"]

_OUTPUT_LIMIT_BYTES = 5_000_000


def run_clean(
    notebook: Path, *, parameters: Mapping[str, Any], clock: Clock, time_limit_sec: float
) -> NotebookOutcome:
    """Run a notebook in its own folder.

    The executed copy replaces `notebook.ipynb` of that folder, so give it a copy.

    Args:
        notebook: Path of a file called `notebook.ipynb`.
        parameters: Plain JSON values by name.
        clock: For time stamps in the executed copy.
        time_limit_sec: Wall-clock limit in seconds.

    Raises:
        ConfigError: The notebook breaks the runner's contract.
        StorageError: Its folder cannot be written.
    """
    assert notebook.name == NOTEBOOK_FILE
    with catch_signals() as stop:
        return execute(
            Execution(
                notebook=notebook,
                parameters=parameters,
                reserved={},
                folder=notebook.parent,
                time_limit_sec=time_limit_sec,
                output_limit_bytes=_OUTPUT_LIMIT_BYTES,
                environment={},
                secrets=frozenset(),
                mark=mark_of(notebook.parent),
                clock=clock,
                stop=stop,
                progress=lambda _event: None,
                beat=lambda: None,
            )
        )
