"""Both ends of a measured connection as Pulsar sees them: ready-made frames, a client, the broker behind all peers.

Sequence ids of frames begin at 2^28: from there on each has five bytes, so that one can take
the place of another.
"""

import contextlib
import queue
import selectors
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Self

from google.protobuf.message import Message

from bench.harness import BenchError
from protocol.commands import body_of, decode, encode, encode_with_payload
from protocol.endpoint import EndpointForm
from protocol.frames import DEFAULT_MAX_MESSAGE_SIZE, FrameCutter, max_frame_size
from protocol.pulsar_pb2 import (
    BaseCommand,
    CommandConnect,
    CommandConnected,
    CommandFlow,
    CommandLookupTopic,
    CommandLookupTopicResponse,
    CommandMessage,
    CommandPartitionedTopicMetadata,
    CommandPartitionedTopicMetadataResponse,
    CommandPong,
    CommandProducer,
    CommandProducerSuccess,
    CommandSend,
    CommandSendReceipt,
    CommandSubscribe,
    CommandSuccess,
    MessageIdData,
    MessageMetadata,
)

FIRST_SEQUENCE = 1 << 28
PRODUCER_ID = CONSUMER_ID = 1
_SEQUENCE = bytes([0x80, 0x80, 0x80, 0x80, 0x01])
_METADATA = MessageMetadata(producer_name="bench", sequence_id=7, publish_time=1_700_000_000_000).SerializeToString()
_HEADERS = b"\x0e\x01" + bytes(4) + len(_METADATA).to_bytes(4, "big") + _METADATA
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Numbered:
    """A frame, and where in it five bytes hold the sequence id."""

    frame: bytes
    sequence_at: int


_BROKERS = EndpointForm(("pulsar", "pulsar+ssl"), "pulsar://127.0.0.1:6650")


def send_frame(size: int, producer_id: int = PRODUCER_ID) -> Numbered:
    """A SEND of one message whose whole frame has about `size` bytes."""
    command = CommandSend(producer_id=producer_id, sequence_id=FIRST_SEQUENCE, num_messages=1)
    return _numbered(_filled(command, size))


def receipt() -> Numbered:
    """Return the receipt of a SEND."""
    identity = MessageIdData(ledger_id=12345, entry_id=67890)
    return _numbered(
        encode(CommandSendReceipt(producer_id=PRODUCER_ID, sequence_id=FIRST_SEQUENCE, message_id=identity))
    )


def message_frame(size: int) -> bytes:
    """A MESSAGE whose whole frame has about `size` bytes."""
    identity = MessageIdData(ledger_id=12345, entry_id=67890, partition=-1)
    return _filled(CommandMessage(consumer_id=CONSUMER_ID, message_id=identity, redelivery_count=0), size)


def flow(permits: int) -> bytes:
    """Return the FLOW of `permits` permits."""
    return encode(CommandFlow(consumer_id=CONSUMER_ID, message_permits=permits))


