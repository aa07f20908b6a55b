from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kit import files
from kit.errors import DataError, StorageError


def test_write_json_is_readable_and_ends_with_a_newline(tmp_path: Path) -> None:
    files.write_json(tmp_path / "a.json", {"b": 1, "a": "中"})
    assert (tmp_path / "a.json").read_text("utf-8") == '{\n  "b": 1,\n  "a": "中"\n}\n'


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}])
def test_write_json_refuses_what_is_not_json_and_keeps_the_old_file(
    tmp_path: Path, value: object
) -> None:
    path = tmp_path / "a.json"
    path.write_text("old")
    with pytest.raises(DataError) as error:
        files.write_json(path, {"x": value})
    assert error.value.code == "file.bad_json"
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ('{"a": 1, "a": 2}', "twice"),
        ('{"a": NaN}', "NaN"),
        ('{"a": Infinity}', "Infinity"),
        ("[1,", "Expecting"),
        ("\ufeff{}", "BOM"),
        ("[" * 100_000, "recursion"),
    ],
)
def test_read_json_refuses(tmp_path: Path, text: str, word: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text, "utf-8")
    with pytest.raises(DataError, match=word) as error:
        files.read_json(path)
    assert error.value.code == "file.bad_json"
    assert error.value.where.startswith(str(path))


def test_read_json_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{\n "a": 1,\n "b": }\n')
    with pytest.raises(DataError) as error:
        files.read_json(path)
    assert error.value.where == f"{path}:3"


def test_reading_other_encodings_is_explained(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes("中文".encode("gbk"))
    with pytest.raises(DataError, match="not UTF-8"):
        files.read_text(path)


def test_canonical_json_is_one_byte_form() -> None:
    assert files.canonical_json({"b": [1, 2.5], "a": "中"}) == '{"a":"中","b":[1,2.5]}'.encode()


def test_sha256_agrees_with_the_standard_vector(tmp_path: Path) -> None:
    abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    (tmp_path / "a").write_bytes(b"abc")
    assert files.sha256_bytes(b"abc") == abc
    assert files.sha256_file(tmp_path / "a") == abc


def test_publish_dir_refuses_a_taken_place(tmp_path: Path) -> None:
    (tmp_path / "staging").mkdir()
    (tmp_path / "staging" / "new").write_text("new")
    (tmp_path / "final").mkdir()
    with pytest.raises(StorageError) as error:
        files.publish_dir(tmp_path / "staging", tmp_path / "final")
    assert error.value.code == "file.exists"
    assert (tmp_path / "staging" / "new").exists()


def test_publish_dir_moves_everything(tmp_path: Path) -> None:
    (tmp_path / "staging" / "sub").mkdir(parents=True)
    (tmp_path / "staging" / "sub" / "new").write_text("new")
    files.publish_dir(tmp_path / "staging", tmp_path / "final")
    assert (tmp_path / "final" / "sub" / "new").read_text() == "new"
    assert not (tmp_path / "staging").exists()


def test_readonly_and_back(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    (root / "sub" / "file").write_text("x")
    files.set_readonly(root)
    assert (root / "sub" / "file").stat().st_mode & 0o777 == 0o444
    assert root.stat().st_mode & 0o777 == 0o555
    files.remove_tree(root)
    assert not root.exists()


def test_no_space_says_so_and_keeps_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.json"
    path.write_text("old")
    # The first operation is the temporary file, the second the rename.
    for step in (1, 2):
        monkeypatch.setenv("KIT_NO_SPACE_AT", str(files.count_operations() + step))
        with pytest.raises(StorageError) as error:
            files.write_text(path, "new")
        assert error.value.code == "file.no_space"
        assert error.value.remedy
        assert path.read_text() == "old"
        assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.EDQUOT, "file.no_space"),
        (errno.EACCES, "file.not_writable"),
        (errno.EROFS, "file.not_writable"),
        (errno.EIO, "file.io"),
    ],
)
def test_each_system_error_has_its_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, code: str
) -> None:
    def fail(_path: Path) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(files, "operation", fail)
    with pytest.raises(StorageError) as error:
        files.write_text(tmp_path / "a", "x")
    assert error.value.code == code


def test_a_crash_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    script = (
        "import sys; from pathlib import Path; from kit import files;"
        "files.write_json(Path(sys.argv[1]), {'v': 'new'})"
    )
    outcomes = []
    for step in range(1, 10):
        path.write_text('{"v": "old"}')
        done = subprocess.run(
            [sys.executable, "-c", script, str(path)],
            env={**os.environ, "KIT_CRASH_AT": str(step)},
            check=False,
        )
        outcomes.append(json.loads(path.read_text())["v"])
        if done.returncode == 0:
            break
        assert done.returncode == 137
    assert outcomes == ["old", "old", "new"]


def test_lock_is_exclusive(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    script = (
        "import sys; from pathlib import Path; from kit import files\n"
        "from kit.errors import StorageError\n"
        "try:\n  with files.lock(Path(sys.argv[1]), timeout=0.1): print('held')\n"
        "except StorageError as e: print(e.code)"
    )

    def attempt() -> str:
        return subprocess.run(
            [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True
        ).stdout.strip()

    with files.lock(path):
        assert attempt() == "file.locked"
    assert attempt() == "held"


def test_json_lines_keep_odd_line_separators(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    for value in ({"text": "a\u2028b\u0085c"}, {"text": "d"}):
        files.append_json_line(path, value)
    assert files.read_json_lines(path) == [{"text": "a\u2028b\u0085c"}, {"text": "d"}]
    path.write_text('{"a": 1}\n{"a": \n')
    with pytest.raises(DataError) as error:
        files.read_json_lines(path)
    assert error.value.where == f"{path}:2:1"


def test_publish_dir_leaves_a_killed_writers_temporary_file_behind(tmp_path: Path) -> None:
    (tmp_path / "staging").mkdir()
    (tmp_path / "staging" / "kept.tmp").write_text("mine")
    (tmp_path / "staging" / ".card.json.4711.tmp").write_text("half")
    files.publish_dir(tmp_path / "staging", tmp_path / "final")
    assert [path.name for path in (tmp_path / "final").iterdir()] == ["kept.tmp"]
