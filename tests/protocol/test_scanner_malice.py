"""What a peer can send to break the scanner, starve it or slip past it."""

import tracemalloc
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol import scanner as heads_module
from protocol import walk
from protocol.commands import encode_with_payload
from protocol.frames import (
    DEFAULT_MAX_MESSAGE_SIZE,
    MESSAGE,
    MOST_COMMAND,
    SEND,
    CommandTooLarge,
    FrameCutter,
    FrameTooLarge,
    MalformedFrame,
    ProtocolError,
    max_frame_size,
)
from protocol.pulsar_pb2 import CommandSend, MessageIdData
from protocol.scanner import FREE_COMMAND, MOST_OWNERS, TAIL, FrameScanner
from tests.protocol import fields as wire
from tests.protocol import ill_commands as ill
from tests.protocol.choices import Choices, choices, in_bulk
from tests.protocol.streams import any_frames, cut_anyhow, frame, u32

MAX_SIZE = max_frame_size(DEFAULT_MAX_MESSAGE_SIZE)
SEND_ONE = bytes.fromhex("0806 3204 0801 1002")
MESSAGE_ONE = bytes.fromhex("0809 4a02 0801")
COMPILED = not str(heads_module.__file__).endswith(".py")


def taken(direction: int, *chunks: bytes, cut: bool) -> bytes:
    """What is passed on of these chunks."""
    scanner, passed = FrameScanner(direction, MAX_SIZE), b""
    for chunk in chunks:
        if not cut and scanner.scan(chunk):
            scanner.accept(chunk)
            passed += scanner.lead + chunk[: len(chunk) - scanner.keep]
        else:
            data, pieces = scanner.cut(chunk)
            passed += b"".join(data[piece.start : piece.stop] for piece in pieces)
    return passed


LIES = {
    "the command is longer than its frame": (SEND, u32(20) + u32(17) + SEND_ONE + bytes(20)),
    "the command is longer than any frame": (SEND, u32(20) + u32(2**32 - 1) + SEND_ONE + bytes(20)),
    "a frame of 0 bytes": (SEND, u32(0) + u32(0)),
    "a frame of 3 bytes": (SEND, u32(3) + u32(0)),
    "a frame with room for the command's size only": (SEND, u32(4) + u32(1) + SEND_ONE),
    "a frame one byte short": (SEND, u32(3 + len(SEND_ONE)) + u32(len(SEND_ONE)) + SEND_ONE),
    "an empty command": (SEND, u32(4) + u32(0)),
    "a SEND that names no producer": (SEND, frame(bytes.fromhex("0806 3202 1002"))),
    "a SEND without its body": (SEND, frame(b"\x08\x06")),
    "a SEND with a producer id of 2**63": (SEND, frame(b"\x08\x06" + wire.delimited(6, b"\x08" + wire.varint(2**63)))),
    "type 0, which marks a piece without a head": (SEND, frame(b"\x08\x00")),
    "a MESSAGE of a command only": (MESSAGE, frame(MESSAGE_ONE)),
    "metadata longer than the frame": (MESSAGE, frame(MESSAGE_ONE, u32(9) + bytes(8))),
    "metadata longer than any frame": (MESSAGE, frame(MESSAGE_ONE, u32(2**32 - 1) + bytes(8))),
    "broker entry metadata longer than the frame": (MESSAGE, frame(MESSAGE_ONE, b"\x0e\x02" + u32(9) + bytes(8))),
    "broker entry metadata longer than any frame": (MESSAGE, frame(MESSAGE_ONE, b"\x0e\x02" + b"\xff" * 12)),
    "broker entry metadata twice": (MESSAGE, frame(MESSAGE_ONE, (b"\x0e\x02" + u32(0)) * 2 + u32(0) + bytes(9))),
    "a checksum and nothing": (MESSAGE, frame(MESSAGE_ONE, b"\x0e\x01" + bytes(4))),
}


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize(("direction", "lie"), LIES.values(), ids=LIES)
def test_a_frame_that_contradicts_itself_is_malformed(direction: int, lie: bytes, *, cut: bool) -> None:
    for chunks in ([lie], [lie[at : at + 1] for at in range(len(lie))]):
        with pytest.raises(MalformedFrame) as refused:
            taken(direction, *chunks, cut=cut)
        assert refused.value.cause == "malformed"


@pytest.mark.parametrize("cut", [False, True])
def test_unknown_fields_of_a_send_command_are_metered(*, cut: bool) -> None:
    """A client could send there what it does not send as payload."""
    fields = bytes.fromhex("0801 1002") + wire.delimited(99, bytes(60_000))
    padded = frame(b"\x08\x06" + wire.delimited(6, fields), bytes(10))
    metered = len(padded) - 8 - FREE_COMMAND
    for chunks in [padded], [padded[:100], padded[100:50_000], padded[50_000:]]:
        scanner = FrameScanner(SEND, MAX_SIZE)
        if cut:
            assert next(piece.size for chunk in chunks for piece in scanner.cut(chunk)[1]) == metered
            continue
        for chunk in chunks:
            assert scanner.scan(chunk)
            scanner.accept(chunk)
        assert [(tally.entries, tally.size) for tally in scanner.tallies] == [(1, metered)]


