"""The analyzer's table: every holding against its quote, and the book they add up to.

Only what a quote says is computed; a holding without one keeps its row, shows `—`, and is left out
of the totals by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal

from kit.intraday import figures
from kit.intraday.figures import change_pct, exact
from kit.intraday.portfolio import Holding, Portfolio
from kit.market.quotes import QuoteBatch

__all__ = ["TABLE_HEADER", "Row", "Totals", "book_line", "build_rows", "index_strip", "table_lines"]

TABLE_HEADER = "| 代码 | 股 | 成本 | 现价 | 今日 | 浮% | 浮$ |"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One holding and what its quote makes of it.

    Attributes:
        holding: The position.
        name: Short name of the security, empty when unknown.
        price: Last price, or None.
        prev_close: Close of the session before, or None.
        time: When the price was made, aware; None without a price.
        fresh: Whether the quote is recent enough to speak for this slot.
        of_session: Whether it was made on the slot's own session date; an earlier day's move is
            not today's.
        problem: Why there is no price, in the quote source's words; empty when there is one.
    """

    holding: Holding
    name: str = ""
    price: Decimal | None = None
    prev_close: Decimal | None = None
    time: datetime | None = None
    fresh: bool = False
    of_session: bool = False
    problem: str = ""

    @property
    def label(self) -> str:
        """What cards call it."""
        return self.holding.label

    @property
    def day_pct(self) -> Decimal | None:
        """Move of this session since the previous close, percent; None for an earlier quote."""
        return change_pct(self.price, self.prev_close) if self.of_session else None

    @property
    def gain_pct(self) -> Decimal | None:
        """Price against cost, percent."""
        return change_pct(self.price, self.holding.cost)

    @property
    def value(self) -> Decimal | None:
        """Shares times price."""
        return None if self.price is None else self.price * self.holding.shares

    @property
    def gain(self) -> Decimal | None:
        """Shares times (price - cost)."""
        if self.price is None:
            return None
        return (self.price - self.holding.cost) * self.holding.shares

    @property
    def day_gain(self) -> Decimal | None:
        """Shares times (price - previous close); None for a quote of an earlier session."""
        if self.price is None or self.prev_close is None or not self.of_session:
            return None
        return (self.price - self.prev_close) * self.holding.shares


@dataclass(frozen=True, kw_only=True)
class Totals:
    """Sums over the rows that have a price.

    Attributes:
        value: Market value; None when no row has a price.
        gain: Gain over cost.
        gain_pct: The same in percent of cost.
        day_gain: Gain since the previous close, over the rows that know it.
        day_pct: The same in percent of the value at the previous close.
        left_out: Labels of rows without a price.
        day_left_out: Labels of rows with a price that is not of this session.
    """

    value: Decimal | None
    gain: Decimal | None
    gain_pct: Decimal | None
    day_gain: Decimal | None
    day_pct: Decimal | None
    left_out: tuple[str, ...]
    day_left_out: tuple[str, ...]

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Totals:
        """Add up rows."""
        priced = [row for row in rows if row.price is not None]
        moved = [row for row in priced if row.day_gain is not None]
        value, gain = _total(row.value for row in priced), _total(row.gain for row in priced)
        day_gain = _total(row.day_gain for row in moved)
        cost = sum((row.holding.cost * row.holding.shares for row in priced), Decimal())
        before = _total(row.value for row in moved)
        return cls(
            value=value,
            gain=gain,
            gain_pct=gain / cost * 100 if gain is not None and cost else None,
            day_gain=day_gain,
            day_pct=day_gain / (before - day_gain) * 100
            if day_gain is not None and before is not None and before != day_gain
            else None,
            left_out=tuple(row.label for row in rows if row.price is None),
            day_left_out=tuple(row.label for row in priced if row.day_gain is None),
        )


def build_rows(portfolio: Portfolio, batch: QuoteBatch, session: date) -> tuple[Row, ...]:
    """Join holdings and quotes, in the order of the portfolio.

    Args:
        portfolio: The holdings.
        batch: Their quotes.
        session: The slot's session date at the exchange.
    """
    rows = []
    for holding in portfolio.holdings:
        quote = batch.quotes.get(holding.symbol)
        if quote is None:
            problem = batch.missing.get(holding.symbol, "the source did not answer for it")
            rows.append(Row(holding=holding, problem=problem))
            continue
        rows.append(
            Row(
                holding=holding,
                name=quote.name,
                price=exact(quote.price),
                prev_close=exact(quote.prev_close),
                time=quote.time,
                fresh=not quote.stale,
                of_session=quote.time.date() >= session,
            )
        )
    return tuple(rows)


def table_lines(rows: Sequence[Row]) -> tuple[str, ...]:
    """Write the holdings table: the header, then one line a row.

    These bytes are the same in every channel and are never edited afterwards.
    """
    lines = [TABLE_HEADER]
    for row in rows:
        cells = (
            row.label,
            str(row.holding.shares),
            figures.price(row.holding.cost),
            figures.price(row.price),
            figures.percent(row.day_pct),
            figures.percent(row.gain_pct),
            figures.money(row.gain),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return tuple(lines)


def book_line(totals: Totals, currency: str) -> str:
    """Write the book: market value, gain over cost, gain of the day."""
    partly = totals.day_gain is not None and totals.day_left_out
    without = f"，不含 {'、'.join(totals.day_left_out)}" if partly else ""
    text = (
        f"📊 市值 {figures.money(totals.value, signed=False)} {currency}"
        f"｜浮盈 {figures.money(totals.gain)}（{figures.percent(totals.gain_pct)}）"
        f"｜今日 {figures.money(totals.day_gain)}（{figures.percent(totals.day_pct)}{without}）"
    )
    return f"{text}｜不含 {'、'.join(totals.left_out)}" if totals.left_out else text


def index_strip(portfolio: Portfolio, batch: QuoteBatch, session: date) -> str:
    """Write the configured indexes that have a quote, or an empty text.

    The move of an earlier session than `session` is shown as unknown.
    """
    parts = []
    for symbol in portfolio.indices:
        quote = batch.quotes.get(symbol)
        if quote is not None:
            move = None
            if quote.time.date() >= session:
                move = change_pct(exact(quote.price), exact(quote.prev_close))
            parts.append(f"{quote.name or symbol} {figures.percent(move)}")
    return "｜".join(parts)


def _total(values: Iterable[Decimal | None]) -> Decimal | None:
    known = [value for value in values if value is not None]
    return sum(known, Decimal()) if known else None
