"""A year of the whole market through `get_bars`: 5,400 symbols x 260 bars over stdio.

Prints the seconds of the call, from the request of a real client to the columns in its memory, and
their ratio to a plain read of the same columns from the same Parquet file in this process; also
how long a fresh server takes to answer `initialize`.

    python benchmarks/mcp_bars.py [symbols bars]      # more than 5,000 bars: fewer come as JSON
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import anyio
import jsonschema  # noqa: F401 - the client imports it at its first answer; that is not the call
import numpy as np
import polars as pl
from mcp import ClientSession, StdioServerParameters, stdio_client

from kit.workspace import init_workspace

COLUMNS = ["symbol", "date", "close_adj", "low_adj", "volume"]
ROUNDS = 3


def store(folder: Path, symbols: int, bars: int) -> list[str]:
    """Write seeded bars of a market, and return its symbols."""
    folder.mkdir(parents=True)
    names = [f"{600_000 + n}.SH" if n < 3_000 else f"{n - 2_999:06d}.SZ" for n in range(symbols)]
    days = [date(2023, 1, 2) + timedelta(days=n) for n in range(bars)]
    draw = np.random.default_rng(250)
    close = np.exp(3 + np.cumsum(draw.normal(0, 0.02, (symbols, bars)), axis=1)).round(2) + 0.01
    frame = pl.DataFrame(
        {
            "symbol": np.repeat(names, bars),
            "time": pl.Series(days * symbols).cast(pl.Datetime("us")),
            "close": close.reshape(-1),
            "volume": draw.integers(1e4, 1e7, symbols * bars).astype(float),
            "adj_factor": np.where(np.tile(np.arange(bars) < bars // 3, symbols), 0.95, 1.0),
        }
    )
    frame.with_columns(
        pl.col("close").alias("open"),
        (pl.col("close") * 1.01).alias("high"),
        (pl.col("close") * 0.99).alias("low"),
        pl.lit("none").alias("adjust"),
        pl.lit("synthetic").alias("source"),
    ).write_parquet(folder / "bars.parquet")
    return names


async def measure(root: Path, names: list[str], last: str) -> dict[str, Any]:
    """Time a fresh server's handshake and the call."""
    environment = {**os.environ, "KIT_BAR_SOURCE": "parquet"}
    server = StdioServerParameters(
        command=str(Path(sys.executable).with_name("trading-data-cn-mcp")),
        args=["--workspace", str(root)],
        env=environment,
    )
    began = time.perf_counter()
    async with stdio_client(server) as (reader, writer), ClientSession(reader, writer) as session:
        await session.initialize()
        hello = time.perf_counter() - began
        await session.list_tools()
        arguments = {"codes": names, "start_date": "2023-01-01", "end_date": last}
        calls, reads = [], []
        for _ in range(ROUNDS):
            began = time.perf_counter()
            result = await session.call_tool("get_bars", arguments)
            path = result.structured_content["file"]["path"]
            got = pl.read_parquet(path, columns=COLUMNS)
            calls.append(time.perf_counter() - began)
            began = time.perf_counter()
            plain = pl.read_parquet(path, columns=COLUMNS)
            reads.append(time.perf_counter() - began)
            assert got.height == plain.height == result.structured_content["rows"]
    return {
        "rows": got.height,
        "megabytes": round(Path(path).stat().st_size / 1e6, 1),
        "initialize_sec": round(hello, 2),
        "first_call_sec": round(calls[0], 2),
        "call_sec": round(min(calls), 2),
        "plain_read_sec": round(min(reads), 3),
        "ratio": round(min(calls) / min(reads), 1),
    }


def main() -> None:
    """Make the store, measure, print JSON."""
    symbols, bars = (int(text) for text in (sys.argv[1:] or ["5400", "260"]))
    with tempfile.TemporaryDirectory() as folder:
        workspace = init_workspace(Path(folder) / "workspace")
        names = store(workspace.market_dir / "cn" / "1d", symbols, bars)
        found = anyio.run(measure, workspace.root, names, "2024-12-31")
    print(json.dumps({"symbols": symbols, "bars": bars, **found}, indent=2))


if __name__ == "__main__":
    main()
