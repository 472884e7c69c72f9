"""Messages between two ends of a socket."""

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest
import structlog

from limiter.workers.messages import Confirmed, Lent, Message, Named, QueuedEntry, QuotaVerdict, WorkerReport
from proxy.workers import channel as channels
from proxy.workers.channel import AT_ONCE, MESSAGES, Channel


class Ends:
    """Two channels, and what each heard."""

    def __init__(self) -> None:
        self.heard: list[list[Message]] = [[], []]
        self.lost = [asyncio.Event(), asyncio.Event()]
        self.channels: list[Channel[Message]] = [
            Channel(kinds, self.heard[end].append, self.lost[end].set)
            for end, kinds in enumerate((WorkerReport, QuotaVerdict))
        ]

    async def join(self) -> None:
        loop = asyncio.get_running_loop()
        for channel, end in zip(self.channels, socket.socketpair(), strict=True):
            await loop.create_unix_connection(lambda channel=channel: channel, sock=end)  # type: ignore[misc]

    async def until(self, end: int, count: int) -> None:
        async with asyncio.timeout(10):
            while len(self.heard[end]) < count:  # noqa: ASYNC110 - messages set no event
                await asyncio.sleep(0)


@pytest.fixture
async def ends() -> AsyncIterator[Ends]:
    both = Ends()
    await both.join()
    yield both
    for channel in both.channels:
        channel.abort()
    await asyncio.sleep(0)


async def test_messages_arrive_in_order_however_many_there_are(ends: Ends) -> None:
    messages = [QueuedEntry(number, 1, number * 1000, 0) for number in range(3 * MESSAGES + 2 * AT_ONCE)]
    ends.channels[1].send(messages)
    await ends.until(0, len(messages))
    assert ends.heard[0] == messages


async def test_both_ends_hear_at_the_same_time(ends: Ends) -> None:
    ends.channels[0].send([Lent(1, 5, None)])
    ends.channels[1].send([Confirmed(3)])
    await ends.until(0, 1)
    await ends.until(1, 1)
    assert (ends.heard[0], ends.heard[1]) == ([Confirmed(3)], [Lent(1, 5, None)])


async def test_what_was_said_before_the_end_is_heard_before_it(ends: Ends) -> None:
    messages = [Confirmed(number) for number in range(3 * AT_ONCE)]
    ends.channels[1].send(messages)
    ends.channels[1].close()
    async with asyncio.timeout(10):
        await ends.lost[0].wait()
    assert ends.heard[0] == messages
    ends.channels[0].send([Lent(1, 1, 1)])


async def test_who_takes_nothing_is_given_up(ends: Ends, monkeypatch) -> None:
    monkeypatch.setattr(channels, "MOST_UNSENT", 1000)
    ends.channels[0].send([Lent(number, 10**9, 10**9) for number in range(100_000)])
    async with asyncio.timeout(10):
        await ends.lost[0].wait()


async def test_a_frame_beyond_all_measure_ends_it(ends: Ends, monkeypatch) -> None:
    monkeypatch.setattr(channels, "MOST_FRAME", 100)
    ends.channels[1].send([Confirmed(number) for number in range(200)])
    async with asyncio.timeout(10):
        await ends.lost[0].wait()
    assert ends.heard[0] == []


@pytest.mark.parametrize("frame", [b"\0\0\0\1\xc1", b"\0\0\0\4\x91\x92\x7f\0", b"\0\0\0\0", b"\xff" * 9], ids=bytes.hex)
async def test_who_sends_what_are_no_messages_is_given_up_and_nobody_else_suffers(ends: Ends, frame: bytes) -> None:
    transport = ends.channels[1]._transport
    assert transport is not None
    with structlog.testing.capture_logs() as log:
        transport.write(frame)
        async with asyncio.timeout(10):
            await ends.lost[0].wait()
            await ends.lost[1].wait()
    assert [line["event"] for line in log] == ["connection between worker and supervisor given up"]
    assert ends.heard[0] == []


async def test_a_message_that_cannot_be_taken_ends_it_and_nothing_behind_it_is_believed(ends: Ends) -> None:
    heard: list[Message] = []

    def hear(message: Message) -> None:
        heard.append(message)
        if message == Confirmed(3):
            raise KeyError("no such batch")

    ends.channels[0]._heard = hear
    ends.channels[1].send([Confirmed(number) for number in range(10)])
    ends.channels[1].close()
    async with asyncio.timeout(10):
        await ends.lost[0].wait()
    assert heard == [Confirmed(number) for number in range(4)]


async def test_large_messages_travel_in_frames_of_their_own(ends: Ends, monkeypatch) -> None:
    """Names are the clients': several as large as a frame may be must not make one frame that is too large."""
    monkeypatch.setattr(channels, "LARGE_FRAME", 1000)
    monkeypatch.setattr(channels, "MOST_FRAME", 3000)
    messages = [Named(number, "n" * 2500) for number in range(10)]
    ends.channels[1].send(messages)
    await ends.until(0, len(messages))
    assert ends.heard[0] == messages


async def test_while_much_waits_for_its_turn_no_more_is_read(ends: Ends, monkeypatch) -> None:
    monkeypatch.setattr(channels, "MOST_UNHEARD", 2000)
    channel, most, messages = ends.channels[0], 0, [Named(number, "n" * 1000) for number in range(20_000)]
    ends.channels[1].send(messages)
    async with asyncio.timeout(20):
        while len(ends.heard[0]) < len(messages):
            most = max(most, len(channel._buffer) + 1000 * len(channel._inbox))
            await asyncio.sleep(0)
    assert ends.heard[0] == messages
    assert 0 < most < 2_000_000, "a read, and a frame; of 20 MB"
