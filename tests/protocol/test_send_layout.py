"""A SEND with the layout of an earlier one is read as any decoder reads it; any other SEND is left to the walk."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import scanner as heads_module
from protocol import walk
from protocol.commands import command_in, encode
from protocol.frames import SEND, MalformedFrame
from protocol.pulsar_pb2 import BaseCommand, CommandSend
from protocol.scanner import LONGEST, FrameScanner, SendLayout, layout_of
from tests.protocol import fields as wire
from tests.protocol import ill_commands as ill
from tests.protocol.choices import Choices, choices, in_bulk
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
    return layout_of(command + BEHIND, 0, len(command)) or SendLayout()


def fits(layout: SendLayout, command: bytes) -> bool:
    return layout.fits(command + BEHIND, 0, len(command))


def sequences(size: int) -> st.SearchStrategy[int]:
    """Numbers whose varints have `size` bytes."""
    return st.integers(1 << 7 * (size - 1) if size > 1 else 0, min((1 << 7 * size) - 1, 2**64 - 1))


@given(st.data(), st.integers(1, 8), st.booleans(), st.booleans())
def test_a_clients_next_send_fits_the_layout(data: st.DataObject, size: int, counted: bool, is_java: bool) -> None:  # noqa: FBT001
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
    """A SEND as clients write it, or with anything that protobuf allows."""
    if choose.chance(2):
        return send(choose.below(200), choose.number(), choose.below(200) if choose.chance(2) else None)
    ids = b"\x08" + wire.any_varint(choose) + b"\x10" + wire.any_varint(choose)
    return b"\x08\x06" + wire.delimited(SEND, ill.body(choose, SEND, ids))


def changed(choose: Choices, command: bytes) -> bytes:
    """The command with up to three bytes changed."""
    other = bytearray(command)
    for _ in range(1 + choose.below(3)):
        other[choose.below(len(other))] = choose.take(1)[0]
    return bytes(other)


def assert_that_it_is_read_alike(layout: SendLayout, command: bytes) -> None:
    kind, owner, messages = walk.read_command(command, 0, len(command), SEND)
    assert (kind, owner) == (SEND, layout.owner(command, 0))
    assert walk.message_count(messages) == layout.messages(command, 0)
    decoded = BaseCommand.FromString(command)
    assert (decoded.type, decoded.send.producer_id) == (SEND, owner)


def any_two(choose: Choices) -> None:
    """From a command that fits, the layout reads the values that the walk and protobuf read."""
    first = any_send(choose)
    try:
        walk.read_command(first, 0, len(first), SEND)
    except MalformedFrame:
        return
    layout = learned(first)
    for then in (first, any_send(choose), *[changed(choose, first) for _ in range(8)]):
        if fits(layout, then):
            assert_that_it_is_read_alike(layout, then)


@given(choices())
def test_a_send_that_fits_is_read_alike(choose: Choices) -> None:
    any_two(choose)


def test_a_send_that_fits_is_read_alike_in_many_cases() -> None:
    in_bulk(any_two, 3000)


@pytest.mark.parametrize("first", [send(5, 2**48, 7, 2**48), send(5, 2**56, 7, 2**34), send(1, 3)])
def test_a_send_that_fits_is_read_alike_if_any_byte_differs(first: bytes) -> None:
    layout, fitting = learned(first), 0
    for at in range(len(first)):
        for value in range(256):
            then = first[:at] + bytes([value]) + first[at + 1 :]
            if fits(layout, then):
                fitting += 1
                assert_that_it_is_read_alike(layout, then)
    assert fitting > len(first)


def test_the_longest_layout_has_as_many_bytes_as_are_compared() -> None:
    longest, longer = (b"\x08\x06" + wire.delimited(SEND, b"\x08\x01" + b"\x10\x07" * count) for count in (9, 10))
    assert len(longest) == LONGEST
    assert fits(learned(longest), longest)
    assert not fits(learned(longer), longer)


def test_a_field_after_a_command_that_fits_is_read() -> None:
    first = send(1, 2, 1)
    more = first + wire.delimited(SEND, b"\x08\x09\x18\x7f")
    scanner = FrameScanner(SEND, MAX_SIZE)
    with pytest.raises(MalformedFrame, match="does not end with the command"):
        scanner.scan(frame(first, bytes(40)) + frame(more, bytes(40)))


@pytest.mark.parametrize(
    "unusual",
    [
        send(128, 7),
        send(1, 7, 128),
        send(1, 7, 1) + b"\x08\x06",  # the type once more
        b"\x08\x06" + wire.delimited(SEND, b"\x08\x01\x10\x07\x2a\x01x"),  # with a text
        b"\x08\x06" + wire.delimited(SEND, b"\x08\x05\xa0\x06\x08\x10\x90\x08"),  # with a field above 15
        wire.delimited(SEND, b"\x08\x01\x10\x07") + b"\x08\x06",  # the type last
        b"\x88\x00\x06" + wire.delimited(SEND, b"\x08\x01\x10\x07"),
    ],
)
def test_an_irregular_send_has_no_layout(unusual: bytes) -> None:
    assert layout_of(unusual + BEHIND, 0, len(unusual)) is None


def test_a_new_layout_fits_nothing() -> None:
    assert not fits(SendLayout(), b"")
    assert not fits(SendLayout(), send(1, 2))


def test_the_last_of_several_ids_counts() -> None:
    twice = b"\x08\x06" + wire.delimited(SEND, b"\x08\x01\x18\x02\x10\x07\x08\x05\x18\x06")
    assert walk.read_command(twice, 0, len(twice), SEND) == (SEND, 5, 6)
    layout = learned(twice)
    assert fits(layout, twice)
    assert (layout.owner(twice, 0), layout.messages(twice, 0)) == (5, 6)


def walks(monkeypatch: pytest.MonkeyPatch, chunk: bytes) -> int:
    """The number of commands of a chunk that a new scanner walks over."""
    count, read = 0, walk.read_command

    def counting(data: bytes, at: int, end: int, payload_kind: int) -> tuple[int, int, int]:
        nonlocal count
        count += 1
        return read(data, at, end, payload_kind)

    with monkeypatch.context() as patch:
        patch.setattr(heads_module, "read_command", counting)
        assert FrameScanner(SEND, MAX_SIZE).scan(chunk)
    return count


ALIKE = [send(number % 100, 1000 + number) for number in range(50)]
OTHER = send(1, 5)
UNUSUAL = send(1, 1000, 500)


@pytest.mark.parametrize(
    ("commands", "expected"),
    [
        (ALIKE, 1),
        (
            [command for two in zip(ALIKE, [OTHER] * 50, strict=True) for command in two],
            1 + 50,
        ),  # no second layout is learnt
        ([UNUSUAL, *ALIKE], 1 + 50),  # one attempt per chunk
    ],
)
def test_layouts_save_walks_over_commands(
    monkeypatch: pytest.MonkeyPatch, commands: list[bytes], expected: int
) -> None:
    chunk = b"".join(frame(command, bytes(100)) for command in commands)
    walked = walks(monkeypatch, chunk)
    assert COMPILED or walked == expected  # compiled calls do not go by way of the module's names


def test_layout_is_kept_until_a_regular_command_differs() -> None:
    scanner = FrameScanner(SEND, MAX_SIZE)
    for command, fitting in ((ALIKE[0], ALIKE), (UNUSUAL, ALIKE), (OTHER, [OTHER])):
        chunk = frame(command, bytes(40))
        assert scanner.scan(chunk)
        scanner.accept(chunk)
        assert all(fits(scanner.heads._layout, other) for other in fitting)
