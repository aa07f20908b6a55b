from __future__ import annotations

from pathlib import Path

import pytest

from kit.bundle.frontmatter import split
from kit.bundle.markdown import code_spans, fenced, is_stub, numbered_items, sections
from kit.bundle.positions import json_lines, line_of
from kit.bundle.text import MAX_TEXT_BYTES, decode, read_bundle_json, read_bundle_text
from kit.errors import BundleError


@pytest.mark.parametrize(
    ("data", "word", "line"),
    [
        (b"\xef\xbb\xbfa", "BOM", 1),
        (b"a\nb\r\nc", "CRLF", 2),
        (b"a\nb\nc\0", "NUL", 3),
        ("甲\n".encode() + "中文".encode("gbk"), "UTF-8", 2),
    ],
)
def test_what_would_not_travel_is_named_with_its_line(data: bytes, word: str, line: int) -> None:
    with pytest.raises(BundleError, match=word) as error:
        decode(data, "x/SKILL.md")
    assert error.value.code == "bundle.text"
    assert error.value.where == f"x/SKILL.md:{line}"
    assert error.value.remedy


def test_large_and_missing_files(tmp_path: Path) -> None:
    (tmp_path / "big.md").write_bytes(b"x" * (MAX_TEXT_BYTES + 1))
    with pytest.raises(BundleError) as error:
        read_bundle_text(tmp_path, "big.md")
    assert error.value.code == "bundle.too_large"
    with pytest.raises(BundleError) as error:
        read_bundle_text(tmp_path, "none.md")
    assert error.value.code == "bundle.missing_file"


def test_bad_json_names_the_line(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{\n "a": 1,\n "a": 2}')
    with pytest.raises(BundleError, match="twice") as error:
        read_bundle_json(tmp_path, "a.json")
    assert error.value.code == "bundle.bad_json"
    (tmp_path / "a.json").write_text('{\n "a": }')
    with pytest.raises(BundleError) as error:
        read_bundle_json(tmp_path, "a.json")
    assert error.value.where.endswith("a.json:2")


def test_front_matter_knows_its_lines() -> None:
    text = "---\nname: x\nschema:\n  a: string\n  b: [one, two]\n---\n# Body\n"
    front = split(text, "f.md")
    assert front.values == {"name": "x", "schema": {"a": "string", "b": ["one", "two"]}}
    assert front.lines["name"] == 2
    assert front.lines["schema.b"] == 5
    assert (front.body, front.body_line) == ("# Body\n", 7)


def test_front_matter_has_the_types_of_json_only() -> None:
    front = split("---\na: no\nb: 2024-01-02\nc: true\nd: 1.5\ne: ~\nf: 0.3.1\n---\n", "f.md")
    assert front.values == {
        "a": "no", "b": "2024-01-02", "c": True, "d": 1.5, "e": None, "f": "0.3.1"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "word", "line"),
    [
        ("# no front matter", "does not start", 1),
        ("---\na: 1\n", "not closed", 1),
        ("---\na: 1\na: 2\n---\n", "twice", 3),
        ("---\na:\n  b: 1\n  b: 2\n---\n", "twice", 4),
        ("---\n- a\n---\n", "not a mapping", 1),
        ("---\na: [1\n---\n", "expected", 2),
        ("---\na: &x 1\nb: *x\n---\n", "aliases", 3),
        ("---\n1: a\n---\n", "not text", 2),
        ("---\na: !!python/object:os.system x\n---\n", "constructor", 2),
        ("---\na: !!binary x\n---\n", "constructor", 2),
        ("---\n? [a, b]\n: 1\n---\n", "not text", 2),
        ("---\n" + "a: " + "[" * 5000 + "\n---\n", "deeply", 1),
    ],
)
def test_bad_front_matter_is_named(text: str, word: str, line: int) -> None:
    with pytest.raises(BundleError, match=word) as error:
        split(text, "f.md")
    assert error.value.code == "bundle.front_matter"
    assert error.value.where == f"f.md:{line}"


def test_headings_in_fences_are_text() -> None:
    body = "# T\nintro\n## One\n```\n## not\n```\n### Deep\nx\n## Two (strict JSON)\ny"
    found = sections(body, 10)
    assert [(s.level, s.title, s.line) for s in found] == [
        (1, "T", 10),
        (2, "One", 12),
        (3, "Deep", 16),
        (2, "Two (strict JSON)", 18),
    ]
    assert "### Deep\nx" in found[1].text
    assert found[3].key == "two"
    assert sections("## Task（任务）", 1)[0].key == "task"


def test_numbered_items_carry_their_continuations() -> None:
    items = numbered_items("1. one\n   more\n- no\n2) two\n\ntail", 5)
    assert [(i.number, i.line) for i in items] == [(1, 5), (2, 8)]
    assert items[0].text == "one\nmore\n- no"


def test_code_spans_and_fenced_blocks() -> None:
    text = "a `x` b ``y`z``\n```json\n{}\n```\n`w`"
    assert code_spans(text) == [(0, "x"), (0, "y`z"), (4, "w")]
    assert fenced(text, "json") == ["{}"]


@pytest.mark.parametrize(
    "text", ["", "  \n", "TODO: write this", "待补", "TBD", "see below", "..."]
)
def test_stubs(text: str) -> None:
    assert is_stub(text)


@pytest.mark.parametrize(
    "text",
    ["见 `manifest.json` 的 `required_mcps` 与 `required_env`。", "Bars in, picks out, at most 7."],
)
def test_short_but_real_sections_are_no_stubs(text: str) -> None:
    assert not is_stub(text)


def test_json_paths_have_lines() -> None:
    text = '{\n "a": 1,\n "b": [\n  {"c": "x\\"}"},\n  {\n   "d": {}\n  }\n ]\n}'
    places = json_lines(text)
    assert places["a"] == 2
    assert places["b[0].c"] == 4
    assert places["b[1].d"] == 6
    assert line_of(places, "b[1].missing.deep") == 5
    assert line_of(places, "zzz") == 1


def test_headings_without_end_take_no_time() -> None:
    found = sections("# a\nx\n" + "## b\ny\n" * 50_000, 1)
    assert len(found) == 50_001
    assert found[0].text.count("## b") == 50_000
    assert {section.text for section in found[1:]} == {"y"}
