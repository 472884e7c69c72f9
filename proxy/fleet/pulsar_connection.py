"""Sluice's own connections to topics: producers and consumers that are opened again whenever they end.

A topic's broker is found as clients find it: CONNECT to a configured broker, a lookup, redirects. Messages are opaque
here, unbatched and uncompressed, and of bounded size.
"""

import asyncio
import secrets
import time
from collections.abc import Callable
from struct import Struct
from struct import error as StructError  # noqa: N812 - an exception
from typing import Any, Final, NamedTuple, Protocol, TypeVar, cast
from weakref import WeakValueDictionary

from google.protobuf.message import DecodeError, Message

from protocol.commands import encode, encode_with_payload, split, text, whole_body
from protocol.endpoint import Endpoint, EndpointError
from protocol.frames import DEFAULT_MAX_MESSAGE_SIZE, FrameCutter, ProtocolError, max_frame_size
from protocol.printable import printable
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
    CommandProducerSuccess,
    CommandSend,
    CommandSubscribe,
    CommandSuccess,
    MessageIdData,
    MessageMetadata,
    ServerError,
)
from proxy.brokers.dialing import MOST_REDIRECTS, BrokerDialer, broker_in
from proxy.brokers.targets import TargetRefusedError
from proxy.fleet.link import MOST_PAUSE_S, LinkCounts, LinkTasks, backoff
from proxy.session.broker_connector import BrokerRotation

Auth = tuple[str, Callable[[], bytes]]
"""The name of a method of authentication, and a function that returns the credentials to show, called each time."""

OPEN_S: Final = 8.0
"""Seconds for opening a producer or consumer, from the first connection on."""
PING_S: Final = 10.0
"""Seconds after which a silent broker gets a PING; after as long again the connection ends."""
FAREWELL_S: Final = 0.5
"""Seconds that a broker has to take unsent bytes when the client stops."""
STEADY_S: Final = 5.0
"""Seconds after which an open producer or consumer is steady: it waits the shortest time before it is opened again."""
MOST_UNSENT: Final = 4 << 20
"""Bytes that wait for a broker that does not read; further messages are dropped."""
MOST_IDLE: Final = 8
"""Idle connections, at most; the oldest end: a broker may redirect to ever new addresses."""
MOST_METADATA: Final = 128 << 10
"""Bytes of a message's metadata, at most, with its key; a message with more is foreign, and is not read."""
_MOST_REASON: Final = 1000
_PERMITS: Final = 1000
_CHUNK: Final = 16 * 1024
_CLIENT: Final = "Sluice fleet"
_PROTOCOL_VERSION: Final = 20
_U16, _U32 = Struct(">H"), Struct(">I")
_CHECKSUM, _BROKER_ENTRY = 0x0E01, 0x0E02
_FAILURES = (OSError, ProtocolError, EndpointError, TargetRefusedError)
Answer = TypeVar("Answer", bound=Message)
_REMEDIES: dict[int, str] = {
    ServerError.AuthorizationError: "let the role that Sluice shows produce and consume: pulsar-admin namespaces "
    "grant-permission {namespace} --role ROLE --actions produce,consume",
    ServerError.AuthenticationError: "name a token that the brokers know: fleet.token_file, or authentication.broker",
    ServerError.TopicNotFound: "create the namespace: pulsar-admin namespaces create {namespace}, and, if brokers "
    "create no topics themselves, the topic: pulsar-admin topics create {topic}",
    ServerError.TopicTerminatedError: "the topic is terminated: delete it, and members write their policies again",
    ServerError.NotAllowedError: "make it a topic without partitions, in a namespace that allows topics and "
    "subscriptions",
}
_EARLIEST = MessageIdData(ledger_id=2**64 - 1, entry_id=2**64 - 1)  # -1 and -1


