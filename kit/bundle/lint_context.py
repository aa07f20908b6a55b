"""What lint rules look at: the parts of a bundle that could be read, and what could not."""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

from kit.bundle import layout
from kit.bundle.findings import Severity
from kit.bundle.manifest import Manifest
from kit.bundle.model import read_config
from kit.bundle.positions import json_lines, line_of
from kit.bundle.prompt import Prompt
from kit.bundle.skill import SkillDoc
from kit.bundle.text import read_bundle_json, read_bundle_text
from kit.errors import BundleError

__all__ = ["Context", "Hit", "Rule", "line_in"]

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Hit:
    """What a rule found, before it becomes a `Finding`; `mend` overrides the rule's own."""

    path: str
    message: str
    line: int | None = None
    mend: str | None = None


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One lint rule.

    Attributes:
        id: Stable id, `area.name`.
        severity: `error` blocks freeze.
        what: What it looks for, one line.
        mend: How to mend a finding in general.
        check: Returns the hits.
    """

    id: str
    severity: Severity
    what: str
    mend: str
    check: Callable[[Context], Iterable[Hit]]


class Context:
    """A bundle under lint. Parts that cannot be read are None; `problems` says why.

    Args:
        root: Directory of the bundle.
        draft: Whether it is linted as a draft (version and generated files are exempt).
        index: The parsed INDEX.json, for the uniqueness of the id; None when there is none.
    """

    def __init__(self, root: Path, *, draft: bool, index: Mapping[str, Any] | None = None) -> None:
        self.root = root
        self.draft = draft
        self.index = index
        self._problems: dict[str, BundleError] = {}

    @property
    def problems(self) -> dict[str, BundleError]:
        """File -> the error that kept it from being read, after everything has been tried."""
        _ = (self.manifest, self.config, self.skill, self.prompts, self.trees)
        return self._problems

    @cached_property
    def tree(self) -> layout.Tree:
        """What stands in the directory."""
        return layout.walk(self.root, junk=not self.draft)

    @property
    def strategy_id(self) -> str:
        """Name of the strategy's directory."""
        return self.root.parent.name

    @cached_property
    def manifest_raw(self) -> Any:
        """`manifest.json` as JSON."""
        return self._read(layout.MANIFEST, lambda: read_bundle_json(self.root, layout.MANIFEST))

    @cached_property
    def manifest(self) -> Manifest | None:
        """`manifest.json`, when its shape is right but for keys nobody knows.

        A typo beside an otherwise sound manifest must not hide what the other rules have to say.
        """
        raw = self.manifest_raw
        if layout.MANIFEST in self._problems:
            return None
        found = self._read(layout.MANIFEST, lambda: Manifest.from_dict(raw))
        error = self._problems.get(layout.MANIFEST)
        if found is not None or error is None:
            return found
        pruned = copy.deepcopy(raw)
        for problem in error.details.get("problems", ()):
            if problem["message"] == "unknown key":
                _remove(pruned, problem["path"])
        return self._read(layout.MANIFEST, lambda: Manifest.from_dict(pruned))

    @cached_property
    def config(self) -> dict[str, Any] | None:
        """`config.json`, when its shape is right."""
        return self._read(layout.CONFIG, lambda: read_config(self.root))

    @cached_property
    def skill(self) -> SkillDoc | None:
        """`SKILL.md`, when it parses."""
        return self._read(layout.SKILL, lambda: SkillDoc.read(self.root))

    @cached_property
    def prompts(self) -> dict[str, Prompt]:
        """Path -> prompt, for every `prompts/*.md` that parses."""
        found = {}
        for path in self.tree.files:
            if re.fullmatch(r"prompts/[^/]+\.md", path):
                prompt = self._read(path, partial(Prompt.read, self.root, path))
                if prompt is not None:
                    found[path] = prompt
        return found

    @cached_property
    def trees(self) -> dict[str, ast.Module]:
        """Path -> syntax tree, for every Python file that compiles."""
        found = {}
        for path in self.tree.files:
            if path.endswith(".py"):
                tree = self._read(path, partial(self._parse, path))
                if tree is not None:
                    found[path] = tree
        return found

    def line(self, path: str, dotted: str) -> int | None:
        """Return the line of a dotted path in a JSON file of the bundle."""
        try:
            return line_of(json_lines(read_bundle_text(self.root, path)), dotted)
        except (BundleError, ValueError, IndexError, RecursionError):
            return None

    def _parse(self, path: str) -> ast.Module:
        source = read_bundle_text(self.root, path)
        try:
            return ast.parse(source, path)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise BundleError(
                "bundle.syntax",
                f"Python syntax: {getattr(error, 'msg', error) or 'nested too deeply'}",
                where=f"{path}:{getattr(error, 'lineno', None) or 1}",
                remedy="mend the code at that line",
            ) from error

    def _read(self, path: str, read: Callable[[], T]) -> T | None:
        try:
            return read()
        except BundleError as error:
            self._problems.setdefault(path, error)
            return None


def _remove(value: Any, dotted: str) -> None:
    """Delete the key at a dotted path, where it can be reached."""
    *parents, last = re.findall(r"[^.\[\]]+", dotted)
    try:
        for part in parents:
            value = value[int(part) if isinstance(value, list) else part]
        del value[last]
    except (KeyError, IndexError, TypeError, ValueError):
        return  # a key with dots in its name stays, and so does the manifest unread


def line_in(error: BundleError) -> int | None:
    """Return the line that an error's `where` ends with."""
    match = re.search(r":(\d+)$", error.where)
    return int(match[1]) if match else None
