"""Promise 9: text from outside (names, bundle content, error messages) is never more than text."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from kit import files
from kit.card import render_card
from kit.cli.main import run
from kit.lab.display import Note, Rows, Sheet
from kit.market.sources import SampleSource, Security
from kit.workspace import Workspace

FORMATS = ("plain", "wecom", "telegram")
# Markup of every channel, an HTML tag, a mention, line ends of all kinds, terminal escapes, and
# characters that reorder or hide what follows.
HOSTILE = (
    "**甲** [点我](x) <font color=red>红</font> <@all> `rm` <script>alert(1)</script>&lt;b&gt;"
    "\n# 假标题\r\n> 假引用\u2028🔴 假结论\x1b[31m\x07\x9b2J\u202e倒\u200b隐\x00"
)
FAKE_LINES = ("假标题", "假引用", "🔴 假结论")


def assert_harmless(card: Any) -> None:
    """No line of ours is more than it was meant to be, on any channel."""
    lines = sum(len(block.lines) for block in card.blocks)
    for form in FORMATS:
        text = render_card(card, form)
        if form == "wecom":
            text = text.replace("**", "")  # our own bold marks; pairs of somebody else's are twins
        assert not set(text) & set("*[]`<"), form
        assert "&lt;" not in text
        hidden = {c for c in text if unicodedata.category(c) in {"Cc", "Cf", "Zl", "Zp"}} - {"\n"}
        assert hidden == set(), form
        shown = [line.strip() for line in text.split("\n") if line.strip()]
        # The title and every line of the card; an injected line end would make one more.
        assert len(shown) in (1 + lines, 2 + lines), form
        for line in shown:
            assert not line.startswith(("#", ">", *FAKE_LINES)), line


class Tags(HTMLParser):
    """Collects what a browser would act upon."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}


def assert_plain_html(html: str) -> None:
    parser = Tags()
    parser.feed(html)
    allowed = {"p", "b", "table", "thead", "tbody", "tr", "th", "td", "pre", "div", "ul", "li"}
    assert parser.tags <= allowed | {"code"}
    assert parser.attributes <= {"style", "class", "scope"}
    assert "<script" not in html


