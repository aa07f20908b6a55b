"""How long a daily screen of a whole market takes, against reading the same columns.

    python benchmarks/screen.py [--symbols 5400] [--bars 260] [--rounds 7]

1. Parquet to picks through `screen_panel` of the shipped 250-day pullback, against a bare read of
   the columns it needs; and how much of it is the panel and its views, not the rule's own sums.
2. The dict form, `screen_today`, on a rule that looks at a few symbols: it builds only the frames
   that it touches.

Bars are generated (a seeded random walk): this measures time, nothing else.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from backtest import clocked, store

BUNDLE = "ma250-pullback@0.3.1"
OWED = 3.0
COLUMNS = ("symbol", "time", "low", "close", "volume", "adj_factor")


class FewSymbols:
    """A rule that looks at ten symbols of the market."""

    def screen_today(self, data_map: Any) -> list[Any]:
        return [data_map[symbol]["close"].iloc[-1] for symbol in list(data_map)[:10]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--symbols", type=int, default=5_400)
    parser.add_argument("--bars", type=int, default=260)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    import polars as pl

    from kit.bundle import resolve
    from kit.market import ParquetSource, load_panel
    from kit.workspace import Workspace, init_workspace

    with tempfile.TemporaryDirectory() as folder:
        workspace = init_workspace(Path(folder) / "workspace")
        first, last, codes = store(workspace.market_dir, options.bars, options.symbols)
        path = next(workspace.market_dir.glob("cn/1d/*.parquet"))
        engine = resolve(Workspace.at(Path(__file__).parents[1]), BUNDLE).engine()

        def panel() -> Any:
            return load_panel(ParquetSource(workspace.market_dir), codes, first, last, market="cn")

        def screen() -> None:
            engine.screen_panel(panel(), last, None, 7)

        def read() -> None:
            pl.read_parquet(path, columns=list(COLUMNS))

        def view() -> None:
            opened = panel()
            opened.prefetch(("low", "close", "volume"))
            for field in ("low", "close", "volume"):
                opened.wide(field)

        cold = clocked(screen)
        read()
        pairs = [(clocked(read), clocked(screen), clocked(view)) for _ in range(options.rounds)]
        reading, warm, seeing = (min(column) for column in zip(*pairs, strict=True))
        few = panel()
        touched = clocked(lambda: FewSymbols().screen_today(few))
    print(f"{options.symbols:,} symbols x {options.bars:,} bars, {BUNDLE}")
    print(f"reading the columns             {reading * 1e3:8.1f} ms")
    print(f"Parquet to picks, first         {cold * 1e3:8.1f} ms")
    print(f"Parquet to picks, warm          {warm * 1e3:8.1f} ms")
    print(f"ratio                           {warm / reading:8.2f} x   (owed: <= {OWED:g} x)")
    print(f"  of which panel and views      {seeing / reading:8.2f} x")
    print(
        f"dict form, 10 symbols touched   {touched * 1e3:8.1f} ms, {few.frames_built} frames built"
    )


if __name__ == "__main__":
    main()
