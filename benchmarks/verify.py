"""How long `kit verify` takes, against hashing the same bytes in the same run.

    python benchmarks/verify.py [--bundles 1000] [--rounds 3]

The bundles are copies of a shipped version under ids of their own, each with its own manifest,
checksums, record and entry in INDEX.json: what verify checks beside the hashes is all there.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kit.bundle import checksums
from kit.bundle.rebuild import rebuild
from kit.bundle.verify import verify
from kit.clock import SystemClock
from kit.workspace import Workspace, init_workspace

OWED = 1.5
ORIGIN = Path(__file__).resolve().parents[1] / "strategies" / "ma250-pullback" / "0.3.1"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bundles", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        workspace = populated(Path(folder) / "desk", options.bundles)
        paths = [path for path in workspace.strategies.glob("*/*/**/*") if path.is_file()]
        size = sum(path.stat().st_size for path in paths)
        print(f"{options.bundles:,} bundles, {len(paths):,} files, {size / 1e6:,.0f} MB")

        def hashed() -> None:
            for path in paths:
                hashlib.sha256(path.read_bytes()).hexdigest()

        def verified() -> None:
            found = verify(workspace)
            assert found.ok
            assert len(found.checked) == options.bundles

        pairs = [(clocked(hashed), clocked(verified)) for _ in range(options.rounds + 1)][1:]
    bare, ours = (min(column) for column in zip(*pairs, strict=True))
    print(f"sha256 of the same bytes        {bare:8.2f} s")
    print(f"kit verify                      {ours:8.2f} s")
    print(f"ratio                           {ours / bare:8.2f} x   (owed: <= {OWED:g} x)")


def clocked(run: Callable[[], Any]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def populated(root: Path, count: int) -> Workspace:
    """Make a workspace of `count` strategies with one frozen version each."""
    workspace = init_workspace(root)
    for number in range(count):
        target = workspace.strategies / f"copy-{number}" / ORIGIN.name
        shutil.copytree(ORIGIN, target, copy_function=shutil.copyfile)
        manifest = json.loads((target / "manifest.json").read_text("utf-8"))
        manifest["strategy_id"] = target.parent.name
        (target / "manifest.json").write_text(json.dumps(manifest), "utf-8")
        (target / "checksums.txt").unlink()
        text = checksums.compute(target, junk=True)
        (target / "checksums.txt").write_text(text, "utf-8")
    rebuild(workspace, who="benchmark", clock=SystemClock())  # adopts them, and sets their modes
    return workspace


if __name__ == "__main__":
    main()
