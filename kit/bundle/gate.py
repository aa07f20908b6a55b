"""The gate that Vibe-Trading puts before `code/signal_engine.py`, mirrored so that lint can tell.

The peer (0.1.18) refuses whatever would run while the file is imported: decorators, statements
other than imports, definitions and literal assignments, non-literal defaults, calls in
annotations. It then follows the engine's methods and the functions they call, and refuses network,
processes, dynamic code, environment access and file writes there. Ours is stricter in one point: a
bundle imports no neighbour and, at its top level, nothing beyond the standard library, numpy and
pandas, because a frozen bundle must screen with only those installed.

This is a portability check, not a sandbox: bundle code is trusted like any code one installs.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["ENTRY_CLASS", "Violation", "violations"]

ENTRY_CLASS = "SignalEngine"
"""The class that Vibe-Trading enters, and no other."""

_TOP_LEVEL = {"numpy", "pandas"}
_NEIGHBOURS = {"code", "helpers", "prompts", "signal_engine", "example_signal_engine", "kit"}
_FORBIDDEN_MODULES = {
    "aiohttp", "builtins", "ctypes", "ftplib", "gc", "http", "httpx", "importlib", "marshal",
    "multiprocessing", "pickle", "pkgutil", "requests", "runpy", "shutil", "smtplib", "socket",
    "socketserver", "subprocess", "sys", "telnetlib", "urllib", "urllib2", "urllib3", "webbrowser",
}  # fmt: skip
_FORBIDDEN_OS = {
    "chmod", "chown", "environ", "environb", "fork", "forkpty", "getenv", "link", "popen", "putenv",
    "remove", "removedirs", "rename", "renames", "replace", "rmdir", "startfile", "symlink",
    "system", "truncate", "unlink", "unsetenv",
}  # fmt: skip
_FORBIDDEN_NAMES = {
    "__import__", "breakpoint", "compile", "eval", "exec", "globals", "locals", "vars",
}  # fmt: skip
_FORBIDDEN_ATTRIBUTES = {
    "__base__", "__bases__", "__builtins__", "__class__", "__closure__", "__code__", "__func__",
    "__getattribute__", "__globals__", "__init_subclass__", "__mro__", "__reduce__",
    "__reduce_ex__", "__self__", "__subclasses__", "__subclasshook__",
}  # fmt: skip
_LITERAL_MEND = "move it into a method, or write a plain literal"
_PURE_MEND = "a signal engine reads its frames and config.json and returns signals; drop this"


@dataclass(frozen=True, kw_only=True)
class Violation:
    """One line the gate refuses."""

    line: int
    message: str
    mend: str


def violations(tree: ast.Module, entry_class: str = ENTRY_CLASS) -> list[Violation]:
    """Return everything the gate refuses in a parsed `code/signal_engine.py`, by line.

    Args:
        tree: The parsed file.
        entry_class: Class whose methods are entered.
    """
    found = [*_top_level(tree), *_imports(tree), *_reachable(tree, entry_class)]
    unique = {(item.line, item.message): item for item in found}
    return sorted(unique.values(), key=lambda item: (item.line, item.message))


def _bad(node: ast.AST, message: str, mend: str) -> Violation:
    return Violation(line=getattr(node, "lineno", 1), message=message, mend=mend)


def _top_level(tree: ast.Module) -> Iterator[Violation]:
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom) or _is_inert(node):
            continue
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _function(node)
        elif isinstance(node, ast.ClassDef):
            yield from _class(node)
        else:
            yield _bad(node, f"module-level {_kind(node)} runs on import", _LITERAL_MEND)


def _class(node: ast.ClassDef) -> Iterator[Violation]:
    if node.decorator_list:
        mend = "write the class out; a NamedTuple base serves where a dataclass would"
        yield _bad(node.decorator_list[0], f"class {node.name} has a decorator", mend)
    for base in node.bases:
        if not _is_reference(base):
            yield _bad(base, f"class {node.name} has a computed base", "name the base class")
    for keyword in node.keywords:
        yield _bad(keyword.value, f"class {node.name} has a class keyword", "drop it")
    for child in node.body:
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _function(child)
        elif not _is_inert(child) and not isinstance(child, ast.Pass):
            yield _bad(child, f"{_kind(child)} in the body of class {node.name}", _LITERAL_MEND)


def _function(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Violation]:
    if node.decorator_list:
        mend = "drop it; a plain method serves where a property or staticmethod would"
        yield _bad(node.decorator_list[0], f"{node.name} has a decorator", mend)
    arguments = node.args
    for default in [*arguments.defaults, *(d for d in arguments.kw_defaults if d is not None)]:
        if not _is_literal(default):
            yield _bad(default, f"{node.name} has a default that is no literal", _LITERAL_MEND)
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    starred = [argument for argument in (arguments.vararg, arguments.kwarg) if argument]
    for annotation in [node.returns, *(a.annotation for a in [*named, *starred])]:
        if annotation is not None and not _is_reference(annotation):
            yield _bad(annotation, f"{node.name} has a computed annotation", "name the type")


def _imports(tree: ast.Module) -> Iterator[Violation]:
    top = set(map(id, tree.body))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            yield _bad(node, "a relative import reaches a neighbour file", _neighbour_mend())
            continue
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = [node.module or ""]
        else:
            continue
        for root in (module.split(".")[0] for module in modules):
            if root in _NEIGHBOURS:
                yield _bad(
                    node, f"the import of {root} reaches outside this file", _neighbour_mend()
                )
            elif id(node) in top and root not in _TOP_LEVEL and not _is_standard(root):
                mend = "import it inside the method that needs it, or do without"
                yield _bad(node, f"{root} is not there in a bare pandas environment", mend)


def _neighbour_mend() -> str:
    return "put what the engine needs into code/signal_engine.py; helpers serve the LLM steps only"


def _is_standard(root: str) -> bool:
    return root in sys.stdlib_module_names


def _reachable(tree: ast.Module, entry_class: str) -> Iterator[Violation]:
    """Scan the engine's methods and every module-level function they lead to."""
    definitions = (ast.FunctionDef, ast.AsyncFunctionDef)
    functions = {node.name: node for node in tree.body if isinstance(node, definitions)}
    engine = next(
        (n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == entry_class), None
    )
    waiting: list[ast.AST] = [
        n for n in (engine.body if engine else []) if isinstance(n, definitions)
    ]
    aliases = _forbidden_aliases(tree)
    seen: set[int] = set()
    while waiting:
        function = waiting.pop()
        if id(function) in seen:
            continue
        seen.add(id(function))
        for node in ast.walk(function):
            yield from _forbidden(node)
            if isinstance(node, ast.Name) and node.id in aliases:
                yield _bad(node, f"{node.id} stands for {aliases[node.id]}", _PURE_MEND)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                target = functions.get(node.func.id)
                if target is not None:
                    waiting.append(target)


