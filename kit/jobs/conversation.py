"""Conversations that need a model: their names, and a question asked while a draft is open."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kit.bundle.conversation import (
    DAY_SLUG,
    append_event,
    conversation_files,
    day_file,
    read_conversation,
    require_draft,
    slug_of,
    slugify,
)
from kit.bundle.conversation_import import Imported, import_log
from kit.bundle.importers import SessionLog, read_log
from kit.bundle.layout import check_id
from kit.bundle.prompt import Prompt
from kit.bundle.slug import excerpt, offline_slug
from kit.clock import Clock, SystemClock
from kit.errors import BundleError, ConfigError, DataError, UsageError
from kit.jobs.llm_budget import metered_model
from kit.llm import LLM, Mode, Request, StepSpec, offline_cause, resolve_mode, run_step
from kit.redact import Redactor
from kit.state import Store
from kit.workspace import Workspace

__all__ = ["Reply", "ask", "conversation_slug", "import_session", "summary_slug"]

_PROMPT = "prompts/conversation-slug.md"
_CALLABLE = "kit/bundle/slug.py::offline_slug"
_MAX_LOG_BYTES = 1 << 28
_TIMEOUT_SEC = 60.0
_CHAT_TOKENS = 2_048
_TURNS = 20
_CHAT = (
    "You advise a researcher who writes the draft of the trading strategy {id} in a notebook. "
    "Answer in the language of the question, briefly. Say what you do not know; make up no number."
)


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What came of a question.

    Attributes:
        text: The answer; None when no model was asked.
        model: `provider/name` of the model asked, or that would have been.
        cause: Why none was asked: `forced`, `requested` or `no_key`; None when one was.
        path: The conversation it stands in.
    """

    text: str | None
    model: str
    cause: str | None
    path: Path


def import_session(
    workspace: Workspace,
    strategy_id: str,
    file: Path,
    *,
    format_: str = "auto",
    slug: str | None = None,
    mode: str = "auto",
    dry_run: bool = False,
) -> Imported:
    """Import an agent's session log into the draft of a strategy.

    Args:
        workspace: The workspace.
        strategy_id: Whose draft.
        file: The log.
        format_: `claude-code`, `opencode`, `jsonl`, or `auto`.
        slug: Name of the conversation; None has it summarised.
        mode: Who summarises: `auto`, `live` or `offline`.
        dry_run: Whether to write nothing.

    Raises:
        DataError: `file.missing`, `conversation.too_large`, `conversation.unreadable` or
            `conversation.no_events`.
        UsageError: `conversation.unknown_format`, `conversation.bad_slug`.
        RegistryError: `draft.missing`.
        StorageError: The disk refused; nothing was changed.
    """
    draft = require_draft(workspace.strategies / check_id(strategy_id) / "draft")
    slug = slugify(slug) if slug is not None else None

    def name(log: SessionLog, day: str) -> str:
        return slug or summary_slug(workspace, strategy_id, log.events, day=day, mode=mode)

    return import_log(draft, read_log(_bytes(file), file.name, format_), slug=name, dry_run=dry_run)


def summary_slug(
    workspace: Workspace,
    strategy_id: str,
    events: Iterable[Mapping[str, Any]],
    *,
    day: str,
    mode: str = "auto",
    llm: LLM | None = None,
) -> str:
    """Name a conversation in three or four words; never fails for what is said in it.

    Args:
        workspace: Whose prompt and providers to use.
        strategy_id: The strategy that is talked about.
        events: The conversation.
        day: Its day, YYYY-MM-DD.
        mode: `auto`, `live` or `offline`.
        llm: The client; litellm by default.

    Raises:
        ConfigError: `conversation.prompt` when the prompt declares another stand-in.
    """
    said = Redactor().value(excerpt(events))
    inputs = {"strategy_id": strategy_id, "date": day, "messages": said}
    if not (workspace.root / _PROMPT).is_file():  # a workspace older than the prompt
        return str(offline_slug(inputs)["slug"])
    config = workspace.config("llm")
    spec = _slug_step(workspace)
    asked = resolve_mode(mode, config, model=spec.model)
    if asked is Mode.LIVE and llm is None:
        llm = metered_model(config, Store(workspace.state_path), SystemClock())
    value = run_step(spec, inputs, mode=asked, llm=llm).value
    # A step that failed takes its template: the strategy and the day, which need no words.
    return str((value or offline_slug({**inputs, "messages": []}))["slug"])


