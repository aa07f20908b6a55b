"""One HTML table from rows of plain values, everything escaped."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from numbers import Integral, Real

from kit.render.numbers import MISSING, format_number

__all__ = ["html_table"]

_SIDES = {"l": "left", "r": "right", "c": "center"}


def html_table(
    rows: Iterable[Sequence[object]], headers: Sequence[object], align: str | None = None
) -> str:
    """Return a `<table>`; numbers are formatted, and text is escaped.

    Alignment is written on the cells themselves, so that a table looks right in a notebook, where
    the style sheet of `page` is absent.

    Args:
        rows: Cells by row: None (a dash), bool, int, float, or anything with a text form. A row
            shorter than the headers is filled up with blanks.
        headers: Titles of the columns.
        align: One letter a column, `l`, `r` or `c`; by default columns of numbers stand right.

    Raises:
        ValueError: A row is longer than the headers, or `align` does not fit them.
    """
    body = [tuple(row) for row in rows]
    width = len(headers)
    for place, row in enumerate(body):
        if len(row) > width:
            raise ValueError(f"row {place} has {len(row)} cells, the table {width} columns")
    sides = _sides(body, width) if align is None else [_SIDES.get(letter, "") for letter in align]
    if len(sides) != width or not all(sides):
        raise ValueError(f"align must be {width} letters of l, r and c, not {align!r}")
    lines = ['<table class="kit-table">', "<thead><tr>"]
    lines += [
        f'<th scope="col" style="text-align:{side}">{escape(str(header))}</th>'
        for header, side in zip(headers, sides, strict=True)
    ]
    lines.append("</tr></thead>")
    lines.append("<tbody>")
    for row in body:
        cells = [*map(_text, row), *[""] * (width - len(row))]
        lines.append(
            "<tr>"
            + "".join(
                f'<td style="text-align:{side}">{escape(cell)}</td>'
                for cell, side in zip(cells, sides, strict=True)
            )
            + "</tr>"
        )
    lines += ["</tbody>", "</table>"]
    return "\n".join(lines)


def _sides(rows: Sequence[Sequence[object]], width: int) -> list[str]:
    """Return right for columns that hold nothing but numbers, already written ones included."""
    sides = []
    for place in range(width):
        cells = [row[place] for row in rows if place < len(row) and row[place] is not None]
        numbers = [cell for cell in cells if cell not in ("", MISSING)]
        sides.append("right" if numbers and all(map(_numeric, numbers)) else "left")
    return sides


def _numeric(cell: object) -> bool:
    if isinstance(cell, bool):
        return False
    if isinstance(cell, Real):
        return True
    if not isinstance(cell, str):
        return False
    try:
        float(cell.strip().rstrip("%").replace(",", ""))
    except ValueError:
        return False
    # Codes such as 000001 are names, although they look like numbers.
    bare = cell.strip().lstrip("+-")
    return not (len(bare) > 1 and bare[0] == "0" and bare[1].isdigit()) and "e" not in bare.lower()


def _text(cell: object) -> str:
    if cell is None:
        return MISSING
    if isinstance(cell, bool):
        return "是" if cell else "否"
    if isinstance(cell, Integral):
        return f"{int(cell):,}"
    if isinstance(cell, Real):
        value = float(cell)
        return format_number(value) if math.isfinite(value) else MISSING
    return str(cell)
