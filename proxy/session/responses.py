"""Responses that a connection awaits: the broker's to requests, and the receipts and errors of producers in order."""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from secrets import randbits
from typing import Any

from google.protobuf.message import Message

from limiter.limiter import Stream
from protocol.commands import body_of, decode, encode
from protocol.frames import ProtocolError
from protocol.pulsar_pb2 import (
    BaseCommand,
    ChecksumError,
    CommandGetOrCreateSchema,
    CommandGetSchema,
    CommandGetTopicsOfNamespace,
    CommandLookupTopic,
    CommandPartitionedTopicMetadata,
    CommandProducer,
    CommandSend,
    CommandSendError,
    CommandSendReceipt,
    CommandWatchTopicList,
    NotAllowedError,
    ServerError,
    TooManyRequests,
)
from proxy.budgets import ENTRY_OVERHEAD, Budget, Claim
from proxy.counters import Counters
from proxy.refusals import TOO_MUCH_KEPT, RefusedError

MOST_REQUESTS = 10_000
"""Most requests of one connection without an answer."""
REQUEST_MEMORY = 1024
"""Bytes that a pending request takes beside the part of its command that is kept."""

Answered = Callable[[Any], Message | None]
"""Called with the broker's answer, be it an error; returns the client's answer, or None. For a producer that waits (not
`producer_ready`) another answer follows."""

_ANSWERS = {
    CommandProducer: BaseCommand.PRODUCER_SUCCESS,
    CommandLookupTopic: BaseCommand.LOOKUP_RESPONSE,
    CommandPartitionedTopicMetadata: BaseCommand.PARTITIONED_METADATA_RESPONSE,
    CommandGetTopicsOfNamespace: BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE,
    CommandWatchTopicList: BaseCommand.WATCH_TOPIC_LIST_SUCCESS,
    CommandGetSchema: BaseCommand.GET_SCHEMA_RESPONSE,
    CommandGetOrCreateSchema: BaseCommand.GET_OR_CREATE_SCHEMA_RESPONSE,
}
"""The type of answer to each request. All other requests are answered by SUCCESS. ERROR may answer any."""
_BITS = 61


class UnexpectedAnswerError(ProtocolError):
    """A broker answers a request with a command that cannot answer it."""

    cause = "unexpected_answer"


class _Request:
    __slots__ = ("act", "answer", "client_id", "is_late", "memory")

    def __init__(self, client_id: int | None, answer: int, act: Answered, memory: int) -> None:
        self.client_id = client_id
        self.answer = answer
        self.act = act
        self.memory = memory
        self.is_late = False


