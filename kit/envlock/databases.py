"""The databases a bundle locks: each is connected to, and answers `SELECT 1`, in bounded time."""

from __future__ import annotations

import queue
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kit.clock import SystemClock
from kit.text import clip, one_line
from kit.workspace import environ

if TYPE_CHECKING:
    from sqlalchemy import URL

__all__ = ["check_databases"]

_DIALECTS = {"postgres": "postgresql"}
_MAX_TEXT = 200


def check_databases(
    required: Mapping[str, Mapping[str, str]], config: Mapping[str, Any], *, seconds: float = 5.0
) -> list[dict[str, Any]]:
    """Connect to every locked database, all at once, and return those that do not answer.

    Args:
        required: Alias -> {kind, purpose}, as the manifest locks them.
        config: `config/databases.json`.
        seconds: How long one may take.

    Returns:
        Entries of `details.unreachable_db`; never a value of an environment variable.
    """
    answers: dict[str, queue.SimpleQueue[tuple[str, str]]] = {}
    for alias, lock in required.items():
        answers[alias] = queue.SimpleQueue()
        # A driver that waits for ever cannot be stopped: it is left behind, and ends with us.
        threading.Thread(
            target=_ask,
            args=(lock["kind"], config["databases"].get(alias), seconds, answers[alias]),
            name=f"lock-db-{alias}",
            daemon=True,
        ).start()
    clock = SystemClock()
    deadline = clock.monotonic() + seconds
    entries = []
    for alias, lock in required.items():
        try:
            reason, message = answers[alias].get(timeout=max(0.0, deadline - clock.monotonic()))
        except queue.Empty:
            reason, message = "timeout", f"no answer within {seconds:g} s"
        if reason:
            entry = {"alias": alias, "kind": lock["kind"], "purpose": lock["purpose"]}
            variable = config["databases"].get(alias, {}).get("url_env")
            entries.append({**entry, "url_env": variable, "reason": reason, "message": message})
    return entries


def _ask(
    kind: str,
    entry: Mapping[str, str] | None,
    seconds: float,
    answer: queue.SimpleQueue[tuple[str, str]],
) -> None:
    if entry is None:
        answer.put(("not_configured", "config/databases.json does not name it"))
        return
    text = environ(entry["url_env"])
    if text is None:
        answer.put(("no_url", f"{entry['url_env']} is not set, or empty"))
        return
    try:
        answer.put(_connect(kind, text, seconds))
    except Exception as error:  # noqa: BLE001 - each driver has errors of its own; all mean "no"
        answer.put(("refused", _without_secret(error, text)))


def _connect(kind: str, text: str, seconds: float) -> tuple[str, str]:
    """Return why the database cannot be used, a pair of empty texts when it can."""
    from sqlalchemy import create_engine, make_url
    from sqlalchemy.exc import ArgumentError, NoSuchModuleError
    from sqlalchemy.pool import NullPool

    try:
        url = make_url(text)
        dialect = url.get_backend_name()
        if dialect != _DIALECTS.get(kind, kind):
            return "wrong_kind", f"the lock wants {kind}, the URL is of {dialect}"
        if dialect == "sqlite" and not _is_file(url):
            # Connecting would make an empty one, and call it there.
            return "refused", "there is no such file"
        # A little later than we stop waiting, so that the thread left behind ends soon.
        bounded = {"connect_timeout": round(seconds) + 1} if dialect == "postgresql" else {}
        engine = create_engine(url, poolclass=NullPool, connect_args=bounded)
    except (ArgumentError, ValueError):
        return "bad_url", "the value is not a SQLAlchemy URL"
    except (NoSuchModuleError, ImportError) as error:
        return "no_driver", one_line(str(error))
    with engine.connect() as connection:
        connection.exec_driver_sql("SELECT 1").scalar_one()
        if dialect == "sqlite":
            # The file is not looked at before something of it is asked for.
            connection.exec_driver_sql("PRAGMA schema_version")
    return "", ""


def _is_file(url: URL) -> bool:
    return url.database in (None, "", ":memory:") or Path(str(url.database)).is_file()


def _without_secret(error: Exception, text: str) -> str:
    """Return the first words of a driver's error, without the URL or its password."""
    from sqlalchemy import make_url

    said = one_line(str(getattr(error, "orig", None) or error))
    for secret in (text, make_url(text).password):
        said = said.replace(str(secret), "***") if secret else said
    return clip(said or type(error).__name__, _MAX_TEXT)
