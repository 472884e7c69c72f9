"""Ask the proxy's admission for one session's connection, lookups and streams, and give their places back.

A connection that is not admitted gets an ERROR before CONNECTED, and is closed. Measured: C++ and Python clients treat
that error, whatever its code, as a broken connection. They come again after 0.1 s, 0.2 s, 0.4 s … until their operation
times out; so they are in as soon as there is room. A blocked client is kept and answered instead (`blocking.py`). For
connections over a bound that would not do: to keep them would not bound them.
"""

from collections.abc import Callable, Iterable, Iterator

from limiter.admission import Slot
from limiter.limiter import Stream
from limiter.names import counted_as
from protocol.pulsar_pb2 import (
    ConsumerBusy,
    NotAllowedError,
    ProducerBusy,
    ServerError,
    ServiceNotReady,
    TooManyRequests,
)
from protocol.topic_name import TopicName
from proxy.admission_control import Admission, AskedBound, BoundName, NotAdmittedError
from proxy.observe.connection import Connection, Refusals
from proxy.session.events import CloseReason, SessionEnd

_COMPACTION = "__compaction"
_ERRORS = {
    BoundName.SUBSCRIBE_RATE: NotAllowedError,
    BoundName.PRODUCERS: ProducerBusy,
    BoundName.CONSUMERS: ConsumerBusy,
    BoundName.CONSUMERS_OF_SUBSCRIPTION: ConsumerBusy,
}
_BY_ADDRESS = frozenset(
    {BoundName.CONNECTIONS, BoundName.CONNECTIONS_PER_ADDRESS, BoundName.CONNECTION_RATE_PER_ADDRESS}
)
_RATES = frozenset({BoundName.CONNECTION_RATE, BoundName.CONNECTION_RATE_PER_ADDRESS})


def error_of(refused: NotAdmittedError) -> ServerError:
    """Return Pulsar's error for what a bound refuses; for a bound that passes, the error after which clients retry.

    Source: org.apache.pulsar.broker.service.BrokerServiceException, getClientErrorCode
    """
    return ServiceNotReady if refused.is_passing else _ERRORS.get(refused.bound, TooManyRequests)


class SessionAdmission:
    """The places that one session has taken and has to give back.

    Args:
        admission: The bounds.
        connection: The session's client connection.
        refusals: Told of lookups and streams that are refused.
    """

    __slots__ = ("_admission", "_connection", "_places", "_refusals")

    def __init__(self, admission: Admission, connection: Connection, refusals: Refusals) -> None:
        self._admission = admission
        self._connection = connection
        self._refusals = refusals
        self._places: dict[Stream | None, tuple[Slot, ...]] = {}
        """Places by stream; None for the connection itself."""

    def connect(self, refuse: Callable[[SessionEnd], None]) -> None:
        """Ask for a place for the connection, whose address is known; call `refuse` with the reason if it gets none."""
        asked = [(bound, self._address() if bound in _BY_ADDRESS else "") for bound in self._admission.of_connections]
        try:
            self._enter(None, asked)
        except NotAdmittedError as error:
            close_reason = CloseReason.CONNECTION_RATE if error.bound in _RATES else CloseReason.TOO_MANY_CONNECTIONS
            refuse(SessionEnd(close_reason, str(error)))

    def disconnect(self) -> None:
        """Give back the connection's places: the client goes."""
        self._leave(None)

    def look_up(self) -> None:
        """Count a lookup: of a topic's broker, its number of partitions, or a namespace's topics.

        Lookups are counted by address, not by connection: to connect again gains nothing.

        Raises:
            NotAdmittedError: If the client's address looks up too often.
        """
        try:
            self._admit([(BoundName.LOOKUP_RATE, self._address())])
        except NotAdmittedError as error:
            self._refusals.note(self._connection, error.bound, "", str(error))
            raise

    def open(self, stream: Stream, topic: TopicName) -> None:
        """Take the places of a producer or consumer before it is opened.

        Raises:
            NotAdmittedError: If there are too many, or if the consumer subscribes too often.
        """
        if topic.is_system:
            return
        try:
            self._enter(stream, self._asked_by(stream), topic)
        except NotAdmittedError as error:
            self._refusals.note(self._connection, error.bound, topic.full, str(error))
            raise

    def accepted(self, stream: Stream) -> None:
        """Record that the broker has accepted the stream."""
        for place in self._places.get(stream, ()):
            place.accepted()

    def close(self, stream: Stream) -> None:
        """Give back the places of a stream that is over, however it ended."""
        self._leave(stream)

    def _asked_by(self, stream: Stream) -> Iterator[AskedBound]:
        name = stream.name
        if name.direction == "publish":
            yield BoundName.PRODUCERS, name.topic
            return
        if name.subscription != _COMPACTION:
            # As in Pulsar: a consumer that its client opens again has another id, and counts as another one.
            yield BoundName.SUBSCRIBE_RATE, (name.topic, self._address(), name.consumer_name, name.stream_id)
        yield BoundName.CONSUMERS, name.topic
        yield BoundName.CONSUMERS_OF_SUBSCRIPTION, (name.topic, name.subscription)

    def _address(self) -> str:
        return counted_as(self._connection.client_host)

    def _enter(self, stream: Stream | None, asked: Iterable[AskedBound], topic: TopicName | None = None) -> None:
        places = self._admit(asked, topic)
        if places:
            self._places[stream] = places

    def _admit(self, asked: Iterable[AskedBound], topic: TopicName | None = None) -> tuple[Slot, ...]:
        return self._admission.admit(asked, self._connection.client_address, self._address(), topic)

    def _leave(self, stream: Stream | None) -> None:
        for place in self._places.pop(stream, ()):
            place.give_back()
