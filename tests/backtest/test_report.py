"""`report.html`: doubts before the curve, nothing loaded, nothing executed, nothing hidden."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from html.parser import HTMLParser
from typing import Any

import pandas as pd
import pytest

from kit.backtest import BacktestResult, stress
from kit.backtest.facts import Facts, StepQuality
from kit.backtest.lookahead import Leak, LookaheadVerdict
from kit.backtest.report import build_report
from kit.backtest.trials import Trials
from kit.market import Dropped

MAIN = "600000.SH"
HEADINGS = [
    "结论与检查",
    "可能让结果失真的地方",
    "净值与回撤",
    "分年",
    "交易",
    "成本与未成交",
    "股票池",
    "来源",
]
Make = Callable[..., Facts]


class Page(HTMLParser):
    """Tags with their attributes in order, and the text of each section by its heading."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.headings: list[str] = []
        self.texts: dict[str, list[str]] = {"": []}
        self.charts: dict[str, int] = {}
        self._open: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        self._open.append(tag)
        if tag == "svg":
            place = self.headings[-1] if self.headings else ""
            self.charts[place] = self.charts.get(place, 0) + 1

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if "style" in self._open:
            return
        if "h2" in self._open:
            self.headings.append(data)
            self.texts[data] = []
        elif data.strip():
            self.texts[self.headings[-1] if self.headings else ""].append(data.strip())

    def rows(self, heading: str, *cells: str) -> bool:
        """Whether these texts follow one another in a section."""
        said = self.texts[heading]
        return any(said[k : k + len(cells)] == list(cells) for k in range(len(said)))


@pytest.fixture
def result(market: Any) -> BacktestResult:
    """One trade won, one open at the lower limit, one symbol dropped."""
    opens = [10.0, 10.0, 10.5, 10.5, 10.5, 10.5]
    market.add(MAIN, [*opens[:-1], 9.45], opens=opens)
    made: BacktestResult = market.run(
        {MAIN: [0.5, 0.0, 0.0, 0.5, 0.5, 0.5]},
        dropped=[Dropped(symbol="999999.SH", name="某股", reason="数据源没有该代码")],
    )
    return made


def test_it_is_one_file_that_loads_and_runs_nothing(result: BacktestResult, facts: Make) -> None:
    html = build_report(result, facts())
    page = Page(html)
    assert not {tag for tag, _ in page.tags} & {
        "script", "link", "iframe", "img", "object", "embed", "base", "form", "image", "use",
        "foreignobject", "audio", "video",
    }  # fmt: skip
    for _, attributes in page.tags:
        assert "src" not in attributes
        assert not [name for name in attributes if name.startswith("on")]
        for name in ("href", "xlink:href"):
            assert attributes.get(name, "#").startswith("#")
    # The only addresses are the name of SVG's namespace.
    assert set(re.findall(r"https?://[^\s\"'<>]*", html)) <= {"http://www.w3.org/2000/svg"}
    assert not re.search(r"url\(|@import|//cdn|javascript:", html)
    assert ("meta", "default-src 'none'") in [
        (tag, attributes.get("content", "")[:18]) for tag, attributes in page.tags
    ]
    assert html == build_report(result, facts())


def test_verdict_and_doubts_stand_before_the_curve(result: BacktestResult, facts: Make) -> None:
    html = build_report(result, facts())
    page = Page(html)
    assert page.headings == HEADINGS
    assert html.index("<svg") > html.index('<section id="s3">')  # no chart in the first two
    # 5,000 shares from 10.00 to 10.50, then 4,800 from 10.50 to 9.45: a loss of 2.61 %.
    total = (2_447.09 + 45_360 - 50_413.10) / 100_000
    assert f"总收益 {total:+.2%}" in page.texts[""][-len(HEADINGS) - 1]
    assert page.rows("结论与检查", "未来函数", "通过", "截断到 2 个日期，结果都不变")
    assert page.rows("结论与检查", "预热长度", "通过", "实测需要 20 根，声明 20 根")
    assert page.rows("结论与检查", "总收益", f"{total:+.2%}")
    doubts = page.texts["可能让结果失真的地方"]
    assert doubts[:3] == [f"价格收益，未计分红：{MAIN}", "未计滑点", "指定名单"]


