"""A broker with exclusive producers and compacted topics, which does on demand what real ones do seldom."""

import asyncio
from collections.abc import Callable
from itertools import count
from typing import Any

from google.protobuf.message import Message

from protocol.commands import encode, encode_with_payload, split, whole_body
from protocol.endpoint import Endpoint
from protocol.frames import DEFAULT_MAX_MESSAGE_SIZE, FrameCutter, max_frame_size
from protocol.pulsar_pb2 import (
    AuthData,
    BaseCommand,
    CommandAuthChallenge,
    CommandConnected,
    CommandError,
    CommandLookupTopicResponse,
    CommandMessage,
    CommandPong,
    CommandProducerSuccess,
    CommandSendReceipt,
    CommandSuccess,
    MessageIdData,
    MessageMetadata,
    ProducerAccessMode,
    ServerError,
)

_SHARED = ProducerAccessMode.Value("Shared")
_FENCING = ProducerAccessMode.Value("ExclusiveWithFencing")


class Topic:
    """Who has access to a topic, who waits for it in which order, and who hears it."""

    def __init__(self) -> None:
        self.owner: tuple[Peer, int] | None = None
        self.line: list[tuple[Peer, int, int]] = []
        """Connection, producer and request of each that waits."""
        self.consumers: list[tuple[Peer, int]] = []
        self.kept: list[bytes] = []
        """What stood behind each SEND, if it is persistent."""
        self.readers: list[tuple[Peer, int]] = []
        """Consumers that read it from its start, and have not said yet how much may come."""

    def compacted(self) -> list[bytes]:
        """The last message of each key, if it is not empty."""
        last = {each: place for place, (each, _) in enumerate(map(_key_and_size, self.kept))}
        of_keys = [(place, *_key_and_size(each)) for place, each in enumerate(self.kept)]
        return [self.kept[place] for place, key, size in of_keys if not key or (last[key] == place and size)]


def _key_and_size(behind: bytes) -> tuple[str, int]:
    size = int.from_bytes(behind[6:10]) if behind[:2] == b"\x0e\x01" else int.from_bytes(behind[:4])
    start = 10 if behind[:2] == b"\x0e\x01" else 4
    metadata = MessageMetadata.FromString(behind[start : start + size])
    return metadata.partition_key, metadata.uncompressed_size


class ScriptedBroker:
    """A broker. What it does besides is set from outside, at any time.

    Attributes:
        is_silent: It reads and answers nothing, PINGs neither.
        refuses_producers: It answers each CommandProducer by this message.
        swallows: It takes what is sent, and delivers it to nobody.
        serves: Who serves the topics, if not this one.
        proxies: Lookups are answered as by a proxy: the broker is reached through it.
        challenge: An AUTH_CHALLENGE comes before CONNECTED.
        greeting: Bytes that it sends in place of CONNECTED.
        takes: Is shown each command; what it returns True for is not answered here.
    """

    def __init__(self) -> None:
        self.is_silent = False
        self.refuses_producers = ""
        self.swallows = False
        self.serves: Endpoint | None = None
        self.proxies = False
        self.challenge = False
        self.greeting = b""
        self.takes: Callable[[Peer, Any], bool] = lambda _peer, _command: False
        self.topics: dict[str, Topic] = {}
        self.peers: list[Peer] = []
        self.seen: list[Any] = []
        """Commands other than SEND, FLOW, PING."""
        self._server: asyncio.Server | None = None

    async def start(self) -> Endpoint:
        self._server = await asyncio.get_running_loop().create_server(lambda: Peer(self), "127.0.0.1", 0)
        return Endpoint("pulsar", "127.0.0.1", self._server.sockets[0].getsockname()[1])

    def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        self.drop()

    def drop(self) -> None:
        """End all connections."""
        for each in list(self.peers):
            each.transport.abort()

    def topic(self, name: str) -> Topic:
        return self.topics.setdefault(name, Topic())

    def publish(self, name: str, data: bytes) -> None:
        """Deliver what stands behind a SEND."""
        topic = self.topic(name)
        if name.startswith("persistent:"):
            topic.kept.append(data)
        for peer, consumer in topic.consumers:
            if (peer, consumer) not in topic.readers:
                peer.deliver(consumer, data, len(topic.kept))

    def seen_of(self, kind: type[Message]) -> list[Any]:
        return [each for each in self.seen if isinstance(each, kind)]


