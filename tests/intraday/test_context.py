"""The context: its id, its layers, and what each reader gets of it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

import pytest

from kit.errors import DataError, UsageError
from kit.intraday import LAYERS, Gathered, core_packet, read_context, reference
from kit.intraday.context import sealed
from kit.market import QuoteBatch

TRIM = {"600000.SH": (8.31, 8.35), "000151.SZ": (10.05, 10.09)}


@pytest.fixture
def gathered(gather: Callable[..., Gathered], batch: Callable[..., QuoteBatch]) -> Gathered:
    return gather(batch(TRIM))


def test_the_id_is_the_digest_of_the_rest(gathered: Gathered) -> None:
    context = dict(gathered.context)
    found = context.pop("context_id")
    text = json.dumps(context, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    assert found == hashlib.sha256(text.encode()).hexdigest()[:12]


def test_core_references_and_control_are_the_whole_context(gathered: Gathered) -> None:
    packet = core_packet(gathered.context)
    core = {name for name, field in LAYERS.items() if field.layer == "core"}
    references = {row["name"] for row in packet["index"]["references"]}
    control = {name for name, field in LAYERS.items() if field.layer == "control"}
    assert core | references | control == set(gathered.context)
    assert not core & references
    assert not (core | references) & control
    assert set(packet) == core | {"index"}
    assert "analyzer_block" in core
    assert "signals_detail" in references


def test_a_field_without_a_layer_cannot_be_written(gathered: Gathered) -> None:
    fields = {k: v for k, v in gathered.context.items() if k != "context_id"}
    with pytest.raises(DataError, match="without a layer: \\['surprise'\\]"):
        sealed({**fields, "surprise": 1})
    del fields["anomalies"]
    with pytest.raises(DataError, match="missing: \\['anomalies'\\]"):
        sealed(fields)


def test_core_fields_reach_the_packet_untouched(gathered: Gathered) -> None:
    packet = core_packet(gathered.context)
    for name, field in LAYERS.items():
        if field.layer == "core":
            assert packet[name] == gathered.context[name]
    packet["full_holdings"].clear()
    assert gathered.context["full_holdings"]


def test_every_reference_resolves_to_the_same_content(gathered: Gathered) -> None:
    context = gathered.context
    for row in core_packet(context)["index"]["references"]:
        value = reference(context, row["name"], context_id=context["context_id"])
        assert value == context[row["name"]]
        size = len(
            json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()
        )
        assert row["bytes"] == size


def test_a_slice_is_a_subset_and_may_be_empty(gathered: Gathered) -> None:
    context = gathered.context
    wanted = {"context_id": context["context_id"], "entry": "signals_detail"}
    part = reference(context, ticker="000151", **wanted)
    assert [row["ticker"] for row in part] == ["000151"]
    assert reference(context, ticker="600000", **wanted) == []


def test_a_core_field_is_no_reference_and_another_generation_is_refused(
    gathered: Gathered,
) -> None:
    context = gathered.context
    with pytest.raises(UsageError) as caught:
        reference(context, "analyzer_block", context_id=context["context_id"])
    assert caught.value.code == "slot.no_reference"
    with pytest.raises(UsageError) as caught:
        reference(context, "signals_detail", context_id="0" * 12)
    assert caught.value.code == "slot.stale_context"


def test_an_edited_context_is_not_read(gathered: Gathered) -> None:
    value = deepcopy(dict(gathered.context))
    assert read_context(value) == gathered.context
    value["full_holdings"][0]["price"] = 9.99
    with pytest.raises(DataError) as caught:
        read_context(value)
    assert caught.value.code == "slot.context_id"


def test_every_field_the_prompt_names_is_in_the_packet(
    gathered: Gathered, repository: Path
) -> None:
    text = (repository / "prompts" / "intraday.md").read_text(encoding="utf-8")
    body = text.split("---", 2)[2].partition("## Offline")[0].partition("## Output Format")[0]
    named = set(re.findall(r"`([a-z][a-z0-9_]*)`", body))
    packet = core_packet(gathered.context)
    inside = set(packet) | set(packet["index"]) | set(packet["full_holdings"][0])
    assert named
    assert named <= inside
