"""The daily screen as pure steps: data, sectors, rule, reasons, result, card."""

from __future__ import annotations

from kit.screen.cards import CardFacts, mode_of, screen_card, screen_title
from kit.screen.data import Contract, ScreenData, ScreenUniverse, load_data, window_start
from kit.screen.dates import TradeDate, due_date, latest_date, requested_date
from kit.screen.merged import ScreenLine, merged_card
from kit.screen.picks import Candidate, Rejected, check_picks, cut, run_rule
from kit.screen.reasons import (
    check_reason,
    confidence_of,
    params_numbers,
    reason_line,
    render_template,
    ungrounded,
)
from kit.screen.result import EMPTY_UNIVERSE, Explained, ScreenResult
from kit.screen.steps import (
    StepNote,
    explanation_inputs,
    filter_check,
    filter_inputs,
    read_sectors,
)
from kit.screen.surroundings import (
    context_moves,
    news_items,
    news_line,
    news_of,
    news_summary,
    tell_context,
)
from kit.screen.tell import (
    tell_data,
    tell_failures,
    tell_offline,
    tell_rejected,
    tell_shortfall,
    worded,
)
from kit.screen.wording import problem_text

__all__ = [
    "EMPTY_UNIVERSE",
    "Candidate",
    "CardFacts",
    "Contract",
    "Explained",
    "Rejected",
    "ScreenData",
    "ScreenLine",
    "ScreenResult",
    "ScreenUniverse",
    "StepNote",
    "TradeDate",
    "check_picks",
    "check_reason",
    "confidence_of",
    "context_moves",
    "cut",
    "due_date",
    "explanation_inputs",
    "filter_check",
    "filter_inputs",
    "latest_date",
    "load_data",
    "merged_card",
    "mode_of",
    "news_items",
    "news_line",
    "news_of",
    "news_summary",
    "params_numbers",
    "problem_text",
    "read_sectors",
    "reason_line",
    "render_template",
    "requested_date",
    "run_rule",
    "screen_card",
    "screen_title",
    "tell_context",
    "tell_data",
    "tell_failures",
    "tell_offline",
    "tell_rejected",
    "tell_shortfall",
    "ungrounded",
    "window_start",
    "worded",
]
