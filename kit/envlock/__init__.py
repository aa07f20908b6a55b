"""The environment lock: a frozen bundle refuses to run where it was not made for.

```python
with ServerPool(load_servers(workspace)) as pool:
    answer = check_lock(bundle, pool, workspace.config("databases"))
if not answer.ok:
    raise answer.error()
```
"""

from __future__ import annotations

from kit.envlock.answer import (
    LockAnswer,
    ServerSeen,
    ToolSeen,
    name_of,
    refusal,
)
from kit.envlock.stored import stored_bytes, stored_path
from kit.envlock.validate import channel_mismatches, check_lock
from kit.envlock.wording import evidence_label, hint

__all__ = [
    "LockAnswer",
    "ServerSeen",
    "ToolSeen",
    "channel_mismatches",
    "check_lock",
    "evidence_label",
    "hint",
    "name_of",
    "refusal",
    "stored_bytes",
    "stored_path",
]
