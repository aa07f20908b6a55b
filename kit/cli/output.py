"""How the command talks: results to stdout, messages to stderr, errors in one shape.

stdout carries the result only, so `--json` can always be piped. Progress is plain lines on stderr;
there is neither colour nor animation, and a control character in a name or a message (a bundle's
error text, a file name) never reaches the terminal.
"""

from __future__ import annotations

import contextlib
import errno
import getpass
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

import click

from kit.errors import AlreadyDone, KitError
from kit.text import one_line, visible
from kit.workspace import Workspace

if TYPE_CHECKING:
    from kit.runner import ProgressEvent, RunOutcome

__all__ = [
    "Session",
    "card_stream",
    "emit_json",
    "force_channel_option",
    "json_option",
    "login_name",
    "message",
    "progress_to_stderr",
    "run_progress",
    "say",
    "show_already",
    "show_error",
    "show_outcome",
    "table",
    "width",
    "with_again",
]

_INTERNAL = 1
_USAGE = 2
_STORAGE = 5
_INTERRUPTED = 130


@dataclass
class Session:
    """What every command is handed.

    Attributes:
        workspace_path: The `--workspace` option, if given.
        debug: Whether tracebacks are shown.
    """

    workspace_path: str | None = None
    debug: bool = False

    def workspace(self) -> Workspace:
        """Return the workspace the command works in.

        Raises:
            ConfigError: `workspace.not_found`.
        """
        return Workspace.at(self.workspace_path) if self.workspace_path else Workspace.find()


json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
force_channel_option = click.option(
    "--force-channel-mismatch",
    is_flag=True,
    help="Run against another channel of a server than the lock's; it is recorded.",
)


def emit_json(value: Any) -> None:
    """Print one JSON document to stdout; NaN is refused."""
    click.echo(json.dumps(value, ensure_ascii=False, allow_nan=False, indent=2, default=str))


def say(text: str) -> None:
    """Print a part of the result to stdout."""
    click.echo(visible(text))


def message(text: str) -> None:
    """Print a line for the person, to stderr."""
    click.echo(visible(text), err=True)


def card_stream(*, as_json: bool) -> TextIO:
    """Return where the console channel writes: stdout is the card, or else the JSON document."""
    return sys.stderr if as_json else sys.stdout


def progress_to_stderr() -> Callable[[str], None]:
    """Return a progress sink: one plain line per event, to stderr."""

    def line(text: str) -> None:
        message(f"  {text}")

    return line


def login_name() -> str:
    """Return who is at the keyboard, for records; containers may have no name for a user id."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid-{os.getuid()}"


def run_progress() -> Callable[[ProgressEvent], None]:
    """Return a progress sink for runs: one line per finished cell, to stderr."""

    def line(event: ProgressEvent) -> None:
        if event.kind == "cell_done":
            message(f"  [{event.n}/{event.of}] {event.title}  {event.seconds or 0:.1f} s")
        elif event.kind in {"warning", "stopping"}:
            message(f"  {event.message or event.title}")

    return line


def show_outcome(
    head: dict[str, Any],
    run: RunOutcome | None,
    result: Any,
    error: KitError | None,
    *,
    as_json: bool,
    workspace: Workspace,
) -> int:
    """Show what became of a run; the card itself has gone to the console channel already."""
    code = error.exit_code if error else 0
    if as_json:
        body = {**head, "exit_code": code, "result": result, "error": error and error.to_dict()}
        if run is not None:
            body["run_id"] = run.run_id
            body["folder"] = run.folder and workspace.relative(run.folder)
            body["card"] = run.card and run.card.to_dict()
            body["receipts"] = [receipt.to_dict() for receipt in run.receipts]
            body["warnings"] = list(run.warnings)
        emit_json(body)
        return code
    if run is None:
        say(f"{head['status']}: {head['reason']}")
        return code
    if not run.receipts and run.card is not None:
        from kit.card import render_card

        say(render_card(run.card, "plain"))  # a draft's card goes nowhere else
    for warning in run.warnings:
        message(f"warning: {warning}")
    sent = ", ".join(f"{receipt.channel}: {receipt.state}" for receipt in run.receipts)
    message(f"{head['status']}: {run.run_id} ({sent or 'not delivered'})")
    if error is not None:
        return show_error(error, as_json=False, debug=False)
    if run.folder is not None:
        message(f"next: kit show {run.run_id}")
    return code


def with_again(error: AlreadyDone) -> AlreadyDone:
    """Name the option too that runs it anew: a full disk may have left no folder to rerun from."""
    if error.code == "run.already_done":
        error.remedy = f"{error.remedy}; or give --again"
    return error


def show_already(error: AlreadyDone, *, as_json: bool) -> int:
    """Show that unattended work was done before, or is under way: exit 0."""
    if as_json:
        emit_json({"status": "already_done", "error": error.to_dict()})
    else:
        message(str(error))
    return 0


def table(
    headers: Sequence[str], rows: Iterable[Sequence[Any]], file: TextIO | None = None
) -> None:
    """Print a table whose columns line up, Chinese included (a Han character is two cells wide)."""
    cells = [[("" if value is None else one_line(str(value))) for value in row] for row in rows]
    widths = [
        max([width(header), *(width(row[i]) for row in cells)]) for i, header in enumerate(headers)
    ]
    for row in [list(headers), ["-" * w for w in widths], *cells]:
        padded = (cell + " " * (w - width(cell)) for cell, w in zip(row, widths, strict=True))
        click.echo("  ".join(padded).rstrip(), file=file)


def width(text: str) -> int:
    """Return how many terminal cells a text takes."""
    from rich.cells import cell_len

    return cell_len(text)


def show_error(error: BaseException, *, as_json: bool, debug: bool) -> int:
    """Show an error and return the exit code it stands for."""
    if isinstance(error, KitError):
        shown, code = error.to_dict(), error.exit_code
    elif isinstance(error, click.exceptions.Exit):
        return error.exit_code
    elif isinstance(error, (KeyboardInterrupt, click.exceptions.Abort)):
        shown, code = _plain("interrupted", "stopped by you", "run the same command again"), 130
    elif isinstance(error, click.ClickException):
        if isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ())):
            # Nothing to explain: its message is the help of a group.
            click.echo(error.format_message(), err=True)
            return _USAGE
        command = (
            error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else ""
        )
        remedy = f"{command or 'kit'} --help"
        shown, code = _plain("usage", error.format_message(), remedy), _USAGE
    elif isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EIO):
        shown = _plain("file.no_space", "the result could not be written", "make room, run again")
        code = _STORAGE
    elif isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else _INTERNAL
    else:
        shown = _plain(
            "internal",
            f"{type(error).__name__}: {error}",
            "this is a fault in kit: run again with --debug and report the traceback",
        )
        code = _INTERNAL
    if as_json:
        with contextlib.suppress(OSError):  # stdout itself may be what failed
            # The lock's answer is a document of its own.
            emit_json(shown["details"] if shown["code"] == "lock.failed" else {"error": shown})
    place = f"{shown['where']}: " if shown["where"] else ""
    message(one_line(f"error: {place}{shown['message']} [{shown['code']}]"))
    if shown["remedy"]:
        message(f"  → {one_line(shown['remedy'])}")
    if debug:
        message("".join(traceback.format_exception(error)))
    return code


def _plain(code: str, text: str, remedy: str) -> dict[str, Any]:
    return {"code": code, "message": text, "remedy": remedy, "where": "", "details": {}}
