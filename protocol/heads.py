"""Reads the head of a frame, in place: which command it is, whose, and how much it holds."""

from collections.abc import Callable
from typing import Final

from librt.strings import read_i64_be
from mypy_extensions import i64

from protocol.errors import FrameTooLarge, MalformedFrame, TooManyMessages
from protocol.kinds import HEAD, SEND
from protocol.send_layout import LONGEST, SendLayout, layout_of
from protocol.walk import message_count, messages_behind, read_command

_MOST_MESSAGES: Final = 2**31 - 1


class Heads:
    """Says of one frame after the other what metering must know.

    Attributes:
        max_size: Most bytes of a whole frame; may be changed at any time.
        max_messages: As many messages may be in an entry; may be changed, too. A SEND that says it holds more is an
            error. The metadata of a MESSAGE that does is its publisher's, and no broker checks it: it counts as
            `max_messages`.
        not_believed: Called with whose such a MESSAGE is, and how many messages it says it holds, if it is set.
        kind: The command's type, of the frame that was read last.
        owner, messages: Of a payload frame: whose it is, and how many messages it holds.
        size: Its bytes behind the command: what the broker meters.
        command_end: Where its command ends, which begins HEAD bytes behind the frame.

    Args:
        payload_kind: The metered command: SEND (from a client) or MESSAGE (from a broker).
        max_size: As the attribute.
    """

    def __init__(self, payload_kind: int, max_size: int) -> None:
        self.max_size: i64 = max_size
        self.max_messages: i64 = _MOST_MESSAGES
        self.not_believed: Callable[[int, int], None] | None = None
        self.kind: i64 = 0
        self.owner: i64 = 0
        self.messages: i64 = 0
        self.size: i64 = 0
        self.command_end: i64 = 0
        self._payload: i64 = payload_kind
        self._doubted: list[tuple[int, int]] = []
        self._layout = SendLayout()
        self._may_learn: bool = False
        self._fits: bool = False

    def begin(self) -> None:
        """Begin with a chunk, be it anew: doubts from before do not count, and one layout may be learnt."""
        self._may_learn = True
        if self._doubted:
            self._doubted = []

    def read(self, data: bytes, at: i64, end: i64) -> i64:
        """Read the head of the frame at `at`, of which there is what stands before `end`.

        Returns the frame's length, or minus the number of its bytes without which nothing can be said.

        Raises:
            FrameTooLarge: If it announces more than `max_size`.
            TooManyMessages: If it is a SEND of more than `max_messages`.
            MalformedFrame: If it contradicts itself.
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
        """How many frames in a row, from the one at `at` on, `read` would say the same of, which read this one last.

        At least 1. There may be more: only what is cheap to compare is counted.
        """
        if self._fits:  # no conditional expression: mypyc makes an object of a number and a literal
            return self._layout.row(data, at, end, length)
        return 1

    def tell_doubts(self) -> None:
        """Tell what was not believed of the chunk; it is passed on."""
        if not self._doubted:
            return
        doubted, self._doubted = self._doubted, []
        if self.not_believed is not None:
            for owner, messages in doubted:
                self.not_believed(owner, messages)

    def _walk(self, data: bytes, at: i64, end: i64, length: i64) -> i64:
        """What `read` returns, of the frame at `at` whose command is there."""
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
            if self._may_learn and end - command >= LONGEST:
                self._may_learn = False  # where layouts come by turns, it would only cost
                self._layout = layout_of(data, command, self.command_end) or self._layout
            return length
        self.messages = messages_behind(data, self.command_end, end, at + length)
        if self.messages > self.max_messages:
            self._doubted.append((self.owner, self.messages))
            self.messages = self.max_messages
        return length if self.messages > 0 else self.messages + at
