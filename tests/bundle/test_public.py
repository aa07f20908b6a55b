from __future__ import annotations

import subprocess
import sys

import pytest

import kit.bundle
from kit.bundle import layout
from kit.errors import CODES


def test_every_public_name_loads() -> None:
    for name in kit.bundle.__all__:
        assert getattr(kit.bundle, name) is not None
    with pytest.raises(AttributeError):
        _ = kit.bundle.no_such_name  # type: ignore[attr-defined]


def test_public_names_are_not_hidden_by_modules_of_the_same_name() -> None:
    folder = layout.__file__.rpartition("/")[0]
    done = subprocess.run(["ls", folder], capture_output=True, text=True, check=True)
    modules = {name.removesuffix(".py") for name in done.stdout.split()}
    assert modules.isdisjoint(kit.bundle.__all__)


def test_listing_strategies_imports_nothing_heavy() -> None:
    script = (
        "import sys; import kit.bundle.registry; heavy = {'pandas', 'yaml', 'jsonschema',"
        " 'litellm', 'vectorbt', 'papermill'}; print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_the_codes_of_this_room_are_explained() -> None:
    for code in ("bundle.tampered", "freeze.version_exists", "registry.unlisted", "draft.exists"):
        assert CODES[code]
