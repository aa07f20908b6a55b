from __future__ import annotations

import os
from pathlib import Path

import pytest

from kit.bundle.layout import (
    Ref,
    Version,
    check_id,
    inside,
    parse_ref,
    staging_name,
    staging_of,
    version_of,
    walk,
)
from kit.errors import BundleError, UsageError


@pytest.mark.parametrize("id_", ["abc", "ma250-pullback", "a1-b2-c3", "x" * 41])
def test_good_ids(id_: str) -> None:
    assert check_id(id_) == id_


@pytest.mark.parametrize(
    "id_",
    ["", "ab", "x" * 42, "Abc", "1ab", "a--b", "a-", "-ab", "a_b", "a b", "策略一号", "a/b",
     "abc\n", "../abc", "ａｂｃ"],
)  # fmt: skip
def test_bad_ids(id_: str) -> None:
    with pytest.raises(UsageError) as error:
        check_id(id_)
    assert error.value.code == "bundle.bad_id"


def test_versions_are_strict_and_ordered_by_number() -> None:
    assert Version.parse("0.10.0") > Version.parse("0.9.9")
    assert str(Version.parse("1.2.3")) == "1.2.3"
    for text in ("1.2", "v1.2.3", "01.2.3", "1.2.3-rc1", "1.2.3+b", "1.2.3 ", "１.2.3", ""):
        with pytest.raises(UsageError):
            Version.parse(text)
        assert Version.read(text) is None


def test_bumps_reset_what_is_smaller() -> None:
    version = Version(1, 2, 3)
    assert [str(version.bumped(level)) for level in ("patch", "minor", "major")] == [
        "1.2.4",
        "1.3.0",
        "2.0.0",
    ]


def test_references() -> None:
    assert parse_ref("abc") == Ref(id="abc")
    assert parse_ref("abc@0.3.1") == Ref(id="abc", version="0.3.1")
    assert parse_ref("abc@draft").is_draft
    assert str(parse_ref("abc@0.3.1")) == "abc@0.3.1"
    for text in ("abc@", "abc@latest", "@1.0.0", "abc@1.0.0@2.0.0"):
        with pytest.raises(UsageError):
            parse_ref(text)


def test_staging_names_read_back() -> None:
    name = staging_name(Version(0, 3, 1), 42)
    assert name == ".0.3.1.staging-42"
    assert staging_of(name) == (Version(0, 3, 1), 42)
    assert staging_of(".0.3.1.staging-x") is None
    assert version_of(Path("a") / name) == Version(0, 3, 1)
    assert version_of(Path("a/draft")) is None


@pytest.mark.parametrize(
    "relative",
    ["", "/etc/passwd", "../x", "a/../../x", "a\\b", "a\0b", "C:/x", "~/x", "a\nb"],
)
def test_paths_that_leave_the_bundle_are_refused(tmp_path: Path, relative: str) -> None:
    with pytest.raises(BundleError) as error:
        inside(tmp_path, relative)
    assert error.value.code == "bundle.path_escape"


def test_a_path_through_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to("/etc")
    with pytest.raises(BundleError):
        inside(tmp_path, "out/passwd")
    assert inside(tmp_path, "a/b.md") == tmp_path / "a" / "b.md"


def test_walk_lists_without_following_and_leaves_junk_out(tmp_path: Path) -> None:
    for name in ("b.md", "a/x.py", "a/__pycache__/x.pyc", ".DS_Store", "n.md~", "a/.tmp.swp"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")
    (tmp_path / "link").symlink_to("a")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "new\nline").write_text("x")
    (tmp_path / "back\\slash").write_text("x")
    tree = walk(tmp_path)
    assert tree.files == ("a/x.py", "b.md")
    assert tree.symlinks == ("link",)
    assert set(tree.odd) == {"pipe", "new\nline", "back\\slash"}
    assert "a/__pycache__/x.pyc" in walk(tmp_path, junk=True).files


def test_walk_refuses_a_missing_or_linked_root(tmp_path: Path) -> None:
    with pytest.raises(BundleError) as error:
        walk(tmp_path / "none")
    assert error.value.code == "bundle.not_found"
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    with pytest.raises(BundleError) as error:
        walk(tmp_path / "link")
    assert error.value.code == "bundle.symlink"