class BrokerRefusedError(OSError):
    """A broker refuses a request.

    Args:
        reason: The broker's reason.
        code: The broker's `ServerError`; None if it gives none.
    """

    def __init__(self, reason: str, code: int | None = None) -> None:
        super().__init__(reason)
        self.code = code


class AccessWaiter(Protocol):
    """A producer that waits for exclusive access to a topic."""

    def ready(self) -> None:
        """Called when there is access."""

    def closed(self) -> None:
        """Called when there will be none."""


class BrokerConnection:
    """A connection with a broker: requests and their answers, and the producers and consumers that are open on it.

    Args:
        broker: The broker at its other end.
        reader: The reader of the connection.
        writer: The writer of the connection.
        auth: The credentials that the broker is shown; None: none.
        defect: Called with an exception that only a defect of Sluice can raise. The connection ends by it.
    """

    def __init__(
        self,
        broker: Endpoint,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        auth: Auth | None,
        defect: Callable[[BaseException], None],
    ) -> None:
        self.broker = broker
        self.streams: dict[tuple[bool, int], BrokerStream] = {}
        """Producers and consumers by (is it a producer, its id)."""
        self.waiting: dict[int, AccessWaiter] = {}
        """Producers that wait for exclusive access, by the id of their request."""
        self.is_lost = False
        self.is_mute = False
        """The broker has not answered the latest lookup on this connection in its time."""
        self._reader = reader
        self._writer = writer
        self._auth = auth
        self._defect = defect
        self._cutter = FrameCutter(max_frame_size(DEFAULT_MAX_MESSAGE_SIZE))
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._request_ids = 0
        self._greeted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._heard = True
        self._timer: asyncio.TimerHandle | None = None
        self._task = asyncio.get_running_loop().create_task(self._read())

    async def greet(self, proxied_to: Endpoint | None) -> None:
        """Send CONNECT, and wait until the broker lets this client in.

        Args:
            proxied_to: The broker to which the other end, a proxy, should connect; None: none.

        Raises:
            OSError: If the broker does not let the client in.
        """
        connect = CommandConnect(client_version=_CLIENT, protocol_version=_PROTOCOL_VERSION, auth_method_name="none")
        connect.feature_flags.supports_auth_refresh = True
        if self._auth is not None:
            connect.auth_method_name, connect.auth_data = self._auth[0], self._auth[1]()
        if proxied_to is not None:
            connect.proxy_to_broker_url = proxied_to.address
        self.send_command(connect)
        await self._greeted
        self._timer = asyncio.get_running_loop().call_later(PING_S, self._look)

    @property
    def is_idle(self) -> bool:
        """Whether no producer or consumer is open on it, and no request is unanswered."""
        return not self.streams and not self._answers

    async def request(self, command: Message, kind: type[Answer], candidate: "AccessWaiter | None" = None) -> Answer:
        """Send a command with an id of this connection's, and return its answer.

        Args:
            command: The command.
            kind: The type of the answer.
            candidate: The producer that may have to wait for exclusive access. It then gets two answers, the second
                one by `ready`.

        Raises:
            OSError: If the broker refuses, or the connection is lost.
            ProtocolError: If the answer has another type.
        """
        request_id = cast("Any", command).request_id = self.next_request()
        if self.is_lost:
            raise ConnectionResetError("the connection is lost")
        if candidate is not None:
            self.waiting[request_id] = candidate
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._answers[request_id] = answer
        self.send_command(command)
        try:
            body = await answer
        except BaseException:
            self.waiting.pop(request_id, None)
            raise
        finally:
            self._answers.pop(request_id, None)
        if not isinstance(body, kind):
            error = ProtocolError(f"the broker answers {command.DESCRIPTOR.name} by {body.DESCRIPTOR.name}")
            self.close(error)
            raise error
        return body

    async def look_up(self, lookup: CommandLookupTopic) -> CommandLookupTopicResponse:
        """Return the broker's answer to a lookup, as `request` does."""
        try:
            answer = await self.request(lookup, CommandLookupTopicResponse)
        except asyncio.CancelledError:  # its time is over
            self.is_mute = True
            raise
        self.is_mute = False
        return answer

    def wait_no_more(self, candidate: object) -> None:
        """Forget a candidate: a late answer is about a producer that the candidate has left."""
        self.waiting = {request_id: waiter for request_id, waiter in self.waiting.items() if waiter is not candidate}

    def next_request(self) -> int:
        """Return an id for a request."""
        self._request_ids += 1
        return self._request_ids

    def send_command(self, command: Message) -> None:
        """Send a command. If the broker does not read it, end the connection: their states would differ."""
        if self._writer.is_closing():
            self.close(ConnectionResetError("the broker ended the connection"))
        elif not self.send(encode(command)):
            self.close(TimeoutError("the broker does not read"))

    def send(self, frame: bytes) -> bool:
        """Send a frame; False: the broker does not read, or the connection is lost."""
        transport = self._writer.transport
        if self.is_lost or transport.is_closing() or transport.get_write_buffer_size() > MOST_UNSENT:
            return False
        self._writer.write(frame)
        return True

    def close(self, error: Exception | None = None) -> None:
        """End the connection, and the producers and consumers on it."""
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
                future.exception()  # marks it as retrieved: the waiting task may be gone
        for stream in list(self.streams.values()):
            stream.closed()
        self.streams.clear()
        self.waiting.clear()

    async def ended(self) -> None:
        """Wait until the connection has ended. Bytes that a broker does not take within `FAREWELL_S` are lost."""
        try:
            async with asyncio.timeout(FAREWELL_S):
                await self._writer.wait_closed()
        except TimeoutError:
            self._writer.transport.abort()
        except OSError:  # the error by which it ended
            pass
        await asyncio.gather(self._task, return_exceptions=True)

    async def _read(self) -> None:
        try:
            while chunk := await self._reader.read(_CHUNK):
                self._heard = True
                for frame in self._cutter.feed(chunk):
                    self._take(*split(frame))
                    if self.is_lost:
                        return
                if len(chunk) == _CHUNK:  # more may follow, and clients wait
                    await asyncio.sleep(0)
            self.close(ConnectionResetError("the broker ended the connection"))
        except _FAILURES as error:
            self.close(error)
        except Exception as error:  # noqa: BLE001 - raised by the callbacks
            self._defect(error)
        finally:
            self.close(ConnectionAbortedError("its reader has ended"))

    def _look(self) -> None:
        """Called each `PING_S`: send a PING to a silent broker; if it stays silent, end the connection."""
        if not self._heard:
            self.close(TimeoutError("the broker is silent"))
            return
        self._heard = False
        self.send_command(CommandPing())
        self._timer = asyncio.get_running_loop().call_later(PING_S, self._look)

    def _take(self, envelope: BaseCommand, behind: bytes) -> None:
        kind = envelope.type
        if kind == BaseCommand.PING:
            self.send_command(CommandPong())
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
        self.send_command(answer)

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
        code = body.error if isinstance(body.error, int) else None
        error = BrokerRefusedError(f"the broker refuses: {_reason(body.message)}", code)
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
        self.close(BrokerRefusedError("the topic has migrated to another cluster; name that one's brokers in `broker`"))

    def _receipt(self, body: Any, _behind: bytes) -> None:
        stream = self.streams.get((True, body.producer_id))
        if isinstance(stream, TopicProducer):
            stream.receipt(body.sequence_id)

    def _send_error(self, body: Any, _behind: bytes) -> None:
        stream = self.streams.get((True, body.producer_id))
        if stream is not None:
            stream.client.counts.dropped["refused"] += 1

    def _message(self, body: Any, behind: bytes) -> None:
        stream = self.streams.get((False, body.consumer_id))
        if isinstance(stream, TopicConsumer):
            stream.message((body.message_id.ledger_id, body.message_id.entry_id), behind)


