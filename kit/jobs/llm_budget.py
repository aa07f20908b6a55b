"""Models that are paid for, in a job: the client with its budget, the month's alert, the audit."""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import insert

from kit import files
from kit.card import HIGH, PROVENANCE, Block, Card
from kit.clock import Clock, iso
from kit.delivery import Channel, Receipt, deliver
from kit.errors import KitError, StorageError, UsageError
from kit.llm import LLM, LiteLLM, Mode, StepResult
from kit.llm.budget import BudgetAlert, Metered, Spend, StoreBudget
from kit.state import Store, tables
from kit.workspace import Workspace

__all__ = [
    "STEP_AUDIT",
    "Account",
    "audit_step",
    "deliver_budget_alert",
    "metered_model",
    "month_of",
]

STEP_AUDIT = "llm_step"

_TITLE = "模型预算提醒 {month}"
_SPENT = "本月模型花费 {spent:.2f} 美元，已达预算 {budget:g} 美元的 {share:.0%}"
_REFUSED = "预算已用完：{refused} 次调用没有发出，改用模板文字"
_NEXT = "用完后各步骤改用模板；要继续用模型，请在 config/llm.json 调高 budget.monthly_usd"


@dataclass(frozen=True, kw_only=True)
class Account:
    """A month's spending.

    Attributes:
        tenant: Whose.
        month: `YYYY-MM`, UTC.
        monthly_usd: The budget; None for none.
        spent_usd: What counts against it.
        rows: A row a step and model, the dearest first.
    """

    tenant: str
    month: str
    monthly_usd: float | None
    spent_usd: float
    rows: Sequence[Spend]

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form of `kit llm spend --json`."""
        return {**vars(self), "rows": [row.to_dict() for row in self.rows]}


def month_of(workspace: Workspace, store: Store, clock: Clock, month: str | None = None) -> Account:
    """Return the account of a month, this one by default.

    Raises:
        UsageError: `llm.bad_month`.
        ConfigError: `config/llm.json`.
        StorageError: The store cannot be read.
    """
    if month is not None and not re.fullmatch(r"\d{4}-(0[1-9]|1[0-2])", month):
        raise UsageError("llm.bad_month", f"{month!r} is not a month", remedy="write it as YYYY-MM")
    budget = StoreBudget(store, workspace.config("llm"), clock)
    rows = budget.spend(month)
    return Account(
        tenant=budget.tenant,
        month=month or budget.month,
        monthly_usd=budget.monthly_usd,
        spent_usd=sum(row.usd for row in rows),
        rows=rows,
    )


def metered_model(config: Mapping[str, Any], store: Store, clock: Clock) -> LLM:
    """Return the client of real providers, every call of it paid for out of the budget.

    Args:
        config: `config/llm.json`.
        store: Where the account is kept.
        clock: Gives the month.
    """
    client = LiteLLM(config)
    return Metered(client, StoreBudget(store, config, clock), config, client.price)


def deliver_budget_alert(
    workspace: Workspace, store: Store, clock: Clock, channels: Sequence[Channel]
) -> list[Receipt]:
    """Send the month's alert when it is due: once a month, whoever comes first.

    Called at the end of a job; trouble with the store or the configuration leaves the alert to the
    next one.

    Returns:
        One receipt a channel; empty when nothing was due.
    """
    try:
        alert = StoreBudget(store, workspace.config("llm"), clock).take_alert()
    except (KitError, OSError):
        return []
    if alert is None:
        return []
    run_id = f"alerts/llm-budget-{files.sha256_bytes(alert.tenant.encode())[:8]}-{alert.month}"
    card = _alert_card(alert, run_id)
    return deliver(store, clock, run_id, card, channels, folder=workspace.runs / run_id)


def audit_step(
    store: Store,
    clock: Clock,
    *,
    run_id: str,
    ref: str,
    step: str,
    mode: Mode | None,
    results: Sequence[StepResult],
    total: int,
) -> None:
    """Write into the audit log how often a step fell back; trouble never stops a run.

    Args:
        store: Whose audit log.
        clock: For the time stamp.
        run_id: The run.
        ref: `id@version`.
        step: Name of the step.
        mode: Who answered; None when the step did not run.
        results: What came of it.
        total: How many answers were wanted.
    """
    at = iso(clock.now())
    failed = total - sum(result.ok for result in results)
    body = {
        "run_id": run_id,
        "skill_id": ref,
        "step": step,
        "mode": None if mode is None else str(mode),
        "wanted": total,
        "fallbacks": failed,
        "rate": round(failed / total, 4) if total else 0.0,
        "kinds": dict(Counter(r.failure.kind for r in results if r.failure)),
        "calls": sum(result.calls for result in results),
    }
    text = files.canonical_json(body).decode("utf-8")
    with contextlib.suppress(StorageError, OSError), store.begin() as connection:
        connection.execute(insert(tables.audit).values(at=at, kind=STEP_AUDIT, body=text))


def _alert_card(alert: BudgetAlert, run_id: str) -> Card:
    share = alert.spent_usd / alert.budget_usd if alert.budget_usd else 1.0
    spent = _SPENT.format(spent=alert.spent_usd, budget=alert.budget_usd, share=share)
    refused = [_REFUSED.format(refused=alert.refused)] if alert.refused else []
    return Card(
        card_id=files.sha256_bytes(run_id.encode("utf-8"))[:8],
        kind="notice",
        title=_TITLE.format(month=alert.month),
        blocks=(
            Block(kind="budget", lines=(spent, *refused, _NEXT), emphasis=HIGH, keep=True),
            Block(kind=PROVENANCE, lines=(f"租户 {alert.tenant}，记账截至 {alert.at}",)),
        ),
        mode="none",
        meta=alert.to_dict(),
    )
