"""The little Markdown that bundles rely on: headings, fenced blocks, numbered lists, code spans."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["Item", "Section", "code_spans", "fenced", "is_stub", "numbered_items", "sections"]

_HEADING = re.compile(r"(#{1,6})\s+(.*?)\s*#*\s*")
_FENCE = re.compile(r"\s{0,3}(```+|~~~+)\s*(\S*)")
_NUMBERED = re.compile(r"(\d+)[.)]\s+(.*)")
_SPAN = re.compile(r"(`+)(.+?)\1(?!`)")
_PLACEHOLDER = re.compile(
    r"\b(?:todo|tbd|fixme|xxx|placeholder|lorem ipsum|to be (?:written|done))\b"
    r"|待补|待写|待定|占位|\.\.\.\s*$",
    re.IGNORECASE,
)
_MIN_VISIBLE = 12


@dataclass(frozen=True, kw_only=True)
class Section:
    """A heading and what stands under it.

    Attributes:
        level: 1 for `#`, 2 for `##`, ...
        title: Heading text.
        line: Line number of the heading in the file.
        text: Everything up to the next heading of the same or a higher level.
    """

    level: int
    title: str
    line: int
    text: str

    @property
    def key(self) -> str:
        """The title in lower case, without a trailing parenthesis and with single spaces."""
        bare = re.sub(r"\s*[(（].*$", "", self.title)
        return re.sub(r"\s*/\s*", " / ", " ".join(bare.lower().split()))


@dataclass(frozen=True, kw_only=True)
class Item:
    """One entry of a numbered list, with its continuation lines."""

    number: int
    line: int
    text: str


def sections(body: str, first_line: int) -> list[Section]:
    """List the headings of a Markdown body; headings inside fenced blocks do not count."""
    lines = body.split("\n")
    found: list[tuple[int, str, int]] = []
    closing = ""
    for position, line in enumerate(lines):
        fence = _FENCE.match(line)
        if fence and not closing:
            closing = fence[1]
        elif fence and closing and fence[1].startswith(closing) and not fence[2]:
            closing = ""
        elif not closing and (heading := _HEADING.fullmatch(line)):
            found.append((len(heading[1]), heading[2], position))
    result = []
    for index, (level, title, position) in enumerate(found):
        later = (found[at] for at in range(index + 1, len(found)))
        end = next((at for deep, _, at in later if deep <= level), len(lines))
        result.append(
            Section(
                level=level,
                title=title,
                line=first_line + position,
                text="\n".join(lines[position + 1 : end]).strip("\n"),
            )
        )
    return result


def fenced(text: str, language: str) -> list[str]:
    """Return the contents of the fenced blocks written in `language`."""
    blocks: list[str] = []
    current: list[str] | None = None
    closing = ""
    for line in text.split("\n"):
        fence = _FENCE.match(line)
        if current is not None and fence and fence[1].startswith(closing) and not fence[2]:
            if closing:
                blocks.append("\n".join(current))
            current, closing = None, ""
        elif current is not None:
            current.append(line)
        elif fence and fence[2].lower() == language:
            current, closing = [], fence[1]
    return blocks


def numbered_items(text: str, first_line: int) -> list[Item]:
    """List the entries of the numbered lists in a text."""
    items: list[Item] = []
    for offset, line in enumerate(text.split("\n")):
        match = _NUMBERED.fullmatch(line)
        if match:
            items.append(Item(number=int(match[1]), line=first_line + offset, text=match[2]))
        elif items and line.strip():
            last = items[-1]
            items[-1] = Item(
                number=last.number, line=last.line, text=f"{last.text}\n{line.strip()}"
            )
    return items


def code_spans(text: str) -> list[tuple[int, str]]:
    """Return the inline code of a text, outside fences, as (zero-based line offset, content)."""
    spans: list[tuple[int, str]] = []
    closing = ""
    for offset, line in enumerate(text.split("\n")):
        fence = _FENCE.match(line)
        if fence and not closing:
            closing = fence[1]
        elif fence and closing and fence[1].startswith(closing) and not fence[2]:
            closing = ""
        elif not closing:
            spans.extend((offset, match[2].strip()) for match in _SPAN.finditer(line))
    return spans


def is_stub(text: str) -> bool:
    """Whether a section says nothing: empty, a placeholder word, or a handful of characters."""
    prose = "\n".join(line for line in text.split("\n") if not _HEADING.fullmatch(line))
    visible = re.sub(r"[\s`*_#>|\-]", "", prose)
    short = len(visible) < 4 * _MIN_VISIBLE
    return len(visible) < _MIN_VISIBLE or (short and _PLACEHOLDER.search(prose) is not None)
