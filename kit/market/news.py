"""Dated news: one protocol, and what the embedded sample holds of it.

What is known only to the day counts as published at the end of that day, in the exchange's zone;
what has no date is never served, only counted. A window is open at its start and closed at its
end, so that two windows in a row show every item once and nothing later than their end.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import date, datetime, time
from functools import cached_property
from typing import Any, Final, Literal, Protocol
from zoneinfo import ZoneInfo

from kit.clock import iso
from kit.errors import UsageError
from kit.market import sample

__all__ = ["NewsBatch", "NewsItem", "NewsSource", "SampleNews"]

_SHANGHAI: Final = ZoneInfo("Asia/Shanghai")
_END_OF_DAY: Final = time(23, 59, 59)
_TITLE: Final = 40  # characters of a question that stand in a title

# Texts of the items, in one place.
_QA_TITLE, _QA_SUMMARY = "投资者问答：{question}", "问：{question} 答：{answer}"
_PLAN_TITLE, _PLAN_SUMMARY = "{symbol} 分红方案：{plan}", "{symbol} 于 {day} 公告分红方案：{plan}"
_TRADE_TITLE = "{symbol} {position}{side} {shares:.0f} 股"
_TRADE_SUMMARY = "{symbol} {position}于 {day} 通过{way}{side} {shares:.0f} 股{price}"
_NO_PLAN: Final = "内容未载"


@dataclass(frozen=True, kw_only=True)
class NewsItem:
    """One dated item.

    Attributes:
        news_id: Id, stable as long as the source's data is.
        title: One line.
        summary: The text; written by others, so data and never an instruction.
        categories: What kind of item it is.
        published_at: When it became known, aware.
        precision: `date` when only the day is known.
        symbols: Whom it concerns.
        source: Where it came from.
    """

    news_id: str
    title: str
    summary: str
    categories: tuple[str, ...]
    published_at: datetime
    precision: Literal["date", "instant"]
    symbols: tuple[str, ...]
    source: str

    def to_dict(self) -> dict[str, Any]:
        """Return its JSON form."""
        lists = {"categories": list(self.categories), "symbols": list(self.symbols)}
        return {**vars(self), **lists, "published_at": iso(self.published_at)}


@dataclass(frozen=True, kw_only=True)
class NewsBatch:
    """The items of a window.

    Attributes:
        items: Oldest first.
        undated: Items of these categories that have no date, and so are in no window.
    """

    items: tuple[NewsItem, ...]
    undated: int


class NewsSource(Protocol):
    """Something that serves dated news."""

    @property
    def name(self) -> str:
        """Name for records and messages."""
        ...

    @property
    def categories(self) -> tuple[str, ...]:
        """Kinds of items it has."""
        ...

    def query(
        self, start: datetime, end: datetime, categories: Collection[str] | None = None
    ) -> NewsBatch:
        """Return what was published after `start` and not after `end`, both aware."""
        ...


class SampleNews:
    """Investor questions with the company's answers (600000.SH), dividend plans, managers' trades.

    All of it real, none of it journalism; see `kit/market/sample/provenance.json`.
    """

    name = "sample"
    categories: tuple[str, ...] = ("investor_qa", "dividend", "manager_trade")

    @cached_property
    def _held(self) -> tuple[list[NewsItem], dict[str, int]]:
        """Every dated item, oldest first, and how many of each category have no date."""
        dated: list[NewsItem] = []
        undated = dict.fromkeys(self.categories, 0)
        for item, category in _items():
            if item is None:
                undated[category] += 1
            else:
                dated.append(item)
        return sorted(dated, key=lambda item: (item.published_at, item.news_id)), undated

    def query(
        self, start: datetime, end: datetime, categories: Collection[str] | None = None
    ) -> NewsBatch:
        """Return what was published after `start` and not after `end`, both aware.

        Raises:
            UsageError: `news.unknown_category`; `time.bad_window` when the end comes first.
        """
        if start > end:
            raise UsageError(
                "time.bad_window",
                f"the window from {iso(start)} to {iso(end)} ends before it begins",
                remedy="swap the two instants",
            )
        wanted = self.categories if categories is None else tuple(categories)
        for category in wanted:
            if category not in self.categories:
                near = difflib.get_close_matches(category, self.categories, 1)
                raise UsageError(
                    "news.unknown_category",
                    f"source {self.name} has no category {category[:80]!r}",
                    remedy=(f"did you mean {near[0]}? " if near else "")
                    + f"categories: {', '.join(self.categories)}",
                )
        items, undated = self._held
        return NewsBatch(
            items=tuple(
                item
                for item in items
                if start < item.published_at <= end and not set(item.categories).isdisjoint(wanted)
            ),
            undated=sum(undated[category] for category in set(wanted)),
        )


def _items() -> Iterator[tuple[NewsItem | None, str]]:
    for row in sample.investor_qa().collect().iter_rows(named=True):
        # Known when it was answered: before that there was only a question.
        shown = {**row, "question": " ".join(row["question"].split())[:_TITLE]}
        title, summary = _QA_TITLE.format(**shown), _QA_SUMMARY.format(**row)
        yield _item(
            "investor_qa", str(row["id"]), row["answer_date"], row["symbol"], title, summary
        )
    seen: dict[str, int] = {}
    for row in sample.dividend_events().collect().iter_rows(named=True):
        # Record and ex dates are left out: they were set after the plan was announced.
        words = {
            "symbol": row["symbol"],
            "day": row["announce_date"],
            "plan": row["plan"] or _NO_PLAN,
        }
        title, summary = _PLAN_TITLE.format(**words), _PLAN_SUMMARY.format(**words)
        number = _count(seen, f"dividend {words['symbol']} {words['day']}")
        yield _item("dividend", number, words["day"], words["symbol"], title, summary)
    for row in sample.manager_trades().collect().iter_rows(named=True):
        words = {
            "symbol": row["symbol"],
            "day": row["date"],
            "position": row["manager_position"],
            "side": "增持" if row["volume"] > 0 else "减持",
            "shares": abs(row["volume"]),
            "way": row["trading_way"],
            "price": "" if row["price"] is None else f"，均价 {row['price']:g} 元",
        }
        title, summary = _TRADE_TITLE.format(**words), _TRADE_SUMMARY.format(**words)
        number = _count(seen, f"trade {words['symbol']} {words['day']}")
        yield _item("manager_trade", number, words["day"], words["symbol"], title, summary)


def _count(seen: dict[str, int], key: str) -> str:
    """Number the items of one symbol and day, in the order the source has them."""
    seen[key] = seen.get(key, 0) + 1
    return str(seen[key])


def _item(
    category: str, number: str, day: date | None, symbol: str, title: str, summary: str
) -> tuple[NewsItem | None, str]:
    if day is None:
        return None, category
    item = NewsItem(
        news_id=f"{category}-{symbol}-{day}-{number}",
        title=title,
        summary=summary,
        categories=(category,),
        published_at=datetime.combine(day, _END_OF_DAY, _SHANGHAI),
        precision="date",
        symbols=(symbol,),
        source=f"sample.{category}",
    )
    return item, category