class Requests:
    """The pending requests of one connection. At the broker each has a request id of the proxy's own.

        client ──PRODUCER(request 5)──▶ proxy ──PRODUCER(request 7·10¹⁸)──▶ broker
               ◀──SUCCESS(request 5)───       ◀──SUCCESS(request 7·10¹⁸)──

    Clients may use an id twice, also for commands that the proxy does not know. Brokers would answer twice with that
    id, and the proxy would not know which command was refused. No client can guess an id of the proxy's. Requests are
    encoded again, so bytes that decoders read differently do not reach the broker.

    Args:
        memory: Counts the memory that pending requests take.
        counters: Count answers to no pending request.

    Attributes:
        of_transactions: The number of requests about transactions without an answer. They pass as they came.
        late: The number of pending requests of the client that have come since it began to leave.
    """

    __slots__ = ("_counters", "_first", "_is_leaving", "_memory", "_next", "_under_way", "late", "of_transactions")

    def __init__(self, memory: Claim, counters: Counters) -> None:
        self._memory = memory
        self._counters = counters
        self.of_transactions = self.late = 0
        self._is_leaving = False
        self._under_way: dict[int, _Request] = {}
        # Brokers in Java read ids as signed numbers of 64 bits: theirs and the proxy's are positive there.
        self._first = self._next = (1 << _BITS) + randbits(_BITS)

    def forward(self, command: Any, act: Answered, keeps: int = 0) -> bytes:
        """Register a client's request, and return its frame for the broker.

        Args:
            command: The request; its id is replaced.
            act: Called with the answer.
            keeps: Bytes of the command that `act` keeps.

        Raises:
            RefusedError: If too many requests are pending, or too much is kept for this client.
        """
        memory = REQUEST_MEMORY + keeps
        if len(self._under_way) >= MOST_REQUESTS:
            raise RefusedError(TooManyRequests, f"{MOST_REQUESTS} requests of this connection are without an answer")
        if not self._memory.take(memory):
            raise RefusedError(TooManyRequests, TOO_MUCH_KEPT)
        return self._sent(command, command.request_id, act, memory)

    def forward_close(self, command: Any, act: Answered) -> bytes:
        """Register a client's CLOSE, and return its frame; it is never refused, as each stream has one at most."""
        self._memory.add(REQUEST_MEMORY)
        return self._sent(command, command.request_id, act, REQUEST_MEMORY)

    def own(self, command: Any, act: Answered) -> bytes:
        """Register a request of the proxy's own, and return its frame; the client does not see the answer."""
        self._memory.add(REQUEST_MEMORY)
        return self._sent(command, None, act, REQUEST_MEMORY)

    def forget(self, request_id: int) -> None:
        """Stop waiting for an answer; if it comes all the same, it is ignored."""
        request = self._under_way.pop(request_id, None)
        if request is not None:
            self._memory.add(-request.memory)
            self.late -= request.is_late

    def disown(self, request_id: int, act: Answered, keeps: int) -> None:
        """Keep the answer from the client; when it comes, `act`, which keeps `keeps` bytes, is called with it."""
        request = self._under_way[request_id]
        self.late -= request.is_late
        request.client_id, request.act, request.is_late = None, act, False
        request.memory += keeps
        self._memory.add(keeps)

    def let_go(self) -> None:
        """Forget all requests: the connection is gone, and no answer is acted on any more."""
        self._under_way.clear()
        self.late = 0

    def leaves(self) -> None:
        """Count the client's requests from now on in `late`: it begins to leave."""
        self._is_leaving = True

    @property
    def count(self) -> int:
        """The number of pending requests."""
        return len(self._under_way)

    @property
    def last_id(self) -> int:
        """The request id that was given last."""
        return self._next - 1

    def is_own(self, request_id: int) -> bool:
        """Return whether the proxy gave this request id."""
        return self._first <= request_id < self._next

    def waits_for(self, request_id: int) -> bool:
        """Return whether an answer to this request id is awaited; if not, count it as ignored."""
        if request_id in self._under_way:
            return True
        self._counters.answers_ignored += 1
        return False

    def client_id(self, request_id: int) -> int | None:
        """Return the client's own id of a pending request; None if the request is the proxy's."""
        return self._under_way[request_id].client_id

    def answered(self, kind: int, answer: Any) -> bytes | None:
        """Act on the answer to a pending request; return the frame for the client, or None.

        Raises:
            UnexpectedAnswerError: If this kind of command cannot answer that request.
        """
        request = self._under_way[answer.request_id]
        if kind not in {request.answer, BaseCommand.ERROR}:
            name = BaseCommand.Type.Name
            raise UnexpectedAnswerError(
                f"the broker sent {name(kind)} for a request that {name(request.answer)} answers"
            )
        if kind != BaseCommand.PRODUCER_SUCCESS or answer.producer_ready:  # else it waits, and will be answered again
            self.forget(answer.request_id)
        heard = request.act(answer)
        if heard is None or request.client_id is None:
            return None
        heard.request_id = request.client_id  # type: ignore[attr-defined]
        return encode(heard)

    def _sent(self, command: Any, client_id: int | None, act: Answered, memory: int) -> bytes:
        request_id, self._next = self._next, self._next + 1
        command.request_id = request_id
        answer = _ANSWERS.get(type(command), BaseCommand.SUCCESS)
        self._under_way[request_id] = request = _Request(client_id, answer, act, memory)
        if self._is_leaving and client_id is not None:
            request.is_late = True
            self.late += 1
        return encode(command)


MOST_WAITING = 20_000
"""Number of errors waiting for receipts at which reading is paused, until half have been sent."""
_SENT_AT_ONCE = 20
"""Errors that are sent in one unit of work."""

