"""What servers say of themselves, and what their tools answer, in plain values."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from kit import files, schemas
from kit.errors import DataError, McpError
from kit.mcp.introspect import local_reference, size_problem
from kit.text import clip, one_line

__all__ = ["ResourceLink", "ServerInfo", "ToolAnswer", "ToolInfo", "read_answer", "read_tools"]


@dataclass(frozen=True, kw_only=True)
class ToolInfo:
    """One tool, as its server lists it.

    Attributes:
        name: Its name.
        description: Its description, possibly empty.
        declared: Its `inputSchema` and `outputSchema`, whatever they are.
        annotations: Hints such as `readOnlyHint`.
        meta: The tool's `_meta`.
        odd: What is wrong with the entry itself; empty when nothing is.
    """

    name: str
    description: str
    declared: Mapping[str, Any]
    annotations: Mapping[str, Any]
    meta: Mapping[str, Any]
    odd: str = ""

    @property
    def input_schema(self) -> Mapping[str, Any]:
        """JSON Schema of its arguments; `{}` where the declared one is unusable."""
        return {} if "inputSchema" in self._wrong else self.declared["inputSchema"]

    @property
    def output_schema(self) -> Mapping[str, Any] | None:
        """JSON Schema of its structured answer; None where there is none, or an unusable one."""
        return None if "outputSchema" in self._wrong else self.declared.get("outputSchema")

    @property
    def problem(self) -> str:
        """What is wrong with the entry or a schema; empty when nothing is."""
        wrong = [f"{key}: {reason}" for key, reason in self._wrong.items()]
        return "; ".join([*filter(None, [self.odd]), *wrong])

    @cached_property
    def _wrong(self) -> Mapping[str, str]:
        # Looked at when it is asked for: of thousands of tools a run uses three.
        return {
            key: reason
            for key in ("inputSchema", "outputSchema")
            if (key == "inputSchema" or self.declared.get(key) is not None)
            and (reason := _schema_problem(self.declared.get(key)))
        }


@dataclass(frozen=True, kw_only=True)
class ServerInfo:
    """One running server.

    Attributes:
        name: Its name in `config/mcp.json`.
        channel: Its channel there, or None.
        server_name: What it calls itself.
        version: The version it declares; may be empty.
        version_is_sdk: Whether that version is only the one of the library it is written with,
            see `kit.mcp.versions`.
        protocol_version: The protocol revision that was agreed on.
        tools: Its tools, each name once (the first entry stands), in the order listed.
        duplicates: Names that it lists more than once; `pool.call` refuses them.
        stderr_tail: The last lines it wrote to stderr, secrets masked.
        problems: Everything odd that did not stop it: lines on stdout that are no message, names
            listed twice. What is wrong with a tool stands at the tool.
    """

    name: str
    channel: str | None
    server_name: str
    version: str
    version_is_sdk: bool
    protocol_version: str
    tools: tuple[ToolInfo, ...]
    duplicates: tuple[str, ...] = ()
    stderr_tail: str = ""
    problems: tuple[str, ...] = ()

    def tool(self, name: str) -> ToolInfo | None:
        """Return the tool of that name, or None."""
        return next((tool for tool in self.tools if tool.name == name), None)


@dataclass(frozen=True, kw_only=True)
class ResourceLink:
    """Data that a tool points to instead of sending it; `pool.fetch` gets it.

    Attributes:
        uri: A `file:` URI on this machine, or one that the server resolves.
        name: Its name.
        mime_type: Its media type, possibly empty.
        meta: The link's `_meta`, for example the schema of the rows behind it.
    """

    uri: str
    name: str = ""
    mime_type: str = ""
    meta: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class ToolAnswer:
    """What a tool answered.

    Attributes:
        server: The server's name.
        tool: The tool's name.
        payload: The structured answer; else the JSON that stands in its text; None where it is
            neither. `{"result": "<JSON text>"}`, which a library makes of a tool that returns
            text, counts as that text. With a recorder on the pool, reading it is observed.
        text: Its text blocks, joined by line ends.
        links: Resource links among its content.
        structured: Whether `payload` came as structured content.
        problem: Why there is no payload; empty where there is one.
    """

    server: str
    tool: str
    payload: Any
    text: str
    links: tuple[ResourceLink, ...] = ()
    structured: bool = False
    problem: str = ""

    def require_payload(self) -> Any:
        """Return `payload`.

        Raises:
            McpError: `mcp.no_payload` where the answer is neither structured nor JSON.
        """
        if self.problem:
            raise McpError(
                "mcp.no_payload",
                f"{self.server}.{self.tool} answered with no data: {self.problem}",
                where=f"{self.server}.{self.tool}",
                remedy="read `text`, or use a tool that answers with JSON",
                details={"server": self.server, "tool": self.tool},
            )
        return self.payload


def read_tools(entries: list[Any]) -> tuple[tuple[ToolInfo, ...], tuple[str, ...]]:
    """Read a tool list leniently: one bad entry spoils itself only.

    Returns:
        The tools, each name once, and the names that stand more than once.
    """
    tools: dict[str, ToolInfo] = {}
    counts: Counter[str] = Counter()
    for place, entry in enumerate(entries):
        name, odd = entry.get("name") if isinstance(entry, dict) else None, ""
        if not isinstance(name, str) or not name:
            name, entry, odd = f"#{place}", {"inputSchema": {}}, "an entry without a name"
        counts[name] += 1
        tools.setdefault(name, _tool(name, entry, odd))
    return tuple(tools.values()), tuple(name for name, count in counts.items() if count > 1)


def _tool(name: str, entry: Mapping[str, Any], odd: str) -> ToolInfo:
    return ToolInfo(
        name=name,
        description=str(entry.get("description") or ""),
        declared={key: entry.get(key) for key in ("inputSchema", "outputSchema")},
        annotations=_mapping(entry.get("annotations")),
        meta=_mapping(entry.get("_meta")),
        odd=odd,
    )


def _schema_problem(schema: Any) -> str:
    if not isinstance(schema, dict):
        return f"is not an object but {type(schema).__name__}"
    if too_much := size_problem(schema):
        return too_much
    for reference in _references(schema):
        shown = clip(one_line(reference), 100)
        if not reference.startswith("#"):
            return f"refers to another document: {shown}"
        if reference.startswith("#/") and local_reference(reference, schema) is None:
            return f"refers to what is not there: {shown}"
    return schemas.schema_problem(schema)


def _references(node: Any) -> Iterator[str]:
    stack = [node]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            if isinstance(node.get("$ref"), str):
                yield node["$ref"]
            stack.extend(node.values())
        elif isinstance(node, list):
            stack.extend(node)


def read_answer(server: str, tool: ToolInfo, result: Mapping[str, Any]) -> ToolAnswer:
    """Read the result of `tools/call`.

    Raises:
        McpError: `mcp.tool_error` where the tool says it failed; `mcp.off_schema`, `mcp.protocol`.
    """
    content = result.get("content")
    blocks = [b for b in content if isinstance(b, dict)] if isinstance(content, list) else []
    text = "\n".join(_texts(blocks))
    if result.get("isError"):
        said = clip(one_line(text), 500) or "without a word"
        raise _refusal("mcp.tool_error", server, tool.name, f"failed: {said}", text=text)
    structured = result.get("structuredContent")
    payload, problem = structured, ""
    if structured is None or _wraps_text(structured):
        payload, problem = _parse(text if structured is None else structured["result"], structured)
    _check(server, tool, payload if structured is None else structured)
    return ToolAnswer(
        server=server,
        tool=tool.name,
        payload=payload,
        text=text,
        links=tuple(_links(blocks)),
        structured=structured is not None,
        problem=problem,
    )


def _texts(blocks: list[dict[str, Any]]) -> Iterator[str]:
    for block in blocks:
        inner = block.get("resource") if block.get("type") == "resource" else block
        if isinstance(inner, dict) and isinstance(inner.get("text"), str):
            yield inner["text"]


def _links(blocks: list[dict[str, Any]]) -> Iterator[ResourceLink]:
    for block in blocks:
        if block.get("type") == "resource_link" and isinstance(block.get("uri"), str):
            yield ResourceLink(
                uri=block["uri"],
                name=str(block.get("name") or ""),
                mime_type=str(block.get("mimeType") or ""),
                meta=_mapping(block.get("_meta")),
            )


def _wraps_text(structured: Any) -> bool:
    return (
        isinstance(structured, dict)
        and list(structured) == ["result"]
        and isinstance(structured["result"], str)
    )


def _parse(text: str, structured: Any) -> tuple[Any, str]:
    """Return the JSON in a text, or what was structured and why the text is none."""
    try:
        return files.parse_json(text), ""
    except DataError as error:
        if structured is not None:
            return structured, ""
        return None, f"its text is not JSON: {error}" if text.strip() else "it holds no text"


def _check(server: str, tool: ToolInfo, value: Any) -> None:
    try:
        # Over HTTP the SDK lets NaN pass, and 1e999 becomes infinite anywhere.
        json.dumps(value, allow_nan=False)
    except ValueError as error:
        said = "answered with NaN or an infinite number"
        raise _refusal("mcp.protocol", server, tool.name, said) from error
    if tool.output_schema is None:
        return
    try:
        problems = schemas.validate_with(tool.output_schema, value, foreign=True)
    except (RecursionError, re.error) as error:
        said = "declares an output schema that no answer can be held against"
        raise _refusal("mcp.bad_schema", server, tool.name, said) from error
    if problems:
        shown = clip("; ".join(str(problem) for problem in problems[:3]), 500)
        said = f"answered off its own schema: {shown}"
        raise _refusal("mcp.off_schema", server, tool.name, said)


def _refusal(code: str, server: str, tool: str, said: str, *, text: str = "") -> McpError:
    return McpError(
        code,
        f"{server}.{tool} {said}",
        where=f"{server}.{tool}",
        remedy="mend the arguments, or whatever the tool says is wrong"
        if code == "mcp.tool_error"
        else "update the server, or report it to its maker",
        details={"server": server, "tool": tool, **({"text": clip(text, 2000)} if text else {})},
    )


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