_HANDLERS: dict[int, Callable[[BrokerConnection, Any, bytes], None]] = {
    BaseCommand.CONNECTED: BrokerConnection._connected,  # noqa: SLF001 - its own table
    BaseCommand.AUTH_CHALLENGE: BrokerConnection._challenged,  # noqa: SLF001
    BaseCommand.LOOKUP_RESPONSE: BrokerConnection._answered,  # noqa: SLF001
    BaseCommand.SUCCESS: BrokerConnection._answered,  # noqa: SLF001
    BaseCommand.PRODUCER_SUCCESS: BrokerConnection._produced,  # noqa: SLF001
    BaseCommand.ERROR: BrokerConnection._failed,  # noqa: SLF001
    BaseCommand.CLOSE_PRODUCER: BrokerConnection._closed,  # noqa: SLF001
    BaseCommand.CLOSE_CONSUMER: BrokerConnection._closed,  # noqa: SLF001
    BaseCommand.TOPIC_MIGRATED: BrokerConnection._migrated,  # noqa: SLF001
    BaseCommand.SEND_RECEIPT: BrokerConnection._receipt,  # noqa: SLF001
    BaseCommand.SEND_ERROR: BrokerConnection._send_error,  # noqa: SLF001
    BaseCommand.MESSAGE: BrokerConnection._message,  # noqa: SLF001
}


