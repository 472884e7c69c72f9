"""How the SEND that was read last was laid out: one that is laid out alike is read without a walk.

A client writes its SENDs the same way again and again; what differs are the values of numbers, and few of these grow
by a byte. So of the first, which was walked over, it is remembered what must be the same:

    type 6   field 6, its length   producer_id   sequence_id          num_messages
    08 06    32 0E                 08 0·······   10 1······· 0·······   18 0·······        (`·` may differ)

Every tag, the lengths, and the bit of each byte that says whether its number goes on: what has all of these is read by
any decoder as the first one was, field by field. A producer's id or a number of messages above 127 is left to the walk.
"""

from typing import Final

from librt.strings import read_i64_be
from mypy_extensions import i64

from protocol.walk import NUM_MESSAGES, OWNER, u32

LONGEST: Final = 24
"""Bytes of a command that can be remembered; so many must be there to be compared."""
_BEGIN: Final = 0x08_06_32_00  # with a length of 0
_BEGIN_SIZE: Final = 4
_UNKNOWN: Final = -1
_WHOLE: Final = 0xFF
_GOES_ON: Final = 0x80


class SendLayout:
    """What is the same in SENDs that are laid out alike, in three words of eight bytes each.

    Attributes:
        size: Bytes of the command; -1 if nothing is remembered.
    """

    __slots__ = ("_messages_at", "_owner_at", "_same_0", "_same_1", "_same_2", "_want_0", "_want_1", "_want_2", "size")

    def __init__(self) -> None:
        self.size: i64 = _UNKNOWN
        self._owner_at: i64 = 0
        self._messages_at: i64 = 0
        self._same_0: i64 = 0
        self._same_1: i64 = 0
        self._same_2: i64 = 0
        self._want_0: i64 = 0
        self._want_1: i64 = 0
        self._want_2: i64 = 0

    def fits(self, data: bytes, at: i64) -> bool:
        """Whether the command at `at`, of `size` bytes, is laid out alike; LONGEST bytes must be there."""
        return (
            read_i64_be(data, at) & self._same_0 == self._want_0
            and read_i64_be(data, at + 8) & self._same_1 == self._want_1
            and read_i64_be(data, at + 16) & self._same_2 == self._want_2
        )

    def owner(self, data: bytes, at: i64) -> i64:
        """The producer's id of the command at `at`, which fits."""
        return data[at + self._owner_at]

    def messages(self, data: bytes, at: i64) -> i64:
        """Its number of messages: 1 if it says none."""
        if self._messages_at == 0 or data[at + self._messages_at] == 0:
            return 1
        return data[at + self._messages_at]

    def learn(self, data: bytes, at: i64, end: i64) -> None:
        """Remember the SEND command in `data[at:end]`, which has been walked over without an error, if it is usual.

        LONGEST bytes from `at` on must be there.
        """
        self.size = _UNKNOWN
        size: i64 = end - at
        if size > LONGEST or u32(data, at) != _BEGIN + size - _BEGIN_SIZE or not self._is_usual(data, at, size):
            return
        self._want_0 = read_i64_be(data, at) & self._same_0
        self._want_1 = read_i64_be(data, at + 8) & self._same_1
        self._want_2 = read_i64_be(data, at + 16) & self._same_2
        self.size = size

    def _is_usual(self, data: bytes, at: i64, size: i64) -> bool:
        """Go over all fields, as `fits`, `owner` and `messages` need them; no more is to be known of unusual ones."""
        self._owner_at = self._messages_at = 0
        self._same_0 = self._same_1 = self._same_2 = 0
        position: i64 = 0
        while position < _BEGIN_SIZE:
            position = self._keep(position, _WHOLE)
        while position < size:
            tag: i64 = data[at + position]
            if tag & 0x87 != 0:
                return False  # no number, or one of a field above 15
            value_at: i64 = self._keep(position, _WHOLE)
            position = value_at
            while data[at + position] >= 0x80:
                position = self._keep(position, _GOES_ON)
            position = self._keep(position, _GOES_ON)
            if tag == OWNER:
                self._owner_at = value_at
            elif tag == NUM_MESSAGES:
                self._messages_at = value_at
            else:
                continue
            if position > value_at + 1:
                return False
        return self._owner_at > 0

    def _keep(self, position: i64, bits: i64) -> i64:
        """These bits of the byte at `position` must be the same; the position behind it."""
        shifted: i64 = bits << (56 - 8 * (position & 7))
        if position < 8:
            self._same_0 |= shifted
        elif position < 16:
            self._same_1 |= shifted
        else:
            self._same_2 |= shifted
        return position + 1
