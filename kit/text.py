"""Text from outside, made harmless: no control characters, no hidden ones, a bounded length.

News, model answers, security names and file contents pass through here before they are shown or
sent anywhere. What markup means is each channel's own business, see `kit.card`.
"""

from __future__ import annotations

import unicodedata

__all__ = ["clip", "one_line", "visible"]

# Control, format (zero-width, bidirectional, tag) and surrogate characters; line separators.
_DROPPED = {"Cc", "Cf", "Cs"}
_SEPARATORS = {"Zl", "Zp"}
_JOINER = "\u200d"  # holds emoji sequences together, and shows nothing by itself


def visible(text: str) -> str:
    """Drop characters that cannot be seen; line ends become line feeds, tabs a space."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    kept = []
    for char in text:
        category = unicodedata.category(char)
        if char == "\n" or char == _JOINER:
            kept.append(char)
        elif category in _SEPARATORS or char in "\x0b\x0c\x1c\x1d\x1e\x85":
            kept.append("\n")
        elif char == "\t":
            kept.append(" ")
        elif category not in _DROPPED:
            kept.append(char)
    return "".join(kept)


def one_line(text: str) -> str:
    """Return visible text on one line, runs of white space as one space."""
    return " ".join(visible(text).split())


def clip(text: str, most: int) -> str:
    """Cut text to `most` characters, the last of them `…` when something was cut."""
    return text if len(text) <= most else text[: most - 1] + "…"
