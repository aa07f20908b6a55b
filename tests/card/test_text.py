"""A card as each channel's text: golden texts, escaping, budgets."""

from __future__ import annotations

import string
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kit.card import Block, Card, cell, render_card, safe
from kit.card.markup import bold, bold_cells, clusters

FORMATS = ("plain", "wecom", "telegram")
NOTICE = "…其余 "


def make(*blocks: Block, title: str = "年线回踩@0.3.1 9月19日(周四)") -> Card:
    return Card(card_id="a1b2c3d4", kind="screen", title=title, blocks=blocks, mode="offline")


def sample() -> Card:
    return make(
        Block(kind="conclusion", lines=("2 只候选",), emphasis="high"),
        Block(kind="degradation", lines=("⛔ 数据降级", "D-031 命中偏少"), keep=True),
        Block(kind="pick", lines=("1. 600000 浦发银行 10.02", "   距年线 +1.2%")),
        Block(kind="pick", lines=("2. 000001 平安银行 9.80", "   距年线 +2.4%")),
        Block(
            kind="table",
            lines=("| 代码 | 现价 |", "| 600000 | 10.02 |", "| 000001 |  9.80 |"),
            bold_rows=(1,),
        ),
        Block(kind="universe", lines=("股票池 10/10，剔除 0",), keep=True),
        Block(kind="provenance", lines=("运行 r-1 · 数据 sample",)),
    )


PLAIN = """\
年线回踩@0.3.1 9月19日(周四)

2 只候选

⛔ 数据降级
D-031 命中偏少

1. 600000 浦发银行 10.02
   距年线 +1.2%

2. 000001 平安银行 9.80
   距年线 +2.4%

| 代码 | 现价 |
| 600000 | 10.02 |
| 000001 |  9.80 |

股票池 10/10，剔除 0

运行 r-1 · 数据 sample · 卡片 a1b2c3d4"""


def test_plain_and_telegram_golden() -> None:
    assert render_card(sample(), "plain") == PLAIN
    assert render_card(sample(), "telegram") == PLAIN


def test_wecom_differs_by_bold_only() -> None:
    text = render_card(sample(), "wecom")
    assert text.replace("**", "") == PLAIN
    assert "**年线回踩@0.3.1 9月19日(周四)**" in text
    assert "**2 只候选**" in text
    assert "| **600000** | **10.02** |\n| 000001 |  9.80 |" in text


def test_a_resend_says_so() -> None:
    assert render_card(sample(), "plain", resend=True).startswith("【重发】年线回踩")


def test_lines_go_from_the_end_of_what_may_go_and_are_counted() -> None:
    full = len(PLAIN.encode())
    text = render_card(sample(), "plain", full - 1)
    # One row (20 bytes) would not make room for the notice (26 bytes), so two go; what should
    # stay stays.
    assert "| 代码 | 现价 |\n\n…其余 2 行见报告\n\n股票池 10/10" in text
    tight = (
        "年线回踩@0.3.1 9月19日(周四)\n\n2 只候选\n\n⛔ 数据降级\nD-031 命中偏少\n\n"
        "1. 600000 浦发银行 10.02\n   距年线 +1.2%\n\n2. 000001 平安银行 9.80\n\n"
        "…其余 4 行见报告\n\n股票池 10/10，剔除 0\n\n运行 r-1 · 数据 sample · 卡片 a1b2c3d4"
    )
    one_more = "\n   距年线 +2.4%"
    size = len(tight.encode())
    assert render_card(sample(), "plain", size) == tight
    assert render_card(sample(), "plain", size + len(one_more.encode()) - 1) == tight
    assert one_more in render_card(sample(), "plain", size + len(one_more.encode()))


def test_the_provenance_goes_last_then_the_title_is_cut_between_characters() -> None:
    text = render_card(sample(), "plain", 130)
    assert text.endswith("运行 r-1 · 数据 sample · 卡片 a1b2c3d4")
    assert "…其余 " in text
    assert render_card(sample(), "plain", 10) == "年线回"
    assert render_card(sample(), "plain", 2) == ""


def test_a_card_of_two_hundred_picks_fits_every_channel() -> None:
    picks = [
        Block(kind="pick", lines=(f"{i}. 600000 浦发银行 10.02", "   " + "理由" * 30))
        for i in range(200)
    ]
    card = make(*picks, Block(kind="provenance", lines=("运行 r-1",)))
    wecom = render_card(card, "wecom")
    assert len(wecom.encode()) <= 4096
    assert len(wecom.encode()) > 3800
    shown = sum(line.endswith("10.02") for line in wecom.splitlines())
    details = wecom.count("理由理由") // 15
    gone = int(wecom.split(NOTICE)[1].split(" ")[0])
    assert shown + details + gone == 400
    telegram = render_card(card, "telegram")
    assert len(telegram.encode("utf-16-le")) // 2 <= 4096
    assert render_card(card, "plain").count("浦发银行") == 200


