from __future__ import annotations

import subprocess
import sys

import pytest

import kit.render


def test_every_public_name_can_be_had() -> None:
    assert sorted(kit.render.__all__) == list(kit.render.__all__)
    for name in kit.render.__all__:
        assert getattr(kit.render, name).__module__.startswith("kit.render.")
    with pytest.raises(AttributeError):
        _ = kit.render.nothing


def test_a_table_loads_neither_pandas_nor_a_template_engine() -> None:
    code = (
        "import sys; from kit.render import html_table; html_table([(1,)], ['x']);"
        "print([m for m in ('pandas', 'jinja2', 'plotly') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
