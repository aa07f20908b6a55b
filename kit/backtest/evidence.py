"""Evidence: the folder a backtest leaves behind, and whether it still speaks for a bundle.

A folder `<ISO date>-<label>/` holds the peer's artefact shapes (`config.json`, `metrics.json`,
`metrics.csv`, `equity.csv`, `trades.csv`, `run_card.json`), our `engine.json` (what the numbers
were made from: fingerprints, versions, step quality, guards) and `report.html`.

Evidence is fresh while code, prompts and config of the bundle are what they were. Freeze copies
it into the version; a later reader can repeat the run from `engine.json` alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from kit import files
from kit.backtest.facts import Facts
from kit.backtest.report import build_report
from kit.backtest.result import BacktestResult
from kit.errors import DataError, KitError, StorageError
from kit.state.process import is_alive, this_process

__all__ = ["Evidence", "check_label", "read_all", "write_evidence"]

_LABEL = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*", re.ASCII)
_STAGING = re.compile(r"\.evidence-(\d+)-", re.ASCII)
_FINGERPRINTED = ("code", "prompts", "config")


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """An evidence folder that was read back.

    Attributes:
        folder: Where it is.
        engine: Content of `engine.json`.
    """

    folder: Path
    engine: Mapping[str, Any]

    @classmethod
    def read(cls, folder: Path) -> Evidence:
        """Read an evidence folder.

        Raises:
            DataError: `file.missing`, `file.bad_json`, or `data.schema` with dotted paths.
        """
        from kit.schemas import check

        path = folder / "engine.json"
        value = files.read_json(path)
        check("backtest-engine", value, where=str(path))
        return cls(folder=folder, engine=value)

    def stale_parts(self, fingerprints: Mapping[str, str]) -> list[str]:
        """Name what changed since: any of `code`, `prompts`, `config`; empty means fresh."""
        mine = self.engine["fingerprints"]
        return [part for part in _FINGERPRINTED if mine[part] != fingerprints[part]]


def read_all(root: Path) -> list[Evidence]:
    """Return all readable evidence under `<bundle>/backtests/`, newest first."""
    found: list[Evidence] = []
    for path in root.glob("backtests/[!.]*/engine.json"):
        try:
            found.append(Evidence.read(path.parent))
        except KitError:
            continue  # an unreadable folder is no evidence
    return sorted(found, key=lambda one: str(one.engine["created_at"]), reverse=True)


def check_label(label: str) -> None:
    """Refuse what cannot name an evidence folder.

    Raises:
        DataError: `backtest.bad_label`.
    """
    if not _LABEL.fullmatch(label):
        raise DataError(
            "backtest.bad_label",
            f"{label!r} is not a label",
            remedy="use lower-case words joined by hyphens, such as with-event-overlay",
        )


def write_evidence(parent: Path, result: BacktestResult, facts: Facts, label: str | None) -> Path:
    """Write an evidence folder, complete or not at all, and return it.

    Args:
        parent: Folder that holds one folder a backtest.
        result: The backtest.
        facts: What it was made from.
        label: Lower-case words with hyphens; `iter-N` when None.

    Raises:
        DataError: `backtest.bad_label`, or `backtest.label_taken` for the same day.
        StorageError: The disk refused; nothing is left behind.
    """
    if label is not None:
        check_label(label)
    day = facts.created_at[:10]
    if label is not None and (parent / f"{day}-{label}").exists():
        raise _taken(parent / f"{day}-{label}")
    # Outside the bundle: a freeze at the same time, or after a crash, must not take half a folder.
    place = parent.parent.parent
    _sweep(place)
    staging = place / f".evidence-{os.getpid()}-{day}-{label}"
    try:
        files.make_dir(staging)
        _write(staging, result, facts)
        files.make_dir(parent)
        return _publish(staging, parent, day, label)
    except BaseException:
        files.remove_tree(staging)
        raise


def _publish(staging: Path, parent: Path, day: str, label: str | None) -> Path:
    """Move a finished folder into place; of two backtests at once each gets a number of its own."""
    while True:
        final = parent / f"{day}-{label or _next_label(parent)}"
        try:
            files.publish_dir(staging, final)
        except StorageError as error:
            if error.code != "file.exists":
                raise
            if label is not None:
                raise _taken(final) from error
        else:
            return final


def _taken(final: Path) -> DataError:
    return DataError(
        "backtest.label_taken",
        f"there is evidence called {final.name} already",
        where=str(final),
        remedy="choose another --label, or leave it out",
    )


def _sweep(place: Path) -> None:
    """Remove what killed backtests left."""
    for path in sorted(place.glob(".evidence-*")):
        match = _STAGING.match(path.name)
        if match and is_alive(replace(this_process(), pid=int(match[1]), started="")) is False:
            files.remove_tree(path)


def _next_label(parent: Path) -> str:
    numbers = [
        int(match.group(1))
        for path in parent.glob("*")
        if (match := re.search(r"-iter-(\d+)$", path.name))
    ]
    return f"iter-{max(numbers, default=0) + 1}"


def _write(folder: Path, result: BacktestResult, facts: Facts) -> None:
    metrics = result.metrics.to_dict()
    files.write_json(folder / "config.json", dict(facts.config))
    files.write_json(folder / "metrics.json", metrics)
    files.write_text(folder / "metrics.csv", pd.DataFrame([metrics]).to_csv(index=False))
    files.write_text(folder / "equity.csv", _equity(result).to_csv(index_label="timestamp"))
    files.write_text(folder / "trades.csv", _trades(result.trades).to_csv(index=False))
    files.write_json(folder / "engine.json", _engine(result, facts))
    files.write_json(folder / "run_card.json", _run_card(result, facts, metrics))
    files.write_text(folder / "report.html", build_report(result, facts))


def _equity(result: BacktestResult) -> pd.DataFrame:
    equity = result.equity.rename("equity")
    peak = equity.cummax().clip(lower=result.initial_cash)
    frame = pd.DataFrame(
        {"equity": equity, "ret": equity.pct_change().fillna(0.0), "drawdown": equity / peak - 1}
    )
    return frame.round({"equity": 2, "ret": 8, "drawdown": 8})


def _trades(trades: pd.DataFrame) -> pd.DataFrame:
    rounded = {"size": 6, "entry_price": 4, "exit_price": 4, "pnl": 2, "return": 6}
    return trades.round({name: n for name, n in rounded.items() if name in trades})


def _engine(result: BacktestResult, facts: Facts) -> dict[str, Any]:
    return {
        "schema_version": "1.0",
        "ref": facts.ref,
        "created_at": facts.created_at,
        "range": {"start": str(result.start), "end": str(result.end)},
        "data": {
            "source": facts.source,
            "synthetic": facts.synthetic,
            "market": facts.market,
            "asked": list(facts.asked),
            "dropped": [{"symbol": one.symbol, "reason": one.reason} for one in result.dropped],
        },
        "fingerprints": dict(facts.fingerprints),
        "versions": dict(facts.versions),
        "steps": [asdict(step) | {"differences": list(step.differences)} for step in facts.steps],
        "guards": {
            "lookahead": facts.lookahead.to_dict(),
            "warmup": {
                "declared": facts.warmup_declared,
                "needed": facts.warmup_needed,
                "ok": facts.warmup_ok,
            },
        },
        "unfilled": _unfilled(result.unfilled),
        "costs": {name: round(value, 2) for name, value in result.costs.items()},
        "notes": list(result.notes),
    }


def _unfilled(table: pd.DataFrame) -> dict[str, dict[str, int]]:
    return {
        str(symbol): {str(cause): int(count) for cause, count in row.items() if count}
        for symbol, row in table.iterrows()
        if row.any()
    }


def _run_card(result: BacktestResult, facts: Facts, metrics: Mapping[str, Any]) -> dict[str, Any]:
    symbols = [str(symbol) for symbol in result.prices.columns]
    return {
        "strategy": facts.ref,
        "source": facts.source,
        "codes": symbols,
        "start_date": str(result.start),
        "end_date": str(result.end),
        "initial_cash": result.initial_cash,
        "final_value": round(float(result.equity.iloc[-1]), 2),
        "total_return": metrics["total_return"],
        "max_drawdown": metrics["max_drawdown"],
        "trade_count": len(result.trades),
        "created_at": facts.created_at,
    }
