"""Producers and consumers of one session and their states at the broker, as streams with limits.

The state of an id here must equal its state at the broker, or a client could be charged as another one:

    (free) ──PRODUCER, SUBSCRIBE──▶ opening ──SUCCESS──▶ open ──the client's CLOSE──▶ closing ──SUCCESS──▶ (free)
                                       │                   ├── UNSUBSCRIBE's SUCCESS ──▶ (free)
                                       ├──ERROR──▶ (free)  │
                                       └─ the broker's CLOSE, a block ──▶ the proxy's own CLOSE ──SUCCESS──▶ (free)

A command for an id that is not free is refused, unless it names the open stream of that id: clients that reconnect
within a connection open their stream once more, and brokers accept that. Only open streams pass entries. A broker's
CLOSE may be a late one of the stream that had the id before: so the proxy closes the stream that the broker may have.
It also does so where the broker accepts a PRODUCER whose CLOSE has been answered before (`GivenUp`).

Source: org.apache.pulsar.broker.service.ServerCnx
"""

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

from google.protobuf.message import Message

from limiter.limiter import Stream, StreamName
from limiter.token_bucket import NANOS_PER_SECOND
from protocol.commands import encode, text
from protocol.frames import MOST_NAME_BYTES, ProtocolError
from protocol.pulsar_pb2 import (
    CommandCloseConsumer,
    CommandCloseProducer,
    CommandError,
    CommandProducer,
    CommandProducerSuccess,
    CommandSendError,
    CommandSendReceipt,
    CommandSubscribe,
    CommandSuccess,
    InvalidTopicName,
    NotAllowedError,
    ServiceNotReady,
    TooManyRequests,
)
from protocol.topic_name import TopicName, parse_topic
from proxy.admission_control import NotAdmittedError
from proxy.budgets import Claim
from proxy.observe.connection import Connection, client_of
from proxy.refusals import NO_REQUEST, TOO_MANY_DEBTS, TOO_MUCH_KEPT, RefusedError, request_refused
from proxy.session.data_path import DataPath
from proxy.session.engine import Engine
from proxy.session.responses import Requests
from proxy.session.session_admission import SessionAdmission, error_of
from proxy.slices import Work

MOST_GIVEN_UP = 1000
"""Most PRODUCERs of one connection that are kept; the oldest is forgotten, and its late answer ends the connection."""


class GivenUp:
    """PRODUCERs of one connection whose CLOSE was answered before the PRODUCER itself.

    Brokers authorize a PRODUCER before they give it its id, and may accept it long after its CLOSE. An honest client
    closes a producer that took longer to open than it would wait. So the producer may still come, and its id must not
    be used for another topic. Another producer name may use it: each answer of the broker has the name of its producer.

        PRODUCER(id 1, topic A) ─▶ authorizes …           CLOSE(id 1) ─▶ SUCCESS: id 1 is free
                                   … PRODUCER_SUCCESS: the broker has id 1 on topic A

    Source: handleProducer of org.apache.pulsar.broker.service.ServerCnx
    """

    __slots__ = ("_order", "_topics")

    def __init__(self) -> None:
        self._topics: dict[int, dict[int, str]] = {}
        """Topics by request id, by producer id."""
        self._order: deque[tuple[int, int]] = deque()
        """Producer and request ids in their order; some requests have been answered since."""

    def add(self, producer_id: int, topic: str, request_id: int) -> int | None:
        """Keep a PRODUCER; return the request that is forgotten for it, or None."""
        self._topics.setdefault(producer_id, {})[request_id] = topic
        self._order.append((producer_id, request_id))
        if len(self._order) <= MOST_GIVEN_UP:
            return None
        oldest_producer, oldest = self._order.popleft()
        return oldest if self.answered(oldest_producer, oldest) else None

    def answered(self, producer_id: int, request_id: int) -> bool:
        """Forget a request, which the broker has answered or which is the oldest; return whether it was kept."""
        topics = self._topics.get(producer_id, {})
        was_kept = topics.pop(request_id, None) is not None
        if was_kept and not topics:
            del self._topics[producer_id]
        return was_kept

    def forbids(self, producer_id: int, topic: str) -> bool:
        """Return whether a producer of another topic may still come under this id."""
        return any(other != topic for other in self._topics.get(producer_id, {}).values())


