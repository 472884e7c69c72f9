"""A MESSAGE whose metadata says it holds more than is believed counts as one, and is told once, however it is read."""

import pytest

from protocol.scanner import MESSAGE, FrameScanner
from tests.proxy.wire import message


def scanner(told: list[int]) -> FrameScanner:
    one = FrameScanner(MESSAGE, 1000)
    one.max_messages = 100
    one.not_believed = told.append
    return one


@pytest.mark.parametrize(("said", "counted", "doubts"), [(100, 100, []), (101, 1, [101]), (2**31 - 1, 1, [2**31 - 1])])
def test_it_counts_as_one(said: int, counted: int, doubts: list[int]) -> None:
    told: list[int] = []
    one, frame = scanner(told), message(0, messages=said)

    assert one.scan(frame)
    assert [tally.messages for tally in one.tallies] == [counted]
    one.accept(frame)

    assert told == doubts


def test_it_is_told_once_where_the_chunk_is_cut_after_all() -> None:
    told: list[int] = []
    one, frame = scanner(told), message(0, messages=101)

    one.scan(frame)
    _, (piece,) = one.cut(frame)

    assert (piece.messages, told) == (1, [101])


def test_it_is_told_once_where_it_comes_byte_by_byte() -> None:
    told: list[int] = []
    one = scanner(told)
    for byte in message(0, messages=101) + message(1, messages=101):
        chunk = bytes([byte])
        assert one.scan(chunk)
        one.accept(chunk)

    assert told == [101, 101]
