"""Lint rules on code: it parses, passes the peer's gate, and yields a working engine."""

from __future__ import annotations

from collections.abc import Iterator

from kit.bundle import layout
from kit.bundle.code import load_engine
from kit.bundle.gate import ENTRY_CLASS, violations
from kit.bundle.lint_context import Context, Hit, Rule, line_in
from kit.errors import BundleError

__all__ = ["RULES"]


def _syntax(context: Context) -> Iterator[Hit]:
    for path, error in context.problems.items():
        if error.code == "bundle.syntax":
            yield Hit(path=path, message=error.message, line=line_in(error))


def _gate(context: Context) -> Iterator[Hit]:
    tree = context.trees.get(layout.ENGINE)
    if tree is None:
        return
    entry = context.manifest.execution.entry_class if context.manifest else ENTRY_CLASS
    for violation in violations(tree, entry):
        yield Hit(
            path=layout.ENGINE,
            message=violation.message,
            line=violation.line,
            mend=violation.mend,
        )


def _engine(context: Context) -> Iterator[Hit]:
    tree = context.trees.get(layout.ENGINE)
    if tree is None or context.manifest is None or violations(tree):
        return  # what the gate refuses is not executed
    if context.manifest.execution.entry_class != ENTRY_CLASS:
        return  # manifest.names says so
    try:
        load_engine(context.root, context.manifest.execution)
    except BundleError as error:
        yield Hit(path=layout.ENGINE, message=error.message, line=line_in(error), mend=error.remedy)


RULES = (
    Rule(
        id="code.syntax",
        severity="error",
        what="Every Python file parses.",
        mend="mend the code at that line",
        check=_syntax,
    ),
    Rule(
        id="code.gate",
        severity="error",
        what="code/signal_engine.py passes the gate of Vibe-Trading and imports no neighbour.",
        mend="keep the file to imports, literals, functions and classes without decorators",
        check=_gate,
    ),
    Rule(
        id="code.engine",
        severity="error",
        what="The engine can be made without arguments and has both methods.",
        mend="define what manifest.execution names",
        check=_engine,
    ),
)
