"""SENDs whose metered values are equal are counted in a row; the row ends where one of these values differs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import scanner as heads_module
from protocol import walk
from protocol.frames import SEND, MalformedFrame
from protocol.scanner import LONGEST, FrameScanner
from tests.protocol import fields as wire
from tests.protocol.streams import MAX_SIZE, frame
from tests.protocol.test_send_layout import BEHIND, COMPILED, learned, send


def row_of(frames: list[bytes], rest: bytes = BEHIND) -> tuple[int, int]:
    """The number of frames that the layout counts in a row with the first, and the number by the walk."""
    layout, data = learned(command_of(frames[0])), b"".join(frames) + rest
    counted = layout.row(data, 0, len(data), len(frames[0]))
    expected = 1
    while expected < len(frames) and metered(frames[expected]) == metered(frames[0]):
        expected += 1
    return counted, expected


def command_of(whole: bytes) -> bytes:
    return whole[8 : 8 + int.from_bytes(whole[4:8])]


def metered(whole: bytes) -> tuple[object, ...] | None:
    """The metered values of a frame; None if the bytes are no frame."""
    command = command_of(whole)
    try:
        values = walk.read_command(command, 0, len(command), SEND)
    except MalformedFrame:
        return None
    return (whole[:8], *values) if len(command) == int.from_bytes(whole[4:8]) else None


NINE = b"\x10" + wire.varint(2**60)


@pytest.mark.parametrize(
    "first",
    [
        send(5, 2**48, 7, 2**48),
        send(5, 2**34, 7),
        send(1, 3, 2),
        send(1, 3),
        b"\x08\x06" + wire.delimited(SEND, b"\x08\x05" + NINE + b"\x18\x07"),
        b"\x08\x06" + wire.delimited(SEND, b"\x10" + wire.varint(2**20) + b"\x18\x07\x08\x05"),
        b"\x08\x06" + wire.delimited(SEND, NINE + b"\x18\x07\x08\x05"),
    ],
)
@pytest.mark.parametrize("before", [1, 3])
def test_a_row_ends_where_a_metered_value_differs(first: bytes, before: int) -> None:
    usual, ends = frame(first, bytes(40)), 0
    for at in range(8 + len(first)):
        for value in range(256):
            other = usual[:at] + bytes([value]) + usual[at + 1 :]
            counted, expected = row_of([usual] * before + [other, usual])
            assert counted <= expected
            ends += counted == before
    assert ends >= 8 * 255  # at any other byte before the command, to begin with


@given(
    st.lists(st.tuples(st.sampled_from([1, 1, 1, 2]), st.integers(100, 127), st.sampled_from([3, 3, 3, 4])), min_size=1)
)
def test_a_row_is_as_long_as_clients_make_it(drawn: list[tuple[int, int, int]]) -> None:
    sends = [send(producer, sequence, messages) for producer, sequence, messages in drawn]
    counted, expected = row_of([frame(command, bytes([number % 256]) * 40) for number, command in enumerate(sends)])
    assert counted == expected


@pytest.mark.parametrize("there", range(59))
def test_a_row_counts_frames_whose_compared_bytes_are_there(there: int) -> None:
    usual = frame(send(1, 7, 3), bytes(40))
    assert len(usual) == 58
    for remains in (b"", (usual * 2)[there:]):  # of a read before
        data = usual * 2 + usual[:there] + remains
        counted = learned(command_of(usual)).row(data, 0, 2 * len(usual) + there, len(usual))
        assert counted == 2 + (there >= 8 + LONGEST)


def test_rows_begin_only_at_heads_that_fit_the_layout() -> None:
    heads = heads_module.Heads(SEND, MAX_SIZE)
    usual = frame(send(1, 7, 3), bytes(40))
    data, at = usual * 5 + BEHIND, 0
    heads.begin()
    for expected in (1, 4, 3):  # the first one is walked over, and learnt
        assert heads.read(data, at, len(data)) == len(usual)
        assert heads.row(data, at, len(data), len(usual)) == expected
        at += len(usual)


def test_a_walk_between_two_that_fit_begins_no_row() -> None:
    usual = frame(b"\x08\x06" + wire.delimited(SEND, b"\x08\x05\x10\x07\x18\x03"), bytes(40))
    doubled = [
        b"\x08\x05\x10" + bytes([sequence]) + b"\x10\x07\x18" + bytes([count]) for sequence, count in ((1, 3), (2, 9))
    ]
    others = [frame(b"\x08\x06" + wire.delimited(SEND, body), bytes(40)) for body in doubled]
    scanner = FrameScanner(SEND, MAX_SIZE)
    assert scanner.scan(usual * 2 + b"".join(others))
    assert [(tally.entries, tally.messages) for tally in scanner.tallies] == [(4, 3 + 3 + 3 + 9)]


def heads_read(monkeypatch: pytest.MonkeyPatch, chunk: bytes) -> int:
    """The number of heads that a scanner reads one by one."""
    count, read = 0, heads_module.Heads.read

    def counting(self: heads_module.Heads, data: bytes, at: int, end: int) -> int:
        nonlocal count
        count += 1
        return read(self, data, at, end)

    with monkeypatch.context() as patch:
        patch.setattr(heads_module.Heads, "read", counting)
        assert FrameScanner(SEND, MAX_SIZE).scan(chunk)
    return count


def test_a_row_is_not_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    chunk = b"".join(frame(send(1, 100 + number), bytes(40)) for number in range(28))
    # the first, which is learnt, and the one that the row begins with; compiled calls cannot be counted from outside
    assert COMPILED or heads_read(monkeypatch, chunk) == 2
