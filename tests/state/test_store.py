from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from sqlalchemy import insert, select, update

from kit.errors import StorageError
from kit.state import Store, tables


def test_begin_commits_and_rolls_back(store: Store) -> None:
    with store.begin() as connection:
        connection.execute(insert(tables.audit).values(at="t", kind="k", body="{}"))
    with pytest.raises(RuntimeError), store.begin() as connection:
        connection.execute(insert(tables.audit).values(at="t", kind="lost", body="{}"))
        raise RuntimeError
    with store.read() as connection:
        assert connection.execute(select(tables.audit.c.kind)).scalars().all() == ["k"]


def test_a_newer_store_is_refused(store: Store) -> None:
    with store.begin() as connection:
        connection.execute(update(tables.meta).values(value="99"))
    with pytest.raises(StorageError) as error, Store(store.location).read():
        pass
    assert error.value.code == "state.newer"


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite3"
    path.write_bytes(b"this is not a database, and is long enough to have no header " * 20)
    with pytest.raises(StorageError) as error, Store(path).begin():
        pass
    assert error.value.code == "state.corrupt"
    assert error.value.remedy


def test_a_store_that_cannot_be_made_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StorageError), Store(tmp_path / "file" / "state.sqlite3").begin():
        pass


def test_check_then_insert_is_atomic_across_processes(store: Store) -> None:
    with store.begin():
        pass
    script = (
        "import sys; from pathlib import Path\n"
        "from kit.state import Store, tables\n"
        "from sqlalchemy import select, insert\n"
        "store = Store(Path(sys.argv[1]))\n"
        "with store.begin() as c:\n"
        "    n = len(c.execute(select(tables.audit.c.id)).all())\n"
        "    c.execute(insert(tables.audit).values(at='t', kind=str(n), body='{}'))\n"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", script, str(store.location)]) for _ in range(6)
    ]
    assert [process.wait(60) for process in processes] == [0] * 6
    with store.read() as connection:
        kinds = connection.execute(select(tables.audit.c.kind)).scalars().all()
    assert sorted(kinds) == [str(n) for n in range(6)]


def test_reading_does_not_wait_for_a_writer(store: Store) -> None:
    with store.begin() as writer:
        writer.execute(insert(tables.audit).values(at="t", kind="k", body="{}"))
        with store.read() as reader:
            assert reader.execute(select(tables.audit.c.kind)).all() == []


def test_two_processes_may_make_the_store_at_the_same_moment(tmp_path: Path) -> None:
    """A store that one of them cannot open leaves a run without its claim."""
    count = 20
    command = [sys.executable, str(Path(__file__).with_name("making.py")), str(tmp_path)]
    begin = str(time.time() + 2.0)
    processes = [subprocess.Popen([*command, begin, str(count)]) for _ in range(4)]
    assert [process.wait(60) for process in processes] == [0] * 4
    for number in range(count):
        with Store(tmp_path / f"{number}.sqlite3").read() as connection:
            assert len(connection.execute(select(tables.audit.c.id)).all()) == 4
