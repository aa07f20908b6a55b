from __future__ import annotations

import ast
import sys
from pathlib import Path

import pandas as pd
import pytest

from kit.bundle.code import load_callable, load_engine, load_module
from kit.bundle.gate import violations
from kit.bundle.manifest import Execution
from kit.errors import BundleError

EXECUTION = Execution(
    entry_module="code/signal_engine.py",
    entry_class="SignalEngine",
    entry_method="generate",
    screen_method="screen_today",
    fill="next_open",
)


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def test_loading_leaves_no_trace(draft: Path) -> None:
    path, modules = list(sys.path), set(sys.modules)
    before = set(draft.rglob("*"))
    first = load_engine(draft, EXECUTION)
    second = load_engine(draft, EXECUTION)
    assert type(first) is not type(second)
    assert sys.path == path
    assert not {name for name in set(sys.modules) - modules if "bundle" in name}
    assert set(draft.rglob("*")) == before


def test_the_engine_screens_by_hand_calculation(draft: Path) -> None:
    days = pd.bdate_range("2024-01-01", periods=20)
    flat = pd.DataFrame({"close": [10.0] * 19 + [10.2]}, index=days)  # mean 10.01
    high = pd.DataFrame({"close": [10.0] * 19 + [12.0]}, index=days)  # mean 10.1, 18.8 % above
    picks = load_engine(draft, EXECUTION).screen_today({"A": flat, "B": high}, days[-1].date())
    assert [pick.symbol for pick in picks] == ["A"]
    assert picks[0].score == pytest.approx(0.19 / 10.01)
    assert picks[0].matched_rules == ["near_average"]


def test_dataclasses_with_text_annotations_load(tmp_path: Path) -> None:
    write(
        tmp_path,
        "code/helpers/x.py",
        "from __future__ import annotations\nfrom dataclasses import dataclass\n\n"
        "@dataclass\nclass A:\n    x: int = 1\n\n\ndef f(inputs):\n    return {'x': A().x}\n",
    )
    assert load_callable(tmp_path, "code/helpers/x.py::f")({}) == {"x": 1}


@pytest.mark.parametrize(
    ("text", "code", "line"),
    [
        ("def f(:\n", "bundle.syntax", 1),
        ("x = 1\n  y = 2\n", "bundle.syntax", 2),
        ("x = 1\nimport no_such_module_here\n", "bundle.import_failed", 2),
        ("x = 1\n\n1 / 0\n", "bundle.import_failed", 3),
        ("import sys\nsys.exit(0)\n", "bundle.import_failed", 2),
        ("from .neighbour import y\n", "bundle.import_failed", 1),
        ("x = 1\r\n", "bundle.text", 1),
        ("x = '\0'\n", "bundle.text", 1),
    ],
)
def test_code_that_does_not_load_names_its_line(
    tmp_path: Path, text: str, code: str, line: int
) -> None:
    path = tmp_path / "code" / "x.py"
    path.parent.mkdir()
    path.write_bytes(text.encode())
    with pytest.raises(BundleError) as error:
        load_module(tmp_path, "code/x.py")
    assert error.value.code == code
    assert error.value.where.endswith(f"code/x.py:{line}")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("class SignalEngin:\n    pass\n", "did you mean 'SignalEngin'"),
        ("SignalEngine = 1\n", "no class"),
        ("class SignalEngine:\n    def __init__(self, x):\n        pass\n", "failed"),
        ("class SignalEngine:\n    def generate(self, d):\n        pass\n", "screen_today"),
    ],
)
def test_an_engine_that_cannot_be_made_is_refused(tmp_path: Path, text: str, word: str) -> None:
    write(tmp_path, "code/signal_engine.py", text)
    with pytest.raises(BundleError, match=word) as error:
        load_engine(tmp_path, EXECUTION)
    assert error.value.code == "bundle.no_engine"