def _forbidden(node: ast.AST) -> Iterator[Violation]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        names = [alias.name for alias in node.names]
        modules = names if isinstance(node, ast.Import) else [node.module or ""]
        for module in modules:
            if module.split(".")[0] in _FORBIDDEN_MODULES:
                yield _bad(node, f"imports {module}", _PURE_MEND)
        if modules == ["os"] and isinstance(node, ast.ImportFrom):
            for name in filter(_is_forbidden_os, names):
                yield _bad(node, f"imports os.{name}", _PURE_MEND)
    elif isinstance(node, ast.Attribute):
        root = _root_name(node)
        if root in _FORBIDDEN_MODULES:
            yield _bad(node, f"uses {root}.{node.attr}", _PURE_MEND)
        elif root == "os" and _is_forbidden_os(node.attr):
            yield _bad(node, f"uses os.{node.attr}", _PURE_MEND)
        elif node.attr in _FORBIDDEN_ATTRIBUTES:
            yield _bad(node, f"walks the object graph by {node.attr}", _PURE_MEND)
    elif isinstance(node, ast.Name) and node.id in _FORBIDDEN_NAMES:
        yield _bad(node, f"uses {node.id}", _PURE_MEND)
    elif isinstance(node, ast.Call):
        yield from _forbidden_call(node)


