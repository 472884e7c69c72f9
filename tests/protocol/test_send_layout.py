"""A SEND that is laid out like one before it is read as any decoder reads it; another one is left to the walk."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from protocol import heads as heads_module
from protocol import walk
from protocol.commands import command_in, encode
from protocol.errors import MalformedFrame
from protocol.kinds import SEND
from protocol.pulsar_pb2 import BaseCommand, CommandSend
from protocol.scanner import FrameScanner
from protocol.send_layout import LONGEST, SendLayout
from tests.protocol import fields as wire
from tests.protocol import ill_commands as ill
from tests.protocol.choices import Choices, choices
from tests.protocol.streams import MAX_SIZE, frame

COMPILED = not str(heads_module.__file__).endswith(".py")
BEHIND = bytes(LONGEST)

IDS = st.integers(0, 127)


def send(producer: int, sequence: int, messages: int | None = None, highest: int | None = None) -> bytes:
    command = CommandSend(
        producer_id=producer, sequence_id=sequence, num_messages=messages, highest_sequence_id=highest
    )
    return command_in(encode(command))


def learned(command: bytes) -> SendLayout:
    layout = SendLayout()
    layout.learn(command + BEHIND, 0, len(command))
    return layout


def fits(layout: SendLayout, command: bytes) -> bool:
    return len(command) == layout.size and layout.fits(command + BEHIND, 0)


def sequences(size: int) -> st.SearchStrategy[int]:
    """Numbers that take so many bytes."""
    return st.integers(1 << 7 * (size - 1) if size > 1 else 0, min((1 << 7 * size) - 1, 2**64 - 1))


@given(st.data(), st.integers(1, 8), st.booleans(), st.booleans())
def test_what_a_client_writes_next_fits(data: st.DataObject, size: int, counted: bool, is_java: bool) -> None:  # noqa: FBT001
    def drawn() -> tuple[bytes, int, int]:
        messages = data.draw(IDS) if counted else None
        highest = data.draw(sequences(size)) if is_java and size < 6 else None
        producer = data.draw(IDS)
        return send(producer, data.draw(sequences(size)), messages, highest), producer, max(1, messages or 0)

    first, then = drawn(), drawn()
    layout = learned(first[0])
    for command, producer, messages in (first, then):
        assert fits(layout, command)
        assert (layout.owner(command, 0), layout.messages(command, 0)) == (producer, messages)


def any_send(choose: Choices) -> bytes:
    """A SEND as clients write it or, with all that protobuf allows, as nobody does."""
    if choose.chance(2):
        return send(choose.below(200), choose.number(), choose.below(200) if choose.chance(2) else None)
    ids = b"\x08" + wire.any_varint(choose) + b"\x10" + wire.any_varint(choose)
    return b"\x08\x06" + wire.delimited(SEND, b"".join(choose.shuffled([ids, ill.body(choose, SEND)])))


def changed(choose: Choices, command: bytes) -> bytes:
    """The same with up to three other bytes."""
    other = bytearray(command)
    for _ in range(1 + choose.below(3)):
        other[choose.below(len(other))] = choose.take(1)[0]
    return bytes(other)


@given(choices(), st.integers(0, 2))
@example(Choices(b""), 0)
def test_what_fits_says_what_the_walk_would_read_in_it(choose: Choices, how: int) -> None:
    first = any_send(choose)
    try:
        walk.read_command(first, 0, len(first), SEND)
    except MalformedFrame:
        return
    layout = learned(first)
    then = first if how == 0 else changed(choose, first) if how == 1 else any_send(choose)
    if fits(layout, then):
        kind, owner, messages = walk.read_command(then, 0, len(then), SEND)
        assert (kind, owner) == (SEND, layout.owner(then, 0))
        assert walk.message_count(messages) == layout.messages(then, 0)
        decoded = BaseCommand.FromString(then)
        assert (decoded.type, decoded.send.producer_id) == (SEND, owner)


@pytest.mark.parametrize(
    "unusual",
    [
        send(128, 7),
        send(1, 7, 128),
        send(1, 7, 1) + b"\x08\x06",  # the type once more
        b"\x08\x06" + wire.delimited(SEND, b"\x10\x07"),  # of no producer
        b"\x08\x06" + wire.delimited(SEND, b"\x08\x01\x10\x07\x2a\x01x"),  # with a text
        b"\x08\x06" + wire.delimited(SEND, b"\x08\x01\x10\x07\xa0\x06\x01"),  # with a field above 15
        b"\x08\x06" + wire.delimited(SEND, b"\x08\x01" + b"\x10\x07" * 10),  # longer than what is compared
        wire.delimited(SEND, b"\x08\x01\x10\x07") + b"\x08\x06",  # the type behind
        b"\x88\x00\x06" + wire.delimited(SEND, b"\x08\x01\x10\x07"),
    ],
)
def test_of_an_unusual_one_nothing_is_remembered(unusual: bytes) -> None:
    layout = learned(send(1, 2))
    assert layout.size > 0
    layout.learn(unusual + BEHIND, 0, len(unusual))
    assert layout.size < 0


def test_the_last_of_several_ids_counts() -> None:
    twice = b"\x08\x06" + wire.delimited(SEND, b"\x08\x01\x18\x02\x10\x07\x08\x05\x18\x06")
    assert walk.read_command(twice, 0, len(twice), SEND) == (SEND, 5, 6)
    layout = learned(twice)
    assert fits(layout, twice)
    assert (layout.owner(twice, 0), layout.messages(twice, 0)) == (5, 6)


def walks(monkeypatch: pytest.MonkeyPatch, chunk: bytes) -> int:
    """How many of its commands are walked over by a scanner that has met none before."""
    count, found = 0, walk.read_command

    def counting(data: bytes, at: int, end: int, payload_kind: int) -> tuple[int, int, int]:
        nonlocal count
        count += 1
        return found(data, at, end, payload_kind)

    with monkeypatch.context() as patch:
        patch.setattr(heads_module, "read_command", counting)
        assert FrameScanner(SEND, MAX_SIZE).scan(chunk)
    return count


def test_one_walk_is_enough_for_all_that_are_laid_out_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    alike = [frame(send(number % 100, 1000 + number), bytes(100 + number)) for number in range(50)]
    other = frame(send(1, 5), bytes(100))
    one_layout = walks(monkeypatch, b"".join(alike))
    by_turns = walks(monkeypatch, b"".join(one + other for one in alike))
    # learning anew each time would gain nothing; compiled calls do not go by way of the module's names
    assert COMPILED or (one_layout, by_turns) == (1, 1 + 50)