MOST_STREAMS = 65_536
"""Most producers, and most consumers, of one connection."""
STREAM_MEMORY = 3 * 1024
"""Bytes that a stream takes beside its names; its limiters are counted by themselves (`limiter/registry.py`)."""
_COPIES = 4
"""Copies of a name that are kept: in the stream, in indexes, and for the next report."""
_MANY = 500
"""Streams whose end frees much memory."""
_LOOKED_AT_ONCE = 20
"""Streams that one step looks at, which takes less time than to close one."""
BETWEEN_REDELIVERIES_NS = NANOS_PER_SECOND
"""Shortest time between two redeliveries for which a consumer's held entries are dropped."""


class NameTooLongError(ProtocolError):
    """A broker gives a producer a longer name than any client may choose."""

    cause = "name_too_long"


Opening = CommandProducer | CommandSubscribe


def topic_named(name: str) -> TopicName:
    """Return the topic that a client's command names.

    Raises:
        RefusedError: If that is no valid name.
    """
    try:
        return parse_topic(name)
    except ValueError as error:
        raise RefusedError(InvalidTopicName, str(error)) from None


class Streams:
    """Opens and closes streams as the commands of a session ask.

    Args:
        engine: Has the limits of the streams.
        connection: The client's connection.
        admission: Bounds the number of streams and the rate of subscribing.
        to_broker: The data path of producers.
        to_client: The data path of consumers.
        requests: The pending requests, for those of the proxy's own.
        memory: Counts the memory of the streams.
        reply: Sends a frame to the client.
    """

    __slots__ = (
        "_admission",
        "_asked_at",
        "_closing",
        "_drops_from",
        "_engine",
        "_expelled",
        "_given_up",
        "_holds_stopped",
        "_memory",
        "_newcomers",
        "_opening",
        "_reopening",
        "_reply",
        "_requests",
        "_to_broker",
        "_to_client",
        "_vacated",
        "_vacating",
        "connection",
        "refusals",
    )

    def __init__(
        self,
        engine: Engine,
        connection: Connection,
        admission: SessionAdmission,
        to_broker: DataPath,
        to_client: DataPath,
        requests: Requests,
        memory: Claim,
        reply: Callable[[bytes], None],
    ) -> None:
        self._engine = engine
        self.connection = connection
        self._to_broker, self._to_client = to_broker, to_client
        self._requests = requests
        self._memory = memory
        self._reply = reply
        self.refusals = engine.refusals
        self._admission = admission
        # As sets they would be three times as large in a connection that has none.
        self._opening: dict[Stream, tuple[int, int]] = {}
        """The request ids, the proxy's and the client's, of openings that the broker has not answered."""
        self._reopening: dict[Stream, tuple[int, int]] | None = None
        """The same of open streams that the client opens once more; None before the first one."""
        self._closing: dict[Stream, None] = {}
        self._expelled: dict[tuple[str, int], None] = {}
        """The ids that the proxy itself closes at the broker, which has not answered yet."""
        self._given_up: GivenUp | None = None
        """What `GivenUp` keeps; None before the first case, as few sessions have one."""
        self._drops_from: dict[Stream, int] | None = None
        """When a consumer's held entries may be dropped again for a redelivery; None before the first one."""
        self._asked_at = -NANOS_PER_SECOND
        self._vacated: dict[Stream, None] | None = None
        """Streams that the proxy closes at the broker because it drains; None before the first one."""
        self._vacating = 0
        """Number of those CLOSEs that the broker has not answered."""
        self._newcomers: dict[Stream, None] = {}
        """Open streams that came after the first one was vacated, and that nobody has asked to close."""
        self._holds_stopped = False

    @staticmethod
    def name_of(command: Opening) -> tuple[StreamName, TopicName]:
        """Return the names of the stream that a PRODUCER or SUBSCRIBE opens, and its topic.

        Raises:
            RefusedError: If the topic's name is invalid, or some name is too long.
        """
        topic = topic_named(command.topic)
        if isinstance(command, CommandProducer):
            name = StreamName(
                "publish",
                topic.tenant,
                topic.namespace,
                topic.full,
                command.producer_id,
                producer_name=_bounded("producer", command.producer_name),
            )
        else:
            name = StreamName(
                "dispatch",
                topic.tenant,
                topic.namespace,
                topic.full,
                command.consumer_id,
                subscription=_bounded("subscription", command.subscription),
                consumer_name=_bounded("consumer", command.consumer_name),
            )
        return name, topic

    def check(self, topic: TopicName) -> None:
        """Check that clients may produce to and consume from a topic at all.

        Raises:
            RefusedError: If it is a fleet's.
        """
        try:
            self._engine.fleet_topics.check(topic)
        except RefusedError as error:
            self.refusals.note(self.connection, "fleet_topic", topic.full, str(error))
            raise

    def open(self, name: StreamName, topic: TopicName) -> Stream:
        """Return a new stream, which the broker is about to be asked for; `asked` follows.

        Raises:
            RefusedError: If the id is not free, or there are too many streams for the connection, the memory of the
                client, or a bound of `admission`.
        """
        path = self._path_to(name)
        if name.stream_id in path.streams or not self._is_free(name):
            kind = "producer" if name.direction == "publish" else "consumer"
            raise RefusedError(ServiceNotReady, f"{kind} id {name.stream_id} of this connection is in use")
        if len(path.streams) >= MOST_STREAMS:
            raise RefusedError(
                TooManyRequests, f"this connection has {MOST_STREAMS} streams, the most that one may have"
            )
        if self._engine.registry.owes_too_much(self.connection.client_network, self._engine.clock()):
            self._engine.memory.refused += 1
            raise RefusedError(TooManyRequests, TOO_MANY_DEBTS)
        is_dispatch = name.direction == "dispatch"
        by_entry = is_dispatch and self._engine.dispatch_rules.by_entry
        stream = Stream(name, (), path.release, self.connection, by_entry=by_entry)
        try:
            self._admission.open(stream, topic)
        except NotAdmittedError as error:
            raise RefusedError(error_of(error), str(error)) from None
        if not self._memory.take(_memory_of(name)):
            self._admission.close(stream)
            raise RefusedError(TooManyRequests, TOO_MUCH_KEPT)
        path.streams[name.stream_id] = stream
        registry = self._engine.registry
        self._asked_at = self._engine.clock()
        registry.open(stream, topic, self._asked_at, client_of(name, self.connection))
        if is_dispatch:
            registry.meter(stream, partial(self._to_broker.grant, name.stream_id))
        return stream

    def asked(self, stream: Stream, request_id: int, client_id: int) -> None:
        """Record that the broker is asked for the stream, under the proxy's request id and the client's."""
        self._opening[stream] = request_id, client_id

    def opened_before(self, name: StreamName) -> Stream | None:
        """Return the open stream that a PRODUCER or SUBSCRIBE of this name would open once more, or None.

        A broker answers such a command with success, and changes nothing. A PRODUCER without a name is one of the
        producer that the broker has named. While a stream is opened, once more or for the first time, it is refused.
        """
        stream = self._path_to(name).streams.get(name.stream_id)
        if stream is None or stream in self._opening or stream in self._closing or stream in (self._reopening or ()):
            return None
        return stream if _is_named(stream.name, name) else None

    def asked_again(self, stream: Stream, request_id: int, client_id: int) -> None:
        """Record that the broker is asked once more for an open stream, by this request id and the client's."""
        self._reopening = self._reopening or {}
        self._reopening[stream] = request_id, client_id

    def answered_again(self, answer: Message, stream: Stream) -> None:
        """Handle the broker's answer to a stream that was opened once more.

        An error leaves the stream as it is. So does a success, even if the broker had closed the stream and opened
        another one, whose names are the same: that CLOSE ends both.
        """
        is_last = not isinstance(answer, CommandProducerSuccess) or answer.producer_ready
        if self._reopening is not None and is_last:
            self._reopening.pop(stream, None)

    def is_closing(self, stream: Stream) -> bool:
        """Return whether the client asked to close the stream, and has no answer yet."""
        return stream in self._closing

    def closing(self, stream: Stream) -> None:
        """Record that the client asked to close the stream; its id is free when the broker has answered."""
        self._closing[stream] = None
        self._newcomers.pop(stream, None)

    def close(self, stream: Stream) -> None:
        """End a stream and drop its held entries; commands among them go on, as their answers are awaited."""
        if not stream.is_open:
            return
        self._closing.pop(stream, None)
        self._newcomers.pop(stream, None)
        if self._drops_from is not None:
            self._drops_from.pop(stream, None)
        if self._vacated is not None:
            self._vacated.pop(stream, None)
        self._give_up(stream)
        self._admission.close(stream)
        self._memory.add(-_memory_of(stream.name))
        path = self._path_of(stream)
        path.forget(stream)
        path.give_back(stream, self._engine.registry.close(stream, self._engine.clock()))

    def expel(self, stream: Stream) -> None:
        """End a stream, and close it at the broker by a CLOSE of the proxy's own, whose SUCCESS frees its id."""
        self.close(stream)
        self._close_at_broker(stream.name)

    def _close_at_broker(self, name: StreamName, *, or_is_gone: bool = False) -> None:
        """Close a stream at the broker, which frees its id; with `or_is_gone` an error also frees it."""
        key = name.direction, name.stream_id
        self._expelled[key] = None

        def answered(answer: CommandSuccess | CommandError) -> None:
            if or_is_gone or isinstance(answer, CommandSuccess):  # else the broker may have it still
                self._expelled.pop(key, None)

        self._to_broker.writer.insert(self._requests.own(_close_of(name), answered))

    def _is_free(self, name: StreamName) -> bool:
        """Return whether the broker has let go of an id that no stream has here."""
        if (name.direction, name.stream_id) in self._expelled:
            return False
        if self._given_up is None or name.direction == "dispatch":
            return True
        return not self._given_up.forbids(name.stream_id, name.topic)

    def _give_up(self, stream: Stream) -> None:
        """Handle the end of a stream whose opening is not answered yet, if so.

        A consumer's opening will not be answered: its id is taken before it is authorized. A producer's may be.
        """
        name, opening = stream.name, self._opening.pop(stream, None)
        if self._reopening is not None and stream in self._reopening:
            opening = self._reopening.pop(stream)
            self._reply(request_refused(opening[1], ServiceNotReady, "it was closed while it was opened once more"))
        if opening is None:
            return
        request_id, _client_id = opening
        if name.direction == "dispatch":
            self._requests.forget(request_id)
            return
        self._given_up = self._given_up or GivenUp()
        self._requests.disown(request_id, partial(self._answered_late, name, request_id), _size_of(name.topic))
        forgotten = self._given_up.add(name.stream_id, name.topic, request_id)
        if forgotten is not None:
            self._requests.forget(forgotten)

    def _answered_late(self, name: StreamName, request_id: int, answer: Message) -> None:
        """Handle the late answer to a producer that was given up: it is there after all, or refused.

        A stream that has its id by now is on the same topic. While that one is opening, it may be refused and the
        former one stay. If the proxy is closing the id, the late producer was there before that.
        """
        if isinstance(answer, CommandProducerSuccess) and not answer.producer_ready:
            return
        if self._given_up is not None:
            self._given_up.answered(name.stream_id, request_id)
        if isinstance(answer, CommandError) or (name.direction, name.stream_id) in self._expelled:
            return
        stream = self.producer(name.stream_id)
        if stream is None:
            self._close_at_broker(name)
        elif stream in self._opening:
            self.closed_by_broker(stream)

    def closed_by_broker(self, stream: Stream) -> None:
        """Handle a broker's CLOSE of this stream, or perhaps of the one before it: the CLOSE does not say which.

        Older brokers refuse a CLOSE of a stream that they have closed already.
        """
        opening = self._opening.get(stream)
        if opening is None:
            is_reopening = stream in (self._reopening or ())
            self.close(stream)
            self._close_at_broker(stream.name, or_is_gone=not is_reopening)
            return
        self.expel(stream)
        self._reply(request_refused(opening[1], ServiceNotReady, "the broker closed it while it was being opened"))

    def drop_held(self, stream: Stream, *, ask_again: bool) -> None:
        """Drop the held entries of a consumer, because the broker will deliver them again.

        The broker's commands among them go on: it does not repeat these.

        Args:
            stream: The consumer.
            ask_again: The client still counts on the permits of the dropped entries.
        """
        dropped = self._engine.scheduler.drop_held(stream, self._engine.clock())
        # First the permits: to give memory back may resume reading, and new entries must not count as dropped.
        if stream.permits is not None:
            entries = [entry for entry in dropped if not entry.is_free]
            messages, size = sum(entry.messages for entry in entries), sum(entry.size for entry in entries)
            stream.permits.dropped(len(entries), messages, size, ask_again=ask_again)
        self._path_of(stream).give_back(stream, dropped)

    def leave(self, stream: Stream) -> None:
        """Drop the held entries of a consumer that is about to end: the broker delivers them to others.

        No more entries are passed on: those on their way still would come before the entries that are dropped here.
        """
        self._forgo(stream)
        self.drop_held(stream, ask_again=False)
        stream.is_accepted = False

    @staticmethod
    def rewound(stream: Stream) -> None:
        """Record that the broker is asked to deliver again what a consumer has got already."""
        if stream.permits is not None:
            stream.permits.rewound()

    @property
    def tells_backlogs_apart(self) -> bool:
        """True if subscriptions without a backlog are not limited."""
        return self._engine.dispatch_rules.spares_caught_up

    def redeliver(self, stream: Stream, frame: bytes) -> bool:
        """Ask the broker for all that a consumer has not acknowledged, in place of its held entries.

        The permits of the held entries follow the command: sent before, the broker would use them for old entries.
        These permits are for entries that limits have not counted. So held entries are dropped once in a second: else a
        limited consumer could have the broker deliver any amount to the proxy, for 20 bytes a time.

        Returns:
            Whether it was done; else the caller passes the command on, and the held entries stay.
        """
        if stream.held:
            now = self._engine.clock()
            self._drops_from = self._drops_from or {}
            if now < self._drops_from.get(stream, now):
                return False
            self._drops_from[stream] = now + BETWEEN_REDELIVERIES_NS
        self._to_broker.writer.insert(frame)
        self.drop_held(stream, ask_again=True)
        return True

    def answered(self, answer: Message, stream: Stream) -> None:
        """Handle the broker's answer to an opening: it accepted the stream, and perhaps named the producer, or refused.

        A consumer that has asked to be closed since is not accepted.

        Raises:
            NameTooLongError: If the broker gives the producer too long a name.
        """
        self._opening.pop(stream, None)
        if isinstance(answer, CommandError):
            self.close(stream)
        elif isinstance(answer, CommandProducerSuccess):
            name = text(answer.producer_name)
            if len(name) > MOST_NAME_BYTES:
                raise NameTooLongError(f"a producer's name of {len(name)} characters, {MOST_NAME_BYTES} are allowed")
            stream.is_accepted = True
            self._admission.accepted(stream)
            before = _memory_of(stream.name)
            self._engine.registry.name(stream, name, self._engine.clock())
            self._memory.add(_memory_of(stream.name) - before)
            self._note_newcomer(stream)
        else:
            stream.is_accepted = stream not in self._closing
            self._admission.accepted(stream)
            self._note_newcomer(stream)

    def _note_newcomer(self, stream: Stream) -> None:
        """Note a stream that is open at the broker, and is to be closed there, if the session is leaving."""
        if self._vacated is None or stream in self._vacated:
            return
        if stream.is_open and stream not in self._closing and stream not in self._opening:
            self._newcomers[stream] = None

    def waits(self, stream: Stream) -> None:
        """Record that the broker lets a producer wait until others have closed; another answer follows."""
        self._admission.accepted(stream)

    def close_answered(self, answer: CommandSuccess | CommandError, stream: Stream) -> None:
        """Handle the broker's answer to a CLOSE.

        A consumer is over even if the CLOSE was refused: clients give theirs up whatever the answer (C++'s, Go's and
        Java's do), and brokers refuse only where they have none to close. A producer whose CLOSE was refused stays
        open.
        """
        self._closing.pop(stream, None)
        if isinstance(answer, CommandSuccess) or stream.name.direction == "dispatch":
            self.close(stream)
        else:
            self._note_newcomer(stream)

    def unsubscribe_answered(self, answer: CommandSuccess | CommandError, stream: Stream) -> None:
        """Handle the broker's answer to an UNSUBSCRIBE.

        The broker refuses it while the subscription has other consumers. The consumer then stays open, with its held
        entries and its permits.
        """
        if isinstance(answer, CommandSuccess):
            self.close(stream)

    def sought(self, answer: CommandSuccess | CommandError, stream: Stream) -> None:
        """Handle the broker's answer to a SEEK: held entries are from before, and will come again if they are wanted.

        Mostly the broker has closed the consumer before. If not, the client still counts on the permits that it asked
        for.
        """
        if isinstance(answer, CommandSuccess) and stream.is_open:
            self.rewound(stream)
            self.drop_held(stream, ask_again=not self.is_closing(stream))

    def present(self) -> list[Stream]:
        """Return the streams that are not over: there may be 131,072, so whoever looks at them does it in slices."""
        return [*self._to_broker.streams.values(), *self._to_client.streams.values()]

    def is_opening(self, stream: Stream) -> bool:
        """Return whether the broker has not answered the stream's opening yet."""
        return stream in self._opening

    def send_answered(self, command: CommandSendReceipt | CommandSendError, frame: bytes) -> bool:
        """Handle the broker's answer to a SEND; return whether it was passed on, with refusals that waited for it."""
        rejections = self._to_broker.rejections
        return rejections is not None and rejections.answered(command, frame)

    def producer(self, producer_id: int) -> Stream | None:
        """Return the open producer of this id, or None."""
        return self._to_broker.streams.get(producer_id)

    def consumer(self, consumer_id: int) -> Stream | None:
        """Return the open consumer of this id, or None."""
        return self._to_client.streams.get(consumer_id)

    def hold_behind(self, stream: Stream, frame: bytes) -> bool:
        """Hold a command until its stream's held entries have passed; return False if there are none: it may go on."""
        if not stream.held:
            return False
        self._path_of(stream).hold_behind(stream, frame)
        return True

    def close_all(self, then: Callable[[], None] = lambda: None) -> None:
        """Close all streams, some in each turn of the loop if there are many; call `then` after the last one."""
        self._engine.slices.run(Work.ENDINGS, self.ending(), then)

    # ---- leaving a process that drains (`LeavingStreams`)

    def count(self) -> int:
        """Return the number of streams."""
        return len(self._to_broker.streams) + len(self._to_client.streams)

    def holds_published(self) -> bool:
        """Return whether producers hold entries, or parts of one."""
        return self._to_broker.holds_any() or self._to_broker.keeps_part

    def awaits_answers(self) -> bool:
        """Return whether a request is without an answer."""
        return self._requests.count > 0 or self._requests.of_transactions > 0

    def asked_at(self) -> int:
        """Return the time at which the client asked for a stream last."""
        return self._asked_at

    def awaits_late_answers(self) -> bool:
        """Return whether a request is without an answer that has come since the first stream was vacated."""
        return self._requests.of_transactions > 0 or self._requests.late > 0

    def has_newcomers(self) -> bool:
        """Return whether there are streams that have been opened since the first one was vacated."""
        return bool(self._newcomers)

    def stop_holding(self, until: int) -> Iterator[None]:
        """Drop what comes from now on of producers that hold entries, the first of which had come by then.

        Held entries pass as before. The client gets no receipt for what is dropped, and sends it again when it has its
        producer elsewhere.
        """
        holds_stopped = False
        for number, stream in enumerate(list(self._to_broker.streams.values()), 1):
            if stream.held and stream.held[0].since <= until:
                stream.is_accepted = False
            holds_stopped |= bool(stream.held) and not stream.is_accepted
            if number % _LOOKED_AT_ONCE == 0:
                yield
        self._holds_stopped = holds_stopped

    def holds_stopped(self) -> bool:
        """Return whether a producer held entries whose further ones are dropped, when `stop_holding` looked last."""
        return self._holds_stopped

    def vacate(self, direction: str, answered: Callable[[], None]) -> Iterator[None]:
        """Close the streams of a direction at the broker, one in each step; they pass nothing more.

        Here they stay until their client knows, and their ids with them. A stream that its client closes, or that the
        broker has not accepted yet, is left as it is.
        """
        path = self._to_broker if direction == "publish" else self._to_client
        path.abandon()
        if self._vacated is None:
            self._vacated = {}
            self._requests.leaves()
        for number, stream in enumerate(list(path.streams.values()), 1):
            if stream.is_open and stream not in self._opening and stream not in self._vacated:
                self._vacate(stream, answered)
                yield
            elif number % _LOOKED_AT_ONCE == 0:
                yield

    def _vacate(self, stream: Stream, answered: Callable[[], None]) -> None:
        self.leave(stream)
        self._newcomers.pop(stream, None)
        if self._vacated is None or stream in self._closing:
            return
        self._vacated[stream] = None
        self._vacating += 1

        def closed(_answer: CommandSuccess | CommandError) -> None:
            self._vacating -= 1
            answered()

        self._to_broker.writer.insert(self._requests.own(_close_of(stream.name), closed))

    def is_vacated(self) -> bool:
        """Return whether the broker has answered each CLOSE of a stream that is vacated."""
        return self._vacating == 0

    def dismissals(self, direction: str) -> Iterator[bytes]:
        """Yield the CLOSE for the client of each vacated stream of a direction, and nothing after some others."""
        for number, stream in enumerate(list(self._vacated or {}), 1):
            if stream.name.direction == direction and stream.is_open and stream not in self._closing:
                yield close_frame(stream.name)
            elif number % _LOOKED_AT_ONCE == 0:
                yield b""

    def ending(self) -> Iterator[None]:
        """Close all streams, one in each step.

        First all permits are given up: else each closed consumer would make room that the next one takes. Streams that
        hold entries are closed first: until then they take tokens for their entries.
        """
        self._reopening = None
        streams = self.present()
        if len(streams) >= _MANY:
            self._engine.shared.heap.freeing()
        waiting, others = deque[Stream](), deque[Stream]()
        for number, stream in enumerate(streams, 1):
            if stream.name.direction == "dispatch":
                self._forgo(stream)
            (waiting if stream.held else others).append(stream)
            if number % _LOOKED_AT_ONCE == 0:
                yield
        streams.clear()  # a closed stream is freed at once, and not with all others at the end
        while waiting or others:
            self.close((waiting or others).popleft())
            yield
        self._to_broker.abandon()
        self._to_client.abandon()

    @staticmethod
    def _forgo(consumer: Stream) -> None:
        if consumer.permits is not None:
            consumer.permits.forgo()

    def _path_of(self, stream: Stream) -> DataPath:
        return self._path_to(stream.name)

    def _path_to(self, name: StreamName) -> DataPath:
        return self._to_broker if name.direction == "publish" else self._to_client


