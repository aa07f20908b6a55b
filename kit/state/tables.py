"""Every table of the state store, in one place.

Instants are ISO 8601 text in UTC; structured values are JSON text. Rows of `deliveries` and `audit`
are never deleted; a claim is finished, never removed.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

__all__ = [
    "SCHEMA_VERSION",
    "audit",
    "claims",
    "deliveries",
    "llm_calls",
    "llm_months",
    "meta",
    "metadata",
    "trials",
]

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

# One row a distinct backtest of a strategy family: what is tried counts against what is found.
# `sharpe` is a bar's, None when nothing varied; rows are never deleted.
trials = Table(
    "trials",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("family", String, nullable=False),
    Column("fingerprint", String, nullable=False),
    Column("ref", String, nullable=False),
    Column("identity", Text, nullable=False),
    Column("sharpe", Float),
    Column("bars", Integer, nullable=False),
    Column("created_at", String, nullable=False),
    UniqueConstraint("family", "fingerprint"),
)

# One row a call to a model: reserved before it is made, settled with what it cost. Money is in
# millionths of a US dollar; `basis` says where the amount comes from.
llm_calls = Table(
    "llm_calls",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("tenant", String, nullable=False),
    Column("month", String, nullable=False),
    Column("step", String, nullable=False),
    Column("model", String, nullable=False),
    Column("state", String, nullable=False),
    Column("micro_usd", BigInteger, nullable=False),
    Column("basis", String, nullable=False),
    Column("prompt_tokens", Integer),
    Column("completion_tokens", Integer),
    Column("created_at", String, nullable=False),
    Column("expires_at", String, nullable=False),
    Column("settled_at", String),
)
Index("llm_calls_month", llm_calls.c.tenant, llm_calls.c.month)

# One row a tenant and month: whoever reserves holds its lock, and it remembers the month's alert.
llm_months = Table(
    "llm_months",
    metadata,
    Column("tenant", String, primary_key=True),
    Column("month", String, primary_key=True),
    Column("alerted_at", String),
)
