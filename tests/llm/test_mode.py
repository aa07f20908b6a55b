"""Who answers a step."""

from __future__ import annotations

import pytest

from kit import schemas
from kit.errors import UsageError
from kit.llm import Mode, offline_cause, resolve_mode
from kit.workspace import Workspace

CONFIG = {
    "schema_version": "1.0",
    "default_provider": "openai",
    "providers": {
        "deepseek": {"key_env": "DEEPSEEK_API_KEY"},
        "openai": {"key_env": "OPENAI_API_KEY"},
        "local": {"key_env": None, "base_url": "http://127.0.0.1:1/v1"},
        "nowhere": {"key_env": None},
    },
}
MODEL = "deepseek/deepseek-v3.2"


@pytest.fixture
def unforced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KIT_MODE", raising=False)


def test_auto_without_a_key_is_offline(unforced: None) -> None:
    assert offline_cause("auto", CONFIG, model=MODEL) == "no_key"
    assert resolve_mode("auto", CONFIG, model=MODEL) is Mode.OFFLINE


def test_auto_with_the_providers_key_is_live(
    unforced: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEEPSEEK_API_KEY", "k")
    assert resolve_mode("auto", CONFIG, model=MODEL) is Mode.LIVE
    # Another provider's key does not help this model.
    assert resolve_mode("auto", CONFIG, model="openai/gpt") is Mode.OFFLINE
    # A model named without a provider belongs to the default one.
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    assert resolve_mode("auto", CONFIG, model="gpt") is Mode.LIVE


def test_an_empty_key_is_no_key(unforced: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPSEEK_API_KEY", "")
    assert resolve_mode("auto", CONFIG, model=MODEL) is Mode.OFFLINE


def test_a_server_of_ones_own_needs_an_address_not_a_key(unforced: None) -> None:
    assert resolve_mode("auto", CONFIG, model="local/m") is Mode.LIVE
    assert resolve_mode("auto", CONFIG, model="nowhere/m") is Mode.OFFLINE
    assert resolve_mode("auto", CONFIG, model="unheard/m") is Mode.OFFLINE


def test_live_is_live_even_without_a_key(unforced: None) -> None:
    assert resolve_mode("live", CONFIG, model=MODEL) is Mode.LIVE


def test_offline_is_offline_even_with_a_key(
    unforced: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEEPSEEK_API_KEY", "k")
    assert offline_cause("offline", CONFIG, model=MODEL) == "requested"


def test_the_environment_overrules_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KIT_MODE", "offline")
    monkeypatch.setenv("DEEPSEEK_API_KEY", "k")
    for requested in ("auto", "live", "offline"):
        assert offline_cause(requested, CONFIG, model=MODEL) == "forced"


@pytest.mark.parametrize("value", ["Offline", "off", "live", "replay"])
def test_the_environment_can_only_take_models_away(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("KIT_MODE", value)
    for requested in ("auto", "offline", "replay"):
        with pytest.raises(UsageError, match="KIT_MODE") as caught:
            offline_cause(requested, CONFIG, model=MODEL)
        assert caught.value.code == "llm.bad_mode"


def test_a_replay_asks_nobody_whatever_the_environment_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for forced in ("offline", "auto", ""):
        monkeypatch.setenv("KIT_MODE", forced)
        monkeypatch.setenv("DEEPSEEK_API_KEY", "k")
        assert offline_cause("replay", CONFIG, model=MODEL) == "replay"
        assert resolve_mode("replay", CONFIG, model=MODEL) is Mode.REPLAY


def test_an_unknown_mode_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError) as caught:
        resolve_mode("ofline", CONFIG)
    assert "offline" in caught.value.remedy


def test_the_shipped_config_is_valid_and_names_the_design_s_provider(
    workspace: Workspace,
) -> None:
    config = workspace.config("llm")
    assert schemas.validate("config-llm", config) == []
    assert config["providers"]["deepseek"]["key_env"] == "DEEPSEEK_API_KEY"


def test_a_key_written_into_the_config_is_refused() -> None:
    wrong = {
        "schema_version": "1.0",
        "default_provider": "x",
        "providers": {"x": {"key_env": "sk-live-abc"}},
    }
    assert [p.path for p in schemas.validate("config-llm", wrong)] == ["providers.x.key_env"]
