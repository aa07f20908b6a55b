"""Freeze a draft: the bundle room's rules, with the checks that need backtest and runner."""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kit import files
from kit.backtest.evidence import Evidence, read_all
from kit.bundle import Bundle, CheckResult, FreezeChecks, FrozenVersion
from kit.bundle.freeze import freeze
from kit.clock import Clock
from kit.errors import KitError, StorageError
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
            pass on this very code, or the authoring notebook does not re-execute clean.
    """
    checks = FreezeChecks(
        evidence=_evidence,
        lookahead=_lookahead,
        warmup=_warmup,
        notebook=lambda bundle: _notebook(bundle, clock),
    )
    return freeze(
        workspace,
        strategy_id,
        checks=checks,
        clock=clock,
        bump=bump,
        first_version=first_version,
        slug=slug,
        activate=activate,
        who=who,
        why=why,
        progress=progress,
    )


def _fresh(bundle: Bundle) -> list[Evidence]:
    mine = bundle.fingerprints
    return [evidence for evidence in read_all(bundle.root) if not evidence.stale_parts(mine)]


def _evidence(bundle: Bundle) -> CheckResult:
    found = read_all(bundle.root)
    mend = f"run kit backtest {bundle.id}@draft"
    if not found:
        return CheckResult(name="evidence", ok=False, detail="there is no backtest", mend=mend)
    fresh = _fresh(bundle)
    if fresh:
        detail = f"{', '.join(evidence.folder.name for evidence in fresh)} fresh"
    else:
        stale = found[0].stale_parts(bundle.fingerprints)
        detail = f"{found[0].folder.name} is stale: {', '.join(stale)} changed since"
    return CheckResult(name="evidence", ok=bool(fresh), detail=detail, mend=mend)


def _guard(bundle: Bundle, name: str, said: Callable[[Any], str], mend: str) -> CheckResult:
    """Ask every fresh backtest: a leak that one of them shows is a leak."""
    verdicts = [evidence.engine["guards"][name] for evidence in _fresh(bundle)]
    if not verdicts:
        # The rule may be as good as can be: what is missing is the run that says so.
        mend = f"run kit backtest {bundle.id}@draft"
        return CheckResult(name=name, ok=False, detail="not run on this code", mend=mend)
    worst = next((verdict for verdict in verdicts if not verdict["ok"]), verdicts[0])
    return CheckResult(name=name, ok=worst["ok"], detail=said(worst), mend=mend)


def _lookahead(bundle: Bundle) -> CheckResult:
    def said(verdict: Any) -> str:
        if verdict["ok"]:
            return f"outputs unchanged on {len(verdict['checked_dates'])} truncations"
        if not verdict["checked_dates"]:
            return "no truncation could be checked: " + "; ".join(verdict["skipped"][:1])
        if not verdict["findings"]:
            return "the result does not outlive one bar of delay"
        leak = verdict["findings"][0]
        return f"{leak['output']} of {leak['symbol']} changes from {leak['first_bad_date']} on"

    return _guard(bundle, "lookahead", said, "make the rule look at the past only, then backtest")


def _warmup(bundle: Bundle) -> CheckResult:
    def said(verdict: Any) -> str:
        return f"{verdict['needed']} bars needed, {verdict['declared']} declared"

    return _guard(
        bundle, "warmup", said, "set data_contract.warmup_bars to what is needed, then backtest"
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