def conversation_slug(workspace: Workspace, draft: Path) -> str | None:
    """Return a name for a draft's newest conversation where it has none of its own yet."""
    try:
        found = conversation_files(draft)
        if not found or slug_of(found[-1]) != DAY_SLUG:
            return None
        events = read_conversation(found[-1])
    except BundleError:
        return None  # freeze says what is wrong with it
    day = found[-1].name[: len("2026-05-15")]
    return summary_slug(workspace, draft.parent.name, events, day=day)


def ask(
    workspace: Workspace,
    draft: Path,
    question: str,
    *,
    clock: Clock,
    model: str | None = None,
    mode: str = "auto",
    llm: LLM | None = None,
) -> Reply:
    """Ask a model about a draft; question and answer become part of its conversation.

    Without a model the question is kept as a note. What was asked and answered earlier in the day
    goes along.

    Args:
        workspace: Whose providers to use.
        draft: The draft.
        question: What to ask.
        clock: Where time comes from.
        model: `provider/name`; the one of the slug prompt by default.
        mode: `auto`, `live` or `offline`.
        llm: The client; litellm by default.

    Raises:
        UsageError: `conversation.empty_note`; `llm.bad_mode`.
        CallError: No answer came; the question is recorded.
        RegistryError: `draft.missing`.
    """
    require_draft(draft)
    if not question.strip():
        raise UsageError(
            "conversation.empty_note", "there is no question", remedy="write it below %%kit_chat"
        )
    config = workspace.config("llm")
    model = model or _slug_step(workspace).model
    cause = offline_cause(mode, config, model=model)
    earlier = _earlier(draft, clock)
    kind = "message" if cause is None else "note"
    path = append_event(draft, role="user", kind=kind, content=question, clock=clock)
    if cause is not None:
        return Reply(text=None, model=model, cause=cause, path=path)
    system = {"role": "system", "content": _CHAT.format(id=draft.parent.name)}
    request = Request(
        model=model,
        messages=(system, *earlier, {"role": "user", "content": Redactor().text(question)}),
        temperature=0.3,
        max_tokens=_CHAT_TOKENS,
        timeout_sec=_TIMEOUT_SEC,
        response_format={"type": "text"},
        step="conversation_ask",
    )
    llm = llm or metered_model(config, Store(workspace.state_path), clock)
    text = llm.complete(request).text
    extra = {"model": model}
    append_event(draft, role="assistant", kind="message", content=text, clock=clock, extra=extra)
    return Reply(text=text, model=model, cause=None, path=path)


def _earlier(draft: Path, clock: Clock) -> list[dict[str, str]]:
    path = day_file(draft, clock)
    events = read_conversation(path) if path.exists() else []
    turns = [event for event in events if event["kind"] == "message"]
    return [
        {"role": event["role"], "content": event["content"]}
        for event in turns[-_TURNS:]
        if isinstance(event["content"], str)
    ]


def _slug_step(workspace: Workspace) -> StepSpec:
    try:
        prompt = Prompt.parse(workspace.root / _PROMPT, relative=_PROMPT)
    except OSError as error:
        raise _bad_prompt(f"the prompt cannot be read: {error.strerror}") from error
    offline = prompt.offline
    if offline is None or offline.reference != _CALLABLE:
        raise _bad_prompt(f"the prompt does not declare the callable {_CALLABLE}")
    return StepSpec(
        name=prompt.prompt_id,
        system=prompt.body,
        input_schema=prompt.input_schema,
        output_schema=prompt.output_schema,
        model=prompt.model_default,
        temperature=0.0,
        max_tokens=64,
        timeout_sec=20.0,
        quality=offline.quality,
        differences=offline.differences,
        offline=offline_slug,
        max_calls=1,
    )


def _bad_prompt(message: str) -> ConfigError:
    return ConfigError(
        "conversation.prompt",
        message,
        where=_PROMPT,
        remedy="`kit init` writes it into a new workspace; copy it from there",
    )


def _bytes(file: Path) -> bytes:
    try:
        size = file.stat().st_size
        if size > _MAX_LOG_BYTES:
            raise DataError(
                "conversation.too_large",
                f"the log has {size:,} bytes; at most {_MAX_LOG_BYTES:,} are read",
                where=file.name,
                remedy="import the sessions one by one",
            )
        return file.read_bytes()
    except OSError as error:
        raise DataError(
            "file.missing",
            f"the log cannot be read: {error.strerror}",
            where=str(file),
            remedy="name a file: kit conversation import FILE --draft ID",
        ) from error