def test_a_send_command_of_all_known_fields_is_not_metered() -> None:
    largest = 2**63 - 1
    send = CommandSend(
        producer_id=largest,
        sequence_id=largest,
        num_messages=1000,
        txnid_least_bits=largest,
        txnid_most_bits=largest,
        highest_sequence_id=largest,
        is_chunk=True,
        marker=True,
        message_id=MessageIdData(ledger_id=largest, entry_id=largest, partition=10_000, batch_index=1000),
    )
    scanner = FrameScanner(SEND, MAX_SIZE)
    assert scanner.scan(encode_with_payload(send, bytes(10)))
    assert [tally.size for tally in scanner.tallies] == [10]


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("announced", [MAX_SIZE - 3, 2**31, 2**32 - 1])
def test_a_frame_that_announces_too_much_is_refused_by_its_head(announced: int, *, cut: bool) -> None:
    with pytest.raises(FrameTooLarge) as refused:
        taken(SEND, u32(announced) + u32(8), cut=cut)
    assert (refused.value.cause, refused.value.size, refused.value.limit) == ("too_large", announced + 4, MAX_SIZE)
    assert str(MAX_SIZE) in str(refused.value)


@pytest.mark.parametrize("cut", [False, True])
def test_a_large_command_of_a_client_is_refused_by_its_head(*, cut: bool) -> None:
    announced = u32(MOST_COMMAND + 5) + u32(MOST_COMMAND + 1)
    with pytest.raises(CommandTooLarge) as refused:
        taken(SEND, announced, cut=cut)
    assert (refused.value.cause, refused.value.size) == ("too_large", MOST_COMMAND + 1)
    assert taken(MESSAGE, announced, cut=cut) == b""
    largest = u32(MOST_COMMAND + 4) + u32(MOST_COMMAND)
    assert taken(SEND, largest, cut=cut) == b""


def test_the_largest_frame_is_allowed() -> None:
    rest = bytes(MAX_SIZE - 8 - len(SEND_ONE))
    assert taken(SEND, frame(SEND_ONE, rest), cut=False) == frame(SEND_ONE, rest)


def test_the_limit_may_change_between_frames() -> None:
    scanner = FrameScanner(SEND, 100)
    large = frame(SEND_ONE, bytes(200))
    scanner.heads.max_size = 300
    assert scanner.scan(large)
    scanner.accept(large)
    scanner.heads.max_size = 100
    with pytest.raises(FrameTooLarge):
        scanner.scan(large)


@pytest.mark.parametrize("kind", [SEND, MESSAGE])
def test_a_frame_cut_short_passes_only_inspected_bytes(kind: int) -> None:
    headers = u32(2) + b"\x58\x05" + bytes(10)
    whole = frame(SEND_ONE if kind == SEND else MESSAGE_ONE, headers)
    verdict = len(whole) - (len(headers) if kind == SEND else 10)
    for length in range(len(whole)):
        passed = taken(kind, whole[:length], cut=False)
        assert passed == (whole[:length] if length >= verdict else b"")


def _noise(choose: Choices) -> None:
    """Noise and sound frames with a few bytes changed: a protocol error or a faithful copy, in every way of taking."""
    direction = choose.one_of([SEND, MESSAGE])
    stream = ill.broken(choose, b"".join(any_frames(choose, direction)))
    chunks = cut_anyhow(choose, stream)
    outcomes = []
    for cut in (False, True):
        try:
            outcomes.append(taken(direction, *chunks, cut=cut))
        except ProtocolError as error:
            outcomes.append(str(error).encode())
        else:
            assert stream.startswith(outcomes[-1])
    assert outcomes[0] == outcomes[1], "both ways come to the same verdict"


@settings(max_examples=100)
@given(choose=choices(600))
def test_garbage_is_refused_or_copied_faithfully(choose: Choices) -> None:
    _noise(choose)


def test_garbage_is_refused_or_copied_faithfully_in_many_cases() -> None:
    in_bulk(_noise, 2000, 600)


@given(st.binary(min_size=8, max_size=60))
def test_noise_raises_nothing_but_protocol_errors(noise: bytes) -> None:
    for direction in (SEND, MESSAGE):
        for framed in (noise, frame(noise), frame(SEND_ONE, noise), frame(MESSAGE_ONE, noise)):
            with suppress(ProtocolError):
                taken(direction, framed, cut=False)


def test_a_claim_of_five_megabytes_costs_the_bytes_that_came() -> None:
    """20 bytes of a control command, of a command and of metadata, each announced as 5 MB."""
    claim = 5_000_000
    heads = {
        "frame": u32(claim) + u32(7) + b"\x08\x05\x2a\x03\x0a\x01t" + bytes(5),
        "command": u32(claim) + u32(claim - 4) + bytes(12),
    }
    rest = u32(claim - 100) + bytes(12)
    metadata = u32(claim) + u32(len(MESSAGE_ONE)) + MESSAGE_ONE + rest
    for direction, head in ((SEND, heads["frame"]), (MESSAGE, heads["command"]), (MESSAGE, metadata)):
        for cut in (False, True):
            tracemalloc.start()
            assert taken(direction, *[head[at : at + 5] for at in range(0, len(head), 5)], cut=cut) == b""
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert peak < 20_000


