"""A card as the text of one channel, within its budget.

The budget is counted as the channel counts it. When a card is over it, whole lines go, never a
part of one; how many went is said where they stood. The provenance line goes last.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from kit.card.blocks import HIGH, PROVENANCE, TABLE, Block, Card
from kit.card.markup import bold, bold_cells, clusters, safe

__all__ = ["FORMATS", "Format", "render_card"]


@dataclass(frozen=True, kw_only=True)
class Format:
    """What a channel takes.

    Attributes:
        name: `plain`, `wecom` or `telegram`.
        markdown: Whether `**bold**` is shown as bold.
        max_bytes: Longest text in UTF-8 bytes, or None.
        max_units: Longest text in UTF-16 units, or None.
    """

    name: str
    markdown: bool = False
    max_bytes: int | None = None
    max_units: int | None = None

    def fits(self, text: str, max_bytes: int | None) -> bool:
        """Whether a text is within the channel's limits and `max_bytes`."""
        size = len(text.encode("utf-8"))
        limits = [limit for limit in (self.max_bytes, max_bytes) if limit is not None]
        if any(size > limit for limit in limits):
            return False
        return self.max_units is None or len(text.encode("utf-16-le")) // 2 <= self.max_units


# WeCom's bot documents 4096 bytes of UTF-8 for Markdown; Telegram's sendMessage 4096 characters,
# which its clients count in UTF-16 units. Telegram text is sent without a parse mode.
FORMATS: Mapping[str, Format] = MappingProxyType(
    {
        "plain": Format(name="plain"),
        "wecom": Format(name="wecom", markdown=True, max_bytes=4096),
        "telegram": Format(name="telegram", max_units=4096),
    }
)

_RESENT = "【重发】"


@dataclass(frozen=True)
class _Line:
    """One line of the finished text, and how long it lives when there is too much."""

    text: str
    block: int
    tier: int


def render_card(
    card: Card,
    format: str,  # noqa: A002 - the word callers know it by
    max_bytes: int | None = None,
    *,
    resend: bool = False,
) -> str:
    """Write a card for one channel.

    Args:
        card: The card.
        format: `plain`, `wecom` (Markdown) or `telegram` (plain text, no parse mode).
        max_bytes: A budget in UTF-8 bytes, beside the channel's own limit.
        resend: Whether the text says `重发`.

    Returns:
        Text without a trailing line end, never over the budget; empty only when the budget holds
        not even one character of the title.
    """
    form = FORMATS[format]
    title = (_RESENT if resend else "") + safe(card.title)
    head = bold(title) if form.markdown else title
    lines = list(_lines(card, form))
    whole = _join(head, lines, None, 0)
    if form.fits(whole, max_bytes):
        return whole
    # First what may go, then what should stay, and the provenance at the very last.
    for tier in (0, 1, 2):
        cuttable = [i for i, line in enumerate(lines) if line.tier <= tier]
        text = _cut(head, lines, cuttable, form, max_bytes)
        if text is not None:
            return text
    return _clip(title, form, max_bytes)


def _lines(card: Card, form: Format) -> Iterator[_Line]:
    for number, block in enumerate(card.blocks):
        tier = 2 if block.kind == PROVENANCE else int(block.keep)
        texts = [_styled(block, row, line, form) for row, line in enumerate(block.lines)]
        if block.kind == PROVENANCE and texts:
            texts[-1] += f" · 卡片 {safe(card.card_id)}"
        yield from (_Line(text, number, tier) for text in texts)
    if card.block(PROVENANCE) is None:
        yield _Line(f"卡片 {safe(card.card_id)}", len(card.blocks), 2)


def _styled(block: Block, row: int, line: str, form: Format) -> str:
    text = safe(line)
    if not form.markdown:
        return text
    if row in block.bold_rows:
        return bold_cells(text) if block.kind == TABLE else bold(text)
    return bold(text) if block.emphasis == HIGH and block.kind != TABLE else text


def _cut(
    head: str, lines: list[_Line], cuttable: list[int], form: Format, max_bytes: int | None
) -> str | None:
    """Drop as few of the cuttable lines as needed, from the end; None when all do not suffice."""
    for count in range(1, len(cuttable) + 1):
        gone = set(cuttable[-count:])
        kept = [line for i, line in enumerate(lines) if i not in gone]
        place = sum(1 for i in range(cuttable[-count]) if i not in gone)
        text = _join(head, kept, place, count)
        if form.fits(text, max_bytes):
            return text
    return None


def _join(head: str, lines: list[_Line], place: int | None, gone: int) -> str:
    """Join title and lines, a blank line between blocks; say before `place` how many are gone."""
    parts = [head]
    previous: int | None = None
    for i, line in enumerate(lines):
        if i == place:
            parts += ["", _notice(gone)]
            previous = None
        if line.block != previous:
            parts.append("")
        parts.append(line.text)
        previous = line.block
    if place == len(lines):
        parts += ["", _notice(gone)]
    return "\n".join(parts)


def _notice(count: int) -> str:
    return f"…其余 {count} 行见报告"


def _clip(title: str, form: Format, max_bytes: int | None) -> str:
    """Cut the title itself, between two characters: all that such a budget holds."""
    text = ""
    for cluster in clusters(title):
        if not form.fits(text + cluster, max_bytes):
            break
        text += cluster
    return text
