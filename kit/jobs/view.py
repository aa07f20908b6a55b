"""What a stage shows in a notebook cell: a titled table, or a text kept as it is."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any

__all__ = ["View"]


@dataclass(frozen=True)
class View:
    """A titled table, or a text; shows itself as HTML or as plain text.

    Attributes:
        title: One line above it.
        columns: Column names; empty for a text.
        rows: Cells of the table.
        text: The text.
    """

    title: str
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[Any, ...], ...] = ()
    text: str = ""

    def __repr__(self) -> str:
        body = [self.text] if self.text else ["  ".join(map(_shown, row)) for row in self.rows]
        return "\n".join([self.title, *body])

    def _repr_html_(self) -> str:
        head = f"<p><b>{escape(self.title)}</b></p>"
        if not self.columns:
            return f'{head}<pre style="white-space: pre-wrap">{escape(self.text)}</pre>'
        names = "".join(f"<th>{escape(name)}</th>" for name in self.columns)
        rows = "".join(
            "<tr>" + "".join(f"<td>{escape(_shown(value))}</td>" for value in row) + "</tr>"
            for row in self.rows
        )
        return f"{head}<table><thead><tr>{names}</tr></thead><tbody>{rows}</tbody></table>"


def _shown(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
