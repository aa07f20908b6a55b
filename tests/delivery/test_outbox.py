from __future__ import annotations

import io
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from sqlalchemy import select, update

from kit.card import Block, Card
from kit.clock import FixedClock
from kit.delivery import (
    ChannelPolicy,
    ChannelReply,
    ConsoleChannel,
    FileChannel,
    Message,
    deliver,
    enqueue,
    payload_of,
    receipts_of,
)
from kit.errors import StorageError
from kit.state import Store, tables
from kit.state.process import Holder, this_process

RUN = "2024-09-18/screen-demo@0.1.0/1"
CARD = Card(
    card_id="abcd1234",
    kind="screen",
    title="标题",
    blocks=(Block(kind="conclusion", lines=("一行",)),),
    mode="none",
)


@dataclass
class Scripted:
    """A channel that answers as told and remembers what it was given."""

    replies: list[ChannelReply | Exception]
    name: str = "scripted"
    policy: ChannelPolicy = field(default_factory=ChannelPolicy)
    proof: bool | None = None
    taken: list[Message] = field(default_factory=list)

    def send(self, message: Message) -> ChannelReply:
        self.taken.append(message)
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply

    def landed(self, message: Message) -> bool | None:
        return self.proof


OK = ChannelReply(ok=True, detail="fine")
BUSY = ChannelReply(ok=False, detail="busy", retryable=True)
NO = ChannelReply(ok=False, detail="no")


def dead_holder() -> Holder:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    me = this_process()
    return Holder(pid=process.pid, started="1", boot=me.boot, host=me.host)


def leave_sending(store: Store, clock: FixedClock, channel: Scripted, holder: Holder) -> None:
    enqueue(store, clock, RUN, CARD, [channel])
    with store.begin() as connection:
        connection.execute(
            update(tables.deliveries).values(state="sending", attempts=1, holder=holder.to_text())
        )


def test_each_channel_gets_one_receipt(store: Store, clock: FixedClock, tmp_path: Path) -> None:
    stream = io.StringIO()
    channels = [FileChannel(), ConsoleChannel(stream=stream)]
    receipts = deliver(store, clock, RUN, CARD, channels, folder=tmp_path)
    assert [(r.channel, r.state, r.attempts) for r in receipts] == [
        ("file", "sent", 1),
        ("console", "sent", 1),
    ]
    assert receipts_of(store, RUN) == receipts
    assert "卡片 abcd1234" in stream.getvalue()
    assert (tmp_path / "delivered/console.txt").read_text(encoding="utf-8") in stream.getvalue()


def test_a_second_delivery_sends_nothing(store: Store, clock: FixedClock) -> None:
    channel = Scripted([OK])
    first = deliver(store, clock, RUN, CARD, [channel])
    clock.sleep(60)
    assert deliver(store, clock, RUN, CARD, [channel]) == first
    assert len(channel.taken) == 1


def test_the_card_of_another_run_is_sent_even_if_its_id_is_the_same(
    store: Store, clock: FixedClock
) -> None:
    channel = Scripted([OK, OK])
    deliver(store, clock, RUN, CARD, [channel])
    deliver(store, clock, RUN.replace("/1", "/2"), CARD, [channel])
    assert len(channel.taken) == 2


def test_one_channel_never_holds_up_another(store: Store, clock: FixedClock) -> None:
    broken = Scripted([RuntimeError("boom")], name="broken")
    good = Scripted([OK], name="good")
    receipts = deliver(store, clock, RUN, CARD, [broken, good])
    assert [r.state for r in receipts] == ["unconfirmed", "sent"]
    assert "RuntimeError: boom" in receipts[0].detail


def test_an_exception_after_landing_counts_as_sent(store: Store, clock: FixedClock) -> None:
    channel = Scripted([RuntimeError("late")], proof=True)
    assert deliver(store, clock, RUN, CARD, [channel])[0].state == "sent"


def test_retries_are_bounded_and_wait_longer_each_time(store: Store, clock: FixedClock) -> None:
    policy = ChannelPolicy(attempts=3, retry_delay_sec=2)
    channel = Scripted([BUSY, BUSY, BUSY, OK], policy=policy)
    receipt = deliver(store, clock, RUN, CARD, [channel])[0]
    assert (receipt.state, receipt.attempts) == ("failed", 3)
    assert clock.monotonic() == 2 + 4


def test_a_refusal_that_cannot_change_is_not_tried_again(store: Store, clock: FixedClock) -> None:
    channel = Scripted([NO, OK], policy=ChannelPolicy(attempts=3))
    assert deliver(store, clock, RUN, CARD, [channel])[0].attempts == 1


