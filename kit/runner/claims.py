"""Claims: at most one process works on a run key, and a dead one never blocks it.

A key has one row, inserted under a primary key, so of any number of processes starting at once
exactly one gets it. The row names its holder well enough to tell a dead process from a living one
(see `kit.state.process`); whoever finds a dead holder takes the key over:

* the dead run had published its folder, or put its card into the outbox: the delivery is resumed,
  nothing is computed again and nothing is sent twice;
* otherwise: its partial folder is set aside and a new attempt begins.

All decisions are made inside one writing transaction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from kit.clock import Clock, iso, parse_instant
from kit.errors import AlreadyDone
from kit.runner.identity import RunFolder, RunKey, last_attempt
from kit.state import Store, tables
from kit.state.process import Holder, is_alive, this_process
from kit.workspace import Workspace

__all__ = ["Claim", "ClaimRow", "claim_rows", "finish", "heartbeat", "move", "take"]

_claims = tables.claims
# A holder on another host cannot be looked at; silent for this long, it is taken for dead.
FOREIGN_LEASE_SEC = 300.0


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A key this process holds.

    Attributes:
        key: The key.
        folder: Paths of the attempt that is to be worked on.
        resume: The run itself is over; only its delivery is left.
        previous: The attempt of a dead holder, whose partial folder and kernel may be left over.
    """

    key: RunKey
    folder: RunFolder
    resume: bool = False
    previous: RunFolder | None = None


@dataclass(frozen=True, kw_only=True)
class ClaimRow:
    """One row of the claims table, for listings.

    Attributes:
        run_id: The latest attempt of the key.
        phase: `running`, `done`, or `open` (ended without a result that counts).
        outcome: Status of the ended run, `None` while it runs.
        alive: Whether the holder lives; `None` when it cannot be known from here.
    """

    run_id: str
    phase: str
    outcome: str | None
    alive: bool | None


def take(
    store: Store, clock: Clock, workspace: Workspace, key: RunKey, *, again: bool = False
) -> Claim:
    """Take a key, or take it over from a dead holder.

    Args:
        store: The state store.
        clock: For time stamps and the lease of holders on other hosts.
        workspace: Where the run folders stand.
        key: The key.
        again: Start a new attempt although the key is done.

    Raises:
        AlreadyDone: `run.already_done`, or `run.held` by a living process.
        StorageError: The store cannot be used.
    """
    try:
        with store.begin() as connection:
            return _take(connection, clock, workspace, key, again=again)
    except IntegrityError:
        # Stores without one writer at a time: another process inserted first. Its row decides.
        with store.begin() as connection:
            return _take(connection, clock, workspace, key, again=again)


def move(store: Store, clock: Clock, claim: Claim, folder: RunFolder) -> None:
    """Record that the claimed run works under another attempt number.

    Raises:
        StorageError: The store cannot be written.
    """
    _update(store, clock, claim, attempt=folder.attempt, run_id=folder.run_id)


def heartbeat(store: Store, clock: Clock, claim: Claim) -> None:
    """Say that the holder still works.

    Raises:
        StorageError: The store cannot be written.
    """
    _update(store, clock, claim)


def finish(store: Store, clock: Clock, claim: Claim, outcome: str, *, counts: bool = True) -> None:
    """End a claim.

    Args:
        store: The state store.
        clock: For the time stamp.
        claim: What `take` returned.
        outcome: Status of the run.
        counts: Whether the key is done; otherwise the next process may simply take it.

    Raises:
        StorageError: The store cannot be written.
    """
    _update(store, clock, claim, phase="done" if counts else "open", outcome=outcome)


def claim_rows(store: Store) -> dict[str, ClaimRow]:
    """Read all claims, by run id.

    Raises:
        StorageError: The store cannot be read.
    """
    with store.read() as connection:
        rows = connection.execute(select(_claims)).all()
    found = {}
    for row in rows:
        holder = Holder.from_text(row.holder)
        alive = is_alive(holder) if holder is not None else False
        found[row.run_id] = ClaimRow(
            run_id=row.run_id, phase=row.phase, outcome=row.outcome, alive=alive
        )
    return found