def many(frame: bytes) -> bytes:
    """Return about a MiB of a frame."""
    return frame * max(1, _CHUNK // len(frame))


def _filled(command: CommandSend | CommandMessage, size: int) -> bytes:
    filler = bytes(max(0, size - len(encode_with_payload(command, _HEADERS))))
    return encode_with_payload(command, _HEADERS + filler)


def _numbered(frame: bytes) -> Numbered:
    return Numbered(frame, frame.index(_SEQUENCE))


_ANSWER_S = 20.0
_LIVES = {BaseCommand.PING, BaseCommand.PONG}


def hello(broker: str = "") -> bytes:
    """Return a CONNECT, to the broker `host:port` if one is named."""
    connect = CommandConnect(client_version="bench", protocol_version=20)
    if broker:
        connect.proxy_to_broker_url = broker
    return encode(connect)


def open_producer(topic: str, port: int, streams: int = 1) -> socket.socket:
    """A connection with producers of the topic; the last one to be opened has PRODUCER_ID, those before higher ones.

    Raises:
        BenchError: If an answer is a refusal, or does not come.
    """
    client = _arrive(topic, port)
    for number in range(PRODUCER_ID + streams - 1, PRODUCER_ID - 1, -1):
        opening = CommandProducer(topic=topic, producer_id=number, request_id=2 + number)
        opening.producer_name = f"bench-{topic[-3:]}-{number}"
        client.ask(opening, BaseCommand.PRODUCER_SUCCESS)
    return client.connection


def open_consumer(topic: str, port: int) -> socket.socket:
    """A connection with a Shared open_consumer, which has not asked for messages yet.

    Raises:
        BenchError: If an answer is a refusal, or does not come.
    """
    client = _arrive(topic, port)
    opening = CommandSubscribe(
        topic=topic, subscription="bench", sub_type=CommandSubscribe.Shared, consumer_id=CONSUMER_ID, request_id=3
    )
    client.ask(opening, BaseCommand.SUCCESS)
    return client.connection


def broker_of(topic: str, port: int) -> str:
    """Look up a topic by the address at `port`; returns the broker as `host:port`.

    Raises:
        BenchError: If an answer is a refusal, or does not come.
    """
    client = _Client(port, hello())
    client.ask(CommandPartitionedTopicMetadata(topic=topic, request_id=1), BaseCommand.PARTITIONED_METADATA_RESPONSE)
    answer = client.ask(CommandLookupTopic(topic=topic, request_id=2), BaseCommand.LOOKUP_RESPONSE)
    client.connection.close()
    lookup = answer.lookup_response
    if lookup.response != CommandLookupTopicResponse.Connect:
        raise BenchError(f"the lookup of {topic} failed: {lookup.message}")
    return _BROKERS.parse(lookup.broker_service_url or lookup.broker_service_url_tls).address


def _arrive(topic: str, port: int) -> "_Client":
    return _Client(port, hello(broker_of(topic, port)))


class _Client:
    """A connection on which questions are asked, one at a time."""

    def __init__(self, port: int, greeting: bytes) -> None:
        self.connection = socket.create_connection(("127.0.0.1", port), _ANSWER_S)
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._answers = self._read()
        self.connection.sendall(greeting)
        self._await(BaseCommand.CONNECTED)
        self.connection.settimeout(_ANSWER_S)

    def ask(self, question: Message, wanted: int) -> BaseCommand:
        """The answer to a command."""
        self.connection.sendall(encode(question))
        return self._await(wanted)

    def _await(self, wanted: int) -> BaseCommand:
        for answer in self._answers:
            if answer.type == wanted:
                return answer
            if answer.type not in _LIVES:
                name = BaseCommand.Type.Name(answer.type)
                raise self._failed(f"{name} instead of {BaseCommand.Type.Name(wanted)}: {answer}".replace("\n", " "))
        raise self._failed(f"the connection ended before {BaseCommand.Type.Name(wanted)} came")

    def _failed(self, why: str) -> BenchError:
        self.connection.close()
        return BenchError(why)

    def _read(self) -> Iterator[BaseCommand]:
        cutter = FrameCutter(max_frame_size(DEFAULT_MAX_MESSAGE_SIZE))
        try:
            while chunk := self.connection.recv(65536):
                for frame in cutter.feed(chunk):
                    yield decode(frame[8:])
        except OSError as error:
            raise self._failed(f"no answer within {_ANSWER_S:g} s: {error}") from error


CONNECTED = encode(
    CommandConnected(server_version="bench", protocol_version=20, max_message_size=DEFAULT_MAX_MESSAGE_SIZE)
)
_BACKLOG = 4096
_TURN_S = 0.05
_OPENED_S = 20.0
_FLEETS = "://public/sluice/"


class LoopbackSink:
    """Listens on a free port of the loopback interface, in a thread of its own, until the block ends.

    Args:
        advertised: The port that lookups name, if a proxy is before this one.
        fleets: The port that lookups of a fleet's topics name: of a broker that serves them.
    """

    def __init__(self, advertised: int | None = None, fleets: int | None = None) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG)
        self.listener.setblocking(False)
        self.port: int = self.listener.getsockname()[1]
        self._advertised = advertised or self.port
        self._fleets = fleets or self._advertised
        self._opened: queue.Queue[socket.socket] = queue.Queue()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self.listener, selectors.EVENT_READ)
        self._wanted, self._lent, self._given_back = threading.Event(), threading.Event(), threading.Event()
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="sink", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._thread.join()
        self.listener.close()

    def opened(self) -> socket.socket:
        """Return the next connection on which PRODUCER_ID or a consumer was opened, for the caller alone.

        Raises:
            BenchError: If none is.
        """
        try:
            return self._opened.get(timeout=_OPENED_S)
        except queue.Empty:
            raise BenchError(f"no producer or consumer arrived at the broker within {_OPENED_S:g} s") from None

    @contextlib.contextmanager
    def lent(self) -> Iterator[socket.socket]:
        """The listener, for the caller alone to accept from while the block lasts."""
        self._wanted.set()
        self._lent.wait()
        try:
            yield self.listener
        finally:
            self._given_back.set()

    def _lend(self) -> None:
        self._wanted.clear()
        self._lent.set()
        self._given_back.wait()
        self._lent.clear()
        self._given_back.clear()

    def _run(self) -> None:
        while not self._is_over:
            if self._wanted.is_set():
                self._lend()
            for key, _ in self._selector.select(_TURN_S):
                if key.data is None:
                    self._accept()
                else:
                    self._read(key.data)
        for key in list(self._selector.get_map().values()):
            key.fileobj.close() if isinstance(key.fileobj, socket.socket) else None
        self._selector.close()

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError):
            connection, _ = self.listener.accept()
            connection.setblocking(True)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._selector.register(connection, selectors.EVENT_READ, _Handshake(connection, self._owner_of))

    def _owner_of(self, topic: str) -> int:
        return self._fleets if _FLEETS in topic else self._advertised

    def _read(self, handshake: "_Handshake") -> None:
        state = handshake.read()
        if state is not None:
            self._selector.unregister(handshake.connection)
        if state is True:
            self._opened.put(handshake.connection)
        elif state is False:
            handshake.connection.close()


