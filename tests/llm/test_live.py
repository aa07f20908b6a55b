"""Live steps through litellm against a real HTTP server that behaves and misbehaves."""

from __future__ import annotations

import contextlib
import gc
import json
import socket
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from pytest_httpserver import HTTPServer
from werkzeug import Request as Received
from werkzeug import Response

from kit.llm import CallLimits, LiteLLM, Mode, StepSpec, run_each, run_step

pytestmark = [
    pytest.mark.slow,  # importing litellm takes seconds
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

GOOD = '{"reason_text": "回踩年线", "confidence": "high"}'
KEY = "test-key-0123456789"


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    """Let go of the client library's sockets here, where their warnings are expected."""
    yield
    gc.collect()


@pytest.fixture
def server() -> Iterator[HTTPServer]:
    with HTTPServer(host="127.0.0.1", threaded=True) as running:
        yield running


@pytest.fixture
def llm(server: HTTPServer, monkeypatch: pytest.MonkeyPatch) -> LiteLLM:
    monkeypatch.setenv("LOOPBACK_KEY", KEY)
    return client(server.url_for("/v1"))


def client(address: str) -> LiteLLM:
    return LiteLLM(
        {
            "schema_version": "1.0",
            "default_provider": "openai",
            "providers": {"openai": {"key_env": "LOOPBACK_KEY", "base_url": address}},
        }
    )


def spec(**changes: Any) -> StepSpec:
    values: dict[str, Any] = {
        "name": "pick_explanation",
        "system": "Explain the pick.",
        "input_schema": {"type": "object"},
        "output_schema": {
            "type": "object",
            "properties": {
                "reason_text": {"type": "string"},
                "confidence": {"enum": ["high", "medium", "low"]},
            },
            "required": ["reason_text", "confidence"],
            "additionalProperties": False,
        },
        "model": "openai/tiny",
        "temperature": 0.3,
        "max_tokens": 64,
        "timeout_sec": 20.0,
        "concurrency_limit": 7,
    }
    return StepSpec(**{**values, **changes})


def body(content: str, finish: str = "stop") -> dict[str, Any]:
    return {
        "id": "c-1",
        "object": "chat.completion",
        "created": 1,
        "model": "tiny",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": content},
                "finish_reason": finish,
            }
        ],
        "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18},
    }


def serve(server: HTTPServer, *replies: Response | dict[str, Any]) -> list[Received]:
    """Answer with the replies in turn, the last one for ever; return what was received."""
    received: list[Received] = []
    left = list(replies)

    def handle(request: Received) -> Response:
        received.append(request)
        reply = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(reply, Response):
            return reply
        return Response(json.dumps(reply), content_type="application/json")

    server.expect_request("/v1/chat/completions", method="POST").respond_with_handler(handle)
    return received


def error(status: int, **headers: str) -> Response:
    text = json.dumps({"error": {"message": f"no, {KEY}", "type": "x", "code": "y"}})
    return Response(text, status=status, content_type="application/json", headers=headers)


def test_a_good_answer_comes_back_with_its_usage(server: HTTPServer, llm: LiteLLM) -> None:
    received = serve(server, body(GOOD))
    result = run_step(spec(), {"pick": {"symbol": "600000.SH"}}, mode=Mode.LIVE, llm=llm)
    assert result.failure is None
    assert result.value == {"reason_text": "回踩年线", "confidence": "high"}
    assert (result.usage.prompt_tokens, result.usage.completion_tokens) == (11, 7)
    assert result.calls == 1
    sent = received[0].get_json()
    assert sent["model"] == "tiny"
    assert sent["response_format"] == {"type": "json_object"}
    assert (sent["temperature"], sent["max_tokens"]) == (0.3, 64)
    assert [message["role"] for message in sent["messages"]] == ["system", "user"]
    assert json.loads(sent["messages"][1]["content"]) == {"pick": {"symbol": "600000.SH"}}
    assert received[0].headers["Authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (body(f"Sure! {GOOD}"), "off_schema"),
        (body('{"reason_text": "a", "confidence": "High"}'), "off_schema"),
        (body(GOOD, finish="length"), "truncated"),
        (body(""), "off_schema"),
        ({"unexpected": True}, None),
        (Response("<html>gateway</html>", status=200, content_type="text/html"), None),
    ],
)
def test_answers_that_are_not_taken_are_asked_once(
    server: HTTPServer, llm: LiteLLM, reply: Any, kind: str | None
) -> None:
    received = serve(server, reply)
    result = run_step(spec(), {}, mode=Mode.LIVE, llm=llm)
    assert result.failure is not None
    if kind:
        assert result.failure.kind == kind
    assert len(received) == 1


