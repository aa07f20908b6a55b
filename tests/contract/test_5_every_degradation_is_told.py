"""Promise 5: what did not run as designed is in the result, on the card, in the run's status."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kit import files, schemas
from kit.degradation import ABORT, TRIGGERS

Staged = Callable[..., tuple[dict[str, Any], str]]


def flat(text: str) -> str:
    return "".join(text.split())


def assert_told_everywhere(picks: dict[str, Any], card_text: str) -> list[str]:
    """Every entry of the report stands on the card, in the same order; returns the triggers."""
    report = picks["degradation_report"]
    entries = report["entries"]
    assert report["degraded"] is bool(entries)
    assert report["reasons"] == [entry["reason"] for entry in entries]
    text, at = flat(card_text), 0
    for entry in entries:
        trigger = TRIGGERS[entry["trigger"]]
        assert entry["code"] == trigger.code
        assert entry["action"] in trigger.allowed
        # What it does to the result, in words: said once on the card, however often it applies.
        assert entry["impact"] in report["impact"]
        assert flat(entry["impact"]) in text
        at = text.index(flat(f"{entry['code']} {entry['reason']}"), at)
    return [entry["trigger"] for entry in entries]


@pytest.mark.kernel
def test_the_report_of_a_real_run_travels_with_the_result_and_the_card(main_job: Any) -> None:
    picks = main_job.read("picks.json")
    assert main_job.read("degradation.json") == picks["degradation_report"]
    delivered = (main_job.screen_folder() / "delivered" / "card.txt").read_text(encoding="utf-8")
    told = assert_told_everywhere(picks, delivered)
    # No key, and a rule that finds two of seven: in the order of the flow.
    assert told == [
        "llm_offline_equivalent",
        "picks_count_below_target",
        "llm_offline_equivalent",
    ]
    assert main_job.read("run.json")["status"] == "degraded"
    assert json.loads(main_job.first.stdout)["status"] == "degraded"
    codes = [entry["code"] for entry in picks["degradation_report"]["entries"]]
    assert main_job.read("card.json")["meta"]["degradation_codes"] == codes


@pytest.mark.kernel
def test_symbols_that_were_not_compared_are_counted_and_named(main_job: Any) -> None:
    universe = main_job.read("picks.json")["universe"]
    assert universe["asked"] == universe["got"] + 3
    assert universe["screened"] == universe["asked"] - len(universe["dropped"])
    # The three series of the sample that begin in 2021.
    assert {drop["symbol"] for drop in universe["dropped"]} == {
        "000001.SZ",
        "000151.SZ",
        "600000.SH",
    }
    assert all(drop["reason"] for drop in universe["dropped"])


@pytest.mark.kernel
def test_the_report_of_a_slot_says_the_same_as_its_card(main_job: Any) -> None:
    report = main_job.read("degradation.json", main_job.slot_folder)
    assert schemas.validate("degradation", report) == []
    assert [e["trigger"] for e in report["entries"]] == ["llm_offline_equivalent"]
    text = (main_job.slot_folder / "delivered" / "card.txt").read_text(encoding="utf-8")
    assert "离线" in text
    assert main_job.read("run.json", main_job.slot_folder)["status"] == "degraded"


# The same stages in this process, with several things wrong at once.


def edit_manifest(root: Path, **changes: Any) -> None:
    manifest = files.read_json(root / "manifest.json")
    files.write_json(root / "manifest.json", {**manifest, **changes})


def test_several_degradations_accumulate_in_the_order_of_the_flow(
    staged: Staged,
) -> None:
    """Stale bars, no news, a stand-in that fails, too few picks: each says so, none hides one."""

    def change(root: Path) -> None:
        mcp = root.parents[2] / "config" / "mcp.json"
        servers = files.read_json(mcp)
        del servers["servers"]["historical-news-cn"]
        files.write_json(mcp, servers)
        path = root / "code" / "helpers" / "offline_news_proxy.py"
        text = path.read_text(encoding="utf-8")
        path.write_text(text + "\n\ndef focus_sectors(inputs):\n    return {}\n", encoding="utf-8")

    # 2020-06-17 follows the last bar of the older series.
    picks, text = staged(change, date="2020-06-17", now="2020-06-17T09:30:00+00:00")
    assert assert_told_everywhere(picks, text) == [
        "data_freshness_violation",
        "news_not_fetched",
        "llm_offline_equivalent",
        "llm_step_failed",
        "picks_count_below_target",
    ]
    failed = picks["degradation_report"]["entries"][3]
    assert failed["details"]["step"] == "event_sector_filter"


def test_a_rule_that_fails_leaves_no_pick_and_says_where(
    staged: Staged, replace_rule: Callable[[Path, str], None]
) -> None:
    picks, text = staged(lambda root: replace_rule(root, "raise ValueError('no such column')"))
    told = assert_told_everywhere(picks, text)
    assert told[-1] == "screen_failed"
    entry = picks["degradation_report"]["entries"][-1]
    assert entry["action"] == ABORT
    assert "no such column" in entry["reason"]
    assert picks["picks"] == []
    assert "🔴 今日无可推送候选" in text


def test_found_nothing_is_not_called_a_failure(
    staged: Staged, replace_rule: Callable[[Path, str], None]
) -> None:
    """Not fetched, found nothing and suppressed are three different words."""
    picks, text = staged(lambda root: replace_rule(root, "return []"))
    told = assert_told_everywhere(picks, text)
    assert "screen_failed" not in told
    assert "今日无可推送候选" in text
    assert "🔴" not in text
    assert picks["universe"]["screened"] == 7


def test_a_pick_without_a_required_field_is_dropped_by_name(
    staged: Staged, replace_rule: Callable[[Path, str], None]
) -> None:
    body = (
        "nan = float('nan')\n"
        "return [Pick('000783.SZ', nan, {'close': 6.98}, ['r']),\n"
        "        Pick('002572.SZ', 0.5, {'close': 19.5}, ['r'])]"
    )
    picks, text = staged(lambda root: replace_rule(root, body))
    told = assert_told_everywhere(picks, text)
    assert [pick["symbol"] for pick in picks["picks"]] == ["002572.SZ"]
    entry = picks["degradation_report"]["entries"][told.index("required_field_missing")]
    assert "000783" in entry["reason"]


def test_a_missing_variable_of_the_lock_aborts_and_is_named(
    staged: Staged,
) -> None:
    def change(root: Path) -> None:
        lock = files.read_json(root / "manifest.json")["env_lock"]
        names = ("QUOTES_USER", "QUOTES_HOST")
        wanted = [{"name": name, "purpose": "quotes"} for name in names]
        edit_manifest(root, env_lock={**lock, "required_env": wanted})

    picks, text = staged(change)
    assert assert_told_everywhere(picks, text) == ["env_lock_failed"]
    # All that fails at once, not one after the other.
    assert "QUOTES_USER" in text
    assert "QUOTES_HOST" in text
    assert picks["picks"] == []
