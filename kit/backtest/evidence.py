"""Evidence: the folder a backtest leaves behind, and whether it still speaks for a bundle.

A folder `<ISO date>-<label>/` holds the bundle's `config.json`, `metrics.json`, `equity.csv` and
`trades.csv` (one row a round trip), the peer's shapes (`run_card.json`, `artifacts/`), our
`engine.json` (what the numbers were made from: fingerprints, versions, step quality, guards) and
`report.html`.

Evidence is fresh while code, prompts and config of the bundle, and the bars that its config names,
are what they were. Freeze copies it into the version; a later reader can repeat the run from
`engine.json` alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from kit import files
from kit.backtest.artifacts import equity_table, metrics_row, peer_trades, run_card
from kit.backtest.facts import Facts
from kit.backtest.folder import check_label, publish
from kit.backtest.report import build_report
from kit.backtest.result import BacktestResult
from kit.errors import KitError

__all__ = ["Evidence", "check_label", "read_all", "write_evidence"]


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
        """Name the given parts that changed since: `code`, `prompts`, `config`, `data`."""
        mine = self.engine["fingerprints"]
        return [part for part in mine if part in fingerprints and mine[part] != fingerprints[part]]

    @property
    def partial(self) -> tuple[str, ...]:
        """What it was narrowed to against `config.json`: any of `symbols`, `range`."""
        return tuple(self.engine.get("partial", ()))


def read_all(root: Path) -> list[Evidence]:
    """Return all readable evidence under `<bundle>/backtests/`, newest first."""
    found: list[Evidence] = []
    for path in root.glob("backtests/[!.]*/engine.json"):
        try:
            found.append(Evidence.read(path.parent))
        except KitError:
            continue  # an unreadable folder is no evidence
    return sorted(found, key=lambda one: str(one.engine["created_at"]), reverse=True)


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
    # Outside the bundle: a freeze at the same time, or after a crash, must not take half a folder.
    place = parent.parent.parent

    def fill(folder: Path) -> None:
        _write(folder, result, facts)

    return publish(parent, facts.created_at[:10], label, fill, place=place)


def _write(folder: Path, result: BacktestResult, facts: Facts) -> None:
    config = files.dump_json(dict(facts.config)).encode("utf-8")
    tables = {
        "artifacts/equity.csv": equity_table(result).to_csv(),
        "artifacts/trades.csv": peer_trades(result).to_csv(index=False),
        "artifacts/metrics.csv": pd.DataFrame([metrics_row(result)]).to_csv(index=False),
        "equity.csv": equity_table(result).to_csv(),
        "trades.csv": _trades(result.trades).to_csv(index=False),
    }
    named = {name: text.encode("utf-8") for name, text in tables.items()} | {"config.json": config}
    files.make_dir(folder / "artifacts")
    for name, data in named.items():
        files.write_bytes(folder / name, data)
    files.write_json(folder / "metrics.json", result.metrics.to_dict())
    files.write_json(folder / "engine.json", _engine(result, facts))
    files.write_json(folder / "run_card.json", run_card(result, facts, named))
    files.write_text(folder / "report.html", build_report(result, facts))


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
        "steps": [_jsonable(asdict(step)) for step in facts.steps],
        "guards": facts.guards(),
        **({"partial": list(facts.partial)} if facts.partial else {}),
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


def _jsonable(value: dict[str, Any]) -> dict[str, Any]:
    return {key: list(item) if isinstance(item, tuple) else item for key, item in value.items()}
