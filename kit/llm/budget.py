"""The month's money: reserve before a call, call, settle with what it cost.

A call reserves the most it can cost; only when that fits beside everything spent and reserved is it
made. A process that dies in between leaves its reservation, which counts for a day: longer than any
call, so no budget is overspent, and no crash blocks a budget for good.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, Protocol

from sqlalchemy import Connection, and_, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from kit import files
from kit.clock import Clock, iso
from kit.errors import StorageError
from kit.llm.client import LLM, CallError, Completion, Request, Usage
from kit.llm.models import Price, ceiling_price, configured_price
from kit.state import Store, tables

__all__ = ["Basis", "Budget", "BudgetAlert", "Metered", "Spend", "StoreBudget"]

Basis = Literal["override", "table", "ceiling", "reserved", "free"]
"""Where an amount comes from; `ceiling` and `reserved` are upper bounds of an unknown cost."""

_ALERT_AT = 0.8
_RESERVED_FOR = timedelta(days=1)
# What a provider adds around the messages, in tokens; their own count is bounded by their bytes.
_FRAME_TOKENS = 256
_MICRO = 1_000_000

_calls, _months = tables.llm_calls, tables.llm_months


@dataclass(frozen=True, kw_only=True)
class BudgetAlert:
    """The event that four fifths of a month's budget are spent; there is one a month.

    Attributes:
        tenant: Whose budget.
        month: `YYYY-MM`, UTC.
        spent_usd: Spent so far.
        budget_usd: The month's budget.
        refused: Calls that were not made for want of money.
        at: ISO 8601, UTC.
    """

    tenant: str
    month: str
    spent_usd: float
    budget_usd: float
    refused: int
    at: str

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return dict(vars(self))


@dataclass(frozen=True, kw_only=True)
class Spend:
    """One row of a month's account: a step on a model.

    Attributes:
        step: Name of the step.
        model: `provider/name`.
        calls: Calls made.
        refused: Calls not made for want of money.
        prompt_tokens: Tokens sent, as far as providers said.
        completion_tokens: Tokens received, as far as providers said.
        usd: What counts against the budget.
        bounded_usd: The part of it that is an upper bound of an unknown cost.
        open_usd: Reserved by calls whose end is not known yet.
    """

    step: str
    model: str
    calls: int
    refused: int
    prompt_tokens: int
    completion_tokens: int
    usd: float
    bounded_usd: float
    open_usd: float

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return dict(vars(self))


class Budget(Protocol):
    """Who lends money to a call, and keeps the account."""

    def reserve(self, request: Request, micro_usd: int) -> int:
        """Set money aside and return its number, or raise `CallError` of kind `budget_exceeded`."""
        ...

    def settle(self, reservation: int, micro_usd: int | None, basis: Basis, usage: Usage) -> None:
        """Put what a call cost in the reservation's place; None leaves the amount as reserved."""
        ...


class StoreBudget:
    """A tenant's budget in the state store; safe to share between threads and processes.

    Args:
        store: The state store.
        config: `config/llm.json`; without a `budget` the account is kept and nothing is refused.
        clock: Gives the month, in UTC.
    """

    def __init__(self, store: Store, config: Mapping[str, Any], clock: Clock) -> None:
        entry = config.get("budget", {})
        self.tenant = str(entry.get("tenant", "default"))
        monthly = entry.get("monthly_usd")
        self.monthly_usd: float | None = None if monthly is None else float(monthly)
        self._store = store
        self._clock = clock

    @property
    def month(self) -> str:
        """The month that calls are counted in now, `YYYY-MM`."""
        return f"{self._clock.now():%Y-%m}"

    def reserve(self, request: Request, micro_usd: int) -> int:
        """Set the most that a call can cost aside.

        Returns:
            The number to settle it by.

        Raises:
            CallError: `budget_exceeded`; the store being out of order is one too.
        """
        now, month = self._clock.now(), self.month
        row = {
            "tenant": self.tenant,
            "month": month,
            "step": request.step,
            "model": request.model,
            "micro_usd": micro_usd,
            "basis": "reserved",
            "created_at": iso(now),
            "expires_at": iso(now + _RESERVED_FOR),
        }
        try:
            with self._store.begin() as connection:
                self._hold(connection, month)
                counted = self._counted(connection, month, now)
                refused = (
                    self.monthly_usd is not None and counted + micro_usd > self.monthly_usd * _MICRO
                )
                row |= {"state": "refused", "micro_usd": 0} if refused else {"state": "reserved"}
                key = connection.execute(insert(_calls).values(**row)).inserted_primary_key
        except (StorageError, OSError) as error:
            raise CallError("budget_exceeded", "the account of spending cannot be kept") from error
        if refused:
            raise CallError("budget_exceeded", f"monthly_usd={self.monthly_usd:g}")
        assert key is not None
        return int(key[0])

    def settle(self, reservation: int, micro_usd: int | None, basis: Basis, usage: Usage) -> None:
        """Put what a call cost in its reservation's place; trouble leaves the reservation."""
        values: dict[str, Any] = {
            "state": "settled",
            "basis": basis,
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
            "settled_at": iso(self._clock.now()),
        }
        if micro_usd is not None:
            values["micro_usd"] = micro_usd
        try:
            with self._store.begin() as connection:
                mine = and_(_calls.c.id == reservation, _calls.c.state == "reserved")
                connection.execute(update(_calls).where(mine).values(**values))
        except (StorageError, OSError):
            # Reserved stays reserved: too much is counted then, never too little.
            return

    def take_alert(self) -> BudgetAlert | None:
        """Return the month's alert when it is due; exactly one caller gets it.

        Raises:
            StorageError: The store is out of order.
        """
        if self.monthly_usd is None:
            return None
        now, month = iso(self._clock.now()), self.month
        rows = self.spend(month)
        spent = sum(row.usd - row.open_usd for row in rows)
        refused = sum(row.refused for row in rows)
        if spent < _ALERT_AT * self.monthly_usd and not refused:
            return None
        with self._store.begin() as connection:
            if self._hold(connection, month) is not None:
                return None
            mine = and_(_months.c.tenant == self.tenant, _months.c.month == month)
            connection.execute(update(_months).where(mine).values(alerted_at=now))
        return BudgetAlert(
            tenant=self.tenant,
            month=month,
            spent_usd=round(spent, 6),
            budget_usd=self.monthly_usd,
            refused=refused,
            at=now,
        )

    def spend(self, month: str | None = None) -> list[Spend]:
        """Return a month's account, a row a step and model, the dearest first.

        Raises:
            StorageError: The store cannot be read.
        """
        wanted = and_(_calls.c.tenant == self.tenant, _calls.c.month == (month or self.month))
        with self._store.read() as connection:
            rows = connection.execute(select(_calls).where(wanted)).mappings().all()
        groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
        now = iso(self._clock.now())
        for row in rows:
            groups.setdefault((row["step"], row["model"]), []).append(dict(row))
        found = [_spend(*key, group, now) for key, group in groups.items()]
        return sorted(found, key=lambda spend: (-spend.usd, spend.step, spend.model))

    def _hold(self, connection: Connection, month: str) -> str | None:
        """Lock the month's row for this transaction, and return when it was alerted."""
        mine = and_(_months.c.tenant == self.tenant, _months.c.month == month)
        query = select(_months.c.alerted_at).where(mine).with_for_update()
        row = connection.execute(query).first()
        if row is None:
            try:
                with connection.begin_nested():
                    connection.execute(insert(_months).values(tenant=self.tenant, month=month))
            except IntegrityError:
                pass  # another process made it between the look and the insert
            row = connection.execute(query).one()
        alerted: str | None = row[0]
        return alerted

    def _counted(self, connection: Connection, month: str, now: datetime) -> int:
        this = and_(_calls.c.tenant == self.tenant, _calls.c.month == month)
        stale = and_(this, _calls.c.state == "reserved", _calls.c.expires_at < iso(now))
        connection.execute(update(_calls).where(stale).values(state="expired"))
        counts = and_(this, _calls.c.state.in_(("reserved", "settled")))
        return int(
            connection.execute(select(func.sum(_calls.c.micro_usd)).where(counts)).scalar() or 0
        )


