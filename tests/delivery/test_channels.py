from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from kit import files
from kit.card import Block, Card
from kit.delivery import ChannelPolicy, ConsoleChannel, FileChannel, Message, build_channels
from kit.errors import ConfigError
from kit.workspace import Workspace

CARD = Card(
    card_id="abcd1234",
    kind="screen",
    title="标题",
    blocks=(Block(kind="conclusion", lines=("一行", "又一行")),),
    mode="none",
)


def message(folder: Path | None, text: str = "文本\n") -> Message:
    return Message(
        card_id=CARD.card_id,
        title=CARD.title,
        text=text,
        attachments_dir=folder,
        resend=False,
        card=CARD,
    )


def configure(workspace: Workspace, **changes: Any) -> None:
    value = files.read_json(workspace.config_dir / "channels.json")
    value.update(changes)
    files.write_json(workspace.config_dir / "channels.json", value)


def test_the_shipped_channels_are_file_and_console(workspace: Workspace) -> None:
    channels = build_channels(workspace, stream=io.StringIO())
    assert [channel.name for channel in channels] == ["file", "console"]


def test_without_a_stream_there_is_no_console(workspace: Workspace) -> None:
    assert [channel.name for channel in build_channels(workspace)] == ["file"]


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"name": "file", "type": "fax", "enabled": True, "format": "plain"}, "channels[0].type"),
        ({"name": "file", "type": "file", "enabled": True}, "channels[0].format: missing"),
        (
            {"name": "f", "type": "file", "enabled": True, "format": "plain", "max_byte": 1},
            "did you mean 'max_bytes'",
        ),
        ({"name": "F!", "type": "file", "enabled": True, "format": "plain"}, "channels[0].name"),
    ],
)
def test_a_wrong_configuration_names_the_place(
    workspace: Workspace, entry: dict[str, Any], said: str
) -> None:
    configure(workspace, channels=[entry])
    with pytest.raises(ConfigError) as error:
        build_channels(workspace)
    assert error.value.code == "config.invalid"
    assert said in str(error.value)


def test_two_channels_of_one_name_are_refused(workspace: Workspace) -> None:
    entry = {"name": "file", "type": "file", "enabled": True, "format": "plain"}
    configure(workspace, channels=[entry, entry])
    with pytest.raises(ConfigError, match="used twice"):
        build_channels(workspace)


def test_a_configuration_that_would_silence_everything_is_refused(workspace: Workspace) -> None:
    entry = {"name": "file", "type": "file", "enabled": False, "format": "plain"}
    configure(workspace, channels=[entry])
    with pytest.raises(ConfigError) as error:
        build_channels(workspace)
    assert error.value.code == "delivery.no_channel"


def test_the_file_channel_writes_text_and_card(tmp_path: Path) -> None:
    channel = FileChannel()
    assert channel.landed(message(tmp_path)) is False
    reply = channel.send(message(tmp_path))
    assert reply.ok
    assert (tmp_path / "delivered/card.txt").read_text(encoding="utf-8") == "文本\n"
    assert Card.from_dict(json.loads((tmp_path / "delivered/card.json").read_text())) == CARD
    assert channel.landed(message(tmp_path)) is True


def test_the_file_channel_writes_markdown_under_its_own_name(tmp_path: Path) -> None:
    FileChannel(policy=ChannelPolicy(format="wecom")).send(message(tmp_path))
    assert (tmp_path / "delivered/card.md").exists()


def test_a_text_without_its_card_has_not_landed(tmp_path: Path) -> None:
    channel = FileChannel()
    channel.send(message(tmp_path))
    (tmp_path / "delivered/card.json").unlink()
    assert channel.landed(message(tmp_path)) is False


def test_another_cards_file_proves_nothing(tmp_path: Path) -> None:
    channel = FileChannel()
    channel.send(message(tmp_path))
    value = files.read_json(tmp_path / "delivered/card.json")
    files.write_json(tmp_path / "delivered/card.json", {**value, "card_id": "ffff0000"})
    assert channel.landed(message(tmp_path)) is False


def test_a_missing_run_folder_is_a_reply_not_an_exception() -> None:
    reply = FileChannel().send(message(None))
    assert not reply.ok
    assert "no run folder" in reply.detail


def test_a_folder_that_cannot_be_written_is_a_reply(tmp_path: Path) -> None:
    (tmp_path / "delivered").write_text("in the way")
    reply = FileChannel().send(message(tmp_path))
    assert not reply.ok


def test_the_console_channel_ends_with_one_line_end() -> None:
    stream = io.StringIO()
    assert ConsoleChannel(stream=stream).send(message(None, "文本\n\n")).ok
    assert stream.getvalue() == "文本\n"


def test_a_closed_stream_is_a_reply() -> None:
    stream = io.StringIO()
    stream.close()
    reply = ConsoleChannel(stream=stream).send(message(None))
    assert not reply.ok
