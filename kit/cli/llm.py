"""`kit llm`: what models cost, and how well their stand-ins stand in."""

from __future__ import annotations

import click

from kit.cli import output
from kit.clock import SystemClock


@click.group(epilog="Example: kit llm spend --json")
def llm() -> None:
    """Show what models cost, and how far stand-ins agree."""


@llm.command(epilog="Example: kit llm spend --month 2026-11")
@click.option("--month", metavar="YYYY-MM", help="Which month, UTC [default: this one].")
@output.json_option
@click.pass_obj
def spend(session: output.Session, month: str | None, as_json: bool) -> None:
    """Show a month's spending by step and model, and what is left of the budget."""
    from kit.jobs.llm_budget import month_of
    from kit.state import Store

    workspace = session.workspace()
    account = month_of(workspace, Store(workspace.state_path), SystemClock(), month)
    if as_json:
        output.emit_json(account.to_dict())
        return
    if account.rows:
        output.table(
            ("step", "model", "calls", "refused", "tokens in", "tokens out", "USD", "of it bound"),
            [
                (
                    row.step,
                    row.model,
                    row.calls,
                    row.refused,
                    row.prompt_tokens,
                    row.completion_tokens,
                    f"{row.usd:.4f}",
                    f"{row.bounded_usd:.4f}",
                )
                for row in account.rows
            ],
        )
    limit = "no budget" if account.monthly_usd is None else f"of {account.monthly_usd:g} USD"
    output.say(f"{account.tenant} {account.month}: {account.spent_usd:.4f} USD {limit}")


@llm.command(epilog="Example: kit llm agreement ma250-pullback --step event_sector_filter")
@click.argument("ref", metavar="ID[@VERSION|@draft]")
@click.option("--step", help="Only this step [default: every step].")
@output.json_option
@click.pass_obj
def agreement(session: output.Session, ref: str, step: str | None, as_json: bool) -> None:
    """Show how far each step's offline equivalent agreed with models, over recorded runs.

    Only answers of real models count; fewer than 20 of them are 未测.
    """
    from kit.jobs.agreement import agreement as measure
    from kit.jobs.agreement import words

    found = measure(session.workspace(), ref, step)
    if as_json:
        output.emit_json({"ref": ref, "steps": [each.to_dict() for each in found]})
        return
    rows = [(f.step, words(f), f.count, f.days, f.left_out) for f in found]
    output.table(("step", "agreement", "answers", "days", "left out"), rows)
