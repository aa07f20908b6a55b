"""A run's record answers again: the same results, or the first difference."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kit import files
from kit.errors import DataError, RunError
from kit.llm import (
    CallError,
    Completion,
    Mode,
    Recorder,
    ReplaySource,
    Request,
    StepResult,
    StepSpec,
    Usage,
    run_each,
    run_step,
)
from kit.llm.replay import first_difference

SECRET = "sk-0123456789abcdefghij"


def spec(**changes: Any) -> StepSpec:
    values: dict[str, Any] = {
        "name": "explain",
        "system": "Explain the pick.",
        "input_schema": {"type": "object"},
        "output_schema": {
            "type": "object",
            "properties": {"text": {"type": "string"}},
            "required": ["text"],
        },
        "model": "deepseek/deepseek-v3.2",
        "temperature": 0.3,
        "max_tokens": 256,
        "timeout_sec": 5.0,
        "concurrency_limit": 3,
        "quality": "approximate",
        "offline": lambda inputs: {"text": f"n={inputs['n']}"},
    }
    return StepSpec(**{**values, **changes})


class Model:
    """Answers, fails and leaks by the number it is asked."""

    def __init__(self) -> None:
        self.calls = 0

    def complete(self, request: Request) -> Completion:
        self.calls += 1
        n = json.loads(request.messages[1]["content"])["n"]
        if n == 1:
            raise CallError("http_error", f"500 {SECRET}")
        text = "not JSON" if n == 2 else json.dumps({"text": f"{n} {SECRET if n == 3 else ''}"})
        usage = Usage(prompt_tokens=3, completion_tokens=4, cost_usd=0.001)
        return Completion(text=text, finish_reason="stop", usage=usage, model="tiny")


def recorded(folder: Path) -> tuple[list[StepResult], Path]:
    """Four live answers of every kind, one offline, and one that no schema lets in."""
    path = folder / "llm.jsonl"
    recorder = Recorder(path)
    inputs = [{"n": n} for n in range(4)]
    results = run_each(spec(), inputs, mode=Mode.LIVE, llm=Model(), recorder=recorder)
    around: dict[str, Any] = {"mode": Mode.OFFLINE, "recorder": recorder}
    noted = {"cause": "no_key", "measured": None}
    results.append(run_step(spec(name="filter"), {"n": 7}, noted=noted, **around))
    results.append(run_step(spec(name="broken", input_schema={"required": ["m"]}), {}, **around))
    return results, path


def replayed(source: ReplaySource, path: Path, **changes: Any) -> list[StepResult]:
    around: dict[str, Any] = {
        "mode": Mode.REPLAY,
        "replay": source,
        "recorder": Recorder(path),
    }
    results = run_each(spec(**changes), [{"n": n} for n in range(4)], **around)
    results.append(run_step(spec(name="filter"), {"n": 7}, **around))
    results.append(run_step(spec(name="broken", input_schema={"required": ["m"]}), {}, **around))
    return results


def test_a_replay_gives_the_same_results_and_the_same_record(tmp_path: Path) -> None:
    results, path = recorded(tmp_path)
    assert [r.failure.kind if r.failure else "ok" for r in results] == [
        "ok", "http_error", "off_schema", "ok", "ok", "bad_input",
    ]  # fmt: skip
    again = replayed(ReplaySource.read(path), tmp_path / "again.jsonl")
    assert again == results
    lines, relines = (files.read_json_lines(p) for p in (path, tmp_path / "again.jsonl"))

    def key(line: dict[str, Any]) -> tuple[str, int]:
        return line["step"], line["ordinal"]

    # Concurrent answers are recorded as they come, replayed ones in order.
    assert sorted(relines, key=key) == sorted(lines, key=key)


def test_a_secret_in_an_answer_is_masked_before_it_is_used(tmp_path: Path) -> None:
    """Or the replay, which only knows the record, could not give the same card."""
    results, path = recorded(tmp_path)
    assert results[3].value == {"text": "3 «redacted»"}
    assert results[1].failure is not None
    assert SECRET not in results[1].failure.message
    assert SECRET not in path.read_text("utf-8")


def test_the_replay_knows_why_a_step_ran_offline(tmp_path: Path) -> None:
    source = ReplaySource.read(recorded(tmp_path)[1])
    assert source.noted("filter") == {"cause": "no_key", "measured": None}
    assert source.noted("explain") == {"cause": None, "measured": None}
    assert source.noted("unheard") == {"cause": None, "measured": None}


@pytest.mark.parametrize(
    ("changes", "inputs", "told"),
    [
        (
            {"system": "Explain the pick!"},
            {"n": 0},
            r"messages[0].content differs at character 17: recorded 'Explain the pick.\n\nAnswer",
        ),
        (
            {},
            {"n": 9},
            """messages[1].content differs at character 6: recorded '{"n":0}', now '{"n":9}'""",
        ),
        ({"temperature": 0.4}, {"n": 0}, "params.temperature: recorded 0.3, now 0.4"),
        ({"model": "x/y"}, {"n": 0}, "model differs at character 1"),
        ({"json_schema": True}, {"n": 0}, "request.response_format.type differs at character 6"),
        ({"name": "unheard"}, {"n": 0}, "the record has no answer of this step"),
    ],
)
def test_a_miss_shows_the_first_difference(
    tmp_path: Path, changes: dict[str, Any], inputs: dict[str, Any], told: str
) -> None:
    _, path = recorded(tmp_path)
    with pytest.raises(RunError) as caught:
        run_step(spec(**changes), inputs, mode=Mode.REPLAY, replay=ReplaySource.read(path))
    assert caught.value.code == "llm.replay_miss"
    assert told in caught.value.message


def test_an_answer_is_given_as_often_as_it_was_recorded(tmp_path: Path) -> None:
    _, path = recorded(tmp_path)
    source = ReplaySource.read(path)
    run_step(spec(), {"n": 0}, mode=Mode.REPLAY, replay=source)
    with pytest.raises(RunError, match="asked more often than it was recorded"):
        run_step(spec(), {"n": 0}, mode=Mode.REPLAY, replay=source)
    with pytest.raises(RunError, match="no answer of this step"):
        run_step(spec(), {"n": 0}, mode=Mode.REPLAY)


def test_a_recorded_answer_that_does_not_fit_is_not_given(tmp_path: Path) -> None:
    _, path = recorded(tmp_path)
    lines = files.read_json_lines(path)
    for line in lines:
        if line["verdict"] == "ok":
            line["value"] = {"text": "x", "extra": "<script>"}
    with pytest.raises(RunError, match="extra"):
        run_step(spec(), {"n": 0}, mode=Mode.REPLAY, replay=ReplaySource(lines))


def test_a_damaged_record_names_its_line(tmp_path: Path) -> None:
    _, path = recorded(tmp_path)
    lines = path.read_text("utf-8").splitlines()
    path.write_text("\n".join([lines[0], '{"step": 3}', *lines[1:]]), encoding="utf-8")
    with pytest.raises(DataError) as caught:
        ReplaySource.read(path)
    assert (caught.value.code, caught.value.where.split(" ")[0]) == (
        "llm.bad_record",
        "llm.jsonl:2",
    )
    assert ReplaySource.read(tmp_path / "none.jsonl").noted("explain")["cause"] is None


@pytest.mark.parametrize(
    ("then", "now", "told"),
    [
        ({"a": 1}, {"a": 1}, ""),
        ({"a": 1}, {"a": 1, "b": 2}, "b is new"),
        ({"a": [1, 2]}, {"a": [1]}, "a has another length"),
        ({"a": [1, {"b": "xy"}]}, {"a": [1, {"b": "xz"}]}, "a[1].b differs at character 2"),
        ("abc", "abcd", " differs at character 4: recorded 'abc', now 'abcd'"),
        ({"a": {}}, {}, "a is gone"),
    ],
)
def test_first_difference(then: Any, now: Any, told: str) -> None:
    found = first_difference(then, now)
    assert found.startswith(told)
    assert bool(found) == bool(told)


# the shadow


def test_beside_a_model_the_stand_in_answers_and_both_are_kept(tmp_path: Path) -> None:
    _, path = recorded(tmp_path)
    lines = {(x["step"], x["ordinal"]): x for x in files.read_json_lines(path)}
    assert lines["explain", 0]["shadow"] == {
        "verdict": "ok",
        "message": "",
        "value": {"text": "n=0"},
        "agreement": {},  # free text is not compared
    }
    assert lines["explain", 1]["shadow"]["agreement"] is None  # there is no answer to agree with
    assert lines["filter", 0]["shadow"] is None
    assert [a["verdict"] for a in lines["explain", 1]["attempts"]] == ["http_error"]
    assert [a["verdict"] for a in lines["explain", 2]["attempts"]] == ["answered"]


def test_a_stand_in_in_the_shadow_can_neither_fail_nor_hold_a_step(tmp_path: Path) -> None:
    def hang(_: dict[str, Any]) -> dict[str, Any]:
        raise SystemExit(3)

    recorder = Recorder(tmp_path / "llm.jsonl")
    for offline in (hang, lambda _: {"no": "schema"}):
        result = run_step(
            spec(offline=offline), {"n": 0}, mode=Mode.LIVE, llm=Model(), recorder=recorder
        )
        assert result.ok
    verdicts = [x["shadow"]["verdict"] for x in files.read_json_lines(recorder.path)]
    assert verdicts == ["http_error", "off_schema"]


def test_the_record_says_who_is_a_stub_and_what_a_model_may_know(tmp_path: Path) -> None:
    config = {
        "default_provider": "openai",
        "providers": {
            "openai": {"key_env": None, "base_url": "http://127.0.0.1:8000/v1"},
            "local": {"key_env": None, "base_url": "http://localhost:8000/v1", "stub": False},
            "deepseek": {"key_env": "DEEPSEEK_API_KEY"},
            "shared": {"key_env": None, "base_url": "https://models.invalid/v1", "stub": True},
        },
        "cutoffs": {"deepseek/r": "2025-01-31"},
    }
    recorder = Recorder.for_config(tmp_path / "llm.jsonl", config)
    models = ("openai/a", "a", "local/a", "deepseek/r", "shared/a")
    for model in models:
        run_step(
            replace(spec(), model=model), {"n": 0}, mode=Mode.LIVE, llm=Model(), recorder=recorder
        )
    lines = files.read_json_lines(recorder.path)
    assert [line["stub"] for line in lines] == [True, True, False, False, True]
    assert [line["knowledge_cutoff"] for line in lines] == [None] * 3 + ["2025-01-31", None]
