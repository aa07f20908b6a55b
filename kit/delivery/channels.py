"""Channels: where a card is sent, and the two that need no account.

A channel sends one message and says what became of it. It never retries by itself and never
remembers: both belong to the outbox, which is also the only caller of `send`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, TextIO

from kit import files
from kit.card import Card
from kit.errors import ConfigError, DataError, StorageError
from kit.workspace import Workspace

__all__ = [
    "CardFormat",
    "Channel",
    "ChannelPolicy",
    "ChannelReply",
    "ConsoleChannel",
    "FileChannel",
    "Message",
    "build_channels",
]

CardFormat = Literal["plain", "wecom", "telegram"]
DELIVERED = "delivered"


@dataclass(frozen=True, kw_only=True)
class ChannelPolicy:
    """How a channel wants its text, and how often it may be tried.

    Attributes:
        format: Which rendering of the card it takes.
        max_bytes: Limit of one message in UTF-8 bytes; `None` for no limit.
        attempts: Sends tried in one delivery, the first included.
        retry_delay_sec: Seconds waited before the second try; doubled before each further one.
    """

    format: CardFormat = "plain"
    max_bytes: int | None = None
    attempts: int = 1
    retry_delay_sec: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Message:
    """What one channel is asked to send.

    Attributes:
        card_id: Short id of the card; stands in the text too.
        title: First line, for channels that carry a title apart.
        text: The card, rendered in the channel's format and within its limit.
        attachments_dir: The run folder, or `None` when it could not be written.
        resend: Whether an earlier send of this card on this channel failed; the text says so.
        card: The card itself.
    """

    card_id: str
    title: str
    text: str
    attachments_dir: Path | None
    resend: bool
    card: Card


@dataclass(frozen=True, kw_only=True)
class ChannelReply:
    """What a channel says about one send.

    Attributes:
        ok: Whether the message certainly landed.
        detail: One line for the receipt.
        retryable: Whether trying again could help; only read when not `ok`.
    """

    ok: bool
    detail: str
    retryable: bool = False


class Channel(Protocol):
    """One way to reach a person."""

    @property
    def name(self) -> str:
        """Its name in `config/channels.json` and in receipts."""
        ...

    @property
    def policy(self) -> ChannelPolicy:
        """Its format, limit and retries."""
        ...

    def send(self, message: Message) -> ChannelReply:
        """Send once. What can be expected to fail comes back as a reply, not as an exception."""
        ...

    def landed(self, message: Message) -> bool | None:
        """Say whether an earlier, unfinished send landed: proved yes, proved no, or unknown."""
        ...


@dataclass(frozen=True, kw_only=True)
class FileChannel:
    """Write the card under `<run folder>/delivered/`: the text, then `card.json`.

    `card.json` is written last, and both writes are atomic, so its presence proves the send.

    Attributes:
        folder: Where to write instead of the run folder; `None` for the run folder.
    """

    name: str = "file"
    policy: ChannelPolicy = field(default_factory=ChannelPolicy)
    folder: Path | None = None

    def send(self, message: Message) -> ChannelReply:
        """Write both files."""
        target = self._target(message)
        if target is None:
            return ChannelReply(ok=False, detail="there is no run folder to write to")
        try:
            files.make_dir(target)
            files.write_text(target / self._text_name(), message.text)
            files.write_json(target / "card.json", message.card.to_dict())
        except StorageError as error:
            return ChannelReply(ok=False, detail=str(error))
        return ChannelReply(ok=True, detail=f"{DELIVERED}/{self._text_name()}")

    def landed(self, message: Message) -> bool | None:
        """Look for the last file written."""
        target = self._target(message)
        if target is None:
            return False
        try:
            value = files.read_json(target / "card.json")
        except (DataError, StorageError):
            return False
        return isinstance(value, Mapping) and value.get("card_id") == message.card_id

    def _target(self, message: Message) -> Path | None:
        folder = self.folder or message.attachments_dir
        return folder / DELIVERED if folder is not None else None

    def _text_name(self) -> str:
        return "card.md" if self.policy.format == "wecom" else "card.txt"


@dataclass(frozen=True, kw_only=True)
class ConsoleChannel:
    """Write the card to a stream, such as the terminal's stdout."""

    stream: TextIO
    name: str = "console"
    policy: ChannelPolicy = field(default_factory=ChannelPolicy)

    def send(self, message: Message) -> ChannelReply:
        """Write the text and flush."""
        try:
            self.stream.write(f"{message.text.rstrip()}\n")
            self.stream.flush()
        except (OSError, ValueError) as error:  # a closed pipe, or a closed stream
            return ChannelReply(ok=False, detail=f"the stream refused: {error}")
        return ChannelReply(ok=True, detail="written to the stream")

    def landed(self, message: Message) -> bool | None:  # noqa: ARG002 - nobody can look back
        """Nobody can tell what a terminal has shown."""
        return None


def build_channels(
    workspace: Workspace, *, folder: Path | None = None, stream: TextIO | None = None
) -> list[Channel]:
    """Build the enabled channels of `config/channels.json`, in the order written there.

    Args:
        workspace: Whose configuration to read.
        folder: Where the file channel writes; `None` for the folder of each run.
        stream: Where the console channel writes; `None` leaves that channel out.

    Raises:
        ConfigError: The file is missing or invalid, names a channel twice, or enables none.
    """
    entries = workspace.config("channels")["channels"]
    where = "config/channels.json"
    names = [entry["name"] for entry in entries]
    for position, name in enumerate(names):
        if name in names[:position]:
            raise ConfigError(
                "config.invalid",
                f"channels[{position}].name: {name!r} is used twice",
                where=where,
                remedy="give every channel its own name; receipts go by it",
            )
    enabled = [entry for entry in entries if entry["enabled"]]
    if not enabled:
        raise ConfigError(
            "delivery.no_channel",
            "no channel is enabled, so no card could ever arrive",
            where=where,
            remedy="enable at least the `file` channel",
        )
    built = (_build(entry, folder, stream) for entry in enabled)
    return [channel for channel in built if channel is not None]


def _build(entry: Mapping[str, Any], folder: Path | None, stream: TextIO | None) -> Channel | None:
    policy = ChannelPolicy(
        format=entry["format"],
        max_bytes=entry.get("max_bytes"),
        attempts=entry.get("attempts", 1),
        retry_delay_sec=entry.get("retry_delay_sec", 1.0),
    )
    if entry["type"] == "file":
        return FileChannel(name=entry["name"], policy=policy, folder=folder)
    if stream is None:
        return None
    return ConsoleChannel(name=entry["name"], policy=policy, stream=stream)
