"""Trials are counted once, through crashes and crowds, and deflate a Sharpe ratio."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import select

from kit.backtest.trials import bar_sharpe, count_trial, deflated_sharpe, luck
from kit.state import Store, tables

AT = "2024-09-19T08:40:00+00:00"
RETURNS = np.array([0.01, -0.005, 0.02, 0.0, 0.004, -0.01])


def test_the_example_of_its_authors() -> None:
    """Bailey and Lopez de Prado (2014), the numerical example: 100 trials, five years of days."""
    year = 250
    variance = 0.5 / year
    assert luck(100, variance) == pytest.approx(0.1132, abs=5e-5)
    facts = {"bars": 1250, "skew": -3.0, "kurtosis": 10.0, "variance": variance}
    found = deflated_sharpe(2.5 / math.sqrt(year), tried=100, **facts)
    assert found == pytest.approx(0.9004, abs=5e-5)
    # With 46 trials only it would have passed at 95 %.
    assert deflated_sharpe(2.5 / math.sqrt(year), tried=46, **facts) == pytest.approx(
        0.9505, abs=5e-5
    )


def test_a_single_trial_by_hand() -> None:
    # S = 0.1, T = 101, a normal distribution: 0.1 x 10 / sqrt(1 + 0.5 x 0.01) = 0.99751.
    found = deflated_sharpe(0.1, bars=101, skew=0.0, kurtosis=3.0, tried=1, variance=0.0)
    z = 1.0 / math.sqrt(1.005)
    assert found == pytest.approx(0.5 * (1 + math.erf(z / math.sqrt(2))), abs=1e-12)
    assert deflated_sharpe(0.1, bars=1, skew=0.0, kurtosis=3.0, tried=1, variance=0.0) is None
    # A skewness that no ratio of this size can have leaves no formula.
    assert deflated_sharpe(1.0, bars=9, skew=5.0, kurtosis=3.0, tried=1, variance=0.0) is None


def test_ratio_of_returns() -> None:
    mean = sum(RETURNS) / 6
    spread = math.sqrt(sum((r - mean) ** 2 for r in RETURNS) / 5)
    assert bar_sharpe(RETURNS) == pytest.approx(mean / spread)
    assert bar_sharpe(np.zeros(9)) is None
    assert bar_sharpe(RETURNS[:1]) is None


def test_the_best_of_many_worthless_ones_is_seen_through() -> None:
    """Monte Carlo: 40 coin-flip accounts of 500 bars, 300 times over."""
    random = np.random.default_rng(3)
    tries, bars, rounds = 40, 500, 300
    best, believed, naive = [], 0, 0
    for _ in range(rounds):
        flips = random.normal(0, 0.01, (tries, bars))
        ratios = flips.mean(axis=1) / flips.std(axis=1, ddof=1)
        variance = float(ratios.var(ddof=1))
        top = int(ratios.argmax())
        best.append(ratios[top] / math.sqrt(variance))
        facts = {"bars": bars, "skew": 0.0, "kurtosis": 3.0, "variance": variance}
        believed += (deflated_sharpe(ratios[top], tried=tries, **facts) or 0) >= 0.95
        naive += (deflated_sharpe(ratios[top], tried=1, **facts) or 0) >= 0.95
    # The expected maximum of the formula is that of the draws.
    assert luck(tries, 1.0) == pytest.approx(float(np.mean(best)), abs=0.1)
    assert naive / rounds > 0.8
    assert believed / rounds < 0.05


def count(store: Store, family: str = "tiny", returns: np.ndarray = RETURNS, **identity: object):  # type: ignore[no-untyped-def]
    return count_trial(
        store, family, identity, returns, ref=f"{family}@draft", at=AT, periods=250.0
    )


def test_the_same_trial_counts_once_and_each_family_for_itself(store: Store) -> None:
    first = count(store, window=10)
    assert (first.place, first.tried, first.expected_best) == (1, 1, 0.0)
    assert count(store, window=10) == first
    other = count(store, window=20, returns=-RETURNS)
    assert (other.place, other.tried) == (2, 2)
    # Two ratios of one size and opposite sign: their variance is twice the square of it.
    ratio = bar_sharpe(RETURNS)
    assert ratio is not None
    assert other.expected_best == pytest.approx(luck(2, 2 * ratio**2) * math.sqrt(250))
    again = count(store, window=10)
    assert (again.place, again.tried) == (1, 2)
    assert again.deflated_sharpe < first.deflated_sharpe
    assert count(store, "other", window=10).tried == 1


def test_an_account_that_never_moved_is_a_trial_too(store: Store) -> None:
    idle = count(store, returns=np.zeros(9), window=1)
    assert (idle.tried, idle.deflated_sharpe) == (1, None)
    assert count(store, window=2).tried == 2


# One process that imports once and forks: what each child leaves is what a process would leave.
DRIVER = """
import os, sys
from pathlib import Path
import numpy as np
from kit import files
from kit.backtest.trials import count_trial
from kit.state import Store

def child(path, window, crash=None):
    pid = os.fork()
    if pid:
        return pid
    if crash is not None:
        os.environ["KIT_CRASH_AT"] = str(files.count_operations() + crash)
    code = 1
    try:
        count_trial(Store(path), "tiny", {"window": window}, np.array([0.01, -0.005, 0.02]),
                    ref="tiny@draft", at="t", periods=250.0)
        code = 0
    finally:
        os._exit(code)

def ended(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

root = Path(sys.argv[1])
print(*[ended(pid) for pid in [child(root / "crowd", window) for window in (1, 2, 3, 1)]])
for number in range(1, 9):
    path = root / str(number)
    print(number, ended(child(path, 1, crash=number)), ended(child(path, 1)))
"""


@pytest.fixture(scope="module")
def driven(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[list[int]]]:
    """Where four at once and eight killed ones counted, and how each process ended."""
    root = tmp_path_factory.mktemp("driven")
    command = [sys.executable, "-c", DRIVER, str(root)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return root, [[int(word) for word in line.split()] for line in ran.stdout.splitlines()]


def tried(path: Path) -> int:
    with Store(path).read() as connection:
        return len(connection.execute(select(tables.trials.c.id)).all())


def test_many_at_once_are_all_counted(driven: tuple[Path, list[list[int]]]) -> None:
    root, (crowd, *_) = driven
    assert crowd == [0, 0, 0, 0]
    assert tried(root / "crowd") == 3


def test_a_kill_at_any_operation_counts_it_once_in_the_end(
    driven: tuple[Path, list[list[int]]],
) -> None:
    root, (_, *rows) = driven
    for number, killed, after in rows:
        assert after == 0
        assert killed in (0, 137)
        assert tried(root / str(number)) == 1
    codes = [killed for _, killed, _ in rows]
    # Killed before the transaction and before its commit, and not at all once there is no more.
    assert codes[:2] == [137, 137]
    assert codes[-1] == 0
