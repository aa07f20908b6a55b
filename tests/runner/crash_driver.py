"""Kill, or starve, `perform` at its N-th file or store operation, for N = 1, 2, 3, ...

Run as a script by test_crash.py: forking is only clean in a process without threads. Each round
works in a workspace of its own; a forked child performs the run with the fault armed, a second
child performs the same key without it. What is left is printed as one JSON line a round.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from datetime import date
from pathlib import Path

from sqlalchemy import select

from kit import files
from kit.card import Block, Card
from kit.clock import SystemClock
from kit.delivery import ConsoleChannel, FileChannel
from kit.errors import AlreadyDone
from kit.runner import NotebookOutcome, RunKey, RunSpec, perform
from kit.state import Store, tables
from kit.workspace import Workspace

TITLE = "A card of a run"
MAX_ROUNDS = 300


def make_card(card_id: str, title: str = TITLE) -> Card:
    block = Block(kind="conclusion", lines=("one line",))
    return Card(card_id=card_id, kind="screen", title=title, blocks=(block,), mode="none")


class FakeExecutor:
    """Leaves what a notebook would leave, through the same seam."""

    def check(self, notebook, parameters):
        pass

    def execute(self, execution):
        files.write_json(execution.folder / "picks.json", {"picks": []})
        card = make_card(execution.reserved["card_id"])
        files.write_json(execution.folder / "card.json", card.to_dict())
        return NotebookOutcome(failure=None, seconds=0.0)


def perform_once(root: Path) -> str:
    workspace = Workspace.at(root)
    spec = RunSpec(
        key=RunKey(
            kind="screen",
            subject="demo@0.1.0",
            trade_date=date(2024, 9, 18),
            run_type="scheduled",
        ),
        notebook=root / "notebooks" / "demo.ipynb",
    )
    with (root / "console.txt").open("a", encoding="utf-8") as stream:
        try:
            outcome = perform(
                workspace,
                Store(workspace.state_path),
                SystemClock(),
                spec,
                fallback_card=lambda _folder, failure: make_card(failure.card_id, f"{TITLE} !"),
                channels=[FileChannel(), ConsoleChannel(stream=stream)],
                executor=FakeExecutor(),
            )
        except AlreadyDone as error:
            return error.code
    return outcome.status


def in_child(root: Path, fault: dict[str, str]) -> tuple[int, str]:
    """Fork, perform, and return the exit code and what was said."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        os.environ.update(fault)
        files._operations = 0
        code = 1
        try:
            said = f"{perform_once(root)}|{files.count_operations()}"
            code = 0
        except BaseException:
            said = traceback.format_exc()
        os.write(writer, said.encode("utf-8"))
        os._exit(code)
    os.close(writer)
    with os.fdopen(reader, encoding="utf-8") as pipe:
        said = pipe.read()
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), said


def look(root: Path) -> dict[str, object]:
    """Gather everything the test asserts about."""
    runs = root / "runs"
    unreadable = []
    for path in runs.rglob("*.json"):
        try:
            files.read_json(path)
        except Exception as error:
            unreadable.append(f"{path}: {error}")
    rows, claims = [], []
    if (runs / "state.sqlite3").exists():
        with Store(runs / "state.sqlite3").read() as connection:
            rows = [dict(r) for r in connection.execute(select(tables.deliveries)).mappings()]
            claims = [dict(r) for r in connection.execute(select(tables.claims)).mappings()]
    finals = [p for p in runs.glob("*/*/*") if p.is_dir() and p.name.isdigit()]
    return {
        "unreadable": unreadable,
        "partial": [p.name for p in runs.glob("*/*/*.partial")],
        "finals": [
            {
                "run_id": p.relative_to(runs).as_posix(),
                "record": files.read_json(p / "run.json"),
                "receipts": files.read_json(p / "receipts.json")
                if (p / "receipts.json").exists()
                else None,
                "delivered": (p / "delivered" / "card.json").exists(),
            }
            for p in finals
        ],
        "rows": [{k: r[k] for k in ("run_id", "channel", "state", "card_id")} for r in rows],
        "claims": [{k: c[k] for k in ("phase", "outcome", "run_id")} for c in claims],
        "shown": (root / "console.txt").read_text(encoding="utf-8").count(TITLE),
    }


def new_workspace(root: Path) -> Path:
    (root / "strategies").mkdir(parents=True)
    (root / "INDEX.json").write_text("{}")
    (root / "console.txt").touch()
    return root


def main() -> None:
    base, variable = Path(sys.argv[1]), sys.argv[2]
    perform_once(new_workspace(base / "warm"))  # so that no child has to import anything
    for number in range(1, MAX_ROUNDS):
        root = new_workspace(base / str(number))
        first = in_child(root, {variable: str(number)})
        shown = (root / "console.txt").read_text(encoding="utf-8").count(TITLE)
        second = in_child(root, {})
        row = {"n": number, "first": first, "shown_first": shown, "second": second, **look(root)}
        sys.stdout.write(json.dumps(row) + "\n")
        sys.stdout.flush()
        if first[0] == 0 and int(first[1].split("|")[1]) < number:
            return  # the fault came too late to bite
    raise SystemExit("the fault never stopped biting")


if __name__ == "__main__":
    main()
