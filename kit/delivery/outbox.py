"""The outbox: at most one send per channel and run, and never a lost card.

Each channel has one row in the store. Its payload is written first, then the row is marked
`sending`, then the channel sends, then the row is marked with what came of it:

```
pending ──> sending ──> sent
               ├──────> failed        the channel said so; sent again only when asked (重发)
               └──────> unconfirmed   the sender died in between and nobody can tell
```

A row left at `sending` by a dead process is settled by asking the channel for proof: landed makes
it `sent`, certainly not landed sends it again, unknown makes it `unconfirmed`, which is never sent
again by itself. A store that cannot be used does not stop a send: the receipts then live in
memory, and say so.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from sqlalchemy import Row, insert, select, update

from kit import files
from kit.card import Card, render_card
from kit.clock import Clock, iso, parse_instant
from kit.delivery.channels import DELIVERED, Channel, ChannelReply, FileChannel, Message
from kit.errors import StorageError
from kit.state import Store, tables
from kit.state.process import Holder, is_alive, this_process

__all__ = ["Receipt", "ReceiptState", "deliver", "enqueue", "payload_of", "receipts_of"]

ReceiptState = Literal["pending", "sending", "sent", "failed", "unconfirmed"]

_rows = tables.deliveries
# Trouble with the store reaches here as either: the seam of fault injection raises bare OSErrors.
_STORE_TROUBLE = (StorageError, OSError)
_MAX_DETAIL = 300
# A sender on another host cannot be looked at; after this long it is taken for dead.
_FOREIGN_LEASE_SEC = 600.0


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """What is known about one channel's delivery of one run's card.

    Attributes:
        channel: Name of the channel.
        state: See the drawing above.
        attempts: Sends begun so far.
        at: When this state was reached, ISO 8601 in UTC.
        detail: What the channel said, or why the state is what it is.
        recorded: Whether the store holds this receipt too.
    """

    channel: str
    state: ReceiptState
    attempts: int
    at: str
    detail: str
    recorded: bool = True

    def to_dict(self) -> dict[str, Any]:
        """Return the shape of schema `receipt` (without `recorded`, which is said once there)."""
        return {
            "channel": self.channel,
            "state": self.state,
            "attempts": self.attempts,
            "at": self.at,
            "detail": self.detail,
        }


def enqueue(
    store: Store, clock: Clock, run_id: str, card: Card, channels: Sequence[Channel]
) -> None:
    """Write the card into the outbox of every channel that has no row for this run yet.

    Raises:
        StorageError: The store cannot be written.
    """
    now = iso(clock.now())
    payload = files.canonical_json(card.to_dict()).decode("utf-8")
    with store.begin() as connection:
        known = set(
            connection.execute(select(_rows.c.channel).where(_rows.c.run_id == run_id)).scalars()
        )
        for channel in channels:
            if channel.name in known:
                continue
            connection.execute(
                insert(_rows).values(
                    run_id=run_id,
                    channel=channel.name,
                    card_id=card.card_id,
                    payload=payload,
                    state="pending",
                    holder="",
                    attempts=0,
                    detail="",
                    created_at=now,
                    updated_at=now,
                )
            )


def deliver(
    store: Store | None,
    clock: Clock,
    run_id: str,
    card: Card,
    channels: Sequence[Channel],
    *,
    folder: Path | None = None,
    resend: bool = False,
) -> list[Receipt]:
    """Bring every channel of a run to an end, each on its own; safe to call again after a crash.

    Args:
        store: The state store; `None` when it is known not to work.
        clock: For time stamps and the waits between tries.
        run_id: The run whose card this is.
        card: The card.
        channels: Where to send, in order.
        folder: The run folder; `None` when it could not be written.
        resend: Send again, marked `重发`, where an earlier send failed.

    Returns:
        One receipt a channel, in the order of `channels`.
    """
    if store is not None:
        try:
            enqueue(store, clock, run_id, card, channels)
        except _STORE_TROUBLE:
            store = None
    return [
        _Sender(store, clock, run_id, card, channel, folder, resend).run() for channel in channels
    ]


def receipts_of(store: Store, run_id: str) -> list[Receipt]:
    """Read the receipts of a run.

    Raises:
        StorageError: The store cannot be read.
    """
    query = select(_rows).where(_rows.c.run_id == run_id).order_by(_rows.c.id)
    with store.read() as connection:
        return [_receipt(row) for row in connection.execute(query)]


def payload_of(store: Store, run_id: str) -> Card | None:
    """Read the card a run put into the outbox, `None` when it put none there.

    Raises:
        StorageError: The store cannot be read.
    """
    query = select(_rows.c.payload).where(_rows.c.run_id == run_id).limit(1)
    with store.read() as connection:
        payload = connection.execute(query).scalar()
    return None if payload is None else Card.from_dict(files.parse_json(payload))


@dataclass
class _Sender:
    """Brings one channel of one run to an end."""

    store: Store | None
    clock: Clock
    run_id: str
    card: Card
    channel: Channel
    folder: Path | None
    resend: bool
    attempts: int = 0

    def run(self) -> Receipt:
        row = self._read()
        message = self._message(resend=row is not None and row.state == "failed")
        settled = self._already(row, message) if row is not None else None
        if settled is not None:
            return settled
        self._keep_copy(message)
        taken_by_another = self._begin(row)
        if taken_by_another is not None:
            return taken_by_another
        policy = self.channel.policy
        while True:
            state, reply = self._send_once(message)
            if state == "sent" or not reply.retryable or self.attempts >= policy.attempts:
                return self._settle(state, reply.detail)
            self.clock.sleep(policy.retry_delay_sec * 2 ** (self.attempts - 1))
            self.attempts += 1

    def _read(self) -> Row[Any] | None:
        """Return this channel's row; `None` when the store is of no use."""
        if self.store is None:
            return None
        try:
            with self.store.read() as connection:
                return connection.execute(self._mine(select(_rows))).one_or_none()
        except _STORE_TROUBLE:
            self.store = None
            return None

    def _already(self, row: Row[Any], message: Message) -> Receipt | None:
        """Return the receipt when there is nothing left to send."""
        self.attempts = row.attempts
        if row.state == "pending" or (row.state == "failed" and self.resend):
            return None
        if row.state != "sending":
            return _receipt(row)
        if self._still_sending(row):
            return _receipt(row)
        proof = self.channel.landed(message)
        if proof is None:
            return self._settle("unconfirmed", "the sender died while sending; it may have landed")
        if proof:
            return self._settle("sent", "found delivered after the sender had died")
        return None

    def _still_sending(self, row: Row[Any]) -> bool:
        holder = Holder.from_text(row.holder)
        if holder is None or holder == this_process():
            return False  # one process sends to one channel at a time, so this is an old try
        alive = is_alive(holder)
        if alive is not None:
            return alive
        age = self.clock.now() - parse_instant(row.updated_at)
        return age.total_seconds() < _FOREIGN_LEASE_SEC

    def _begin(self, row: Row[Any] | None) -> Receipt | None:
        """Mark the row `sending`; a receipt comes back when another process was quicker."""
        self.attempts += 1
        if self.store is None or row is None:
            return None
        change = (
            self._mine(update(_rows))
            .where(_rows.c.state == row.state, _rows.c.holder == row.holder)
            .values(
                state="sending",
                holder=this_process().to_text(),
                attempts=self.attempts,
                updated_at=iso(self.clock.now()),
            )
        )
        try:
            with self.store.begin() as connection:
                if connection.execute(change).rowcount == 1:
                    return None
                return _receipt(connection.execute(self._mine(select(_rows))).one())
        except _STORE_TROUBLE:
            self.store = None
            return None

    def _send_once(self, message: Message) -> tuple[ReceiptState, ChannelReply]:
        try:
            reply = self.channel.send(message)
        except Exception as error:  # noqa: BLE001 - one channel's bug never stops the others
            detail = f"{type(error).__name__}: {error}"
            if self.channel.landed(message):
                return "sent", ChannelReply(ok=True, detail=detail)
            return "unconfirmed", ChannelReply(ok=False, detail=detail)
        return ("sent" if reply.ok else "failed"), reply

    def _settle(self, state: ReceiptState, detail: str) -> Receipt:
        at = iso(self.clock.now())
        detail = detail[:_MAX_DETAIL]
        recorded = self.store is not None
        if self.store is not None:
            change = self._mine(update(_rows)).values(
                state=state, detail=detail, attempts=self.attempts, updated_at=at
            )
            try:
                with self.store.begin() as connection:
                    connection.execute(change)
            except _STORE_TROUBLE:
                recorded = False
        return Receipt(
            channel=self.channel.name,
            state=state,
            attempts=self.attempts,
            at=at,
            detail=detail,
            recorded=recorded,
        )

    def _message(self, *, resend: bool) -> Message:
        policy = self.channel.policy
        text = render_card(self.card, policy.format, max_bytes=policy.max_bytes, resend=resend)
        return Message(
            card_id=self.card.card_id,
            title=self.card.title,
            text=text,
            attachments_dir=self.folder,
            resend=resend,
            card=self.card,
        )

    def _keep_copy(self, message: Message) -> None:
        """Keep what is about to be sent beside the run; evidence never stops a send."""
        if self.folder is None or isinstance(self.channel, FileChannel):
            return
        with contextlib.suppress(*_STORE_TROUBLE):
            files.make_dir(self.folder / DELIVERED)
            files.write_text(self.folder / DELIVERED / f"{self.channel.name}.txt", message.text)

    def _mine(self, statement: Any) -> Any:
        return statement.where(_rows.c.run_id == self.run_id, _rows.c.channel == self.channel.name)


def _receipt(row: Row[Any]) -> Receipt:
    return Receipt(
        channel=row.channel,
        state=row.state,
        attempts=row.attempts,
        at=row.updated_at,
        detail=row.detail,
    )
