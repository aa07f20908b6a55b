"""Keep outside text from becoming markup, a link or a mention on any channel.

The characters that a chat's Markdown gives a meaning are replaced by their full-width twins, on
every channel alike: the texts of two channels then differ by our own bold marks only. WeCom has no
escape character, so replacing is the one thing that works there.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

__all__ = ["bold", "bold_cells", "cell", "clusters", "safe"]

_TWINS = str.maketrans({"*": "＊", "`": "｀", "[": "［", "]": "］", "<": "＜"})
_ENTITY = re.compile(r"&(?=#?\w{1,31};)")
_OPENING = re.compile(r"\A(\s*)([#>])")
_LEADING = {"#": "＃", ">": "＞"}


def safe(text: str) -> str:
    """Return text in which nothing is markup; applying it twice changes nothing more."""
    text = _ENTITY.sub("＆", text.translate(_TWINS))
    return _OPENING.sub(lambda m: m[1] + _LEADING[m[2]], text)


def cell(text: str) -> str:
    """Return text that is safe inside a table cell too."""
    return safe(text).replace("|", "｜")


def bold(text: str) -> str:
    """Return a line in bold, as Markdown writes it; blank text stays as it is."""
    stripped = text.strip()
    return text.replace(stripped, f"**{stripped}**", 1) if stripped else text


def bold_cells(row: str) -> str:
    """Return a table row with each of its cells in bold and every other byte kept."""
    return "|".join(bold(part) for part in row.split("|"))


def clusters(text: str) -> Iterator[str]:
    """Yield the parts of a text that show as one character each.

    Covers what cards meet: combining marks, variation selectors, skin tones, joined emoji and
    flags; not the whole of Unicode's segmentation rules.
    """
    current = ""
    flag = False
    for char in text:
        joined = current.endswith("\u200d") and current != "\u200d"
        regional = "\U0001f1e6" <= char <= "\U0001f1ff"
        if current and (joined or _extends(char) or (regional and flag)):
            current += char
            flag = False
            continue
        if current:
            yield current
        current, flag = char, regional
    if current:
        yield current


def _extends(char: str) -> bool:
    return (
        char == "\u200d"
        or unicodedata.category(char).startswith("M")
        or "\U0001f3fb" <= char <= "\U0001f3ff"
    )