def _forbidden_call(node: ast.Call) -> Iterator[Violation]:
    function = node.func
    if isinstance(function, ast.Name) and function.id in {"getattr", "setattr", "delattr"}:
        root = _root_name(node.args[0]) if node.args else None
        if root == "os" or root in _FORBIDDEN_MODULES:
            yield _bad(node, f"{function.id} on {root}", _PURE_MEND)
    is_module_open = (
        isinstance(function, ast.Attribute)
        and function.attr == "open"
        and _root_name(function) in {"io", "os"}
    )
    if is_module_open or (isinstance(function, ast.Name) and function.id == "open"):
        yield from _open_call(node, mode_at=1)
        path = node.args[0] if node.args else None
        fixed = isinstance(path, ast.Constant) and isinstance(path.value, str)
        if not fixed:
            mend = 'read config.json with Path(__file__).resolve().parents[1] / "config.json"'
            yield _bad(node, "open() with a computed path", mend)
        elif str(path.value).startswith(("/", "~", "\\")) or ".." in str(path.value):  # type: ignore[union-attr]
            yield _bad(node, "open() outside the run directory", _PURE_MEND)
    elif isinstance(function, ast.Attribute):
        if function.attr in {"write_text", "write_bytes"}:
            yield _bad(node, f"writes a file by {function.attr}", _PURE_MEND)
        elif function.attr == "open":
            yield from _open_call(node, mode_at=0)


def _open_call(node: ast.Call, *, mode_at: int) -> Iterator[Violation]:
    mode: ast.AST | None = node.args[mode_at] if len(node.args) > mode_at else None
    mode = next((keyword.value for keyword in node.keywords if keyword.arg == "mode"), mode)
    if mode is None:
        return
    if not (isinstance(mode, ast.Constant) and isinstance(mode.value, str)):
        yield _bad(node, "open() with a computed mode", _PURE_MEND)
    elif set(mode.value) & set("wax+"):
        yield _bad(node, f"opens a file for writing ({mode.value})", _PURE_MEND)


def _forbidden_aliases(tree: ast.Module) -> dict[str, str]:
    """Names bound at module level to something that may not be used on the executed path."""
    aliases = {}
    for node in tree.body:
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.asname and alias.name.split(".")[0] in _FORBIDDEN_MODULES:
                    aliases[alias.asname] = alias.name
        elif isinstance(node, ast.ImportFrom):
            root = (node.module or "").split(".")[0]
            for alias in node.names:
                if root in _FORBIDDEN_MODULES or (root == "os" and _is_forbidden_os(alias.name)):
                    aliases[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return aliases


def _is_forbidden_os(name: str) -> bool:
    return name in _FORBIDDEN_OS or name.startswith(("spawn", "exec"))


def _root_name(node: ast.AST) -> str | None:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def _is_inert(node: ast.stmt) -> bool:
    """Docstrings and assignments of plain literals."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    if isinstance(node, ast.Assign):
        return _is_literal(node.value)
    return isinstance(node, ast.AnnAssign) and (node.value is None or _is_literal(node.value))


def _is_literal(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return True
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        operand = node.operand
        return isinstance(operand, ast.Constant) and type(operand.value) in {int, float, complex}
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return all(map(_is_literal, node.elts))
    if isinstance(node, ast.Dict):
        keys = all(key is None or _is_literal(key) for key in node.keys)
        return keys and all(map(_is_literal, node.values))
    return False


def _is_reference(node: ast.AST) -> bool:
    """Whether a type or base expression only names things."""
    if isinstance(node, ast.Name | ast.Attribute | ast.Constant):
        return True
    if isinstance(node, ast.Subscript):
        return _is_reference(node.value) and _is_reference(node.slice)
    if isinstance(node, ast.Tuple):
        return all(map(_is_reference, node.elts))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return _is_reference(node.left) and _is_reference(node.right)
    return False


def _kind(node: ast.stmt) -> str:
    words = {
        "If": "if",
        "Try": "try",
        "Expr": "call or expression",
        "Assign": "computed assignment",
    }
    name = type(node).__name__
    return words.get(name, name.lower())