def test_a_failed_channel_is_sent_again_only_when_asked_and_says_so(
    store: Store, clock: FixedClock
) -> None:
    channel = Scripted([NO, OK])
    deliver(store, clock, RUN, CARD, [channel])
    assert deliver(store, clock, RUN, CARD, [channel])[0].state == "failed"
    receipt = deliver(store, clock, RUN, CARD, [channel], resend=True)[0]
    assert (receipt.state, receipt.attempts) == ("sent", 2)
    assert "重发" not in channel.taken[0].text
    assert "重发" in channel.taken[1].text
    assert channel.taken[1].resend
    assert deliver(store, clock, RUN, CARD, [channel], resend=True)[0].attempts == 2


@pytest.mark.parametrize(
    ("proof", "state", "sends"),
    [(None, "unconfirmed", 0), (True, "sent", 0), (False, "sent", 1)],
)
def test_a_send_a_dead_process_left_is_settled_by_proof(
    store: Store, clock: FixedClock, proof: bool | None, state: str, sends: int
) -> None:
    channel = Scripted([OK], proof=proof)
    leave_sending(store, clock, channel, dead_holder())
    receipt = deliver(store, clock, RUN, CARD, [channel])[0]
    assert receipt.state == state
    assert len(channel.taken) == sends
    assert deliver(store, clock, RUN, CARD, [channel])[0].state == state


def test_an_unconfirmed_send_is_never_repeated(store: Store, clock: FixedClock) -> None:
    channel = Scripted([OK])
    leave_sending(store, clock, channel, dead_holder())
    deliver(store, clock, RUN, CARD, [channel])
    assert deliver(store, clock, RUN, CARD, [channel], resend=True)[0].state == "unconfirmed"
    assert channel.taken == []


def test_a_living_sender_is_left_alone(store: Store, clock: FixedClock) -> None:
    channel = Scripted([OK])
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        started = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19]
        me = this_process()
        holder = Holder(pid=process.pid, started=started, boot=me.boot, host=me.host)
        leave_sending(store, clock, channel, holder)
        assert deliver(store, clock, RUN, CARD, [channel])[0].state == "sending"
        process.communicate(b"\n")
    assert channel.taken == []


def test_a_sender_on_another_host_is_given_time(store: Store, clock: FixedClock) -> None:
    channel = Scripted([OK])
    elsewhere = Holder(pid=os.getpid(), started="1", boot="other", host="elsewhere")
    leave_sending(store, clock, channel, elsewhere)
    assert deliver(store, clock, RUN, CARD, [channel])[0].state == "sending"
    clock.sleep(601)
    assert deliver(store, clock, RUN, CARD, [channel])[0].state == "unconfirmed"


def test_a_store_that_cannot_be_used_does_not_stop_a_send(
    clock: FixedClock, tmp_path: Path
) -> None:
    (tmp_path / "in the way").write_text("")
    store = Store(tmp_path / "in the way" / "state.sqlite3")
    channel = Scripted([OK])
    receipt = deliver(store, clock, RUN, CARD, [channel])[0]
    assert (receipt.state, receipt.recorded) == ("sent", False)


def test_a_store_that_fails_after_the_send_is_said(
    store: Store, clock: FixedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    @dataclass
    class Breaking(Scripted):
        def send(self, message: Message) -> ChannelReply:
            def refuse() -> None:
                raise StorageError("state.unavailable", "gone")

            monkeypatch.setattr(store, "begin", refuse)
            return super().send(message)

    receipt = deliver(store, clock, RUN, CARD, [Breaking([OK])])[0]
    assert (receipt.state, receipt.recorded) == ("sent", False)
    monkeypatch.undo()
    # The row still says `sending`, by this very process: the next look settles it.
    assert receipts_of(store, RUN)[0].state == "sending"
    assert deliver(store, clock, RUN, CARD, [Scripted([OK])])[0].state == "unconfirmed"


def test_the_payload_survives_without_the_run_folder(store: Store, clock: FixedClock) -> None:
    assert payload_of(store, RUN) is None
    enqueue(store, clock, RUN, CARD, [Scripted([])])
    assert payload_of(store, RUN) == CARD


def test_rows_are_never_doubled(store: Store, clock: FixedClock) -> None:
    channel = Scripted([])
    enqueue(store, clock, RUN, CARD, [channel])
    enqueue(store, clock, RUN, CARD, [channel, Scripted([], name="second")])
    with store.read() as connection:
        names = connection.execute(select(tables.deliveries.c.channel)).scalars().all()
    assert names == ["scripted", "second"]
