"""How the SEND that was learnt last was laid out: one that is laid out alike is read without a walk.

A client writes its SENDs the same way again and again; what differs are the values of numbers, and few of these grow
by a byte. So of the first, which was walked over, it is remembered what must be the same:

    type 6   field 6, its length   producer_id   sequence_id          num_messages
    08 06    32 0E                 08 0·······   10 1······· 0·······   18 0·······        (`·` may differ)

Every tag, the lengths, and the bit of each byte that says whether its number goes on: what has all of these is read by
any decoder as the first one was, field by field. A producer's id or a number of messages above 127 is left to the walk.

Where the length of the frame, the producer and the number of messages are the same, too, frames are counted in a row.
"""

from typing import Final

from librt.strings import read_i64_be
from mypy_extensions import i64

from protocol.kinds import HEAD
from protocol.walk import NUM_MESSAGES, OWNER, u32

LONGEST: Final = 24
"""Bytes of a command that can be remembered; so many must be there to be compared."""
_BEGIN: Final = 0x08_06_32_00  # with a length of 0
_BEGIN_SIZE: Final = 4
_WHOLE: Final = 0xFF
_GOES_ON: Final = 0x80


class SendLayout:
    """What is the same in SENDs that are laid out alike, in three words of eight bytes each.

    A new one fits nothing. `_mask_*` are the bits that must match to fit, `_want_*` their values; `_row_*` the bits
    that must match within a row.
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
        """Whether the command at `at`, of so many bytes, is laid out alike; LONGEST bytes must be there."""
        return (
            command_size == self._command_size
            and read_i64_be(data, at) & self._mask_0 == self._want_0
            and read_i64_be(data, at + 8) & self._mask_1 == self._want_1
            and read_i64_be(data, at + 16) & self._mask_2 == self._want_2
        )

    def owner(self, data: bytes, at: i64) -> i64:
        """The producer's id of the command at `at`, which fits."""
        return data[at + self._owner_at]

    def messages(self, data: bytes, at: i64) -> i64:
        """Its number of messages: 1 if it says none."""
        if self._messages_at == 0 or data[at + self._messages_at] == 0:
            return 1
        return data[at + self._messages_at]

    def row(self, data: bytes, at: i64, end: i64, length: i64) -> i64:
        """How many frames in a row, from the one at `at` on, have the same length, producer and number of messages.

        Its command fits. Another frame counts only if LONGEST bytes behind its head, be they command, payload or the
        next frame, stand before `end`. Where to read next follows from `length` alone: the processor need not wait for
        one head to find the next.
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
            and read_i64_be(data, position + HEAD + 16) & mask_2 == want_2
        ):
            count += 1
            position += length
        return count

    def note(self, data: bytes, at: i64, size: i64) -> bool:
        """Learn from the command at `at`, of `size` bytes, if it is usual. Whether it is; of no use any more if not."""
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
        """These bits of the byte at `position` must be the same; the position behind it."""
        shifted = _in_word(position, bits)
        if position < 8:
            self._mask_0 |= shifted
        elif position < 16:
            self._mask_1 |= shifted
        else:
            self._mask_2 |= shifted
        return position + 1

    def _counted_by(self, word: i64) -> i64:
        """The bytes of a word that say whose it is, and how many messages.

        Where nothing says how many, that is the type's tag, which must match anyway.
        """
        bits: i64 = 0
        if self._owner_at >> 3 == word:
            bits = _in_word(self._owner_at, _WHOLE)
        if self._messages_at >> 3 == word:
            bits |= _in_word(self._messages_at, _WHOLE)
        return bits


def _in_word(position: i64, bits: i64) -> i64:
    """The bits of the byte at `position`, where they stand in its word."""
    # of a literal that is shifted by a variable, mypyc makes one of C's 32 bits: here both are variables
    return bits << (56 - 8 * (position & 7))


def layout_of(data: bytes, at: i64, end: i64) -> SendLayout | None:
    """How the SEND command in `data[at:end]` is laid out, if that is usual.

    It has been walked over without an error, and names a producer; LONGEST bytes from `at` on must be there.
    """
    size: i64 = end - at
    if size > LONGEST or u32(data, at) != _BEGIN + size - _BEGIN_SIZE:
        return None
    layout = SendLayout()
    return layout if layout.note(data, at, size) else None
