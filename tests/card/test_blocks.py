"""Cards as data."""

from __future__ import annotations

import json

import pytest

from kit import schemas
from kit.card import Block, Card
from kit.errors import DataError


def card(**changes: object) -> Card:
    values: dict[str, object] = {
        "card_id": "a1b2c3d4",
        "kind": "screen",
        "title": "年线回踩@0.3.1 9月19日(周四)",
        "blocks": (
            Block(kind="conclusion", lines=("3 只候选",), emphasis="high"),
            Block(kind="table", lines=("| 代码 | 股 |", "| 600000 | 100 |"), bold_rows=(1,)),
            Block(kind="provenance", lines=("运行 r-1",)),
        ),
        "mode": "offline",
        "meta": {"run_id": "r-1"},
    }
    return Card(**{**values, **changes})  # type: ignore[arg-type]


def test_json_form_round_trips() -> None:
    value = card().to_dict()
    assert schemas.validate("card", value) == []
    assert Card.from_dict(json.loads(json.dumps(value))) == card()


@pytest.mark.parametrize(
    "change",
    [
        {"title": "  "},
        {"blocks": ()},
        {"blocks": (Block(kind="x", lines=()),)},
        {"kind": "other"},
        {"mode": "maybe"},
        {"card_id": "a b"},
        {"card_id": "x"},
    ],
)
def test_an_empty_or_odd_card_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(DataError):
        Card.from_dict(card(**change).to_dict())


def test_lines_are_single_and_visible() -> None:
    block = Block(kind="x", lines=("a\r\nb\x07c\u202ed\u2028e\ud800f\tg",))
    assert block.lines == ("a bcd ef g",)
    assert card(title="a\nb\x00").title == "a b"


def test_spaces_of_a_table_row_stay() -> None:
    row = "|  600000 |   10.02 |"
    assert Block(kind="table", lines=(row,)).lines == (row,)


def test_a_block_is_found_by_kind() -> None:
    found = card().block("conclusion")
    assert found is not None
    assert found.lines == ("3 只候选",)
    assert card().block("nothing") is None
