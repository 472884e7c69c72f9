"""Limits in mode `reject`: a client hears which of its messages were refused in the order in which it awaits answers.

Measured: clients take an error only for the message whose answer is next; after any other they close their connection
and send again what has long been stored. So an error goes behind the receipts of what was sent before.

    SEND 1 accepted, SEND 2 refused, SEND 3 refused ─▶ RECEIPT 1, ERROR 2, ERROR 3

Source: CommandSendError; how clients take it: `handleSendError` and what it calls in ClientCnx.java and
ProducerImpl.java 4.0, ClientConnection.cc 4.2 and connection.go 0.19
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from limiter.stream import Stream
from protocol.commands import body_of, decode, encode
from protocol.pulsar_pb2 import (
    ChecksumError,
    CommandSend,
    CommandSendError,
    CommandSendReceipt,
    NotAllowedError,
    ServerError,
)
from proxy.budgets import Budget
from proxy.sessions.holdings import ENTRY_OVERHEAD

MOST_WAITING = 20_000
"""Errors of one connection that wait for receipts: then it is not read, until half of them have gone.

In a worker those of messages that wait there to be judged come on top.
"""

Mark = tuple[int, int]
"""A sequence id, and how many messages of that id there were: chunks of one message share it."""


def error_for(client_version: str) -> ServerError | None:
    """The error by which a client gives up one message and no other; None if it knows none: then nothing is refused.

    A C++ client does so only for ChecksumError: for any other it makes a new connection and sends everything again that
    has no answer, the refused message too. A Go client does the same for any but NotAllowedError, and for that one it
    hears no answer to this producer any more.

    Args:
        client_version: As the client names itself in CONNECT; Python, Node and others are C++ clients.
    """
    if client_version.startswith("Pulsar-CPP-"):
        return ChecksumError
    return None if client_version.startswith(("Pulsar-Go-", "Pulsar Go ")) else NotAllowedError


@dataclass(slots=True)
class _Answers:
    """What one producer awaits: the last message that went on or will, the last receipt, and errors between them."""

    tenant: str
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
        error: What its client is told (`error_for`).
        turned: Called with True when as many errors wait as may, and with False when half of them have gone.
        keep: Called with a tenant and the bytes of memory that its errors take while they wait; below 0 when they go.
    """

    __slots__ = ("_answers", "_error", "_hear", "_keep", "_reply", "_waiting")

    def __init__(
        self,
        reply: Callable[[bytes], None],
        hear: Callable[[], None],
        error: ServerError | None,
        turned: Callable[[bool], None],
        keep: Callable[[str, int], None],
    ) -> None:
        self._reply = reply
        self._hear = hear
        self._error = error
        self._keep = keep
        self._answers: dict[int, _Answers] = {}
        self._waiting = Budget(MOST_WAITING, turned)

    def is_ready_for(self, stream: Stream) -> bool:
        """Whether it is known what is under way of a producer.

        It is not if its limit rejects only since a moment ago: what is over it then is held, and from its receipt on
        everything is known.
        """
        return stream.name.stream_id in self._answers or stream.usage.offered_entries <= 1

    def may_refuse(self, command: bytes) -> bool:
        """Whether the client would give up a SEND that is refused, and no other.

        It does not give up a part of a message: the C++ client reports as sent what lacks any chunk but the last.
        """
        return self._error is not None and not _send(command).is_chunk

    def accepted(self, stream: Stream, command: bytes) -> None:
        """A SEND that some limit might have refused goes on, now or later."""
        if self._error is None:
            return
        self._hear()
        answers = self._of(stream)
        answers.accepted = _mark(answers.accepted, _send(command).sequence_id)

    def refused(self, stream: Stream, reason: str, command: bytes) -> None:
        """A SEND that may be refused is over a limit, as `reason` says.

        Of a batch the Java client awaits a receipt by its lowest sequence id, and an error by its highest, which it
        says; clients that do not say it await both by the only one they say.
        """
        send, answers = _send(command), self._of(stream)
        error = CommandSendError(
            producer_id=send.producer_id,
            sequence_id=max(send.sequence_id, send.highest_sequence_id),
            error=self._error,
            message=reason,
        )
        frame = encode(error)
        if not answers.waiting and answers.is_due(answers.accepted):
            self._reply(frame)
            return
        answers.waiting.append((answers.accepted, frame))
        self._keep(answers.tenant, _memory(frame))
        self._waiting.take(1)

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
        if answers is not None and answers.waiting:
            self._keep(answers.tenant, -sum(_memory(frame) for _behind, frame in answers.waiting))
            self._waiting.give(len(answers.waiting))

    def _of(self, stream: Stream) -> _Answers:
        answers = self._answers.get(stream.name.stream_id)
        if answers is None:
            answers = self._answers[stream.name.stream_id] = _Answers(stream.name.tenant)
        return answers

    def _send_due(self, answers: _Answers) -> None:
        """To give back room may lead to what was read before a pause, and from there to `refused`: behind these."""
        while answers.waiting and answers.is_due(answers.waiting[0][0]):
            _behind, frame = answers.waiting.popleft()
            self._reply(frame)
            self._keep(answers.tenant, -_memory(frame))
            self._waiting.give(1)


def _memory(frame: bytes) -> int:
    return ENTRY_OVERHEAD + len(frame)


def _mark(last: Mark | None, sequence_id: int) -> Mark:
    return (sequence_id, last[1] + 1 if last is not None and last[0] == sequence_id else 1)


def _send(command: bytes) -> CommandSend:
    send: CommandSend = body_of(decode(command))
    return send
