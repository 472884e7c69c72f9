"""A fleet's link by two topics, in the protocol of the members' own brokers.

Each member has a producer on `…-reports`, and on `…-grants` a consumer and a producer that waits for exclusive access.
Whose producer is ready coordinates, and subscribes to the reports. Both topics are non-persistent: nothing is stored,
and what a member misses is told anew a cycle later.

What a broker does with exclusive access (4.0.8):

- The client of the exclusive producer is killed: its connection ends, and the next in line is ready at once.
- It is frozen: the broker notices after one to two of its keep-alive intervals (30 s each). Therefore a waiting member
  that hears no grants for `SILENT_LEASES`, though its connections stand, takes access with ExclusiveWithFencing: the
  frozen one's producer is closed, all who wait get ProducerFenced, and stand in line anew.
- One that was fenced out and sends nothing is not always told; when it sends, its producer or connection is ended.
- What a closed producer still sends is ignored, so a member that wakes up grants nothing, whatever it believes.
- The topic's bundle is unloaded, or its broker ends: all producers are closed and who comes first is ready. The topic's
  epoch begins anew, as it is kept in memory.

Source: org.apache.pulsar.broker.service.AbstractTopic (incrementTopicEpochIfNeeded, 4.0.8)
"""

import asyncio
import contextlib
import secrets
import time
from collections import deque
from collections.abc import Callable
from random import uniform
from struct import Struct
from struct import error as StructError  # noqa: N812 - an exception
from typing import Any, Final, NamedTuple, cast

from google.protobuf.message import DecodeError, Message

from fleet.messages import MOST_MESSAGE
from protocol.commands import encode, encode_with_payload, split, text, whole_body
from protocol.endpoint import Endpoint, EndpointError
from protocol.errors import ProtocolError
from protocol.frames import DEFAULT_MAX_MESSAGE_SIZE, FrameCutter, max_frame_size
from protocol.pulsar_pb2 import (
    AuthData,
    BaseCommand,
    CommandAuthResponse,
    CommandCloseConsumer,
    CommandCloseProducer,
    CommandConnect,
    CommandFlow,
    CommandLookupTopic,
    CommandLookupTopicResponse,
    CommandPing,
    CommandPong,
    CommandProducer,
    CommandSend,
    CommandSubscribe,
    MessageMetadata,
    ProducerAccessMode,
)
from proxy.brokers.dialing import BrokerDialer
from proxy.brokers.lookup import MOST_REDIRECTS, broker_in
from proxy.brokers.targets import TargetRefusedError
from proxy.fleet.link import Callbacks, LinkCounts, LinkState, backoff
from proxy.session.broker_connector import BrokerRotation

Auth = tuple[str, Callable[[], bytes]]
"""The name of a method of authentication, and what to show, asked for anew each time."""

OPEN_S: Final = 8.0
"""Seconds in which a producer or consumer is to be open, from the first connection on."""
PING_S: Final = 10.0
"""A broker that is silent for so long is asked, and left after as long again."""
FAREWELL_S: Final = 0.5
"""Seconds that a broker has to take what is still to be sent when the link stops."""
SILENT_LEASES: Final = 1.5
"""A coordinator that is silent for so many lease times, or up to half as many again, is replaced."""
STEADY_S: Final = 5.0
"""What was open for so long begins with the shortest wait when it is to be opened again."""
MOST_UNSENT: Final = 4 * MOST_MESSAGE
"""Bytes that wait for a broker that does not read; what would come on top is dropped."""
_PERMITS: Final = 1000
_CLIENT: Final = "Sluice fleet"
_PROTOCOL_VERSION: Final = 20
_U16, _U32 = Struct(">H"), Struct(">I")
_CHECKSUM, _BROKER_ENTRY = 0x0E01, 0x0E02
_FAILURES = (OSError, ProtocolError, EndpointError, TargetRefusedError)


