"""`kit list` and `kit registry`: which versions exist, and which one runs."""

from __future__ import annotations

import click

from kit.cli import output
from kit.clock import SystemClock
from kit.errors import UsageError

_why = click.option("--why", required=True, help="Reason, for the activation log.")
_who = click.option("--who", default=None, help="Who decides [default: the login name].")


@click.command("list", epilog="Example: kit list --json")
@output.json_option
@click.pass_obj
def list_strategies(session: output.Session, as_json: bool) -> None:
    """List strategies and their versions."""
    from kit import bundle

    found = bundle.list_strategies(session.workspace())
    if as_json:
        output.emit_json(found)
        return
    if not found["strategies"]:
        output.message(
            "no strategies here yet: notebooks/research/01-author.ipynb writes a first draft; "
            "versions copied into strategies/ID/ are listed by kit registry rebuild"
        )
        return
    rows = [
        (
            name,
            entry["latest_active_version"] or "none",
            ", ".join(version["version"] for version in entry["all_versions"]) or "none",
            "yes" if entry["has_draft"] else "no",
        )
        for name, entry in found["strategies"].items()
    ]
    output.table(("strategy", "active", "versions", "draft"), rows)


@click.group(epilog="Example: kit registry show ma250-pullback")
def registry() -> None:
    """List, show, activate, retire, rebuild."""


registry.add_command(list_strategies)


@registry.command(epilog="Example: kit registry show ma250-pullback")
@click.argument("strategy_id", metavar="ID")
@output.json_option
@click.pass_obj
def show(session: output.Session, strategy_id: str, as_json: bool) -> None:
    """Show a strategy's versions and who activated what, when and why."""
    from kit import bundle

    strategy, log = bundle.show(session.workspace(), strategy_id)
    if as_json:
        versions = [version.to_dict() for version in strategy.versions]
        output.emit_json(
            {"id": strategy.id, "versions": versions, "log": [vars(event) for event in log]}
        )
        return
    output.table(
        ("version", "active", "created", "digest"),
        [
            (v.version, "yes" if v.is_active else "", v.created_at, (v.digest or "")[:12])
            for v in strategy.versions
        ],
    )
    click.echo()
    output.table(
        ("when", "event", "version", "who", "why"),
        [(e.ts, e.event, e.version, e.who, e.why) for e in log],
    )


@registry.command(epilog="Example: kit registry activate ma250-pullback@0.3.1 --why 'reviewed'")
@click.argument("ref", metavar="ID@VERSION")
@_why
@_who
@output.json_option
@click.pass_obj
def activate(session: output.Session, ref: str, why: str, who: str | None, as_json: bool) -> None:
    """Make a version the one that cron runs (an older one: that is the rollback)."""
    from kit import bundle

    strategy_id, _, version = ref.partition("@")
    if not version:
        raise UsageError(
            "bundle.bad_version",
            f"{ref!r} names no version",
            remedy=f"kit registry show {strategy_id} lists them; name one: {strategy_id}@X.Y.Z",
        )
    strategy = bundle.activate(
        session.workspace(),
        strategy_id,
        version,
        who=who or output.login_name(),
        why=why,
        clock=SystemClock(),
    )
    _say(strategy.id, strategy.latest_active_version, as_json)


@registry.command(epilog="Example: kit registry retire ma250-pullback --why 'out of season'")
@click.argument("strategy_id", metavar="ID")
@_why
@_who
@output.json_option
@click.pass_obj
def retire(
    session: output.Session, strategy_id: str, why: str, who: str | None, as_json: bool
) -> None:
    """Leave a strategy without an active version; its versions stay."""
    from kit import bundle

    strategy = bundle.retire(
        session.workspace(),
        strategy_id,
        who=who or output.login_name(),
        why=why,
        clock=SystemClock(),
    )
    _say(strategy.id, strategy.latest_active_version, as_json)


@registry.command(epilog="Example: kit registry rebuild")
@output.json_option
@click.pass_obj
def rebuild(session: output.Session, as_json: bool) -> None:
    """Make INDEX.json anew from the version directories and the activation logs."""
    from kit.bundle.rebuild import rebuild as rebuild_index

    rebuilt = rebuild_index(session.workspace(), who=output.login_name(), clock=SystemClock())
    if as_json:
        output.emit_json({"strategies": sorted(rebuilt.index.strategies), "notes": rebuilt.notes})
        return
    for note in rebuilt.notes:
        output.message(note)
    output.say(f"INDEX.json rebuilt: {len(rebuilt.index.strategies)} strategies")


def _say(strategy_id: str, active: str | None, as_json: bool) -> None:
    if as_json:
        output.emit_json({"id": strategy_id, "active": active})
    else:
        output.say(f"{strategy_id}: active version is {active or 'none'}")
