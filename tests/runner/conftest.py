"""What the runner's tests share: notebooks made on the spot, and an executor without kernel."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from kit import files
from kit.card import Block, Card
from kit.clock import Clock, SystemClock
from kit.delivery import ConsoleChannel, FileChannel
from kit.runner import (
    Execution,
    NotebookOutcome,
    RunFailure,
    RunKey,
    RunOutcome,
    RunSpec,
    perform,
)
from kit.state import Store
from kit.workspace import Workspace

PARAMETERS = {
    "type": "object",
    "properties": {"symbol": {"type": "string"}, "top": {"type": "integer", "minimum": 1}},
    "required": ["symbol"],
}
DEFAULTS = 'symbol = "600519"\ntop = 3'
WRITE_CARD = """
import json, os
card = {
    "card_id": os.environ["KIT_CARD_ID"], "kind": "screen", "title": f"A card about {symbol}",
    "mode": "none", "meta": {},
    "blocks": [{"kind": "conclusion", "lines": ["one line"], "emphasis": "normal",
                "keep": False, "bold_rows": []}],
}
with open("card.json", "w") as handle:
    json.dump(card, handle)
"""


def cell(source: str, *tags: str, kind: str = "code") -> dict[str, Any]:
    extra = {"execution_count": None, "outputs": []} if kind == "code" else {}
    return {"cell_type": kind, "metadata": {"tags": list(tags)}, "source": source, **extra}


MakeNotebook = Callable[..., Path]


@pytest.fixture
def make_notebook(workspace: Workspace) -> MakeNotebook:
    """Write a notebook: the parameters cell, a heading and a cell per source, the end."""

    def make(
        *sources: str,
        name: str = "demo",
        parameters: Mapping[str, Any] = PARAMETERS,
        defaults: str = DEFAULTS,
        results: Mapping[str, str | None] | None = None,
        cells: list[dict[str, Any]] | None = None,
        kit: Any = ...,
    ) -> Path:
        if cells is None:
            cells = [cell(defaults, "parameters")]
            for number, source in enumerate(sources, start=1):
                cells += [cell(f"## Step {number}", kind="markdown"), cell(source)]
            cells.append(cell("finished = True", "kit-end"))
        if kit is ...:
            kit = {"kind": "demo", "parameters": dict(parameters), "results": dict(results or {})}
        for number, one in enumerate(cells):
            one["id"] = f"cell-{number}"
        # A kernel of that name is installed nowhere: it must not matter.
        spec = {"name": "no-such-kernel", "display_name": "x", "language": "python"}
        metadata = {"kernelspec": spec, "language_info": {"name": "python"}}
        if kit is not None:
            metadata["kit"] = kit
        path = workspace.notebooks / f"{name}.ipynb"
        path.parent.mkdir(exist_ok=True)
        document = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
        path.write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")
        return path

    return make


def a_card(card_id: str, title: str = "A card") -> Card:
    block = Block(kind="conclusion", lines=("one line",))
    return Card(card_id=card_id, kind="screen", title=title, blocks=(block,), mode="none")


@dataclass
class FakeExecutor:
    """Leaves a card, unless told to do something else; counts how often it ran."""

    action: Callable[[Execution], NotebookOutcome | None] | None = None
    ran: list[str] = field(default_factory=list)

    def check(self, notebook: Path, parameters: Mapping[str, Any]) -> None:
        pass

    def execute(self, execution: Execution) -> NotebookOutcome:
        self.ran.append(execution.reserved["run_id"])
        if self.action is not None:
            outcome = self.action(execution)
            if outcome is not None:
                return outcome
        card = a_card(execution.reserved["card_id"])
        files.write_json(execution.folder / "card.json", card.to_dict())
        return NotebookOutcome(failure=None, seconds=0.5)


@dataclass
class Runs:
    """Performs runs in one workspace and keeps what was shown and asked."""

    workspace: Workspace
    store: Store
    clock: Clock
    stream: io.StringIO = field(default_factory=io.StringIO)
    failures: list[RunFailure] = field(default_factory=list)
    events: list[Any] = field(default_factory=list)

    def fallback(self, folder: Path, failure: RunFailure) -> Card:
        self.failures.append(failure)
        return a_card(failure.card_id, f"FALLBACK {failure.kind}")

    def spec(self, notebook: Path | None = None, **changes: Any) -> RunSpec:
        key = {"kind": "screen", "subject": "demo@0.1.0", "trade_date": date(2024, 9, 18)}
        key.update({k: changes.pop(k) for k in ("subject", "slot", "run_type") if k in changes})
        values: dict[str, Any] = {"parameters": {"symbol": "000001"}, "time_limit_sec": 60.0}
        values.update(changes)
        source = notebook or self.workspace.notebooks / "demo.ipynb"
        return RunSpec(key=RunKey(**key), notebook=source, **values)

    def __call__(self, spec: RunSpec | None = None, **options: Any) -> RunOutcome:
        options.setdefault("fallback_card", self.fallback)
        options.setdefault("channels", [FileChannel(), ConsoleChannel(stream=self.stream)])
        return perform(
            self.workspace,
            self.store,
            self.clock,
            spec or self.spec(),
            progress=self.events.append,
            **options,
        )

    def record(self, outcome: RunOutcome) -> dict[str, Any]:
        assert outcome.folder is not None
        value: dict[str, Any] = files.read_json(outcome.folder / "run.json")
        return value


@pytest.fixture
def runs(workspace: Workspace, store: Store) -> Runs:
    return Runs(workspace=workspace, store=store, clock=SystemClock())


@pytest.fixture
def card_source() -> str:
    """A cell that leaves a valid card."""
    return WRITE_CARD


@pytest.fixture
def make_cell() -> Callable[..., dict[str, Any]]:
    """Build one cell."""
    return cell


@pytest.fixture
def make_card() -> Callable[..., Card]:
    """Build a card."""
    return a_card


@pytest.fixture
def fake() -> FakeExecutor:
    return FakeExecutor()
