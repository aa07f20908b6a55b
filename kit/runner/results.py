"""Whether a notebook left what it promised."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from kit import files, schemas
from kit.card import Card
from kit.errors import KitError
from kit.runner.failure import RunFailure

__all__ = ["CARD_FILE", "check_results", "read_card"]

CARD_FILE = "card.json"
_MAX_SHOWN = 5
# Letters around it would make it part of a word; a Chinese character would not.
_NOT_A_NUMBER = re.compile(r"(?<![A-Za-z])(?:nan|NaN|inf|Infinity|NaT)(?![A-Za-z])")


def check_results(folder: Path, results: Mapping[str, str | None]) -> RunFailure | None:
    """Check each promised file: there, not empty, and valid by its schema where one is named.

    JSON is read strictly, so a NaN anywhere in it is a failure; `.jsonl` is checked line by line.
    """
    for name, schema in results.items():
        path = folder / name
        if not path.is_file() or path.stat().st_size == 0:
            state = "empty" if path.is_file() else "missing"
            return RunFailure(
                kind="missing_result", message=f"every cell ran, but {name} is {state}"
            )
        problem = _problem(path, schema)
        if problem:
            return RunFailure(kind="bad_result", message=f"{name}: {problem}")
    return None


def read_card(folder: Path) -> Card | RunFailure:
    """Read the card a notebook left, or say why there is none that could be sent."""
    path = folder / CARD_FILE
    if not path.is_file():
        return RunFailure(
            kind="missing_result", message=f"every cell ran, but {CARD_FILE} is missing"
        )
    problem = _problem(path, "card")
    if problem:
        return RunFailure(kind="bad_result", message=f"{CARD_FILE}: {problem}")
    card = Card.from_dict(files.read_json(path))
    lines = [card.title, *(line for block in card.blocks for line in block.lines)]
    if not card.blocks or not any(line.strip() for line in lines[1:]):
        return RunFailure(kind="bad_result", message=f"{CARD_FILE}: the card is empty")
    for line in lines:
        if _NOT_A_NUMBER.search(line):
            return RunFailure(
                kind="bad_result", message=f"{CARD_FILE}: a line is no number: {line[:80]!r}"
            )
    return card


def _problem(path: Path, schema: str | None) -> str:
    try:
        if path.suffix == ".jsonl":
            values = files.read_json_lines(path)
        elif path.suffix == ".json":
            values = [files.read_json(path)]
        else:
            return ""
    except KitError as error:
        return error.message
    if schema is None:
        return ""
    found = [str(problem) for value in values for problem in schemas.validate(schema, value)]
    return "; ".join(found[:_MAX_SHOWN])
