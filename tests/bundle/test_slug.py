"""Names of conversations without a model: useful whatever the language, and never an error."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kit.bundle.slug import excerpt, offline_slug

ID = "ma250-pullback"


def named(*texts: str, role: str = "user") -> str:
    messages = [{"role": role, "text": text} for text in texts]
    return str(
        offline_slug({"strategy_id": ID, "date": "2026-05-15", "messages": messages})["slug"]
    )


@pytest.mark.parametrize(
    ("text", "slug"),
    [
        # a parameter and what is done with it
        ("把 near_pct 从 5 调到 4.0，看看样本", "tune-near-pct"),
        ("放宽 volume_ratio_max 到 1.2", "loosen-volume-ratio-max"),
        # known terms only
        ("板块过滤太激进，放宽一点", "loosen-sector-filter"),
        ("回测一下缩量回踩", "backtest-volume-pullback"),
        # numbers only
        ("把 250 改成 248", "change-250-248"),
        # file names
        ("看看 code/helpers/offline_sectors.py", "offline-sectors-ma250"),
        # English
        ("Please tighten the volume filter", "tighten-volume-filter"),
        # nothing known: the strategy, then the day
        ("你好", "ma250-pullback-2026"),
        ("", "ma250-pullback-2026"),
        ("\u202e\u200b😀", "ma250-pullback-2026"),
        # what was masked is no word
        ("收紧 near_pct，密钥 «redacted»", "tighten-near-pct"),
        # a session id is no word
        ("5f0c2a9e-1111-4222-8333-944445555666", "ma250-pullback-2026"),
    ],
)
def test_a_conversation_gets_a_useful_name(text: str, slug: str) -> None:
    assert named(text) == slug


def test_the_users_first_words_weigh_most() -> None:
    assistant = {"role": "assistant", "text": "drawdown drawdown drawdown drawdown"}
    user = {"role": "user", "text": "tighten near_pct"}
    inputs = {"strategy_id": ID, "date": "2026-05-15", "messages": [user, assistant]}
    assert offline_slug(inputs) == {"slug": "tighten-near-pct"}


@pytest.mark.parametrize("text", ["a" * 5000, "x_" * 900, "1 " * 900, "../../etc/passwd", "%00<b>"])
def test_a_name_is_always_a_file_name(text: str) -> None:
    slug = named(text)
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+){1,3}", slug), slug
    assert len(slug) <= 60


def test_an_excerpt_holds_words_and_no_results() -> None:
    def event(kind: str, content: Any, **more: Any) -> dict[str, Any]:
        return {"role": "user", "kind": kind, "content": content, **more}

    events = [
        event("message", "one"),
        event("tool_call", {"tool": "Edit", "input": {"path": "config.json", "n": 3}}),
        event("tool_result", "never"),
        event("message", "machine", meta=True),
        event("message", "below", sidechain=True),
        event("message", ["x" * 2000]),
        event("message", "  "),
        *[event("message", f"m{i}") for i in range(20)],
    ]
    found = excerpt(events)
    assert [turn["text"] for turn in found[:2]] == ["one", "Edit config.json"]
    assert len(found) == 12
    assert len(found[2]["text"]) == 1000
    assert not {"never", "machine", "below"} & {turn["text"] for turn in found}
