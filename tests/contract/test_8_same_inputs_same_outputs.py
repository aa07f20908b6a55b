"""Promise 8: the same bundle, bars and date give the same bytes, but for the run's own name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kit import files
from kit.jobs.screen_news import recorded_news
from kit.jobs.screen_stages import ScreenRun
from kit.jobs.slot_stages import SlotRun
from kit.workspace import Workspace


def without(text: str, own: dict[str, str]) -> str:
    """A text with the values that name the run itself put aside; each of them must occur."""
    for name, value in own.items():
        assert value in text, name
        text = text.replace(value, f"<{name}>")
    return text


def own_names(main_job: Any, attempt: int) -> dict[str, str]:
    record = main_job.read("run.json", main_job.screen_folder(attempt))
    # The later attempt's instant may be the earlier one's too: both runs are put aside alike.
    return {"run_id": record["run_id"], "run_at": record["parameters"]["now"]}


@pytest.mark.kernel
def test_two_attempts_of_a_screen_give_the_same_result(main_job: Any) -> None:
    texts = [
        without(
            (main_job.screen_folder(n) / "picks.json").read_text(encoding="utf-8"),
            own_names(main_job, n),
        )
        for n in (1, 2)
    ]
    assert texts[0] == texts[1]
    # What was put aside is exactly these two values, nothing that was computed.
    one, two = (main_job.read("picks.json", main_job.screen_folder(n)) for n in (1, 2))
    differing = {key for key in one if one[key] != two[key]}
    assert differing <= {"provenance"}
    inside = {k for k in one["provenance"] if one["provenance"][k] != two["provenance"][k]}
    assert {"run_id"} <= inside <= {"run_id", "run_at"}


@pytest.mark.kernel
def test_report_and_answers_are_the_same(main_job: Any) -> None:
    one, two = (main_job.screen_folder(n) for n in (1, 2))
    name = "degradation.json"
    assert (one / name).read_bytes() == (two / name).read_bytes()
    answers = []
    for folder in (one, two):
        rows = files.read_json_lines(folder / "llm.jsonl")
        # One answer for the filter and one a pick; those are asked for side by side.
        assert len(rows) == 3
        for row in rows:
            del row["latency_sec"]
        answers.append(sorted(rows, key=lambda row: (row["step"], row["ordinal"])))
    assert answers[0] == answers[1]


@pytest.mark.kernel
def test_two_attempts_give_the_same_card(main_job: Any) -> None:
    texts = []
    for n in (1, 2):
        folder = main_job.screen_folder(n)
        record = main_job.read("run.json", folder)
        own = {"run_id": record["run_id"], "card_id": record["card_id"]}
        texts.append(
            [
                without((folder / name).read_text(encoding="utf-8"), own)
                for name in ("card.json", "delivered/card.txt", "delivered/card.json")
            ]
        )
    assert texts[0] == texts[1]


@pytest.mark.kernel
def test_a_run_names_what_went_in(main_job: Any) -> None:
    """The digests that make two runs comparable: of the bundle, the bars and the notebook."""
    one, two = (main_job.read("run.json", main_job.screen_folder(n)) for n in (1, 2))
    assert one["notebook_sha256"] == two["notebook_sha256"]
    notebook = main_job.workspace.root / one["notebook"]
    assert one["notebook_sha256"] == files.sha256_file(notebook)
    checksums = main_job.workspace.strategies / "ma250-pullback" / "0.3.1" / "checksums.txt"
    digest = files.sha256_file(checksums)
    assert one["facts"]["bundle_digest"] == two["facts"]["bundle_digest"] == digest
    assert main_job.read("picks.json")["provenance"]["bundle"]["digest"] == digest


def test_a_slot_gathers_the_same_context_twice(desk: Workspace, tmp_path: Path) -> None:
    texts: list[dict[str, bytes]] = []
    for number in (1, 2):
        folder = tmp_path / str(number)
        folder.mkdir()
        slot = SlotRun.open(
            workspace=desk,
            market="cn",
            now="2024-09-18T10:03:00+08:00",
            mode="offline",
            run_folder=str(folder),
            run_id="2024-09-18/slot-cn-1000/1",
            card_id="0123abcd",
        )
        for stage in ("gather", "delta", "packet", "judge", "check", "card"):
            getattr(slot, stage)()
        names = ("context.json", "packet.json", "prose.md", "checks.json", "card.json")
        texts.append({name: (folder / name).read_bytes() for name in names})
    assert texts[0] == texts[1]


@pytest.mark.kernel
def test_stages_in_this_process_agree_with_the_kernel(
    main_job: Any, desk: Workspace, tmp_path: Path, stages: tuple[str, ...]
) -> None:
    """The same instant, run id and card id given again: the same bytes, without a kernel."""
    record = main_job.read("run.json")
    folder = tmp_path / "replay"
    folder.mkdir()
    screen = ScreenRun.open(
        workspace=desk,
        run_folder=str(folder),
        run_id=record["run_id"],
        card_id=record["card_id"],
        # This desk's news server is not the real one.
        feed=recorded_news(main_job.screen_folder()),
        **record["parameters"],
    )
    for stage in stages:
        getattr(screen, stage)()
    for name in ("picks.json", "degradation.json", "card.json"):
        assert (folder / name).read_bytes() == (main_job.screen_folder() / name).read_bytes(), name


@pytest.mark.kernel
def test_a_run_is_done_over_from_its_folder(main_job: Any, kit_command: Any) -> None:
    """The command itself, in kernels of their own: a screen and a slot, byte for byte."""
    runs = main_job.workspace.runs
    before = {p: p.read_bytes() for p in runs.rglob("*.json")}
    for folder in (main_job.screen_folder(), main_job.slot_folder):
        run_id = folder.relative_to(runs).as_posix()
        done = kit_command(main_job.workspace.root, "replay", run_id, "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        shown = json.loads(done.stdout)
        assert (shown["run_id"], shown["identical"]) == (run_id, True)
        assert {"degradation.json", "card.json"} <= set(shown["compared"])
    assert {p: p.read_bytes() for p in runs.rglob("*.json")} == before
