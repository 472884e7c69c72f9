"""An entry that declares too many messages: a SEND is refused; a MESSAGE counts as the bound and is reported once."""

import pytest

from protocol.frames import MESSAGE, SEND, TooManyMessages
from protocol.scanner import FrameScanner
from tests.proxy.wire import message, send

MOST = 2**31 - 1


def bounded_scanner(excess: list[tuple[int, int]]) -> FrameScanner:
    return FrameScanner(MESSAGE, 1000, 100, lambda owner, messages: excess.append((owner, messages)))


@pytest.mark.parametrize(("declared", "counted", "reports"), [(100, 100, []), (101, 100, [101]), (MOST, 100, [MOST])])
def test_a_message_above_the_bound_counts_as_the_bound(declared: int, counted: int, reports: list[int]) -> None:
    excess: list[tuple[int, int]] = []
    scanner, frame = bounded_scanner(excess), message(0, messages=declared)

    assert scanner.scan(frame)
    assert [tally.messages for tally in scanner.tallies] == [counted]
    scanner.accept(frame)

    assert [messages for _, messages in excess] == reports


def test_excess_is_reported_once_if_the_chunk_is_cut() -> None:
    excess: list[tuple[int, int]] = []
    scanner, frame = bounded_scanner(excess), message(0, messages=101)

    scanner.scan(frame)
    _, (piece,) = scanner.cut(frame)

    assert (piece.messages, excess) == (100, [(piece.owner, 101)])


def test_excess_is_reported_once_if_read_byte_by_byte() -> None:
    excess: list[tuple[int, int]] = []
    scanner = bounded_scanner(excess)
    for byte in message(0, messages=101) + message(1, messages=101):
        chunk = bytes([byte])
        assert scanner.scan(chunk)
        scanner.accept(chunk)

    assert [messages for _, messages in excess] == [101, 101]


@pytest.mark.parametrize("before", [0, 1, 2])
def test_a_send_above_the_bound_is_refused_after_any_others(before: int) -> None:
    scanner = FrameScanner(SEND, 1000, 100)
    chunk = b"".join(send(sequence, messages=100) for sequence in range(before))
    assert scanner.scan(chunk)
    scanner.accept(chunk)
    with pytest.raises(TooManyMessages):
        scanner.scan(send(before, messages=101))
    assert scanner.scan(send(before, messages=100))
    assert [tally.messages for tally in scanner.tallies] == [100]
