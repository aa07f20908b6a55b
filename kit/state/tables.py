"""Every table of the state store, in one place.

Instants are ISO 8601 text in UTC; structured values are JSON text. Rows of `deliveries` and `audit`
are never deleted; a claim is finished, never removed.
"""

from __future__ import annotations

from sqlalchemy import Column, Index, Integer, MetaData, String, Table, Text, UniqueConstraint

__all__ = ["SCHEMA_VERSION", "audit", "claims", "deliveries", "meta", "metadata"]

SCHEMA_VERSION = 1

metadata = MetaData()

meta = Table(
    "meta",
    metadata,
    Column("key", String, primary_key=True),
    Column("value", Text, nullable=False),
)

# One row a run key. `phase` is "running" while somebody holds the key and "done" afterwards;
# `attempt` and `run_id` name the latest attempt, `folder` is relative to runs/.
claims = Table(
    "claims",
    metadata,
    Column("key", String, primary_key=True),
    Column("kind", String, nullable=False),
    Column("subject", String, nullable=False),
    Column("trade_date", String, nullable=False),
    Column("slot", String),
    Column("run_type", String, nullable=False),
    Column("folder", String, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("run_id", String, nullable=False),
    Column("holder", Text, nullable=False),
    Column("phase", String, nullable=False),
    Column("outcome", String),
    Column("taken_at", String, nullable=False),
    Column("updated_at", String, nullable=False),
)
Index("claims_folder", claims.c.folder)

# One row a run and channel: the outbox before the send, the receipt after it. `payload` is the
# card itself, so that a delivery can be finished even when the run folder is gone.
deliveries = Table(
    "deliveries",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("run_id", String, nullable=False),
    Column("channel", String, nullable=False),
    Column("card_id", String, nullable=False),
    Column("payload", Text, nullable=False),
    Column("state", String, nullable=False),
    Column("holder", Text, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("detail", Text, nullable=False),
    Column("created_at", String, nullable=False),
    Column("updated_at", String, nullable=False),
    UniqueConstraint("run_id", "channel"),
)
Index("deliveries_card", deliveries.c.card_id)

audit = Table(
    "audit",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("at", String, nullable=False),
    Column("kind", String, nullable=False),
    Column("body", Text, nullable=False),
)
