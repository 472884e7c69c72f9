"""SEND_RECEIPTs pass without a cut; on request they are counted by producer, or each is cut out."""

import pytest

from protocol.commands import encode, encode_with_payload
from protocol.frames import MESSAGE, SEND, SEND_RECEIPT
from protocol.pulsar_pb2 import CommandMessage, CommandSend, CommandSendReceipt, MessageIdData
from protocol.scanner import FrameScanner

MOST = 10_000


def receipt(producer: int, sequence: int = 0) -> bytes:
    return encode(
        CommandSendReceipt(
            producer_id=producer, sequence_id=sequence, message_id=MessageIdData(ledger_id=3, entry_id=1)
        )
    )


def message(consumer: int) -> bytes:
    return encode_with_payload(
        CommandMessage(consumer_id=consumer, message_id=MessageIdData(ledger_id=3, entry_id=1)), bytes(8)
    )


STREAM = [receipt(1), receipt(1), message(7), receipt(300), receipt(1), message(1)]


def counted(scanner: FrameScanner) -> dict[int, int]:
    return {tally.owner: tally.entries for tally in scanner.receipts}


def test_receipts_are_counted_by_producer_only_on_request() -> None:
    scanner = FrameScanner(MESSAGE, MOST)
    assert scanner.scan(b"".join(STREAM))
    assert scanner.receipts == []
    scanner = FrameScanner(MESSAGE, MOST, counts_receipts=True)
    assert scanner.scan(b"".join(STREAM))
    assert counted(scanner) == {1: 3, 300: 1}
    assert {tally.owner: tally.entries for tally in scanner.tallies} == {7: 1, 1: 1}


@pytest.mark.parametrize("size", [1, 3, 7, 20, 64])
def test_each_receipt_is_counted_once_for_any_cut(size: int) -> None:
    scanner = FrameScanner(MESSAGE, MOST, counts_receipts=True)
    stream, total = b"".join(STREAM * 3), 0
    for at in range(0, len(stream), size):
        assert scanner.scan(stream[at : at + size])
        total += sum(counted(scanner).values())
        scanner.accept(stream[at : at + size])
    assert total == 12


def test_receipts_are_counted_per_chunk() -> None:
    scanner = FrameScanner(MESSAGE, MOST, counts_receipts=True)
    for _ in range(3):
        assert scanner.scan(receipt(1) + receipt(2))
        assert counted(scanner) == {1: 1, 2: 1}


def test_a_chunk_with_a_heard_receipt_must_be_cut() -> None:
    scanner = FrameScanner(MESSAGE, MOST, counts_receipts=True)
    scanner.hear_receipts()
    assert scanner.scan(message(7))
    assert not scanner.scan(message(7) + receipt(1))
    _, pieces = scanner.cut(message(7) + receipt(1))
    assert [piece.kind for piece in pieces] == [MESSAGE, SEND_RECEIPT]


@pytest.mark.parametrize("cut", range(1, len(receipt(1))))
def test_a_heard_receipt_is_one_whole_piece(cut: int) -> None:
    """The caller may change a receipt or keep it back, which takes a whole frame."""
    scanner = FrameScanner(MESSAGE, MOST, counts_receipts=True)
    scanner.hear_receipts()
    assert scanner.scan(receipt(1)[:cut])
    scanner.accept(receipt(1)[:cut])
    assert not scanner.scan(receipt(1)[cut:])
    data, pieces = scanner.cut(receipt(1)[cut:])
    assert [(piece.kind, piece.whole, data[piece.start : piece.stop]) for piece in pieces] == [
        (SEND_RECEIPT, True, receipt(1))
    ]


def test_heard_receipts_are_not_counted() -> None:
    scanner = FrameScanner(MESSAGE, MOST, counts_receipts=True)
    scanner.hear_receipts()
    assert not scanner.scan(receipt(1))
    assert scanner.receipts == []


def test_hearing_receipts_changes_nothing_for_clients_bytes() -> None:
    scanner = FrameScanner(SEND, MOST)
    scanner.hear_receipts()
    assert scanner.scan(encode_with_payload(CommandSend(producer_id=1, sequence_id=0), b"payload"))
