"""Frames: their numbers are the protocol's, and the plain cutter gives whole ones, whatever the chunks."""

import tracemalloc

import pytest
from hypothesis import given, settings

from protocol.frames import (
    ACK,
    ACK_RESPONSE,
    DEFAULT_MAX_MESSAGE_SIZE,
    FRAME_PADDING,
    SEND_RECEIPT,
    FrameCutter,
    FrameTooLarge,
    MalformedFrame,
    max_frame_size,
)
from protocol.pulsar_pb2 import BaseCommand
from tests.protocol.choices import Choices, choices
from tests.protocol.ill_commands import MESSAGE, SEND
from tests.protocol.streams import MAX_SIZE, any_frame, cut_anyhow, u32


@settings(max_examples=100)
@given(choose=choices())
def test_any_chunking_gives_the_frames_that_were_sent(choose: Choices) -> None:
    sent = [any_frame(choose, choose.one_of([SEND, MESSAGE])) for _ in range(choose.below(5))]
    cutter = FrameCutter(MAX_SIZE)
    assert [frame for chunk in cut_anyhow(choose, b"".join(sent)) for frame in cutter.feed(chunk)] == sent


def test_frames_before_a_bad_one_are_given_first() -> None:
    cutter, good = FrameCutter(100), u32(4) + u32(0)
    given_out = cutter.feed(good + u32(97) + bytes(9))
    assert next(given_out) == good
    with pytest.raises(FrameTooLarge, match="announces 101 bytes, this connection allows 100"):
        next(given_out)


@pytest.mark.parametrize("size", [0, 1, 2, 3])
def test_a_frame_without_room_for_a_command_is_malformed(size: int) -> None:
    with pytest.raises(MalformedFrame, match=f"{size} bytes"):
        list(FrameCutter(100).feed(u32(size)))


@pytest.mark.parametrize(("announced", "fits"), [(96, True), (97, False), (2**32 - 1, False)])
def test_the_limit_counts_the_whole_frame(announced: int, *, fits: bool) -> None:
    feed = FrameCutter(100).feed(u32(announced) + bytes(min(announced, 200)))
    if fits:
        assert len(next(feed)) == 100
    else:
        with pytest.raises(FrameTooLarge):
            next(feed)


def test_an_abandoned_iteration_loses_no_frame() -> None:
    cutter, frames = FrameCutter(100), [u32(4) + u32(number) for number in range(3)]
    for first in cutter.feed(b"".join(frames)):
        assert first == frames[0]
        break
    assert list(cutter.feed(b"")) == frames[1:]


def test_a_claim_of_five_megabytes_costs_the_bytes_that_came() -> None:
    cutter = FrameCutter(MAX_SIZE * 100)
    tracemalloc.start()
    assert list(cutter.feed(u32(5_000_000) + bytes(16))) == []
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20_000


def test_the_types_are_those_of_the_protocol() -> None:
    names = {SEND: "SEND", SEND_RECEIPT: "SEND_RECEIPT", MESSAGE: "MESSAGE", ACK: "ACK", ACK_RESPONSE: "ACK_RESPONSE"}
    assert {number: BaseCommand.Type.Name(number) for number in names} == names


def test_a_frame_may_be_a_message_and_its_padding() -> None:
    assert (DEFAULT_MAX_MESSAGE_SIZE, FRAME_PADDING) == (5_242_880, 10_240)
    assert max_frame_size(DEFAULT_MAX_MESSAGE_SIZE) == 5_253_120
    assert max_frame_size(1) == 10_241
