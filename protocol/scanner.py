"""Walks the frames of one direction of one connection in place, chunk by chunk.

The proxy forwards chunks, not frames. So the scanner reads only the head of each frame. For each chunk it counts the
messages and bytes of each producer or consumer (`scan`). When a stream must be held, it returns where each frame begins
and ends (`cut`).

    chunk    ┄┄tail of a frame┃ head │ payload ┃ head │ payload ┃ hea…
             `_rest` bytes    └ inspected      └ inspected      └ kept back: `_carry`, until `_need` bytes are there

A frame is inspected once, as soon as the needed bytes have arrived: the command of a SEND, the command and metadata of
a MESSAGE, or all of a control command. Bytes of an uninspected frame are never passed on. Bytes of an inspected frame
are never kept.
"""

from collections.abc import Callable
from typing import Final

from librt.strings import read_i64_be
from mypy_extensions import i64, mypyc_attr

from protocol.frames import (
    ACK,
    ACK_RESPONSE,
    HEAD,
    MESSAGE,
    MOST_COMMAND,
    SEND,
    SEND_RECEIPT,
    CommandTooLarge,
    FrameTooLarge,
    MalformedFrame,
    TooManyMessages,
)
from protocol.walk import NUM_MESSAGES, OWNER, message_count, messages_after, read_command, u32

TAIL: Final = 0
"""The `kind` of a piece that continues the frame of the chunk before."""


@mypyc_attr(acyclic=True)
class Tally:
    """Entries, messages and bytes of one producer or consumer in one chunk.

    `size` is the metered bytes (`Heads.size`).
    """

    __slots__ = ("entries", "largest_messages", "largest_size", "messages", "owner", "size")

    def __init__(self, owner: int) -> None:
        self.owner: int = owner
        self.entries: i64 = 0
        self.messages: i64 = 0
        self.size: i64 = 0
        self.largest_messages: i64 = 0
        self.largest_size: i64 = 0

    def add(self, entries: i64, messages: i64, size: i64) -> None:
        """Count `entries` entries, each of `messages` messages and `size` bytes."""
        self.entries += entries
        self.messages += entries * messages
        self.size += entries * size
        if messages > self.largest_messages:
            self.largest_messages = messages
        if size > self.largest_size:
            self.largest_size = size

    def clear(self) -> None:
        """Reset all counts; the owner stays."""
        self.entries = 0
        self.messages = 0
        self.size = 0
        self.largest_messages = 0
        self.largest_size = 0


def tally_of(owner: int, tallies: list[Tally], known: dict[int, Tally]) -> Tally:
    """Return the owner's tally, added to `tallies` if this chunk has none yet; `known` keeps tallies for reuse."""
    tally = known.get(owner)
    if tally is None:
        tally = known[owner] = Tally(owner)
    if tally.entries == 0:
        tallies.append(tally)
    return tally


def clear(tallies: list[Tally], known: dict[int, Tally], most: i64) -> None:
    """Reset the tallies for a new chunk; if `known` has more than `most`, none is kept for reuse."""
    for tally in tallies:
        tally.clear()
    tallies.clear()
    if len(known) > most:
        known.clear()


@mypyc_attr(acyclic=True)
class Piece:
    """A frame, or the part of a frame that a chunk holds: `data[start:stop]`.

    `kind` is the command's type, or TAIL. `owner`, `messages` and `size` are set for payload frames only. `command_end`
    is set for all but tails; the command begins HEAD bytes after `start`. `whole`: the frame ends with this piece.
    """

    __slots__ = ("command_end", "kind", "messages", "owner", "size", "start", "stop", "whole")

    def __init__(self, kind: int, start: int, stop: int, *, whole: bool) -> None:
        self.kind: int = kind
        self.start: int = start
        self.stop: int = stop
        self.whole: bool = whole
        self.owner: int = -1
        self.messages: int = 0
        self.size: int = 0
        self.command_end: int = 0


LONGEST: Final = 24
"""Longest command whose layout can be learnt, in bytes; as many bytes must be there to be compared."""
_BEGIN: Final = 0x08_06_32_00  # with a length of 0
_BEGIN_SIZE: Final = 4
_WHOLE: Final = 0xFF
_GOES_ON: Final = 0x80