def test_telegram_counts_utf16_units() -> None:
    # Each of these is one character, four bytes and two units.
    card = make(*(Block(kind="pick", lines=("𠮷" * 500,)) for _ in range(5)))
    text = render_card(card, "telegram")
    assert text.count("𠮷") == 2000
    assert len(text.encode("utf-16-le")) // 2 <= 4096


# markup


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("*ST海润 **暴涨**", "＊ST海润 ＊＊暴涨＊＊"),
        ("[点我](http://x.example)", "［点我］(http://x.example)"),
        ('<@all> <font color="warning">', '＜@all> ＜font color="warning">'),
        ("`rm -rf`", "｀rm -rf｀"),
        ("# 标题", "＃ 标题"),
        ("  > 引用", "  ＞ 引用"),
        ("收盘 > 年线", "收盘 > 年线"),
        ("S&P 500 &lt;b&gt; &#60;", "S&P 500 ＆lt;b＆gt; ＆#60;"),
        ("event_sector_filter 600519", "event_sector_filter 600519"),
    ],
)
def test_outside_text_is_never_markup(text: str, expected: str) -> None:
    assert safe(text) == expected
    card = make(Block(kind="pick", lines=(text,)))
    for form in FORMATS:
        assert expected in render_card(card, form)


def test_a_cell_cannot_open_another() -> None:
    assert cell("a|b*") == "a｜b＊"


def test_bold_keeps_every_other_byte() -> None:
    assert bold("  x y ") == "  **x y** "
    assert bold("   ") == "   "
    assert bold_cells("|  a |b|  |") == "|  **a** |**b**|  |"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("年线", 2),
        ("𠮷野家", 3),
        ("👨\u200d👩\u200d👧", 1),
        ("👍🏽x", 2),
        ("🇨🇳🇭🇰", 2),
        ("e\u0301", 1),
        ("❤\ufe0f", 1),
        ("مرحبا", 5),
        ("", 0),
    ],
)
def test_clusters(text: str, count: int) -> None:
    parts = list(clusters(text))
    assert "".join(parts) == text
    assert len(parts) == count


# properties

_TEXT = st.text(
    alphabet=st.one_of(
        st.sampled_from(list(string.printable + "年线回踩*[]<>`#|&;𠮷🚀👨👩👧\u200d\ufe0f⛔٣א")),
        st.characters(),
    ),
    max_size=60,
)
_BLOCK = st.builds(
    lambda kind, lines, emphasis, keep, rows: Block(
        kind=kind, lines=tuple(lines), emphasis=emphasis, keep=keep, bold_rows=tuple(rows)
    ),
    st.sampled_from(["pick", "table", "provenance", "degradation"]),
    st.lists(_TEXT, min_size=1, max_size=6),
    st.sampled_from(["normal", "high"]),
    st.booleans(),
    st.lists(st.integers(0, 5), max_size=3),
)
_CARD = st.builds(
    lambda title, blocks: make(*blocks, title=title or "x"),
    _TEXT,
    st.lists(_BLOCK, min_size=1, max_size=6),
)


@settings(max_examples=200, deadline=None)
@given(_CARD, st.sampled_from(FORMATS), st.integers(0, 600), st.booleans())
def test_a_text_is_within_budget_and_made_of_whole_lines(
    card: Card, form: str, budget: int, resend: bool
) -> None:
    text = render_card(card, form, budget, resend=resend)
    assert len(text.encode("utf-8")) <= budget
    whole = render_card(card, form, resend=resend)
    allowed = set(whole.split("\n"))
    cut = text.split("\n")
    if len(cut) == 1:
        assert whole.replace("**", "").startswith(text.replace("**", ""))
        return
    assert all(line in allowed or line.startswith(NOTICE) for line in cut)
    if text != whole:
        gone = [line for line in cut if line.startswith(NOTICE)]
        assert len(gone) == 1


@settings(max_examples=200, deadline=None)
@given(_CARD)
def test_channels_agree_and_nothing_hidden_remains(card: Card) -> None:
    plain = render_card(card, "plain")
    assert render_card(card, "wecom").replace("**", "") == plain
    assert render_card(card, "telegram") == plain
    hidden = {c for c in plain if unicodedata.category(c) in {"Cc", "Cf", "Cs"}} - {"\n", "\u200d"}
    assert not hidden
    assert "<" not in plain
    assert "`" not in plain


@settings(max_examples=200, deadline=None)
@given(_TEXT)
def test_safe_twice_is_safe_once(text: str) -> None:
    assert safe(safe(text)) == safe(text)
    assert cell(cell(text)) == cell(text)