@pytest.mark.parametrize(
    "reference",
    [
        "code/helpers/x.py",
        "helpers/x.py::f",
        "code/helpers/x.py::g",
        "../x.py::f",
        "code/../../x.py::f",
    ],
)
def test_a_callable_that_is_none_is_refused(tmp_path: Path, reference: str) -> None:
    write(tmp_path, "code/helpers/x.py", "def f(inputs):\n    return {}\n")
    with pytest.raises(BundleError):
        load_callable(tmp_path, reference)


GOOD = '''\
"""Docs."""
from __future__ import annotations
import json
from pathlib import Path
import numpy as np
from typing import NamedTuple

LIMIT: int = -7
TABLE = {"a": [1, 2], "b": (None, True)}


class Pick(NamedTuple):
    symbol: str
    fields: dict[str, float] | None = None


def helper(x: np.ndarray, *, n: int = 3) -> "np.ndarray":
    import polars as pl
    return pl.Series(x).to_numpy()


class SignalEngine:
    """More."""
    NAME = "x"

    def generate(self, data_map):
        return helper(data_map)

    def params(self):
        return json.loads((Path(__file__).parents[1] / "config.json").read_text())
'''


def test_the_gate_lets_plain_engines_pass() -> None:
    assert violations(ast.parse(GOOD)) == []


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("if True:\n    pass", "if"),
        ("try:\n    pass\nexcept ValueError:\n    pass", "try"),
        ("print('x')", "call"),
        ("X = int('3')", "assignment"),
        ("X: int = len('a')", "annassign"),
        ("for i in (1, 2):\n    pass", "for"),
        ("import requests", "bare pandas"),
        ("import polars as pl", "bare pandas"),
        ("from helpers.x import y", "outside"),
        ("from code.helpers.x import y", "outside"),
        ("from . import y", "neighbour"),
        ("import kit", "outside"),
        ("def f():\n    from signal_engine import x", "outside"),
        ("import functools\n@functools.cache\ndef f():\n    pass", "decorator"),
        ("class A:\n    @property\n    def x(self):\n        pass", "decorator"),
        ("import dataclasses\n@dataclasses.dataclass\nclass A:\n    pass", "decorator"),
        ("class A(type('B', (), {})):\n    pass", "base"),
        ("class A(metaclass=type):\n    pass", "keyword"),
        ("class A:\n    x = [i for i in (1,)]", "body"),
        ("def f(x=[].copy()):\n    pass", "default"),
        ("def f(x: print('hi')):\n    pass", "annotation"),
        ("def f() -> [1].copy():\n    pass", "annotation"),
    ],
)
def test_the_gate_refuses_what_runs_on_import(line: str, word: str) -> None:
    found = violations(ast.parse(f"{GOOD}\n{line}\n"))
    assert found
    assert any(word in item.message for item in found), found
    assert all(item.line > GOOD.count("\n") for item in found)


@pytest.mark.parametrize(
    "line",
    [
        "import socket",
        "import os; os.system('x')",
        "import os; os.environ['HOME']",
        "from os import remove",
        "eval('1')",
        "__import__('os')",
        "().__class__.__mro__",
        "getattr(os, 'sys' + 'tem')",
        "open('out.txt', 'w')",
        "open('/etc/passwd')",
        "open('../x')",
        "open(self.path)",
        "open('x', mode=self.mode)",
        "Path('x').write_text('y')",
        "Path('x').open('a')",
        "sk.socket()",
        "post('x')",
        "reached()",
    ],
)
def test_the_gate_follows_what_the_engine_runs(line: str) -> None:
    module = (
        "import os\nfrom pathlib import Path\nimport socket as sk\n"
        "from os import remove as post\n\n\n"
        "def reached():\n    exec('x')\n\n\ndef never():\n    exec('x')\n\n\n"
        f"class SignalEngine:\n    def generate(self, d):\n        {line}\n"
    )
    assert violations(ast.parse(module))


def test_the_gate_leaves_unreached_functions_alone() -> None:
    module = (
        "def never():\n    exec('x')\n\n\n"
        "class SignalEngine:\n    def generate(self, d):\n        return {}\n"
    )
    assert violations(ast.parse(module)) == []