class Metered:
    """A client every call of which is paid for out of a budget.

    It settles where the answer arrives, also when the step has stopped waiting for it.

    Args:
        llm: The client.
        budget: Who pays.
        config: `config/llm.json`: price overrides and the ceiling.
        listed: The client's own price table.
    """

    def __init__(
        self,
        llm: LLM,
        budget: Budget,
        config: Mapping[str, Any],
        listed: Callable[[str], Price | None] = lambda _: None,
    ) -> None:
        self._llm = llm
        self._budget = budget
        self._config = config
        self._listed = listed

    def complete(self, request: Request) -> Completion:
        """Answer one request.

        Raises:
            CallError: `budget_exceeded`, or whatever the client raises.
        """
        override = configured_price(request.model, self._config)
        ceiling = ceiling_price(self._config)
        dearest = override or self._listed(request.model) or ceiling
        most = dearest.micro_usd(_most_tokens(request), request.max_tokens)
        reservation = self._budget.reserve(request, most)
        try:
            completion = self._llm.complete(request)
        except CallError as error:
            if error.charged:
                self._budget.settle(reservation, None, "reserved", Usage())
            else:
                self._budget.settle(reservation, 0, "free", Usage())
            raise
        usage = completion.usage
        tokens = (usage.prompt_tokens, usage.completion_tokens)
        known: tuple[int | None, Basis] = (None, "reserved")
        if override is None and usage.cost_usd is not None:
            known = (Price(prompt=usage.cost_usd * _MICRO, completion=0).micro_usd(1, 0), "table")
        elif tokens[0] is not None and tokens[1] is not None:
            basis_: Basis = "override" if override else "ceiling"
            known = ((override or ceiling).micro_usd(tokens[0], tokens[1]), basis_)
        self._budget.settle(reservation, *known, usage)
        return completion


def _most_tokens(request: Request) -> int:
    """Return a bound of the tokens of a request: none of them is shorter than a byte."""
    sent = [[dict(message) for message in request.messages], dict(request.response_format)]
    return len(files.canonical_json(sent)) + _FRAME_TOKENS


def _spend(step: str, model: str, rows: list[Mapping[str, Any]], now: str) -> Spend:
    settled = [row for row in rows if row["state"] == "settled"]
    bounds = [row for row in settled if row["basis"] in {"ceiling", "reserved"}]
    waiting = [row for row in rows if row["state"] == "reserved" and row["expires_at"] >= now]
    return Spend(
        step=step,
        model=model,
        calls=sum(row["state"] != "refused" for row in rows),
        refused=sum(row["state"] == "refused" for row in rows),
        prompt_tokens=sum(row["prompt_tokens"] or 0 for row in rows),
        completion_tokens=sum(row["completion_tokens"] or 0 for row in rows),
        usd=sum(row["micro_usd"] for row in (*settled, *waiting)) / _MICRO,
        bounded_usd=sum(row["micro_usd"] for row in bounds) / _MICRO,
        open_usd=sum(row["micro_usd"] for row in waiting) / _MICRO,
    )
