"""However the stream is cut into chunks and however they are taken, the scanner says what the plain model says.

The model knows for each frame at which byte of the stream its verdict can be given. That settles everything: up to
where the stream may have been passed on, what each chunk's tallies are, whether a chunk must be cut, and every piece.
"""

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given, settings

from protocol.commands import encode_with_payload
from protocol.frames import MESSAGE, SEND, SEND_RECEIPT
from protocol.pulsar_pb2 import CommandSend
from protocol.scanner import TAIL, FrameScanner, Piece
from tests.protocol.choices import Check, Choices, choices, in_bulk
from tests.protocol.streams import MAX_SIZE, SILENT, Expected, any_frames, cut_anyhow, model

ROW = 1200

REMAINS = encode_with_payload(CommandSend(producer_id=77, sequence_id=0), b"of another read") * 2
"""The bytes after each chunk, in the memory that the chunk was read into."""


class Watched:
    """A scanner, and the number of bytes fed and passed on; each step is compared with the model."""

    def __init__(self, stream: bytes, direction: int) -> None:
        self.stream = stream
        self.direction = direction
        self.frames = model(stream, direction)
        self.scanner = FrameScanner(direction, MAX_SIZE, counts_receipts=True)
        self.fed = 0
        self.passed = 0
        self.kept = b""
        self.counted: Counter[str] = Counter()

    def scan(self, chunk: bytes) -> bool:
        """Scan a chunk; the scanner's state stays."""
        self._ask_for_the_first(chunk)
        ready = self._inspected_by(chunk)
        silent = SILENT[self.direction] | {self.direction}
        passes = self.scanner.scan(chunk + REMAINS, len(chunk))
        assert passes == all(frame.kind in silent for frame in ready), "only a command asks for a cut"
        if passes:
            assert self._tallies() == self._sums(ready)
            assert self._receipts() == [frame.kind for frame in ready].count(SEND_RECEIPT)
        return passes

    def accept(self, chunk: bytes) -> None:
        """Pass a scanned chunk on by the writing rule."""
        for tally in self.scanner.tallies:
            self.counted.update(entries=tally.entries, messages=tally.messages, size=tally.size)
        lead, keep = self.scanner.lead, self.scanner.keep
        assert lead in (b"", self.kept)
        assert 0 <= keep <= len(chunk)
        self.scanner.accept(chunk + REMAINS)
        self._pass_on(lead + chunk[: len(chunk) - keep], chunk)

    def cut(self, chunk: bytes) -> None:
        """Pass a chunk on in pieces."""
        self._ask_for_the_first(chunk)
        before, end = self.passed, self._passable(self.fed + len(chunk))
        data, pieces = self.scanner.cut(chunk + REMAINS, len(chunk))
        data = data[: self.scanner.end]
        assert not pieces or data == self.kept + chunk
        assert [_row(piece) for piece in pieces] == self._expected_pieces(before, end)
        for piece in pieces:
            if piece.kind == self.direction:
                self.counted.update(entries=1, messages=piece.messages, size=piece.size)
        self._pass_on(b"".join(data[piece.start : piece.stop] for piece in pieces), chunk)

    def _ask_for_the_first(self, chunk: bytes) -> None:
        """The first frame's owner is known if that frame begins, and is inspected, in this chunk."""
        owner = self.scanner.first_owner(chunk + REMAINS, len(chunk))
        begun = [frame for frame in self.frames if self.fed <= frame.start < self.fed + len(chunk)]
        is_clear = begun and not self.kept and begun[0].verdict <= self.fed + len(chunk)
        assert owner == (begun[0].owner if is_clear and begun[0].kind == self.direction else -1)

    def _pass_on(self, written: bytes, chunk: bytes) -> None:
        self.fed += len(chunk)
        assert written == self.stream[self.passed : self.passed + len(written)], "byte for byte"
        self.passed += len(written)
        assert self.passed == self._passable(self.fed), "no byte before its frame's verdict, none kept after it"
        self.kept = self.stream[self.passed : self.fed]
        assert self.scanner.mid_frame == all(self.passed not in (frame.start, frame.stop) for frame in self.frames)

    def _passable(self, fed: int) -> int:
        """The number of bytes that may be passed on when `fed` bytes of the stream have arrived."""
        for frame in self.frames:
            if frame.start <= fed < frame.stop:
                return fed if fed >= frame.verdict else frame.start
        return fed

    def _inspected_by(self, chunk: bytes) -> list[Expected]:
        return [frame for frame in self.frames if self.fed < frame.verdict <= self.fed + len(chunk)]

    def _tallies(self) -> dict[int, tuple[int, int, int, int, int]]:
        rows = {
            tally.owner: (tally.entries, tally.messages, tally.size, tally.largest_messages, tally.largest_size)
            for tally in self.scanner.tallies
        }
        assert len(rows) == len(self.scanner.tallies), "one tally an owner"
        return rows

    def _receipts(self) -> int:
        return sum(tally.entries for tally in self.scanner.receipts)

    def _sums(self, frames: list[Expected]) -> dict[int, tuple[int, int, int, int, int]]:
        rows: dict[int, list[Expected]] = {}
        for frame in frames:
            if frame.kind == self.direction:
                rows.setdefault(frame.owner, []).append(frame)
        return {owner: _sum(row) for owner, row in rows.items()}

    def _expected_pieces(self, before: int, end: int) -> list[tuple[object, ...]]:
        """The parts of the frames in `stream[before:end]`, placed as in the bytes that `cut` gives back."""
        rows: list[tuple[object, ...]] = []
        for frame in self.frames:
            start, stop = max(frame.start, before), min(frame.stop, end)
            whole = stop == frame.stop
            if start < stop and frame.start < before:
                rows.append((TAIL, start - before, stop - before, whole, 0, -1, 0, 0))
            elif start < stop:
                place = (frame.kind, start - before, stop - before, whole, frame.command_end - before)
                rows.append((*place, frame.owner, frame.messages, frame.size))
        return rows