@pytest.mark.parametrize(
    ("status", "kind", "calls"),
    [(401, "no_key", 1), (400, "http_error", 1), (500, "http_error", 1), (503, "http_error", 1)],
)
def test_error_statuses_are_not_retried(
    server: HTTPServer, llm: LiteLLM, status: int, kind: str, calls: int
) -> None:
    received = serve(server, error(status))
    result = run_step(spec(), {}, mode=Mode.LIVE, llm=llm)
    assert result.failure is not None
    assert result.failure.kind == kind, result.failure.message
    assert KEY not in result.failure.message
    assert len(received) == calls == result.calls


def test_429_waits_as_asked_and_is_tried_once_more(server: HTTPServer, llm: LiteLLM) -> None:
    received = serve(server, error(429, **{"Retry-After": "1"}), body(GOOD))
    started = time.monotonic()
    result = run_step(spec(), {}, mode=Mode.LIVE, llm=llm)
    assert result.ok, result.failure
    assert time.monotonic() - started >= 1
    assert len(received) == 2 == result.calls


def test_429_for_ever_is_two_calls_and_a_failure(server: HTTPServer, llm: LiteLLM) -> None:
    received = serve(server, error(429, **{"Retry-After": "0"}))
    limits = CallLimits(total=20)
    result = run_step(spec(), {}, mode=Mode.LIVE, llm=llm, limits=limits)
    assert result.failure is not None
    assert result.failure.kind == "rate_limited"
    assert len(received) == 2 == limits.made()


def test_nobody_listening_is_a_connection_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOPBACK_KEY", KEY)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    result = run_step(
        spec(), {}, mode=Mode.LIVE, llm=client(f"http://127.0.0.1:{port}/v1"), limits=CallLimits()
    )
    assert result.failure is not None
    assert result.failure.kind == "connection", result.failure.message
    assert result.calls == 2


def test_a_dropped_connection_is_tried_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOPBACK_KEY", KEY)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        accepted: list[int] = []

        def drop() -> None:
            while True:
                try:
                    peer, _ = listener.accept()
                except OSError:
                    return
                accepted.append(1)
                peer.recv(1024)
                # Close with a reset, as a dying proxy does.
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                peer.close()

        threading.Thread(target=drop, daemon=True).start()
        port = listener.getsockname()[1]
        result = run_step(spec(), {}, mode=Mode.LIVE, llm=client(f"http://127.0.0.1:{port}/v1"))
    assert result.failure is not None
    assert result.failure.kind == "connection", result.failure.message
    assert result.calls == 2 == len(accepted)


def test_a_slow_pick_fails_alone_and_in_time(server: HTTPServer, llm: LiteLLM) -> None:
    def handle(request: Received) -> Response:
        if '\\"n\\":3' in request.get_data(as_text=True):
            time.sleep(6)
        return Response(json.dumps(body(GOOD)), content_type="application/json")

    server.expect_request("/v1/chat/completions").respond_with_handler(handle)
    run_step(spec(), {}, mode=Mode.LIVE, llm=llm)  # litellm is imported by now
    started = time.monotonic()
    results = run_each(spec(timeout_sec=2.0), [{"n": i} for i in range(7)], mode=Mode.LIVE, llm=llm)
    assert time.monotonic() - started < 5
    assert [result.ok for result in results] == [True, True, True, False, True, True, True]
    assert results[3].failure is not None
    assert results[3].failure.kind == "timeout"


def test_a_dripping_server_cannot_hold_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOPBACK_KEY", KEY)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def drip() -> None:
            with contextlib.suppress(OSError):
                peer, _ = listener.accept()
                with peer:
                    peer.recv(65536)
                    peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
                    for _ in range(30):
                        peer.sendall(b" ")
                        time.sleep(0.1)

        thread = threading.Thread(target=drip, daemon=True)
        thread.start()
        port = listener.getsockname()[1]
        started = time.monotonic()
        result = run_step(
            spec(timeout_sec=1.5),
            {},
            mode=Mode.LIVE,
            llm=client(f"http://127.0.0.1:{port}/v1"),
        )
        waited = time.monotonic() - started
    assert result.failure is not None
    assert result.failure.kind == "timeout"
    assert waited < 8
    thread.join()


def test_no_key_means_no_call(server: HTTPServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOOPBACK_KEY", raising=False)
    received = serve(server, body(GOOD))
    result = run_step(spec(), {}, mode=Mode.LIVE, llm=client(server.url_for("/v1")))
    assert result.failure is not None
    assert result.failure.kind == "no_key"
    assert received == []


def test_an_unknown_provider_is_a_failure(llm: LiteLLM) -> None:
    result = run_step(spec(model="unheard/of"), {}, mode=Mode.LIVE, llm=llm)
    assert result.failure is not None
    assert result.failure.kind == "no_key"
