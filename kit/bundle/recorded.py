"""What a draft was seen to read from MCP tools, beside the workspace and never in a version.

`runs/recordings/<id>.json` holds one record for one state of the draft's code and contract: what
is recorded of other code is dropped, what several runs of the same code read is added up. At
freeze a lock that leaves a tool's field lists empty is filled from it, and lint compares the rest.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kit import files
from kit.bundle.layout import DRAFT, MANIFEST
from kit.bundle.manifest import manifest_problems
from kit.bundle.model import fingerprints
from kit.bundle.text import read_bundle_json
from kit.errors import BundleError, DataError

if TYPE_CHECKING:
    from kit.mcp import Record

__all__ = ["draft_state", "fill_lock", "read_recorded", "recorded_path", "save_recorded"]

_LISTS = ("required_input_fields", "required_output_fields")


def recorded_path(draft: Path) -> Path:
    """Return where the record of `strategies/<id>/draft` stands."""
    return draft.parents[2] / "runs" / "recordings" / f"{draft.parent.name}.json"


def draft_state(draft: Path) -> str:
    """Return the digest of what decides which fields a draft reads: code, config and contract.

    Raises:
        BundleError: A file of the draft cannot be read.
    """
    found = fingerprints(draft)
    return files.sha256_bytes(f"{found['code']} {found['config']}".encode())


def read_recorded(draft: Path) -> Record | None:
    """Return what this very draft was seen to read; None where nothing is recorded of it.

    Raises:
        BundleError: A file of the draft cannot be read.
        DataError: The record cannot be read.
    """
    path = recorded_path(draft)
    if draft.name != DRAFT or not path.is_file():
        return None
    from kit.mcp import Record  # with its event loop it is no part of every command's start

    value = files.read_json(path)
    if not isinstance(value, dict) or value.get("state") != draft_state(draft):
        return None
    return Record.from_json(value["reads"], where=path.name)


def save_recorded(draft: Path, record: Record, state: str) -> None:
    """Add a record to what is known of the draft in that state.

    Args:
        draft: `strategies/<id>/draft`.
        record: What a run of it read.
        state: `draft_state` when the run began.

    Raises:
        StorageError: The disk refused.
    """
    path = recorded_path(draft)
    files.make_dir(path.parent)
    with files.lock(path):
        known = _known(path, type(record), state)
        merged = record.merge([*known, record])
        files.write_json(path, {"state": state, "reads": merged.to_json()})


def _known(path: Path, kind: type[Record], state: str) -> list[Record]:
    """Return the record of that state; a file that cannot be read is written anew."""
    try:
        value = files.read_json(path)
        return [kind.from_json(value["reads"])] if value["state"] == state else []
    except (DataError, KeyError, TypeError):
        return []


def fill_lock(draft: Path) -> list[str]:
    """Write what was read into the empty field lists of the draft's locked tools.

    A draft that cannot be read is left as it is: lint says what is wrong with it.

    Returns:
        What was filled, such as `trading-data-cn.get_bars: close_adj, volume`.

    Raises:
        StorageError: The disk refused.
    """
    try:
        record = read_recorded(draft)
        value: Any = read_bundle_json(draft, MANIFEST)
    except (BundleError, DataError):
        return []
    if record is None or manifest_problems(value):
        return []
    seen = {
        (server, tool["tool_name"]): tool
        for server, tools in record.to_tools_used().items()
        for tool in tools
    }
    filled = []
    for mcp in value["env_lock"]["required_mcps"]:
        for tool in mcp["tools_used"]:
            read = seen.get((mcp["name"], tool["tool_name"]), {})
            for name in _LISTS:
                if not tool[name] and read.get(name):
                    tool[name] = read[name]
                    fields = ", ".join(read[name])
                    filled.append(f"{mcp['name']}.{tool['tool_name']}: {fields}")
    if filled:
        files.write_json(draft / MANIFEST, value)
    return filled
