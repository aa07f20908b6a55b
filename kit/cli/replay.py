"""`kit replay`: do a run over from its folder, and compare."""

from __future__ import annotations

import click

from kit.cli import output
from kit.clock import SystemClock

__all__ = ["perform", "replay"]


@click.command(epilog="Example: kit replay 2020-02-27/screen-ma250-pullback@0.3.1/1")
@click.argument("run", metavar="RUN")
@output.json_option
@click.pass_obj
def replay(session: output.Session, run: str, as_json: bool) -> int:
    """Do a run over from its folder, and compare bytes.

    Models and servers are not asked again: their recorded answers are given. Exit 0 when every
    result is the same, 5 with the first difference.
    """
    return perform(session, run, as_json=as_json)


def perform(session: output.Session, run: str, *, as_json: bool) -> int:
    """Replay a run and show what was found; `kit screen --mode replay` calls this too."""
    from kit.jobs.replay import replay_run

    found = replay_run(
        session.workspace(), run, clock=SystemClock(), progress=output.run_progress()
    )
    error = found.error()
    if as_json:
        output.emit_json({**found.to_dict(), "error": error and error.to_dict()})
    if error is not None:
        return error.exit_code if as_json else output.show_error(error, as_json=False, debug=False)
    if not as_json:
        output.say(f"identical: {found.run_id} ({', '.join(found.compared)})")
    return 0
