"""Requests to the broker: each goes under a request id of the proxy's own, and its answer is told by that.

    client ──PRODUCER(request 5)──▶ proxy ──PRODUCER(request 7·10¹⁸)──▶ broker
           ◀──SUCCESS(request 5)───       ◀──SUCCESS(request 7·10¹⁸)──

Clients may use an id twice, for commands that the proxy does not know, too; then brokers answer twice with the same id,
and no one could tell which command was refused. No client can guess an id of the proxy's. What goes on is encoded anew:
bytes that decoders read differently do not reach the broker.
"""

from collections.abc import Callable
from secrets import randbits
from typing import Any

from google.protobuf.message import Message

from protocol.commands import encode
from protocol.errors import ProtocolError
from protocol.pulsar_pb2 import (
    BaseCommand,
    CommandGetTopicsOfNamespace,
    CommandLookupTopic,
    CommandPartitionedTopicMetadata,
    CommandProducer,
    CommandWatchTopicList,
    TooManyRequests,
)
from proxy.budgets import Claim
from proxy.observe.counters import Counters
from proxy.refusals import TOO_MUCH_KEPT, RefusedError

MOST_REQUESTS = 10_000
"""Requests of one connection that are without an answer."""
REQUEST_MEMORY = 1024
"""Bytes that one takes beside what of its command is kept."""

Answered = Callable[[Any], Message | None]
"""Called with the broker's answer, be it an error: what the client is to hear of it, or None. Of a producer that waits
(not `producer_ready`) another answer follows."""

_ANSWERS = {
    CommandProducer: BaseCommand.PRODUCER_SUCCESS,
    CommandLookupTopic: BaseCommand.LOOKUP_RESPONSE,
    CommandPartitionedTopicMetadata: BaseCommand.PARTITIONED_METADATA_RESPONSE,
    CommandGetTopicsOfNamespace: BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE,
    CommandWatchTopicList: BaseCommand.WATCH_TOPIC_LIST_SUCCESS,
}
"""All other commands that are asked here are answered by SUCCESS. ERROR may answer any."""
_BITS = 61


class UnexpectedAnswerError(ProtocolError):
    """A broker answers a request with what can be no answer to it."""

    cause = "unexpected_answer"


class _Request:
    __slots__ = ("act", "answer", "client_id", "memory")

    def __init__(self, client_id: int | None, answer: int, act: Answered, memory: int) -> None:
        self.client_id = client_id
        self.answer = answer
        self.act = act
        self.memory = memory


class Requests:
    """Those of one connection that are without an answer.

    Args:
        memory: Counts what is kept for them.
        counters: Told of answers that nobody waits for.
    """

    __slots__ = ("_counters", "_first", "_memory", "_next", "_under_way")

    def __init__(self, memory: Claim, counters: Counters) -> None:
        self._memory = memory
        self._counters = counters
        self._under_way: dict[int, _Request] = {}
        # Brokers in Java read ids as signed numbers of 64 bits: theirs and the proxy's are positive there.
        self._first = self._next = (1 << _BITS) + randbits(_BITS)

    def forward(self, command: Any, act: Answered, keeps: int = 0) -> bytes:
        """A client's request, as it goes to the broker.

        Args:
            command: The request; its id is another one afterwards.
            act: Told the answer.
            keeps: Bytes of the command that `act` keeps.

        Raises:
            RefusedError: If too many are under way, or too much is kept for this client.
        """
        memory = REQUEST_MEMORY + keeps
        if len(self._under_way) >= MOST_REQUESTS:
            raise RefusedError(TooManyRequests, f"{MOST_REQUESTS} requests of this connection are without an answer")
        if not self._memory.take(memory):
            raise RefusedError(TooManyRequests, TOO_MUCH_KEPT)
        return self._sent(command, command.request_id, act, memory)

    def forward_close(self, command: Any, act: Answered) -> bytes:
        """A client's request to close what is open: it is never refused, and there is one for each stream at most."""
        self._memory.add(REQUEST_MEMORY)
        return self._sent(command, command.request_id, act, REQUEST_MEMORY)

    def own(self, command: Any, act: Answered) -> bytes:
        """A request of the proxy's own, as it goes to the broker; its client hears nothing of it."""
        self._memory.add(REQUEST_MEMORY)
        return self._sent(command, None, act, REQUEST_MEMORY)

    def forget(self, request_id: int) -> None:
        """No answer is awaited any more; one that comes all the same goes nowhere."""
        request = self._under_way.pop(request_id, None)
        if request is not None:
            self._memory.add(-request.memory)

    def disown(self, request_id: int, act: Answered, keeps: int) -> None:
        """The client hears nothing of the answer, which may still come: `act`, which keeps so much, is told of it."""
        request = self._under_way[request_id]
        request.client_id, request.act = None, act
        request.memory += keeps
        self._memory.add(keeps)

    def let_go(self) -> None:
        """The connection is gone: nobody acts on an answer any more."""
        self._under_way.clear()

    @property
    def last_id(self) -> int:
        """The id under which the last one went."""
        return self._next - 1

    def is_own(self, request_id: int) -> bool:
        """Whether the proxy gave this id."""
        return self._first <= request_id < self._next

    def waits_for(self, request_id: int) -> bool:
        """Whether an answer to the request of this id is awaited; if not, it is counted as ignored."""
        if request_id in self._under_way:
            return True
        self._counters.answers_ignored += 1
        return False

    def client_id(self, request_id: int) -> int | None:
        """The client's own id of a request that waits; None if it is the proxy's."""
        return self._under_way[request_id].client_id

    def answered(self, kind: int, answer: Any) -> bytes | None:
        """The answer to a request that waits came: the frame that the client is to hear, or None.

        Raises:
            UnexpectedAnswerError: If it is none to that request.
        """
        request = self._under_way[answer.request_id]
        if kind not in {request.answer, BaseCommand.ERROR}:
            name = BaseCommand.Type.Name
            raise UnexpectedAnswerError(f"{name(kind)} cannot answer what {name(request.answer)} is to answer")
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
        self._under_way[request_id] = _Request(client_id, answer, act, memory)
        return encode(command)
