"""The runner: one notebook, run once under its key, in a folder of its own, with receipts.

It knows notebooks, keys, limits and channels; it knows no strategy, market or mission. A new kind
of job is a notebook and a `RunSpec`. The names below load on first use, so that listing runs never
imports the notebook machinery.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kit.runner.cells import CellRecord, ProgressEvent
    from kit.runner.clean import run_clean
    from kit.runner.contract import NotebookContract, check_parameters, read_contract
    from kit.runner.failure import FailureKind, RunFailure
    from kit.runner.identity import RunFolder, RunKey, card_id_of
    from kit.runner.notebook import Execution, Executor, NotebookExecutor, NotebookOutcome
    from kit.runner.record import FoundRun, RunRecord, find_runs, load_run
    from kit.runner.run import perform
    from kit.runner.spec import Refusal, RunOutcome, RunSpec
    from kit.runner.wording import FAILURE_WORDS

_HOMES = {
    "FAILURE_WORDS": "wording",
    "CellRecord": "cells",
    "Execution": "notebook",
    "Executor": "notebook",
    "FailureKind": "failure",
    "FoundRun": "record",
    "NotebookContract": "contract",
    "NotebookExecutor": "notebook",
    "NotebookOutcome": "notebook",
    "ProgressEvent": "cells",
    "Refusal": "spec",
    "RunFailure": "failure",
    "RunFolder": "identity",
    "RunKey": "identity",
    "RunOutcome": "spec",
    "RunRecord": "record",
    "RunSpec": "spec",
    "card_id_of": "identity",
    "check_parameters": "contract",
    "find_runs": "record",
    "load_run": "record",
    "perform": "run",
    "read_contract": "contract",
    "run_clean": "clean",
}

__all__ = [
    "FAILURE_WORDS",
    "CellRecord",
    "Execution",
    "Executor",
    "FailureKind",
    "FoundRun",
    "NotebookContract",
    "NotebookExecutor",
    "NotebookOutcome",
    "ProgressEvent",
    "Refusal",
    "RunFailure",
    "RunFolder",
    "RunKey",
    "RunOutcome",
    "RunRecord",
    "RunSpec",
    "card_id_of",
    "check_parameters",
    "find_runs",
    "load_run",
    "perform",
    "read_contract",
    "run_clean",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"kit.runner.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
