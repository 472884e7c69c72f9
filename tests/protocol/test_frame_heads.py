"""An entry that says it holds more than it may: a SEND is refused, a MESSAGE counts as the most, and is told once."""

import pytest

from protocol.frames import MESSAGE, SEND, TooManyMessages
from protocol.scanner import FrameScanner
from tests.proxy.wire import message, send

MOST = 2**31 - 1


def scanner(told: list[tuple[int, int]]) -> FrameScanner:
    one = FrameScanner(MESSAGE, 1000)
    one.heads.max_messages = 100
    one.heads.not_believed = lambda owner, messages: told.append((owner, messages))
    return one


@pytest.mark.parametrize(("said", "counted", "doubts"), [(100, 100, []), (101, 100, [101]), (MOST, 100, [MOST])])
def test_it_counts_as_the_most(said: int, counted: int, doubts: list[int]) -> None:
    told: list[tuple[int, int]] = []
    one, frame = scanner(told), message(0, messages=said)

    assert one.scan(frame)
    assert [tally.messages for tally in one.tallies] == [counted]
    one.accept(frame)

    assert [messages for _, messages in told] == doubts


def test_it_is_told_once_where_the_chunk_is_cut_after_all() -> None:
    told: list[tuple[int, int]] = []
    one, frame = scanner(told), message(0, messages=101)

    one.scan(frame)
    _, (piece,) = one.cut(frame)

    assert (piece.messages, told) == (100, [(piece.owner, 101)])


def test_it_is_told_once_where_it_comes_byte_by_byte() -> None:
    told: list[tuple[int, int]] = []
    one = scanner(told)
    for byte in message(0, messages=101) + message(1, messages=101):
        chunk = bytes([byte])
        assert one.scan(chunk)
        one.accept(chunk)

    assert [messages for _, messages in told] == [101, 101]


@pytest.mark.parametrize("before", [0, 1, 2])
def test_a_send_that_says_too_much_is_refused_whatever_came_before_it(before: int) -> None:
    one = FrameScanner(SEND, 1000)
    one.heads.max_messages = 100
    chunk = b"".join(send(sequence, messages=100) for sequence in range(before))
    assert one.scan(chunk)
    one.accept(chunk)
    with pytest.raises(TooManyMessages):
        one.scan(send(before, messages=101))
    one.heads.max_messages = 101
    assert one.scan(send(before, messages=101))
    assert [tally.messages for tally in one.tallies] == [101]