def dripped(monkeypatch: pytest.MonkeyPatch, size: int, *, cut: bool) -> tuple[int, int]:
    """How often a control command of `size` bytes that comes byte by byte is inspected, and what is copied for it."""
    inspections, copied = 0, 0

    def counting(data: bytes, at: int, end: int, payload_kind: int) -> tuple[int, int, int]:
        nonlocal inspections
        inspections += 1
        return read(data, at, end, payload_kind)

    read = walk.read_command
    monkeypatch.setattr(heads_module, "read_command", counting)
    scanner = FrameScanner(SEND, MAX_SIZE)
    command = frame(b"\x08\x05" + wire.delimited(5, bytes(size)))
    for at in range(len(command)):
        byte = command[at : at + 1]
        if not cut and scanner.scan(byte):
            scanner.accept(byte)
        else:
            copied += len(scanner.cut(byte)[0])
    assert not scanner.mid_frame
    return inspections, copied


@pytest.mark.parametrize("cut", [False, True])
def test_a_command_read_byte_by_byte_costs_no_more_than_at_once(monkeypatch: pytest.MonkeyPatch, *, cut: bool) -> None:
    inspections, copied = dripped(monkeypatch, 300_000, cut=cut)
    assert copied < 300_000 + 100
    assert COMPILED or 0 < inspections <= 5  # compiled calls do not go by way of the module's names


def test_metadata_read_byte_by_byte_is_inspected_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    headers = (
        b"\x0e\x02" + u32(4000) + bytes(4000) + b"\x0e\x01" + bytes(4) + u32(4000) + wire.delimited(4, bytes(3997))
    )
    scanner, copied = FrameScanner(MESSAGE, MAX_SIZE), 0
    for byte in frame(MESSAGE_ONE, headers):
        copied += len(scanner.cut(bytes([byte]))[0])
    assert copied < 6 * len(headers)


def test_endless_ids_cost_no_endless_memory() -> None:
    """Each chunk names thousands of producers that were never seen before: up to a bound all are counted, and none
    of them is remembered for long."""
    scanner, first = FrameScanner(SEND, MAX_SIZE), 0
    for _ in range(5):
        owners = range(first, first + MOST_OWNERS)
        chunk = b"".join(frame(b"\x08\x06" + wire.delimited(6, b"\x08" + wire.varint(owner))) for owner in owners)
        assert scanner.scan(chunk)
        assert [tally.owner for tally in scanner.tallies] == list(owners)
        assert {tally.entries for tally in scanner.tallies} == {1}
        scanner.accept(chunk)
        assert len(scanner._tally_of) <= 2 * MOST_OWNERS
        first += MOST_OWNERS
    assert not scanner.scan(chunk + frame(b"\x08\x06" + wire.delimited(6, b"\x08" + wire.varint(first))))


def test_no_command_passes_for_the_tail_of_another() -> None:
    """A piece's kind 0 means: this continues the frame before. A peer must not be able to claim that."""
    scanner = FrameScanner(SEND, MAX_SIZE)
    chunk = frame(SEND_ONE, b"payload")
    _, pieces = scanner.cut(chunk + chunk[:12])
    assert [piece.kind for piece in pieces] == [SEND]
    with pytest.raises(MalformedFrame):
        FrameScanner(SEND, MAX_SIZE).cut(chunk + frame(b"\x08\x00" + wire.delimited(6, SEND_ONE)))
    assert TAIL == 0


def test_restarting_forgets_what_was_kept() -> None:
    scanner, whole = FrameScanner(SEND, MAX_SIZE), frame(SEND_ONE, b"payload")
    for half in (whole[:9], whole[:-2]):
        scanner.cut(half)
        scanner.restart()
        assert not scanner.mid_frame
        data, pieces = scanner.cut(whole)
        assert data == whole
        assert [(piece.kind, piece.start, piece.stop) for piece in pieces] == [(SEND, 0, len(whole))]


def test_scanner_and_cutter_refuse_the_same_lengths() -> None:
    for size in [*range(12), 90, 95, 96, 97, 2**31, 2**32 - 1]:
        head = u32(size) + u32(min(max(size, 4) - 4, 80)) + b"\x08\x12" + bytes(90)
        refused = []
        for feed in (lambda data: list(FrameCutter(100).feed(data)), FrameScanner(SEND, 100).cut):
            try:
                feed(head[: max(8, size + 4)])
                refused.append("")
            except ProtocolError as error:
                refused.append(error.cause)
        assert refused[0] in ("", refused[1]), f"{size}: the scanner also looks into the frame, so it may refuse more"