class SendLayout:
    """The byte layout that consecutive SEND commands share, as masks over three words of eight bytes.

    A new layout fits no command. `_mask_*` are the bits that must match to fit, `_want_*` their values. `_row_*` are
    the bits that must match within a row.
    """

    __slots__ = (
        "_command_size",
        "_mask_0",
        "_mask_1",
        "_mask_2",
        "_messages_at",
        "_owner_at",
        "_row_0",
        "_row_1",
        "_row_2",
        "_want_0",
        "_want_1",
        "_want_2",
    )

    def __init__(self) -> None:
        self._command_size: i64 = -1
        self._owner_at: i64 = 0
        self._messages_at: i64 = 0
        self._mask_0: i64 = 0
        self._mask_1: i64 = 0
        self._mask_2: i64 = 0
        self._want_0: i64 = 0
        self._want_1: i64 = 0
        self._want_2: i64 = 0
        self._row_0: i64 = 0
        self._row_1: i64 = 0
        self._row_2: i64 = 0

    def fits(self, data: bytes, at: i64, command_size: i64) -> bool:
        """Return whether the command at `at` has this layout; LONGEST bytes must be readable there."""
        return (
            command_size == self._command_size
            and read_i64_be(data, at) & self._mask_0 == self._want_0
            and read_i64_be(data, at + 8) & self._mask_1 == self._want_1
            and read_i64_be(data, at + 16) & self._mask_2 == self._want_2
        )

    def owner(self, data: bytes, at: i64) -> i64:
        """Return the producer id of the command at `at`, which fits."""
        return data[at + self._owner_at]

    def messages(self, data: bytes, at: i64) -> i64:
        """Return num_messages of the command at `at`, which fits; 1 if the field is absent or 0."""
        if self._messages_at == 0 or data[at + self._messages_at] == 0:
            return 1
        return data[at + self._messages_at]

    def row(self, data: bytes, at: i64, end: i64, length: i64) -> i64:
        """Return the number of consecutive frames, from `at` on, with equal length, producer and number of messages.

        The first frame's command fits. A further frame counts only if LONGEST bytes follow its head before `end`: those
        of its command, its payload, or the next frame. The position of the next head follows from `length` alone, so
        the processor need not wait for one head to find the next.
        """
        head: i64 = read_i64_be(data, at)
        mask_0: i64 = self._row_0
        mask_1: i64 = self._row_1
        mask_2: i64 = self._row_2
        want_0: i64 = read_i64_be(data, at + HEAD) & mask_0
        want_1: i64 = read_i64_be(data, at + HEAD + 8) & mask_1
        want_2: i64 = read_i64_be(data, at + HEAD + 16) & mask_2
        last: i64 = end - HEAD - LONGEST
        count: i64 = 1
        position: i64 = at + length
        while (
            position <= last
            and read_i64_be(data, position) == head
            and read_i64_be(data, position + HEAD) & mask_0 == want_0
            and read_i64_be(data, position + HEAD + 8) & mask_1 == want_1
            and (mask_2 == 0 or read_i64_be(data, position + HEAD + 16) & mask_2 == want_2)  # few commands are longer
        ):
            count += 1
            position += length
        return count

    def note(self, data: bytes, at: i64, size: i64) -> bool:
        """Learn the layout of the command at `at`, of `size` bytes.

        Returns whether the command has a layout that can be learnt. If not, this object must not be used any more.
        """
        position: i64 = 0
        while position < _BEGIN_SIZE:
            position = self._must_match(position, _WHOLE)
        while position < size:
            tag: i64 = data[at + position]
            if tag & 0x87 != 0:
                return False  # no number, or one of a field above 15
            value_at: i64 = self._must_match(position, _WHOLE)
            position = value_at
            while data[at + position] >= 0x80:
                position = self._must_match(position, _GOES_ON)
            position = self._must_match(position, _GOES_ON)
            if tag == OWNER:
                self._owner_at = value_at
            elif tag == NUM_MESSAGES:
                self._messages_at = value_at
            else:
                continue
            if position > value_at + 1:
                return False
        self._want_0 = read_i64_be(data, at) & self._mask_0
        self._want_1 = read_i64_be(data, at + 8) & self._mask_1
        self._want_2 = read_i64_be(data, at + 16) & self._mask_2
        self._row_0 = self._mask_0 | self._counted_by(0)
        self._row_1 = self._mask_1 | self._counted_by(1)
        self._row_2 = self._mask_2 | self._counted_by(2)
        self._command_size = size
        return True

    def _must_match(self, position: i64, bits: i64) -> i64:
        """Require `bits` of the byte at `position` to match, and return the next position."""
        shifted = _in_word(position, bits)
        if position < 8:
            self._mask_0 |= shifted
        elif position < 16:
            self._mask_1 |= shifted
        else:
            self._mask_2 |= shifted
        return position + 1

    def _counted_by(self, word: i64) -> i64:
        """Return the bits of a word that hold the producer id and the number of messages.

        If no field holds the number of messages, these are the bits of the type's tag, which must match anyway.
        """
        bits: i64 = 0
        if self._owner_at >> 3 == word:
            bits = _in_word(self._owner_at, _WHOLE)
        if self._messages_at >> 3 == word:
            bits |= _in_word(self._messages_at, _WHOLE)
        return bits