class _Handshake:
    """One connection up to PRODUCER or SUBSCRIBE."""

    def __init__(self, connection: socket.socket, owner_of: Callable[[str], int]) -> None:
        self.connection = connection
        self._cutter = FrameCutter(max_frame_size(DEFAULT_MAX_MESSAGE_SIZE))
        self._owner_of = owner_of

    def read(self) -> bool | None:
        """Read and answer the frames that have arrived: True when the stream is open, False at the connection's end."""
        try:
            chunk = self.connection.recv(65536)
            for frame in self._cutter.feed(chunk):
                envelope = decode(frame[8:])
                if envelope.type == BaseCommand.CONNECT:
                    self.connection.sendall(CONNECTED)
                else:
                    self._answer(envelope)
                if _is_open(envelope):
                    return True
        except OSError:
            return False
        return None if chunk else False

    def _answer(self, envelope: BaseCommand) -> None:
        answer = answer_to(envelope, self._owner_of)
        if answer is not None:
            self.connection.sendall(encode(answer))


def _is_open(envelope: BaseCommand) -> bool:
    """Return whether this was the last command before the measurement."""
    is_last = envelope.type == BaseCommand.PRODUCER and envelope.producer.producer_id == PRODUCER_ID
    return is_last or envelope.type == BaseCommand.SUBSCRIBE


def answer_to(envelope: BaseCommand, owner_of: Callable[[str], int]) -> Message | None:
    """Answer a command behind CONNECT; None: no answer. Every topic is there, and unpartitioned.

    Args:
        envelope: The command.
        owner_of: Tells the port of the broker that serves a topic.
    """
    if envelope.type == BaseCommand.PING:
        return CommandPong()
    if envelope.type == BaseCommand.PARTITIONED_METADATA:
        success: Any = CommandPartitionedTopicMetadataResponse.Success
        return CommandPartitionedTopicMetadataResponse(
            request_id=body_of(envelope).request_id, partitions=0, response=success
        )
    if envelope.type == BaseCommand.LOOKUP:
        port = owner_of(body_of(envelope).topic)
        return CommandLookupTopicResponse(
            request_id=body_of(envelope).request_id,
            response=CommandLookupTopicResponse.Connect,
            broker_service_url=f"pulsar://127.0.0.1:{port}",
            broker_service_url_tls=f"pulsar+ssl://127.0.0.1:{port}",
            authoritative=True,
        )
    if envelope.type == BaseCommand.PRODUCER:
        name = envelope.producer.producer_name or "bench"
        return CommandProducerSuccess(request_id=envelope.producer.request_id, producer_name=name)
    if envelope.type == BaseCommand.SUBSCRIBE:
        return CommandSuccess(request_id=envelope.subscribe.request_id)
    return None
