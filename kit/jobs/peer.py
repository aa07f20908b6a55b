"""Run the real Vibe-Trading on a scratch copy of a bundle and of its bars, and compare.

The peer lives in an environment of its own (`make peer`), since it wants other versions of the
libraries we use. It is handed a home folder, a copy of the bundle and the bars as CSV files under
`runs/peer/`, and nothing of this machine's environment: no keys, no proxies, its `local` source.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Final

import pandas as pd

from kit import files
from kit.backtest import BacktestResult
from kit.clock import SystemClock
from kit.errors import KitError, RunError
from kit.jobs.lock import require_lock
from kit.jobs.study import Study, open_study
from kit.workspace import Workspace, environ

__all__ = ["PeerComparison", "compare_with_peer", "run_peer"]

_SECONDS: Final = 900.0  # it takes about 0.1 ms a symbol-bar
_SAME: Final = 1e-9  # prices and sizes nearer than this, relatively, are the same
_KEYS: Final = ["time", "symbol", "side"]


@dataclass(frozen=True, kw_only=True)
class PeerComparison:
    """Two backtests of one bundle on the same bars.

    Attributes:
        ref: The bundle.
        fills: Fills of either: `time`, `symbol`, `side`, `size`, `price`, `size_peer`,
            `price_peer`, in adjusted units where the bars are adjusted; NaN where one has none.
        equity: Columns `kit` and `peer`, by bar.
        folder: Where the peer wrote what it made.
    """

    ref: str
    fills: pd.DataFrame
    equity: pd.DataFrame
    folder: Path

    @property
    def same(self) -> pd.Series:
        """Whether both have a fill, at the same size and price."""
        near = [
            (self.fills[name] / self.fills[f"{name}_peer"] - 1).abs() <= _SAME
            for name in ("size", "price")
        ]
        return near[0] & near[1]

    def to_dict(self) -> dict[str, Any]:
        """Return counts and final values as JSON."""
        ours, theirs = self.equity.iloc[-1]
        return {
            "ref": self.ref,
            "fills_same": int(self.same.sum()),
            "fills_different": int((~self.same).sum()),
            "final_value": round(float(ours), 2),
            "final_value_peer": round(float(theirs), 2),
            "largest_gap": float((self.equity["kit"] / self.equity["peer"] - 1).abs().max()),
            "folder": str(self.folder),
        }

    def rows(self) -> list[tuple[str, ...]]:
        """Return the fills that differ, as text."""
        numbers = ("size", "size_peer", "price", "price_peer")
        return [
            (
                f"{row['time']:%Y-%m-%d %H:%M}",
                row["symbol"],
                row["side"],
                *("" if pd.isna(row[name]) else f"{row[name]:.6g}" for name in numbers),
            )
            for row in self.fills[~self.same].to_dict("records")
        ]


def compare_with_peer(
    workspace: Workspace,
    ref: str,
    *,
    start: date | None = None,
    end: date | None = None,
    symbols: Sequence[str] | None = None,
    source: str = "sample",
    progress: Callable[[str], None] = lambda _message: None,
) -> PeerComparison:
    """Backtest a bundle here and in Vibe-Trading, on the same bars.

    The peer knows neither our dates of rules nor our factor: see the table in `docs/backtests.md`.

    Raises:
        KitError: `peer.not_installed`.
        RunError: `peer.failed` with what it said, `peer.timeout`.
        DataError: As `open_study`.
        LockError: As `require_lock`.
    """
    python = _python(workspace)
    progress("load")
    study = open_study(workspace, ref, start=start, end=end, symbols=symbols, source=source)
    progress("lock")
    require_lock(workspace, study.bundle, clock=SystemClock())
    progress("simulate")
    result = study.inputs.simulate(study.bundle.engine())
    progress("peer")
    folder = workspace.runs / "peer" / study.bundle.ref
    run_peer(python, study, folder)
    artifacts = folder / "run" / "artifacts"
    theirs = pd.read_csv(artifacts / "equity.csv", index_col=0, parse_dates=True)["equity"]
    return PeerComparison(
        ref=study.bundle.ref,
        fills=_side_by_side(_ours(study, result), _theirs(artifacts / "fills.jsonl")),
        equity=pd.DataFrame({"kit": result.equity, "peer": theirs}).dropna(),
        folder=artifacts,
    )


def _python(workspace: Workspace) -> Path:
    named = environ("KIT_PEER_PYTHON")
    python = Path(named) if named else workspace.root / ".venv-peer" / "bin" / "python"
    if not python.exists():
        raise KitError(
            "peer.not_installed",
            f"there is no Vibe-Trading at {python}",
            remedy="make peer sets it up, or name its Python in KIT_PEER_PYTHON",
        )
    return python


def run_peer(python: Path, study: Study, folder: Path) -> None:
    """Let the peer backtest a copy of a bundle; what it makes is under `run/artifacts/`.

    Args:
        python: Python of the peer's environment.
        study: The bundle and its bars.
        folder: Where to work; what was there is removed.

    Raises:
        RunError: `peer.failed` with what it said, `peer.timeout`.
    """
    folder = folder.resolve()
    files.remove_tree(folder)
    run, home = folder / "run", folder / "home"
    files.make_dir(folder)
    files.copy_tree(study.bundle.root, run, skip=lambda inside: inside.parts[0] == "backtests")
    files.set_writable(run)
    if study.partial or study.inputs.universe.dropped or study.panel.context is not None:
        days = study.panel.dates
        narrowed = {
            # Series of other markets come by their codes there, and get no weight.
            "codes": list(study.panel),
            "start_date": f"{days[0]:%Y-%m-%d}",
            "end_date": f"{days[-1]:%Y-%m-%d}",
        }
        files.write_json(run / "config.json", {**study.bundle.config, **narrowed})
    sources = []
    for symbol in study.panel:
        path = folder / "bars" / f"{symbol}.csv"
        files.make_dir(path.parent)
        files.write_text(path, study.panel[symbol].to_csv(index_label="date"))
        sources.append({"symbol": symbol, "type": "csv", "path": str(path)})
    bridge = home / ".vibe-trading" / "data-bridge"
    files.make_dir(bridge)
    files.write_json(bridge / "config.yaml", {"sources": sources})  # JSON is YAML
    clean = {
        "HOME": str(home),
        "PATH": os.defpath,
        "PYTHONUTF8": "1",
        "VIBE_TRADING_ALLOWED_RUN_ROOTS": str(folder),
    }
    try:
        done = subprocess.run(
            [str(python), "-m", "backtest.runner", str(run)],
            cwd=folder,
            env=clean,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise RunError(
            "peer.timeout",
            f"Vibe-Trading did not finish in {_SECONDS:.0f} s",
            remedy="narrow the run: --symbols, --start, --end",
        ) from error
    if done.returncode or not (run / "artifacts" / "fills.jsonl").exists():
        said = (done.stdout.strip() or done.stderr.strip() or "nothing").splitlines()[-1]
        raise RunError(
            "peer.failed",
            f"Vibe-Trading ended with code {done.returncode}: {said}",
            where=str(run),
            remedy="kit lint checks what it accepts; its own words are above",
        )


def _ours(study: Study, result: BacktestResult) -> pd.DataFrame:
    records = result.fills.orders
    raw = "raw_" if study.panel.adjustment == "none" else ""
    return pd.DataFrame(
        {
            "time": result.dates[records["idx"]],
            "symbol": result.prices.columns.to_numpy()[records["col"]],
            "side": ["sell" if side else "buy" for side in records["side"]],
            "size": records[f"{raw}size"],
            "price": records[f"{raw}price"],
        }
    )


def _theirs(path: Path) -> pd.DataFrame:
    rows = [
        {
            "time": pd.Timestamp(row["timestamp"]),
            "symbol": row["symbol"],
            "side": "buy" if row["signed_quantity"] > 0 else "sell",
            "size": abs(row["signed_quantity"]),
            "price": row["execution_price"],
        }
        for row in files.read_json_lines(path)
    ]
    return pd.DataFrame(rows, columns=[*_KEYS, "size", "price"])


def _side_by_side(ours: pd.DataFrame, theirs: pd.DataFrame) -> pd.DataFrame:
    """Put fills of one bar, symbol and side beside each other; the n-th with the n-th."""
    numbered = [
        frame.assign(time=pd.to_datetime(frame["time"]), n=frame.groupby(_KEYS).cumcount())
        for frame in (ours, theirs)
    ]
    both = numbered[0].merge(numbered[1], on=[*_KEYS, "n"], how="outer", suffixes=("", "_peer"))
    return both.drop(columns="n").sort_values(_KEYS, kind="stable", ignore_index=True)