def topics(namespace: str, fleet: str) -> tuple[str, str]:
    """The topics of a fleet's reports and of its grants."""
    return f"non-persistent://{namespace}/{fleet}-reports", f"non-persistent://{namespace}/{fleet}-grants"


class _RefusedError(OSError):
    """A broker refuses what it was asked for."""


class _Connection:
    """A connection with a broker: requests and their answers, and what goes on on it.

    Args:
        broker: Where it leads.
        reader: Of the connection.
        writer: Of it.
        auth: What is shown.
    """

    def __init__(
        self, broker: Endpoint, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, auth: Auth | None
    ) -> None:
        self.broker = broker
        self.streams: dict[tuple[bool, int], _Stream] = {}
        """Producers and consumers by (is it a producer, its id)."""
        self.waiting: dict[int, _Candidate] = {}
        """Who waits for exclusive access, by the request's id."""
        self.is_lost = False
        self._reader = reader
        self._writer = writer
        self._auth = auth
        self._cutter = FrameCutter(max_frame_size(DEFAULT_MAX_MESSAGE_SIZE))
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._request_ids = 0
        self._greeted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._heard = True
        self._timer: asyncio.TimerHandle | None = None
        self._task = asyncio.get_running_loop().create_task(self._read())

    async def greet(self, proxied_to: Endpoint | None) -> None:
        """Say CONNECT, and wait until the broker lets this client in.

        Raises:
            OSError: If it does not.
        """
        connect = CommandConnect(client_version=_CLIENT, protocol_version=_PROTOCOL_VERSION, auth_method_name="none")
        connect.feature_flags.supports_auth_refresh = True
        if self._auth is not None:
            connect.auth_method_name, connect.auth_data = self._auth[0], self._auth[1]()
        if proxied_to is not None:
            connect.proxy_to_broker_url = proxied_to.address
        self.send(encode(connect))
        await self._greeted
        self._timer = asyncio.get_running_loop().call_later(PING_S, self._look)

    async def request(self, command: Message, candidate: "_Candidate | None" = None) -> Any:
        """Send a command with an id of this connection's, and return its answer.

        A candidate's producer is answered twice if it has to wait; he is told when it is ready.

        Raises:
            OSError: If the broker refuses, or the connection is lost.
        """
        request_id = cast("Any", command).request_id = self.next_request()
        if self.is_lost:
            raise ConnectionResetError("the connection is lost")
        if candidate is not None:
            self.waiting[request_id] = candidate
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._answers[request_id] = answer
        self.send(encode(command))
        try:
            return await answer
        finally:
            self._answers.pop(request_id, None)

    def next_request(self) -> int:
        """The id of a request."""
        self._request_ids += 1
        return self._request_ids

    def send(self, frame: bytes) -> bool:
        """Send a frame; False: the broker does not read, or the connection is lost."""
        if self.is_lost or self._writer.transport.get_write_buffer_size() > MOST_UNSENT:
            return False
        self._writer.write(frame)
        return True

    def close(self, error: Exception | None = None) -> None:
        """Leave it; whatever goes on on it ends."""
        if self.is_lost:
            return
        self.is_lost = True
        if self._timer is not None:
            self._timer.cancel()
        self._writer.transport.abort() if error else self._writer.close()
        self._task.cancel()
        lost = error or ConnectionResetError("the connection is closed")
        for future in (self._greeted, *self._answers.values()):
            if not future.done():
                future.set_exception(lost)
                future.exception()  # whoever waited is perhaps gone
        for stream in list(self.streams.values()):
            stream.closed()
        self.streams.clear()
        self.waiting.clear()

    async def ended(self) -> None:
        """Wait until nothing of it is left; what the broker does not take at once, it does not get."""
        with contextlib.suppress(OSError):
            async with asyncio.timeout(FAREWELL_S):
                await self._writer.wait_closed()
        self._writer.transport.abort()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _read(self) -> None:
        try:
            while chunk := await self._reader.read(65536):
                self._heard = True
                for frame in self._cutter.feed(chunk):
                    self._take(*split(frame))
                    if self.is_lost:
                        return
            self.close(ConnectionResetError("the broker ended the connection"))
        except _FAILURES as error:
            self.close(error)
        finally:
            self.close(ConnectionAbortedError("its reader has ended"))

    def _look(self) -> None:
        """Called each PING_S: ask a broker that was silent, leave one that stays so."""
        if not self._heard:
            self.close(TimeoutError("the broker is silent"))
            return
        self._heard = False
        self.send(encode(CommandPing()))
        self._timer = asyncio.get_running_loop().call_later(PING_S, self._look)

    def _take(self, envelope: BaseCommand, behind: bytes) -> None:
        kind = envelope.type
        if kind == BaseCommand.PING:
            self.send(encode(CommandPong()))
            return
        if kind == BaseCommand.PONG:
            return
        handler = _HANDLERS.get(kind)
        if handler is not None:
            handler(self, whole_body(envelope), behind)

    def _connected(self, _body: Any, _behind: bytes) -> None:
        if not self._greeted.done():
            self._greeted.set_result(None)

    def _challenged(self, _body: Any, _behind: bytes) -> None:
        method, data = ("none", b"") if self._auth is None else (self._auth[0], self._auth[1]())
        answer = CommandAuthResponse(client_version=_CLIENT, protocol_version=_PROTOCOL_VERSION)
        answer.response.CopyFrom(AuthData(auth_method_name=method, auth_data=data))
        self.send(encode(answer))

    def _answered(self, body: Any, _behind: bytes) -> None:
        answer = self._answers.get(body.request_id)
        if answer is not None and not answer.done():
            answer.set_result(body)

    def _produced(self, body: Any, behind: bytes) -> None:
        if body.producer_ready:
            candidate = self.waiting.pop(body.request_id, None)
            if candidate is not None:
                candidate.ready()
        self._answered(body, behind)

    def _failed(self, body: Any, _behind: bytes) -> None:
        error = _RefusedError(f"the broker refuses: {text(body.message)}")
        candidate = self.waiting.pop(body.request_id, None)
        answer = self._answers.get(body.request_id)
        if candidate is not None:
            candidate.closed()
        if answer is not None and not answer.done():
            answer.set_exception(error)
        elif not self._greeted.done():
            self.close(error)

    def _closed(self, body: Any, _behind: bytes) -> None:
        is_producer = isinstance(body, CommandCloseProducer)
        stream = self.streams.pop((is_producer, body.producer_id if is_producer else body.consumer_id), None)
        if stream is not None:
            stream.closed()

    def _migrated(self, _body: Any, _behind: bytes) -> None:
        self.close(_RefusedError("the topic has migrated to another cluster; name that one's brokers in `broker`"))

    def _receipt(self, body: Any, _behind: bytes) -> None:
        stream = self.streams.get((True, body.producer_id))
        if isinstance(stream, _Producer):
            stream.receipt(body.sequence_id)

    def _send_error(self, body: Any, _behind: bytes) -> None:
        stream = self.streams.get((True, body.producer_id))
        if stream is not None:
            stream.link.counts.dropped["refused"] += 1

    def _message(self, body: Any, behind: bytes) -> None:
        stream = self.streams.get((False, body.consumer_id))
        if isinstance(stream, _Consumer):
            stream.message(behind)


