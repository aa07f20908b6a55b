"""The card: what a person reads, as ordered blocks of plain text lines.

A card holds no markup. Each channel's text is made from it by `kit.card.text`, and `card.json`
keeps it for the record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kit import schemas
from kit.text import visible

__all__ = ["HIGH", "PROVENANCE", "TABLE", "Block", "Card"]

TABLE = "table"
PROVENANCE = "provenance"
HIGH = "high"


@dataclass(frozen=True, kw_only=True)
class Block:
    """A few lines that belong together.

    Attributes:
        kind: What the block is, `snake_case`. `table` rows are never wrapped or cut inside;
            `provenance` stands last and is given up last.
        lines: Plain text, one line each; control and hidden characters are dropped on creation.
        emphasis: `high` is shown bold where the channel can.
        keep: Whether the block outlives others when the text is over its budget.
        bold_rows: Positions of lines that a channel with markup shows bold.
    """

    kind: str
    lines: tuple[str, ...]
    emphasis: str = "normal"
    keep: bool = False
    bold_rows: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        clean = tuple(visible(line).replace("\n", " ") for line in self.lines)
        object.__setattr__(self, "lines", clean)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "kind": self.kind,
            "lines": list(self.lines),
            "emphasis": self.emphasis,
            "keep": self.keep,
            "bold_rows": list(self.bold_rows),
        }


@dataclass(frozen=True, kw_only=True)
class Card:
    """One card.

    Attributes:
        card_id: Short id, the same on every channel and every resend.
        kind: `screen`, `slot`, or `notice` for what concerns no single run.
        title: First line.
        blocks: In reading order.
        mode: How the run's LLM steps were answered: `live`, `offline` or `mixed`.
        meta: Facts for machines (run id, dates, degradation codes); JSON values.
    """

    card_id: str
    kind: str
    title: str
    blocks: tuple[Block, ...]
    mode: str
    meta: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", visible(self.title).replace("\n", " "))

    def block(self, kind: str) -> Block | None:
        """Return the first block of a kind, or None."""
        return next((block for block in self.blocks if block.kind == kind), None)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, which the schema `card` describes."""
        return {
            "card_id": self.card_id,
            "kind": self.kind,
            "title": self.title,
            "mode": self.mode,
            "blocks": [block.to_dict() for block in self.blocks],
            "meta": dict(self.meta),
        }

    @classmethod
    def from_dict(cls, value: Any) -> Card:
        """Read the JSON form.

        Raises:
            DataError: `data.schema`.
        """
        schemas.check("card", value, where="card")
        blocks = tuple(
            Block(
                kind=row["kind"],
                lines=tuple(row["lines"]),
                emphasis=row["emphasis"],
                keep=row["keep"],
                bold_rows=tuple(row["bold_rows"]),
            )
            for row in value["blocks"]
        )
        return cls(
            card_id=value["card_id"],
            kind=value["kind"],
            title=value["title"],
            blocks=blocks,
            mode=value["mode"],
            meta=value["meta"],
        )