def _take(
    connection: Connection, clock: Clock, workspace: Workspace, key: RunKey, *, again: bool
) -> Claim:
    query = select(_claims).where(_claims.c.key == key.text).with_for_update()
    row = connection.execute(query).one_or_none()
    if row is not None and row.phase == "done" and not again:
        raise _already_done(row)
    if row is not None and row.phase == "running" and _holder_lives(row, clock):
        raise _held(row)
    if row is not None and row.phase in ("running", "open"):
        left = RunFolder(root=workspace.runs, key=key, attempt=row.attempt)
        published = row.phase == "running" and left.final.is_dir()
        # Left by the second Ctrl-C while it was being delivered: that has to come to its end too.
        if published or _has_deliveries(connection, row.run_id):
            _write(connection, clock, key, left)
            return Claim(key=key, folder=left, resume=True, previous=left)
    folder = RunFolder(
        root=workspace.runs, key=key, attempt=_next_attempt(connection, workspace, key)
    )
    if row is None:
        _insert(connection, clock, key, folder)
        return Claim(key=key, folder=folder)
    _write(connection, clock, key, folder)
    previous = RunFolder(root=workspace.runs, key=key, attempt=row.attempt)
    return Claim(key=key, folder=folder, previous=previous if row.phase == "running" else None)


def _next_attempt(connection: Connection, workspace: Workspace, key: RunKey) -> int:
    query = select(func.max(_claims.c.attempt)).where(_claims.c.folder == key.folder)
    claimed = connection.execute(query).scalar() or 0
    return max(int(claimed), last_attempt(workspace, key)) + 1


def _insert(connection: Connection, clock: Clock, key: RunKey, folder: RunFolder) -> None:
    now = iso(clock.now())
    connection.execute(
        insert(_claims).values(
            key=key.text,
            kind=key.kind,
            subject=key.subject,
            trade_date=key.trade_date.isoformat(),
            slot=key.slot,
            run_type=key.run_type,
            folder=key.folder,
            attempt=folder.attempt,
            run_id=folder.run_id,
            holder=this_process().to_text(),
            phase="running",
            outcome=None,
            taken_at=now,
            updated_at=now,
        )
    )


def _write(connection: Connection, clock: Clock, key: RunKey, folder: RunFolder) -> None:
    now = iso(clock.now())
    connection.execute(
        update(_claims)
        .where(_claims.c.key == key.text)
        .values(
            attempt=folder.attempt,
            run_id=folder.run_id,
            holder=this_process().to_text(),
            phase="running",
            outcome=None,
            taken_at=now,
            updated_at=now,
        )
    )


def _update(store: Store, clock: Clock, claim: Claim, **values: Any) -> None:
    statement = (
        update(_claims)
        # A claim that was taken away meanwhile belongs to somebody else.
        .where(_claims.c.key == claim.key.text, _claims.c.holder == this_process().to_text())
        .values(updated_at=iso(clock.now()), **values)
    )
    with store.begin() as connection:
        connection.execute(statement)


def _has_deliveries(connection: Connection, run_id: str) -> bool:
    rows = tables.deliveries
    query = select(rows.c.id).where(rows.c.run_id == run_id).limit(1)
    return connection.execute(query).first() is not None


def _holder_lives(row: Row[Any], clock: Clock) -> bool:
    holder = Holder.from_text(row.holder)
    if holder is None:
        return False
    alive = is_alive(holder)
    if alive is not None:
        return alive
    silent = clock.now() - parse_instant(row.updated_at)
    return silent.total_seconds() < FOREIGN_LEASE_SEC


def _already_done(row: Row[Any]) -> AlreadyDone:
    return AlreadyDone(
        "run.already_done",
        f"run {row.run_id} has done this already ({row.outcome})",
        where=row.run_id,
        remedy=f"look at it: kit show {row.run_id}; run it anew: kit rerun {row.run_id}",
        details={"run_id": row.run_id, "outcome": row.outcome},
    )


def _held(row: Row[Any]) -> AlreadyDone:
    holder = Holder.from_text(row.holder)
    who = f"process {holder.pid} on {holder.host}" if holder else "another process"
    return AlreadyDone(
        "run.held",
        f"{who} is working on run {row.run_id} since {row.taken_at}",
        where=row.run_id,
        remedy=f"wait for it, then look: kit show {row.run_id}",
        details={"run_id": row.run_id},
    )