class BrokerStream:
    """A producer or consumer that is opened again and again until it is cancelled.

    Args:
        client: The client of the brokers, by which it is opened.
        topic: The topic.
    """

    is_producer = True

    def __init__(self, client: "BrokerClient", topic: str) -> None:
        self.client = client
        self.topic = topic
        self.id = 0
        self.connection: BrokerConnection | None = None
        """The connection on which it is opened; None while there is none."""
        self._is_opened = False
        """Whether the broker has opened it on this connection. Messages that come earlier end the connection."""
        self._ended = asyncio.Event()

    async def run(self) -> None:
        """Keep it open until cancelled."""
        attempt = 0
        clock = asyncio.get_running_loop().time
        while True:
            opened = clock()
            try:
                async with asyncio.timeout(OPEN_S):
                    await self._connect()
                self.client.opened()
                await self._stay()
            except _FAILURES as error:
                self.client.failed(error)
            finally:
                self._leave()
            attempt = 0 if clock() - opened > STEADY_S + OPEN_S else attempt + 1
            self.client.counts.reconnects += 1
            await asyncio.sleep(backoff(attempt, self.client.most_pause_s))

    async def _connect(self) -> None:
        self._ended.clear()
        self._is_opened = False
        connection = await self.client.connection_for(self.topic)
        self.id = self.client.next_id()
        connection.streams[self.is_producer, self.id] = self
        self.connection = connection
        await self.open(connection)
        self._is_opened = True

    async def open(self, connection: BrokerConnection) -> None:
        """Ask the broker to open it."""
        await connection.request(CommandProducer(topic=self.topic, producer_id=self.id), CommandProducerSuccess)

    async def _stay(self) -> None:
        """Wait until it is closed. A subclass may return earlier, to open it anew."""
        await self._ended.wait()

    def _leave(self) -> None:
        connection, self.connection = self.connection, None
        if connection is None:
            return
        self.closed()
        connection.wait_no_more(self)
        if connection.streams.pop((self.is_producer, self.id), None) is not None:
            connection.send_command(
                CommandCloseProducer(producer_id=self.id, request_id=connection.next_request())
                if self.is_producer
                else CommandCloseConsumer(consumer_id=self.id, request_id=connection.next_request())
            )

    def closed(self) -> None:
        """Called when the broker or the connection has ended it."""
        self._ended.set()

    @property
    def is_open(self) -> bool:
        """Whether messages can pass."""
        return self._is_opened and self.connection is not None and not self._ended.is_set()


