"""The store: whole series, atomic parts, two writers at once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from kit.errors import DataError
from kit.market.sources import ParquetSource
from kit.market.store import BarStore
from kit.workspace import Workspace

DAYS = ["2024-01-02", "2024-01-03"]


def test_a_write_replaces_a_series_and_leaves_the_others(tmp_path: Path, make_bars: Any) -> None:
    store = BarStore(tmp_path)
    codes = [f"60{n:04d}.SH" for n in range(40)]
    store.write("cn", "1d", pl.concat(make_bars(code, DAYS, [9.0, 9.1]) for code in codes))
    assert len(list(store.folder("cn", "1d").glob("*.parquet"))) > 8
    store.write("cn", "1d", make_bars(codes[3], DAYS[1:], [8.0]))
    held = store.series("cn", "1d")
    assert set(held) == set(codes)
    assert (held[codes[3]].rows, held[codes[4]].rows) == (1, 2)
    assert store.read("cn", "1d", codes[3])["close"].to_list() == [8.0]
    assert store.shelves() == (("cn", "1d"),)
    assert ParquetSource(tmp_path).coverage("cn").symbols == tuple(codes)


def test_a_file_of_somebody_else_is_read_and_not_touched(tmp_path: Path, make_bars: Any) -> None:
    store = BarStore(tmp_path)
    folder = store.folder("cn", "1d")
    folder.mkdir(parents=True)
    make_bars("A", DAYS, [9.0, 9.1]).write_parquet(folder / "mine.parquet")
    before = (folder / "mine.parquet").read_bytes()
    with pytest.raises(DataError) as caught:
        store.write("cn", "1d", make_bars("A", DAYS, [8.0, 8.1]))
    assert caught.value.code == "data.foreign_file"
    store.write("cn", "1d", make_bars("B", DAYS, [8.0, 8.1]))
    assert set(store.series("cn", "1d")) == {"A", "B"}
    assert (folder / "mine.parquet").read_bytes() == before


def test_an_empty_store_holds_nothing(tmp_path: Path) -> None:
    store = BarStore(tmp_path)
    assert store.series("cn", "1d") == {}
    assert store.read("cn", "1d", "A").is_empty()
    assert store.shelves() == ()


_WRITER = """
import sys
from datetime import datetime
from pathlib import Path
import polars as pl
from kit.market.bars import BAR_COLUMNS
from kit.market.store import BarStore
root, who, price = Path(sys.argv[1]), sys.argv[2].split(","), float(sys.argv[3])
for symbol in who:
    row = {name: None for name in BAR_COLUMNS} | {
        "symbol": symbol, "time": datetime(2024, 1, 2), "open": price, "high": price, "low": price,
        "close": price, "volume": 1.0, "adj_factor": 1.0, "adjust": "none", "source": "w"}
    BarStore(root).write("cn", "1d", pl.DataFrame([row], schema=BAR_COLUMNS))
"""


def _writer(root: Path, symbols: list[str], price: float, **env: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(root), ",".join(symbols), str(price)],
        env=os.environ | env,
        stderr=subprocess.DEVNULL,
    )


def test_two_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    codes = [f"60{n:04d}.SH" for n in range(24)]
    # Interleaved, so that both write into the same parts all the time.
    writers = [_writer(tmp_path, codes[side::2], 1.0 + side) for side in (0, 1)]
    assert [writer.wait(120) for writer in writers] == [0, 0]
    bars = BarStore(tmp_path).scan("cn", "1d")
    assert bars is not None
    closes = bars.select("symbol", "close").collect().sort("symbol").rows()
    assert closes == [(code, 1.0 + place % 2) for place, code in enumerate(codes)]


def test_a_writer_killed_at_any_operation_leaves_whole_parts(
    workspace: Workspace, tmp_path: Path
) -> None:
    codes = [f"60{n:04d}.SH" for n in range(3)]
    assert _writer(tmp_path, codes, 1.0).wait(120) == 0
    for operation in (1, 2, 3, 5, 8):
        killed = _writer(tmp_path, codes, 2.0, KIT_CRASH_AT=str(operation))
        assert killed.wait(120) != 0
        bars = BarStore(tmp_path).scan("cn", "1d")
        assert bars is not None
        rows = bars.select("symbol", "close").collect().sort("symbol").rows()
        assert [symbol for symbol, _ in rows] == codes
        assert {close for _, close in rows} <= {1.0, 2.0}
    assert _writer(tmp_path, codes, 3.0).wait(120) == 0
    assert set(BarStore(tmp_path).series("cn", "1d")) == set(codes)
