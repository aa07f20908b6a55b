"""Open the state store and run transactions on it.

On SQLite every writing transaction starts with BEGIN IMMEDIATE: the write lock is taken before
anything is read, so a check followed by an insert is one atomic step across processes.
"""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, insert, select
from sqlalchemy.exc import DatabaseError, OperationalError
from sqlalchemy.pool import NullPool

from kit import files
from kit.clock import SystemClock
from kit.errors import StorageError
from kit.state import tables

__all__ = ["Store"]

_BUSY_TIMEOUT_MS = 10_000
_RETRY_SEC = 0.02


class Store:
    """A handle on the state store; opens lazily, holds no connection between transactions.

    Args:
        location: A path to a SQLite file, or a SQLAlchemy URL (`postgresql+psycopg://...`).
    """

    def __init__(self, location: Path | str) -> None:
        self.location = location
        self._engine: Engine | None = None

    @property
    def is_sqlite(self) -> bool:
        """Whether this is a local SQLite file."""
        return isinstance(self.location, Path) or str(self.location).startswith("sqlite")

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """Run a writing transaction: commits on leaving, rolls back on an exception.

        Raises:
            StorageError: `state.unavailable`, `state.corrupt`, `state.newer` or `file.no_space`.
        """
        with self._explained():
            self._pass_seam()
            with self._open().begin() as connection:
                yield connection
                self._pass_seam()

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Run a reading transaction.

        Raises:
            StorageError: As `begin`.
        """
        with self._explained(), self._open().connect() as connection:
            yield connection.execution_options(kit_reading=True)

    def _pass_seam(self) -> None:
        path = Path(str(self.location))
        with files.explained(path):
            files.operation(path)

    def _open(self) -> Engine:
        if self._engine is None:
            engine = self._connect()
            _prepare(engine)
            self._engine = engine
        return self._engine

    def _connect(self) -> Engine:
        if not self.is_sqlite:
            return create_engine(str(self.location), pool_pre_ping=True)
        path = Path(str(self.location).removeprefix("sqlite:///"))
        files.make_dir(path.parent)
        engine = create_engine(f"sqlite:///{path}", poolclass=NullPool)

        @event.listens_for(engine, "connect")
        def _configure(connection: Any, _record: Any) -> None:
            # The driver must not open transactions by itself: `begin` below does.
            connection.isolation_level = None
            connection.execute(f"PRAGMA busy_timeout={_BUSY_TIMEOUT_MS}")
            _use_wal(connection)
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute("PRAGMA foreign_keys=ON")

        @event.listens_for(engine, "begin")
        def _begin(connection: Connection) -> None:
            reading = connection.get_execution_options().get("kit_reading", False)
            connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")

        return engine

    @contextmanager
    def _explained(self) -> Iterator[None]:
        where = str(self.location) if self.is_sqlite else "state URL"
        try:
            yield
        except OperationalError as error:
            if "disk is full" in str(error.orig):
                with files.explained(Path(where)):
                    raise OSError(errno.ENOSPC, str(error.orig)) from error
            raise StorageError(
                "state.unavailable",
                f"the state store cannot be used: {error.orig}",
                where=where,
                remedy="check that the file is writable and no other process holds it",
            ) from error
        except DatabaseError as error:
            # A constraint is the caller's business; a broken file is ours.
            if "malformed" in str(error.orig) or "not a database" in str(error.orig):
                raise StorageError(
                    "state.corrupt",
                    f"the state store is not readable: {error.orig}",
                    where=where,
                    remedy="move the file aside; run folders keep the evidence, and a new store "
                    "is made at the next command",
                ) from error
            raise


def _use_wal(connection: Any) -> None:
    """Switch to write-ahead logging, once in a store's life.

    The switch does not wait for other connections as everything else does: two processes that
    make the store at the same time would leave one of them without a claim.
    """
    if connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal":
        return
    clock = SystemClock()
    deadline = clock.monotonic() + _BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or clock.monotonic() > deadline:
                raise
            clock.sleep(_RETRY_SEC)
        else:
            return


def _prepare(engine: Engine) -> None:
    """Create missing tables and check the store's version, in one transaction."""
    with engine.begin() as connection:
        tables.metadata.create_all(connection)
        version = connection.execute(
            select(tables.meta.c.value).where(tables.meta.c.key == "schema_version")
        ).scalar()
        if version is None:
            connection.execute(
                insert(tables.meta).values(key="schema_version", value=str(tables.SCHEMA_VERSION))
            )
        elif int(version) > tables.SCHEMA_VERSION:
            raise StorageError(
                "state.newer",
                f"the state store has schema {version}, this kit knows {tables.SCHEMA_VERSION}",
                remedy="upgrade kit, or point it at another workspace",
            )