LEAK = Leak(
    output="screen_today",
    symbol=MAIN,
    first_bad_date=date(2024, 3, 6),
    cut_date=date(2024, 3, 7),
    detail="",
    reproduction="",
)


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        (
            LookaheadVerdict(ok=False, checked_dates=(date(2024, 3, 7),), findings=(LEAK,)),
            f"{MAIN} 自 2024-03-06 起，screen_today 随后来的数据改变",
        ),
        (
            LookaheadVerdict(
                ok=False, checked_dates=(), findings=(), skipped=("2024-03-07: it raised",)
            ),
            "没有一个日期能检查：2024-03-07: it raised",
        ),
        (
            LookaheadVerdict(ok=False, checked_dates=(), findings=()),
            "没有一个日期能检查：区间太短",
        ),
        (
            LookaheadVerdict(
                ok=False,
                checked_dates=(date(2024, 3, 7),),
                findings=(),
                one_bar_delay={"immediate": 9.0, "delayed": 0.1, "collapsed": True},
            ),
            "晚一根成交，优势就消失",
        ),
    ],
)
def test_a_failing_lookahead_guard_is_named_first(
    result: BacktestResult, facts: Make, verdict: LookaheadVerdict, said: str
) -> None:
    page = Page(build_report(result, facts(lookahead=verdict)))
    assert page.rows(HEADINGS[0], "未来函数", "未通过", said)
    assert page.rows(HEADINGS[0], "预热长度", "通过")


@pytest.mark.parametrize(
    ("declared", "said"),
    [(20, "实测需要 21 根，声明 20 根"), (None, "实测需要 21 根，声明 未声明")],
)
def test_a_failing_warm_up_is_named(
    result: BacktestResult, facts: Make, declared: int | None, said: str
) -> None:
    page = Page(build_report(result, facts(warmup_declared=declared, warmup_needed=21)))
    assert page.rows(HEADINGS[0], "预热长度", "未通过", said)


def test_weak_stand_ins_are_listed_with_what_they_miss(result: BacktestResult, facts: Make) -> None:
    page = Page(build_report(result, facts()))
    assert page.rows(HEADINGS[1], "filter", "近似", "未测", "只数词；不懂")
    assert page.rows(HEADINGS[1], "explain", "部分", "未测", "不读新闻")
    assert page.rows(HEADINGS[1], "rank", "等价", "未测", "无")
    # What stands in for a model badly is said on the first screen, before any number.
    first = page.texts[HEADINGS[0]]
    warned = next(text for text in first if "离线替代" in text)
    assert "filter（近似，一致率 未测）、explain（部分，一致率 未测）" in warned
    assert "rank" not in warned
    assert first.index(warned) < first.index("未来函数")
    exact = facts(
        steps=(
            StepQuality(
                name="rank", quality="exact", agreement=0.9, interval=(0.7, 0.97), answers=20
            ),
        ),
        universe_note="",
    )
    page = Page(build_report(replace(result, notes=()), exact))
    assert page.rows(HEADINGS[1], "rank", "等价", "90%（95% 区间 70%-97%，20 次）", "无")
    assert not any("离线替代完成" in text for text in page.texts[HEADINGS[0]])
    page = Page(build_report(replace(result, notes=()), facts(steps=(), universe_note="")))
    assert page.texts[HEADINGS[1]] == ["没有要特别说明的。"]


def test_what_the_guards_found_is_told_before_the_metrics(
    result: BacktestResult, facts: Make
) -> None:
    told = facts(
        partial=("symbols", "range"),
        stress=stress(result),
        trials=Trials(place=1, tried=12, expected_best=1.5, deflated_sharpe=0.031),
        folds=(
            {"start": "2024-03-05", "end": "2024-03-06", "total_return": 0.02447, "sharpe": 2.5,
             "max_drawdown": 0.0},
            {"start": "2024-03-07", "end": "2024-03-11", "total_return": -0.05, "sharpe": None,
             "max_drawdown": -0.05},
        ),
    )  # fmt: skip
    page = Page(build_report(result, told))
    first = page.texts[HEADINGS[0]]
    assert any("只用了部分股票、另一段区间" in text for text in first)
    assert page.rows(HEADINGS[0], "试验次数与折减夏普", "3.1%")
    assert any("1 of 12 tried" in text and "1.50" in text for text in first)
    assert page.rows(HEADINGS[0], "分段检验", "1 / 2")
    assert page.rows(HEADINGS[0], "成本与延迟", "25.0%")
    assert first.index("分段检验") < first.index("总收益")
    assert page.rows("净值与回撤", "2024-03-05 至 2024-03-06", "+2.45%", "2.50", "0.00%")
    assert page.rows("净值与回撤", "2024-03-07 至 2024-03-11", "-5.00%", "—", "-5.00%")
    assert page.rows("成本与未成交", "成本加倍")


