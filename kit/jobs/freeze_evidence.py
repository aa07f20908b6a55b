"""What a draft's backtests prove to a freeze: that they are of this draft, and what they found.

Evidence speaks for a draft when code, prompts and config are the same and the bars that the
config names are, now, the bars it was made from: a run on fewer symbols or on another range proves
nothing about the version. A leak counts wherever it shows: one failing backtest of this code is
enough to refuse it, however narrow.
"""

from __future__ import annotations

from functools import partial

from kit.backtest.evidence import Evidence, read_all
from kit.backtest.verdicts import judged
from kit.bundle import Bundle, CheckResult
from kit.bundle.frozen import Check
from kit.errors import KitError, StorageError
from kit.jobs.study import data_fingerprint
from kit.workspace import Workspace

__all__ = ["Proof"]


class Proof:
    """The evidence of one draft, asked by each check of a freeze in turn.

    Args:
        workspace: Where the bars are.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._data: dict[tuple[str, str], str] = {}

    def evidence(self, bundle: Bundle) -> CheckResult:
        """Check that a backtest of exactly this draft exists."""
        found = read_all(bundle.root)
        mend = f"run kit backtest {bundle.id}@draft"
        if not found:
            return CheckResult(name="evidence", ok=False, detail="there is no backtest", mend=mend)
        fresh = self._fresh(bundle)
        if fresh:
            detail = f"{', '.join(evidence.folder.name for evidence in fresh)} fresh"
            return CheckResult(name="evidence", ok=True, detail=detail, mend=mend)
        newest = found[0]
        stale = self._stale_parts(bundle, newest)
        detail = f"{newest.folder.name} is stale: {', '.join(stale)} changed since"
        if stale == ["data"] and newest.partial:
            narrowed = " and ".join(newest.partial)
            detail = f"{newest.folder.name} is partial: other {narrowed} than config.json names"
        return CheckResult(name="evidence", ok=False, detail=detail, mend=mend)

    def lookahead(self, bundle: Bundle) -> CheckResult:
        """Check that no output changes with later bars."""
        return self._guard(bundle, "lookahead", "make the rule look at the past only")

    def warmup(self, bundle: Bundle) -> CheckResult:
        """Check that the declared warm-up covers what was measured."""
        mend = "set data_contract.warmup_bars to what is needed"
        return self._guard(bundle, "warmup", mend)

    @property
    def advice(self) -> tuple[Check, ...]:
        """What is shown beside the checks, and never stops a freeze."""
        return tuple(partial(self._advice, name) for name in ("costs", "trials", "folds"))

    def _guard(self, bundle: Bundle, name: str, mend: str) -> CheckResult:
        mine = bundle.fingerprints
        verdicts = [
            evidence.engine["guards"][name]
            for evidence in read_all(bundle.root)
            if not evidence.stale_parts(mine)
        ]
        if not verdicts:
            # The rule may be as good as can be: what is missing is the run that says so.
            mend = f"run kit backtest {bundle.id}@draft"
            return CheckResult(name=name, ok=False, detail="not run on this code", mend=mend)
        worst = next((verdict for verdict in verdicts if not verdict["ok"]), verdicts[0])
        ok, detail = judged(name, worst)
        return CheckResult(name=name, ok=ok, detail=detail, mend=f"{mend}, then backtest")

    def _advice(self, name: str, bundle: Bundle) -> CheckResult:
        told = [one.engine["guards"].get(name) for one in self._fresh(bundle)]
        ok, detail = judged(name, next((value for value in told if value), None))
        return CheckResult(name=name, ok=ok, detail=detail, blocking=False)

    def _fresh(self, bundle: Bundle) -> list[Evidence]:
        return [one for one in read_all(bundle.root) if not self._stale_parts(bundle, one)]

    def _stale_parts(self, bundle: Bundle, evidence: Evidence) -> list[str]:
        mine = bundle.fingerprints
        stale = evidence.stale_parts(mine)
        if stale:
            return stale  # bars need no comparison: a changed config may name others
        return evidence.stale_parts({"data": self._now(bundle, evidence, mine["config"])})

    def _now(self, bundle: Bundle, evidence: Evidence, config: str) -> str:
        """Return the fingerprint of what the evidence's own source has for the config now."""
        source = str(evidence.engine["data"]["source"])
        if (source, config) not in self._data:
            try:
                found = data_fingerprint(self._workspace, bundle, source)
            except StorageError:
                raise
            except KitError as error:
                found = str(error)  # bars that cannot be read are not those of the evidence
            self._data[source, config] = found
        return self._data[source, config]