AnswerMark = tuple[int, int]
"""A sequence id, and the number of messages with that id: chunks of one message share it."""


def error_for(client_version: str) -> ServerError | None:
    """Return the error by which a client gives up one message and no other; None if it has none: nothing is refused.

    A C++ client gives up one message only for ChecksumError. For any other error it makes a new connection and sends
    all messages without an answer again, with the refused one. A Go client does the same for any error except
    NotAllowedError, after which it ignores all answers to this producer.

    Args:
        client_version: The client_version of CONNECT; Python, Node and others are C++ clients.
    """
    if client_version.startswith("Pulsar-CPP-"):
        return ChecksumError
    return None if client_version.startswith(("Pulsar-Go-", "Pulsar Go ")) else NotAllowedError


@dataclass(slots=True)
class _Answers:
    """The answers that a producer awaits.

    Attributes:
        tenant: Of the producer.
        accepted: The last accepted message.
        received: The message of the last receipt that the client was sent.
        waiting: Errors, each with the accepted message before it.
        receipts: Receipts that have come and are not sent, as errors before them are not, each with its sequence id.
        is_sending: Whether errors are being sent, some in each turn of the loop.
        memory: Bytes that errors and receipts here take.
        noted: The entries that the producer had offered with the last message that is noted here.
    """

    tenant: str
    accepted: AnswerMark | None = None
    received: AnswerMark | None = None
    waiting: deque[tuple[AnswerMark | None, bytes]] = field(default_factory=deque)
    receipts: deque[tuple[int, bytes]] = field(default_factory=deque)
    is_sending: bool = False
    memory: int = 0
    noted: int = 0

    def is_due(self, behind: AnswerMark | None) -> bool:
        """Return whether the receipt of `behind` has come; sequence ids of a producer only grow."""
        return behind is None or (self.received is not None and self.received >= behind)


