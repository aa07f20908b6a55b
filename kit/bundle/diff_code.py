"""Compare two versions of a Python file: rules (structure) apart from numbers and wording.

Comments, docstrings, blank lines and line numbers do not count. What is left is compared as syntax
trees in which two kinds of literals are taken out: numbers, and texts that are wording. A text
that is an identifier (`"close"`, `"hold"`) is a name written in quotes, so changing it changes the
rule; so does changing True, False or None.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["CodeChange", "changed_names", "compare_code", "method_signature"]


@dataclass(frozen=True, kw_only=True)
class CodeChange:
    """One literal that changed while the structure stayed.

    Attributes:
        name: What the literal is assigned to or passed as; empty when it has no name.
        old: Literal before, as Python writes it.
        new: Literal after.
        line: Line in the new file.
    """

    name: str
    old: str
    new: str
    line: int

    def __str__(self) -> str:
        return f"{self.name or f'line {self.line}:'} {self.old} -> {self.new}"


def compare_code(old: ast.Module, new: ast.Module) -> list[CodeChange] | None:
    """Compare two modules.

    Returns:
        None when the structure differs: a rule changed. Else the literals that differ, which may
        be none at all.
    """
    old, new = _bare(old), _bare(new)
    if _shape(old) != _shape(new):
        return None
    before, after = list(_literals(old)), list(_literals(new))
    return [
        CodeChange(name=name, old=repr(was.value), new=repr(now.value), line=now.lineno)
        for (_, was), (name, now) in zip(before, after, strict=True)
        if was.value != now.value or type(was.value) is not type(now.value)
    ]


def changed_names(old: ast.Module, new: ast.Module) -> list[str]:
    """Return the functions and methods whose structure differs, in the order of the new file."""
    before, after = _definitions(_bare(old)), _definitions(_bare(new))
    return [name for name in {**after, **before} if before.get(name) != after.get(name)]


def _definitions(tree: ast.AST, prefix: str = "") -> dict[str, str]:
    found: dict[str, str] = {}
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            found.update(_definitions(node, f"{prefix}{node.name}."))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found[f"{prefix}{node.name}"] = _shape(node)
    return found


def method_signature(tree: ast.Module, class_name: str, method: str) -> str | None:
    """Return a method's parameters: names, kinds, which have a default. None: no such method."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == class_name:
            for item in node.body:
                if isinstance(item, ast.FunctionDef) and item.name == method:
                    return _signature(copy.deepcopy(item.args))
    return None


def _signature(arguments: ast.arguments) -> str:
    for argument in ast.walk(arguments):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    optional = ast.Name(id="...", ctx=ast.Load())
    arguments.defaults = [optional for _ in arguments.defaults]
    arguments.kw_defaults = [default and optional for default in arguments.kw_defaults]
    return ast.unparse(arguments)


def _bare(tree: ast.Module) -> ast.Module:
    """Drop docstrings, and fold `-1` into one literal."""
    tree = copy.deepcopy(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [item for item in node.body if not _is_text(item)] or [ast.Pass()]
    folded = _Folding().visit(tree)
    assert isinstance(folded, ast.Module)
    return folded


def _is_text(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


class _Folding(ast.NodeTransformer):
    """Turn a signed number into one constant, so that 5 -> -5 is a change of a number."""

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.op, ast.USub) and _is_number(node.operand):
            return ast.copy_location(ast.Constant(value=-_number(node.operand)), node)
        return node


def _is_number(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) in {int, float, complex}


def _number(node: ast.AST) -> complex:
    value = node.value if isinstance(node, ast.Constant) else None
    assert isinstance(value, int | float | complex)
    return value


def _is_loose(node: ast.AST) -> bool:
    """Whether a literal may change without changing the rule: a number, or wording."""
    if _is_number(node):
        return True
    return (
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and not node.value.isidentifier()
    )


def _shape(tree: ast.AST) -> str:
    """Write the tree down with every loose literal replaced by its kind."""

    class Loosened(ast.NodeTransformer):
        def visit_Constant(self, node: ast.Constant) -> ast.AST:
            if not _is_loose(node):
                return node
            return ast.Name(id="<number>" if _is_number(node) else "<text>", ctx=ast.Load())

    return ast.dump(Loosened().visit(copy.deepcopy(tree)))


def _literals(tree: ast.AST) -> Iterator[tuple[str, ast.Constant]]:
    """List the loose literals in tree order, each with the name it goes by."""
    names = _names(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and _is_loose(node):
            yield names.get(id(node), ""), node


def _names(tree: ast.AST) -> dict[int, str]:
    names: dict[int, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            names[id(node.value)] = ast.unparse(node.targets[0])
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            names[id(node.value)] = ast.unparse(node.target)
        elif isinstance(node, ast.keyword) and node.arg:
            names[id(node.value)] = node.arg
        elif isinstance(node, ast.arguments):
            positional = [*node.posonlyargs, *node.args]
            paired = zip(reversed(positional), reversed(node.defaults), strict=False)
            names.update({id(default): argument.arg for argument, default in paired})
            names.update(
                {
                    id(default): argument.arg
                    for argument, default in zip(node.kwonlyargs, node.kw_defaults, strict=True)
                    if default is not None
                }
            )
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant):
                    names[id(value)] = str(key.value)
    return names
