"""The client of a measurement: asks where a topic is, goes there as it is told, and opens one stream."""

import socket
import time
from collections.abc import Callable, Iterator

from google.protobuf.message import Message

from loadgen.bench.errors import BenchError
from loadgen.bench.frames import CONSUMER_ID, PRODUCER_ID
from protocol.commands import decode, encode
from protocol.frames import FrameCutter
from protocol.limits import DEFAULT_MAX_MESSAGE_SIZE, max_frame_size
from protocol.pulsar_pb2 import (
    BaseCommand,
    CommandConnect,
    CommandLookupTopic,
    CommandLookupTopicResponse,
    CommandPartitionedTopicMetadata,
    CommandProducer,
    CommandSubscribe,
)

_ANSWER_S = 20.0
_LIVES = {BaseCommand.PING, BaseCommand.PONG}


def hello(broker: str = "") -> bytes:
    """CONNECT; to this `host:port` behind the proxy, if one is named."""
    connect = CommandConnect(client_version="bench", protocol_version=20)
    if broker:
        connect.proxy_to_broker_url = broker
    return encode(connect)


def producer(topic: str, port: int, streams: int = 1) -> socket.socket:
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


def consumer(topic: str, port: int) -> socket.socket:
    """A connection with a Shared consumer, which has not asked for messages yet.

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
    """Where the topic is, as `host:port`, asked by the address at `port`.

    Raises:
        BenchError: If an answer is a refusal, or does not come.
    """
    client = _Client(port, hello())
    client.ask(CommandPartitionedTopicMetadata(topic=topic, request_id=1), BaseCommand.PARTITIONED_METADATA_RESPONSE)
    answer = client.ask(CommandLookupTopic(topic=topic, request_id=2), BaseCommand.LOOKUP_RESPONSE)
    client.connection.close()
    found = answer.lookup_response
    if found.response != CommandLookupTopicResponse.Connect:
        raise BenchError(f"the lookup of {topic} failed: {found.message}")
    return str(found.broker_service_url).removeprefix("pulsar://")


def wait_listening(port: int, longest_s: float, may_come: Callable[[], bool] = lambda: True) -> bool:
    """Whether somebody listens there in time; no more is waited for once nobody `may_come`."""
    deadline = time.monotonic() + longest_s
    while time.monotonic() < deadline and may_come():
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            time.sleep(0.05)
        else:
            return True
    return False


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
