"""Every table of the state store, in one place.

Instants are ISO 8601 text in UTC; structured values are JSON text. Rows of `deliveries` and `audit`
are never deleted; a claim is finished, never removed.
"""

from __future__ import annotations

from sqlalchemy import Column, Integer, MetaData, String, Table, Text, UniqueConstraint

__all__ = ["SCHEMA_VERSION", "audit", "claims", "deliveries", "meta", "metadata"]

SCHEMA_VERSION = 1

metadata = MetaData()

meta = Table(
    "meta",
    metadata,
    Column("key", String, primary_key=True),
    Column("value", Text, nullable=False),
)

claims = Table(
    "claims",
    metadata,
    Column("key", String, primary_key=True),
    Column("attempt", Integer, nullable=False),
    Column("run_id", String, nullable=False),
    Column("holder", Text, nullable=False),
    Column("phase", String, nullable=False),
    Column("outcome", String),
    Column("taken_at", String, nullable=False),
    Column("updated_at", String, nullable=False),
)

deliveries = Table(
    "deliveries",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("run_id", String, nullable=False),
    Column("channel", String, nullable=False),
    Column("card_id", String, nullable=False),
    Column("state", String, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("detail", Text, nullable=False),
    Column("updated_at", String, nullable=False),
    UniqueConstraint("card_id", "channel"),
)

audit = Table(
    "audit",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("at", String, nullable=False),
    Column("kind", String, nullable=False),
    Column("body", Text, nullable=False),
)
