"""The shipped bundles, through the stages of the daily screen: what the card says is true."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kit.jobs.screen_stages import ScreenRun
from kit.workspace import Workspace, copy_workspace

REPOSITORY = Path(__file__).resolve().parents[2]
STAGES = (
    "load_bundle",
    "check_lock",
    "load_data",
    "news",
    "sector_filter",
    "screen",
    "rank",
    "explain",
    "result",
    "card",
)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return copy_workspace(Workspace(root=REPOSITORY), tmp_path_factory.mktemp("cards") / "ws")


def screened(workspace: Workspace, ref: str, day: str) -> tuple[dict[str, Any], str]:
    folder = workspace.root.parent / f"{ref}-{day}"
    folder.mkdir()
    run = ScreenRun.open(
        bundle=ref,
        date=day,
        mode="offline",
        now="2026-12-01T18:00:00+08:00",
        run_folder=str(folder),
        run_id="run",
        card_id="0a1b2c3d",
        workspace=workspace,
    )
    shown = [getattr(run, stage)() for stage in STAGES]
    picks = json.loads((folder / "picks.json").read_text("utf-8"))
    return picks, repr(shown[-1])


def codes(picks: dict[str, Any]) -> list[str]:
    return [entry["code"] for entry in picks["degradation_report"]["entries"]]


def test_us_tech_event_names_the_bank_whose_own_news_speaks_of_technology(copy: Workspace) -> None:
    picks, card = screened(copy, "us-tech-event@0.1.0", "2023-03-17")
    assert [pick["symbol"] for pick in picks["picks"]] == ["600000.SH"]
    assert picks["provenance"]["sector_filter"] == ["600000.SH"]
    assert picks["provenance"]["news"]["status"] == "found"
    assert picks["provenance"]["news"]["count"] == 11
    assert picks["provenance"]["env_lock"]["status"] == "valid"
    assert "环境锁已核对" in card
    assert "美股篮子 8.7%" in card
    assert "公司近期事件提到科技" in card
    assert "公司事件过滤：离线规则（近似）" in card
    assert "合成数据" not in card


def test_a_basket_that_is_behind_is_said(copy: Workspace) -> None:
    """The sample's New York bars end on 21 September 2023."""
    picks, card = screened(copy, "us-tech-event@0.1.0", "2023-10-20")
    assert picks["picks"] == []
    assert "D-022" in codes(picks)
    assert "2023-09-21 16:00" in card
    assert "AAPL" in card


def test_no_basket_at_all_ends_in_a_loud_empty_card(copy: Workspace) -> None:
    picks, card = screened(copy, "us-tech-event@0.1.0", "2024-05-10")
    assert picks["picks"] == []
    assert "D-023" in codes(picks)
    assert "今日无可推送候选" in card


def test_hk_breakout_says_that_its_bars_are_generated(copy: Workspace) -> None:
    picks, card = screened(copy, "hk-breakout@0.1.0", "2024-06-03")
    assert sorted(pick["symbol"] for pick in picks["picks"]) == ["SYN1.HK", "SYN4.HK"]
    assert picks["provenance"]["data"]["synthetic"] is True
    assert "合成数据" in card
    assert "港元" in card
    assert picks["provenance"]["env_lock"]["status"] == "valid"
    assert "环境锁无要求" in card  # nothing is locked, so nothing was compared
