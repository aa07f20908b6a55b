"""Entry point of the `kit` command.

Commands load on use: `kit --help` imports only click, so it answers at once.
"""

from __future__ import annotations

import codecs
import contextlib
import importlib
import io
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

import click

from kit.cli import output
from kit.schemas import suggestion

__all__ = ["cli", "main"]

# command -> (module, attribute, one line for --help); the order is the order of --help.
_COMMANDS: dict[str, tuple[str, str, str]] = {
    "init": ("kit.cli.workspace", "init", "Make a working workspace."),
    "new": ("kit.cli.bundle", "new", "Start a draft from a version or a template."),
    "list": ("kit.cli.registry", "list_strategies", "List strategies and their versions."),
    "note": ("kit.cli.bundle", "note", "Record a decision into a draft's conversation."),
    "conversation": ("kit.cli.conversation", "conversation", "Import an agent's session log."),
    "lint": ("kit.cli.bundle", "lint", "Check a draft or a version against every rule."),
    "diff": ("kit.cli.bundle", "diff", "Explain what changed between two versions."),
    "backtest": ("kit.cli.backtest", "backtest", "Backtest a draft or a version."),
    "validate": ("kit.cli.backtest", "validate", "Run every guard on a draft or a version."),
    "sweep": ("kit.cli.backtest", "sweep", "Backtest a grid of parameters; every cell is a trial."),
    "lock": ("kit.cli.lock", "lock", "Check what a bundle demands of its environment."),
    "freeze": ("kit.cli.bundle", "freeze", "Cut an immutable version from a draft."),
    "verify": ("kit.cli.bundle", "verify", "Re-hash every frozen version."),
    "export": ("kit.cli.archive", "export", "Write a frozen version as one archive."),
    "import": ("kit.cli.archive", "import_", "Take in a version from an archive, checked."),
    "registry": ("kit.cli.registry", "registry", "List, show, activate, retire, rebuild."),
    "skills": ("kit.cli.skills", "skills", "Copy active versions to where agents load skills."),
    "screen": ("kit.cli.screen", "screen", "Run a daily screen and deliver its card."),
    "slot": ("kit.cli.slot", "slot", "Run an intraday slot and deliver its card."),
    "llm": ("kit.cli.llm", "llm", "Show what models cost, and how far stand-ins agree."),
    "mcp": ("kit.cli.mcp", "mcp", "Serve the workspace and its data to MCP clients."),
    "data": ("kit.cli.data", "data", "Import, fetch and check bars."),
    "runs": ("kit.cli.runs", "runs", "List runs."),
    "show": ("kit.cli.runs", "show", "Show one run: card, report, receipts, files."),
    "replay": ("kit.cli.replay", "replay", "Do a run over from its folder, and compare bytes."),
    "rerun": ("kit.cli.runs", "rerun", "Run again with the parameters of a past run."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported when called, with did-you-mean."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return every command name, in the order a person meets them."""
        del ctx
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command, or None when there is none of that name."""
        del ctx
        if cmd_name not in _COMMANDS:
            return None
        module, attribute, _ = _COMMANDS[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve a command name; an unknown one names the nearest."""
        name = args[0]
        if name not in _COMMANDS and not name.startswith("-"):
            hint = suggestion(name, _COMMANDS) or "`kit --help` lists the commands"
            raise click.UsageError(f"no command {name!r}; {hint}", ctx=ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a reader that went away (`kit runs | head`) is no error."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # What is still buffered has to go somewhere when the process ends.
            with contextlib.suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, _, line) in _COMMANDS.items()])


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Example: kit screen ma250-pullback --date 2020-02-27",
)
@click.option(
    "--workspace",
    "workspace_path",
    type=click.Path(file_okay=False),
    help="Workspace directory [default: KIT_WORKSPACE, else the nearest one above].",
)
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.version_option(package_name="kit", message="kit %(version)s")
@click.pass_context
def cli(ctx: click.Context, workspace_path: str | None, debug: bool) -> None:
    """Author, backtest, freeze and run strategy bundles."""
    ctx.obj = output.Session(workspace_path=workspace_path, debug=debug)
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and exit with its code (see docs/commands.md)."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A card is Chinese: where only ASCII is claimed to be understood, UTF-8 is the better
            # guess; in any other encoding an escape is better than an error.
            ascii_only = codecs.lookup(stream.encoding).name == "ascii"
            stream.reconfigure(encoding="utf-8" if ascii_only else None, errors="backslashreplace")
    for number in (signal.SIGTERM, signal.SIGHUP):
        # As Ctrl-C: clean up, say so, exit 130. A run has handlers of its own while it lasts. What
        # is ignored (under `nohup`) stays ignored.
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)
    sys.exit(run(sys.argv[1:] if arguments is None else list(arguments)))


def run(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code; every error is shown, none escapes."""
    arguments = list(arguments)
    as_json = "--json" in arguments
    try:
        result: Any = cli.main(args=arguments, prog_name="kit", standalone_mode=False)
    except BaseException as error:  # noqa: BLE001 - the last line of defence: show it, then exit
        return output.show_error(error, as_json=as_json, debug="--debug" in arguments)
    return result if isinstance(result, int) else 0


if __name__ == "__main__":
    main()
