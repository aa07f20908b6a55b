from __future__ import annotations

import re
from html.parser import HTMLParser

import pandas as pd

from kit.render import Section, line_chart, page

VOID = {"meta", "br", "link", "img"}


class Balance(HTMLParser):
    """Fails on a tag that is closed out of order; collects what a page would load."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loads += [value or "" for name, value in attrs if name in ("src", "href", "data")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in {"path", "rect", "circle"}

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def _page(count: int) -> str:
    chart = line_chart(pd.Series([1.0, 2.0], pd.bdate_range("2024-01-01", periods=2)), title="t")
    parts = [
        Section(f"第 {place} 节 <x>", f"<p>正文</p>{chart}", "注 & 释") for place in range(count)
    ]
    return page("标题 <script>", parts, "副题 <b>")


def test_a_page_is_well_formed_and_loads_nothing() -> None:
    html = _page(5)
    reader = Balance()
    reader.feed(html)
    assert reader.open == []
    assert all(target.startswith("#s") for target in reader.loads)
    outside = set(re.findall(r"https?://[^\s\"'<]+", html))
    assert outside <= {"http://www.w3.org/2000/svg"}
    assert "<script" not in html
    assert "url(" not in html
    assert "@import" not in html


def test_text_is_escaped_and_section_markup_is_not() -> None:
    html = _page(1)
    assert "标题 &lt;script&gt;" in html
    assert "第 0 节 &lt;x&gt;" in html
    assert "副题 &lt;b&gt;" in html
    assert "注 &amp; 释" in html
    assert "<p>正文</p><svg" in html


def test_a_page_serves_dark_rooms_phones_and_paper() -> None:
    html = _page(1)
    assert "prefers-color-scheme:dark" in html
    assert "@media print" in html
    assert 'name="viewport"' in html
    assert '<html lang="zh-CN">' in html


def test_links_to_the_parts_appear_when_there_are_many() -> None:
    assert "<nav" not in _page(3)
    assert _page(4).count('<a href="#s') == 4


def test_the_same_input_gives_the_same_page() -> None:
    assert _page(2) == _page(2)
