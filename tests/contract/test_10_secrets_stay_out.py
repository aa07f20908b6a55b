"""Promise 10: secrets never reach a notebook, a log, a run folder, the store or a card."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kit import files
from kit.bundle import new_draft
from kit.workspace import Workspace

pytestmark = pytest.mark.kernel

# By their names nothing would be noticed; the texts themselves look like keys.
LOOKALIKES = {
    "NOTES": "sk-proj-9876543210zyxwvutsrq",
    "DESCRIPTION": "ghp_0123456789abcdefABCDEF0123",
    "HOMEPAGE": "https://desk:pa55w0rd-of-desk@example.invalid/x",
}


def secrets_of(values: dict[str, str]) -> list[bytes]:
    found = [value.encode() for value in values.values()]
    return [*found, b"pa55w0rd-of-desk"]


def leaks(root: Path, secrets: list[bytes]) -> list[str]:
    """Every file below a folder that holds one of the secrets; the state store is one of them."""
    found = []
    for path in sorted(root.rglob("*")):
        if path.is_file():
            data = path.read_bytes()
            found += [f"{path.relative_to(root)}: {s!r}" for s in secrets if s in data]
    return found


def test_the_shared_job_ran_among_secrets_and_kept_none(
    main_job: Any, seeded_secrets: dict[str, str]
) -> None:
    secrets = secrets_of(seeded_secrets)
    assert len(list(main_job.workspace.runs.rglob("*"))) > 40
    assert leaks(main_job.workspace.root, secrets) == []
    for done in (main_job.first, main_job.again, main_job.slot):
        assert done.returncode == 0
        for text in (done.stdout, done.stderr):
            assert not [s for s in secrets if s in text.encode()]


def test_the_search_itself_finds_a_leak(tmp_path: Path, seeded_secrets: dict[str, str]) -> None:
    (tmp_path / "deep").mkdir()
    key = seeded_secrets["OPENAI_API_KEY"]
    (tmp_path / "deep" / "log.txt").write_text(f"Authorization: Bearer {key}\n", encoding="utf-8")
    assert leaks(tmp_path, secrets_of(seeded_secrets)) == [f"deep/log.txt: {key.encode()!r}"]


PRYING = """\
import os, sys
print(dict(os.environ))
print(dict(os.environ), file=sys.stderr)
os.write(2, repr(dict(os.environ)).encode())
print("Authorization: Bearer abcdefghijklmnop0123456789")
return []"""


@pytest.mark.slow
def test_a_rule_that_prints_its_environment_shows_no_secret(
    desk: Workspace,
    kit_command: Any,
    seeded_secrets: dict[str, str],
    replace_rule: Callable[[Path, str], None],
) -> None:
    """A draft may print what it likes: to stdout, to stderr, and past Python itself."""
    replace_rule(new_draft(desk, "ma250-pullback"), PRYING)
    around = {**seeded_secrets, **LOOKALIKES, "PLAIN_VARIABLE": "nothing-to-hide"}
    done = kit_command(
        desk.root, "screen", "ma250-pullback@draft", "--date", "2020-02-27", "--deliver", **around
    )
    assert done.returncode == 0, done.stderr
    (folder,) = desk.runs.glob("2020-02-27/*/1")
    notebook = (folder / "notebook.ipynb").read_text(encoding="utf-8")
    # It did print: what is no secret stands there, what is one has a mask in its place.
    assert "nothing-to-hide" in notebook
    assert "redacted" in notebook
    secrets = [*secrets_of({**seeded_secrets, **LOOKALIKES}), b"abcdefghijklmnop0123456789"]
    secrets.remove(LOOKALIKES["HOMEPAGE"].encode())  # masked in part: user and password
    assert leaks(desk.runs, secrets) == []
    assert not [s for s in secrets if s in (done.stdout + done.stderr).encode()]
    # Variables that only others need do not even reach the kernel.
    for name in seeded_secrets:
        assert f"'{name}'" not in notebook


@pytest.mark.slow
def test_a_secret_that_the_lock_requires_is_seen_though_its_value_stays_out(
    desk: Workspace, kit_command: Any
) -> None:
    root = new_draft(desk, "ma250-pullback")
    manifest = files.read_json(root / "manifest.json")
    wanted = [{"name": "QUOTES_TOKEN", "purpose": "quotes"}]
    manifest["env_lock"]["required_env"] = wanted
    files.write_json(root / "manifest.json", manifest)
    value = "quotes-token-value-0815"
    done = kit_command(
        desk.root, "screen", "ma250-pullback@draft", "--date", "2020-02-27", QUOTES_TOKEN=value
    )
    assert leaks(desk.runs, [value.encode()]) == []
    assert done.returncode == 0, done.stderr
