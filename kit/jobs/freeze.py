"""Freeze a draft: the bundle room's rules, with the checks that need backtest and runner."""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from kit import files
from kit.bundle import Bundle, CheckResult, FreezeChecks, FrozenVersion
from kit.bundle.freeze import freeze
from kit.bundle.layout import DRAFT, check_id
from kit.bundle.recorded import fill_lock
from kit.clock import Clock
from kit.errors import KitError, StorageError
from kit.jobs.conversation import conversation_slug
from kit.jobs.freeze_evidence import Proof
from kit.jobs.lock import freeze_lock
from kit.runner import run_clean
from kit.workspace import Workspace

__all__ = ["freeze_draft"]

_NOTEBOOK = "notebook.ipynb"
_TIME_LIMIT_SEC = 300.0
_CELL_FILE = re.compile(r"(?:/[^\s\"'<>:]*)?/ipykernel_\d+/\d+\.py")


def freeze_draft(
    workspace: Workspace,
    strategy_id: str,
    *,
    clock: Clock,
    bump: str = "auto",
    first_version: str | None = None,
    slug: str | None = None,
    activate: bool = False,
    who: str | None = None,
    why: str = "",
    progress: Callable[[str], None] = lambda _message: None,
) -> FrozenVersion:
    """Cut the next version of a strategy; see `kit.bundle.freeze.freeze` for arguments and errors.

    Raises:
        GuardError: `freeze.checks` when evidence is stale, the lookahead or warm-up guard did not
            pass on this very code, the environment lock does not hold, or the authoring notebook
            does not re-execute clean.
    """
    proof = Proof(workspace)
    checks = FreezeChecks(
        evidence=proof.evidence,
        lookahead=proof.lookahead,
        warmup=proof.warmup,
        lock=partial(freeze_lock, workspace),
        notebook=lambda bundle: _notebook(bundle, clock),
        advisory=proof.advice,
    )
    draft = workspace.strategies / check_id(strategy_id) / DRAFT
    for filled in fill_lock(draft):
        progress(f"locked, as read: {filled}")
    return freeze(
        workspace,
        strategy_id,
        checks=checks,
        clock=clock,
        bump=bump,
        first_version=first_version,
        slug=slug or conversation_slug(workspace, draft),
        activate=activate,
        who=who,
        why=why if slug else why or "freeze",
        progress=progress,
    )


def _notebook(bundle: Bundle, clock: Clock) -> CheckResult:
    """Re-execute the authoring notebook in a copy of the draft, and keep the executed one."""
    source = bundle.root / _NOTEBOOK
    mend = "open it, restart and run all, and mend the cell that fails"
    if not source.is_file():
        return CheckResult(
            name="notebook", ok=False, detail=f"there is no {_NOTEBOOK}", mend=f"write {_NOTEBOOK}"
        )
    before = bundle.fingerprints
    with tempfile.TemporaryDirectory(prefix="kit-freeze-") as folder:
        copy = Path(folder) / bundle.id / "draft"
        shutil.copytree(bundle.root, copy)
        try:
            outcome = run_clean(
                copy / _NOTEBOOK,
                parameters={"bundle_dir": "."},
                clock=clock,
                time_limit_sec=_TIME_LIMIT_SEC,
            )
        except StorageError:
            raise  # a full disk is no fault of the notebook's
        except KitError as error:
            return CheckResult(name="notebook", ok=False, detail=str(error), mend=mend)
        if outcome.failure is not None and outcome.failure.kind == "interrupted":
            raise outcome.failure.to_error()
        if not outcome.ok:
            cell = f" in “{outcome.failed_cell}”" if outcome.failed_cell else ""
            detail = f"{outcome.error}{cell}"
            return CheckResult(name="notebook", ok=False, detail=detail, mend=mend)
        executed = _portable(copy / _NOTEBOOK)
    if bundle.fingerprints != before:
        return CheckResult(
            name="notebook",
            ok=False,
            detail="the draft changed while its notebook ran",
            mend="freeze again when nobody edits it",
        )
    return CheckResult(
        name="notebook",
        ok=True,
        detail=f"re-executed clean in {outcome.seconds:.0f} s",
        artifacts={_NOTEBOOK: executed},
    )


def _portable(path: Path) -> bytes:
    """Return the executed notebook without what belongs to this machine and this minute.

    The cell that papermill injected goes too: the parameters are the notebook's own defaults, and
    the cells stay those of the draft.
    """
    notebook = files.read_json(path)
    notebook["metadata"].pop("papermill", None)
    notebook["cells"] = [
        cell
        for cell in notebook["cells"]
        if "injected-parameters" not in cell["metadata"].get("tags", ())
    ]
    for cell in notebook["cells"]:
        cell["metadata"].pop("papermill", None)
        cell["metadata"].pop("execution", None)
        if "outputs" in cell:
            cell["outputs"] = _placeless(cell["outputs"], path.parent)
    return files.dump_json(notebook).encode("utf-8")


def _placeless(value: Any, folder: Path) -> Any:
    """Return outputs with the paths of this machine written as what they stand for."""
    if isinstance(value, dict):
        return {key: _placeless(item, folder) for key, item in value.items()}
    if isinstance(value, list):
        return [_placeless(item, folder) for item in value]
    if not isinstance(value, str):
        return value
    places = {folder: ".", folder.resolve(): ".", Path.home(): "~", Path(sys.prefix): "<python>"}
    # Longest first: one may stand inside another.
    for place, name in sorted(places.items(), key=lambda item: -len(str(item[0]))):
        if len(place.parts) > 1:
            value = re.sub(rf"(?<![\w.-]){re.escape(str(place))}(?!\w)", name, value)
    return _CELL_FILE.sub("<cell>", value)
