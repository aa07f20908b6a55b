"""The card of several screens: everyone on it, whatever the budget, and what is cut is said."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from kit import schemas
from kit.card import Block, Card, render_card
from kit.degradation import Policy, ReportBuilder
from kit.screen import ScreenLine, merged_card

DAY = date(2024, 9, 19)


def line(number: int, picks: int = 2, *triggers: str, **changes: Any) -> ScreenLine:
    ref = f"strategy-{number:02}@1.0.0"
    report = ReportBuilder(Policy())
    for trigger in triggers:
        report.add(trigger, actual=picks, target=7, files=["SKILL.md"], error="原因", step="x")
    pick = "{n}. 60000{n} 浦发银行 10.02 元"
    blocks = [
        Block(kind="pick", lines=(pick.format(n=n), "　年线 9.9", "　说明（模板）：贴近年线"))
        for n in range(1, picks + 1)
    ]
    times = Block(kind="times", lines=("数据时点 2024-09-19 15:00 收盘",), keep=True)
    card = Card(
        card_id="c", kind="screen", title=ref, blocks=(*blocks, times), mode="offline",
        meta={"picks": [f"60000{n}.SH" for n in range(1, picks + 1)]},
    )  # fmt: skip
    values: dict[str, Any] = {
        "ref": ref, "status": "degraded", "run_id": f"r-{number}", "card": card,
        "report": report.build().to_dict(),
    }  # fmt: skip
    return ScreenLine(**{**values, **changes})


def card(*lines: ScreenLine, notice: str = "") -> Card:
    made = merged_card(lines, card_id="a1b2c3d4", run_id="r", day=DAY, today=DAY, notice=notice)
    assert schemas.validate("card", made.to_dict()) == []
    return made


def test_golden() -> None:
    lines = (
        line(1, 2, "picks_count_below_target"),
        line(2, 0, "bundle_tampered"),
        line(3, 0, "picks_count_below_target"),
        line(4, 0, card=None, report=None, status="failed", problem="另一进程正在运行它"),
    )
    assert (
        render_card(card(*lines), "plain")
        == """\
每日筛选 4 个策略 9月19日(周四)

共 2 只候选
⛔ 2 个策略没有跑成，原因见下；请勿理解为「没有机会」

1. strategy-01@1.0.0：2 只候选 · ⛔ D-031
🔴 2. strategy-02@1.0.0：没有跑成（D-051 策略包与校验和不符：SKILL.md）
3. strategy-03@1.0.0：没有候选 · ⛔ D-031
🔴 4. strategy-04@1.0.0：没有跑成（另一进程正在运行它）

⛔ D-031 本次命中 2 只，少于目标 7 只（策略未写此规则，按默认处理）（1 个策略）
　↳ 命中少于目标，不要为凑数放宽条件；单只仓位不因此加大
⛔ D-031 本次命中 0 只，少于目标 7 只（策略未写此规则，按默认处理）（1 个策略）

1. strategy-01@1.0.0
　1. 600001 浦发银行 10.02 元
　　年线 9.9
　　说明（模板）：贴近年线
　2. 600002 浦发银行 10.02 元
　　年线 9.9
　　说明（模板）：贴近年线

数据时点 2024-09-19 15:00 收盘

运行 r · 卡片 a1b2c3d4"""
    )


@pytest.mark.parametrize(("kind", "budget"), [("wecom", 4096), ("telegram", 2400), ("plain", 2000)])
def test_over_its_budget_every_strategy_stays_and_the_cut_is_counted(
    kind: str, budget: int
) -> None:
    lines = [line(n, 7, "llm_step_failed") for n in range(1, 12)]
    whole = card(*lines, line(12, 0, "bundle_tampered"))
    text = render_card(whole, kind, max_bytes=budget)
    assert len(text.encode("utf-8")) <= budget
    for number in range(1, 12):
        assert f"{number}. strategy-{number:02}@1.0.0：7 只候选 · ⛔ D-011" in text
    assert "🔴 12. strategy-12@1.0.0：没有跑成（D-051" in text
    plain = render_card(whole, "plain").splitlines()
    shown = [row for row in text.replace("**", "").splitlines() if row]
    cut = len([row for row in plain if row]) - len(shown) + 1
    assert f"…其余 {cut} 行见报告" in text
    # Eighty picks have one line each, and the card says where the rest stands.
    assert "说明（模板）" not in text
    assert "说明与指标见各策略的卡片（kit show）" in "\n".join(plain)


def test_nothing_found_is_quiet_and_nothing_run_is_loud() -> None:
    quiet = card(line(1, 0), line(2, 0))
    assert quiet.blocks[0].lines == ("今日无可推送候选",)
    assert quiet.blocks[0].emphasis == "normal"
    loud = card(line(1, 0, "bundle_tampered"))
    assert loud.blocks[0].lines[0] == "🔴 今日无可推送候选"
    assert loud.blocks[0].emphasis == "high"
    cut = card(notice="⛔ 合并筛选没有跑完")
    assert [block.kind for block in cut.blocks[:2]] == ["notice", "conclusion"]
    assert cut.blocks[1].lines == ("🔴 今日无可推送候选",)


def test_machines_find_every_screen_in_the_meta() -> None:
    meta = card(line(1, 1, "llm_step_failed"), line(2, 0)).meta
    assert meta["screens"] == [
        {
            "skill_id": "strategy-01@1.0.0",
            "status": "degraded",
            "run_id": "r-1",
            "picks": ["600001.SH"],
            "degradation_codes": ["D-011"],
        },
        {
            "skill_id": "strategy-02@1.0.0",
            "status": "degraded",
            "run_id": "r-2",
            "picks": [],
            "degradation_codes": [],
        },
    ]


def test_a_strategy_on_generated_bars_is_marked_wherever_it_stands() -> None:
    invented = line(1)
    assert invented.card is not None
    invented.card.meta["synthetic"] = True
    rows = render_card(card(invented, line(2)), "plain").splitlines()
    named = [row for row in rows if "strategy-0" in row]
    assert [("合成数据" in row) for row in named] == ["strategy-01" in row for row in named]
    assert sum("合成数据" in row for row in named) == 2  # its summary, and its picks