class TopicProducer(BrokerStream):
    """Publishes messages."""

    def __init__(self, client: "BrokerClient", topic: str) -> None:
        super().__init__(client, topic)
        self._sequence = 0

    def send(self, message: bytes, key: str = "") -> int:
        """Publish a message and return its sequence, from 1; 0: it could not be sent, and the cause was counted."""
        dropped = self.client.counts.dropped
        if self.connection is None or not self.is_open:
            dropped["disconnected"] += 1
        elif len(message) > self.client.most_message:
            dropped["oversized"] += 1
        elif not self.connection.send(self._frame(message, key)):
            dropped["slow"] += 1
        else:
            self.client.counts.messages_out += 1
            return self._sequence
        return 0

    def _frame(self, message: bytes, key: str) -> bytes:
        self._sequence += 1
        metadata = MessageMetadata(
            producer_name=self.client.sender, sequence_id=self._sequence, publish_time=time.time_ns() // 1_000_000
        )
        if key:
            metadata.partition_key = key
            metadata.uncompressed_size = len(message)  # by this field compaction recognizes messages without content
        encoded = metadata.SerializeToString()
        send = CommandSend(producer_id=self.id, sequence_id=self._sequence)
        return encode_with_payload(send, _U32.pack(len(encoded)) + encoded + message)

    def receipt(self, sequence: int) -> None:
        """Called when the broker has taken a message."""


class TopicEntry(NamedTuple):
    """A message of a topic.

    Attributes:
        sender: The name of the message's producer.
        key: The message's key; empty if it has none.
        message: The payload.
        position: The message's ledger and entry.
    """

    sender: str
    key: str
    message: bytes
    position: tuple[int, int]


class TopicConsumer(BrokerStream):
    """Receives a topic's messages by a subscription of its own, which ends with it.

    Args:
        client: The client of the brokers, by which it is opened.
        topic: The topic.
        on_message: Called with each message.
        on_open: Called after each opening, before any message.
        on_close: Called after each end.
        from_start: Whether each opening reads the compacted topic from its first message on.
    """

    is_producer = False

    def __init__(
        self,
        client: "BrokerClient",
        topic: str,
        on_message: Callable[[TopicEntry], None],
        on_open: Callable[[], None] = lambda: None,
        on_close: Callable[[], None] = lambda: None,
        *,
        from_start: bool = False,
    ) -> None:
        super().__init__(client, topic)
        self._on_message = on_message
        self._on_open, self._on_close = on_open, on_close
        self._from_start = from_start
        self._taken = 0

    def closed(self) -> None:
        """Called when the broker or the connection has ended it."""
        super().closed()
        self._on_close()

    async def open(self, connection: BrokerConnection) -> None:
        """Subscribe, and give permits for the first messages."""
        subscribe = CommandSubscribe(
            topic=self.topic,
            subscription=f"{self.client.name}-{secrets.token_hex(8)}",
            sub_type=CommandSubscribe.Exclusive,
            consumer_id=self.id,
            durable=False,
        )
        if self._from_start:
            subscribe.read_compacted = True
            subscribe.initial_position = CommandSubscribe.Earliest
            subscribe.start_message_id.CopyFrom(_EARLIEST)
        await connection.request(subscribe, CommandSuccess)
        self._taken = 0
        self._on_open()
        connection.send_command(CommandFlow(consumer_id=self.id, message_permits=_PERMITS))

    def message(self, position: tuple[int, int], behind: bytes) -> None:
        """Called with each entry: its position, and the bytes that follow the command."""
        self._taken += 1
        if self._taken >= _PERMITS // 2 and self.connection is not None:
            self.connection.send_command(CommandFlow(consumer_id=self.id, message_permits=self._taken))
            self._taken = 0
        entry = _entry(position, behind)
        if entry is None:
            self.client.counts.dropped["foreign"] += 1
        elif len(entry.message) > self.client.most_message:
            self.client.counts.dropped["oversized"] += 1
        else:
            self.client.counts.messages_in += 1
            self._on_message(entry)


