"""The MCP servers that ship with the kit: market data, dated news, and the workspace itself.

Each has a folder of its own with its version, its published schemas, a README and a changelog, so
that moving one out is a move. `host` is what they share; `entry` starts one by name.
"""

from __future__ import annotations

from typing import Final

__all__ = ["SERVERS"]

SERVERS: Final = {
    "trading-data-cn": "kit.serve.trading_data_cn.server",
    "historical-news-cn": "kit.serve.historical_news_cn.server",
    "kit": "kit.serve.kit_mcp.server",
}
"""Server name to the module whose `build(desk)` makes it."""
