"""MCP servers seen from the calling side: start, describe, call, inspect, record.

```python
with ServerPool(load_servers(workspace)) as pool:
    info = pool.describe("trading-data-cn")
    answer = pool.call("trading-data-cn", "get_universe", {"date": "2024-09-18"})
```

Everything is a plain call; the SDK is imported on the first one.
"""

from __future__ import annotations

from kit.mcp.answers import ResourceLink, ServerInfo, ToolAnswer, ToolInfo
from kit.mcp.introspect import (
    FieldInfo,
    const_value,
    find_field,
    input_fields,
    names_field,
    output_fields,
    payload_fields,
    required_inputs,
)
from kit.mcp.pool import ServerPool
from kit.mcp.recorder import Record, RecordedTool, Recorder
from kit.mcp.servers import ServerConfig, load_servers

__all__ = [
    "FieldInfo",
    "Record",
    "RecordedTool",
    "Recorder",
    "ResourceLink",
    "ServerConfig",
    "ServerInfo",
    "ServerPool",
    "ToolAnswer",
    "ToolInfo",
    "const_value",
    "find_field",
    "input_fields",
    "load_servers",
    "names_field",
    "output_fields",
    "payload_fields",
    "required_inputs",
]
