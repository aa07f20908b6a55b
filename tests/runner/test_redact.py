from __future__ import annotations

import pytest

from kit.runner.kernel import kernel_environment
from kit.runner.redact import MASK, Redactor, is_secret_name


@pytest.mark.parametrize(
    "name",
    [
        "OPENAI_API_KEY",
        "openai_api_key",
        "APIKEY",
        "WECOM_WEBHOOK",
        "TELEGRAM_BOT_TOKEN",
        "DB_PASSWORD",
        "AWS_SECRET_ACCESS_KEY",
        "SENTRY_DSN",
        "DB_PWD",
    ],
)
def test_names_that_sound_like_secrets(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ["PWD", "OLDPWD", "PATH", "KEYBOARD", "MONKEY", "TOKENIZERS_PAR"])
def test_names_that_do_not(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    "text",
    [
        "key sk-abcdefghijklmnop1234 end",
        "密钥sk-abcdefghijklmnop1234结束",
        "Authorization: Bearer abcdef.ghijkl.mnopqr",
        "https://example.org/hook?key=0123456789abcdef",
        "postgresql://user:pass@host/db",
        "ghp_ABCDEFGHIJKLMNOPQRSTuvwx",
    ],
)
def test_texts_that_look_like_keys_are_masked(text: str) -> None:
    masked = Redactor({}).text(text)
    assert MASK in masked
    for secret in ("abcdefghijklmnop1234", "ghijkl", "0123456789abcdef", "pass@", "ABCDEFGH"):
        assert secret not in masked


def test_values_of_the_environment_are_masked_wherever_they_stand() -> None:
    redactor = Redactor({"X_TOKEN": "hunter2hunter2", "Y_TOKEN": "hunter2hunter2-longer"})
    value = {"a": ["x hunter2hunter2-longer y", 1, None], "b": ("hunter2hunter2",)}
    assert redactor.value(value) == {"a": [f"x {MASK} y", 1, None], "b": [MASK]}


def test_ordinary_values_are_left_alone() -> None:
    redactor = Redactor({"A_KEY": "short", "B_KEY": "/a/path/to/a/key", "HOME": "/home/someone"})
    text = "short /a/path/to/a/key /home/someone 平安银行 000001 +1.2%"
    assert redactor.text(text) == text


def test_a_kernel_gets_no_secret_it_was_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WECOM_WEBHOOK", "https://example.org")
    monkeypatch.setenv("DEEPSEEK_API_KEY", "abcdefgh12345")
    monkeypatch.setenv("KIT_CRASH_AT", "3")
    monkeypatch.setenv("PLAIN", "1")
    env = kernel_environment({"EXTRA": "2"}, secrets=frozenset({"DEEPSEEK_API_KEY"}))
    assert "WECOM_WEBHOOK" not in env
    assert "KIT_CRASH_AT" not in env
    assert env["DEEPSEEK_API_KEY"] == "abcdefgh12345"
    assert (env["PLAIN"], env["EXTRA"]) == ("1", "2")
