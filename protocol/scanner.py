"""Walks the frames of one direction of one connection in place, chunk by chunk.

The proxy forwards chunks, not frames; so the scanner looks only at the head of each frame and says, per chunk,
who sent how much (`scan`), or, when somebody must be stopped, where each frame begins and ends (`cut`).

    chunk    ┄┄tail of a frame┃ head │ payload ┃ head │ payload ┃ hea…
             `_rest` bytes    └ inspected      └ inspected      └ kept back: `_carry`, until `_need` bytes are there

A frame is inspected once, when the bytes that its verdict needs have come: for SEND the command, for MESSAGE the
command and the metadata, for a control command all of it. Bytes of an uninspected frame are never passed on, bytes
of an inspected one never kept.
"""

from typing import Final

from mypy_extensions import i64

from protocol.heads import Heads
from protocol.kinds import ACK, ACK_RESPONSE, HEAD, MESSAGE, SEND, SEND_RECEIPT
from protocol.pieces import TAIL, Piece, Tally, clear, tally_of
from protocol.walk import read_command

MOST_OWNERS: Final = 4096
"""Producers (or consumers) of which one chunk may have frames, and whose tallies are kept for the next one. A peer may
name any number of them, and each costs some 200 bytes."""
MOST_PIECES: Final = 256
"""Frames that are cut at once: so much work may be done before others have their turn."""

_NEEDS_MORE: Final = -1
_MUST_BE_CUT: Final = -2


