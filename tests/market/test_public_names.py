from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import kit.market
from kit.errors import CODES


def test_every_public_name_exists_and_is_declared_once() -> None:
    assert sorted(kit.market.__all__) == sorted(set(kit.market.__all__))
    assert set(kit.market._HOME) == set(kit.market.__all__)
    for name in kit.market.__all__:
        module = importlib.import_module(f"kit.market.{kit.market._HOME[name]}")
        assert getattr(kit.market, name) is getattr(module, name)
        assert name in module.__all__
    with pytest.raises(AttributeError):
        kit.market.nothing  # noqa: B018


def test_importing_the_room_loads_nothing_heavy() -> None:
    code = (
        "import sys, kit.market\n"
        "heavy = {'pandas', 'polars', 'numpy', 'exchange_calendars'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "[]"


def test_codes_of_this_room_are_explained() -> None:
    assert {"calendar.unknown", "data.bad_bars", "rules.before_table"} <= set(CODES)
