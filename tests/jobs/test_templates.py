"""From a template to a frozen version: what `kit new --template` gives is a strategy that works."""

from __future__ import annotations

from pathlib import Path

import pytest

from kit.bundle import new_draft, record_note, resolve
from kit.bundle.draft import TEMPLATES
from kit.bundle.lint import lint
from kit.bundle.verify import verify
from kit.clock import FixedClock
from kit.jobs.backtest import backtest
from kit.jobs.freeze import freeze_draft
from kit.workspace import Workspace


@pytest.mark.kernel
@pytest.mark.slow
@pytest.mark.parametrize("template", TEMPLATES)
def test_a_template_is_backtested_and_frozen(
    workspace: Workspace, clock: FixedClock, template: str
) -> None:
    draft = new_draft(workspace, "my-own", template=template)
    assert lint(draft, draft=True) == []
    result, evidence = backtest(workspace, "my-own@draft", clock=clock)
    assert evidence.parent == draft / "backtests"
    assert len(result.trades) > 10
    record_note(draft, "a first rule, from the template", clock=clock)
    frozen = freeze_draft(workspace, "my-own", clock=clock, activate=True)
    assert frozen.version == "0.1.0"
    assert [check.name for check in frozen.checks if check.blocking and not check.ok] == []
    assert verify(workspace).rows == ()
    assert lint(frozen.root, draft=False) == []
    provenance = resolve(workspace, "my-own").manifest.raw["provenance"]
    assert provenance["x-template"] == template
    assert Path(frozen.root / "notebook.ipynb").is_file()
