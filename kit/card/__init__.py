"""The card a person reads, and its text for each channel."""

from __future__ import annotations

from kit.card.blocks import HIGH, PROVENANCE, TABLE, Block, Card
from kit.card.markup import cell, safe
from kit.card.text import FORMATS, Format, render_card

__all__ = [
    "FORMATS",
    "HIGH",
    "PROVENANCE",
    "TABLE",
    "Block",
    "Card",
    "Format",
    "cell",
    "render_card",
    "safe",
]