@pytest.fixture
def hostile_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every security of the source bears a hostile name and industry."""
    honest = SampleSource.securities

    def securities(self: SampleSource, market: str) -> tuple[Security, ...]:
        return tuple(replace(s, name=HOSTILE, industry=HOSTILE) for s in honest(self, market))

    monkeypatch.setattr(SampleSource, "securities", securities)


@pytest.mark.usefixtures("hostile_names")
def test_hostile_names_on_card_and_in_the_notebook(staged: Any) -> None:
    picks, _ = staged(lambda root: None)
    assert len(picks["picks"]) == 2
    assert_harmless(staged.card)
    for view in staged.views:
        assert_plain_html(view._repr_html_())
    # The name is shown, as text: it is not silently dropped.
    assert "甲" in render_card(staged.card, "plain")


def test_a_hostile_reason_template(staged: Any) -> None:
    def change(root: Path) -> None:
        # The stand-in fails, so that the template is what reaches the card.
        helper = root / "code" / "helpers" / "offline_explanation.py"
        text = helper.read_text(encoding="utf-8")
        helper.write_text(text + "\n\ndef explain(inputs):\n    return {}\n", encoding="utf-8")
        # NUL and CR are refused when the file is read; the rest has to be borne.
        hostile = HOSTILE.replace("\x00", "").replace("\r", "")
        (root / "reason_template.md").write_bytes(f"{hostile} {{name}}\n".encode())

    picks, text = staged(change)
    assert [pick["reason_mode"] for pick in picks["picks"]] == ["template", "template"]
    assert_harmless(staged.card)
    assert "甲" in text
    for view in staged.views:
        assert_plain_html(view._repr_html_())


def test_a_hostile_answer_of_a_step(staged: Any) -> None:
    def change(root: Path) -> None:
        helper = root / "code" / "helpers" / "offline_explanation.py"
        text = helper.read_text(encoding="utf-8")
        answer = {"reason_text": HOSTILE, "confidence": "high"}
        added = f"\n\ndef explain(inputs):\n    return {answer!a}\n"
        helper.write_text(text + added, encoding="utf-8")

    picks, _ = staged(change)
    assert len(picks["picks"]) == 2
    assert_harmless(staged.card)


def test_a_rule_that_returns_hostile_text(
    staged: Any, replace_rule: Callable[[Path, str], None]
) -> None:
    body = (
        f"bad = {HOSTILE!a}\n"
        "return [Pick('000783.SZ', 0.1, {bad: 1.5, 'note': bad}, [bad]),\n"
        "        Pick(bad, 0.2, {}, []), Pick('002572.SZ', 0.3, {bad: float('nan')}, [])]"
    )
    picks, text = staged(lambda root: replace_rule(root, body))
    assert [pick["symbol"] for pick in picks["picks"]] == ["000783.SZ"]
    assert_harmless(staged.card)
    assert "1.5" in text
    for view in staged.views:
        assert_plain_html(view._repr_html_())


def test_a_hostile_error_of_a_rule(staged: Any, replace_rule: Callable[[Path, str], None]) -> None:
    staged(lambda root: replace_rule(root, f"raise ValueError({HOSTILE!a})"))
    assert_harmless(staged.card)
    for view in staged.views:
        assert_plain_html(view._repr_html_())


def test_lab_results_escape_what_they_show() -> None:
    for shown in (
        Rows(HOSTILE, (HOSTILE, "b"), [(HOSTILE, 1), (None, HOSTILE)]),
        Note(HOSTILE, (HOSTILE,)),
        Sheet({HOSTILE: HOSTILE}),
    ):
        assert_plain_html(shown._repr_html_())


# A terminal obeys escape sequences as a browser obeys tags.


@pytest.fixture
def hostile_run(main_job: Any, desk: Workspace) -> Workspace:
    """A desk with one failed run whose record, card and file names were written by a stranger."""
    folder = desk.runs / "2020-02-27" / "screen-ma250-pullback@0.3.1" / "1"
    folder.mkdir(parents=True)
    record = main_job.read("run.json")
    record["status"] = "failed"
    record["failure"] = {
        "kind": "cell_error",
        "message": HOSTILE,
        "cell": HOSTILE,
        "ename": "E",
        "evalue": HOSTILE,
        "traceback": [HOSTILE],
        "code": "",
        "remedy": "",
    }
    card = main_job.read("card.json")
    card["title"] = HOSTILE
    card["blocks"][0]["lines"] = [HOSTILE]
    receipts = main_job.read("receipts.json")
    receipts["receipts"][0]["detail"] = HOSTILE
    for name, value in (("run", record), ("card", card), ("receipts", receipts)):
        files.write_json(folder / f"{name}.json", value)
    (folder / "\x1b[31mred\x1b[0m\u202e.txt").write_text("x", encoding="utf-8")
    return desk


@pytest.mark.kernel
@pytest.mark.parametrize(
    "line",
    [
        ["runs"],
        ["show", "latest"],
        ["show", HOSTILE.replace("\x00", "")],
        ["screen", HOSTILE.replace("\x00", "")],
        ["new", "a\x1b[31mb"],
    ],
)
def test_no_command_passes_an_escape_to_the_terminal(
    hostile_run: Workspace, line: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    run(["--workspace", str(hostile_run.root), *line])
    captured = capsys.readouterr()
    for text in (captured.out, captured.err):
        hidden = {c for c in text if unicodedata.category(c) in {"Cc", "Cf"}} - {"\n"}
        assert hidden == set()
        assert not any(row.strip().startswith(FAKE_LINES[:2]) for row in text.splitlines())


@pytest.mark.kernel
def test_json_stays_one_document(
    hostile_run: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    for line in (["runs", "--json"], ["show", "latest", "--json"]):
        assert run(["--workspace", str(hostile_run.root), *line]) == 0
        assert json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    "ref", ["../../etc", "a/../../b", "ma250-pullback@../0.3.1", "x;rm -rf ~", "$(id)", "-x", ""]
)
def test_a_reference_is_never_a_path_or_a_command(
    desk: Workspace, capsys: pytest.CaptureFixture[str], ref: str
) -> None:
    before = sorted(p for p in desk.root.rglob("*"))
    for command in ("lint", "screen", "backtest", "freeze", "new", "verify"):
        if command == "verify" and not ref:
            continue
        assert run(["--workspace", str(desk.root), command, "--", ref]) in (2, 3), command
    assert run(["--workspace", str(desk.root), "show", "--", ref or "../.."]) == 2
    capsys.readouterr()
    assert sorted(p for p in desk.root.rglob("*")) == before
