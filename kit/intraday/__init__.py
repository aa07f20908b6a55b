"""One intraday slot, as pure steps: from holdings and quotes to a context, checks and a card."""

from __future__ import annotations

from kit.intraday.cards import BLOCK_ORDER, Product, failed_card, slot_card
from kit.intraday.checks import Finding, check_judgement, verdict_of
from kit.intraday.context import LAYERS, core_packet, read_context, reference
from kit.intraday.judgement import Judgement, judgement_step, offline_view
from kit.intraday.portfolio import Holding, Portfolio
from kit.intraday.preflight import Gathered, preflight
from kit.intraday.slots import CLOSED_REASONS, Slot, resolve_slot
from kit.intraday.state import Delivered

__all__ = [
    "BLOCK_ORDER",
    "CLOSED_REASONS",
    "LAYERS",
    "Delivered",
    "Finding",
    "Gathered",
    "Holding",
    "Judgement",
    "Portfolio",
    "Product",
    "Slot",
    "check_judgement",
    "core_packet",
    "failed_card",
    "judgement_step",
    "offline_view",
    "preflight",
    "read_context",
    "reference",
    "resolve_slot",
    "slot_card",
    "verdict_of",
]
