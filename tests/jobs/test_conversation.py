"""Names found by a model, questions asked of one, and logs imported through the whole job."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pytest_httpserver import HTTPServer

from kit.bundle import conversation_files, read_conversation, record_note
from kit.clock import FixedClock
from kit.errors import ConfigError, DataError, RegistryError, UsageError
from kit.jobs.conversation import ask, conversation_slug, import_session, summary_slug
from kit.llm import CallError, Completion, Request
from kit.workspace import Workspace

ID = "tiny-screen"
EVENTS = [{"role": "user", "kind": "message", "content": "把 near_pct 从 5 调到 4.0"}]


class Scripted:
    """A model that gives prepared answers, and keeps what it was asked."""

    def __init__(self, *answers: str | CallError) -> None:
        self.answers = list(answers)
        self.asked: list[Request] = []

    def complete(self, request: Request) -> Completion:
        self.asked.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, CallError):
            raise answer
        return Completion(text=answer, finish_reason="stop")


@pytest.fixture
def draft(screen_draft: Any, workspace: Workspace) -> Path:
    screen_draft()
    return workspace.strategies / ID / "draft"


@pytest.fixture
def live(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key of the prompt's provider is configured."""
    monkeypatch.delenv("KIT_MODE")
    monkeypatch.setenv("DEEPSEEK_API_KEY", "test-key-0123456789")


def slug(workspace: Workspace, *answers: str | CallError, **options: Any) -> tuple[str, Scripted]:
    model = Scripted(*answers)
    found = summary_slug(workspace, ID, EVENTS, day="2026-05-15", llm=model, **options)
    return found, model


def test_offline_the_name_comes_from_the_equivalent(workspace: Workspace) -> None:
    assert slug(workspace)[0] == "tune-near-pct"
    (workspace.prompts / "conversation-slug.md").unlink()
    assert slug(workspace)[0] == "tune-near-pct", "a workspace older than the prompt"