def _entry(position: tuple[int, int], behind: bytes) -> TopicEntry | None:
    """Read the bytes after a MESSAGE command; None if they are batched, compressed, encrypted, chunked, or odd."""
    start = 0
    try:
        if _U16.unpack_from(behind, start)[0] == _BROKER_ENTRY:
            start += 6 + _U32.unpack_from(behind, start + 2)[0]
        if _U16.unpack_from(behind, start)[0] == _CHECKSUM:
            start += 6
        size = _U32.unpack_from(behind, start)[0]
        if size > MOST_METADATA or start + 4 + size > len(behind):
            return None
        metadata = MessageMetadata.FromString(behind[start + 4 : start + 4 + size])
    except (StructError, DecodeError):
        return None
    is_plain = not (
        metadata.HasField("num_messages_in_batch")
        or metadata.compression
        or metadata.encryption_keys
        or metadata.HasField("num_chunks_from_msg")
        or metadata.partition_key_b64_encoded
    )
    if not is_plain:
        return None
    return TopicEntry(text(metadata.producer_name), text(metadata.partition_key), behind[start + 4 + size :], position)


def _reason(message: str | bytes) -> str:
    return printable(text(message[:_MOST_REASON]))[:_MOST_REASON]


class BrokerClient:
    """A client of the brokers for Sluice's own topics: it keeps their producers and consumers open.

    Args:
        dialer: Connects to the configured brokers, which are asked first, and to brokers that they name.
        auth: The credentials that brokers are shown; None: none.
        name: The member's name, for people.
        most_message: Bytes of a message, at most.
        most_pause_s: Seconds between two tries to open a producer or consumer, at most.

    Attributes:
        tasks: The tasks that keep producers and consumers open, and other tasks of this client's owner.
    """

    def __init__(
        self,
        dialer: BrokerDialer,
        auth: Auth | None,
        name: str,
        most_message: int,
        most_pause_s: float = MOST_PAUSE_S,
    ) -> None:
        self.counts = LinkCounts()
        self.tasks = LinkTasks(self.counts, most_pause_s)
        self.name = name
        self.sender = f"{name}-{secrets.token_hex(8)}"
        """The name of this process' producers, unlike the member's name unique: it marks this process' messages."""
        self.most_message = most_message
        self.most_pause_s = most_pause_s
        self.is_refused = False
        """Whether brokers refused at once the last time, rather than being silent."""
        self.last_error = ""
        """The latest error of opening a producer or consumer; empty before the first."""
        self._last_code: int | None = None
        """The broker's `ServerError` in that case; None if no broker refused."""
        self._rotation = BrokerRotation(dialer.targets)
        self._dialer = dialer
        self._auth = auth
        self._connections: dict[tuple[Endpoint, Endpoint | None], BrokerConnection] = {}
        self._connecting: WeakValueDictionary[tuple[Endpoint, Endpoint | None], asyncio.Lock] = WeakValueDictionary()
        """A lock for each connection that is being made: a silent broker delays no connection to another one."""
        self._ids = 0

    async def stop(self) -> None:
        """End: no task and no connection is left."""
        await self.tasks.stop()
        connections, self._connections = list(self._connections.values()), {}
        for connection in connections:
            connection.close()
        await asyncio.gather(*(each.ended() for each in connections))

    def next_id(self) -> int:
        """Return an id for a producer or consumer, never used before."""
        self._ids += 1
        return self._ids

    def opened(self) -> None:
        """Called when a producer or consumer was opened."""
        self.is_refused = False

    def failed(self, error: Exception) -> None:
        """Called when a producer or consumer could not be opened, or has ended by an error."""
        self.is_refused = isinstance(error, BrokerRefusedError | ConnectionRefusedError)
        self.last_error = str(error) or "no answer in time"
        self._last_code = error.code if isinstance(error, BrokerRefusedError) else None

    def problem(self, topic: str) -> str:
        """Return the latest error of opening, and its remedy for this topic."""
        return "; ".join(part for part in (self.last_error, self.remedy(topic)) if part)

    def remedy(self, topic: str) -> str:
        """Return the remedy of the latest refusal, for this topic; empty if none is known."""
        namespace = topic.partition("://")[2].rpartition("/")[0]
        return _REMEDIES.get(self._last_code or -1, "").format(topic=topic, namespace=namespace)

    @property
    def finds_nothing(self) -> bool:
        """Whether the latest refusal said that there is no such topic, or no such namespace."""
        return self._last_code == ServerError.TopicNotFound

    async def connection_for(self, topic: str) -> BrokerConnection:
        """Return a connection with the broker that serves a topic.

        Raises:
            OSError: If no connection can be made.
            TargetRefusedError, EndpointError, ProtocolError: If a broker's answer names no usable broker.
        """
        connection = await self._any()
        is_authoritative = False
        for _ in range(MOST_REDIRECTS):
            answer = await self._look_up(connection, CommandLookupTopic(topic=topic, authoritative=is_authoritative))
            if answer.response == CommandLookupTopicResponse.Failed:
                raise BrokerRefusedError(f"the broker refuses the lookup: {_reason(answer.message)}", answer.error)
            broker = broker_in(answer, connection.broker.scheme)
            self._dialer.targets.learn(broker)
            if answer.response == CommandLookupTopicResponse.Connect:
                if answer.proxy_through_service_url and broker != connection.broker:
                    return await self._connection(connection.broker, broker)
                return await self._connection(broker, None)
            connection, is_authoritative = await self._connection(broker, None), answer.authoritative
        raise BrokerRefusedError(f"the lookup was redirected {MOST_REDIRECTS} times")

    async def _look_up(self, connection: BrokerConnection, lookup: CommandLookupTopic) -> CommandLookupTopicResponse:
        """Ask a broker. If it leaves the lookup unanswered, another broker is asked the next time."""
        try:
            return await connection.look_up(lookup)
        except asyncio.CancelledError:  # its time is over
            self._rotation.failed(connection.broker, asyncio.get_running_loop().time())
            raise

    async def _any(self) -> BrokerConnection:
        """Return a connection with one of the configured brokers."""
        for broker in self._dialer.targets.brokers:
            connection = self._connections.get((broker, None))
            if connection is not None and not connection.is_lost and not connection.is_mute:
                return connection
        clock = asyncio.get_running_loop().time
        order = self._rotation.order(clock())
        failure: Exception = OSError("no broker is configured")
        for broker in order:
            try:
                async with asyncio.timeout(OPEN_S / (len(order) + 1)):
                    connection = await self._connection(broker, None)
            except _FAILURES as error:
                self._rotation.failed(broker, clock())
                failure = error
            else:
                if not connection.is_mute:
                    self._rotation.answered(broker)
                return connection
        raise failure

    async def _connection(self, broker: Endpoint, proxied_to: Endpoint | None) -> BrokerConnection:
        key = broker, proxied_to
        async with self._connecting.setdefault(key, asyncio.Lock()):
            connection = self._connections.get(key)
            if connection is not None and not connection.is_lost:
                return connection
            self._forget_idle()
            reader, writer = await self._dialer.open(broker, OPEN_S)
            connection = BrokerConnection(broker, reader, writer, self._auth, self.tasks.defect)
            try:
                await connection.greet(proxied_to)
            except BaseException:
                connection.close()
                raise
            self._connections[key] = connection
            return connection

    def _forget_idle(self) -> None:
        """Forget lost connections, and end idle ones, except the latest `MOST_IDLE`."""
        for connection in [each for each in self._connections.values() if each.is_idle][:-MOST_IDLE]:
            connection.close()
        self._connections = {key: each for key, each in self._connections.items() if not each.is_lost}
