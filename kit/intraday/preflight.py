"""Preflight: from holdings and quotes to a context, with no judgement in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from kit.card import Block
from kit.clock import iso
from kit.intraday import context as contexts
from kit.intraday import figures, wording
from kit.intraday.book import Row, Totals, book_line, build_rows, index_strip, table_lines
from kit.intraday.portfolio import Portfolio
from kit.intraday.signals import LEVELS, Anomaly, Line, Signal, find_anomalies, find_signals
from kit.intraday.signals import price_lines as find_lines
from kit.intraday.slots import Slot
from kit.intraday.state import (
    Delivered,
    Delta,
    change_line,
    compare,
    folded,
    new_labels,
    semantic_state,
)
from kit.market.quotes import QuoteBatch

__all__ = ["Gathered", "preflight"]


@dataclass(frozen=True, kw_only=True)
class Gathered:
    """What one preflight found.

    Attributes:
        rows: The holdings.
        totals: The book.
        anomalies: Large moves.
        signals: Signals, new and told before.
        delta: What is new since the last delivered slot.
        blocks: The card's data blocks, in order.
        context: The sealed context.
    """

    rows: tuple[Row, ...]
    totals: Totals
    anomalies: tuple[Anomaly, ...]
    signals: tuple[Signal, ...]
    delta: Delta
    blocks: tuple[Block, ...]
    context: Mapping[str, Any]


def preflight(
    slot: Slot,
    portfolio: Portfolio,
    batch: QuoteBatch,
    *,
    market_name: str,
    config: Mapping[str, Any],
    delivered: Delivered | None,
    generated_at: datetime,
    source: str,
    errors: Sequence[str] = (),
    synthetic: bool = False,
) -> Gathered:
    """Gather one slot.

    Args:
        slot: The slot.
        portfolio: The holdings of its market.
        batch: Quotes as of `slot.now`.
        market_name: The market's Chinese name.
        config: `config/intraday.json`.
        delivered: The last slot whose card reached somebody.
        generated_at: When this is done, aware.
        source: Who served the quotes.
        errors: Sources that failed as a whole, in words of the card.
        synthetic: Whether the quotes are generated.

    Raises:
        DataError: The context does not match its schema.
    """
    zone = ZoneInfo(config["owner_timezone"])
    rows = build_rows(portfolio, batch, slot.trade_date)
    totals = Totals.of(rows)
    anomalies = find_anomalies(rows, config)
    signals = find_signals(rows, anomalies)
    session = f"{slot.market}:{slot.trade_date.isoformat()}"
    state = semantic_state(session, rows, signals, delivered)
    delta = compare(state, delivered)
    told = folded(signals, delta)
    health = wording.health_lines(
        rows,
        now=slot.now,
        zone=zone,
        errors=errors,
        calendar_known=slot.calendar_known,
        synthetic=synthetic,
        indices_missing={s: batch.missing[s] for s in portfolio.indices if s in batch.missing},
    )
    strip = index_strip(portfolio, batch, slot.trade_date)
    book = tuple(line for line in (strip, book_line(totals, portfolio.currency)) if line)
    heading = wording.title(market_name, slot.now.astimezone(zone), synthetic=synthetic)
    blocks = _blocks(rows, signals, told, delta, delivered, health, book)
    data_time = max((row.time for row in rows if row.time is not None), default=None)
    context = contexts.sealed(
        {
            "schema_version": "1.0",
            "status": "ok",
            "market": slot.market,
            "market_name": market_name,
            "date": slot.trade_date.isoformat(),
            "time": f"{slot.now.astimezone(zone):%H:%M}",
            "slot": slot.id,
            "title": heading,
            "generated_at": iso(generated_at.astimezone(zone)),
            "data_time": None if data_time is None else iso(data_time.astimezone(zone)),
            "quote_source": source,
            "calendar_known": slot.calendar_known,
            "synthetic": synthetic,
            "always_full": config["always_full"],
            "semantic_unchanged": not delta.changed,
            "analyzer_block": _analyzer_block(heading, book, rows, signals),
            "raw_wechat_block": "\n".join([heading, *(line for b in blocks for line in b.lines)]),
            "full_holdings": [_holding(row, find_lines(rows), zone) for row in rows],
            "book": _book(totals, portfolio.currency),
            "quote_coverage": _coverage(rows),
            "source_errors": list(errors),
            "anomalies": [_anomaly(anomaly) for anomaly in anomalies],
            "signal_count": {
                level.lower(): sum(signal.level == level for signal in signals) for level in LEVELS
            },
            "semantic_state": state,
            "semantic_delta": delta.to_dict(),
            "last_delivered": None
            if delivered is None
            else {"slot": delivered.slot, "context_id": delivered.context_id},
            "signals_detail": [_signal(signal, told) for signal in signals],
            "prior_semantic_state": None if delivered is None else dict(delivered.state),
            "card_marks": {
                "new": _marked(rows, delta),
                "stale": state["quote_health"]["stale"],
            },
            "card_blocks": [
                {"kind": b.kind, "lines": list(b.lines), "bold_rows": list(b.bold_rows)}
                for b in blocks
            ],
        }
    )
    return Gathered(
        rows=rows,
        totals=totals,
        anomalies=anomalies,
        signals=signals,
        delta=delta,
        blocks=blocks,
        context=context,
    )


def _blocks(
    rows: Sequence[Row],
    signals: Sequence[Signal],
    told: Sequence[Signal],
    delta: Delta,
    delivered: Delivered | None,
    health: Sequence[str],
    book: Sequence[str],
) -> tuple[Block, ...]:
    """Return the data blocks in the order of the card; a block with nothing to say is absent."""
    marked = _marked(rows, delta)
    fresh = [signal for signal in signals if signal not in told]
    signal_lines = [line for signal in fresh for line in (signal.line, *signal.reasons)]
    if signal_lines:
        signal_lines.insert(0, wording.SIGNAL_HEAD)
    signal_lines += [line for line in [wording.fold_line(told)] if line]
    bold = tuple(place for place, row in enumerate(rows, start=1) if row.label in marked)
    drafts = (
        Block(kind="change", lines=(change_line(delta, delivered, rows),), keep=True),
        Block(kind="health", lines=tuple(health), keep=True),
        Block(kind="book", lines=tuple(book), keep=True),
        Block(kind="table", lines=table_lines(rows) if rows else (), keep=True, bold_rows=bold),
        Block(kind="marks", lines=tuple(line for line in [wording.mark_line(marked)] if line)),
        Block(kind="signals", lines=tuple(signal_lines)),
    )
    return tuple(block for block in drafts if block.lines)


def _marked(rows: Sequence[Row], delta: Delta) -> list[str]:
    """Return the rows to point at: something new there, and the quote verified."""
    new = new_labels(delta)
    return [row.label for row in rows if row.fresh and row.label in new]


def _analyzer_block(
    heading: str, book: Sequence[str], rows: Sequence[Row], signals: Sequence[Signal]
) -> str:
    """Return the analyzer's whole text: folding on the card never shortens this one."""
    lines = [heading, *book, *(table_lines(rows) if rows else ())]
    if signals:
        lines += ["", wording.SIGNAL_HEAD]
        lines += [line for signal in signals for line in (signal.line, *signal.reasons)]
    return "\n".join(lines)