class Rejections:
    """Errors of limits in mode `reject`, sent to the client in the order in which it awaits answers.

    Measured: clients accept an error only for the message whose answer is next. After any other they close their
    connection and send stored messages again. So an error is sent after the receipts of all earlier messages.

        SEND 1 accepted, SEND 2 refused, SEND 3 refused ─▶ RECEIPT 1, ERROR 2, ERROR 3

    Source: CommandSendError; `handleSendError` and its callees in ClientCnx.java and ProducerImpl.java 4.0,
    ClientConnection.cc 4.2 and connection.go 0.19

    Args:
        reply: Sends whole frames to the client.
        hear: Called before a message is accepted whose receipt the proxy must see.
        error: The error code for this client (`error_for`); None: nothing is refused.
        on_pause: Called with True when MOST_WAITING errors wait, and with False when half have been sent.
        keep: Called with a tenant and the bytes of memory that its answers take while they wait; below 0 when they go.
        in_slices: Does the units of work of sending errors: as many in this turn of the loop as it has room for.
    """

    __slots__ = ("_answers", "_error", "_hear", "_in_slices", "_keep", "_reply", "_waiting")

    def __init__(
        self,
        reply: Callable[[bytes], None],
        hear: Callable[[], None],
        error: ServerError | None,
        on_pause: Callable[[bool], None],
        keep: Callable[[str, int], None],
        in_slices: Callable[[Iterator[None]], None],
    ) -> None:
        self._reply = reply
        self._hear = hear
        self._error = error
        self._keep = keep
        self._in_slices = in_slices
        self._answers: dict[int, _Answers] = {}
        self._waiting = Budget(MOST_WAITING, on_pause)

    def is_ready_for(self, stream: Stream) -> bool:
        """Return whether the pending messages of a producer are known.

        They are not known if the producer's limit has just begun to reject, or begins again. The first message over it
        is then held, and noted; errors for the next ones wait for its receipt, before which all earlier ones come.
        """
        answers = self._answers.get(stream.name.stream_id)
        return stream.usage.offered_entries - (0 if answers is None else answers.noted) <= 1

    def refusable(self, command: bytes) -> CommandSend | None:
        """Return a SEND, read, if the client would give it up when it is refused, and no other; else None.

        Chunks are not refused: the C++ client reports a message as sent if any chunk except the last is missing.
        """
        if self._error is None:
            return None
        send = _send(command)
        return None if send.is_chunk else send

    def accepted(self, stream: Stream, command: bytes) -> None:
        """Record that a SEND which a limit might have refused goes on, now or later."""
        if self._error is None:
            return
        self._hear()
        answers = self._of(stream)
        answers.noted = stream.usage.offered_entries
        answers.accepted = _mark(answers.accepted, _send(command).sequence_id)

    def refused(self, stream: Stream, reason: str, send: CommandSend) -> None:
        """Tell the client, in order, that a SEND is over a limit, as `reason` says.

        For a batch, the Java client awaits a receipt with its lowest sequence id, and an error with its highest. It
        sends both ids. Other clients send one id, and await both answers with it.
        """
        answers = self._of(stream)
        answers.noted = stream.usage.offered_entries
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
        self._count(answers, _memory(frame))
        self._waiting.take(1)

    def answered(self, command: CommandSendReceipt | CommandSendError, frame: bytes) -> bool:
        """Pass on the broker's answer and the errors that waited for it; return False if the caller must pass it on."""
        answers = self._answers.get(command.producer_id)
        if answers is None:
            return False
        if answers.is_sending:
            answers.receipts.append((command.sequence_id, frame))
            self._count(answers, _memory(frame))
            return True
        self._reply(frame)
        answers.received = _mark(answers.received, command.sequence_id)
        if _has_due(answers):
            answers.is_sending = True
            self._in_slices(self._sending(answers))
        return True

    def closed(self, stream: Stream) -> None:
        """Forget a producer that is over, when the answers that have come are sent: its client awaits no more."""
        answers = self._answers.pop(stream.name.stream_id, None)
        if answers is not None and answers.memory:
            self._send_all(answers)
            errors = len(answers.waiting)
            answers.waiting.clear()
            if errors:
                self._count(answers, -answers.memory)
                self._waiting.give(errors)

    def stop(self) -> None:
        """Send the answers that have come: the connection ends."""
        for answers in list(self._answers.values()):
            self._send_all(answers)

    def _of(self, stream: Stream) -> _Answers:
        answers = self._answers.get(stream.name.stream_id)
        if answers is None:
            answers = self._answers[stream.name.stream_id] = _Answers(stream.name.tenant)
        return answers

    def _count(self, answers: _Answers, more: int) -> None:
        answers.memory += more
        self._keep(answers.tenant, more)

    def _sending(self, answers: _Answers) -> Iterator[None]:
        """Send the answers that have come, and those that come meanwhile: some in each unit."""
        try:
            while self._send(answers, _SENT_AT_ONCE):
                yield
        finally:
            answers.is_sending = False

    def _send_all(self, answers: _Answers) -> None:
        while self._send(answers, MOST_WAITING):
            pass

    def _send(self, answers: _Answers, most: int) -> bool:
        """Send up to `most` of the receipts that have come and of the errors behind them; return whether more are left.

        To give back room may resume reading, and so call `refused`, which appends to `waiting`.
        """
        frames, errors = list[bytes](), 0
        while len(frames) < most:
            if _has_due(answers):
                _behind, frame = answers.waiting.popleft()
                errors += 1
            elif answers.receipts:
                sequence_id, frame = answers.receipts.popleft()
                answers.received = _mark(answers.received, sequence_id)
            else:
                break
            frames.append(frame)
        if frames:
            self._reply(b"".join(frames))
            self._count(answers, -sum(map(_memory, frames)))
            self._waiting.give(errors)
        return bool(answers.receipts) or _has_due(answers)


def _has_due(answers: _Answers) -> bool:
    return bool(answers.waiting) and answers.is_due(answers.waiting[0][0])


def _memory(frame: bytes) -> int:
    return ENTRY_OVERHEAD + len(frame)


def _mark(last: AnswerMark | None, sequence_id: int) -> AnswerMark:
    return (sequence_id, last[1] + 1 if last is not None and last[0] == sequence_id else 1)


def _send(command: bytes) -> CommandSend:
    send: CommandSend = body_of(decode(command))
    return send