def _sum(row: list[Expected]) -> tuple[int, int, int, int, int]:
    messages, sizes = [frame.messages for frame in row], [frame.size for frame in row]
    return len(row), sum(messages), sum(sizes), max(messages), max(sizes)


def _row(piece: Piece) -> tuple[object, ...]:
    place = (piece.kind, piece.start, piece.stop, piece.whole, piece.command_end)
    return (*place, piece.owner, piece.messages, piece.size)


def _always_scan(watched: Watched, chunk: bytes, _choose: Choices) -> None:
    if watched.scan(chunk):
        watched.accept(chunk)
    else:
        watched.cut(chunk)


def _always_cut(watched: Watched, chunk: bytes, _choose: Choices) -> None:
    watched.cut(chunk)


def _as_it_comes(watched: Watched, chunk: bytes, choose: Choices) -> None:
    """Scan and accept, scan and still cut, scan twice, or cut at once."""
    way = choose.below(4)
    if way == 0 or not watched.scan(chunk) or (way == 1 and not watched.scan(chunk)) or way == 2:
        watched.cut(chunk)
    else:
        watched.accept(chunk)


def _check(way: Callable[[Watched, bytes, Choices], None]) -> Check:
    def check(choose: Choices) -> None:
        direction = choose.one_of([SEND, MESSAGE])
        stream = b"".join(any_frames(choose, direction))
        watched = Watched(stream, direction)
        for chunk in [stream] if stream and choose.chance(3) else cut_anyhow(choose, stream):
            way(watched, chunk, choose)
        assert watched.passed == len(stream)
        metered = [frame for frame in watched.frames if frame.kind == direction]
        assert watched.counted["entries"] == len(metered)
        assert watched.counted["messages"] == sum(frame.messages for frame in metered)
        assert watched.counted["size"] == sum(frame.size for frame in metered)

    return check


CHECKS = {
    "scan and accept, cut where that is asked for": _check(_always_scan),
    "always cut": _check(_always_cut),
    "any mix of both": _check(_as_it_comes),
}


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
@settings(max_examples=100)
@given(choose=choices(ROW))
def test_any_chunking_gives_the_same_frames(check: Check, choose: Choices) -> None:
    check(choose)


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_any_chunking_gives_the_same_frames_in_many_cases(check: Check) -> None:
    in_bulk(check, 1500, ROW)


def test_a_chunk_of_too_many_owners_is_cut_and_few_are_kept() -> None:
    scanner = FrameScanner(SEND, MAX_SIZE)

    def sends(owners: int) -> bytes:
        return b"".join(
            encode_with_payload(CommandSend(producer_id=owner, sequence_id=0), b"x" * 20) for owner in range(owners)
        )

    assert scanner.scan(sends(10), most_owners=10)
    scanner.accept(sends(10))
    assert not scanner.scan(sends(5000), most_owners=10)
    assert len(scanner._tally_of) == 11
    data, pieces = scanner.cut(sends(5000), -1)
    assert [piece.owner for piece in pieces] == list(range(256))
    assert len(data) - scanner.left == pieces[-1].stop