def _in_word(position: i64, bits: i64) -> i64:
    """Return the bits of the byte at `position`, shifted to their place in the word of eight bytes."""
    # mypyc compiles a literal that is shifted by a variable to a C int of 32 bits; here both operands are variables
    return bits << (56 - 8 * (position & 7))


def layout_of(data: bytes, at: i64, end: i64) -> SendLayout | None:
    """Return the layout of the SEND command in `data[at:end]`; None if it has none that can be learnt.

    The command must have been parsed without an error and name a producer. LONGEST bytes from `at` on must be readable.
    """
    size: i64 = end - at
    if size > LONGEST or u32(data, at) != _BEGIN + size - _BEGIN_SIZE:
        return None
    layout = SendLayout()
    return layout if layout.note(data, at, size) else None


MOST_MESSAGES: Final = 2**31 - 1
FREE_COMMAND: Final = 128
"""Bytes of a SEND command that no limit is charged, as a broker charges none. A command with all fields that clients
set has about 100. Bytes beyond are unknown fields, in which a client could send as much as in payloads."""


class Heads:
    """Reads one frame head after the other: command type, owner, messages and bytes of the frame.

    Attributes:
        max_size: Most bytes of a whole frame; may be changed at any time.
        kind: The command type of the frame that was read last.
        owner, messages: Of a payload frame: the producer or consumer id, and the number of messages.
        size: Metered bytes: those after the command, which the broker meters, and of a SEND command those beyond
            FREE_COMMAND.
        command_end: Position at which the command ends; it begins HEAD bytes after the frame's begin.

    Args:
        payload_kind: The metered command: SEND (from a client) or MESSAGE (from a broker).
        max_size: As the attribute.
        max_messages: Most messages of one entry. A SEND that declares more is an error. A MESSAGE that declares more
            counts as `max_messages`: its metadata is the publisher's, and no broker checks it. So does one whose
            metadata has too many fields to look for the number.
        on_excess: If set, called with the owner of such a MESSAGE and the number of messages that it declares.
    """

    def __init__(
        self,
        payload_kind: int,
        max_size: int,
        max_messages: int = MOST_MESSAGES,
        on_excess: Callable[[int, int], None] | None = None,
    ) -> None:
        self.max_size: i64 = max_size
        self.max_messages: i64 = max_messages
        self._on_excess = on_excess
        self.kind: i64 = 0
        self.owner: i64 = 0
        self.messages: i64 = 0
        self.size: i64 = 0
        self.command_end: i64 = 0
        self._payload: i64 = payload_kind
        self._max_command: i64 = MOST_COMMAND if payload_kind == SEND else 1 << 32
        self._excess: list[tuple[int, int]] = []
        self._layout = SendLayout()
        self._may_learn: bool = False
        self._fits: bool = False

    def limit_frames(self, max_size: int) -> None:
        """Set the most bytes of a frame; a longer one is an error."""
        self.max_size = max_size

    def begin(self) -> None:
        """Begin a chunk, perhaps the same one again: forget unreported excess, and allow one layout to be learnt."""
        self._may_learn = True
        if self._excess:
            self._excess = []

    def read(self, data: bytes, at: i64, end: i64) -> i64:
        """Read the head of the frame at `at`; bytes before `end` have arrived.

        Returns the frame's length, or minus the number of its bytes that are needed to inspect it.

        Raises:
            FrameTooLarge: If the frame announces more than `max_size` bytes.
            CommandTooLarge: If a client's command announces more than `MOST_COMMAND` bytes.
            TooManyMessages: If the frame is a SEND of more than `max_messages`.
            MalformedFrame: If sizes or fields of the frame contradict each other.
        """
        have: i64 = end - at
        if have < HEAD:
            return -HEAD
        head: i64 = read_i64_be(data, at)
        length: i64 = (head >> 32 & 0xFFFFFFFF) + 4
        if length > self.max_size:
            raise FrameTooLarge(length, self.max_size)
        command_size: i64 = head & 0xFFFFFFFF
        if command_size + HEAD > length:
            raise MalformedFrame(f"a command of {command_size} bytes in a frame of {length}")
        if command_size > self._max_command:
            raise CommandTooLarge(command_size, self._max_command)
        if have < HEAD + command_size:
            return -(HEAD + command_size)
        command: i64 = at + HEAD
        self.command_end = command + command_size
        self.size = length - HEAD - command_size
        layout = self._layout
        if have >= HEAD + LONGEST and layout.fits(data, command, command_size):
            self.kind = SEND
            self.owner = layout.owner(data, command)
            self.messages = layout.messages(data, command)
            if self.messages <= self.max_messages:
                self._fits = True
                return length
        return self._walk(data, at, end, length)

    def row(self, data: bytes, at: i64, end: i64, length: i64) -> i64:
        """Return the number of consecutive frames, from `at` on, with the values that `read` has just read at `at`.

        The result is at least 1. More frames may be equal: only those that are cheap to compare are counted.
        """
        if self._fits:  # no conditional expression: mypyc makes an object of a number and a literal
            return self._layout.row(data, at, end, length)
        return 1

    def report_excess(self) -> None:
        """Report each MESSAGE of the chunk that declares more than `max_messages`; the chunk is passed on."""
        if not self._excess:
            return
        excess, self._excess = self._excess, []
        if self._on_excess is not None:
            for owner, messages in excess:
                self._on_excess(owner, messages)

    def _walk(self, data: bytes, at: i64, end: i64, length: i64) -> i64:
        """Parse the frame at `at`, whose command has arrived, field by field; return the result of `read`."""
        self._fits = False
        command: i64 = at + HEAD
        kind, owner, messages = read_command(data, command, self.command_end, self._payload)
        self.kind = kind
        self.owner = owner
        self.messages = message_count(messages)
        if kind != self._payload:
            return length if end - at >= length else -length
        if owner < 0:
            raise MalformedFrame("a payload command names no producer or consumer")
        if kind == SEND:
            if self.messages > self.max_messages:
                raise TooManyMessages(self.messages, self.max_messages)
            beyond: i64 = self.command_end - command - FREE_COMMAND
            if beyond > 0:
                self.size += beyond
            if self._may_learn and end - command >= LONGEST:
                self._may_learn = False  # layouts that alternate would be learnt for nothing
                self._layout = layout_of(data, command, self.command_end) or self._layout
            return length
        self.messages = messages_after(data, self.command_end, end, at + length)
        if self.messages > self.max_messages:
            self._excess.append((self.owner, self.messages))
            self.messages = self.max_messages
        return length if self.messages > 0 else self.messages + at