def test_charts_begin_where_grading_does(market: Any, facts: Make) -> None:
    market.add(MAIN, [9.0] * 10 + [10.0] * 10)
    weights = [0.0] * 11 + [0.5] * 9
    made = market.run({MAIN: weights}, evaluation_start="2024-03-15")
    page = build_report(made, facts())
    # What came before the bar that the curve starts from is in no chart.
    charts = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert charts
    for chart in charts:
        if re.search(r"2024-03-\d\d", chart):
            assert min(re.findall(r"2024-03-\d\d", chart)) >= "2024-03-14"
    (price,) = [chart for chart in charts if f"<title>{MAIN}</title>" in chart]
    assert "最低 9" in price
    assert "2024-03-14 至 2024-03-29" in price


def test_invented_bars_are_no_evidence(result: BacktestResult, facts: Make) -> None:
    page = Page(build_report(result, facts(synthetic=True)))
    assert page.texts[HEADINGS[1]][0] == "合成数据，不能作为证据"
    assert page.rows("来源", "数据源", "hand（合成数据）")


HOSTILE = "\"'><script>alert(1)</script><img src=x onerror=alert(2)>&amp;"


def test_foreign_text_stays_text_wherever_it_comes_from(market: Any, facts: Make) -> None:
    symbol = f"6{HOSTILE}.SH"
    market.add(symbol, [10.0, 10.0, 10.5, 10.5, 9.45], opens=[10.0, 10.0, 10.5, 10.5, 10.5])
    benchmark = pd.Series([1.0, 2.0, 2.0, 2.0, 2.0], pd.bdate_range("2024-03-04", periods=5))
    made = market.run(
        {symbol: [0.5] * 5},
        benchmark=benchmark.rename(f"index{HOSTILE}"),
        dropped=[
            Dropped(symbol=f"s{HOSTILE}", name=f"n{HOSTILE}", reason=f"r{HOSTILE}"),
        ],
    )
    step = StepQuality(name=f"step{HOSTILE}", quality="partial", differences=(f"d{HOSTILE}",))
    leak = replace(LEAK, symbol=symbol, output=f"o{HOSTILE}")
    html = build_report(
        replace(made, notes=(f"note{HOSTILE}",)),
        facts(
            ref=f"ref{HOSTILE}",
            source=f"source{HOSTILE}",
            universe_note=f"universe{HOSTILE}",
            steps=(step,),
            lookahead=LookaheadVerdict(ok=False, checked_dates=(), findings=(leak,)),
            versions={f"v{HOSTILE}": f"w{HOSTILE}"},
            fingerprints={f"part{HOSTILE}": "a" * 64},
        ),
    )
    page = Page(html)
    assert not {tag for tag, _ in page.tags} & {"script", "img"}
    assert not [name for _, attributes in page.tags for name in attributes if name[:2] == "on"]
    whole = "".join(text for texts in page.texts.values() for text in texts)
    shown = HOSTILE.replace(" ", "")
    for part in (
        "s",
        "n",
        "r",
        "step",
        "d",
        "note",
        "ref",
        "source",
        "universe",
        "v",
        "w",
        "index",
    ):
        assert f"{part}{shown}" in whole.replace(" ", ""), part
    assert page.headings == HEADINGS


def dated(result: BacktestResult, first: str) -> BacktestResult:
    """Return the same result as if its first bar had stood on another day."""
    index = pd.bdate_range(first, periods=len(result.prices))
    return replace(result, prices=result.prices.set_axis(index))