_HANDLERS: dict[int, Callable[[_Connection, Any, bytes], None]] = {
    BaseCommand.CONNECTED: _Connection._connected,  # noqa: SLF001 - its own table
    BaseCommand.AUTH_CHALLENGE: _Connection._challenged,  # noqa: SLF001
    BaseCommand.LOOKUP_RESPONSE: _Connection._answered,  # noqa: SLF001
    BaseCommand.SUCCESS: _Connection._answered,  # noqa: SLF001
    BaseCommand.PRODUCER_SUCCESS: _Connection._produced,  # noqa: SLF001
    BaseCommand.ERROR: _Connection._failed,  # noqa: SLF001
    BaseCommand.CLOSE_PRODUCER: _Connection._closed,  # noqa: SLF001
    BaseCommand.CLOSE_CONSUMER: _Connection._closed,  # noqa: SLF001
    BaseCommand.TOPIC_MIGRATED: _Connection._migrated,  # noqa: SLF001
    BaseCommand.SEND_RECEIPT: _Connection._receipt,  # noqa: SLF001
    BaseCommand.SEND_ERROR: _Connection._send_error,  # noqa: SLF001
    BaseCommand.MESSAGE: _Connection._message,  # noqa: SLF001
}


class _Stream:
    """A producer or consumer that is opened again and again until it is cancelled.

    Args:
        link: Whose it is.
        topic: Of which topic.
    """

    is_producer = True

    def __init__(self, link: "TopicLink", topic: str) -> None:
        self.link = link
        self.topic = topic
        self.id = 0
        self.connection: _Connection | None = None
        """Set while it is open."""
        self._ended = asyncio.Event()

    async def run(self) -> None:
        """Keep it open."""
        attempt = 0
        clock = asyncio.get_running_loop().time
        while True:
            opened = clock()
            try:
                async with asyncio.timeout(OPEN_S):
                    await self._connect()
                self.link.is_refused = False
                await self._stay()
            except _FAILURES as error:
                self.link.failed(error)
            finally:
                self._leave()
            attempt = 0 if clock() - opened > STEADY_S + OPEN_S else attempt + 1
            self.link.counts.reconnects += 1
            await asyncio.sleep(backoff(attempt))

    async def _connect(self) -> None:
        self._ended.clear()
        connection = await self.link.connection_for(self.topic)
        self.id = self.link.next_id()
        connection.streams[self.is_producer, self.id] = self
        self.connection = connection
        await self.open(connection)

    async def open(self, connection: _Connection) -> None:
        """Ask the broker for it."""
        await connection.request(CommandProducer(topic=self.topic, producer_id=self.id))

    async def _stay(self) -> None:
        await self._ended.wait()

    def _leave(self) -> None:
        connection, self.connection = self.connection, None
        if connection is None:
            return
        self.closed()
        if connection.streams.pop((self.is_producer, self.id), None) is not None:
            close = (
                CommandCloseProducer(producer_id=self.id, request_id=connection.next_request())
                if self.is_producer
                else CommandCloseConsumer(consumer_id=self.id, request_id=connection.next_request())
            )
            connection.send(encode(close))

    def closed(self) -> None:
        """Called when the broker or the connection ended it."""
        self._ended.set()

    @property
    def is_open(self) -> bool:
        """Whether messages can pass."""
        return self.connection is not None and not self._ended.is_set()