MOST_OWNERS: Final = 4096
"""Most producers (or consumers) with frames in one chunk, and most tallies that are kept for the next chunk. A peer may
name any number of ids, and each costs some 200 bytes."""
MOST_PIECES: Final = 256
"""Most frames that are cut at once, before other connections have their turn."""

_NEEDS_MORE: Final = -1
_MUST_BE_CUT: Final = -2


class FrameScanner:
    """Finds the frames in the bytes that one peer sends.

    Attributes:
        heads: Reads frame heads; holds the bounds of a frame's bytes and of an entry's messages.
        tallies: Payload frames of the chunk that was scanned last, by producer or consumer.
        receipts: SEND_RECEIPTs of that chunk, as entries by producer; filled if `counts_receipts` is set.
        lead: Bytes kept back from earlier chunks, to be written before the chunk that was scanned last.
        keep: Number of bytes at the end of that chunk that are kept back.
        end: Number of bytes that were scanned or cut last.
        left: Number of bytes at their end that were not cut, because MOST_PIECES frames precede them.

    Args:
        payload_kind: The metered command: SEND (from a client) or MESSAGE (from a broker).
        max_size: Most bytes of a whole frame.
        max_messages: As for `Heads`.
        on_excess: As for `Heads`.
        counts_receipts: Count SEND_RECEIPTs.
    """

    def __init__(
        self,
        payload_kind: int,
        max_size: int,
        max_messages: int = MOST_MESSAGES,
        on_excess: Callable[[int, int], None] | None = None,
        *,
        counts_receipts: bool = False,
    ) -> None:
        self.heads = Heads(payload_kind, max_size, max_messages, on_excess)
        self.left: i64 = 0
        self.end: i64 = 0
        self.tallies: list[Tally] = []
        self.lead: bytes = b""
        self.keep: i64 = 0
        self.receipts: list[Tally] = []
        self._counts_receipts: bool = counts_receipts
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
        """True if the bytes passed on so far end inside a frame."""
        return self._rest > 0

    @property
    def kept(self) -> int:
        """Number of bytes of an incomplete frame that are kept back."""
        return len(self._carry)

    @property
    def ends_mid_frame(self) -> bool:
        """True if the chunk scanned last ends inside a frame."""
        return self._next_rest > 0

    def hear_receipts(self) -> None:
        """Treat a broker's SEND_RECEIPT as any other command from now on: a chunk that holds one must be cut."""
        if self._payload == MESSAGE:
            self._silent_a = self._silent_b  # ACK_RESPONSE

    def scan(self, chunk: bytes, size: i64 = -1, most_owners: i64 = MOST_OWNERS) -> bool:
        """Tally the payload frames of `chunk`, if it holds only these and silent commands.

        Returns True if it does. `tallies` then holds the counts of each producer or consumer. Call `accept`, and write
        `lead` and then `chunk` without its last `keep` bytes; or call `cut` instead. Returns False if the chunk must be
        cut, as one must that names more than `most_owners` producers or consumers. If `size` is given, only the first
        `size` bytes of `chunk` count.

        Raises:
            ProtocolError: As `Heads.read`.
        """
        clear(self.tallies, self._tally_of, most_owners)
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
                    if len(self.tallies) > most_owners:
                        return False
                row: i64 = heads.row(chunk, at, end, length)
                last.add(row, heads.messages, heads.size)
                length *= row
            elif kind != self._silent_a and kind != self._silent_b:
                return False
            elif self._counts_receipts and kind == SEND_RECEIPT:
                producer: int = self._producer_of(chunk, at)
                if receipts is None or receipts.owner != producer:
                    receipts = tally_of(producer, self.receipts, self._receipts_of)
                receipts.entries += 1
            at += length
        self._next_rest = at - end
        self.keep = 0
        return True

    def first_owner(self, chunk: bytes, size: i64) -> int:
        """Return the owner of a chunk's first frame; -1 for a command or if bytes are missing. Raises as `scan`."""
        heads = self.heads
        if self._carry or self._rest >= size or heads.read(chunk, self._rest, size) <= 0:
            return -1
        return heads.owner if heads.kind == self._payload else -1

    def accept(self, chunk: bytes) -> None:
        """Record that `chunk`, as scanned, is passed on: move to the state after it."""
        self.heads.report_excess()
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
        """Return where each frame of `chunk` begins and ends, and move to the state after it.

        Returns the bytes that the pieces' positions refer to (the bytes kept from earlier chunks, then the chunk), and
        the pieces in order, without gaps. Bytes after the last piece are kept, except the last `left` bytes, which are
        not inspected, as MOST_PIECES pieces precede them: the caller passes them again as a chunk. `size` is as in
        `scan`; of the bytes returned, those before `end` count. Raises as `scan`.
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
        heads.report_excess()
        return data, pieces

    def restart(self) -> None:
        """Forget the bytes kept back and begin at a frame's start: the caller feeds them again."""
        self._carry = bytearray()
        self._rest = 0

    def _scan_carried(self, chunk: bytes, carried: i64, end: i64) -> i64:
        """Finish the frame that an earlier chunk began.

        Returns where the next frame begins in `chunk` (perhaps after the chunk's end), or _NEEDS_MORE or _MUST_BE_CUT.
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
        elif self._counts_receipts and heads.kind == SEND_RECEIPT:
            tally_of(self._producer_of(head, 0), self.receipts, self._receipts_of).entries += 1
        self.lead = bytes(self._carry)
        return length - carried

    def _producer_of(self, data: bytes, at: i64) -> i64:
        """Return the producer id of the SEND_RECEIPT at `at`, inspected just now; -1 if it names none."""
        _kind, producer, _sequence = read_command(data, at + HEAD, self.heads.command_end, SEND_RECEIPT)
        return producer
