"""`kit lock`: does the environment hold what a bundle was frozen against?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kit.cli import output
from kit.clock import SystemClock

if TYPE_CHECKING:
    from kit.envlock import LockAnswer


@click.group(epilog="Example: kit lock check ma250-pullback --json")
def lock() -> None:
    """Check what a bundle demands of its environment."""


@lock.command(epilog="Example: kit lock check ma250-pullback@0.3.1 --json")
@click.argument("ref", metavar="ID[@VERSION|@draft]")
@output.force_channel_option
@output.json_option
@click.pass_obj
def check(session: output.Session, ref: str, force_channel_mismatch: bool, as_json: bool) -> None:
    """Check servers, tools, fields, variables and databases; every failure at once.

    Exit code 4 when anything fails.
    """
    from kit.bundle import resolve
    from kit.jobs.lock import require_lock

    workspace = session.workspace()
    answer = require_lock(
        workspace,
        resolve(workspace, ref),
        forced_by=output.login_name() if force_channel_mismatch else None,
        clock=SystemClock(),
    )
    if as_json:
        output.emit_json(answer.to_dict())
        return
    _show(answer)


def _show(answer: LockAnswer) -> None:
    rows = [("server", server.mcp, f"version {server.version}") for server in answer.servers]
    rows += [("tool", f"{t.mcp}.{t.tool}", f"as its {t.evidence} says") for t in answer.tools]
    rows += [("variable", name, "set") for name in answer.env]
    rows += [("database", alias, "answers") for alias in answer.databases]
    if rows:
        output.table(("locked", "name", "found"), rows)
    for entry in answer.forced:
        output.message(
            f"warning: {entry['mcp']} is of channel {entry['actual']}, "
            f"the lock wants {entry['required']}; forced, and recorded"
        )
    output.say(f"{answer.skill_id}: the lock {'holds' if rows else 'demands nothing'}")
