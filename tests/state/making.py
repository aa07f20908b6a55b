"""One of several processes that make the same stores at the same moment (see test_store)."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from sqlalchemy import insert

from kit.state import Store, tables

folder, start, count = Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
for number in range(count):
    while time.time() < start + number * 0.1:
        pass
    with Store(folder / f"{number}.sqlite3").begin() as connection:
        connection.execute(insert(tables.audit).values(at="t", kind="k", body="{}"))