def test_years_compound_to_the_whole(result: BacktestResult, facts: Make) -> None:
    # Bars of 12-27, 12-28, 12-29 of 2023, 01-01, 01-02 and 01-03 of 2024. The account ends 2023
    # with the first trade won, and 2024 with the second one lost so far.
    page = Page(build_report(dated(result, "2023-12-27"), facts()))
    first = 2_447.09 / 100_000
    second = (45_360 - 50_413.10) / 102_447.09
    assert page.rows("分年", "2023", f"{first:+.2%}", "2024", f"{second:+.2%}")


def test_a_year_without_a_graded_bar_is_none(result: BacktestResult, facts: Make) -> None:
    # The last bar of 2023 is only what the curve starts from.
    page = Page(build_report(dated(result, "2023-12-29"), facts()))
    assert "2023" not in page.texts["分年"]
    total = (2_447.09 + 45_360 - 50_413.10) / 100_000
    assert page.rows("分年", "2024", f"{total:+.2%}")


def test_the_index_is_shown_when_there_is_one(market: Any, facts: Make) -> None:
    market.add(MAIN, [10.0] * 5)
    index = pd.Series([100.0, 101.0, 102.0, 103.0, 104.0], pd.bdate_range("2024-03-04", periods=5))
    page = Page(build_report(market.run({MAIN: [0.5] * 5}), facts()))
    assert "区间内没有可用的基准指数，不作比较。" in page.texts["净值与回撤"]
    named = index.rename("000300.SH")
    page = Page(build_report(market.run({MAIN: [0.5] * 5}, benchmark=named), facts()))
    assert any("000300.SH" in text for text in page.texts["净值与回撤"])
    assert not any("不作比较" in text for text in page.texts["净值与回撤"])
    elsewhere = named.set_axis(pd.bdate_range("2020-01-01", periods=5))
    page = Page(build_report(market.run({MAIN: [0.5] * 5}, benchmark=elsewhere), facts()))
    assert "区间内没有可用的基准指数，不作比较。" in page.texts["净值与回撤"]


def test_trades_costs_universe_and_origin_are_told(result: BacktestResult, facts: Make) -> None:
    page = Page(build_report(result, facts()))
    first = [MAIN, "2024-03-05", "2024-03-06", "5,000", "10.000", "10.500", "+2,447.09", "+4.89%"]
    last = [MAIN, "2024-03-08", "持有中", "4,800", "10.500", "9.450", "-5,053.10", "-10.02%"]
    assert page.rows("交易", *first, *last)
    # 12.50 + 13.13 + 12.60, 0.50 + 0.53 + 0.50, 26.25.
    assert page.rows("成本与未成交", "佣金", "38.23", "过户费", "1.53", "印花税", "26.25", "滑点")
    assert page.rows("成本与未成交", MAIN, "跌停卖不出", "1")
    assert "要求 2 只，使用 1 只，剔除 1 只。" in page.texts["股票池"]
    assert page.rows("股票池", "999999.SH", "某股", "数据源没有该代码")
    assert page.rows("来源", "版本", "tiny-pullback@draft")
    assert page.rows("来源", "code 指纹", "a" * 16, "prompts 指纹", "b" * 16)
    assert "numba" in page.texts["来源"]


def test_an_account_that_never_traded_has_a_page_too(market: Any, facts: Make) -> None:
    market.add(MAIN, [10.0] * 5)
    page = Page(build_report(market.run({MAIN: [0.0] * 5}), facts()))
    assert page.headings == HEADINGS
    assert page.texts["交易"] == ["没有成交。"]
    assert "没有未成交的意图。" in page.texts["成本与未成交"]


def test_a_long_list_of_trades_is_cut_and_says_so(market: Any, facts: Make) -> None:
    length = 48
    symbols = [f"6000{place:02d}.SH" for place in range(14)]
    for symbol in symbols:
        market.add(symbol, [10.0] * length)
    weights = ([0.05, 0.0] * length)[:length]
    result = market.run(dict.fromkeys(symbols, weights))
    trades = 14 * 24  # bought on every second bar, the last one too
    assert len(result.trades) == trades
    page = Page(build_report(result, facts()))
    assert page.charts["交易"] == 12
    assert f"另有 {trades - 200} 笔见 trades.csv。" in page.texts["交易"]
