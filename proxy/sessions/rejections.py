"""Limits in mode `reject`: a client hears which of its messages were refused in the order in which it awaits answers.

Measured: the Java client takes an error only for the message whose answer is next; after any other it closes its
connection and sends again what has long been stored. So an error goes behind the receipts of what was sent before.

    SEND 1 accepted, SEND 2 refused, SEND 3 refused ─▶ RECEIPT 1, ERROR 2, ERROR 3

Source: CommandSendError; ServerError NotAllowedError
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from limiter.stream import Stream
from protocol.commands import body_of, decode, encode
from protocol.errors import ProtocolError
from protocol.pulsar_pb2 import CommandSend, CommandSendError, CommandSendReceipt, NotAllowedError

MOST_WAITING = 20_000
"""Errors of one connection that wait for receipts."""

Mark = tuple[int, int]
"""A sequence id, and how many messages of that id there were: chunks of one message share it."""


class TooManyRejectionsError(ProtocolError):
    """A client goes on sending over its limit while the broker answers nothing."""

    cause = "too_many_rejections"


@dataclass(slots=True)
class _Answers:
    """What one producer awaits: the last message that went on or will, the last receipt, and errors between them."""

    accepted: Mark | None = None
    received: Mark | None = None
    waiting: deque[tuple[Mark | None, bytes]] = field(default_factory=deque)

    def is_due(self, behind: Mark | None) -> bool:
        """Whether the receipt of `behind` has come; sequence ids of a producer only grow."""
        return behind is None or (self.received is not None and self.received >= behind)


class Rejections:
    """Keeps errors and receipts of a connection's producers in order.

    Args:
        reply: Sends a frame to the client.
        hear: Called before anything is accepted whose receipt must be heard.
    """

    __slots__ = ("_answers", "_hear", "_reply", "_waiting")

    def __init__(self, reply: Callable[[bytes], None], hear: Callable[[], None]) -> None:
        self._reply = reply
        self._hear = hear
        self._answers: dict[int, _Answers] = {}
        self._waiting = 0

    def is_ready_for(self, stream: Stream) -> bool:
        """Whether it is known what is under way of a producer.

        It is not if its limit rejects only since a moment ago: what is over it then is held, and from its receipt on
        everything is known.
        """
        return stream.name.stream_id in self._answers or stream.usage.offered_entries <= 1

    def accepted(self, stream: Stream, command: bytes) -> None:
        """A SEND that some limit might have refused goes on, now or later."""
        self._hear()
        answers = self._answers.setdefault(stream.name.stream_id, _Answers())
        answers.accepted = _mark(answers.accepted, _send(command).sequence_id)

    def refused(self, stream: Stream, reason: str, command: bytes) -> None:
        """A SEND is over a limit, as `reason` says.

        Raises:
            TooManyRejectionsError: If too many of them wait for receipts.
        """
        if self._waiting >= MOST_WAITING:
            raise TooManyRejectionsError(f"{MOST_WAITING} messages of one connection are refused and wait for receipts")
        send, answers = _send(command), self._answers.setdefault(stream.name.stream_id, _Answers())
        error = CommandSendError(
            producer_id=send.producer_id,
            sequence_id=send.sequence_id,
            error=NotAllowedError,
            message=reason,
        )
        answers.waiting.append((answers.accepted, encode(error)))
        self._waiting += 1
        self._send_due(answers)

    def answered(self, command: CommandSendReceipt | CommandSendError, frame: bytes) -> bool:
        """Pass on the broker's answer and what waits behind it. False if the caller is to pass it on."""
        answers = self._answers.get(command.producer_id)
        if answers is None:
            return False
        self._reply(frame)
        answers.received = _mark(answers.received, command.sequence_id)
        self._send_due(answers)
        return True

    def closed(self, stream: Stream) -> None:
        """A producer is over; nobody awaits anything of it."""
        answers = self._answers.pop(stream.name.stream_id, None)
        if answers is not None:
            self._waiting -= len(answers.waiting)

    def _send_due(self, answers: _Answers) -> None:
        while answers.waiting and answers.is_due(answers.waiting[0][0]):
            self._waiting -= 1
            self._reply(answers.waiting.popleft()[1])


def _mark(last: Mark | None, sequence_id: int) -> Mark:
    return (sequence_id, last[1] + 1 if last is not None and last[0] == sequence_id else 1)


def _send(command: bytes) -> CommandSend:
    send: CommandSend = body_of(decode(command))
    return send
