from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from kit.redact import MASK, Redactor, is_secret_name
from kit.runner.kernel import kernel_environment
from kit.runner.scrub import scrub


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
        "PGPASSWORD",
        "SLACKTOKEN",
        "GITHUB_TOKEN2",
        "API_TOKENS",
        "MYPASSPHRASE",
        "LDAPPASSWD",
        "CLIENTSECRET",
        "TEAMWEBHOOKURL",
        "GCPCREDENTIALS",
        "SESSIONCOOKIE",
        "COOKIES",
        "OPENAIAPIKEY",
        "SIGNING_KEY",
        "KEYS",
        "GITHUB_PAT",
        "REDIS_AUTH",
        "AUTH_HEADER",
        "AUTHORIZATION",
        "SMTP_PASS",
        "MYSQLPWD",
    ],
)
def test_names_that_sound_like_secrets(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        *("PWD", "OLDPWD", "PATH", "KEYBOARD", "MONKEY", "TOKENIZERS_PAR"),
        *("AUTHOR", "GIT_AUTHOR_NAME", "SSH_AUTH_SOCK", "XAUTHORITY", "COMPAT", "PATTERN"),
        *("PYTHONPATH", "HOTKEY", "COMPASS", "MAX_TOKENS", "COOKIECUTTER_CONFIG", "KIT_MODE"),
        *("TZ", "LANG", "HOME", "USER", "KIT_CARD_ID", "KIT_KERNEL_MARK"),
    ],
)
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


def test_a_value_is_masked_as_json_writes_it() -> None:
    redactor = Redactor({"X_TOKEN": 'quo"te\\秘密秘密'})
    for ascii_only in (True, False):
        written = json.dumps({"a": 'x quo"te\\秘密秘密 y'}, ensure_ascii=ascii_only)
        assert json.loads(redactor.text(written)) == {"a": f"x {MASK} y"}


def test_files_are_searched_and_masked_or_removed(tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("hunter2hunter2", encoding="utf-8")
    folder = tmp_path / "run"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "note.txt").write_text("it is hunter2hunter2!\n", encoding="utf-8")
    (folder / "clean.txt").write_text("平安银行 +1.2%", encoding="utf-8")
    (folder / "a.bin").write_bytes(b"\0\xff" * 700_000 + b"hunter2hunter2")
    # Across the border of two reads.
    (folder / "b.bin").write_bytes(b"\0" * (2**20 - 5) + b"hunter2hunter2")
    (folder / "c.bin").write_bytes(b"\0" + "hunter2hunter2".encode("utf-16-le"))
    (folder / "clean.bin").write_bytes(b"\0\1\2")
    (folder / "link").symlink_to(outside)
    os.mkfifo(folder / "pipe")
    told: list[str] = []
    scrub(folder, Redactor({"X_TOKEN": "hunter2hunter2"}), told.append)
    assert (folder / "deep" / "note.txt").read_text(encoding="utf-8") == f"it is {MASK}!\n"
    left = {path.name for path in folder.iterdir()}
    assert left == {"deep", "clean.txt", "clean.bin", "link", "pipe"}
    assert outside.read_text(encoding="utf-8") == "hunter2hunter2"
    assert sorted(told) == [
        "a.bin held a secret and was removed",
        "b.bin held a secret and was removed",
        "c.bin held a secret and was removed",
        "deep/note.txt held a secret and was masked",
    ]


def test_a_large_text_is_removed_not_rewritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kit.runner.scrub._MAX_TEXT", 20)
    (tmp_path / "large.txt").write_text("a" * 20 + "hunter2hunter2", encoding="utf-8")
    scrub(tmp_path, Redactor({"X_TOKEN": "hunter2hunter2"}), lambda _: None)
    assert list(tmp_path.iterdir()) == []


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


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        (
            "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----\nafter",
            f"{MASK}\nafter",
        ),
        ("-----BEGIN PRIVATE KEY-----\nMIIEow, cut off", MASK),
        ("token eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcdefghijklmnop", f"token {MASK}"),
        ("bot 123456789:AAF-abcdefghijklmnopqrstuvwxyz01234", f"bot {MASK}"),
        ("at 12345678:30 nothing", "at 12345678:30 nothing"),
        ("eyJ is how JSON begins in base64", "eyJ is how JSON begins in base64"),
    ],
)
def test_keys_of_other_shapes_are_masked(text: str, masked: str) -> None:
    assert Redactor({}).text(text) == masked


def test_the_names_of_a_value_are_masked_too() -> None:
    key = "sk-0123456789abcdefghij"
    assert Redactor({}).value({key: [key]}) == {MASK: [MASK]}
