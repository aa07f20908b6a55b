from __future__ import annotations

from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kit.errors import ConfigError, UsageError
from kit.runner import check_parameters, read_contract

Make = Callable[..., Path]


def refused(path: Path) -> ConfigError:
    with pytest.raises(ConfigError) as error:
        read_contract(path)
    assert error.value.remedy
    return error.value


def test_a_good_notebook_is_read(make_notebook: Make) -> None:
    contract = read_contract(make_notebook("x = 1", results={"card.json": "card", "a.csv": None}))
    assert contract.kind == "demo"
    assert contract.results == {"card.json": "card", "a.csv": None}
    assert contract.parameters["additionalProperties"] is False
    assert len(contract.digest) == 64


def test_no_file(tmp_path: Path) -> None:
    assert refused(tmp_path / "no.ipynb").code == "notebook.missing"


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"nbformat": 4, "cells": 3}', '{"a": 1, "a": 2}', "\x00"]
)
def test_what_is_no_notebook_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.ipynb"
    path.write_text(text)
    assert refused(path).code in {"notebook.invalid", "notebook.no_contract"}


@pytest.mark.parametrize("part", [0.01, 0.3, 0.6, 0.99])
def test_a_truncated_notebook_is_refused(make_notebook: Make, part: float) -> None:
    path = make_notebook("x = 1")
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * part)])
    assert refused(path).code == "notebook.invalid"


@pytest.mark.parametrize(
    ("kit", "said"),
    [
        (None, "no `kit` section"),
        ({"kind": "demo", "parameters": {}}, "results: missing"),
        ({"kind": "demo", "parameters": {}, "results": {}}, "parameters.type: missing"),
        (
            {"kind": "demo", "parameters": {"type": "object", "properties": {}}, "result": {}},
            "did you mean 'results'",
        ),
        (
            {
                "kind": "demo",
                "parameters": {"type": "object", "properties": {}},
                "results": {"card.json": "crad"},
            },
            "no schema 'crad' did you mean 'card'",
        ),
        (
            {
                "kind": "demo",
                "parameters": {"type": "object", "properties": {}},
                "results": {"../card.json": None},
            },
            "results",
        ),
    ],
)
def test_a_wrong_promise_is_refused(make_notebook: Make, kit: Any, said: str) -> None:
    error = refused(make_notebook("x = 1", kit=kit))
    assert error.code == "notebook.no_contract"
    assert said in error.message


def test_the_parameters_cell_must_be_one_code_cell(make_notebook: Make, make_cell: Any) -> None:
    end = make_cell("finished = True", "kit-end")
    first, second = make_cell("symbol, top = 1, 2"), make_cell("symbol = 1", "parameters")
    for cells, count in (
        ([first, end], 0),
        ([second, make_cell("top = 1", "parameters"), end], 2),
        ([make_cell("text", "parameters", kind="markdown"), end], 1),
    ):
        error = refused(make_notebook(cells=cells))
        assert error.code == "notebook.parameters_cell"
        assert f"{count} cells" in error.message


@pytest.mark.parametrize(
    ("defaults", "said"),
    [
        ('symbol = "600519"', "top: declared"),
        ('symbol = "600519"\ntop = 3\nextra = 1', "extra: assigned"),
        ("symbol = (", "symbol, top: declared"),
    ],
)
def test_cell_and_schema_name_the_same(make_notebook: Make, defaults: str, said: str) -> None:
    error = refused(make_notebook("x = 1", defaults=defaults))
    assert error.code == "notebook.parameters_cell"
    assert said in error.message


def test_annotated_defaults_count(make_notebook: Make) -> None:
    read_contract(make_notebook("x = 1", defaults='symbol: str = "1"\ntop: int = 2'))


@pytest.mark.parametrize("name", ["two words", "class", "a-b", "x=1;y"])
def test_a_name_that_is_no_identifier_is_refused(make_notebook: Make, name: str) -> None:
    schema = {"type": "object", "properties": {name: {"type": "string"}}}
    assert refused(make_notebook("x", parameters=schema, defaults="")).code == (
        "notebook.parameters_cell"
    )


@pytest.mark.parametrize("where", ["none", "not last", "markdown", "blank", "two"])
def test_the_end_must_be_marked(make_notebook: Make, make_cell: Any, where: str) -> None:
    parameters = make_cell('symbol = "1"\ntop = 1', "parameters")
    cells = {
        "none": [make_cell("x = 1")],
        "not last": [make_cell("x = 1", "kit-end"), make_cell("y = 1")],
        "markdown": [make_cell("x = 1"), make_cell("end", "kit-end", kind="markdown")],
        "blank": [make_cell(" \n", "kit-end")],
        "two": [make_cell("x = 1", "kit-end"), make_cell("y = 1", "kit-end")],
    }[where]
    assert refused(make_notebook(cells=[parameters, *cells])).code == "notebook.no_end"


def parameters(make_notebook: Make, **given: Any) -> dict[str, Any]:
    return check_parameters(read_contract(make_notebook("x = 1")), given, {})


def test_codes_stay_strings(make_notebook: Make) -> None:
    assert parameters(make_notebook, symbol="000001") == {"symbol": "000001"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"symbol": "1", "topp": 3}, "topp: unknown key (did you mean 'top'?)"),
        ({"top": 3}, "symbol: missing"),
        ({"symbol": 1}, "symbol: 1 is not of type 'string'"),
        ({"symbol": "1", "top": "3"}, "top: '3' is not of type 'integer'"),
        ({"symbol": "1", "top": True}, "top: True is not of type 'integer'"),
        ({"symbol": "1", "top": 0}, "top: 0 is less than the minimum of 1"),
        ({"symbol": date(2024, 9, 18)}, "symbol: a datetime.date cannot be passed"),
        ({"symbol": Decimal("1.5")}, "symbol: a decimal.Decimal cannot be passed"),
        ({"symbol": np.float64(1.5)}, "symbol: a numpy.float64 cannot be passed"),
        ({"symbol": np.int64(1)}, "symbol: a numpy.int64 cannot be passed"),
        ({"symbol": np.str_("1")}, "symbol: a numpy.str_ cannot be passed"),
        ({"symbol": Path("x")}, "Path cannot be passed"),
        ({"symbol": ("a",)}, "symbol: a tuple cannot be passed"),
        ({"symbol": float("nan")}, "symbol: nan is not a number JSON knows"),
        ({"symbol": ["a", float("inf")]}, "symbol[1]: inf"),
        ({"symbol": {"a": {1: 2}}}, "symbol.a: key 1 is not a string"),
    ],
)
def test_wrong_parameters_are_named(make_notebook: Make, given: Any, said: str) -> None:
    with pytest.raises(UsageError) as error:
        parameters(make_notebook, **given)
    assert error.value.code == "run.bad_parameter"
    assert said in error.value.message
    assert error.value.remedy == "the notebook takes: symbol, top"


def test_all_problems_come_back_at_once(make_notebook: Make) -> None:
    with pytest.raises(UsageError) as error:
        parameters(make_notebook, top="x", other=1)
    assert len(error.value.details["problems"]) == 3


def test_reserved_names_are_filled_in_only_where_declared(make_notebook: Make) -> None:
    schema = {"type": "object", "properties": {"card_id": {"type": "string"}}}
    path = make_notebook("x = 1", parameters=schema, defaults='card_id = "x"')
    reserved = {"card_id": "abcd1234", "run_id": "r"}
    assert check_parameters(read_contract(path), {}, reserved) == {"card_id": "abcd1234"}
    given = check_parameters(read_contract(path), {"card_id": "mine"}, reserved)
    assert given == {"card_id": "mine"}