class _Producer(_Stream):
    """Sends reports."""

    def __init__(self, link: "TopicLink", topic: str) -> None:
        super().__init__(link, topic)
        self._sequence = 0

    def send(self, message: bytes) -> int:
        """Publish a message and return its sequence, from 1; 0: it could not be sent, and the cause was counted."""
        dropped = self.link.counts.dropped
        if self.connection is None or not self.is_open:
            dropped["disconnected"] += 1
        elif len(message) > MOST_MESSAGE:
            dropped["oversized"] += 1
        elif not self.connection.send(self._frame(message)):
            dropped["slow"] += 1
        else:
            self.link.counts.messages_out += 1
            return self._sequence
        return 0

    def _frame(self, message: bytes) -> bytes:
        self._sequence += 1
        metadata = MessageMetadata(
            producer_name=self.link.member, sequence_id=self._sequence, publish_time=time.time_ns() // 1_000_000
        ).SerializeToString()
        send = CommandSend(producer_id=self.id, sequence_id=self._sequence)
        return encode_with_payload(send, _U32.pack(len(metadata)) + metadata + message)

    def receipt(self, sequence: int) -> None:
        """Called when the broker has taken a message."""


class _Candidate(_Producer):
    """Waits for exclusive access to the grants; coordinates while it has it."""

    def __init__(self, link: "TopicLink", topic: str) -> None:
        super().__init__(link, topic)
        self.is_leading = False
        self._takes = False
        """The next time it does not wait in line."""
        self._sent: deque[tuple[int, int]] = deque(maxlen=1000)
        """The sequences without a receipt, and when they were sent."""

    async def open(self, connection: _Connection) -> None:
        """Ask for exclusive access, which a broker may give much later."""
        mode = ProducerAccessMode.ExclusiveWithFencing if self._takes else ProducerAccessMode.WaitForExclusive
        self._takes = False
        request = CommandProducer(topic=self.topic, producer_id=self.id, producer_access_mode=mode)
        await connection.request(request, self)

    async def _stay(self) -> None:
        """Stay until it is closed, or until the one who has access is silent for too long."""
        clock = asyncio.get_running_loop().time
        while not self._ended.is_set():
            due = max(self.link.heard_at, clock() - self.link.silence_s) + self.link.silence_s * uniform(1, 1.5)  # noqa: S311
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(due):
                    await self._ended.wait()
            now = clock()
            if now > due + 1:
                self.link.heard_at = now  # this process stood still: what it has missed is perhaps yet to be read
            is_silent = now - self.link.heard_at > self.link.silence_s
            if is_silent and not self.is_leading and self.link.hears_grants and not self._ended.is_set():
                self._takes = True
                return

    def ready(self) -> None:
        """Called when it has exclusive access."""
        if self.connection is not None and not self._ended.is_set():
            self.is_leading = True
            self._sent.clear()
            self.link.leads()

    def closed(self) -> None:
        """Called when the broker or the connection ended it, or another one has fenced it out."""
        super().closed()
        if self.is_leading:
            self.is_leading = False
            self.link.leads_no_more()

    def send(self, message: bytes) -> int:
        """Publish grants, as `_Producer.send` does."""
        sequence = super().send(message)
        if sequence:
            self._sent.append((sequence, time.monotonic_ns()))
        return sequence

    def receipt(self, sequence: int) -> None:
        """Called when the broker has taken grants: as these were sent, nobody else had access."""
        asked = 0
        while self._sent and self._sent[0][0] <= sequence:
            asked = self._sent.popleft()[1]
        if self.is_leading and asked:
            self.link.callbacks.on_confirmed(asked)