class Peer(asyncio.Protocol):
    """A connection of a client."""

    names = count()

    def __init__(self, broker: ScriptedBroker) -> None:
        self.broker = broker
        self.topics: dict[int, str] = {}
        """Of each producer."""
        self.cutter = FrameCutter(max_frame_size(DEFAULT_MAX_MESSAGE_SIZE))

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.broker.peers.append(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.broker.peers.remove(self)
        for topic in self.broker.topics.values():
            topic.consumers = [each for each in topic.consumers if each[0] is not self]
            topic.line = [each for each in topic.line if each[0] is not self]
        for producer in list(self.topics):
            self._left(producer)

    def data_received(self, data: bytes) -> None:
        for frame in self.cutter.feed(data):
            envelope, behind = split(frame)
            if self.broker.is_silent:
                continue
            name = BaseCommand.Type.Name(envelope.type).lower()
            body = whole_body(envelope)
            if name not in ("send", "flow", "ping"):
                self.broker.seen.append(body)
            if not self.broker.takes(self, body):
                getattr(self, f"_{name}")(body, behind)

    def say(self, command: Message) -> None:
        self.transport.write(encode(command))

    def _connect(self, _body: Any, _behind: bytes) -> None:
        if self.broker.greeting:
            self.transport.write(self.broker.greeting)
        elif self.broker.challenge:
            challenge = AuthData(auth_method_name="token", auth_data=b"again")
            self.say(CommandAuthChallenge(protocol_version=20, challenge=challenge))
        else:
            self.say(CommandConnected(server_version="scripted", protocol_version=20))

    def _auth_response(self, _body: Any, _behind: bytes) -> None:
        self.say(CommandConnected(server_version="scripted", protocol_version=20))

    def _ping(self, _body: Any, _behind: bytes) -> None:
        self.say(CommandPong())

    def _pong(self, _body: Any, _behind: bytes) -> None:
        pass

    def deliver(self, consumer: int, data: bytes, entry: int) -> None:
        message = CommandMessage(consumer_id=consumer, message_id=MessageIdData(ledger_id=0, entry_id=entry))
        self.transport.write(encode_with_payload(message, data))

    def _flow(self, body: Any, _behind: bytes) -> None:
        for topic in self.broker.topics.values():
            if (self, body.consumer_id) in topic.readers:
                topic.readers.remove((self, body.consumer_id))
                for data in topic.compacted():
                    self.deliver(body.consumer_id, data, len(topic.kept))

    def _lookup(self, body: Any, _behind: bytes) -> None:
        own = Endpoint("pulsar", *self.transport.get_extra_info("sockname")[:2])
        answer = CommandLookupTopicResponse(request_id=body.request_id, authoritative=True)
        answer.response = CommandLookupTopicResponse.Connect
        if self.broker.serves is not None and not self.broker.proxies:
            answer.response = CommandLookupTopicResponse.Redirect
        answer.broker_service_url = str(self.broker.serves or own)
        answer.proxy_through_service_url = self.broker.proxies
        self.say(answer)

    def _subscribe(self, body: Any, _behind: bytes) -> None:
        topic = self.broker.topic(body.topic)
        if not body.durable:
            topic.consumers.append((self, body.consumer_id))
        if body.read_compacted:
            topic.readers.append((self, body.consumer_id))
        self.say(CommandSuccess(request_id=body.request_id))

    def _close_consumer(self, body: Any, _behind: bytes) -> None:
        for topic in self.broker.topics.values():
            topic.consumers = [each for each in topic.consumers if each != (self, body.consumer_id)]
        self.say(CommandSuccess(request_id=body.request_id))

    def _producer(self, body: Any, _behind: bytes) -> None:
        if self.broker.refuses_producers:
            refusal = self.broker.refuses_producers
            self.say(CommandError(request_id=body.request_id, error=ServerError.AuthorizationError, message=refusal))
            return
        topic = self.broker.topic(body.topic)
        self.topics[body.producer_id] = body.topic
        if body.producer_access_mode == _SHARED:
            self.admit(body.producer_id, body.request_id)
            return
        if body.producer_access_mode == _FENCING:
            waiting, topic.line = topic.line, []
            for peer, producer, request in waiting:
                del peer.topics[producer]
                peer.say(CommandError(request_id=request, error=ServerError.ProducerFenced, message="fenced out"))
            if topic.owner is not None:
                del topic.owner[0].topics[topic.owner[1]]  # as a real one: it is told nothing
                topic.owner = None
        if topic.owner is None:
            topic.owner = self, body.producer_id
            self.admit(body.producer_id, body.request_id)
        else:
            topic.line.append((self, body.producer_id, body.request_id))
            self.admit(body.producer_id, body.request_id, is_ready=False)

    def admit(self, producer: int, request: int, *, is_ready: bool = True) -> None:
        name = f"scripted-{producer}-{next(self.names)}"
        self.say(CommandProducerSuccess(request_id=request, producer_name=name, producer_ready=is_ready))

    def _send(self, body: Any, behind: bytes) -> None:
        topic = self.topics.get(body.producer_id)
        waits = topic is not None and (self, body.producer_id) in [each[:2] for each in self.broker.topic(topic).line]
        if topic is None or waits:  # as ServerCnx.handleSend does with a producer that is not ready
            self.transport.abort()
            return
        self.say(CommandSendReceipt(producer_id=body.producer_id, sequence_id=body.sequence_id))
        if not self.broker.swallows:
            self.broker.publish(topic, behind)

    def _close_producer(self, body: Any, _behind: bytes) -> None:
        if body.producer_id in self.topics:
            self._left(body.producer_id)
        self.say(CommandSuccess(request_id=body.request_id))

    def _left(self, producer: int) -> None:
        topic = self.broker.topic(self.topics.pop(producer))
        topic.line = [each for each in topic.line if each[:2] != (self, producer)]
        if topic.owner == (self, producer):
            topic.owner = None
            if topic.line:
                peer, waiting, request = topic.line.pop(0)
                topic.owner = peer, waiting
                peer.admit(waiting, request)
