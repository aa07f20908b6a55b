from __future__ import annotations

import copy
import json
import operator
import pickle
from collections.abc import Callable
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from kit.errors import DataError
from kit.mcp import Record, Recorder

PAYLOAD: dict[str, Any] = {
    "bars": [{"date": "2024-09-18", "close": 1.5, "volume": 10}],
    "unit": {"volume": "shares"},
    "note": "x",
}


def reads(use: Callable[[Any], Any], payload: Any = PAYLOAD) -> list[str]:
    """Return the paths that were read."""
    recorder = Recorder()
    use(recorder.watch("m", "t", {}, payload))
    return list(recorder.record().tools[0].outputs)


def match_bars(x: Any) -> Any:
    match x:
        case {"bars": bars}:
            return bars
    return None


BAR = ["bars", "bars[].close", "bars[].date", "bars[].volume"]


@pytest.mark.parametrize(
    ("use", "paths"),
    [
        (lambda x: None, []),
        (lambda x: (len(x), bool(x), isinstance(x, dict)), []),
        (lambda x: x["note"], ["note"]),
        (lambda x: x.get("note"), ["note"]),
        (lambda x: x.get("absent"), ["absent"]),
        (lambda x: "note" in x, ["note"]),
        (lambda x: x.pop("note"), ["note"]),
        (lambda x: x.setdefault("note", 1), ["note"]),
        (operator.itemgetter("note"), ["note"]),
        (match_bars, BAR),
        # Native code reads records where nothing is observed: taken whole, they count as read.
        (lambda x: pl.DataFrame(x["bars"]), BAR),
        (lambda x: pa.array(x["bars"]), BAR),
        ("{note}".format_map, ["note"]),
        (lambda x: [bar["close"] for bar in x["bars"]], ["bars", "bars[].close"]),
        (lambda x: x["bars"][0]["close"], ["bars", "bars[].close"]),
        (lambda x: x["unit"]["volume"], ["unit", "unit.volume"]),
        (list, [*BAR, "note", "unit"]),
        (lambda x: list(reversed(x)), [*BAR, "note", "unit"]),
        (lambda x: x.keys(), [*BAR, "note", "unit"]),
        (lambda x: x.values(), [*BAR, "note", "unit"]),
        (lambda x: x.items(), [*BAR, "note", "unit"]),
        (dict, [*BAR, "note", "unit"]),
        (lambda x: {**x}, [*BAR, "note", "unit"]),
        (lambda x: x | {}, [*BAR, "note", "unit"]),
        (lambda x: {} | x, [*BAR, "note", "unit"]),
        ({}.update, [*BAR, "note", "unit"]),
        (lambda x: x.copy(), [*BAR, "note", "unit"]),
        (copy.copy, [*BAR, "note", "unit"]),
        (lambda x: x["unit"] == {"volume": "lots"}, ["unit", "unit.volume"]),
        (lambda x: x["unit"] != {"volume": "lots"}, ["unit", "unit.volume"]),
        (json.dumps, [*BAR, "note", "unit", "unit.volume"]),
        (lambda x: json.dumps(x, indent=2), [*BAR, "note", "unit", "unit.volume"]),
        (repr, [*BAR, "note", "unit", "unit.volume"]),
        (lambda x: f"{x}", [*BAR, "note", "unit", "unit.volume"]),
        (copy.deepcopy, [*BAR, "note", "unit", "unit.volume"]),
        (pickle.dumps, [*BAR, "note", "unit", "unit.volume"]),
        (lambda x: pd.DataFrame(x["bars"]), BAR),
        (lambda x: pd.DataFrame.from_records(x["bars"]), BAR),
        (lambda x: pd.json_normalize(x["bars"]), BAR),
    ],
)
def test_what_is_read_is_noted(use: Callable[[Any], Any], paths: list[str]) -> None:
    assert reads(use) == paths


def test_a_watched_answer_behaves_as_the_plain_one() -> None:
    watched = Recorder().watch("m", "t", {}, PAYLOAD)
    assert watched == PAYLOAD
    assert json.loads(json.dumps(watched)) == PAYLOAD
    assert pickle.loads(pickle.dumps(watched)) == PAYLOAD
    assert type(copy.deepcopy(watched)) is dict
    assert str(watched) == str(PAYLOAD)
    assert isinstance(watched, dict)
    assert isinstance(watched["bars"], list)
    with pytest.raises(KeyError):
        watched["absent"]
    assert Recorder().watch("m", "t", {}, "text") == "text"


def test_keys_that_are_data_are_one_field() -> None:
    payload = {"000001.SZ": {"close": 1}, "600519.SH": {"close": 2}}
    assert reads(lambda x: [x[code]["close"] for code in x], payload) == ["*", "*.close"]


def test_a_list_of_records_at_the_top() -> None:
    assert reads(lambda x: x[0]["close"], [{"close": 1}]) == ["[].close"]


def test_records_are_merged_into_tools_used() -> None:
    def run(use: Callable[[Any], Any], *panel: str) -> Record:
        recorder = Recorder()
        use(recorder.watch("data", "get_bars", {"codes": [], "start_date": ""}, PAYLOAD))
        if panel:
            recorder.note_panel("trading-data-cn.get_bars", panel)
        return recorder.record()

    first = run(lambda x: x["bars"][0]["close"], "close", "date")
    second = run(lambda x: [bar.get("date") for bar in x["bars"]], "close_adj")
    merged = Record.merge([first, Record.from_json(json.loads(json.dumps(second.to_json())))])
    assert [(tool.mcp, tool.calls) for tool in merged.tools] == [
        ("data", 2),
        ("trading-data-cn", 0),
    ]
    assert merged.to_tools_used() == {
        "data": [
            {
                "tool_name": "get_bars",
                "required_input_fields": ["codes", "start_date"],
                "required_output_fields": ["bars[].close", "bars[].date"],
            }
        ],
        "trading-data-cn": [
            {
                "tool_name": "get_bars",
                "required_input_fields": [],
                "required_output_fields": ["close", "close_adj", "date"],
            }
        ],
    }


def test_a_record_of_another_shape_is_refused() -> None:
    with pytest.raises(DataError) as caught:
        Record.from_json({"schema_version": "1.0", "tools": [{"mcp": "x"}]}, where="tools.json")
    assert caught.value.where == "tools.json"