class _Consumer(_Stream):
    """Hears a topic by a subscription of its own, which ends with it.

    Args:
        link: Whose it is.
        topic: Of which topic.
        hear: Told of each message.
    """

    is_producer = False

    def __init__(self, link: "TopicLink", topic: str, hear: Callable[[bytes], None]) -> None:
        super().__init__(link, topic)
        self._hear = hear
        self._taken = 0

    async def open(self, connection: _Connection) -> None:
        """Subscribe, and say how much may come."""
        subscription = f"{self.link.member}-{secrets.token_hex(8)}"
        await connection.request(
            CommandSubscribe(
                topic=self.topic,
                subscription=subscription,
                sub_type=CommandSubscribe.Exclusive,
                consumer_id=self.id,
                durable=False,
            )
        )
        self._taken = 0
        connection.send(encode(CommandFlow(consumer_id=self.id, message_permits=_PERMITS)))
        self.link.heard_at = asyncio.get_running_loop().time()

    def message(self, behind: bytes) -> None:
        """Called with each entry: everything behind the command."""
        self._taken += 1
        if self._taken >= _PERMITS // 2 and self.connection is not None:
            self.connection.send(encode(CommandFlow(consumer_id=self.id, message_permits=self._taken)))
            self._taken = 0
        message = _payload(behind)
        if message is None:
            self.link.counts.dropped["foreign"] += 1
        elif len(message) > MOST_MESSAGE:
            self.link.counts.dropped["oversized"] += 1
        else:
            self.link.counts.messages_in += 1
            self._hear(message)