@pytest.mark.usefixtures("live")
def test_live_the_model_names_it(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_PASSWORD", "correct horse battery staple")
    events = [
        *EVENTS,
        {"role": "user", "kind": "message", "content": "correct horse battery staple"},
    ]
    model = Scripted('{"slug": "lower-near-pct"}')
    assert summary_slug(workspace, ID, events, day="2026-05-15", llm=model) == "lower-near-pct"
    (request,) = model.asked
    told = json.loads(request.messages[1]["content"])
    assert told["messages"][0] == {"role": "user", "text": "把 near_pct 从 5 调到 4.0"}
    assert told["messages"][1]["text"] == "«redacted»"
    assert (told["strategy_id"], told["date"]) == (ID, "2026-05-15")


@pytest.mark.usefixtures("live")
@pytest.mark.parametrize(
    "answer",
    ['{"slug": "../../etc"}', '{"slug": "Tune"}', "tune-near-pct", '{"slug": "a-b", "x": 1}', "",
     CallError("timeout", "no answer")],
)  # fmt: skip
def test_a_model_that_fails_takes_the_template(
    workspace: Workspace, answer: str | CallError
) -> None:
    """The strategy and the day; never the equivalent, never an error."""
    assert slug(workspace, answer)[0] == "tiny-screen-2026"


def test_a_prompt_without_its_stand_in_is_refused(workspace: Workspace) -> None:
    path = workspace.prompts / "conversation-slug.md"
    path.write_text(path.read_text("utf-8").replace("::offline_slug", "::other"), "utf-8")
    with pytest.raises(ConfigError) as refused:
        slug(workspace)
    assert refused.value.code == "conversation.prompt"


def test_a_days_notes_get_a_name_at_freeze(
    workspace: Workspace, draft: Path, clock: FixedClock
) -> None:
    assert conversation_slug(workspace, draft) is None, "it has a name of its own"
    record_note(draft, "收紧 near_pct", clock=clock)
    assert conversation_slug(workspace, draft) == "tighten-near-pct"
    conversation_files(draft)[-1].write_text("{broken\n", "utf-8")
    assert conversation_slug(workspace, draft) is None
    assert conversation_slug(workspace, draft.with_name("gone")) is None


def test_a_file_is_imported_under_a_summary_or_a_given_name(
    workspace: Workspace, draft: Path, tmp_path: Path
) -> None:
    log = tmp_path / "chat.jsonl"
    event = {**EVENTS[0], "ts": "2026-05-15T10:00:00+08:00"}
    log.write_text(json.dumps(event, ensure_ascii=False) + "\n", "utf-8")
    dry = import_session(workspace, ID, log, dry_run=True)
    assert (dry.path.name, dry.path.exists()) == ("2026-05-15-tune-near-pct.jsonl", False)
    done = import_session(workspace, ID, log, slug="My Own Name!")
    assert done.path.name == "2026-05-15-my-own-name.jsonl"
    assert import_session(workspace, ID, log).added == 0
    for file, id_, error in (
        (tmp_path / "gone.jsonl", ID, DataError),
        (tmp_path, ID, DataError),
        (log, "no-such", RegistryError),
        (log, "../x", UsageError),
    ):
        with pytest.raises(error):
            import_session(workspace, id_, file)
    with pytest.raises(UsageError) as refused:
        import_session(workspace, ID, log, slug="中文")
    assert refused.value.code == "conversation.bad_slug"


def said(draft: Path) -> list[tuple[str, str, str]]:
    path = conversation_files(draft)[-1]
    return [(e["role"], e["kind"], e["content"]) for e in read_conversation(path)]


def test_without_a_model_a_question_is_a_note(
    workspace: Workspace, draft: Path, clock: FixedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    reply = ask(workspace, draft, "为什么？", clock=clock)
    assert (reply.text, reply.cause) == (None, "forced")
    monkeypatch.delenv("KIT_MODE")
    assert ask(workspace, draft, "why?", clock=clock).cause == "no_key"
    assert said(draft) == [("user", "note", "为什么？"), ("user", "note", "why?")]
    with pytest.raises(UsageError):
        ask(workspace, draft, "  ", clock=clock)


@pytest.mark.usefixtures("live")
def test_question_and_answer_are_recorded_and_go_along(
    workspace: Workspace, draft: Path, clock: FixedClock
) -> None:
    record_note(draft, "no message", clock=clock)
    model = Scripted("因为缩量。", CallError("rate_limited", "slow down"), "ok")
    assert ask(workspace, draft, "为什么？", clock=clock, llm=model).text == "因为缩量。"
    with pytest.raises(CallError):
        ask(workspace, draft, "and now?", clock=clock, llm=model)
    ask(workspace, draft, "again", clock=clock, llm=model)
    assert said(draft)[1:] == [
        ("user", "message", "为什么？"),
        ("assistant", "message", "因为缩量。"),
        ("user", "message", "and now?"),
        ("user", "message", "again"),
        ("assistant", "message", "ok"),
    ]
    last = [message["content"] for message in model.asked[-1].messages[1:]]
    assert last == ["为什么？", "因为缩量。", "and now?", "again"]
    assert ID in model.asked[0].messages[0]["content"]


@pytest.fixture
def server() -> Iterator[HTTPServer]:
    with HTTPServer(host="127.0.0.1", threaded=True) as running:
        yield running
    gc.collect()


@pytest.mark.slow
@pytest.mark.usefixtures("live")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_real_server_is_asked_through_litellm(
    workspace: Workspace, draft: Path, clock: FixedClock, server: HTTPServer
) -> None:
    choice = {"index": 0, "message": {"role": "assistant", "content": "4.0 是更窄的带。"},
              "finish_reason": "stop"}  # fmt: skip
    answer = {"id": "c", "object": "chat.completion", "created": 1, "model": "tiny",
              "choices": [choice], "usage": {}}  # fmt: skip
    server.expect_request("/v1/chat/completions").respond_with_json(answer)
    config = workspace.config("llm")
    config["providers"]["openai"] = {"key_env": None, "base_url": server.url_for("/v1")}
    (workspace.config_dir / "llm.json").write_text(json.dumps(config), "utf-8")
    reply = ask(workspace, draft, "4.0 意味着什么？", clock=clock, model="openai/tiny")
    assert reply.text == "4.0 是更窄的带。"
    sent = server.log[0][0].get_json()
    assert sent["messages"][-1] == {"role": "user", "content": "4.0 意味着什么？"}
    event = read_conversation(conversation_files(draft)[-1])[-1]
    assert (event["role"], event["model"]) == ("assistant", "openai/tiny")
