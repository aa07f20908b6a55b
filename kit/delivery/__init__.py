"""Delivery: channels a card is sent to, and the outbox that remembers what was sent."""

from __future__ import annotations

from kit.delivery.channels import (
    CardFormat,
    Channel,
    ChannelPolicy,
    ChannelReply,
    ConsoleChannel,
    FileChannel,
    Message,
    build_channels,
)
from kit.delivery.outbox import (
    Receipt,
    ReceiptState,
    deliver,
    enqueue,
    payload_of,
    receipts_of,
)

__all__ = [
    "CardFormat",
    "Channel",
    "ChannelPolicy",
    "ChannelReply",
    "ConsoleChannel",
    "FileChannel",
    "Message",
    "Receipt",
    "ReceiptState",
    "build_channels",
    "deliver",
    "enqueue",
    "payload_of",
    "receipts_of",
]
