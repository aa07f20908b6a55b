"""A notebook-first trading research kit.

In a notebook, `import kit` and `%load_ext kit` are all that is needed; `kit.lab` holds what a
researcher touches. Nothing heavy is imported here.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from kit.errors import KitError
from kit.workspace import Workspace

__all__ = ["KitError", "Workspace", "__version__"]


def __getattr__(name: str) -> str:
    if name == "__version__":
        # Reading it costs as much as the rest of `kit --help`.
        version: str = import_module("importlib.metadata").version("kit")
        return version
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def load_ipython_extension(ipython: Any) -> None:
    """Register the magics: what `%load_ext kit` calls."""
    # By name: an import here would hang the top floor below every other one.
    import_module("kit.lab.magics").load(ipython)