def _payload(behind: bytes) -> bytes | None:
    """The message in an entry, None if it is batched, compressed, encrypted, in chunks or no message at all."""
    start = 0
    try:
        if _U16.unpack_from(behind, start)[0] == _BROKER_ENTRY:
            start += 6 + _U32.unpack_from(behind, start + 2)[0]
        if _U16.unpack_from(behind, start)[0] == _CHECKSUM:
            start += 6
        size = _U32.unpack_from(behind, start)[0]
        if start + 4 + size > len(behind):
            return None
        metadata = MessageMetadata.FromString(behind[start + 4 : start + 4 + size])
    except (StructError, DecodeError):
        return None
    is_plain = not (
        metadata.HasField("num_messages_in_batch")
        or metadata.compression
        or metadata.encryption_keys
        or metadata.HasField("num_chunks_from_msg")
    )
    return behind[start + 4 + size :] if is_plain else None


class Membership(NamedTuple):
    """A member of a fleet.

    Attributes:
        namespace: Where the fleet's topics are: `tenant/namespace`.
        fleet: Its name.
        member: The member's name, unique in the fleet.
        lease_s: So long a share lasts: receipts that took half of it confirm nothing.
    """

    namespace: str
    fleet: str
    member: str
    lease_s: float = 2.0


class TopicLink:
    """A member's link by the topics of its fleet.

    Args:
        brokers: Those to begin with; one at least.
        dialer: Connects to them, and to those that they name.
        membership: Of what the member is one.
        callbacks: Are told what happens.
        auth: What is shown to brokers; None: nothing.
    """

    def __init__(
        self,
        brokers: tuple[Endpoint, ...],
        dialer: BrokerDialer,
        membership: "Membership",
        callbacks: Callbacks,
        auth: Auth | None = None,
    ) -> None:
        reports, grants = topics(membership.namespace, membership.fleet)
        self.counts = LinkCounts()
        self.member = membership.member
        self.callbacks = callbacks
        self.lease_s = membership.lease_s
        self.silence_s = SILENT_LEASES * membership.lease_s
        self.heard_at = 0.0
        """When grants came last, or began to be heard."""
        self.is_refused = False
        self.last_error = ""
        """Why something could not be opened the last time; for the status."""
        self._rotation = BrokerRotation(brokers)
        self._dialer = dialer
        self._auth = auth
        self._connections: dict[tuple[Endpoint, Endpoint | None], _Connection] = {}
        self._connecting = asyncio.Lock()
        self._ids = 0
        self._reporter = _Producer(self, reports)
        self._hearer = _Consumer(self, grants, self._granted)
        self._candidate = _Candidate(self, grants)
        self._reports = _Consumer(self, reports, callbacks.on_report)
        self._tasks: list[asyncio.Task[None]] = []
        self._hears_reports: asyncio.Task[None] | None = None

    @property
    def state(self) -> LinkState:
        """Whether reports and grants can pass, and whether this member coordinates."""
        if self._candidate.is_leading:
            return "leading"
        return "following" if self._reporter.is_open and self._hearer.is_open else "connecting"

    @property
    def refused(self) -> bool:
        """Whether brokers refused at once the last time, rather than being silent."""
        return self.is_refused

    @property
    def hears_grants(self) -> bool:
        """Whether grants would be heard."""
        return self._hearer.is_open

    async def start(self) -> None:
        """Begin; returns before anything is connected."""
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(each.run()) for each in (self._hearer, self._reporter, self._candidate)]

    async def stop(self) -> None:
        """End: no connection, task or timer is left."""
        tasks = [*self._tasks, *([self._hears_reports] if self._hears_reports else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks, self._hears_reports = [], None
        connections, self._connections = list(self._connections.values()), {}
        for connection in connections:
            connection.close()
        await asyncio.gather(*(each.ended() for each in connections))

    def report(self, message: bytes) -> bool:
        """Send a report to the coordinator, whoever it is; False: it cannot be sent now."""
        return self._reporter.send(message) > 0

    def grant(self, message: bytes) -> bool:
        """Send grants to all members; False: not leading, or they cannot be sent now."""
        return self._candidate.is_leading and self._candidate.send(message) > 0

    # ---- Told by its producers and consumers

    def next_id(self) -> int:
        """An id for a producer or consumer, never used before."""
        self._ids += 1
        return self._ids

    def failed(self, error: Exception) -> None:
        """Something could not be opened."""
        self.is_refused = isinstance(error, _RefusedError | ConnectionRefusedError)
        self.last_error = str(error) or "no answer in time"

    def leads(self) -> None:
        """This member has exclusive access to the grants."""
        self.counts.takeovers += 1
        self._hears_reports = asyncio.get_running_loop().create_task(self._reports.run())
        self.callbacks.on_lead()

    def leads_no_more(self) -> None:
        """It has lost it."""
        if self._hears_reports is not None:
            self._hears_reports.cancel()
            self._tasks = [each for each in self._tasks if not each.done()] + [self._hears_reports]
            self._hears_reports = None
        self.callbacks.on_unlead()

    def _granted(self, message: bytes) -> None:
        self.heard_at = asyncio.get_running_loop().time()
        self.callbacks.on_grant(message)

    # ---- Connections

    async def connection_for(self, topic: str) -> _Connection:
        """The connection with the broker that serves a topic.

        Raises:
            OSError: If it is not to be had.
            TargetRefusedError, EndpointError, ProtocolError: If a broker's answer leads nowhere.
        """
        connection = await self._any()
        is_authoritative = False
        for _ in range(MOST_REDIRECTS):
            answer = await connection.request(CommandLookupTopic(topic=topic, authoritative=is_authoritative))
            if answer.response == CommandLookupTopicResponse.Failed:
                raise _RefusedError(f"the broker refuses the lookup: {text(answer.message)}")
            broker = broker_in(answer, connection.broker.scheme)
            self._dialer.targets.learn(broker)
            if answer.response == CommandLookupTopicResponse.Connect:
                if answer.proxy_through_service_url and broker != connection.broker:
                    return await self._connection(connection.broker, broker)
                return await self._connection(broker, None)
            connection, is_authoritative = await self._connection(broker, None), answer.authoritative
        raise _RefusedError(f"the lookup was redirected {MOST_REDIRECTS} times")

    async def _any(self) -> _Connection:
        """A connection with one of the configured brokers."""
        for broker in self._rotation.brokers:
            found = self._connections.get((broker, None))
            if found is not None and not found.is_lost:
                return found
        clock = asyncio.get_running_loop().time
        order = self._rotation.order(clock())
        failure: Exception = OSError("no broker is configured")
        for broker in order:
            try:
                async with asyncio.timeout(OPEN_S / (len(order) + 1)):
                    found = await self._connection(broker, None)
            except _FAILURES as error:
                self._rotation.failed(broker, clock())
                failure = error
            else:
                self._rotation.answered(broker)
                return found
        raise failure

    async def _connection(self, broker: Endpoint, proxied_to: Endpoint | None) -> _Connection:
        key = broker, proxied_to
        async with self._connecting:
            found = self._connections.get(key)
            if found is not None and not found.is_lost:
                return found
            self._connections = {each: known for each, known in self._connections.items() if not known.is_lost}
            reader, writer = await self._dialer.open(broker, OPEN_S)
            found = _Connection(broker, reader, writer, self._auth)
            try:
                await found.greet(proxied_to)
            except BaseException:
                found.close()
                raise
            self._connections[key] = found
            return found