class FrameScanner:
    """Finds frames in the bytes that one peer sends.

    Attributes:
        heads: Reads the heads; knows how large a frame may be, and how much it may hold.
        tallies: Payload frames of what was scanned last.
        receipts: SEND_RECEIPTs of what was scanned last, as entries by producer, while `counts_receipts` is set.
        lead, keep: What was kept back before that and goes first; bytes at its end that are kept back now.
        end, left: Bytes of what was scanned or cut last; how many at its end were too many to be cut in one go.

    Args:
        payload_kind: The metered command: SEND (from a client) or MESSAGE (from a broker).
        max_size: Most bytes of a whole frame.
    """

    def __init__(self, payload_kind: int, max_size: int) -> None:
        self.heads = Heads(payload_kind, max_size)
        self.left: i64 = 0
        self.end: i64 = 0
        self.tallies: list[Tally] = []
        self.lead: bytes = b""
        self.keep: i64 = 0
        self.receipts: list[Tally] = []
        self.counts_receipts: bool = False
        self.most_owners: i64 = MOST_OWNERS
        self._payload: i64 = payload_kind
        self._silent_a: i64 = ACK if payload_kind == SEND else SEND_RECEIPT
        self._silent_b: i64 = ACK if payload_kind == SEND else ACK_RESPONSE
        self._tally_of: dict[int, Tally] = {}
        self._receipts_of: dict[int, Tally] = {}
        self._rest: i64 = 0
        self._carry: bytearray = bytearray()
        self._need: i64 = 0
        self._next_rest: i64 = 0
        self._next_need: i64 = 0

    @property
    def mid_frame(self) -> bool:
        """Whether what was passed on so far ends inside a frame."""
        return self._rest > 0

    @property
    def kept(self) -> int:
        """Bytes of a frame's beginning that are kept back."""
        return len(self._carry)

    @property
    def ends_mid_frame(self) -> bool:
        """Whether what was scanned last ends inside a frame."""
        return self._next_rest > 0

    def hear_receipts(self) -> None:
        """From now on a broker's SEND_RECEIPT is a command like others, for which a chunk must be cut."""
        if self._payload == MESSAGE:
            self._silent_a = self._silent_b  # which is ACK_RESPONSE

    def scan(self, chunk: bytes, size: i64 = -1) -> bool:
        """Tally the payload frames of `chunk`, if there is nothing in it but these and silent commands.

        True: `tallies` says who has what; call `accept` and write `lead`, then `chunk` without its last `keep`
        bytes; or call `cut` with it. False: only `cut` will do. Of `chunk`, `size` bytes count, if given.

        Raises:
            ProtocolError: As `Heads.read`.
        """
        clear(self.tallies, self._tally_of, self.most_owners)
        heads = self.heads
        heads.begin()
        if self.receipts:
            clear(self.receipts, self._receipts_of, MOST_OWNERS)
        end: i64 = size if size >= 0 else i64(len(chunk))
        self.end = end
        at: i64 = self._rest
        self.lead = b""
        self._next_need = 0
        carried: i64 = len(self._carry)
        if carried > 0:
            at = self._scan_carried(chunk, carried, end)
            if at < 0:
                return at == _NEEDS_MORE
        elif at >= end:
            self._next_rest = at - end
            self.keep = 0
            return True
        last: Tally | None = None
        receipts: Tally | None = None
        payload: i64 = self._payload
        while at < end:
            length: i64 = heads.read(chunk, at, end)
            if length < 0:
                self._next_need = -length
                self._next_rest = 0
                self.keep = end - at
                return True
            kind: i64 = heads.kind
            if kind == payload:
                owner: int = heads.owner
                if last is None or last.owner != owner:
                    last = tally_of(owner, self.tallies, self._tally_of)
                    if len(self.tallies) > self.most_owners:
                        return False
                row: i64 = heads.row(chunk, at, end, length)
                last.add(row, heads.messages, heads.size)
                length *= row
            elif kind != self._silent_a and kind != self._silent_b:
                return False
            elif self.counts_receipts and kind == SEND_RECEIPT:
                producer: int = self._producer_of(chunk, at)
                if receipts is None or receipts.owner != producer:
                    receipts = tally_of(producer, self.receipts, self._receipts_of)
                receipts.entries += 1
            at += length
        self._next_rest = at - end
        self.keep = 0
        return True

    def first_owner(self, chunk: bytes, size: i64) -> int:
        """Whose the first frame of a chunk is; -1 if that is a command or not clear yet. Raises what `scan` does."""
        heads = self.heads
        if self._carry or self._rest >= size or heads.read(chunk, self._rest, size) <= 0:
            return -1
        return heads.owner if heads.kind == self._payload else -1

    def accept(self, chunk: bytes) -> None:
        """`chunk`, as scanned, is passed on: go to the state behind it."""
        self.heads.tell_doubts()
        self._rest = self._next_rest
        if self._next_need > 0:
            if self.lead or not self._carry:
                self._carry = bytearray(chunk[self.end - self.keep : self.end])
            else:
                self._carry += chunk[: self.end]
            self._need = self._next_need
        elif self._carry:
            self._carry = bytearray()

    def cut(self, chunk: bytes, size: i64 = -1) -> tuple[bytes, list[Piece]]:
        """Say where each frame of `chunk` begins and ends, and go to the state behind it.

        Returns the bytes that the pieces' positions refer to (the chunk, behind what was kept of the one before) and
        the pieces in order, without gaps. Bytes behind the last piece are kept; but the last `left` bytes have not been
        looked at, because there were MOST_PIECES before them: these are to be given again, as a chunk. `size` is as in
        `scan`; in what is returned, what stands before `end` counts. Raises what `scan` does.
        """
        self.left = 0
        heads = self.heads
        heads.begin()
        fresh: i64 = size if size >= 0 else i64(len(chunk))
        end: i64 = fresh + len(self._carry)
        self.end = end
        if fresh == 0 or (end > fresh and end < self._need):
            self._carry += chunk[:fresh]
            return b"", []
        data = bytes(self._carry) + chunk[:fresh] if end > fresh else chunk
        pieces: list[Piece] = []
        at: i64 = self._rest
        self._carry = bytearray()
        if at > 0:
            pieces.append(Piece(TAIL, 0, at if at < end else end, whole=at <= end))
        while at < end:
            if len(pieces) >= MOST_PIECES:
                self.left = end - at
                break
            length: i64 = heads.read(data, at, end)
            if length < 0:
                self._carry = bytearray(data[at:end])
                self._need = -length
                break
            stop: i64 = at + length
            piece = Piece(heads.kind, at, stop if stop < end else end, whole=stop <= end)
            piece.command_end = heads.command_end
            if heads.kind == self._payload:
                piece.owner = heads.owner
                piece.messages = heads.messages
                piece.size = heads.size
            pieces.append(piece)
            at = stop
        self._rest = at - end if at > end else 0
        heads.tell_doubts()
        return data, pieces

    def restart(self) -> None:
        """Forget what was kept back and begin at a frame's start: the caller will feed it again."""
        self._carry = bytearray()
        self._rest = 0

    def _scan_carried(self, chunk: bytes, carried: i64, end: i64) -> i64:
        """Finish the frame that the chunk before began.

        Returns where the next frame begins in `chunk` (perhaps behind its end), or that nothing can be passed on yet.
        """
        heads = self.heads
        need: i64 = self._need
        while True:
            if carried + end < need:
                self._next_need = need
                self._next_rest = 0
                self.keep = end
                return _NEEDS_MORE
            head = bytes(self._carry) + chunk[: need - carried]
            length: i64 = heads.read(head, 0, need)
            if length > 0:
                break
            need = -length
        if heads.kind == self._payload:
            tally_of(heads.owner, self.tallies, self._tally_of).add(1, heads.messages, heads.size)
        elif heads.kind != self._silent_a and heads.kind != self._silent_b:
            return _MUST_BE_CUT
        elif self.counts_receipts and heads.kind == SEND_RECEIPT:
            tally_of(self._producer_of(head, 0), self.receipts, self._receipts_of).entries += 1
        self.lead = bytes(self._carry)
        return length - carried

    def _producer_of(self, data: bytes, at: i64) -> i64:
        """Whose publish the SEND_RECEIPT at `at`, inspected just now, answers; -1 if it does not say."""
        _kind, producer, _sequence = read_command(data, at + HEAD, self.heads.command_end, SEND_RECEIPT)
        return producer