def _bounded(kind: str, name: str | bytes) -> str:
    """Return a name, checked to be read alike here and at the broker.

    Raises:
        RefusedError: If the name is too long, or not valid UTF-8, which decoders turn into different texts.
    """
    if not isinstance(name, str):  # protobuf hands out a string field that is not UTF-8 as bytes
        raise RefusedError(NotAllowedError, f"the {kind}'s name is not UTF-8")
    size = len(name.encode())
    if size > MOST_NAME_BYTES:
        raise RefusedError(NotAllowedError, f"the {kind}'s name has {size} bytes, {MOST_NAME_BYTES} are allowed")
    return name


def _is_named(opened: StreamName, name: StreamName) -> bool:
    """Return whether a command of this name means the stream that is open under its id."""
    return (opened.topic, opened.subscription, opened.consumer_name) == (
        name.topic,
        name.subscription,
        name.consumer_name,
    ) and name.producer_name in {"", opened.producer_name}


def _memory_of(name: StreamName) -> int:
    """Return the bytes of memory that the stream of this name takes."""
    names = name.topic, name.producer_name, name.subscription, name.consumer_name
    return STREAM_MEMORY + _COPIES * sum(map(_size_of, names))


def _size_of(name: str) -> int:
    """Return the most bytes of a text in memory: a character beyond 65,535 makes all characters four bytes wide."""
    return len(name) if name.isascii() else 4 * len(name)


def _close_of(name: StreamName) -> CommandCloseProducer | CommandCloseConsumer:
    if name.direction == "publish":
        return CommandCloseProducer(producer_id=name.stream_id, request_id=0)
    return CommandCloseConsumer(consumer_id=name.stream_id, request_id=0)


def close_frame(name: StreamName) -> bytes:
    """Return the CLOSE of a stream as a client gets it from a broker."""
    command = _close_of(name)
    command.request_id = NO_REQUEST
    return encode(command)