def _holding(row: Row, lines: Sequence[Line], zone: ZoneInfo) -> dict[str, Any]:
    return {
        "ticker": row.label,
        "symbol": row.holding.symbol,
        "name": row.name,
        "shares": row.holding.shares,
        "cost": float(row.holding.cost),
        "price": figures.plain(row.price),
        "prev_close": figures.plain(row.prev_close),
        "pct_1d": figures.shown(row.day_pct),
        "gain_pct": figures.shown(row.gain_pct),
        "gain": figures.rounded(row.gain),
        "quote_fresh": row.fresh,
        "quote_time": None if row.time is None else iso(row.time.astimezone(zone)),
        "plan_distances": [
            {
                "kind": line.kind,
                "condition_price": float(line.price),
                "pct_to_trigger": figures.shown(line.pct_to_trigger),
                "met": line.met,
            }
            for line in lines
            if line.label == row.label
        ],
    }


def _book(totals: Totals, currency: str) -> dict[str, Any]:
    return {
        "currency": currency,
        "value": figures.rounded(totals.value),
        "gain": figures.rounded(totals.gain),
        "gain_pct": figures.shown(totals.gain_pct),
        "day_gain": figures.rounded(totals.day_gain),
        "day_pct": figures.shown(totals.day_pct),
        "left_out": list(totals.left_out),
    }


def _coverage(rows: Sequence[Row]) -> dict[str, Any]:
    return {
        "refreshed": sum(row.fresh for row in rows),
        "active": len(rows),
        "unrefreshed": [row.label for row in rows if row.price is not None and not row.fresh],
        "missing": {row.label: row.problem for row in rows if row.price is None},
    }


def _anomaly(anomaly: Anomaly) -> dict[str, Any]:
    return {
        "ticker": anomaly.label,
        "move_pct": figures.shown(anomaly.move_pct),
        "severity": anomaly.severity,
        "reason": f"今日 {figures.percent(anomaly.move_pct)}",
    }


def _signal(signal: Signal, told: Sequence[Signal]) -> dict[str, Any]:
    return {
        "level": signal.level,
        "ticker": signal.label,
        "line": signal.line,
        "reasons": list(signal.reasons),
        "told_before": signal in told,
    }
