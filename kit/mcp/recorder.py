"""What a draft really asks of MCP servers: argument names passed, output fields read.

Answers are handed out as mappings that behave as plain `dict`s and note what is read from them.
At freeze the records of all runs of a draft are merged into the manifest's `tools_used`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kit import schemas
from kit.mcp.introspect import is_map

__all__ = ["Record", "RecordedTool", "Recorder"]


@dataclass(frozen=True, kw_only=True)
class RecordedTool:
    """How one tool was used.

    Attributes:
        mcp: The server's name.
        tool: The tool's name.
        inputs: Names of the arguments passed, sorted.
        outputs: Paths of the output fields read, sorted, see `kit.mcp.introspect`.
        calls: How often it was called; 0 where only panels read its fields.
    """

    mcp: str
    tool: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    calls: int


@dataclass(frozen=True, kw_only=True)
class Record:
    """Every tool used, sorted by server and tool."""

    tools: tuple[RecordedTool, ...] = ()

    @classmethod
    def merge(cls, records: Iterable[Record]) -> Record:
        """Return what was used in any of several runs; calls are added up."""
        recorder = Recorder()
        for record in records:
            for tool in record.tools:
                recorder.add(tool.mcp, tool.tool, tool.inputs, tool.outputs, calls=tool.calls)
        return recorder.record()

    @classmethod
    def from_json(cls, value: Any, *, where: str = "") -> Record:
        """Read the shape of schema `recorded-tools`.

        Raises:
            DataError: `data.schema`.
        """
        schemas.check("recorded-tools", value, where=where)
        return cls(
            tools=tuple(
                RecordedTool(
                    **{
                        **entry,
                        "inputs": tuple(entry["inputs"]),
                        "outputs": tuple(entry["outputs"]),
                    }
                )
                for entry in value["tools"]
            )
        )

    def to_json(self) -> dict[str, Any]:
        """Return the shape of schema `recorded-tools`."""
        tools = [
            {**vars(tool), "inputs": list(tool.inputs), "outputs": list(tool.outputs)}
            for tool in self.tools
        ]
        return {"schema_version": "1.0", "tools": tools}

    def to_tools_used(self) -> dict[str, list[dict[str, Any]]]:
        """Return a manifest's `tools_used` entries, by server.

        Containers are left out where a field inside them was read: `bars[].close` says `bars`.
        """
        used: dict[str, list[dict[str, Any]]] = {}
        for tool in self.tools:
            used.setdefault(tool.mcp, []).append(
                {
                    "tool_name": tool.tool,
                    "required_input_fields": list(tool.inputs),
                    "required_output_fields": _leaves(tool.outputs),
                }
            )
        return used


class Recorder:
    """Observes calls and reads; hand it to a `ServerPool`. Safe to use from several threads."""

    def __init__(self) -> None:
        self._inputs: dict[tuple[str, str], set[str]] = {}
        self._outputs: dict[tuple[str, str], set[str]] = {}
        self._calls: dict[tuple[str, str], int] = {}
        self._held: dict[tuple[str, str], set[str]] = {}
        self._guard = threading.Lock()

    def add(
        self, mcp: str, tool: str, inputs: Iterable[str], outputs: Iterable[str], *, calls: int = 0
    ) -> None:
        """Note argument names passed to, and output fields read from, a tool."""
        key = (mcp, tool)
        with self._guard:
            self._inputs.setdefault(key, set()).update(inputs)
            self._outputs.setdefault(key, set()).update(outputs)
            self._calls[key] = self._calls.get(key, 0) + calls

    def note_panel(self, tool: str, columns: Iterable[str]) -> None:
        """Note that a panel read `columns`: a read of the tool that the data contract names.

        Args:
            tool: `<server>.<tool>`, for example `trading-data-cn.get_bars`.
            columns: Names of its output fields.
        """
        mcp, _, name = tool.rpartition(".")
        self.add(mcp, name, (), columns)

    def watch(self, mcp: str, tool: str, arguments: Mapping[str, Any], payload: Any) -> Any:
        """Note a call, and return its payload as values that note what is read from them."""
        self.add(mcp, tool, arguments, (), calls=1)
        held = self._held.setdefault((mcp, tool), set())
        return _watched(payload, "", _Reads(self, mcp, tool, held))

    def record(self) -> Record:
        """Return what was observed so far.

        A list of records that was taken while no field of them was read counts as read whole:
        native code (`polars.DataFrame(rows)`) reads them where nothing can be observed.
        """
        with self._guard:
            return Record(
                tools=tuple(
                    RecordedTool(
                        mcp=key[0],
                        tool=key[1],
                        inputs=tuple(sorted(self._inputs[key])),
                        outputs=tuple(sorted(self._read(key))),
                        calls=self._calls[key],
                    )
                    for key in sorted(self._calls)
                )
            )

    def _read(self, key: tuple[str, str]) -> set[str]:
        read, held = self._outputs[key], self._held.get(key, set())
        whole = [
            f"{path}[]"
            for path in {"", *read}
            if not any(other.startswith(f"{path}[]") for other in read)
        ]
        return read | {path for path in held if path.startswith(tuple(whole))}


@dataclass(frozen=True)
class _Reads:
    recorder: Recorder
    mcp: str
    tool: str
    held: set[str]

    def note(self, path: str) -> None:
        self.recorder.add(self.mcp, self.tool, (), (path,))


def _watched(value: Any, path: str, reads: _Reads) -> Any:
    if isinstance(value, dict):
        return _Watched(value, path, reads)
    if isinstance(value, list):
        return [_watched(item, f"{path}[]", reads) for item in value]
    return value


class _Watched(dict[str, Any]):
    """A `dict` that notes which of its keys are asked for.

    Whatever looks at it as a whole (iteration, `**`, `==`, printing, JSON, copying) reads every
    key. Asking for a key that is not there is a read too: the code depends on its absence.
    """

    __hash__ = None

    def __init__(self, value: Mapping[str, Any], path: str, reads: _Reads) -> None:
        self._reads = reads
        self._path = path
        self._is_map = is_map(value)
        reads.held.update(map(self._below, value))
        super().__init__(
            {key: _watched(item, self._below(key), reads) for key, item in value.items()}
        )

    def _below(self, key: object) -> str:
        name = "*" if self._is_map else str(key)
        return f"{self._path}.{name}" if self._path else name

    def _note(self, key: object) -> None:
        self._reads.note(self._below(key))

    def _note_all(self) -> _Watched:
        for key in super().__iter__():
            self._note(key)
        return self

    def _plain(self) -> dict[str, Any]:
        self._note_all()
        return {key: super(_Watched, self).__getitem__(key) for key in super().__iter__()}

    def __getitem__(self, key: str) -> Any:
        self._note(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self._note(key)
        return super().__contains__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self._note(key)
        return super().get(key, default)

    def pop(self, key: str, *default: Any) -> Any:
        self._note(key)
        return super().pop(key, *default)

    def setdefault(self, key: str, default: Any = None) -> Any:
        self._note(key)
        return super().setdefault(key, default)

    def __iter__(self) -> Iterator[str]:
        self._note_all()
        return super().__iter__()

    def __reversed__(self) -> Iterator[str]:
        self._note_all()
        return super().__reversed__()

    def keys(self) -> Any:
        return dict.keys(self._note_all())

    def values(self) -> Any:
        return dict.values(self._note_all())

    def items(self) -> Any:
        return dict.items(self._note_all())

    def popitem(self) -> tuple[str, Any]:
        return dict.popitem(self._note_all())

    def copy(self) -> dict[str, Any]:
        return self._plain()

    def __eq__(self, other: object) -> bool:
        return dict.__eq__(self._note_all(), other)

    def __ne__(self, other: object) -> bool:
        return dict.__ne__(self._note_all(), other)

    def __or__(self, other: Any) -> Any:
        return self._plain() | other

    def __ror__(self, other: Any) -> Any:
        return other | self._plain()

    def __repr__(self) -> str:
        return repr(self._plain())

    def __copy__(self) -> dict[str, Any]:
        return self._plain()

    def __reduce__(self) -> tuple[Any, ...]:
        return (dict, (self._plain(),))


def _leaves(paths: Iterable[str]) -> list[str]:
    known = sorted(set(paths))
    return [
        path
        for path in known
        if not any(other.startswith((f"{path}.", f"{path}[]")) for other in known)
    ]
