"""The news of a screen: asked of the workspace's server, or read back where a run is replayed.

The server is the one named `historical-news-cn` in `config/mcp.json`, whatever stands behind it. It
is started only for a bundle whose steps read news. What it says is data from strangers: bounded,
on one line each, and never taken from outside the window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from kit import files, schemas, screen
from kit.bundle import Bundle
from kit.clock import iso, parse_instant
from kit.errors import ConfigError, KitError, StorageError, UsageError
from kit.jobs.recording import record_news
from kit.mcp import ServerPool, load_servers
from kit.workspace import Workspace

__all__ = [
    "NEWS_FILE",
    "NEWS_SERVER",
    "NO_NEWS_WANTED",
    "News",
    "NewsFeed",
    "fetch_news",
    "recorded_news",
]

NEWS_FILE = "news.json"
NO_NEWS_WANTED: Mapping[str, Any] = {"status": "not_needed", "count": 0}
"""What a result says of news that no step wanted."""
NEWS_SERVER = "historical-news-cn"

_TOOL = "query_news"
# A server that is slower than this costs the screen more than its news are worth.
_START_SEC = 20.0
_CALL_SEC = 20.0
_NOT_CONFIGURED = "没有配置新闻源"
_FAILED = "新闻源没有回应"


@dataclass(frozen=True, kw_only=True)
class News:
    """What was published between two instants, as steps are given it.

    Attributes:
        status: `found`, `none_found`, or `not_fetched`.
        start: The window is open here.
        end: And closed here.
        items: {published_at, symbols, title, summary}, oldest first.
        undated: Items without a time of publication: not taken.
        left_out: Items of the window beyond what steps are given, the older ones.
        source: Who had them; empty when nobody was asked.
        synthetic: Whether they are generated.
        problem: Why they were not fetched, for a reader (zh-CN).
        detail: The same for machines.
    """

    status: Literal["found", "none_found", "not_fetched"]
    start: datetime
    end: datetime
    items: tuple[Mapping[str, Any], ...] = ()
    undated: int = 0
    left_out: int = 0
    source: str = ""
    synthetic: bool = False
    problem: str = ""
    detail: str = ""

    @property
    def window(self) -> dict[str, Any]:
        """The window that steps are given; {} when nothing was fetched."""
        if self.status == "not_fetched":
            return {}
        return {"start": iso(self.start), "end": iso(self.end), "items": list(self.items)}

    @property
    def account(self) -> dict[str, Any]:
        """What a result says of them: status and counts."""
        return {
            "status": self.status,
            "count": len(self.items),
            "undated": self.undated,
            "left_out": self.left_out,
            "source": self.source,
            "synthetic": self.synthetic,
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, which the schema `screen-news` describes."""
        return {
            **vars(self),
            "start": iso(self.start),
            "end": iso(self.end),
            "items": [dict(item) for item in self.items],
        }


NewsFeed = Callable[[Workspace, Bundle, datetime, datetime], News]
"""How a screen gets its news; `fetch_news` does."""


def fetch_news(workspace: Workspace, bundle: Bundle, start: datetime, end: datetime) -> News:
    """Ask the workspace's news server what was published after `start` and not after `end`.

    Trouble with the server is an answer, not an exception.

    Raises:
        StorageError: The record of a draft cannot be written.
    """
    empty = News(status="not_fetched", start=start, end=end)
    try:
        servers = load_servers(workspace)
        if NEWS_SERVER not in servers:
            detail = f"config/mcp.json has no server {NEWS_SERVER}"
            return replace(empty, problem=_NOT_CONFIGURED, detail=detail)
        asked = {"start_time": iso(start), "end_time": iso(end)}
        with ServerPool(servers, deadline_sec=_START_SEC, call_timeout_sec=_CALL_SEC) as pool:
            payload = pool.call(NEWS_SERVER, _TOOL, asked).require_payload()
        found = _read(payload, empty)
    except ConfigError as error:
        return replace(empty, problem=_NOT_CONFIGURED, detail=str(error))
    except StorageError:
        raise
    except KitError as error:
        return replace(empty, problem=f"{_FAILED}（{error.code}）", detail=error.message)
    if NEWS_SERVER in {mcp.name for mcp in bundle.manifest.env_lock.required_mcps}:
        record_news(bundle)
    return found


def recorded_news(folder: Path) -> NewsFeed:
    """Return a feed that gives the news of a recorded run again."""

    def feed(workspace: Workspace, bundle: Bundle, start: datetime, end: datetime) -> News:
        del workspace, bundle, start, end
        value = files.read_json(folder / NEWS_FILE)
        schemas.check("screen-news", value, where=NEWS_FILE)
        return News(
            **{
                **value,
                # As written: in the zone in which steps were told them.
                "start": datetime.fromisoformat(value["start"]),
                "end": datetime.fromisoformat(value["end"]),
                "items": tuple(value["items"]),
            }
        )

    return feed


def _read(payload: Any, empty: News) -> News:
    """Read an answer: what has no time, or one outside the window, is counted and not taken."""
    answer = payload if isinstance(payload, Mapping) else {}
    rows = answer.get("news")
    dated: list[tuple[datetime, Mapping[str, Any]]] = []
    undated = _count(answer.get("undated"))
    outside = 0
    for row in rows if isinstance(rows, list) else ():
        at = _published(row)
        if at is None:
            undated += 1
        elif empty.start < at <= empty.end:
            dated.append((at.astimezone(empty.start.tzinfo), row))
        else:
            outside += 1
    dated.sort(key=lambda pair: pair[0])
    items = screen.news_items((at, *_texts(row)) for at, row in dated)
    left_out = len(dated) - len(items) + outside + _count(answer.get("older_left_out"))
    return replace(
        empty,
        status="found" if items else "none_found",
        items=tuple(items),
        undated=undated,
        left_out=left_out,
        source=str(answer.get("source", NEWS_SERVER))[:40],
        synthetic=answer.get("synthetic") is True,
    )


def _published(row: Any) -> datetime | None:
    try:
        return parse_instant(row["published_at"])
    except (KeyError, TypeError, UsageError):
        return None


def _texts(row: Mapping[str, Any]) -> tuple[list[str], str, str]:
    symbols = row.get("symbols")
    named: Iterable[Any] = symbols if isinstance(symbols, list) else ()
    return [str(symbol) for symbol in named], str(row.get("title", "")), str(row.get("summary", ""))


def _count(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0
