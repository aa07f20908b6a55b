"""Databases that a bundle locks: those that answer, and each way not to."""

from __future__ import annotations

import os
import shutil
import socket
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kit.clock import SystemClock
from kit.envlock.databases import check_databases

LOCK = {"bars": {"alias": "bars", "kind": "sqlite", "purpose": "cache"}}
CONFIG = {"databases": {"bars": {"url_env": "BARS_URL"}}}
POSTGRES = {"bars": {"alias": "bars", "kind": "postgres", "purpose": "cache"}}


def entry(lock: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**lock["bars"], "url_env": "BARS_URL", **more}


def refused(lock: dict[str, Any] = LOCK, config: Any = CONFIG, seconds: float = 5.0) -> Any:
    (found,) = check_databases(lock, config, seconds=seconds)
    return found


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "bars.sqlite3"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE bars (symbol TEXT)")
    return path


def test_a_database_that_answers(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BARS_URL", f"sqlite:///{database}")
    assert check_databases(LOCK, CONFIG) == []


@pytest.mark.parametrize(
    ("value", "reason", "words"),
    [
        (None, "no_url", "BARS_URL is not set"),
        ("", "no_url", "BARS_URL is not set"),
        ("not a url", "bad_url", "not a SQLAlchemy URL"),
        ("postgresql://u:p@127.0.0.1:9/x", "wrong_kind", "the URL is of postgresql"),
        ("sqlite:////nowhere/bars.sqlite3", "refused", "no such file"),
        ("unheard://x", "wrong_kind", "of unheard"),
    ],
)
def test_each_way_not_to_have_one(
    monkeypatch: pytest.MonkeyPatch, value: str | None, reason: str, words: str
) -> None:
    if value is not None:
        monkeypatch.setenv("BARS_URL", value)
    found = refused()
    assert found == entry(LOCK, reason=reason, message=found["message"])
    assert words in found["message"]


def test_one_that_nobody_configured() -> None:
    found = refused(config={"databases": {}})
    assert found["reason"] == "not_configured"
    assert found["url_env"] is None


def test_a_file_that_is_no_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "bars.sqlite3"
    path.write_bytes(b"x" * 4096)
    monkeypatch.setenv("BARS_URL", f"sqlite:///{path}")
    assert refused() == entry(LOCK, reason="refused", message="file is not a database")


def test_looking_for_a_file_makes_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BARS_URL", f"sqlite:///{tmp_path / 'new.sqlite3'}")
    assert refused()["reason"] == "refused"
    assert list(tmp_path.iterdir()) == []


def test_a_refusal_shows_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("psycopg")
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"postgresql://reader:s3cret-word@127.0.0.1:{port}/bars"
    monkeypatch.setenv("BARS_URL", url)
    found = refused(POSTGRES)
    assert found["reason"] == "refused"
    assert "s3cret-word" not in str(found)


def test_one_that_accepts_and_never_answers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("psycopg")
    with closing(socket.create_server(("127.0.0.1", 0))) as mute:
        port = mute.getsockname()[1]
        monkeypatch.setenv("BARS_URL", f"postgresql://reader:x@127.0.0.1:{port}/bars")
        clock = SystemClock()
        began = clock.monotonic()
        found = refused(POSTGRES, seconds=1.0)
        assert clock.monotonic() - began < 3
    assert found == entry(POSTGRES, reason="timeout", message="no answer within 1 s")


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    """The URL of a real server on loopback."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    places = os.pathsep.join([os.environ.get("PATH", ""), *map(str, found[-1:])])
    initdb, pg_ctl = (shutil.which(name, path=places) for name in ("initdb", "pg_ctl"))
    if initdb is None or pg_ctl is None:
        pytest.skip("PostgreSQL is not installed")
    folder = Path(tempfile.mkdtemp(prefix="kit-pg-"))
    # It refuses to run as root.
    other: dict[str, Any] = (
        {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
    )
    if other:
        os.chown(folder, 65534, 65534)
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    data, log = str(folder / "data"), folder / "log"

    def run(*command: str) -> None:
        done = subprocess.run(
            command, cwd=folder, timeout=60, check=False, **other,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        assert done.returncode == 0, log.read_text() if log.is_file() else command

    run(initdb, "-D", data, "-U", "reader", "-A", "trust", "--no-sync", "--locale=C", "-E", "UTF8")
    options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder}"
    run(pg_ctl, "-D", data, "-o", options, "-l", str(log), "-w", "start")
    yield f"postgresql://reader@127.0.0.1:{port}/postgres"
    run(pg_ctl, "-D", data, "-m", "immediate", "-w", "stop")
    shutil.rmtree(folder)


def test_a_real_postgres_answers(postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("psycopg")
    monkeypatch.setenv("BARS_URL", postgres)
    assert check_databases(POSTGRES, CONFIG) == []
    monkeypatch.setenv("BARS_URL", postgres.replace("/postgres", "/no-such-database"))
    found = refused(POSTGRES)
    assert found["reason"] == "refused"
    assert "no-such-database" in found["message"]
