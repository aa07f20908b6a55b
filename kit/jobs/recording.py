"""Note which MCP tools and fields a draft uses, for the lock that its freeze writes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kit.bundle import Bundle, resolve
from kit.bundle.recorded import draft_state, save_recorded
from kit.mcp import Recorder, ServerPool, load_servers
from kit.workspace import Workspace

__all__ = ["record_news", "record_panel", "recording"]

_NEWS_TOOL = "historical-news-cn.query_news"
_NEWS_FIELDS = ("published_at", "symbols", "title", "summary")


def record_panel(bundle: Bundle) -> None:
    """Note that a run of a draft reads the bars of its data contract; a version is left alone.

    The bars may come from the workspace's own store: they count as read of the tool that the
    contract names, so that the lock holds them to what that tool serves.

    Raises:
        StorageError: The disk refused.
    """
    contract = bundle.manifest.data_contract
    if not bundle.is_draft or contract.panel_tool is None:
        return
    recorder = Recorder()
    recorder.note_panel(contract.panel_tool, contract.fields)
    save_recorded(bundle.root, recorder.record(), draft_state(bundle.root))


def record_news(bundle: Bundle) -> None:
    """Note that a run of a draft read the news of its window; a version is left alone.

    Raises:
        StorageError: The disk refused.
    """
    if bundle.is_draft:
        recorder = Recorder()
        recorder.note_panel(_NEWS_TOOL, _NEWS_FIELDS)
        save_recorded(bundle.root, recorder.record(), draft_state(bundle.root))


@contextmanager
def recording(workspace: Workspace, strategy_id: str) -> Iterator[ServerPool]:
    """Open the workspace's MCP servers, and note what is read of their answers into the draft.

    Args:
        workspace: Whose `config/mcp.json`.
        strategy_id: Strategy whose draft is open.

    Raises:
        RegistryError: The strategy has no draft.
        ConfigError: `config/mcp.json`.
        StorageError: The disk refused the record.
    """
    draft = resolve(workspace, f"{strategy_id}@draft").root
    recorder = Recorder()
    with ServerPool(load_servers(workspace), recorder=recorder) as pool:
        yield pool
    # The draft is edited while it is open: what was read belongs to what it became.
    save_recorded(draft, recorder.record(), draft_state(draft))
