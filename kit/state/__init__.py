"""The state store: claims, receipts and audit, in SQLite by default."""

from __future__ import annotations

from kit.state.store import Store

__all__ = ["Store"]
