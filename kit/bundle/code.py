"""Load the Python code of a bundle: compiled from its source, nothing written, nothing left behind.

No bytecode lands in the bundle, `sys.path` is not touched, and a module stands in `sys.modules`
only while its own top level runs (dataclasses look themselves up there). Two versions of one
strategy can therefore be loaded side by side.
"""

from __future__ import annotations

import itertools
import sys
import traceback
from collections.abc import Callable, Mapping
from datetime import date
from functools import lru_cache
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

from kit.bundle.layout import inside, label
from kit.bundle.manifest import Execution
from kit.bundle.text import read_bundle_text
from kit.errors import BundleError
from kit.schemas import suggestion

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["PickLike", "SignalEngine", "load_callable", "load_engine", "load_module"]

_serial = itertools.count(1)


@runtime_checkable
class PickLike(Protocol):
    """What `screen_today` returns for one stock; a NamedTuple in the bundle's own code."""

    @property
    def symbol(self) -> str:
        """Exchange symbol, such as `600000.SH`."""
        ...

    @property
    def score(self) -> float:
        """Value the picks are ranked by."""
        ...

    @property
    def fields(self) -> Mapping[str, float]:
        """Numbers the explanation may quote."""
        ...

    @property
    def matched_rules(self) -> list[str]:
        """Ids of the rules that fired."""
        ...


class SignalEngine(Protocol):
    """The interface of a bundle's signal code.

    Optional vectorised forms, used when present: `generate_panel(panel)` and
    `screen_panel(panel, today, sector_filter, limit)`.
    """

    def generate(self, data_map: Mapping[str, pd.DataFrame]) -> dict[str, pd.Series]:
        """Return target weights in [-1, 1] for each bar of each symbol."""
        ...

    def screen_today(
        self,
        data_map: Mapping[str, pd.DataFrame],
        today: date,
        sector_filter: list[str] | None = None,
        limit: int = 7,
    ) -> list[PickLike]:
        """Return at most `limit` picks for the session `today`, best first."""
        ...


def load_module(root: Path, relative: str) -> ModuleType:
    """Execute one Python file of a bundle and return its module.

    Args:
        root: Directory of the bundle.
        relative: Path of the file in it, such as `code/signal_engine.py`.

    Raises:
        BundleError: `bundle.syntax` or `bundle.import_failed`, with `file:line` in `where`;
            `bundle.text`, `bundle.missing_file`, `bundle.path_escape`.
    """
    source = read_bundle_text(root, relative)
    path = inside(root, relative)
    where = label(root, relative)
    try:
        compiled = _compiled(source, str(path))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None) or 1
        raise BundleError(
            "bundle.syntax",
            f"Python syntax: {getattr(error, 'msg', error) or 'nested too deeply'}",
            where=f"{where}:{line}",
            remedy="mend the code at that line",
        ) from error
    name = f"_kit_bundle_{next(_serial)}_{path.stem}"
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module
    try:
        exec(compiled, module.__dict__)  # noqa: S102 - running the strategy's code is the point
    except (Exception, SystemExit) as error:  # its top level may raise anything at all
        raise BundleError(
            "bundle.import_failed",
            f"importing {relative} failed: {type(error).__name__}: {error}",
            where=f"{where}:{error_line(error, path)}",
            remedy="a bundle file imports only installed packages, never its neighbours",
        ) from error
    finally:
        sys.modules.pop(name, None)
    return module


@lru_cache(maxsize=128)
def _compiled(source: str, path: str) -> CodeType:
    # The guards load an engine hundreds of times: a fresh module each, of one and the same code.
    return compile(source, path, "exec", dont_inherit=True)


def load_engine(root: Path, execution: Execution) -> SignalEngine:
    """Instantiate the signal engine of a bundle and check that its methods exist.

    Raises:
        BundleError: `bundle.no_engine` when the class cannot be made or lacks a method; see also
            `load_module`.
    """
    module = load_module(root, execution.entry_module)
    where = label(root, execution.entry_module)
    kind = getattr(module, execution.entry_class, None)
    if not isinstance(kind, type):
        classes = [name for name, value in vars(module).items() if isinstance(value, type)]
        raise BundleError(
            "bundle.no_engine",
            f"there is no class {execution.entry_class}; "
            f"{suggestion(execution.entry_class, classes)}".rstrip("; "),
            where=where,
            remedy="define the class, or mend execution.entry_class in manifest.json",
        )
    try:
        engine = kind()
    except (Exception, SystemExit) as error:  # its constructor may raise anything
        first = getattr(getattr(vars(kind).get("__init__"), "__code__", None), "co_firstlineno", 1)
        raise BundleError(
            "bundle.no_engine",
            f"{execution.entry_class}() failed: {type(error).__name__}: {error}",
            where=f"{where}:{error_line(error, inside(root, execution.entry_module), first)}",
            remedy="the constructor takes no required argument and does no work",
        ) from error
    for method in (execution.entry_method, execution.screen_method):
        if not callable(getattr(engine, method, None)):
            raise BundleError(
                "bundle.no_engine",
                f"{execution.entry_class} has no method {method}",
                where=where,
                remedy=f"define {method}, or mend `execution` in manifest.json",
            )
    return cast("SignalEngine", engine)


def load_callable(root: Path, reference: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Load the function that `code/helpers/x.py::function` names.

    Raises:
        BundleError: `bundle.no_callable` when the reference is malformed or names no function; see
            also `load_module`.
    """
    relative, _, name = reference.partition("::")
    if not name or not relative.startswith("code/"):
        raise BundleError(
            "bundle.no_callable",
            f"{reference!r} does not name a function of the bundle",
            where=label(root),
            remedy="write it as code/helpers/x.py::function",
        )
    module = load_module(root, relative)
    function = getattr(module, name, None)
    if not callable(function):
        known = [key for key, value in vars(module).items() if callable(value)]
        raise BundleError(
            "bundle.no_callable",
            f"{relative} has no function {name}; {suggestion(name, known)}".rstrip("; "),
            where=label(root, relative),
            remedy="define it there, or mend the prompt that names it",
        )
    return cast("Callable[[dict[str, Any]], dict[str, Any]]", function)


def error_line(error: BaseException, path: Path, default: int = 1) -> int:
    """Return the innermost line of a file that an error passed through; else the default."""
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == str(path) and frame.lineno
    ]
    return lines[-1] if lines else default
