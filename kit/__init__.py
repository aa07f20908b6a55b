"""A notebook-first trading research kit.

In a notebook, `import kit` and `%load_ext kit` are all that is needed; `kit.lab` holds what a
researcher touches. Nothing heavy is imported here.
"""

from __future__ import annotations

from importlib import metadata

from kit.errors import KitError
from kit.workspace import Workspace

__all__ = ["KitError", "Workspace", "__version__"]

__version__ = metadata.version("kit")
