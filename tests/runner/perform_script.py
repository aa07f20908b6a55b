"""Perform one run in a process of its own: `perform_script.py WORKSPACE NOTEBOOK [RUN_TYPE]`.

Prints one JSON line: the outcome, or the error.
"""

from __future__ import annotations

import json
import sys
from datetime import date
from pathlib import Path

from kit.card import Block, Card
from kit.clock import SystemClock
from kit.delivery import ConsoleChannel, FileChannel
from kit.errors import KitError
from kit.runner import RunKey, RunSpec, perform
from kit.state import Store
from kit.workspace import Workspace


def fallback(_folder, failure):
    block = Block(kind="conclusion", lines=(failure.message[:100],))
    title = f"FALLBACK {failure.kind}"
    return Card(card_id=failure.card_id, kind="screen", title=title, blocks=(block,), mode="none")


def main() -> int:
    workspace = Workspace.at(sys.argv[1])
    run_type = sys.argv[3] if len(sys.argv) > 3 else "manual"
    key = RunKey(
        kind="screen", subject="demo@0.1.0", trade_date=date(2024, 9, 18), run_type=run_type
    )
    spec = RunSpec(
        key=key,
        notebook=Path(sys.argv[2]),
        parameters={"symbol": "000001"},
        time_limit_sec=120,
    )
    try:
        outcome = perform(
            workspace,
            Store(workspace.state_path),
            SystemClock(),
            spec,
            fallback_card=fallback,
            channels=[FileChannel(), ConsoleChannel(stream=sys.stderr)],
            progress=lambda event: sys.stderr.write(f"{event.kind} {event.title}\n"),
        )
    except KitError as error:
        sys.stdout.write(json.dumps(error.to_dict()) + "\n")
        return error.exit_code
    value = {
        "run_id": outcome.run_id,
        "status": outcome.status,
        "failure": outcome.failure.to_dict() if outcome.failure else None,
        "receipts": {r.channel: r.state for r in outcome.receipts},
        "resumed": outcome.resumed,
    }
    sys.stdout.write(json.dumps(value) + "\n")
    error = outcome.error()
    return error.exit_code if error else 0


if __name__ == "__main__":
    sys.exit(main())
