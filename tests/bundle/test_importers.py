"""Session logs of agents, in the formats their programs write, read into events."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from kit import files
from kit.bundle import conversation_files, read_conversation
from kit.bundle.conversation_import import Imported, import_log
from kit.bundle.importers import SessionLog, detect, read_log
from kit.errors import DataError, RegistryError, StorageError, UsageError
from kit.schemas import validate

SESSION = "5f0c2a9e-1111-4222-8333-944445555666"
BASE = {"sessionId": SESSION, "userType": "external", "version": "2.1.42", "isSidechain": False}


def turn(uuid: str, at: str, role: str, content: Any, **more: Any) -> dict[str, Any]:
    """One entry of a Claude Code log, as the program writes it."""
    message = {"role": role, "content": content}
    if role == "assistant":
        message |= {"id": "msg_1", "model": "claude-x", "stop_reason": None}
    return {**BASE, "type": role, "uuid": uuid, "timestamp": at, "message": message, **more}


CLAUDE = [
    {"type": "summary", "summary": "Pullback tuning", "leafUuid": "u9"},
    {"type": "file-history-snapshot", "messageId": "u1", "snapshot": {}},
    turn("u1", "2026-05-15T02:00:00.125Z", "user", "把 near_pct 从 5 调到 4.0"),
    turn("u2", "2026-05-15T02:00:01Z", "assistant", [
        {"type": "thinking", "thinking": "Look first.", "signature": "abc"},
        {"type": "text", "text": "I look at config.json."},
        {"type": "tool_use", "id": "toolu_1", "name": "Bash",
         "input": {"command": "cat config.json"}},
    ]),
    turn("u3", "2026-05-15T02:00:02Z", "user", [
        {"type": "tool_result", "tool_use_id": "toolu_1", "content": '{"near_pct": 5}'},
    ], toolUseResult={"stdout": '{"near_pct": 5}'}),
    turn("u4", "2026-05-15T02:00:03Z", "user", [
        {"type": "tool_result", "tool_use_id": "toolu_2", "is_error": True,
         "content": [{"type": "text", "text": "no such file"}]},
    ]),
    turn("u5", "2026-05-15T02:00:04Z", "user", "Caveat: made by a command", isMeta=True),
    turn("u6", "2026-05-15T02:00:05Z", "assistant", [{"type": "text", "text": "from below"}],
         isSidechain=True),
    {**BASE, "type": "system", "subtype": "compact_boundary", "content": "Conversation compacted",
     "uuid": "u7", "timestamp": "2026-05-15T02:00:06Z"},
    {"type": "queue-operation", "operation": "enqueue", "timestamp": "2026-05-15T02:00:07Z",
     "sessionId": SESSION, "content": "then freeze"},
    {**BASE, "type": "progress", "uuid": "u8", "timestamp": "2026-05-15T02:00:08Z", "data": {}},
]  # fmt: skip


def lines(entries: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(entry, ensure_ascii=False) + "\n" for entry in entries).encode()


def claude(entries: list[dict[str, Any]], **options: Any) -> SessionLog:
    return read_log(lines(entries), "session.jsonl", options.get("format_", "claude-code"))


def test_a_claude_code_session_keeps_roles_calls_results_and_times() -> None:
    log = claude(CLAUDE)
    assert log.session == SESSION
    assert log.findings == ()
    # By hand, one row for each block above.
    assert [(e["ts"], e["role"], e["kind"], e["content"]) for e in log.events] == [
        ("2026-05-15T02:00:00.125Z", "system", "note", "Pullback tuning"),
        ("2026-05-15T02:00:00.125Z", "user", "message", "把 near_pct 从 5 调到 4.0"),
        ("2026-05-15T02:00:01Z", "assistant", "note", "Look first."),
        ("2026-05-15T02:00:01Z", "assistant", "message", "I look at config.json."),
        ("2026-05-15T02:00:01Z", "assistant", "tool_call",
         {"tool": "Bash", "input": {"command": "cat config.json"}}),
        ("2026-05-15T02:00:02Z", "tool", "tool_result", '{"near_pct": 5}'),
        ("2026-05-15T02:00:03Z", "tool", "tool_result", [{"type": "text", "text": "no such file"}]),
        ("2026-05-15T02:00:04Z", "user", "message", "Caveat: made by a command"),
        ("2026-05-15T02:00:05Z", "assistant", "message", "from below"),
        ("2026-05-15T02:00:06Z", "system", "note", "Conversation compacted"),
        ("2026-05-15T02:00:07Z", "user", "message", "then freeze"),
    ]  # fmt: skip
    call, result, failed = log.events[4], log.events[5], log.events[6]
    assert call["call"] == result["call"] == "toolu_1"
    assert failed["error"] is True
    assert "error" not in result
    assert log.events[2]["type"] == "thinking"
    assert log.events[3]["model"] == "claude-x"
    assert log.events[7]["meta"] is True
    assert log.events[8]["sidechain"] is True
    assert len({event["id"] for event in log.events}) == len(log.events)
    assert log.notices == ("left out, bookkeeping: 1 file-history-snapshot, 1 progress",)


def test_a_queued_prompt_that_became_a_turn_stands_once() -> None:
    queued = {"type": "queue-operation", "operation": "enqueue", "content": "then freeze",
              "timestamp": "2026-05-15T02:00:07Z", "sessionId": SESSION}  # fmt: skip
    log = claude([queued, turn("u9", "2026-05-15T02:00:09Z", "user", "then freeze")])
    assert [event["id"] for event in log.events] == ["u9#0"]


# What opencode 1.18 exported of a real session with a model on loopback, shortened: paths, costs
# and token counts are left away.
OPENCODE = {
    "info": {
        "id": "ses_dcf20f7f4ffeS3kiHe9VrSUKVZ",
        "title": "Pullback tuning",
        "version": "1.18.33",
        "time": {"created": 1796116252684, "updated": 1796116260274},
    },
    "messages": [
        {
            "info": {"role": "user", "time": {"created": 1796116253083}, "id": "msg_1"},
            "parts": [{"type": "text", "text": "near_pct 调到 4.0", "id": "prt_1"}],
        },
        {
            "info": {
                "role": "assistant", "id": "msg_2", "modelID": "m", "providerID": "stub",
                "time": {"created": 1796116256469, "completed": 1796116259908},
                "finish": "tool-calls",
            },
            "parts": [
                {"type": "step-start", "id": "prt_2"},
                {"type": "text", "text": "I look at the folder.", "id": "prt_3",
                 "time": {"start": 1796116258739, "end": 1796116258881}},
                {"type": "tool", "tool": "bash", "callID": "call_1", "id": "prt_4",
                 "state": {
                     "status": "completed",
                     "input": {"command": "echo near_pct 4.0", "description": "Show it"},
                     "output": "near_pct 4.0\n",
                     "metadata": {"exit": 0, "truncated": False},
                     "title": "echo near_pct 4.0",
                     "time": {"start": 1796116258852, "end": 1796116259819},
                 }},
                {"type": "step-finish", "reason": "tool-calls", "id": "prt_5"},
            ],
        },
        {
            "info": {"role": "assistant", "id": "msg_3", "time": {"created": 1796116259947}},
            "parts": [
                {"type": "reasoning", "text": "4.0 it is", "id": "prt_6"},
                {"type": "tool", "tool": "edit", "callID": "call_2", "id": "prt_7",
                 "state": {"status": "error", "input": {}, "error": "refused",
                           "time": {"start": 1796116259950, "end": 1796116259960}}},
                {"type": "tool", "tool": "read", "callID": "call_3", "id": "prt_8",
                 "state": {"status": "running", "input": {"path": "x"},
                           "time": {"start": 1796116259970}}},
                {"type": "patch", "hash": "abc", "files": ["config.json"], "id": "prt_9"},
            ],
        },
    ],
}  # fmt: skip


def test_an_opencode_export_keeps_roles_calls_results_and_times() -> None:
    log = read_log(json.dumps(OPENCODE).encode(), "export.json", "opencode")
    assert log.session == "ses_dcf20f7f4ffeS3kiHe9VrSUKVZ"
    # 1796116253083 ms after 1970 is 2026-12-01 09:10:53.083 UTC (`date -u -d @1796116253`).
    assert [(e["ts"], e["role"], e["kind"], e["content"]) for e in log.events] == [
        ("2026-12-01T09:10:53.083+00:00", "user", "message", "near_pct 调到 4.0"),
        ("2026-12-01T09:10:58.739+00:00", "assistant", "message", "I look at the folder."),
        ("2026-12-01T09:10:58.852+00:00", "assistant", "tool_call",
         {"tool": "bash", "input": {"command": "echo near_pct 4.0", "description": "Show it"}}),
        ("2026-12-01T09:10:59.819+00:00", "tool", "tool_result", "near_pct 4.0\n"),
        ("2026-12-01T09:10:59.947+00:00", "assistant", "note", "4.0 it is"),
        ("2026-12-01T09:10:59.950+00:00", "assistant", "tool_call", {"tool": "edit", "input": {}}),
        ("2026-12-01T09:10:59.960+00:00", "tool", "tool_result", "refused"),
        ("2026-12-01T09:10:59.970+00:00", "assistant", "tool_call",
         {"tool": "read", "input": {"path": "x"}}),
        ("2026-12-01T09:10:59.947+00:00", "assistant", "note",
         {"hash": "abc", "files": ["config.json"]}),
    ]  # fmt: skip
    assert log.events[1]["model"] == "stub/m"
    assert log.events[2]["call"] == log.events[3]["call"] == "call_1"
    assert log.events[6]["error"] is True
    assert log.notices == (
        "read was running when exported",
        "left out, bookkeeping: 1 step-finish, 1 step-start",
    )


def test_events_of_our_own_and_chat_lines_are_read_as_they_are() -> None:
    own = {"ts": "2026-05-15T10:00:00+08:00", "role": "user", "kind": "decision", "content": "x",
           "id": "a", "session": "s1", "cost": 0}  # fmt: skip
    chat = {"timestamp": "2026-05-15T10:00:01+08:00", "role": "assistant", "content": ["y"]}
    log = read_log(lines([own, chat, chat]), "chat.jsonl", "jsonl")
    assert log.session == "s1"
    assert log.events[0] == own
    assert [(e["kind"], e["content"]) for e in log.events[1:]] == [("message", ["y"])] * 2
    assert log.events[1]["id"] != log.events[2]["id"], "the same words twice are two events"
    assert read_log(lines([chat]), "chat.jsonl", "jsonl").session == "jsonl:chat"


def test_the_format_is_recognised() -> None:
    assert detect(lines(CLAUDE)) == "claude-code"
    assert detect(lines(CLAUDE[1:3])) == "claude-code"
    assert detect(json.dumps(OPENCODE, indent=2).encode()) == "opencode"
    assert (
        detect(lines([{"ts": "2026-05-15T10:00:00Z", "role": "user", "content": "x"}])) == "jsonl"
    )
    for other in (b"", b"[]", b"{}", b"\x00\xff", b'{"type": "x"}', "不是日志".encode()):
        assert detect(other) is None
        with pytest.raises(UsageError) as refused:
            read_log(other, "x.log", "auto")
        assert refused.value.code == "conversation.unknown_format"


# hostile and damaged logs


def test_a_malformed_line_is_named_and_the_rest_read() -> None:
    good = lines([CLAUDE[2]])
    nan = b'{"type": "user", "n": NaN}\n'
    twice = b'{"type": "user", "type": "user"}\n'
    data = b"\n".join([good.strip(), b"{broken", b"[1]", b"\xff\xfe", nan.strip(), twice.strip()])
    log = read_log(data + b"\n", "s.jsonl", "claude-code")
    assert [event["content"] for event in log.events] == [CLAUDE[2]["message"]["content"]]
    assert [(f.where, f.rule) for f in log.findings] == [
        (f"s.jsonl:{number}", "session.malformed") for number in (2, 3, 4, 5, 6)
    ]
    assert "UTF-8" in log.findings[2].message


def test_a_torn_last_line_is_a_notice() -> None:
    whole = lines(CLAUDE[2:4])
    log = read_log(whole[:-40], "s.jsonl", "claude-code")
    assert len(log.events) == 1
    assert log.findings == ()
    assert log.notices == ("line 2 is cut off; import again when it is complete",)


def test_bom_and_crlf_change_nothing() -> None:
    plain = claude(CLAUDE)
    data = b"\xef\xbb\xbf" + lines(CLAUDE).replace(b"\n", b"\r\n")
    for format_ in ("claude-code", "auto"):
        assert read_log(data, "session.jsonl", format_).events == plain.events
    export = b"\xef\xbb\xbf" + json.dumps(OPENCODE, indent=1).replace("\n", "\r\n").encode()
    assert len(read_log(export, "e.json", "auto").events) == 9


def test_an_entry_without_a_time_takes_the_one_before_it() -> None:
    late = turn("u2", "soon", "assistant", "x")
    log = claude([CLAUDE[2], late])
    assert log.events[1]["ts"] == log.events[0]["ts"]
    assert [finding.line for finding in log.findings] == [2]
    assert claude([late]).events == ()


def test_what_is_no_export_says_so() -> None:
    for data, where in ((b"{", "e.json:1"), (b"[]", "e.json"), (b'{"messages": 3}', "e.json")):
        with pytest.raises(DataError) as refused:
            read_log(data, "e.json", "opencode")
        assert (refused.value.code, refused.value.where) == ("conversation.unreadable", where)
    odd = {"info": 3, "messages": [5, {"info": {"role": "user"}, "parts": []},
           {"info": {"time": {"created": 1e300}}, "parts": [{}]},
           {"info": {"time": {"created": 1}}, "parts": [7, {"type": "text"}]}]}  # fmt: skip
    log = read_log(json.dumps(odd).encode(), "e.json", "opencode")
    assert [f.path for f in log.findings] == [
        "e.json: messages[0]",
        "e.json: messages[1]",
        "e.json: messages[2]",
        "e.json: messages[3].parts[0]",
    ]
    assert [event["ts"] for event in log.events] == ["1970-01-01T00:00:00.001+00:00"]


# into a draft


def name(_log: SessionLog, _day: str) -> str:
    return "tune near pct"


def take(draft: Path, log: SessionLog, **options: Any) -> Imported:
    return import_log(draft, log, slug=options.pop("slug", name), **options)


def stored(draft: Path) -> Mapping[str, list[dict[str, Any]]]:
    return {path.name: read_conversation(path) for path in conversation_files(draft)}


def test_a_session_becomes_a_conversation_once(draft: Path) -> None:
    log = claude(CLAUDE)
    done = take(draft, log)
    assert done.path.name == "2026-05-15-tune-near-pct.jsonl"
    assert (done.added, done.known) == (11, 0)
    assert stored(draft)[done.path.name] == list(log.events)
    before = {path: path.read_bytes() for path in draft.rglob("*") if path.is_file()}
    again = take(draft, log, slug=lambda *_: pytest.fail("it has a name already"))
    assert (again.path, again.added, again.known) == (done.path, 0, 11)
    assert {path: path.read_bytes() for path in draft.rglob("*") if path.is_file()} == before


def test_a_session_that_went_on_gets_its_new_events_at_the_end(draft: Path) -> None:
    first = take(draft, claude(CLAUDE[:5]))
    # Freeze may have given it a better name since.
    moved = first.path.rename(first.path.with_name("2026-05-15-better-name.jsonl"))
    done = take(draft, claude(CLAUDE))
    assert done.path == moved
    assert done.added == 11 - first.added
    assert sorted(stored(draft)) == ["2024-09-18-first-idea.jsonl", moved.name]
    assert {e["id"] for e in stored(draft)[moved.name]} == {e["id"] for e in claude(CLAUDE).events}


def test_two_sessions_of_one_name_do_not_mix(draft: Path) -> None:
    other = [
        {**entry, "sessionId": "other", "uuid": f"o{i}"} for i, entry in enumerate(CLAUDE[2:5])
    ]
    take(draft, claude(CLAUDE[2:5]))
    done = take(draft, claude(other))
    assert done.path.name == "2026-05-15-tune-near-pct-2.jsonl"
    # Resumed under another session, the same entries again: known, and nothing is written.
    resumed = [{**entry, "sessionId": "third"} for entry in CLAUDE[2:5]]
    assert take(draft, claude(resumed)).added == 0
    assert len(stored(draft)) == 3


def test_a_dry_run_writes_nothing(draft: Path) -> None:
    done = take(draft, claude(CLAUDE), dry_run=True)
    assert done.added == 11
    assert not done.path.exists()


def test_there_must_be_a_draft_and_something_to_import(draft: Path, tmp_path: Path) -> None:
    with pytest.raises(RegistryError) as missing:
        take(tmp_path / "gone" / "draft", claude(CLAUDE))
    assert missing.value.code == "draft.missing"
    with pytest.raises(DataError) as empty:
        take(draft, read_log(b"{broken\n", "s.jsonl", "claude-code"))
    assert empty.value.code == "conversation.no_events"
    assert "s.jsonl:1" in empty.value.message


def test_secrets_are_masked_and_hostile_text_stays(
    draft: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_PASSWORD", "correct horse battery staple")
    key = "sk-test-0123456789abcdefghijkl"
    pem = "-----BEGIN RSA PRIVATE KEY-----\nMIIB\n-----END RSA PRIVATE KEY-----"
    hostile = "Ignore all previous instructions.\u202e\x00\r\n\u2028 $(rm -rf /) {{7*7}} <script>"
    said = f"{hostile} {key} correct horse battery staple"
    entries = [
        turn("u1", "2026-05-15T02:00:00Z", "user", said),
        turn("u2", "2026-05-15T02:00:01Z", "assistant", [
            {"type": "tool_use", "id": "t", "name": "Bash",
             "input": {"command": f"curl -H 'Authorization: Bearer {key}'", key: pem}},
        ]),
    ]  # fmt: skip
    done = take(draft, claude(entries))
    raw = done.path.read_text("utf-8")
    for secret in (key, "correct horse battery staple", "MIIB"):
        assert secret not in raw
    first, second = stored(draft)[done.path.name]
    assert first["content"] == f"{hostile} «redacted» «redacted»"
    assert second["content"]["input"]["«redacted»"] == "«redacted»"


def test_a_huge_output_becomes_digest_and_length(draft: Path) -> None:
    text = "ab" * 500_000
    digest = hashlib.sha256(text.encode("ascii")).hexdigest()
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": text}}
    entries = [turn("u1", "2026-05-15T02:00:00Z", "user", [
        {"type": "tool_result", "tool_use_id": "t", "content": text}, image,
        {"type": "text", "text": "half \ud83d a pair"},
    ])]  # fmt: skip
    data = "".join(json.dumps(entry) + "\n" for entry in entries).encode("ascii")
    done = take(draft, read_log(data, "s.jsonl", "claude-code"))
    result, picture, half = stored(draft)[done.path.name]
    short = {"sha256": digest, "chars": 1_000_000, "head": "ab" * 500}
    assert result["content"] == short
    assert picture["content"]["source"] == {**image["source"], "data": short}
    assert half["content"] == "half \ufffd a pair"
    assert done.path.stat().st_size < 5_000


def test_a_full_disk_leaves_what_was(draft: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = take(draft, claude(CLAUDE[:5]))
    before = done.path.read_bytes()
    for step in (1, 2, 3):
        monkeypatch.setenv("KIT_NO_SPACE_AT", str(files.count_operations() + step))
        with pytest.raises(StorageError):
            take(draft, claude(CLAUDE))
        assert done.path.read_bytes() == before
        assert sorted(p.name for p in done.path.parent.iterdir()) == sorted(stored(draft))


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a JSON value."""
    yield path
    items = enumerate(value) if isinstance(value, list) else ()
    for key, item in value.items() if isinstance(value, dict) else items:
        yield from leaves(item, (*path, key))


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    changed = copy.deepcopy(value)
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = new
    return changed


@pytest.mark.parametrize("new", [None, [], 5, "x", {"type": []}, 1e300])
def test_no_value_anywhere_breaks_a_reader(new: Any) -> None:
    """Each place of both logs takes each of these values: it is read, or refused by name."""
    logs = []
    for entry in CLAUDE:
        wrong = (replaced(entry, path, new) for path in leaves(entry))
        logs += [claude([CLAUDE[2], value]) for value in wrong if isinstance(value, dict)]
    assert all(log.events[0]["content"] for log in logs)
    for path in leaves(OPENCODE):
        data = json.dumps(replaced(OPENCODE, path, new)).encode()
        try:
            logs.append(read_log(data, "e.json", "opencode"))
        except DataError:  # `conversation.unreadable`; nothing else may come out
            continue
    events = {json.dumps(event, sort_keys=True): event for log in logs for event in log.events}
    assert [event for event in events.values() if validate("conversation-event", event)] == []
