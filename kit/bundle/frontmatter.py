"""YAML front matter, read like JSON: no duplicate keys, no anchors, no surprising types.

Plain YAML turns `no` into False, `2024-01-02` into a date and lets a key stand twice; here only
true/false, null, numbers and text exist, and every key knows its line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from kit.errors import BundleError
from kit.schemas import dotted

__all__ = ["FrontMatter", "split"]

_FENCE = "---"


@dataclass(frozen=True, kw_only=True)
class FrontMatter:
    """A text file's front matter and body.

    Attributes:
        values: The mapping between the two `---` lines.
        lines: Dotted key -> line number in the file.
        body: Everything after the closing `---`.
        body_line: Line number of the body's first line.
    """

    values: Mapping[str, Any]
    lines: Mapping[str, int]
    body: str
    body_line: int


def split(text: str, where: str) -> FrontMatter:
    """Split a text into its front matter and body.

    Args:
        text: The whole file.
        where: The file's name, for messages.

    Raises:
        BundleError: `bundle.front_matter` with `where:line`.
    """
    lines = text.split("\n")
    if lines[0].rstrip() != _FENCE:
        raise _bad(where, 1, "does not start with front matter", "start the file with a --- line")
    end = next((i for i, line in enumerate(lines[1:], start=1) if line.rstrip() == _FENCE), None)
    if end is None:
        raise _bad(where, 1, "front matter is not closed", "close it with a second --- line")
    source = "\n".join(lines[1:end])
    values, places = _load(source, where)
    return FrontMatter(
        values=values,
        lines={key: line + 2 for key, line in places.items()},  # zero-based, after the first fence
        body="\n".join(lines[end + 1 :]),
        body_line=end + 2,
    )


def _load(source: str, where: str) -> tuple[dict[str, Any], dict[str, int]]:
    try:
        loader = _Loader(source)
    except yaml.reader.ReaderError as error:
        line = source.count("\n", 0, error.position) + 2
        problem = f"front matter: {error.reason}"
        raise _bad(where, line, problem, "remove the character") from error
    try:
        node = loader.get_single_node()
        if not isinstance(node, yaml.MappingNode):
            raise _bad(where, 1, "front matter is not a mapping", "write `key: value` lines")
        places: dict[str, int] = {}
        _locate(node, (), places)
        values: dict[str, Any] = loader.construct_document(node)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error)
        line = mark.line + 2 if mark else 1
        raise _bad(
            where, line, f"front matter: {problem}", "mend the YAML at that place"
        ) from error
    except RecursionError as error:
        raise _bad(where, 1, "front matter is nested too deeply", "flatten it") from error
    finally:
        loader.dispose()
    return values, places


def _locate(node: yaml.Node, path: tuple[str | int, ...], places: dict[str, int]) -> None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            inner = (*path, str(key.value))
            places[dotted(inner)] = key.start_mark.line
            _locate(value, inner, places)
    elif isinstance(node, yaml.SequenceNode):
        for position, item in enumerate(node.value):
            places[dotted((*path, position))] = item.start_mark.line
            _locate(item, (*path, position), places)


class _Loader(yaml.SafeLoader):
    """`SafeLoader` without duplicate keys, anchors, and the types JSON does not have."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            problem = "anchors and aliases are not allowed"
            raise yaml.constructor.ConstructorError(None, None, problem, mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                problem = f"the key {key!r} is not text"
            elif key in seen:
                problem = f"the key {key!r} stands twice"
            else:
                seen.add(key)
                continue
            raise yaml.constructor.ConstructorError(None, None, problem, key_node.start_mark)
        return super().construct_mapping(node, deep=deep)


_KEPT_TAGS = {"tag:yaml.org,2002:null", "tag:yaml.org,2002:int", "tag:yaml.org,2002:float"}
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag in _KEPT_TAGS]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(?:true|false)$"), list("tf"))
_Loader.yaml_constructors = {
    tag: constructor
    for tag, constructor in yaml.SafeLoader.yaml_constructors.items()
    if tag is None
    or tag.rsplit(":", 1)[-1] in {"null", "bool", "int", "float", "str", "seq", "map"}
}


def _bad(where: str, line: int, problem: str, mend: str) -> BundleError:
    return BundleError("bundle.front_matter", problem, where=f"{where}:{line}", remedy=mend)
